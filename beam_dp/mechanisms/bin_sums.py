"""Measures where the numbers of each bin lie on average, for a small part of a budget."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.privacy.noise.source import MAX_SCALE
from beam_dp.releases.synthetic_database.bin_sums import GRID, placed_columns

SUMS_SHARE = 0.02  # of the budget, for the sums of all columns


def with_bin_sums(
    make: Callable[[Guarantee], MarginalsPlan],
    domain: Domain,
    guarantee: Guarantee,
    wanted: bool | None = None,
) -> MarginalsPlan:
    """Returns the plan of a release that also measures sums of places within bins, if it can.

    Each record has a place in its bin of each numeric column, an integer from 0 to G = 2^20,
    whatever its value is (``PlaceLevels``). Less G / 2, the place is added to the sum of this bin.
    A record that is null or other in the column adds nothing. Every bin gets discrete noise, also
    an empty one.

    Privacy: a pure epsilon, a mu of Gaussian or a rho of zero-concentrated privacy, whichever the
    plan has, for the relation and the unit of ``guarantee``. A record is in one bin of a column, so
    it has a vector with at most one entry, of size G / 2 or less. The vector of the k =
    ``max_records_per_unit`` records of a unit has L1 and L2 norms of at most k G / 2 (triangle
    inequality). Under add-or-remove-one, the sums change by this vector. Under replace-one, they
    change by the difference of two such vectors, whose norms are at most k G: this is reached if
    the records move from one end of a bin to the other. The sums of C columns are one vector, with
    C times the L1 norm and sqrt(C) times the L2 norm. The losses of the release and of the sums
    add up, so the release is planned for a part of the guarantee, and the sums get the rest. What
    the records of a unit cost that are limited by ``max_unit_cost`` is not proved: then no sums are
    measured.

    Accuracy: the mean place of n records has a standard error of (scale / G) / n widths of the bin.

    ``make``: returns the plan of the release alone, for a part of ``guarantee``.
    ``wanted``: whether to measure sums; by default, if that is possible.
    """
    if wanted is False:
        return make(guarantee)
    names = tuple(column.name for column in placed_columns(domain))
    plan, reason = _with_sums_of(names, make, guarantee)
    if plan is None and wanted:
        raise InputError("bin_sums", True, f"must be left out: {reason}")
    return plan or make(guarantee)


def _with_sums_of(
    names: Names, make: Callable[[Guarantee], MarginalsPlan], guarantee: Guarantee
) -> tuple[MarginalsPlan | None, str]:
    """Returns the plan with sums of these columns, or the reason why there is none."""
    if not names:
        return None, "no numbers have bins"
    part, rest = Budget.of(guarantee).split(SUMS_SHARE)
    plan = make(part)
    # A plan that lists its own steps would not list that of the sums. A rho, which only textbook
    # noise spends, is not split.
    is_listed = type(plan).steps is MarginalsPlan.steps and plan.fits_tables
    if not is_listed or plan.loss.kind == "zcdp":
        return None, f"{plan.mechanism} measures no sums here"
    if plan.loss.kind != rest.kind:  # 2 % of mu^2 are 1 % of an epsilon
        part, _ = Budget.of(guarantee, plan.loss.kind).split(SUMS_SHARE)
        plan = make(part)
    whole = Budget.of(guarantee, plan.loss.kind)
    sums = planned(names, guarantee, whole - Budget.of(part, whole.kind))
    if plan.unit_costs is not None:
        return None, "max_unit_cost does not limit the sums of a unit"
    if sums is None:
        return None, "epsilon is too small"
    return dataclasses.replace(plan, guarantee=guarantee, loss=whole.loss, bin_sums=sums), ""


def planned(names: Names, guarantee: Guarantee, budget: Budget) -> Measurement | None:
    """Returns what measures the sums of columns for a budget; None if it is too small."""
    is_pure = budget.kind == "pure"
    moved = guarantee.max_records_per_unit * guarantee.neighboring.num_moved * GRID // 2
    norm = len(names) * (moved if is_pure else moved**2)
    scale = budget.scale(norm) if budget.amount > 0 else 2 * MAX_SCALE
    noise: Distribution = "discrete_laplace" if is_pure else "discrete_gaussian"
    return Measurement(names, "bin_sums", noise, scale, GRID) if scale <= MAX_SCALE else None

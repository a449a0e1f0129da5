"""Makes the records of a release from a hypothesis, and says where its fit to noisy tables starts.

This module never reads exact data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain, Names
from beam_dp.flags.shared import MAX_RECORDS
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.measurements import Measurement, closure_of
from beam_dp.mechanisms.marginals.pair_errors import REMAINING_NOISE
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, StartingRecords
from beam_dp.models import basis as bases, maximum_entropy
from beam_dp.models.basis import Basis, Coefficients, Support
from beam_dp.models.candidates import CandidateBasis, less_noise, record_table
from beam_dp.models.denoised_attributes import denoised
from beam_dp.models.junction_tree import tree_records
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.rounding import Target, improve_records, round_to_records
from beam_dp.models.tree_basis import TreeBasis
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database import measured_tables
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable, PairDistances
from beam_dp.releases.synthetic_database.records import distinct_records

# Large domains have many coefficients, so their fits stop at a larger tolerance: this takes a third
# as many passes and loses about 1 % of accuracy.
_ARRAY_TOLERANCE = 1e-6
_TOLERANCE = 1e-5


def plan_basis(
    plan: MarginalsPlan, sets: Iterable[Support] | None = None
) -> ResidualBasis | TreeBasis:
    """Returns the basis of a hypothesis, over an array or over a junction tree."""
    # ``sets``: attribute sets to join, as ascending axes; by default all sets of the workload.
    domain = plan.domain
    if sets is None:
        sets = [domain.axes(names) for names in plan.workload.maximal()]
    supports = closure_of(sets)
    if plans.fits_an_array(domain):
        return ResidualBasis(domain.shape, supports)
    impossible = [(each.axes, each.mask(domain.shape)) for each in domain.impossible]
    return TreeBasis(domain.shape, supports, impossible)


def independent_start(
    plan: MarginalsPlan,
    basis: Basis,
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
) -> tuple[maximum_entropy.NoisyCoefficients, int, NDArray[np.float64]]:
    """Returns noisy coefficients, the number of records, and log-weights (num_coefficients,)."""
    # The coefficients of long attributes are denoised. The log-weights are the hypothesis of
    # independent attributes; the number is noisy or public.
    observed = measured_tables.Combination(plan.domain, basis, measurements, tables).estimate()
    total = noisy_total(basis, observed) if plan.num_records == "noisy" else plan.num_records
    observed = denoised(plan.domain, basis, observed, total)
    return observed, total, maximum_entropy.independent_log_weights(basis, observed, total)


def outside(
    supports: Iterable[Support], domain: Domain, measurements: Sequence[MeasuredTable]
) -> list[Support]:
    """Returns the measured sets of attributes that a hypothesis does not join."""
    joined = set(supports)
    measured = [domain.axes(measurement.names) for measurement in measurements]
    return [axes for axes in dict.fromkeys(measured) if axes not in joined]


def tolerance(basis: Basis) -> float:
    """Returns the accuracy to which a fit is solved, in nats per coefficient."""
    is_array = isinstance(basis, ResidualBasis)
    return _ARRAY_TOLERANCE if is_array else _TOLERANCE


def names_of(domain: Domain, axes: Support) -> Names:
    """Returns the attribute names of axes."""
    return tuple(domain.names[axis] for axis in axes)


def noisy_total(basis: Coefficients, observed: maximum_entropy.NoisyCoefficients) -> int:
    """Returns the estimated number of records, from 1 to ``MAX_RECORDS``."""
    constant = float(observed.values[basis.slices[()]][0])
    scale = math.sqrt(bases.squared_scale(basis, (), ()))
    return min(max(1, round(constant * scale)), MAX_RECORDS)


Records = tuple[Sequence[NDArray[Any]], NDArray[np.int64]]

# Each sweep lowers the error less than the sweep before. After three sweeps, further sweeps would
# only fit noise: answers no longer come closer to the truth.
_NUM_SWEEPS = 3
# At this coarse tolerance the starting fit is five times as fast, and the fit to noisy tables
# corrects the remaining error.
_COARSER = 30
# Scaling a table to two or three smaller tables this often leaves differences below the noise.
_NUM_SCALINGS = 10


def array_release(
    basis: ResidualBasis,
    domain: Domain,
    log_weights: NDArray[np.float64],  # the hypothesis, shape (num_coefficients,)
    num_records: int,
    importance: NDArray[np.float64],  # shape (num_coefficients,): weights of squared errors
    max_error: float,  # the root of the weighted squared error that rounding may leave, in records
) -> Records:
    """Returns the distinct records rounded from a dense hypothesis, and their counts."""
    weights = basis.weights(log_weights)
    counts = round_to_records(basis, weights, num_records, importance, max_error)
    cells = np.flatnonzero(counts != 0)
    return domain.codes(cells), counts[cells]


def tree_release(
    domain: Domain,
    basis: TreeBasis,
    log_weights: NDArray[np.float64],  # the hypothesis, shape (num_coefficients,)
    num_records: int,
    loose: Sequence[Target],  # the tables that the tree does not join, in records
    pairs: Sequence[Support],
    distances: PairDistances | None = None,
    deviations: Mapping[Support, float] | None = None,  # of the noise of the tree's tables
) -> Records:
    """Returns the distinct records of a hypothesis over a junction tree, and their counts.

    Records are made from the tree, then moved towards the tree's tables and the loose tables: whole
    records that fit all tables at once contain much less noise. The tree's own tables of pairs keep
    the remaining pairs from drifting, with no more dependence than noisy ``distances`` show. Where
    the deviations are known, in records, the tree's tables of several attributes are kept within
    the error of a fit: at most the expected count of a cell, and what is left of the noise.
    """
    joined = zip(basis.sets, basis.marginals(log_weights, basis.sets), strict=True)
    targets = []
    for axes, weights in joined:
        table, slack = weights * num_records, None
        if deviations is not None and axes in deviations and len(axes) > 1:
            slack = np.minimum(table, REMAINING_NOISE * deviations[axes])
        targets.append(Target(axes, table, 1.0, slack))
    targets += loose
    covered = {pair for target in targets for pair in combinations(target.axes, 2)}
    others = [pair for pair in pairs if pair not in covered]
    tables = dict(zip(others, basis.marginals(log_weights, others), strict=True))
    if distances is not None:
        tables |= distances.shrunk(domain, tables)
    targets += [Target(axes, table * num_records, 1.0) for axes, table in tables.items()]
    impossible = [(rule.axes, rule.mask(domain.shape)) for rule in domain.impossible]
    codes = tree_records(basis.tree, num_records)
    _leave_out_impossible(domain, codes)
    improve_records(domain.shape, codes, targets, 0.0, _NUM_SWEEPS, impossible)
    distinct, counts = distinct_records(domain, list(codes))
    return distinct, counts


def many_records(
    domain: Domain,
    basis: TreeBasis,
    log_weights: NDArray[np.float64],
    num_records: int,
    moments: NDArray[np.float64],  # the coefficients of the hypothesis, in records
    importance: NDArray[np.float64],
    max_error: float,  # the root of the weighted squared error that rounding may leave, in records
) -> Records:
    """Returns records if there are more than ``MAX_CANDIDATES``: many copies of each candidate."""
    basis.calibrate(log_weights)
    codes = tree_records(basis.tree, plans.MAX_CANDIDATES)
    _leave_out_impossible(domain, codes)
    distinct, copies = distinct_records(domain, list(codes))
    codes = np.stack(distinct).astype(np.int32)
    cells = CandidateBasis(domain.shape, basis.supports, codes, np.zeros(len(copies)))
    weights = copies / copies.sum()
    counts = round_to_records(cells, weights, num_records, importance, max_error, moments)
    return tuple(column[counts > 0] for column in distinct), counts[counts > 0]


def _leave_out_impossible(domain: Domain, codes: NDArray[np.int32]) -> None:
    """Replaces impossible records by copies of possible records, in place."""
    # A tree gives impossible records no weight, unless tables of the tree round to 0.
    if not domain.impossible:
        return
    matches = np.logical_or.reduce([rule.matches(list(codes)) for rule in domain.impossible])
    wrong, right = np.flatnonzero(matches), np.flatnonzero(~matches)
    if len(wrong) and len(right):
        codes[:, wrong] = codes[:, np.resize(right, len(wrong))]


def loose_targets(
    basis: TreeBasis,
    log_weights: NDArray[np.float64],  # the hypothesis, shape (num_coefficients,)
    total: int,
    layout: bases.Coefficients,
    observed: maximum_entropy.NoisyCoefficients,  # all noisy coefficients, in records
    loose: Sequence[Support],
) -> list[Target]:
    """Returns target tables for the records: one per measured table that the tree does not join."""
    # The hypothesis's own table is moved towards the noisy table by ``less_noise``.
    targets: list[Target] = []
    loose = sorted(loose, key=len)  # a triple starts from the targets of its pairs
    for axes, weights in zip(loose, basis.marginals(log_weights, loose), strict=True):
        inside = [target for target in targets if set(target.axes) < set(axes)]
        table = _with_tables(total * weights, axes, inside)
        where = layout.slices[axes]
        difference = observed.values[where] - bases.table_coefficients(table)
        of_all = float(observed.variances[where].sum())
        targets.append(Target(axes, table + less_noise(table, difference, of_all), 1.0))
    return targets


def _with_tables(
    table: NDArray[np.float64], axes: Support, inside: Sequence[Target]
) -> NDArray[np.float64]:
    """Returns a table scaled until its sums come close to smaller tables, over one axis each."""
    for _ in range(_NUM_SCALINGS if inside else 0):
        for target in inside:
            (summed,) = [place for place, axis in enumerate(axes) if axis not in target.axes]
            sums = np.maximum(table.sum(axis=summed), np.finfo(float).tiny)
            table = table * np.expand_dims(np.maximum(target.table, 0.0) / sums, summed)
    return table


def record_coefficients(
    layout: bases.Coefficients, codes: Sequence[NDArray[Any]], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Returns the coefficients of released records, shape (num_coefficients,), in records."""
    result = np.empty(layout.num_coefficients)
    for support, where in layout.slices.items():
        table = record_table(layout.shape, codes, counts, support)
        result[where] = bases.table_coefficients(table)
    return result


def workload_pairs(workload: Workload) -> list[Support]:
    """Returns the pairs of attributes that are in some marginal of a workload."""
    axes = (workload.domain.axes(names) for names in workload)
    return sorted({pair for support in axes for pair in combinations(support, 2)})


def start_log_weights(
    start: StartingRecords,
    basis: Basis,
    importance: NDArray[np.float64],  # shape (num_coefficients,): weights of squared errors
    signs: NDArray[np.float64],  # shape (num_coefficients,), independent fair signs
    tolerance: float,
) -> NDArray[np.float64]:
    """Returns the hypothesis that fits the given records alone, shape (num_coefficients,)."""
    # The records are treated as a sample: each coefficient is fitted as if it had the sampling
    # variance of the same number of records with independent attributes.
    total = int(start.counts.sum())
    values = record_coefficients(basis, start.codes, start.counts)
    for support, where in basis.slices.items():
        values[where] /= np.sqrt(basis.cells_summed(support))
    independent = np.zeros_like(values)  # starts uniform, then uses the attributes of the records
    for _ in range(2):
        variances = total * maximum_entropy.independent_variances(basis, independent)
        sample = maximum_entropy.NoisyCoefficients(values, variances)
        independent = maximum_entropy.independent_log_weights(basis, sample, total)
    fit = maximum_entropy.fit_maximum_entropy(
        basis, sample, total, importance, signs, tolerance=_COARSER * tolerance
    )
    return fit.log_weights

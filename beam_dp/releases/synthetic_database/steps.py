"""The steps that measure tables for a synthetic database, as a card or a plan states them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.rounding import UNIT, rounded_up
from beam_dp.privacy.steps import LAPLACE, Step, above, gaussian_step, number, positive
from beam_dp.privacy.unit_costs import least_overlap
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable

# Up to this many attributes, all patterns of agreement between two records are tried.
_MAX_PATTERNS = 20


def table_steps(
    domain: Domain,
    tables: Sequence[MeasuredTable],
    guarantee: Guarantee,
    max_unit_cost: float | None = None,
) -> list[Step]:
    """Returns the steps that measure some tables: one step for each kind of table and of noise.

    A record is in one cell of each table. So k records of a unit move a table by k in L1 norm and
    by k in L2 norm; if the unit is replaced, by 2 k and by sqrt(2) k. The change of residuals by
    one record follows from the sizes of the attributes; the change by a replacement follows from
    the attributes in which the two records agree. If a unit's records are limited to the cost of C
    equal records, the unit moves residuals with Gaussian noise no more than C equal records do.
    """
    found = []
    for kind in ("table", "residual"):
        for distribution in ("discrete_laplace", "discrete_gaussian"):
            held = [
                each for each in tables if (each.kind, each.distribution) == (kind, distribution)
            ]
            if not held:
                continue
            words = f"measure {len(held):,} {kind}{'s' * (len(held) > 1)}"
            if distribution == "discrete_laplace":
                found.append(_laplace(words, domain, held, guarantee))
            else:
                found.append(_gaussian(words, domain, held, guarantee, max_unit_cost))
    return found


def largest_change(
    domain: Domain, weighted: Iterable[tuple[tuple[int, ...], Fraction]], neighboring: Neighboring
) -> Fraction:
    """Returns a bound, for any record, on the sum of weight x (L2 change of a residual)^2.

    The residual of one record has the squared norm prod(1 - 1 / size). The inner product of the
    residuals of two records has a factor 1 - 1 / size for each attribute in which the records
    agree, and -1 / size for each other attribute. A replacement may also add a record to the domain
    or remove a record from it.

    ``weighted``: the ascending axes of each residual, with the weight of the residual.
    """
    entries = list(weighted)
    one = Fraction(0)
    for axes, weight in entries:
        one += rounded_up(weight * math.prod(1 - Fraction(1, domain.shape[a]) for a in axes))
    if neighboring is Neighboring.ADD_OR_REMOVE_ONE:
        return one
    used = sorted({axis for axes, _ in entries for axis in axes if domain.shape[axis] > 1})
    if len(used) > _MAX_PATTERNS:
        supports = [axes for axes, _ in entries]
        bound = least_overlap(domain.shape, supports, [float(weight) for _, weight in entries])
        return max(one, 2 * one - 2 * Fraction(bound))
    # Indexed by pattern, with one bit per attribute: first the weight of each set of attributes,
    # then, attribute by attribute, the weighted inner product if two records agree exactly there.
    overlaps = np.zeros(2 ** len(used))
    for axes, weight in entries:
        if any(domain.shape[axis] == 1 for axis in axes):
            continue  # an attribute with one code has no residual
        overlaps[sum(1 << used.index(axis) for axis in axes)] += float(weight)
    total = float(overlaps.sum())
    for place, axis in enumerate(used):
        pairs = overlaps.reshape(-1, 2, 1 << place)
        without, held = pairs[:, 0], pairs[:, 1]
        apart = held / domain.shape[axis]
        overlaps = np.stack([without - apart, without + held - apart], axis=1).ravel()
    # The rounding error of each sum is a few units in the last place per attribute.
    least = Fraction(float(overlaps.min())) - Fraction(4 * (len(used) + 8) * UNIT * total)
    return max(one, 2 * one - 2 * least)


def _laplace(
    what: str, domain: Domain, tables: Sequence[MeasuredTable], guarantee: Guarantee
) -> Step:
    moved = guarantee.neighboring.num_moved * guarantee.max_records_per_unit
    epsilons = []
    for each in tables:
        norm = Fraction(moved * each.grid)
        if each.kind == "residual":
            sizes = [domain.shape[axis] for axis in domain.axes(each.names)]
            norm *= math.prod(2 * (1 - Fraction(1, size)) for size in sizes)
        epsilons.append(Loss.pure(norm / positive(each.scale)))
    loss = composed(epsilons)
    assert loss.epsilon is not None
    scale = number(Fraction(tables[0].scale) / tables[0].grid)
    one = f"{moved} / {scale}"
    numbers = one if len(tables) == 1 else f"{len(tables):,} x {one}"
    if len({(each.scale, each.grid) for each in tables}) > 1 or tables[0].kind == "residual":
        numbers = f"{len(tables):,} of different sensitivities or scales"
    numbers += f" = epsilon {above(loss.epsilon)}"
    return Step(what, "epsilon = sum of L1 sensitivity / scale", LAPLACE, numbers, loss)


def _gaussian(
    what: str,
    domain: Domain,
    tables: Sequence[MeasuredTable],
    guarantee: Guarantee,
    max_unit_cost: float | None,
) -> Step:
    most = Fraction(guarantee.max_records_per_unit)
    limit = f"records of a unit {guarantee.max_records_per_unit:,}"
    is_limited = tables[0].kind == "residual" and (
        guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE
    )
    if is_limited and max_unit_cost is not None and max_unit_cost < most:
        most, limit = Fraction(max_unit_cost), f"cost of a unit {number(max_unit_cost)}"
    records = most**2

    def change(less: int) -> Fraction:
        """Returns the sum over tables of (L2 change)^2 / (noise scale^2 - ``less``)."""
        weights = [
            (domain.axes(each.names), rounded_up(Fraction(each.grid**2) / (square(each) - less)))
            for each in tables
        ]
        if tables[0].kind == "residual":
            return records * largest_change(domain, weights, guarantee.neighboring)
        total = sum((weight for _, weight in weights), Fraction(0))
        return records * guarantee.neighboring.num_moved * total

    def square(each: MeasuredTable) -> Fraction:
        return positive(each.scale) ** 2

    mu_squared = None
    if all(each.scale > 2 for each in tables):
        mu_squared = rounded_up(change(4))
    deviations = sorted(each.scale / each.grid for each in tables)
    spread = number(deviations[0])
    if deviations[-1] != deviations[0]:
        spread += f" to {number(deviations[-1])}"
    numbers = f"{limit}, scale {spread} records"
    return gaussian_step(what, mu_squared, change(0) / 2, numbers, "sum of ")


def tables_of(entries: Iterable[object], domain: Domain) -> list[MeasuredTable]:
    """Returns the measured tables that a card states."""
    found = []
    for entry in entries:
        found.append(MeasuredTable.from_json(entry, domain))
        if not 0 < found[-1].scale < math.inf:
            raise InputError("scale", found[-1].scale, "must be finite and > 0")
    return found

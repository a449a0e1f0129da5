"""Chooses noisy measurements of tables, computes their precision, and draws their noise.

A *table* measurement adds independent noise to every cell of a marginal. A *residual* measurement
adds noise to the part of a marginal that smaller marginals do not show: the marginal's projection
on the functions that depend on all of its attributes. Residuals of different attribute sets are
orthogonal, so the budget is never spent twice on the same information (Xiao, He, Zhang and Kifer,
2023, ResidualPlanner).

A strategy chooses the measurements from public numbers. Its objective is the mean squared error of
a cell in the unbiased estimate, averaged over the workload's marginals with their weights. Fitting
lowers the error further, for every strategy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError
from beam_dp.models.basis import Support, subsets, supports_inside
from beam_dp.privacy.accounting import discrete_parameter
from beam_dp.privacy.budget import GRID_DEVIATIONS, Budget
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import raised, up
from beam_dp.privacy.unit_costs import least_overlap
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database import measured_tables
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.releases.synthetic_database.noisy_tables import agreement_overlaps
from beam_dp.secret.summaries.histogram import Marginals, merge_tables


class Measurement(MeasuredTable):
    """One noisy measurement of a table, with a method that draws it."""

    def draw(self, marginals: Marginals, noise: NoiseSource) -> NDArray[np.float64]:
        """Returns the noisy table, in records. Only this step sees the exact tables."""
        places = self.kind == "bin_sums"  # in grid units
        exact = marginals.places(self.names) if places else marginals.marginal(self.names)
        if self.kind == "residual":
            exact = residual_query(exact, self.grid)
        elif self.grid != 1 and not places:
            exact = exact * np.int64(self.grid)
        draw = noise.laplace if self.distribution == "discrete_laplace" else noise.gaussian
        return draw(exact, self.scale) / self.grid


def residual_query(table: NDArray[np.int64], grid: int) -> NDArray[np.int64]:
    """Returns ``grid`` times the residual of a table, exactly, in integers modulo 2^64.

    Noise is added modulo 2^64, too, so a sum that wraps is the true noisy sum modulo 2^64, and is
    private for any counts. This function does not clip tables. Residuals of several tables are
    measured together, and their joint change by a replacement depends on the attributes in which
    the two records agree. Clipping each table separately would break this dependence. Sums are
    correct if ``grid`` times the number of records is below 2^63; plans refuse a larger public
    number.

    Along an axis of size s, the residual is the table minus its mean; s times this is an integer.

    Returns: shape of ``table``, int64. One more record changes the result by ``grid^2 prod(1 - 1 /
        size)`` in squared L2 norm.
    """
    cells = math.prod(table.shape)
    if grid % cells:
        raise ValueError("the grid must be a multiple of the number of cells")
    for axis, size in enumerate(table.shape):
        table = size * table - table.sum(axis=axis, keepdims=True)
    return table * np.int64(grid // cells)


def residual_norm(shape: Iterable[int]) -> float:
    """Returns the squared L2 norm of one record's residual, in squared records."""
    return math.prod(1 - 1 / size for size in shape)


def freedoms(shape: Iterable[int]) -> int:
    """Returns the dimension of the residual of a table of this shape."""
    return math.prod(size - 1 for size in shape)


def closure_of(sets: Iterable[Support]) -> list[Support]:
    """Returns all subsets of attribute sets, including the empty set, smallest first."""
    inside = {subset for axes in sets for subset in subsets(axes)}
    return sorted(inside | {()}, key=lambda axes: (len(axes), axes))


def num_noisy_cells(domain: Domain, measurements: Iterable[Measurement]) -> int:
    """Returns the number of cells that get noise."""
    return sum(
        math.prod(domain.shape[axis] for axis in domain.axes(measurement.names))
        for measurement in measurements
    )


# Interactions of three and more attributes are weak in tables of people, and the fit recovers much
# of these interactions from lower orders, so higher orders get more noise. On eight tables of 5 to
# 16 attributes and epsilon 0.1 and 1, this factor per order lowered the fitted error by 2 to 9 % if
# noise is strong, and raised the error by at most 1 % if noise is weak; 1.4 is about as good.
_HIGH_ORDER_DEVIATION = 1.25
# The number of records matters little to a single cell but scales all cells. A private number of
# records gets at least this share of the budget.
TOTAL_SHARE = 0.02
# Every record of a unit adds the same amount to the total, so a larger share for the total means
# that fewer records are kept. For flights of planes, this share keeps a few percent more records
# than 0.02 and lowers errors by a tenth; a smaller share is not better.
_UNIT_COST_TOTAL_SHARE = 0.005
# The factor per order for units of many records, which need strong noise: it was at least as good
# as the factor above for flights of planes, and for the data sets nltcs and adult with records
# dealt out to units.
_UNIT_COST_HIGH_ORDER_DEVIATION = 2.5
# For pairs of many attributes, a share of the budget measures triples that are not fitted: how far
# they are from the fit tells the error bars of larger questions.
_TRIPLES_SHARE = 0.02
_NUM_TRIPLES = 512
_TRIPLE_ATTRIBUTES = range(10, 65)
_TRIPLE_CELLS = 2**10
# The search for shares of Laplace tables: the most steps, and the change of shares that ends it.
_MAX_SHARE_STEPS = 100
_SHARE_TOLERANCE = 1e-4
# Every table gets at least this fraction of an equal share, so that its noise stays in range.
_LEAST_SHARE = 2.0**-10
# Up to this number of attributes, all patterns of agreement of two records are enumerated.
_MAX_PATTERN_ATTRIBUTES = 20
# The precisions on a card equal the plan's precisions up to rounding, which may slightly change the
# bound that a search finds. Without the margin, a check could reject the noise of a correct card.
_SEARCH_MARGIN = 1e-7


def predicted_variance(
    workload: Workload, measurements: Iterable[Measurement], total_is_public: bool
) -> float:
    """Returns a strategy's objective: the predicted mean variance of a cell, in squared records."""
    domain = workload.domain
    supports = [domain.axes(names) for names in workload.closure()]
    variances = measured_tables.support_variances(domain, supports, measurements, total_is_public)
    total = sum(
        weight * measured_tables.cell_variance(domain, variances, domain.axes(names))
        for names, weight in zip(workload.marginals, workload.weights, strict=True)
    )
    return total / sum(workload.weights)


def residual_strategy(
    workload: Workload,
    guarantee: Guarantee,
    total_is_public: bool,
    max_unit_cost: float | None = None,
) -> tuple[Measurement, ...]:
    """Returns Gaussian measurements of all residuals with the best variances for the workload.

    ``max_unit_cost``: the limit C on the cost of a unit's records, or None.

    Privacy: (epsilon, delta), delta > 0, calibrated exactly: the vector of all residuals is one
    Gaussian mechanism, whose mu^2 is the sum over residuals of (L2 sensitivity / standard
    deviation)^2. One record changes all residuals at once, k records change the residuals at most k
    times as much, and records limited to C by ``unit_costs`` change them at most C times as much.
    The noise is discrete, on a grid, by ``discrete_gaussian_mu``. ``sampled_triples`` are residuals
    like all others.

    Accuracy: variances proportional to sqrt(cost / benefit) minimise the objective over all
    Gaussian mechanisms that measure residuals independently. Residuals of three and more attributes
    then get a little more noise, because the fit needs these residuals less than other residuals.

    Reference: Xiao, He, Zhang and Kifer (2023), Theorem 5, for the optimal variances.
    """
    supports = [workload.domain.axes(names) for names in workload.closure()]
    triples = sampled_triples(workload.domain, supports) if max_unit_cost is None else ()
    if total_is_public:
        supports.remove(())
    mu = Budget.of(guarantee, "gaussian").level
    return residual_measurements(
        workload, supports, guarantee, mu, max_unit_cost=max_unit_cost, triples=triples
    )


def sampled_triples(domain: Domain, supports: Sequence[Support]) -> Sequence[Support]:
    """Returns small triples, evenly spread, whose pairs are the largest supports; often none."""
    pairs, used = set(supports), sorted({axis for support in supports for axis in support})
    if max(map(len, pairs)) != 2 or len(used) not in _TRIPLE_ATTRIBUTES:
        return ()
    triples = [
        axes
        for axes in combinations(used, 3)
        if pairs.issuperset(combinations(axes, 2))
        and math.prod(domain.shape[axis] for axis in axes) <= _TRIPLE_CELLS
    ]
    return triples[:: len(triples) // _NUM_TRIPLES + 1]


def residual_measurements(
    workload: Workload,
    supports: Iterable[Support],
    guarantee: Guarantee,
    mu: float,
    *,
    is_fitted: bool = True,
    max_unit_cost: float | None = None,
    triples: Sequence[Support] = (),
    favours_large: bool = False,
) -> tuple[Measurement, ...]:
    """Returns Gaussian measurements of some residuals, with the best variances for a workload.

    ``supports``: the attribute sets to measure, as ascending axes; () is the total.
    ``max_unit_cost``: the limit C: the joint cost of a unit's records is at most that of C equal
    records (``unit_costs``). With None, the k records of a unit are assumed to be equal.
    ``triples``: more attribute sets to measure, with equal noise and ``_TRIPLES_SHARE``.
    ``favours_large``: whether a marginal weighs more, by the root of its number of cells. The fit
    of a larger table has a larger total variation at the same noise of a cell.

    Privacy: mu-Gaussian, except for the discreteness that ``discrete_gaussian_mu`` allows for.
    """
    domain = workload.domain
    benefits = _benefits(workload, supports, 0.5 if favours_large else 0.0)
    if not benefits:
        return ()
    chosen = list(benefits)
    costs = np.array([residual_norm(domain.shape[axis] for axis in s) for s in chosen])
    shares = np.sqrt(costs / np.array(list(benefits.values())))
    if is_fitted:
        orders = np.array([max(len(support), 2) - 2 for support in chosen])
        deviation = _HIGH_ORDER_DEVIATION
        if max_unit_cost is not None:
            deviation = _UNIT_COST_HIGH_ORDER_DEVIATION
        shares *= deviation ** (2 * orders)
    if is_fitted and () in benefits:
        total = chosen.index(())
        others = float((costs / shares).sum() - 1 / shares[total])
        share = TOTAL_SHARE if max_unit_cost is None else _UNIT_COST_TOTAL_SHARE
        if others > 0:
            shares[total] = min(shares[total], (1 - share) / share / others)
    if triples:
        norm = sum(residual_norm(domain.shape[axis] for axis in axes) for axes in triples)
        noise = norm * (1 / _TRIPLES_SHARE - 1) / float((costs / shares).sum())
        shares = np.append(shares, np.full(len(triples), noise))
        chosen += triples
    equal_records = guarantee.max_records_per_unit if max_unit_cost is None else max_unit_cost
    sensitivity = equal_records * residual_sensitivity(
        domain, chosen, 1 / shares, guarantee.neighboring
    )
    # Larger than the rounding error of the sum: one term per support, a few operations per axis.
    ratio = sensitivity / mu
    factor = raised(ratio * ratio, 4 * len(chosen) + 64 * domain.num_attributes)
    return tuple(
        _residual_measurement(domain, support, raised(float(share) * factor))
        for support, share in zip(chosen, shares, strict=True)
    )


def residual_sensitivity(
    domain: Domain,
    supports: list[Support],
    precisions: NDArray[np.float64],
    neighboring: Neighboring,
) -> float:
    """Returns the largest change of all residuals by one record, in L2 norm and units of the noise.

    Under add-or-remove-one every record costs the same. Under replace-one the two records'
    residuals overlap where the records agree; all patterns of agreement are tried for up to 20
    attributes, and ``least_overlap`` gives a bound for more attributes. A replaced record may also
    leave the domain or come from outside; then only one of the two records counts.

    The squared norm is the sum of precision x (change of a residual)^2.

    ``precisions``: 1 / variance per support, shape (len(supports),).
    """
    norms = np.array([residual_norm(domain.shape[axis] for axis in s) for s in supports])
    one = float(precisions @ norms)
    if neighboring is Neighboring.ADD_OR_REMOVE_ONE:
        return math.sqrt(one)
    used = sorted({axis for support in supports for axis in support})
    if len(used) > _MAX_PATTERN_ATTRIBUTES:
        least = least_overlap(domain.shape, supports, precisions)
        return math.sqrt(max(one, 2 * one - 2 * least)) * (1 + _SEARCH_MARGIN)
    overlaps = agreement_overlaps(domain, used, supports, precisions)
    # Two records cannot differ in an attribute that has only one code.
    different = overlaps[tuple(slice(int(domain.shape[axis] == 1), 2) for axis in used)]
    return math.sqrt(max(one, 2 * one - 2 * float(different.min())))


def table_strategy(
    tables: Iterable[Names], guarantee: Guarantee, shares: Iterable[float] | None = None
) -> tuple[Measurement, ...]:
    """Returns Laplace measurements of whole tables.

    ``shares``: relative shares of epsilon, one per table, > 0, with any sum; equal by default.

    Privacy: pure epsilon. Adding or removing a record changes one cell of each table by 1,
    replacing a record changes two cells, and k records of a unit change the cells k times as much.
    The scale of a table is this L1 sensitivity divided by the table's part of epsilon. The parts
    are rational numbers that add up to epsilon, and each scale is rounded up.
    """
    tables = list(tables)
    exact = [Fraction(share) for share in shares or [1.0] * len(tables)]
    sensitivity = guarantee.neighboring.num_moved * guarantee.max_records_per_unit
    one = sensitivity * sum(exact) / Fraction(guarantee.epsilon)
    return tuple(
        Measurement(names, "table", "discrete_laplace", up(one / share))
        for names, share in zip(tables, exact, strict=True)
    )


def gaussian_table(names: Names, guarantee: Guarantee, mu: float) -> Measurement:
    """Returns a Gaussian measurement of one whole table, on a fine grid.

    Privacy: mu-Gaussian, except for the discreteness that ``discrete_gaussian_mu`` allows for.
    Adding or removing a record changes one cell by 1; replacing a record changes two cells. A unit
    with k records changes the cells k times as much, so the squared L2 sensitivity is k^2 or 2 k^2.
    """
    squared_norm = guarantee.max_records_per_unit**2 * guarantee.neighboring.num_moved
    budget = Budget(guarantee, "gaussian", Fraction(mu) ** 2)
    grid = budget.fine_grid(squared_norm)
    scale = budget.scale(squared_norm, grid)
    return Measurement(names, "table", "discrete_gaussian", scale, grid)


def best_table_strategy(
    workload: Workload, guarantee: Guarantee, total_is_public: bool, max_cells: int
) -> tuple[Measurement, ...]:
    """Returns the table strategy with the smallest predicted error.

    If small tables are united into larger tables, fewer tables share the budget, but their
    marginals sum more noise. This function compares the unions from ``merge_tables`` for size
    limits that double, from the marginals themselves to the joint table of all attributes, each
    with the best shares and with equal shares.
    """
    domain = workload.domain
    largest = max(
        math.prod(domain.shape[axis] for axis in domain.axes(names)) for names in workload
    )
    if largest > max_cells:
        raise InputError("workload", largest, f"a marginal must have at most {max_cells} cells")
    covers = {tuple(sorted(workload.maximal()))}
    limit = largest
    while limit < 2 * max_cells:
        covers.add(tuple(sorted(merge_tables(domain, workload.maximal(), min(limit, max_cells)))))
        limit *= 2
    candidates = []
    for cover in sorted(covers):
        shares = _best_shares(workload, cover, total_is_public)
        candidates += [table_strategy(cover, guarantee, split) for split in (shares, None)]
    return min(candidates, key=lambda each: predicted_variance(workload, each, total_is_public))


def _benefits(
    workload: Workload, supports: Iterable[Support], power: float = 0.0
) -> dict[Support, float]:
    """Returns the coefficient of each residual's variance in the objective, times all weights."""
    # ``power``: of the number of cells of a marginal, by which its weight is multiplied.
    # Leaves out residuals outside the workload, or with an attribute of one code.
    domain = workload.domain
    wanted = dict.fromkeys(supports, 0.0)
    for names, weight in zip(workload.marginals, workload.weights, strict=True):
        axes = domain.axes(names)
        cells = math.prod(domain.shape[axis] for axis in axes)
        for support in subsets(axes):
            if support in wanted:
                shape = [domain.shape[axis] for axis in support]
                summed = cells // math.prod(shape)
                wanted[support] += weight * freedoms(shape) / (summed * cells) * cells**power
    return {support: benefit for support, benefit in wanted.items() if benefit > 0}


def _best_shares(
    workload: Workload, tables: Sequence[Names], total_is_public: bool
) -> list[float] | None:
    """Returns each table's share of epsilon, for nearly the least predicted variance.

    A table with a share x measures a residual with precision a x^2, where 1 / a is the number of
    summed cells. The precisions of a residual in several tables add up, and the objective is the
    sum of benefits over precisions. At the current shares, let p be a residual's precision and q
    each table's part of p. Then 1 / p <= sum of (q / p)^2 / (a x^2), because 1 / x is convex, with
    equality at the current shares. The bound is a sum of C / x^2 over tables, which is smallest for
    shares proportional to the cube roots of C. So a step never raises the objective. If no residual
    is shared, the first step ends at the minimum. Otherwise the objective is not convex, and the
    result is a local minimum: for 20 covers of four workloads it was at most 1.5 % above the best
    result of six random starts, and mostly the same.

    If the noise is large, the variance of discrete noise is almost that of continuous noise; if the
    noise is small, equal shares may be better. Returns None if measuring has no benefit.

    Reference: Hunter and Lange (2004), on minimising by repeatedly minimising an upper bound.
    """
    domain = workload.domain
    supports = [domain.axes(names) for names in workload.closure()]
    if total_is_public:
        supports.remove(())
    benefits = _benefits(workload, supports)
    places = {support: place for place, support in enumerate(benefits)}
    entries = [
        (
            table,
            places[support],
            1 / math.prod(domain.shape[axis] for axis in set(axes) - {*support}),
        )
        for table, axes in enumerate(map(domain.axes, tables))
        for support in supports_inside(axes, benefits)
    ]
    if not entries:
        return None
    of_table, of_support = (np.array([entry[part] for entry in entries]) for part in (0, 1))
    precision = np.array([entry[2] for entry in entries])
    benefit = np.array(list(benefits.values())) / max(benefits.values())
    shares = np.full(len(tables), 1 / len(tables))
    for _ in range(_MAX_SHARE_STEPS):
        squares = shares[of_table] ** 2
        summed = np.bincount(of_support, precision * squares, len(benefit))
        costs = precision * squares**2 * (benefit / summed**2)[of_support]
        before, shares = shares, np.cbrt(np.bincount(of_table, costs, len(tables)))
        shares = np.maximum(shares / shares.sum(), _LEAST_SHARE / len(tables))
        if np.abs(shares - before).max() <= _SHARE_TOLERANCE * shares.max():
            break
    return shares.tolist()


def _residual_measurement(domain: Domain, support: Support, variance: float) -> Measurement:
    """Returns a residual measurement with noise at least as private as continuous noise."""
    cells = math.prod(domain.shape[axis] for axis in support)
    grid = cells * max(1, math.ceil(GRID_DEVIATIONS / (math.sqrt(variance) * cells)))
    scale = discrete_parameter(Fraction(variance) * grid**2)
    names = tuple(domain.names[axis] for axis in support)
    return Measurement(names, "residual", "discrete_gaussian", scale, grid)

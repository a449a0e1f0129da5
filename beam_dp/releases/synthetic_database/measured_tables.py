"""The noisy tables of a release: descriptions, steps, estimates and bounds; no exact count."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import product
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError
from beam_dp.models.basis import (
    Coefficients,
    MarginalCoefficients,
    Support,
    marginal_of,
    squared_scale,
    subsets,
    supports_inside,
    table_coefficients,
)
from beam_dp.models.maximum_entropy import NoisyCoefficients
from beam_dp.models.potentials import marginal_weights
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.noise.bound import (
    DISTRIBUTIONS,
    MEAN_ABSOLUTE,
    Distribution,
    chosen_noise_bound,
    noise_bound,
    noise_variance,
)
from beam_dp.privacy.rounding import UNIT, rounded_up
from beam_dp.privacy.steps import LAPLACE, Step, above, gaussian_step, number, positive
from beam_dp.privacy.unit_costs import least_overlap
from beam_dp.queries.dense_tables import marginal_tables
from beam_dp.queries.linear import LiteralQuery, Product
from beam_dp.queries.workload import Workload

Kind = Literal["table", "residual", "bin_sums"]
Choice = Literal["beforehand", "once", "in_turn"]

_FIELDS = ("attributes", "measured", "distribution", "scale", "grid", "standard_deviation")
MAX_GRID = 2**62
# Scores are clipped to this limit: an integer overflow would increase the sensitivity of a score.
MAX_SCORE = 2**61
PROVED = "of_any_choice"  # the bounds are true for any choice of measurements by noise


def _check_fields(what: str, parsed: Any, fields: Iterable[str]) -> None:
    if not isinstance(parsed, dict) or set(parsed) != set(fields):
        condition = f"must have exactly the fields {', '.join(fields)}"
        raise InputError(what, type(parsed).__name__, condition)


def _axes_of(names: Any, domain: Domain) -> Support:
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError("attributes", type(names).__name__, "must be a list of names")
    return domain.axes(names)


@dataclass(frozen=True)
class MeasuredTable:
    """One noisy measurement, described by public numbers."""

    names: Names
    kind: Kind  # whether the whole table, its residual, or sums within bins are measured
    distribution: Distribution
    scale: float  # of the noise of a cell, in grid units
    grid: int = 1  # the number of grid units of one record

    @property
    def variance(self) -> float:
        """The variance of the noise of one cell, in squared records."""
        return noise_variance(self.distribution, self.scale) / self.grid**2

    def to_json(self) -> dict[str, Any]:
        """Returns the measurement as the card states it."""
        return {
            "attributes": list(self.names),
            "measured": self.kind,
            "distribution": self.distribution,
            "scale": self.scale,
            "grid": self.grid,
            "standard_deviation": math.sqrt(self.variance),
        }

    @classmethod
    def from_json(
        cls, parsed: Any, domain: Domain, kinds: Sequence[str] = ("table", "residual")
    ) -> Self:
        """Returns the measurement that a card states."""
        _check_fields("noise" if "table" in kinds else kinds[0], parsed, _FIELDS)
        names = parsed["attributes"]
        axes = _axes_of(names, domain)
        if list(axes) != sorted(set(axes)):
            raise InputError("attributes", names, "must be distinct and in domain order")
        check_choice("measured", parsed["measured"], kinds)
        check_choice("distribution", parsed["distribution"], DISTRIBUTIONS)
        scale = checked_number("scale", parsed["scale"], above=0)
        grid = checked_integer("grid", parsed["grid"], 1, MAX_GRID)
        kind, distribution = cast(Kind, parsed["measured"]), parsed["distribution"]
        return cls(tuple(names), kind, distribution, scale, grid)


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
    steps = []
    for kind, noise in product(("table", "residual"), ("discrete_laplace", "discrete_gaussian")):
        alike = [table for table in tables if (table.kind, table.distribution) == (kind, noise)]
        if not alike:
            continue
        words = f"measure {len(alike):,} {kind}{'s' * (len(alike) > 1)}"
        if noise == "discrete_laplace":
            steps.append(_laplace(words, domain, alike, guarantee))
        else:
            steps.append(_gaussian(words, domain, alike, guarantee, max_unit_cost))
    return steps


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
        without, within = pairs[:, 0], pairs[:, 1]
        apart = within / domain.shape[axis]
        overlaps = np.stack([without - apart, without + within - apart], axis=1).ravel()
    # The rounding error of each sum is a few units in the last place per attribute.
    least = Fraction(float(overlaps.min())) - Fraction(4 * (len(used) + 8) * UNIT * total)
    return max(one, 2 * one - 2 * least)


def _laplace(
    what: str, domain: Domain, tables: Sequence[MeasuredTable], guarantee: Guarantee
) -> Step:
    moved = guarantee.neighboring.num_moved * guarantee.max_records_per_unit
    epsilons = []
    for table in tables:
        norm = Fraction(moved * table.grid)
        if table.kind == "residual":
            sizes = [domain.shape[axis] for axis in domain.axes(table.names)]
            norm *= math.prod(2 * (1 - Fraction(1, size)) for size in sizes)
        epsilons.append(Loss.pure(norm / positive(table.scale)))
    loss = composed(epsilons)
    assert loss.epsilon is not None
    scale = number(Fraction(tables[0].scale) / tables[0].grid)
    one = f"{moved} / {scale}"
    numbers = one if len(tables) == 1 else f"{len(tables):,} x {one}"
    if len({(table.scale, table.grid) for table in tables}) > 1 or tables[0].kind == "residual":
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
    largest = Fraction(guarantee.max_records_per_unit)
    limit = f"records of a unit {guarantee.max_records_per_unit:,}"
    is_limited = tables[0].kind == "residual" and (
        guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE
    )
    if is_limited and max_unit_cost is not None and max_unit_cost < largest:
        largest, limit = Fraction(max_unit_cost), f"cost of a unit {number(max_unit_cost)}"
    records = largest**2

    def change(less: int) -> Fraction:
        """Returns the sum over tables of (L2 change)^2 / (noise scale^2 - ``less``)."""
        weights = [
            (domain.axes(table.names), rounded_up(Fraction(table.grid**2) / (square(table) - less)))
            for table in tables
        ]
        if tables[0].kind == "residual":
            return records * largest_change(domain, weights, guarantee.neighboring)
        total = sum((weight for _, weight in weights), Fraction(0))
        return records * guarantee.neighboring.num_moved * total

    def square(table: MeasuredTable) -> Fraction:
        return positive(table.scale) ** 2

    mu_squared = None
    if all(table.scale > 2 for table in tables):
        mu_squared = rounded_up(change(4))
    deviations = sorted(table.scale / table.grid for table in tables)
    spread = number(deviations[0])
    if deviations[-1] != deviations[0]:
        spread += f" to {number(deviations[-1])}"
    numbers = f"{limit}, scale {spread} records"
    return gaussian_step(what, mu_squared, change(0) / 2, numbers, "sum of ")


def tables_of(entries: Iterable[object], domain: Domain) -> list[MeasuredTable]:
    """Returns the measured tables that a card states."""
    return [MeasuredTable.from_json(entry, domain) for entry in entries]


def laplace_variance(measured: Iterable[MeasuredTable]) -> float | None:
    """Returns the smallest variance of Laplace noise; None if all noise is Gaussian."""
    of_laplace = [table.variance for table in measured if table.distribution == "discrete_laplace"]
    return min(of_laplace, default=None)


def support_variances(
    domain: Domain,
    supports: Iterable[Support],
    measurements: Iterable[MeasuredTable],
    total_is_public: bool,
) -> dict[Support, float]:
    """Returns the variance of an orthonormal coefficient of each residual, in squared records.

    All measurements are combined optimally; a residual that is not measured has infinite variance.

    ``supports``: attribute sets, as ascending axes.
    ``total_is_public``: whether the total is public, so that the support () has variance 0.
    """
    precisions = dict.fromkeys(supports, 0.0)
    for measurement in measurements:
        axes = domain.axes(measurement.names)
        if measurement.kind == "residual":
            if axes in precisions:
                precisions[axes] += 1 / measurement.variance
            continue
        for support in supports_inside(axes, precisions):
            summed = math.prod(domain.shape[axis] for axis in axes if axis not in support)
            precisions[support] += 1 / (measurement.variance * summed)
    variances = {axes: 1 / total if total > 0 else math.inf for axes, total in precisions.items()}
    if total_is_public and () in variances:
        variances[()] = 0.0
    return variances


def cell_variance(domain: Domain, variances: Mapping[Support, float], axes: Support) -> float:
    """Returns the variance of a cell in a marginal's unbiased estimate, in squared records."""
    return query_variance(domain, variances, axes, [1] * len(axes))


def query_variance(
    domain: Domain,
    variances: Mapping[Support, float],
    axes: Support,
    counts: Sequence[int],
    kind: type[LiteralQuery] = Product,
) -> float:
    """Returns the variance of a query's unbiased estimate from a marginal, in squared records.

    The query is (constant + sign P) / divisor, where P is a product over attributes of vectors with
    sum s and squared norm n over d codes. For P, the variance of a residual is multiplied by
    s^2 / d^2 for each attribute that was summed out, and by n - s^2 / d for each other attribute.
    The constant only affects the factor of the total.

    ``axes``: the axes of the marginal, ascending.
    ``counts``: for each axis, the number of codes for which the query's literal is true.
    """
    constant, sign, divisor, inside, outside = kind.factors
    means, free = [], []
    for axis, count in zip(axes, counts, strict=True):
        size = domain.shape[axis]
        total = inside * count + outside * (size - count)
        square = inside**2 * count + outside**2 * (size - count)
        means.append(total / size)
        free.append(square - total**2 / size)
    variance = 0.0
    for support in subsets(axes):
        factor = math.prod(
            within if axis in support else mean**2
            for axis, within, mean in zip(axes, free, means, strict=True)
        )
        if not support:
            factor = (constant + sign * math.prod(means)) ** 2
        if factor:
            variance += factor / divisor**2 * variances[support]
    return variance


class Combination:
    """The best unbiased estimate of every coefficient from noisy tables.

    ``tables``: the noisy tables, in records, in the same order.
    """

    def __init__(
        self,
        domain: Domain,
        basis: Coefficients,
        measurements: Sequence[MeasuredTable] = (),
        tables: Sequence[NDArray[np.float64]] = (),
    ) -> None:
        self._domain = domain
        self._basis = basis
        self._sums = np.zeros(basis.num_coefficients)
        self._precisions = np.zeros(basis.num_coefficients)
        for measurement, table in zip(measurements, tables, strict=True):
            self.add(measurement, table)

    def add(self, measurement: MeasuredTable, table: NDArray[np.float64]) -> None:
        """Adds a noisy table to the estimates of the coefficients of the basis."""
        basis, axes = self._basis, self._domain.axes(measurement.names)
        if measurement.kind == "residual" or not axes:
            parts = {axes: table_coefficients(table)} if axes in basis.slices else {}
        else:
            inside = supports_inside(axes, basis.slices)
            local = {support: tuple(axes.index(axis) for axis in support) for support in inside}
            inner = ResidualBasis(table.shape, local.values())
            coefficients = inner.analyse(table.ravel())
            parts = {support: coefficients[inner.slices[local[support]]] for support in inside}
        variance = measurement.variance
        for support, coefficients in parts.items():
            where = basis.slices[support]
            ratio = squared_scale(basis, support, axes)
            precision = ratio / variance
            self._sums[where] += coefficients * (precision / math.sqrt(ratio))
            self._precisions[where] += precision

    def estimate(self) -> NoisyCoefficients:
        """Returns the coefficients and the variances of their noise, from all added tables.

        The noise of different coefficients is independent, because each measurement has the same
        noise in all cells.
        """
        sums, precisions = self._sums, self._precisions
        is_measured = precisions > 0
        return NoisyCoefficients(
            values=np.divide(sums, precisions, out=np.zeros_like(sums), where=is_measured),
            variances=np.divide(1, precisions, out=np.full_like(sums, np.inf), where=is_measured),
        )


def unbiased_tables(
    workload: Workload,
    measurements: Sequence[MeasuredTable],
    noisy: Sequence[NDArray[np.float64]],
    num_records: int | None = None,
) -> dict[Names, NDArray[np.float64]]:
    """Returns the best unbiased estimates of a workload's marginals from noisy tables.

    The estimates are never clipped or rounded, so sums of many cells stay unbiased.

    ``noisy``: the noisy tables, in records, in the order of ``measurements``.
    ``num_records``: the number of records, if it is public.
    """
    if len(measurements) == 1 and measurements[0].kind == "table" and num_records is None:
        # A single table needs no combination, and may have very many marginals.
        return marginal_tables(noisy[0], measurements[0].names, workload.marginals)
    domain = workload.domain
    supports = [domain.axes(names) for names in workload.closure()]
    basis = MarginalCoefficients(domain.shape, supports)
    coefficients = Combination(domain, basis, measurements, noisy).estimate().values
    if num_records is not None:
        coefficients[basis.slices[()]] = num_records
    return {names: marginal_of(basis, coefficients, domain.axes(names)) for names in workload}


@dataclass(frozen=True, eq=False)
class IndependentTables:
    """A public distribution of independent attributes, conditioned on the possible cells."""

    num_records: float  # which the tables are scaled to
    grid: int  # the number of units of a score per record, to which tables were rounded
    potentials: tuple[tuple[Names, NDArray[np.float64]], ...]  # logarithms, one per code

    def answers(
        self, domain: Domain, pairs: Sequence[Support]
    ) -> dict[Support, NDArray[np.float64]]:
        """Returns the tables of some pairs, in records."""
        potentials = [(domain.axes(names), table) for names, table in self.potentials]
        tables = marginal_weights(domain.shape, potentials, pairs, domain.impossible)
        return {axes: self.num_records * table for axes, table in zip(pairs, tables, strict=True)}

    def rounding(self, table: NDArray[np.float64]) -> float:
        """Returns the largest difference between a table's exact and scored distance, in records.

        Each cell was rounded to the grid; floating point adds a billionth of the records.
        """
        return table.size / (2 * self.grid) + 1e-9 * self.num_records

    def saturates(self, table: NDArray[np.float64], distance: float) -> bool:
        """Returns whether the score of a table at this distance may have been clipped."""
        return 2 * self.grid * (float(table.max()) + distance + 1) * table.size >= MAX_SCORE

    def to_json(self) -> dict[str, Any]:
        """Returns the fields that the card states in addition to the file of potentials."""
        return {"num_records": self.num_records, "grid": self.grid}

    @classmethod
    def from_json(
        cls, parsed: Any, potentials: Sequence[tuple[Names, NDArray[np.float64]]], domain: Domain
    ) -> Self:
        """Returns the tables that a card and a file state."""
        _check_fields("independent", parsed, ("num_records", "grid"))
        if [names for names, _ in potentials] != [(name,) for name in domain.names]:
            raise InputError("independent", len(potentials), "must have a table of each attribute")
        if not all(np.isfinite(table).all() for _, table in potentials):
            raise InputError("independent", "potentials", "must be finite")
        number = checked_number("num_records", parsed["num_records"], above=0)
        return cls(number, checked_integer("grid", parsed["grid"], 1, MAX_GRID), tuple(potentials))


def sampling_errors(expected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the mean distances of counts of independent records from expected counts."""
    # Of Poisson counts if less than 1 is expected, otherwise of normal ones.
    few, many = 2 * expected * np.exp(-expected), MEAN_ABSOLUTE * np.sqrt(expected)
    return np.where(expected < 1, few, many)


@dataclass(frozen=True)
class PairDistances:
    """Public noisy L1 distances of pairs of attributes from independence.

    ``deviation``: the standard deviation of the noise of each distance, in records, > 0.
    ``pairs``: for two names in domain order, the noisy sum over cells of the difference between
    the count and the count for independent attributes, in records. The noisy sum may be < 0.
    ``independent``: the tables of independent attributes; None if the tables were not kept.
    """

    deviation: float
    pairs: Mapping[Names, float]
    independent: IndependentTables | None = field(default=None, compare=False)

    def noise_bound(self, failure_probability: float) -> float:
        """Returns a bound, in records, on the noise of all scores, for a failure probability.

        The bound is true for all scored pairs together, whether or not a pair is measured later.
        So it is also true for any pairs that are chosen by the scores.
        """
        return noise_bound(self.deviation**2, len(self.pairs), None, failure_probability)

    def shrunk(
        self, domain: Domain, tables: Mapping[Support, NDArray[np.float64]]
    ) -> dict[Support, NDArray[np.float64]]:
        """Returns the fitted tables whose dependence exceeds what the distances show, with less.

        The distance that sampling alone gives, and that of a fitted table, add up by their squares
        to the expected distance. The relative error of fitted distances is assumed to have the same
        variance for all pairs, which their noisy distances show. So each distance has a posterior
        mean, and if this is below the expected distance, the dependence shrinks to meet it.

        ``tables``: of pairs that were not measured; each sums to 1.
        """
        by_axes = {domain.axes(names): distance for names, distance in self.pairs.items()}
        pairs = [axes for axes in tables if axes in by_axes]
        if self.independent is None or not pairs:
            return {}
        number, answers = self.independent.num_records, self.independent.answers(domain, pairs)
        noisy = np.array([by_axes[axes] for axes in pairs])
        fitted = np.array([np.abs(number * tables[axes] - answers[axes]).sum() for axes in pairs])
        fitted = np.maximum(fitted, 1.0)
        sampled = np.array([float(sampling_errors(table).sum()) for table in answers.values()])
        expected, noise = np.hypot(fitted, sampled), self.deviation**2
        of_fits = ((noisy - expected) ** 2 - noise).sum() / (fitted**2).sum()
        prior = max(float(of_fits), 0.0) * fitted**2
        shown = np.maximum(expected + prior / (prior + noise) * (noisy - expected), 0.0)
        factors = np.sqrt(np.maximum(shown**2 - sampled**2, 0.0)) / fitted
        result = {}
        for place in np.flatnonzero(shown < expected).tolist():
            table = tables[pairs[place]]
            alone = np.multiply.outer(table.sum(axis=1), table.sum(axis=0))
            less = np.where(table > 0, alone + factors[place] * (table - alone), 0.0)
            result[pairs[place]] = less / less.sum()
        return result

    def to_json(self) -> dict[str, Any]:
        """Returns the distances as the card states them."""
        pairs = [
            {"attributes": list(names), "distance": distance}
            for names, distance in self.pairs.items()
        ]
        entry: dict[str, Any] = {"standard_deviation": self.deviation, "pairs": pairs}
        if self.independent is not None:
            entry["independent"] = self.independent.to_json()
        return entry

    @classmethod
    def from_json(
        cls, parsed: Any, domain: Domain, independent: IndependentTables | None = None
    ) -> Self:
        """Returns the distances that a card states."""
        kept = [] if independent is None else ["independent"]
        _check_fields("distances", parsed, (*kept, "pairs", "standard_deviation"))
        deviation = checked_number("standard_deviation", parsed["standard_deviation"], above=0)
        if not isinstance(parsed["pairs"], list):
            raise InputError("distances", type(parsed["pairs"]).__name__, "must list pairs")
        pairs = dict(_pair(entry, domain) for entry in parsed["pairs"])
        return cls(deviation, pairs, independent)


def _pair(entry: Any, domain: Domain) -> tuple[Names, float]:
    _check_fields("distances", entry, ("attributes", "distance"))
    names = entry["attributes"]
    axes = _axes_of(names, domain)
    if len(axes) != 2 or axes[0] >= axes[1]:
        raise InputError("attributes", names, "must be two, in domain order")
    return tuple(names), checked_number("distance", entry["distance"], above=-math.inf)


@dataclass(frozen=True, eq=False)
class NoiseBounds:
    """Bounds on the errors of unbiased estimates.

    A table that is measured after a choice gets fresh noise: given the choice, the noise has the
    stated variance and its bound is true, for any data and earlier noise that made the choice.
    Earlier tables are combined with later tables by weights that follow from the choice: the part
    of the earlier tables is bounded for all possible weights (``chosen_noise_bound``). A bound is
    true for an answer that is asked for regardless of the choice. If there are several answers,
    count every answer that is asked for regardless of the choice, not only the chosen answers.

    A selection may choose again: its checks use all prior noise to add sets of attributes that were
    left out. These choices add no further part, because they decide neither a weight nor a
    variance. The number of added sets, on which the noise of the chosen tables depends, is known
    with the first choice. The noise of an added set has a variance that follows from the set alone.
    Nothing is measured again. So imagine that the noise of the chosen tables and of all sets
    that were left out is drawn right after the first choice. The noise terms that an answer would
    add up, if its set were added, and the variance of their sum were known before this draw. The
    bound of the answer then fails with at most the stated probability, also if the answer exists
    only because its set was added. No statement is made conditional on the set being added.

    ``choice``: the time at which the measured tables were chosen. ``beforehand``: all tables before
    any measurement; ``once``: together, all tables from the first repeated set of attributes on,
    except the sets that checks add; ``in_turn``: each table after the previous measurement.
    """

    domain: Domain
    measured: Sequence[MeasuredTable]
    choice: Choice
    total_is_public: bool

    def of(
        self, axes: Support, variance: float, num_answers: int, failure_probability: float
    ) -> float:
        """Returns a bound, in records, on the errors of answers, for a failure probability.

        ``axes``: the attributes of an answer, ascending.
        ``variance``: the variance of the answer if no choice depended on the noise.
        """
        if not variance:
            return 0.0
        parts = [1] if self.choice == "beforehand" else self._parts(axes)
        return chosen_noise_bound(
            variance,
            num_answers,
            self._laplace_variance,
            failure_probability,
            sum(parts),
            num_together=max(parts),
            is_number_fixed=self.choice != "in_turn",
        )

    @cached_property
    def _laplace_variance(self) -> float | None:
        return laplace_variance(self.measured)

    @cached_property
    def _num_first(self) -> int:
        """The number of measurements whose weights a later choice decides."""
        seen: set[tuple[str, ...]] = set()
        for place, table in enumerate(self.measured):
            if self.choice == "once" and table.names in seen:
                return place
            seen.add(table.names)
        return len(self.measured)

    def _parts(self, axes: Support) -> list[int]:
        """Returns, per measurement, how many noise terms with unknown weights an answer contains.

        All measurements after the choice count as one term, because the choice fixed their weights.
        """
        inside = set(axes)
        first = [self._num_seen(table, inside) for table in self.measured[: self._num_first]]
        later = any(self._num_seen(table, inside) for table in self.measured[self._num_first :])
        return [*first, int(later)]

    def _num_seen(self, measured: MeasuredTable, inside: set[int]) -> int:
        """Returns the number of attribute sets inside an answer that a measurement covers."""
        axes = self.domain.axes(measured.names)
        if measured.kind == "residual":
            number = int(inside.issuperset(axes))
            return number if axes else number * (not self.total_is_public)
        return (1 << len(inside.intersection(axes))) - self.total_is_public


@dataclass(frozen=True, eq=False)
class NoisyMeasurements:
    """The public noisy tables of a release, as drawn.

    ``tables``: one table per description, with one axis per attribute, float64, in records.
    ``distances``: the noisy scores that selected the measured pairs; None without a selection.
    """

    described: tuple[MeasuredTable, ...]
    tables: tuple[NDArray[np.float64], ...]
    are_fixed: bool
    distances: PairDistances | None = None

    def __post_init__(self) -> None:
        if len(self.described) != len(self.tables):
            condition = f"must be one of each of {len(self.described)} descriptions"
            raise InputError("measurements", len(self.tables), condition)
        tables = tuple(np.asarray(table, np.float64) for table in self.tables)
        object.__setattr__(self, "tables", tables)
        if not isinstance(self.are_fixed, bool):
            raise InputError(
                "measurements", self.are_fixed, "must state whether the measurements are fixed"
            )

    def stated(self) -> dict[str, Any]:
        """Returns the statements about the noisy tables on a card, as JSON values."""
        scored = {} if self.distances is None else {"distances": self.distances.to_json()}
        proved = {} if self.are_fixed else {"bounds": PROVED}
        return {"fixed": self.are_fixed, **proved, **scored}

    def bounds(self, domain: Domain, total_is_public: bool) -> NoiseBounds:
        """Returns the bounds on errors of unbiased estimates from these tables."""
        chosen: Choice = "in_turn" if self.distances is None else "once"
        choice: Choice = "beforehand" if self.are_fixed else chosen
        return NoiseBounds(domain, self.described, choice, total_is_public)

    def check(self, domain: Domain) -> None:
        """Raises InputError if the tables do not fit a domain."""
        for described, table in zip(self.described, self.tables, strict=True):
            shape = domain.restrict(described.names).shape
            if table.shape != shape or not np.isfinite(table).all():
                condition = f"must be of shape {shape} and finite"
                raise InputError("measurements", ",".join(described.names), condition)

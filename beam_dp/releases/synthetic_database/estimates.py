"""Chooses the better of two answers to a question about a synthetic database, with its error.

The *unbiased* answer sums the noisy tables that the release was made from. The *fitted* answer
comes from the distribution, or from the records, that were fitted to the noisy tables.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import combinations, compress, product

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Axes, Domain
from beam_dp.models.basis import Support, subsets
from beam_dp.queries.dense_tables import (
    Vector,
    VectorQuery,
    affine_parts,
    sums_of,
)
from beam_dp.queries.workload import Workload
from beam_dp.releases.error_bars import DEVIATIONS, FROM_NOISE, ErrorKind, Estimate, Ratio
from beam_dp.releases.synthetic_database.measured_tables import (
    NoisyMeasurements,
    support_variances,
    unbiased_tables,
)
from beam_dp.releases.synthetic_database.records import FittedTables

# Computes errors of answers from public numbers: exact for noisy tables, predicted for a fit.
#
# The exact error of a fitted answer is unknown, because the fit reduces noise and invents
# everything that was not measured. ``FittedErrors`` models this error. The error has one part per
# subset of the answer's attributes, the *interaction* of the subset. A measured interaction has
# noise of variance V. An interaction without a measurement has an expected square tau, which
# depends on its order. A fit does about as well as the best mixture of both, V tau / (V + tau), or
# tau without a measurement.
#
# In Lancaster's expansion around independent attributes, the interaction r_S of a set S of
# attributes changes a count by N r_S times the product of sqrt(p (1 - p)) over S and of p over the
# other attributes, where p is the share of records for which a literal is true. For pairs, r is a
# correlation. The dependence D, the root mean square of r over the measured pairs, states how
# strongly the attributes of a table depend on each other. After a maximum-entropy fit of all pairs,
# bars of 95 % needed interactions of three attributes of 0.02 to 0.07 sqrt(R) on eleven tables,
# where R is the median of r, but 0.2 to 0.3 sqrt(R) on generated tables with rules for three
# columns. Pairs cannot tell which: an exclusive or shows in none. So a release of pairs of many
# attributes measures a sample of triples, which corrects the guess (``_third_order``). One more
# measured order reduced them to 0.4 times their size. Chance adds 1 / sqrt(N) in a table of N
# records.
#
# A fit also knows which counts are small. A count of at least 0 with the mean c that reaches at
# most M has a variance of at most c (M - c). So the error of a fitted count c with the predicted
# error E has a variance of about c + c E / 2, by chance and by E, if this is smaller than E^2. Only
# noise that can hide a usual code of an attribute is not limited by what was fitted.
#
# ``UnmeasuredPair`` models two attributes that were scored and, because of the score, not measured
# together. The noisy L1 distance S of the pair from independence is known, in records. The table
# that the fit derives through other attributes is known, too: it is wrong by S if the fit invented
# a dependence, and right if the fit found a real one, but it is unknown which is true. The error of
# a sum over cells is expected to have two parts: 1.75 S, spread over the table at random, with a
# variance per cell in proportion to the expected count; and 0.7 of the difference between the
# fitted sum and the sum under independence. Both factors were chosen on NLTCS and a half of it, on
# flights, and on eight generated tables, at epsilon 0.01 to 1. Records that are rare in one such
# pair are often rare in others, so the errors of several pairs add up, not their squares, and a
# small count may hide more of them. ``benchmarks/error_bars.py`` measures how often the error bars
# contain the truth elsewhere.


# The size of interactions after fitting all smaller interactions, in units of sqrt(R).
_THIRD_ORDER = 0.065
_LEAST_THIRD_ORDER = 0.008  # whatever the pairs are
_NEXT_ORDER = 0.4
_REACHED = 0.5  # of the largest variance that a count can have
_REACHED_LEFT_OUT = 1.0  # by the errors of unmeasured pairs, in addition
_OUTSIDE = 0.05  # of a bar of 95 %
# An answer about k attributes has 2^k interactions.
MAX_ATTRIBUTES = 12
_MAX_LIFT = 1e6


@dataclass(frozen=True, eq=False)
class FittedErrors:
    """The model of the errors of one release.

    ``dependence``: the root mean square of the interactions of pairs; None if no pair was measured.
    ``third_order``: the mean square of the interactions of three attributes that the fit lacks.
    ``variances``: the variances of the orthonormal coefficients of each set of attributes that was
    measured and fitted, in squared records; infinite for all other sets.
    """

    domain: Domain
    shares: Sequence[Vector]
    dependence: float | None
    third_order: float
    num_records: float
    variances: Mapping[Support, float]
    unmeasured: Mapping[Support, UnmeasuredPair]

    def of(
        self, queries: Sequence[VectorQuery], counts: Vector, chance: Vector | float = math.inf
    ) -> Vector:
        """Returns the root mean squared errors that the model predicts.

        ``queries``: queries about the same axes, at most 12.
        ``counts``: the fitted numbers of records for which all literals are true.
        ``chance``: the variances that chance alone causes if the fit is right.

        Returns:
            The errors in records, shape (num_queries,); infinite if an interaction of one or two
            attributes is unknown.
        """
        axes = queries[0].axes
        centred, free, seen, spread = (np.empty((len(axes), len(queries))) for _ in range(4))
        chances = np.ones(len(queries))
        constant, factor = affine_parts(queries)
        least_share = 0.5 / max(self.num_records, 1.0)
        for place, axis in enumerate(axes):
            size, share = self.domain.shape[axis], self.shares[axis]
            vectors = np.array([query.vectors[place] for query in queries])
            sums, squares = vectors.sum(axis=1), (vectors**2).sum(axis=1)
            centred[place] = np.maximum(squares - sums**2 / size, 0.0)
            free[place] = (sums / size) ** 2
            means = vectors @ share
            seen[place] = means**2
            spread[place] = np.maximum(vectors**2 @ share - means**2, 0.0)
            # A fit may give almost no mass to a code that some records have.
            chances *= (vectors != 0) @ np.maximum(share, least_share)
        # How often all literals are true, relative to independent attributes.
        lift = np.clip(
            np.maximum(counts, 0.0) / np.maximum(self.num_records * chances, 1e-9), 1.0, _MAX_LIFT
        )
        total, hiding, left_out = (np.zeros(len(queries)) for _ in range(3))
        for inside in product((False, True), repeat=len(axes)):
            support = tuple(compress(axes, inside))
            mask = np.array(inside, bool)
            of_noise = centred[mask].prod(axis=0) * np.maximum(
                seen[~mask].prod(axis=0) * lift**2, free[~mask].prod(axis=0)
            )
            if not support:
                # The weights of the product and of the constant may have different signs.
                of_noise = (np.abs(constant / factor) + np.sqrt(of_noise)) ** 2
            of_prior = spread[mask].prod(axis=0) * seen[~mask].prod(axis=0) * lift
            variance = self.variances.get(support, math.inf)
            part = _mixed(of_noise, variance, of_prior, self._prior(support))
            if support in self.unmeasured:
                left_out += np.sqrt(part + self._invented(support, queries, seen, lift))
                continue
            total += part
            if len(support) == 1:
                usual = max(self.num_records, 1.0) / self.domain.shape[support[0]]
                hiding += min(1.0, math.sqrt(variance) / usual) * part
        errors = factor**2 * (total - hiding + left_out**2)
        weights = _largest_weights(queries) * np.maximum(counts, 0.0)
        reached = _REACHED * np.sqrt(errors) + _REACHED_LEFT_OUT * np.abs(factor) * left_out
        limits = np.maximum(chance + weights * reached, 1e-300)
        excess = np.divide(errors, limits, out=np.zeros_like(errors), where=np.isfinite(errors))
        predicted: Vector = np.sqrt(factor**2 * hiding + errors / (1 + excess))
        return predicted

    def _invented(
        self, pair: Support, queries: Sequence[VectorQuery], seen: Table, lift: Vector
    ) -> Vector:
        """Returns the mean squared errors that a made-up dependence of a pair may cause."""
        axes, scored = queries[0].axes, self.unmeasured[pair]
        first, second = (
            np.array([query.vectors[axes.index(axis)] for query in queries]) for axis in pair
        )
        of_others = seen[~np.isin(axes, pair)].prod(axis=0)
        alone = scored.lift(first != 0, second != 0)
        invented: Vector = scored.invented(first, second) ** 2 * of_others
        return invented * np.maximum(lift / alone, 1)

    def _prior(self, support: Support) -> float:
        """Returns the variance of an interaction before any measurement, in Lancaster's units."""
        order = len(support)
        if order < 2:
            return math.inf
        if order == 2 and not math.isfinite(self.variances.get(support, math.inf)):
            # The measured pairs were chosen, so they say nothing about the other pairs.
            pair = self.unmeasured.get(support)
            return math.inf if pair is None else pair.size**2
        if self.dependence is None:
            return math.inf
        if order == 2:
            return (self.num_records * self.dependence) ** 2
        size = math.sqrt(self.third_order) * _NEXT_ORDER ** (order - 3)
        # The random choice of people in the table adds an interaction of about 1 / sqrt(N).
        return (self.num_records * size) ** 2 + self.num_records


def _mixed(of_noise: Vector, variance: float, of_prior: Vector, prior: float) -> Vector:
    """Returns V tau / (V + tau), where V or tau may be infinite; 0 if the query has no weight."""
    noise, expected = times(of_noise, variance), times(of_prior, prior)
    if math.isinf(prior):
        return noise
    if math.isinf(variance):
        return expected
    both = noise + expected
    mixed: Vector = np.divide(noise * expected, both, out=np.zeros_like(both), where=both > 0)
    return mixed


def times(factor: Vector, variance: float) -> Vector:
    """Returns the product of both arguments, where 0 times infinity is 0."""
    products: Vector = np.multiply(factor, variance, out=np.zeros_like(factor), where=factor > 0)
    return products


Table = NDArray[np.float64]

_OF_DISTANCE = 1.75
_OF_FIT = 0.7


@dataclass(frozen=True, eq=False)
class UnmeasuredPair:
    """Two attributes that were scored and not measured together.

    ``distance``: the noisy distance from independence, in records.
    ``table``: the fitted table, in records, with one axis per attribute.
    """

    distance: float
    deviation: float
    table: Table
    expected: Table

    @property
    def size(self) -> float:
        """The expected interaction, in records, in units of Lancaster's expansion."""
        # Pairs with low scores are left out: the noise may have hidden a distance of this size.
        distance = math.hypot(max(self.distance, 0.0), self.deviation)
        total = float(self.expected.sum())
        spread = float(np.sqrt(self.expected).sum())
        return _OF_DISTANCE * distance * math.sqrt(total) / max(spread, 1.0)

    def invented(self, first: Table, second: Table) -> Vector:
        """Returns the expected error of the fitted dependence, shape (rows,), records."""
        return _OF_FIT * np.abs(_sums(self.table - self.expected, first, second))

    def lift(self, first: Table, second: Table) -> Vector:
        """Returns how much more often two sets of codes coincide than under independence."""
        expected = np.maximum(_sums(self.expected, first, second), 1e-9)
        return np.maximum(_sums(self.table, first, second) / expected, 1.0)


def _sums(table: Table, first: Table, second: Table) -> Vector:
    sums: Vector = ((first @ table) * second).sum(axis=1)
    return sums


def exact_variances(
    domain: Domain, queries: Sequence[VectorQuery], variances: Mapping[Support, float]
) -> Vector:
    """Returns the variances of unbiased answers, in squared records, shape (num_queries,).

    The constant of a query only affects the weight of the total: the total's weight in 1 - q is 1
    minus the total's weight in q. For a product of vectors with sum s and squared norm n over d
    codes, the variance of a residual is multiplied by s^2 / d^2 for each attribute that was summed
    out, and by n - s^2 / d for each other attribute.

    ``queries``: queries about the same axes.
    """
    axes = queries[0].axes
    centred, means = (np.empty((len(axes), len(queries))) for _ in range(2))
    for place, axis in enumerate(axes):
        size = domain.shape[axis]
        vectors = np.array([query.vectors[place] for query in queries])
        sums = vectors.sum(axis=1)
        centred[place] = np.maximum((vectors**2).sum(axis=1) - sums**2 / size, 0.0)
        means[place] = sums / size
    constant, factor = affine_parts(queries)
    total = np.zeros(len(queries))
    for support, variance in variances.items():
        mask = np.isin(axes, support)
        seen = centred[mask].prod(axis=0) * means[~mask].prod(axis=0) ** 2
        if not mask.any():
            seen = (constant / factor + means.prod(axis=0)) ** 2
        total += times(factor**2 * seen, variance)
    return total


# A fitted answer is used if its predicted error is below this fraction of the unbiased answer's
# error, because the unbiased answer's error is known and the prediction may be wrong.
_ENOUGH_BETTER = 0.75
_TABLE_CELLS = 2**24
_PAIR_CELLS = 2**16
_NUM_PAIRS = 256
_FEW_RECORDS = 5
_ROUNDING = 1e-9


@dataclass(frozen=True, eq=False)
class Estimates:
    """Answers from a synthetic database; ``measured`` is None if noisy tables were not kept."""

    fitted: FittedTables
    measured: NoisyMeasurements | None
    num_records: int | None
    _known_pairs: dict[Support, UnmeasuredPair] = field(default_factory=dict, init=False)
    _known_variances: dict[Support, float] = field(default_factory=dict, init=False)

    def of(self, queries: Sequence[VectorQuery]) -> list[Estimate]:
        """Returns the better answer for each query, in order."""
        return [self.better(*both) for both in self.both(queries)]

    def both(self, queries: Sequence[VectorQuery]) -> Iterator[tuple[Estimate, Estimate | None]]:
        """Yields each fitted answer, with the unbiased answer if measured tables cover it."""
        queries = [query if query.axes else self._everybody for query in queries]
        by_axes: dict[Axes, list[int]] = {}
        for place, query in enumerate(queries):
            by_axes.setdefault(query.axes, []).append(place)
        estimates: dict[int, tuple[Estimate, Estimate | None]] = {}
        for part in self._parts(by_axes):
            fitted = self._fitted_tables([axes for axes in part if not self._is_sparse(axes)])
            self._learn_pairs(part)
            covered = [axes for axes in part if self.covers(axes)]
            unbiased = self._unbiased_tables(covered)
            for axes in part:
                places = by_axes[axes]
                asked = [queries[place] for place in places]
                answers = zip(
                    self._fitted(asked, fitted.get(axes)),
                    self._unbiased(asked, unbiased.get(axes)),
                    strict=True,
                )
                estimates |= zip(places, answers, strict=True)
        return (estimates[place] for place in range(len(queries)))

    def means(self, counted: Sequence[VectorQuery], axis: int, values: Vector) -> list[Estimate]:
        """Returns the better answer of each pair from ``both_means``."""
        return [self.better(*both) for both in self.both_means(counted, axis, values)]

    def both_means(
        self, counted: Sequence[VectorQuery], axis: int, values: Vector
    ) -> list[tuple[Estimate, Estimate | None]]:
        """Returns the pairs of ``both_ratios`` for the values of one attribute's codes."""
        # An unbiased mean is also None if noise moved it outside the range of the values and the
        # fitted mean has an error bar.
        means = []
        ratios = self.both_ratios(counted, [(axis, values)] * len(counted))
        for query, (fitted, unbiased) in zip(counted, ratios, strict=True):
            vectors = dict(zip(query.axes, query.vectors, strict=True))
            averaged = values[vectors[axis] != 0] if axis in vectors else values
            if len(averaged):
                least, largest = float(averaged.min()), float(averaged.max())
                slack = _ROUNDING * max(abs(least), abs(largest))
                if unbiased is not None and fitted.standard_error is not None:
                    is_mean = least - slack <= unbiased.value <= largest + slack
                    unbiased = unbiased if is_mean else None
                # Of hardly any fitted records, rounding alone makes the ratio.
                if fitted.standard_error is None and not math.isnan(fitted.value):
                    fitted = replace(fitted, value=min(max(fitted.value, least), largest))
            means.append((fitted, unbiased))
        return means

    def ratios(
        self, counted: Sequence[VectorQuery], values: Sequence[tuple[int, Vector]]
    ) -> list[Estimate]:
        """Returns the better answer of each pair from ``both_ratios``."""
        return [self.better(*both) for both in self.both_ratios(counted, values)]

    def both_ratios(
        self, counted: Sequence[VectorQuery], values: Sequence[tuple[int, Vector]]
    ) -> list[tuple[Estimate, Estimate | None]]:
        """Returns the fitted and the unbiased mean of an attribute over each query's records.

        ``counted``: queries with the value 1 or 0 for every code, about any attributes.
        ``values``: for each query, an attribute's position and its codes' values, shape (size,).
        """
        # The error follows from the delta method: to first order, a mean m of values x moves by the
        # sum of x - m divided by the number of records. So noise that the sum and the number share
        # is not counted twice. If the number of records may be 0, no error is stated.
        asked = list(zip(counted, values, strict=True))
        # The sum, the centred sum and the number of records of a question use the same tables.
        sums = [query.with_vectors({axis: vector}) for query, (axis, vector) in asked]
        answers = list(self.both([*sums, *counted]))
        both = [
            tuple(map(Ratio, totals, numbers))
            for totals, numbers in zip(answers[: len(asked)], answers[len(asked) :], strict=True)
        ]
        centred = [
            query.with_vectors({axis: vector - ratios[place].value})
            for place in range(2)
            for (query, (axis, vector)), ratios in zip(asked, both, strict=True)
        ]
        moved = list(self.both(centred))
        return [
            (_known(ratios[0].with_error(fitted[0])), ratios[1].with_error(unbiased[1]))
            for ratios, fitted, unbiased in zip(
                both, moved[: len(asked)], moved[len(asked) :], strict=True
            )
        ]

    @staticmethod
    def better(fitted: Estimate, unbiased: Estimate | None) -> Estimate:
        """Returns the unbiased answer unless the fitted answer has a much smaller error."""
        if unbiased is None or unbiased.standard_error is None:
            return fitted
        if fitted.standard_error is None:
            return unbiased
        enough = _ENOUGH_BETTER * unbiased.standard_error
        return fitted if fitted.standard_error < enough else unbiased

    def covers(self, axes: Axes) -> bool:
        """Returns whether measured tables cover all interactions of some attributes."""
        variances = self._variances(axes)
        return bool(variances) and all(
            math.isfinite(variances[support])
            for support in subsets(axes)
            if all(self._domain.shape[axis] > 1 for axis in support)
        )

    @cached_property
    def _everybody(self) -> VectorQuery:
        """The number of records, as a sum over all codes of an attribute."""
        axes = range(self._domain.num_attributes)
        axis = next((axis for axis in axes if self.covers((axis,))), 0)
        return VectorQuery((axis,), (np.ones(self._domain.shape[axis]),))

    @property
    def _domain(self) -> Domain:
        return self.fitted.domain

    def _parts(self, sets: Iterable[Axes]) -> Iterator[list[Axes]]:
        """Yields the sets of attributes in groups; the tables of one group fit into memory."""
        part: list[Axes] = []
        cells = 0
        for axes in sets:
            size = math.prod(self._domain.shape[axis] for axis in axes)
            if part and cells + size > _TABLE_CELLS:
                yield part
                part, cells = [], 0
            part.append(axes)
            cells += size
        if part:
            yield part

    def _names(self, axes: Axes) -> tuple[str, ...]:
        return tuple(self._domain.names[axis] for axis in axes)

    def _fitted_tables(self, sets: Sequence[Axes]) -> dict[Axes, NDArray[np.float64]]:
        tables = self.fitted.marginals(map(self._names, sets)) if sets else {}
        return {axes: tables[self._names(axes)] for axes in sets}

    def _is_sparse(self, axes: Axes) -> bool:
        """Returns whether a table is computed from the records and has more cells than records."""
        num_cells = math.prod(self._domain.shape[axis] for axis in axes)
        is_larger = num_cells > len(self.fitted.counts)
        return is_larger and self.fitted.is_answered_by_records(self._names(axes))

    def _unbiased_tables(self, sets: Sequence[Axes]) -> Mapping[Axes, NDArray[np.float64]]:
        measured = self.measured
        if not sets or measured is None:
            return {}
        workload = Workload(self._domain, tuple(map(self._names, sets)))
        tables = unbiased_tables(workload, measured.described, measured.tables, self.num_records)
        return {axes: tables[names] for axes, names in zip(sets, workload, strict=True)}

    def _unbiased(
        self, queries: Sequence[VectorQuery], table: NDArray[np.float64] | None
    ) -> list[Estimate] | list[None]:
        """Returns answers from noisy tables, with errors that follow from the noise alone."""
        measured = self.measured
        if table is None or measured is None:
            return [None] * len(queries)
        variances = self._variances(queries[0].axes)
        noisy = measured.described
        is_laplace = any(measurement.distribution == "discrete_laplace" for measurement in noisy)
        deviations = DEVIATIONS["discrete_laplace" if is_laplace else "discrete_gaussian"]
        kind: ErrorKind = FROM_NOISE if measured.are_fixed else "approximate"
        errors = np.sqrt(exact_variances(self._domain, queries, variances))
        # Rounding to a grid widens the margin of the noise by at most half a grid step.
        margins = errors * deviations
        steps = max(1 / measurement.grid for measurement in noisy) * _largest_weights(queries)
        margins += np.where(errors > 0, steps / 2, 0.0)
        values = sums_of(table, queries).tolist()
        return [
            Estimate(value, error, margin, kind)
            for value, error, margin in zip(values, errors.tolist(), margins.tolist(), strict=True)
        ]

    def _fitted(
        self, queries: Sequence[VectorQuery], table: NDArray[np.float64] | None
    ) -> Iterator[Estimate]:
        """Yields answers from the fitted distribution, with the errors that the model predicts."""
        axes = queries[0].axes
        sums = self.fitted.record_sums if table is None else partial(sums_of, table)
        values = sums(queries).tolist()
        reason = self._no_error(axes)
        if reason:
            yield from (Estimate(value, reason=reason) for value in values)
            return
        counts = sums([query.held for query in queries])
        is_covered = self.covers(axes) and self._is_fitted(axes)
        kind: ErrorKind = "approximate" if is_covered else "model_based"
        largest, squares = _largest_weights(queries), sums([query.squared for query in queries])
        chance, of_sample, least = squares + largest**2 / 4, 0 * largest, 0 * largest
        if table is None or self.fitted.is_answered_by_records(self._names(axes)):
            # The released records are a sample of the records that they represent. If a condition
            # is true for n of them, n + 1 is a cautious estimate of the expected number.
            scale, least = self.fitted.scale, largest
            chance = 2 * (squares + largest**2)
            of_sample = max(0.0, scale - 1) * (squares + scale * largest**2)
        errors = np.sqrt(self._model(axes).of(queries, counts, chance) ** 2 + of_sample)
        # Counts are whole numbers, so bars reach half a record further, unless 95 % are exact.
        whole = np.where(errors**2 > _OUTSIDE * largest**2, largest / 2, 0.0)
        margins = np.maximum(errors * DEVIATIONS["fitted"] + whole, least)
        for value, error, margin in zip(values, errors.tolist(), margins.tolist(), strict=True):
            yield Estimate(value, error, margin, kind)

    def _no_error(self, axes: Axes) -> str:
        """Returns the reason why a fitted answer has no stated error; empty if it has an error."""
        if self.measured is None:
            return "the release keeps no measurements"
        if len(axes) > MAX_ATTRIBUTES:
            return f"more than {MAX_ATTRIBUTES} attributes are concerned"
        if len(axes) > 2 and self._dependence is None and not self.covers(axes):
            return "no two attributes were measured together"
        domain, variances = self._domain, self._variances(axes)
        for support in subsets(axes):
            if len(support) > 2:
                break
            if support in self._scored or any(domain.shape[axis] == 1 for axis in support):
                continue
            if not (math.isfinite(variances[support]) and self._is_fitted(support)):
                names = " with ".join(domain.names[axis] for axis in support)
                return f"{names or 'the number of records'} was not measured"
        return ""

    @cached_property
    def _scored(self) -> dict[Support, float]:
        """For each pair that was scored but not measured, its noisy distance from independence."""
        measured = self.measured
        if measured is None or measured.distances is None:
            return {}
        axes_of, distances = self._domain.axes, measured.distances.pairs
        return {
            axes: distance
            for axes, distance in ((axes_of(names), size) for names, size in distances.items())
            # A measured triple may contain a pair that was not measured.
            if not (self._is_fitted(axes) and self.covers(axes))
        }

    def _learn_pairs(self, sets: Iterable[Axes]) -> None:
        """Adds the unmeasured pairs inside some sets of attributes to the known pairs."""
        measured = self.measured
        if measured is None or measured.distances is None:
            return
        inside = {pair for axes in sets for pair in combinations(axes, 2) if pair in self._scored}
        number, deviation = self.fitted.num_represented, measured.distances.deviation
        for part in self._parts(sorted(inside - self._known_pairs.keys())):
            for pair, table in self._fitted_tables(part).items():
                expected = number * np.outer(*(self._shares[axis] for axis in pair))
                unmeasured = UnmeasuredPair(self._scored[pair], deviation, table, expected)
                self._known_pairs[pair] = unmeasured

    def _is_fitted(self, support: Support) -> bool:
        """Returns whether the fit used the measurements of some attributes."""
        return any(axes.issuperset(support) for axes in self._fitted_sets)

    @cached_property
    def _fitted_sets(self) -> list[set[int]]:
        fitted = self.fitted
        names = [*(names for names, _ in fitted.potentials), *fitted.record_tables]
        return [set(self._domain.axes(marginal)) for marginal in names]

    def _variances(self, axes: Axes) -> dict[Support, float]:
        """Returns the variances of the coefficients of all subsets of some attributes."""
        measured = self.measured
        if measured is None or len(axes) > MAX_ATTRIBUTES:
            return {}
        inside, variances = list(subsets(axes)), self._known_variances
        unknown = [support for support in inside if support not in variances]
        if unknown:
            variances |= support_variances(
                self._domain, unknown, measured.described, self.num_records is not None
            )
        return {support: variances[support] for support in inside}

    def _model(self, axes: Axes) -> FittedErrors:
        variances, inside = self._variances(axes), set(axes)
        return FittedErrors(
            self._domain,
            self._shares,
            self._dependence,
            self._third_order,
            self.fitted.num_represented,
            {support: variances[support] for support in variances if self._is_fitted(support)},
            {axes: pair for axes, pair in self._known_pairs.items() if inside.issuperset(axes)},
        )

    @cached_property
    def _shares(self) -> list[Vector]:
        """The share of records with each code, per attribute."""
        singles = [(axis,) for axis in range(self._domain.num_attributes)]
        return [_normalised(table) for table in self._fitted_tables(singles).values()]

    @property
    def _dependence(self) -> float | None:
        """The root mean square of the interactions of the measured pairs of attributes."""
        squares = self._squared_interactions
        return math.sqrt(sum(squares) / len(squares)) if squares else None

    @cached_property
    def _squared_interactions(self) -> list[float]:
        """The mean squares of the interactions of each measured pair of attributes.

        Nearly empty cells have less weight, because their noise exceeds the dependence.
        """
        domain = self._domain
        pairs = [
            pair
            for pair in combinations(range(domain.num_attributes), 2)
            if self._is_fitted(pair)
            and self.covers(pair)
            and min(domain.shape[axis] for axis in pair) > 1
            and math.prod(domain.shape[axis] for axis in pair) <= _PAIR_CELLS
        ]
        pairs = pairs[:: max(1, len(pairs) // _NUM_PAIRS)]
        few = _FEW_RECORDS / max(self.fitted.num_represented, 1)
        squares = []
        for part in self._parts(pairs):
            for (first, second), table in self._fitted_tables(part).items():
                expected = np.outer(self._shares[first], self._shares[second])
                moved = (_normalised(table) - expected) ** 2 / (expected + few)
                squares.append(float(moved.sum()) / math.prod(size - 1 for size in table.shape))
        return squares

    @cached_property
    def _third_order(self) -> float:
        """The mean square of the interactions of three attributes that the fit lacks.

        Triples that were measured and not fitted correct a guess from the pairs, which may be wrong
        by what the root mean square of pairs says. Noise decides how far; bars need the upper end
        of what was measured.
        """
        usual = math.sqrt(np.median(self._squared_interactions or [0.0]))
        guess = max(_THIRD_ORDER**2 * usual, _LEAST_THIRD_ORDER**2)
        wrong = max(_THIRD_ORDER**2 * (self._dependence or 0.0), guess)
        number = self.fitted.num_represented
        measured, domain = self.measured, self._domain
        tables = zip(measured.described, measured.tables, strict=True) if measured else ()
        triples = {domain.axes(one.names): (table, one.variance) for one, table in tables}
        sampled = [axes for axes in triples if len(axes) == 3 and not self._is_fitted(axes)]
        squares, precisions = np.empty(len(sampled)), np.empty(len(sampled))
        for place, (axes, fitted) in enumerate(self._fitted_tables(sampled).items()):
            table, variance = triples[axes]
            away, freedoms = table - fitted, math.prod(size - 1 for size in table.shape)
            for axis in range(3):
                away -= away.mean(axis=axis, keepdims=True)
            weight = number**2 * math.prod(1 - (self._shares[a] ** 2).sum() for a in axes)
            squares[place] = ((away**2).sum() - variance * freedoms) / max(weight, 1.0)
            precisions[place] = (weight / variance) ** 2 / (2 * freedoms)
        precision = float(precisions.sum())
        if precision == 0:
            return guess
        mean = float(precisions @ squares) / precision
        spread = math.sqrt(precisions**2 @ (squares - mean) ** 2) / precision
        # Chance alone adds 1 / number (see ``FittedErrors``).
        upper, trust = mean + 2 * spread - 1 / number, wrong**2 / (wrong**2 + 1 / precision)
        return max(0.0, guess + trust * (upper - guess))


def _known(fitted: Estimate | None) -> Estimate:
    """Returns a fitted answer, which exists for every question."""
    assert fitted is not None
    return fitted


def _largest_weights(queries: Sequence[VectorQuery]) -> Vector:
    """Returns the largest weight of one record in each query."""
    largest = [math.prod(float(np.abs(part).max()) for part in query.vectors) for query in queries]
    constant, factor = affine_parts(queries)
    weights: Vector = np.abs(constant) + np.abs(factor) * np.array(largest)
    return weights


def _normalised(table: NDArray[np.float64]) -> NDArray[np.float64]:
    total = float(table.sum())
    return table / total if total > 0 else np.full(table.shape, 1 / table.size)

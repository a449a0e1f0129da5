"""Answers with proved bounds, which hold for any choice by noise and for both kinds of answers.

The error of an answer that measured tables cover is at most the sum of two numbers: the public
distance of the answer from the unbiased answer, and the bound on the noise of the unbiased answer
(``NoiseBounds``). So the bound is true for both answers, no matter how the shown answer was chosen.

A pair that was scored and left out has a noisy distance S from a public table A of independent
attributes. Except with a stated probability, the noise of every scored pair is at least -B. So, for
any choice of the pairs that are left out, the L1 distance of the true table T from A is at most
D = S + B plus the rounding. For a query with values f from l to h, and with m = (l + h) / 2,

    |sum f T - sum f A| <= (h - l) / 2 D + |m| |sum T - sum A|,

because |f - m| is at most (h - l) / 2. The sums of T and A are equal if the number of records is
public; otherwise they differ by at most D, and by at most the noise of the number. If f is never
negative, then the answer is not negative, and it is at most the same sum over one attribute alone,
with the largest value for the other attribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import Support
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY
from beam_dp.queries.dense_tables import VectorQuery, sums_of
from beam_dp.releases.error_bars import Estimate
from beam_dp.releases.synthetic_database.estimates import Estimates
from beam_dp.releases.synthetic_database.measured_tables import IndependentTables, NoiseBounds


@dataclass(frozen=True, eq=False)
class ScoredPair:
    """The bounds that a noisy score proves for a pair of attributes.

    ``table``: A, the table of independent attributes, in records, with one axis per attribute.
    ``distance``: D, the largest L1 distance of the true table from A.
    ``total_distance``: the largest difference between the sums of the true table and of A.
    """

    table: NDArray[np.float64]
    distance: float
    total_distance: float

    def bound(self, query: VectorQuery, value: float, largest: float = math.inf) -> float:
        """Returns a bound on a value's error; ``largest``: the largest answer if f is never < 0."""
        values = query.constant + query.factor * np.multiply.outer(*query.vectors)
        low, high = float(values.min()), float(values.max())
        around = float(sums_of(self.table, [query])[0])
        of_total = abs(low + high) / 2 * min(self.distance, self.total_distance)
        off = (high - low) / 2 * self.distance + of_total
        if low < 0:
            return abs(value - around) + off
        return max(value - max(around - off, 0.0), min(around + off, largest) - value, 0.0)


@dataclass(frozen=True, eq=False)
class ProvedBounds:
    """Answers from a synthetic database, with proved bounds if available."""

    estimates: Estimates

    def of(
        self,
        queries: Sequence[VectorQuery],
        num_answers: int | None = None,
        prefers_fitted: Sequence[bool] | None = None,
    ) -> list[Estimate]:
        """Returns the better answer for each query, with a proved bound if there is one.

        All bounds are true together, except with probability 0.05, if the queries were not chosen
        by looking at the release.

        ``prefers_fitted``: for each query, whether to use a fitted answer that has an error bar,
        even if the unbiased answer has a smaller error bar; by default, False for all queries.
        """
        estimates, number = self.estimates, num_answers or len(queries)
        # This must depend on the queries only: noise decided which pairs were left out.
        scored = {query.axes for query in queries} & self._scored.keys()
        probability = FAILURE_PROBABILITY / 2 if scored else FAILURE_PROBABILITY
        pairs = self._pairs(
            [axes for axes in scored if not estimates.covers(axes)], probability / 2
        )
        left_out = [query for query in queries if query.axes in pairs]
        largest = self._largest(left_out, number, probability / 2)
        bounded = []
        preferred = prefers_fitted or [False] * len(queries)
        answers = zip(queries, preferred, estimates.both(queries), strict=True)
        for query, prefers, (fitted, unbiased) in answers:
            takes_fitted = prefers and fitted.standard_error is not None
            shown = fitted if takes_fitted else estimates.better(fitted, unbiased)
            bound = None
            if unbiased is not None and unbiased.standard_error is not None:
                variance = unbiased.standard_error**2
                of_noise = self._noise.of(query.axes, variance, number, probability)
                bound = abs(shown.value - unbiased.value) + of_noise
            elif query.axes in pairs:
                bound = pairs[query.axes].bound(query, shown.value, next(largest))
            if bound is not None:
                shown = replace(shown, bound=bound, failure_probability=FAILURE_PROBABILITY)
            bounded.append(shown)
        return bounded

    def _largest(
        self, queries: Sequence[VectorQuery], number: int, probability: float
    ) -> Iterator[float]:
        """Yields the largest possible answers to queries about two attributes.

        The bound follows from the counts of each attribute alone, and is infinite unless the query
        is a product; it is only used for products that are never negative.
        """
        # A product that is never negative equals the product of the absolute values.
        alone = [
            VectorQuery((axis,), (np.abs(vector),))
            for query in queries
            for axis, vector in zip(query.axes, query.vectors, strict=True)
        ]
        limits = []
        for query, (_, unbiased) in zip(alone, self.estimates.both(alone), strict=True):
            assert unbiased is not None  # every attribute is measured
            variance = (unbiased.standard_error or 0.0) ** 2
            of_noise = self._noise.of(query.axes, variance, 2 * number, probability)
            limits.append(unbiased.value + of_noise)
        for place, query in enumerate(queries):
            first, second = (float(np.abs(vector).max()) for vector in query.vectors)
            # A disjunction counts records that the count of one attribute leaves out.
            is_product = query.constant == 0
            largest = max(0.0, min(limits[2 * place] * second, limits[2 * place + 1] * first))
            yield largest if is_product else math.inf

    @cached_property
    def _noise(self) -> NoiseBounds:
        measured = self.estimates.measured
        assert measured is not None  # there are unbiased answers
        return measured.bounds(self.estimates.fitted.domain, self.estimates.num_records is not None)

    @property
    def _independent(self) -> IndependentTables | None:
        measured = self.estimates.measured
        distances = None if measured is None else measured.distances
        return None if distances is None else distances.independent

    @cached_property
    def _scored(self) -> dict[Support, float]:
        """The noisy distance of each scored pair; empty without the independent tables."""
        measured = self.estimates.measured
        if measured is None or measured.distances is None or self._independent is None:
            return {}
        pairs = measured.distances.pairs
        return {self.estimates.fitted.domain.axes(names): score for names, score in pairs.items()}

    def _pairs(self, wanted: Iterable[Support], probability: float) -> dict[Support, ScoredPair]:
        """Returns bounds for pairs, which are true together except with a probability."""
        measured, independent = self.estimates.measured, self._independent
        wanted = list(wanted)
        if not wanted or independent is None or measured is None or measured.distances is None:
            return {}
        # If the number of records is noisy, its own bound may fail with half of the probability.
        is_public = self.estimates.num_records is not None
        of_scores = measured.distances.noise_bound(probability if is_public else probability / 2)
        of_total = 0.0
        if not is_public:
            ((_, total),) = self.estimates.both([VectorQuery((), ())])
            assert total is not None  # the first step measures the total
            variance = (total.standard_error or 0.0) ** 2
            of_total = self._noise.of((), variance, 1, probability / 2)
            of_total += abs(total.value - independent.num_records)
        pairs = {}
        for axes, table in independent.answers(self.estimates.fitted.domain, wanted).items():
            distance = max(self._scored[axes] + of_scores, 0.0) + independent.rounding(table)
            if math.isfinite(distance) and not independent.saturates(table, distance):
                pairs[axes] = ScoredPair(table, distance, of_total)
        return pairs

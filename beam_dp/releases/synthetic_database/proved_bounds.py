"""Answers with bounds that are proved, whatever noise chose and whichever answer is shown.

An answer that measured tables cover is wrong by no more than its distance from the unbiased one,
which is public, and the bound of the latter's noise (``NoiseBounds``). So it does not matter that
the better of two answers is shown, nor why.

A pair that was scored and left out has a noisy distance S from public tables A of independent
attributes. Of all pairs that were scored no noise is below -B, except with a probability, hence
whichever of them were left out: the L1 distance of the true table T from A is at most D = S + B,
and what rounding adds. For a query with values f from l to h, and m in the middle of them,

    |sum f T - sum f A| <= (h - l) / 2 D + |m| |sum T - sum A|,

since T - A weighs f - m by at most its largest size. The sums differ by nothing where the number of
records is public, else by no more than D, nor than the noise of the number. Where f is nowhere
negative, an answer is neither; nor is it more than the same sum over one of the attributes, with
the largest value of the other one: of what few records have there can't be many.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import Support
from beam_dp.noise.bound import FAILURE_PROBABILITY
from beam_dp.queries.vector_query import VectorQuery, sums_of
from beam_dp.releases.error_bars import Estimate
from beam_dp.releases.synthetic_database.estimates import Estimates
from beam_dp.releases.synthetic_database.measured_tables import IndependentTables, NoiseBounds


@dataclass(frozen=True, eq=False)
class ScoredPair:
    """What a noisy score proves of a pair of attributes.

    ``table``: A, of independent attributes, in records, shape (size of one, size of the other).
    ``distance``: D, of the true table from it, at most.
    ``total_distance``: of the sums of both, at most.
    """

    table: NDArray[np.float64]
    distance: float
    total_distance: float

    def bound(self, query: VectorQuery, value: float, most: float = math.inf) -> float:
        """Returns how wrong a value may be as the answer of a query about the pair.

        ``most``: that the answer can be, where f is nowhere negative.
        """
        values = query.constant + query.factor * np.multiply.outer(*query.vectors)
        low, high = float(values.min()), float(values.max())
        around = float(sums_of(self.table, [query])[0])
        of_total = abs(low + high) / 2 * min(self.distance, self.total_distance)
        off = (high - low) / 2 * self.distance + of_total
        if low < 0:
            return abs(value - around) + off
        return max(value - max(around - off, 0.0), min(around + off, most) - value, 0.0)


@dataclass(frozen=True, eq=False)
class ProvedBounds:
    """What a synthetic database answers, with bounds where there are any."""

    estimates: Estimates

    def of(
        self,
        queries: Sequence[VectorQuery],
        num_answers: int | None = None,
        prefers_fitted: Sequence[bool] | None = None,
    ) -> list[Estimate]:
        """Returns the better answer of each query, with its bound.

        All bounds hold together, except with probability 0.05, for queries that were not chosen
        by what the release says.

        ``prefers_fitted``: of each query, whether its fitted answer is taken if that has an
        error bar, even the larger one; by default none is.
        """
        estimates, number = self.estimates, num_answers or len(queries)
        # By what is asked, not by what was left out: that was chosen with noise.
        scored = {each.axes for each in queries} & self._scored.keys()
        probability = FAILURE_PROBABILITY / 2 if scored else FAILURE_PROBABILITY
        pairs = self._pairs(
            [axes for axes in scored if not estimates.covers(axes)], probability / 2
        )
        left_out = [query for query in queries if query.axes in pairs]
        most = self._most(left_out, number, probability / 2)
        found = []
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
                bound = pairs[query.axes].bound(query, shown.value, next(most))
            if bound is not None:
                shown = replace(shown, bound=bound, failure_probability=FAILURE_PROBABILITY)
            found.append(shown)
        return found

    def _most(
        self, queries: Sequence[VectorQuery], number: int, probability: float
    ) -> Iterator[float]:
        """What answers of queries about two attributes can be at most, by what is known of each.

        ``queries``: only products that are nowhere negative have such an answer.
        """
        # Both vectors may be below 0 where their product is not: it is that of their sizes.
        alone = [
            VectorQuery((axis,), (np.abs(vector),))
            for query in queries
            for axis, vector in zip(query.axes, query.vectors, strict=True)
        ]
        most = []
        for query, (_, known) in zip(alone, self.estimates.both(alone), strict=True):
            assert known is not None  # every attribute is measured
            variance = (known.standard_error or 0.0) ** 2
            of_noise = self._noise.of(query.axes, variance, 2 * number, probability)
            most.append(known.value + of_noise)
        for place, query in enumerate(queries):
            first, second = (float(np.abs(vector).max()) for vector in query.vectors)
            # A disjunction holds records that are in neither count.
            is_product = query.constant == 0
            largest = max(0.0, min(most[2 * place] * second, most[2 * place + 1] * first))
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
        """The noisy distance of each pair that was scored, where it is known from what."""
        measured = self.estimates.measured
        if measured is None or measured.distances is None or self._independent is None:
            return {}
        pairs = measured.distances.pairs
        return {self.estimates.fitted.domain.axes(names): score for names, score in pairs.items()}

    def _pairs(self, wanted: Iterable[Support], probability: float) -> dict[Support, ScoredPair]:
        """What is proved of pairs, all of them together except with a probability."""
        measured, independent = self.estimates.measured, self._independent
        wanted = list(wanted)
        if not wanted or independent is None or measured is None or measured.distances is None:
            return {}
        # Half of it is the number's, where that is noisy.
        is_public = self.estimates.num_records is not None
        of_scores = measured.distances.noise_bound(probability if is_public else probability / 2)
        of_total = 0.0
        if not is_public:
            ((_, total),) = self.estimates.both([VectorQuery((), ())])
            assert total is not None  # the first step measures it
            variance = (total.standard_error or 0.0) ** 2
            of_total = self._noise.of((), variance, 1, probability / 2)
            of_total += abs(total.value - independent.num_records)
        found = {}
        for axes, table in independent.answers(self.estimates.fitted.domain, wanted).items():
            distance = max(self._scored[axes] + of_scores, 0.0) + independent.rounding(table)
            if math.isfinite(distance) and not independent.saturates(table, distance):
                found[axes] = ScoredPair(table, distance, of_total)
        return found

"""Computes errors of answers from public numbers: exact for noisy tables, predicted for a fit.

The exact error of a fitted answer is unknown, because the fit reduces noise and invents everything
that was not measured. ``FittedErrors`` models this error. The error has one part per subset of the
answer's attributes, the *interaction* of the subset. A measured interaction has noise of variance
V. An interaction without a measurement has an expected square tau, which depends on its order. A
fit does about as well as the best mixture of both, V tau / (V + tau), or tau without a measurement.

In Lancaster's expansion around independent attributes, the interaction r_S of a set S of attributes
changes a count by N r_S times the product of sqrt(p (1 - p)) over S and of p over the other
attributes, where p is the share of records for which a literal is true. For pairs, r is a
correlation. The dependence D, the root mean square of Cramer's coefficient over the measured pairs,
states how strongly the attributes of a table depend on each other. After a maximum-entropy fit of
all pairs, the remaining interactions of order three and more were 0.03 D to 0.07 D on six tables
(nltcs and two halves of it, seven and five columns of adult, flights). Measuring one more order
reduced the remaining interactions to 0.4 times their size. Chance adds interactions of 1 / sqrt(N)
in a table of N records.

``UnmeasuredPair`` models two attributes that were scored and, because of the score, not measured
together. The noisy L1 distance S of the pair from independence is known, in records. The table that
the fit derives through other attributes is known, too: it is wrong by S if the fit invented a
dependence, and right if the fit found a real one, but it is unknown which is true. The error of a
sum over cells is expected to have two parts: 1.75 S, spread over the table at random, with a
variance per cell in proportion to the expected count; and 0.7 of the difference between the fitted
sum and the sum under independence. Both factors were chosen on NLTCS and a half of it, on flights,
and on eight generated tables, at epsilon 0.01 to 1. ``benchmarks/error_bars.py`` measures how often
the error bars contain the truth elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress, product

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.models.basis import Support
from beam_dp.queries.dense_tables import Vector, VectorQuery, affine_parts

# The size of interactions after fitting all smaller interactions, in units of the dependence.
_THIRD_ORDER = 0.05
_NEXT_ORDER = 0.4
# An answer about k attributes has 2^k interactions.
MAX_ATTRIBUTES = 12
_MAX_LIFT = 1e6


class FittedErrors:
    """The model of the errors of one release.

    ``dependence``: the root mean square of Cramer's V over pairs; None if no pair was measured.
    ``variances``: the variances of the orthonormal coefficients of each set of attributes that was
    measured and fitted, in squared records; infinite for all other sets.
    """

    def __init__(
        self,
        domain: Domain,
        shares: Sequence[Vector],
        dependence: float | None,
        num_records: float,
        variances: Mapping[Support, float],
        unmeasured: Mapping[Support, UnmeasuredPair],
    ) -> None:
        self._domain = domain
        self._shares = shares
        self._dependence = dependence
        self._num_records = num_records
        self._variances = variances
        self._unmeasured = unmeasured

    def of(self, queries: Sequence[VectorQuery], held: Vector) -> Vector:
        """Returns the root mean squared errors that the model predicts.

        ``queries``: queries about the same axes, at most 12.

        Returns:
            The errors in records, shape (num_queries,); infinite if an interaction of one or two
            attributes is unknown.
        """
        axes = queries[0].axes
        own, free, seen, spread = (np.empty((len(axes), len(queries))) for _ in range(4))
        chances = np.ones(len(queries))
        constant, factor = affine_parts(queries)
        least_share = 0.5 / max(self._num_records, 1.0)
        for place, axis in enumerate(axes):
            size, share = self._domain.shape[axis], self._shares[axis]
            vectors = np.array([query.vectors[place] for query in queries])
            sums, squares = vectors.sum(axis=1), (vectors**2).sum(axis=1)
            own[place] = np.maximum(squares - sums**2 / size, 0.0)
            free[place] = (sums / size) ** 2
            means = vectors @ share
            seen[place] = means**2
            spread[place] = np.maximum(vectors**2 @ share - means**2, 0.0)
            # A fit may give almost no mass to a code that some records have.
            chances *= (vectors != 0) @ np.maximum(share, least_share)
        # How often all literals are true, relative to independent attributes.
        lift = np.clip(
            np.maximum(held, 0.0) / np.maximum(self._num_records * chances, 1e-9), 1.0, _MAX_LIFT
        )
        total = np.zeros(len(queries))
        for inside in product((False, True), repeat=len(axes)):
            support = tuple(compress(axes, inside))
            mask = np.array(inside, bool)
            of_noise = own[mask].prod(axis=0) * np.maximum(
                seen[~mask].prod(axis=0) * lift**2, free[~mask].prod(axis=0)
            )
            if not support:
                # The weights of the product and of the constant may have different signs.
                of_noise = (np.abs(constant / factor) + np.sqrt(of_noise)) ** 2
            of_prior = spread[mask].prod(axis=0) * seen[~mask].prod(axis=0) * lift
            total += _mixed(
                of_noise, self._variances.get(support, math.inf), of_prior, self._prior(support)
            )
        for pair, known in self._unmeasured.items():
            first, second = (
                np.array([query.vectors[axes.index(axis)] for query in queries]) for axis in pair
            )
            of_others = seen[~np.isin(axes, pair)].prod(axis=0)
            own_lift = known.lift(first != 0, second != 0)
            total += known.invented(first, second) ** 2 * of_others * np.maximum(lift / own_lift, 1)
        return np.abs(factor) * np.sqrt(total)

    def _prior(self, support: Support) -> float:
        """Returns the variance of an interaction before any measurement, in Lancaster's units."""
        order = len(support)
        if order < 2:
            return math.inf
        if order == 2 and not math.isfinite(self._variances.get(support, math.inf)):
            # The measured pairs were chosen, so they say nothing about the other pairs.
            known = self._unmeasured.get(support)
            return math.inf if known is None else known.size**2
        if self._dependence is None:
            return math.inf
        if order == 2:
            return (self._num_records * self._dependence) ** 2
        size = self._dependence * _THIRD_ORDER * _NEXT_ORDER ** (order - 3)
        # The random choice of people in the table adds an interaction of about 1 / sqrt(N).
        return (self._num_records * size) ** 2 + self._num_records


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
    found: Vector = np.multiply(factor, variance, out=np.zeros_like(factor), where=factor > 0)
    return found


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
    found: Vector = ((first @ table) * second).sum(axis=1)
    return found


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
    own, means = (np.empty((len(axes), len(queries))) for _ in range(2))
    for place, axis in enumerate(axes):
        size = domain.shape[axis]
        vectors = np.array([query.vectors[place] for query in queries])
        sums = vectors.sum(axis=1)
        own[place] = np.maximum((vectors**2).sum(axis=1) - sums**2 / size, 0.0)
        means[place] = sums / size
    constant, factor = affine_parts(queries)
    total = np.zeros(len(queries))
    for support, variance in variances.items():
        mask = np.isin(axes, support)
        seen = own[mask].prod(axis=0) * means[~mask].prod(axis=0) ** 2
        if not mask.any():
            seen = (constant / factor + means.prod(axis=0)) ** 2
        total += times(factor**2 * seen, variance)
    return total

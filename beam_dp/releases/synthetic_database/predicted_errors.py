"""Errors of answers from public numbers: exact ones of noisy tables, predicted ones of a fit.

The exact error of a fitted answer is not known: the fit shrinks noise, and invents what was not
measured. ``FittedErrors`` is a model of it. An answer's error has a part for each set of attributes
inside its own, the *interaction* of these. A measured interaction has the variance V of its noise;
any interaction is as large as its order lets expect, tau; a fit does about as well as the best
mixture of both, V tau / (V + tau), and where nothing was measured, tau is what is left.

Interactions are measured in units of Lancaster's expansion around independent attributes, in which
a set S of them changes a count by N r_S times the product of sqrt(p (1 - p)) over S and of p over
the other attributes (p: the share of records that a literal holds for). For pairs r is a
correlation. How strongly the attributes of this table depend on each other is said by V, the root
mean square of Cramer's coefficient over the pairs that were measured. What a maximum-entropy fit
of all pairs leaves of orders three and more was 0.03 V to 0.07 V on six tables (nltcs and two
halves of it, seven and five columns of adult, flights), and each order that is measured more left
0.4 times as much; chance adds interactions of 1 / sqrt(N) in a table of N records.

``UnmeasuredPair`` is the model of two attributes that were scored and, therefore, not measured
together. Their noisy L1 distance S from independence is known, in records, and so is what the fit
makes of them by way of other attributes: a table of its own, which is off by S where it invents a
dependence, and right where it found one. Neither tells which. The error of a sum over the cells is
expected to have two parts: 1.75 S, if it were spread over the table at random, each cell with
variance in proportion to its expected count; and 0.7 of what the fit moves this very sum from
independence. Both numbers were chosen on NLTCS and a half of it, on flights, and on eight
generated tables, at epsilon 0.01 to 1. ``benchmarks/error_bars.py`` measures how often the errors
hold elsewhere.
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
from beam_dp.queries.vector_query import Vector, VectorQuery, affine_parts

# Of the interactions that the fit of all smaller ones leaves, in units of V.
_THIRD_ORDER = 0.05
_NEXT_ORDER = 0.4
# An answer about k attributes has 2^k interactions.
MAX_ATTRIBUTES = 12
_MAX_LIFT = 1e6


class FittedErrors:
    """The model of one release.

    ``dependence``: V, the root mean square of Cramer's V; None where no pair was measured.
    ``variances``: of the orthonormal coefficients of each set of attributes that was measured
    and that the fit knows of, in squared records; infinite for all others.
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

        ``queries``: all of the same axes, at most 12.

        Returns:
            shape (num_queries,), records; infinite where nothing is known of an interaction of one
            or two attributes.
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
        # How much more often the literals hold together than if they were independent.
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
                # What the total sees of the product may have the constant's sign, or not.
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
        """The variance of an interaction before it is measured, in units of its expansion."""
        order = len(support)
        if order < 2:
            return math.inf
        if order == 2 and not math.isfinite(self._variances.get(support, math.inf)):
            # Measured pairs were chosen: nothing is known about the others.
            known = self._unmeasured.get(support)
            return math.inf if known is None else known.size**2
        if self._dependence is None:
            return math.inf
        if order == 2:
            return (self._num_records * self._dependence) ** 2
        size = self._dependence * _THIRD_ORDER * _NEXT_ORDER ** (order - 3)
        # Chance alone, of who is in the table, makes an interaction of about 1 / sqrt(N).
        return (self._num_records * size) ** 2 + self._num_records


def _mixed(of_noise: Vector, variance: float, of_prior: Vector, prior: float) -> Vector:
    """V tau / (V + tau), where either may be infinite; nothing of what the query can't see."""
    noise, expected = times(of_noise, variance), times(of_prior, prior)
    if math.isinf(prior):
        return noise
    if math.isinf(variance):
        return expected
    both = noise + expected
    mixed: Vector = np.divide(noise * expected, both, out=np.zeros_like(both), where=both > 0)
    return mixed


def times(factor: Vector, variance: float) -> Vector:
    """Returns their product, where 0 times anything is 0."""
    found: Vector = np.multiply(factor, variance, out=np.zeros_like(factor), where=factor > 0)
    return found


Table = NDArray[np.float64]

_OF_DISTANCE = 1.75
_OF_FIT = 0.7


@dataclass(frozen=True, eq=False)
class UnmeasuredPair:
    """Two attributes that were scored and not measured together.

    ``distance``: noisy, from independence, in records.
    ``table``: as fitted, in records, shape (size of one, size of the other).
    """

    distance: float
    deviation: float
    table: Table
    expected: Table

    @property
    def size(self) -> float:
        """The interaction that is expected, in records, in units of Lancaster's expansion."""
        # Low scores are what is left out: the noise of one may have hidden as much.
        distance = math.hypot(max(self.distance, 0.0), self.deviation)
        total = float(self.expected.sum())
        spread = float(np.sqrt(self.expected).sum())
        return _OF_DISTANCE * distance * math.sqrt(total) / max(spread, 1.0)

    def invented(self, first: Table, second: Table) -> Vector:
        """Returns the expected error of the fit's own dependence, shape (rows,), records."""
        return _OF_FIT * np.abs(_sums(self.table - self.expected, first, second))

    def lift(self, first: Table, second: Table) -> Vector:
        """Returns how much more often two sets of codes meet than if they were independent."""
        expected = np.maximum(_sums(self.expected, first, second), 1e-9)
        return np.maximum(_sums(self.table, first, second) / expected, 1.0)


def _sums(table: Table, first: Table, second: Table) -> Vector:
    found: Vector = ((first @ table) * second).sum(axis=1)
    return found


def exact_variances(
    domain: Domain, queries: Sequence[VectorQuery], variances: Mapping[Support, float]
) -> Vector:
    """Returns the variances of unbiased answers, in squared records.

    The total alone sees a constant of each record: of 1 - q it sees 1 less what it sees of q. Of a
    product a residual sees, of a vector with sum s and squared norm n over d codes, s^2 / d^2 where
    its attribute was summed out, and n - s^2 / d where it was not.

    ``queries``: all of the same axes.

    Returns:
        shape (num_queries,).
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

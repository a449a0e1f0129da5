"""Variances, correlations and regressions: functions of fitted sums of products of columns.

Noise moves a statistic, to first order, by the mean over the records of its influence function
(Hampel, 1974), a sum of products of two columns. Its margin is the sum of the margins of these
products, because their errors may point the same way.

A value may be anywhere in its bin. As a vector with one entry per record, minus the mean and over
the root of their number, a column has the length s, its standard deviation. Bins move it by at most
h, the root mean square of half their widths: a mean by at most h, a covariance by at most
d = s h' + h s' + h h'. The sum of |derivative| d bounds what this does to a variance, and to a
correlation, the cosine of an angle, because a vector turns by at most arcsin(h / s). It bounds what
it does to slopes if the covariances C of the predictors stay; else (1 - |C^-1| d)^-1 times as much,
by Neumann's series, which converges if the spectral radius of |C^-1| d is below 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

from beam_dp.queries.dense_tables import Vector, VectorQuery
from beam_dp.releases.error_bars import Estimate, Ratio, weakest_kind
from beam_dp.releases.synthetic_database.estimates import Estimates

Table = NDArray[np.float64]
Pair = tuple[int, int]  # of columns, counted from 1, or the constant 1, which is 0
# The axis of a column, its numbers by code and, with bins, half their widths; 0 for null and other.
Column = tuple[int, Vector, Vector | None]
# A function of a table: row 0 has 1 and the means of k columns, the rest their covariances.
Statistic = Callable[[Table], Vector]

_STEP = 1e-6  # of numerical derivatives, in standard deviations
_CONDITION = 1e9  # of correlations; above it, a predictor follows from the others
_WIDE_BINS = "the bins are so wide that it may have any size"
_NO_VALUE = "a column does not vary, or follows from the others"


def variance(table: Table) -> Vector:
    """Returns the variance of one column."""
    return table[1, 1:]


def correlation(table: Table) -> Vector:
    """Returns Pearson's correlation of two columns; NaN if one does not vary."""
    scale = table[1, 1] * table[2, 2]
    return np.array([table[1, 2] / math.sqrt(scale) if scale > 0 else math.nan])


def regression(table: Table) -> Vector:
    """Returns the intercept and slopes of least squares, or NaN; the outcome is the last column."""
    predictors, scales = table[1:-1, 1:-1], np.sqrt(np.diag(table)[1:-1])
    is_regular = scales.all() and np.linalg.cond(predictors / np.outer(scales, scales)) < _CONDITION
    if not is_regular:
        return np.full(len(table) - 1, math.nan)
    slopes = np.linalg.solve(predictors, table[1:-1, -1])
    return np.array([table[0, -1] - table[0, 1:-1] @ slopes, *slopes])


def estimated(
    statistic: Statistic,
    estimates: Estimates,
    counted: Sequence[VectorQuery],
    columns: Sequence[Column],
) -> Iterator[tuple[Estimate, float]]:
    """Yields each number over the records of each query, and how far bins may move it.

    ``counted``: queries for records that are neither null nor other in any of the columns.
    """
    shape = (len(columns) + 1,) * 2
    pairs = list(combinations_with_replacement(range(len(columns) + 1), 2))
    rows, places = np.array(pairs).T
    squares = [
        estimates.means(counted, axis, np.zeros_like(values) if halves is None else halves**2)
        for axis, values, halves in columns
    ]
    asked = [_product(each, columns, pair, np.zeros(shape)) for each in counted for pair in pairs]
    sums = estimates.both(asked)
    tables = []
    for _ in counted:
        table = np.zeros(shape)
        table[rows, places] = table[places, rows] = [next(sums)[0].value for _ in pairs]
        table /= table[0, 0] if table[0, 0] > 0 else math.nan
        table[1:, 1:] -= np.outer(table[0, 1:], table[0, 1:])
        np.fill_diagonal(table, np.maximum(np.diag(table), 0.0))
        tables.append(table)
    both = zip(counted, tables, strict=True)
    asked = [_product(query, columns, pair, table) for query, table in both for pair in pairs]
    moved = estimates.both(asked)
    for table, halves in zip(tables, zip(*squares, strict=True), strict=True):
        products = {pair: next(moved)[0] for pair in pairs}
        within = np.array([max(each.value + (each.margin or 0.0), 0.0) for each in halves])
        yield from _numbers(statistic, table, products, np.sqrt(within))


def _numbers(
    statistic: Statistic, table: Table, products: Mapping[Pair, Estimate], within: Vector
) -> Iterator[tuple[Estimate, float]]:
    """Yields the numbers of one query, and how far bins may move them.

    ``products``: the sums of products of the constant 1 and centred columns. ``within``: h.
    """
    values, number = statistic(table), products[0, 0]
    if np.isnan(values).any():
        reason = _NO_VALUE if number.value > 0 else "no records"
        yield from ((Estimate(value, reason=reason), 0.0) for value in values.tolist())
        return
    halves, scales = np.array([0.0, *within]), np.sqrt(np.diag(table))
    bins = np.outer(scales, halves) + np.outer(halves, scales) + np.outer(halves, halves)
    slopes = np.abs([_derivative(statistic, table, pair) for pair in products]).T
    of_bins, sizes = (
        slopes @ [of[pair] for pair in products] for of in (bins, np.outer(scales, scales))
    )
    if statistic is regression and within.any():
        of_bins = _of_predictors(table, bins, np.abs(values), of_bins)
    terms = [*products.values()]
    errors = np.array([(each.standard_error or 0.0, each.margin or 0.0) for each in terms])
    reason = next((each.reason for each in terms if each.reason), "")
    for value, (error, margin), bound, size in zip(
        values, slopes @ errors, of_bins, sizes, strict=True
    ):
        total = Estimate(0.0, float(error), float(margin), weakest_kind(terms))
        if reason or not (bound == 0 or bound < size):
            total = Estimate(0.0, reason=reason or _WIDE_BINS)
        found = Ratio(total, number).with_error(total)
        assert found is not None  # both are known
        yield replace(found, value=float(value)), float(bound)


def _of_predictors(table: Table, bins: Table, sizes: Vector, of_bins: Vector) -> Vector:
    """Returns how far bins may move an intercept and slopes, given the first order for slopes."""
    moved = np.abs(np.linalg.inv(table[1:-1, 1:-1])) @ bins[1:-1, 1:-1]
    if not np.abs(np.linalg.eigvals(moved)).max() < 1:
        return np.full(len(of_bins), math.inf)
    slopes = np.linalg.solve(np.eye(len(moved)) - moved, of_bins[1:])
    centre = np.abs(table[0, 1:-1]) + bins[0, 1:-1]
    return np.array([bins[0, -1] + sizes[1:] @ bins[0, 1:-1] + slopes @ centre, *slopes])


def _derivative(statistic: Statistic, table: Table, pair: Pair) -> Vector:
    scales = np.sqrt(np.diag(table))
    moved = np.zeros_like(table)
    moved[pair] = moved[pair[::-1]] = _STEP * (scales[pair[0]] * scales[pair[1]] or 1.0)
    slope: Vector = (statistic(table + moved) - statistic(table - moved)) / (2 * moved[pair])
    return slope


def _product(
    query: VectorQuery, columns: Sequence[Column], pair: Pair, centre: Table
) -> VectorQuery:
    """Returns the sum of a product of columns, less the means and variances of a table."""
    vectors = dict[int, Vector]()
    for place in {*pair} - {0}:
        axis, values, _ = columns[place - 1]
        vector = values - centre[0, place]
        vectors[axis] = vector**2 - centre[pair] if pair == (place, place) else vector
    return query.with_vectors(vectors)

"""Exact sensitivities of workloads of linear queries."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.privacy.guarantee import Neighboring
from beam_dp.queries import linear
from beam_dp.queries.linear import Disjunction
from beam_dp.queries.linear_workload import LinearWorkload

# Limits for comparing all pairs of columns: the number of columns, of values in memory, of values
# compared one by one, and of values compared by a matrix product. Each limit takes a few seconds.
_MAX_COLUMNS = 2**11
_MAX_VALUES = 2**24
_MAX_COMPARED = 2**30
_MAX_MULTIPLIED = 2**35
_CHUNK = 2**12
# To find two distant columns, the distances of this number of columns to all columns are computed.
_MAX_STEPS = 6

Pair = tuple[int, int]  # 2^16 times an L1 norm, and 2^32 times a squared L2 norm


@dataclass(frozen=True)
class WorkloadSensitivity:
    """The largest change of the vector of all answers, in units of 2^-16."""

    l1: int  # 2^16 times the L1 sensitivity
    l2_squared: int  # 2^32 times the square of the L2 sensitivity
    is_exact: bool  # False if both values are upper bounds that may not be attained

    @property
    def l2(self) -> int:
        """2^16 times the L2 sensitivity, rounded up to an integer."""
        return math.isqrt(self.l2_squared - 1) + 1 if self.l2_squared else 0


def workload_sensitivity(
    workload: LinearWorkload, neighboring: Neighboring | str, max_records_per_unit: int = 1
) -> WorkloadSensitivity:
    """Returns the L1 and L2 sensitivity of the vector of all answers of a workload.

    The answers are the sums of the queries over the records: a record in cell x adds column x of
    the matrix of queries by cells. A repeated query counts as often as it occurs.

    * ``add_or_remove_one``: the largest norm of a column, times k = ``max_records_per_unit``.
      This is exact, because k records in the worst cell attain it.
    * ``replace_one``: k times the largest norm of a difference of two columns. One column may be
      zero, because a record may be outside the domain before or after its replacement. The result
      is exact if a search for distant columns reaches an upper bound, or if all pairs are compared;
      ``is_exact`` states it. Otherwise the result is the upper bound, which follows from three
      facts. Queries are never negative, so the L1 norm of a difference is at most the sum of both
      norms, and the squared L2 norm is at most the sum of both squares (sqrt(2), not 2, times the
      larger norm). A query changes by at most its range. A query that is 1 everywhere does not
      change between cells.

    Cells that a domain declares impossible are included.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.queries.linear_workload import parse_linear_workload
        >>> workload = parse_linear_workload("intervals:age", read_domain('{"age": 3}'))
        >>> workload_sensitivity(workload, "add_or_remove_one").l1 / 2**16
        4.0
    """
    exact = True
    norms = _distances(workload, np.zeros(len(workload), np.int64))
    worst = _largest(norms)
    if Neighboring(neighboring) is Neighboring.REPLACE_ONE:
        worst, exact = _replacement(workload, norms)
    k = max_records_per_unit
    return WorkloadSensitivity(k * worst[0], k * k * worst[1], exact)


def _replacement(
    workload: LinearWorkload, norms: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> tuple[Pair, bool]:
    upper = _upper_bound(workload, norms)
    lower = _far_columns(workload, norms)
    if lower == upper or _is_translation_invariant(workload):
        # In a translation-invariant workload, every column has the same set of distances to all
        # columns.
        return lower, True
    compared = _all_pairs(workload)
    if compared is None:
        return upper, False
    return _worse(compared, _largest(norms)), True


def _upper_bound(
    workload: LinearWorkload, norms: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> Pair:
    unit = 1 << linear.VALUE_BITS
    is_constant = [isinstance(query, linear.Product) and not query.axes for query in workload]
    ranges = [
        int(each.table.max()) - int(each.table.min()) if isinstance(each, linear.Explicit) else unit
        for each, constant in zip(workload, is_constant, strict=True)
        if not constant
    ]
    constant = sum(is_constant)
    sums = _largest(norms)
    between_cells = (
        min(2 * (sums[0] - constant * unit), sum(ranges)),
        min(2 * (sums[1] - constant * unit**2), sum(width**2 for width in ranges)),
    )
    return _worse(between_cells, sums)


def _far_columns(
    workload: LinearWorkload, norms: tuple[NDArray[np.int64], NDArray[np.int64]]
) -> Pair:
    """Returns the largest distances of a walk from each column to the column farthest from it."""
    worst = _largest(norms)
    for norm in range(2):
        cell, seen = int(np.argmax(norms[norm])), set[int]()
        while cell not in seen and len(seen) < _MAX_STEPS:
            seen.add(cell)
            distances = _distances(workload, _column(workload, cell))
            worst = _worse(worst, _largest(distances))
            cell = int(np.argmax(distances[norm]))
        if not workload.explicit:
            break  # for 0/1 queries, both norms count the queries that differ
    return worst


def _is_translation_invariant(workload: LinearWorkload) -> bool:
    """Returns whether all queries are parities, or single literals, on attributes of two levels."""
    # Whether one of these distinguishes two cells depends only on the attributes that differ.
    return all(
        isinstance(query, linear.Parity | linear.Product)
        and (isinstance(query, linear.Parity) or len(query.axes) <= 1)
        and all(query.shape[axis] == 2 for axis in query.axes)
        for query in workload
    )


def _all_pairs(workload: LinearWorkload) -> Pair | None:
    """Returns the largest distances between columns, from all pairs; None if there are too many."""
    axes = _named_axes(workload)
    num_cells = math.prod(workload.domain.shape[axis] for axis in axes)
    if num_cells > max(_MAX_COLUMNS, _MAX_VALUES // len(workload)):
        return None
    if not workload.explicit and num_cells <= _MAX_COLUMNS:
        if _are_intervals(workload) and len(axes) == 1:
            return _differing(_common_of_intervals(workload, num_cells))
        if len(workload) * num_cells**2 <= _MAX_MULTIPLIED:
            return _differing(_common(workload, _representatives(workload, axes)))
    if num_cells * len(workload) <= _MAX_VALUES:
        values = np.concatenate(list(_values(workload, _representatives(workload, axes))))
        columns = np.unique(values, axis=1)
        if len(workload) * columns.shape[1] ** 2 <= _MAX_COMPARED:
            return _compared(columns)
    return None


def _differing(common: NDArray[np.float32]) -> Pair:
    """Returns the largest number of queries that differ at two cells, from the common counts."""
    alone = np.diag(common)
    differing = int((alone[:, None] + alone[None, :] - 2 * common).max())
    return differing << linear.VALUE_BITS, differing << 2 * linear.VALUE_BITS


def _common(workload: LinearWorkload, cells: NDArray[np.int64]) -> NDArray[np.float32]:
    """Counts, for each pair of cells, the queries that are 1 at both; float32 is exact to 2^18."""
    common = np.zeros((len(cells), len(cells)), np.float32)
    for rows in _values(workload, cells):
        marks = (rows > 0).astype(np.float32)
        common += marks.T @ marks
    return common


def _are_intervals(workload: LinearWorkload) -> bool:
    return all(
        isinstance(query, linear.Product) and all(len(ranges) == 1 for ranges in query.ranges)
        for query in workload
    )


def _common_of_intervals(workload: LinearWorkload, size: int) -> NDArray[np.float32]:
    """Returns the counts of ``_common`` for intervals of one attribute, in one pass."""
    # An interval covers two codes if it begins at or before the lower code, and ends at or after
    # the higher code.
    ends = np.zeros((size, size), np.float32)  # intervals by first and last code
    for query in workload:
        assert isinstance(query, linear.Product)
        ((start, stop),) = query.ranges[0] if query.axes else ((0, size),)
        ends[start, stop - 1] += 1
    covering: NDArray[np.float32] = ends.cumsum(axis=0)[:, ::-1].cumsum(axis=1)[:, ::-1]
    above: NDArray[np.float32] = np.triu(covering, 1)
    return np.triu(covering) + above.T


def _compared(columns: NDArray[np.int64]) -> Pair:
    worst = (0, 0)
    for number in range(1, columns.shape[1]):
        change = np.abs(columns[:, :number] - columns[:, number : number + 1])
        worst = _worse(worst, (int(change.sum(axis=0).max()), int((change**2).sum(axis=0).max())))
    return worst


def _named_axes(workload: LinearWorkload) -> set[int]:
    """Returns the attributes on which at least one query depends."""
    if workload.explicit:
        return set(range(workload.domain.num_attributes))
    return {
        axis for query in workload if isinstance(query, linear.LiteralQuery) for axis in query.axes
    }


def _representatives(workload: LinearWorkload, axes: set[int]) -> NDArray[np.int64]:
    """Returns cells that cover all distinct columns: attributes outside ``axes`` have code 0."""
    cells = np.zeros(1, np.int64)
    for axis, size in enumerate(workload.domain.shape):
        codes = np.arange(size if axis in axes else 1)
        cells = (cells[:, None] * size + codes).ravel()
    return cells


def _values(workload: LinearWorkload, cells: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """Yields 2^16 times the values of queries at ``cells``, for ``_CHUNK`` queries at a time."""
    codes = np.unravel_index(cells, workload.domain.shape)
    for start in range(0, len(workload), _CHUNK):
        rows = workload.queries[start : start + _CHUNK]
        yield np.array([_values_of(query, cells, codes) for query in rows])


def _values_of(
    query: linear.LinearQuery, cells: NDArray[np.int64], codes: Sequence[NDArray[np.intp]]
) -> NDArray[np.int64]:
    if isinstance(query, linear.Explicit):
        return query.table[cells].astype(np.int64)
    assert isinstance(query, linear.LiteralQuery)
    num_held = np.zeros(len(cells), np.int64)
    for axis, ranges in zip(query.axes, query.ranges, strict=True):
        holds = np.zeros(query.shape[axis], np.bool_)
        for start, stop in ranges:
            holds[start:stop] = True
        num_held += holds[codes[axis]]
    is_one: NDArray[np.bool_]
    if isinstance(query, linear.Parity):
        is_one = num_held % 2 == 1
    elif isinstance(query, Disjunction):
        is_one = num_held > 0
    else:
        is_one = num_held == len(query.axes)
    return is_one.astype(np.int64) << linear.VALUE_BITS


def _column(workload: LinearWorkload, cell: int) -> NDArray[np.int64]:
    one = np.zeros(workload.domain.num_cells, np.int64)
    one[cell] = 1
    return workload.counts(one)


def _distances(
    workload: LinearWorkload, column: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the L1 and squared L2 distances from a vector of answers to all columns.

    If a query and the column's value c are 0 or 1, |q - c| = c + (1 - 2c) q.
    """
    ones = column >> linear.VALUE_BITS
    weights = 1 - 2 * ones
    start = ones.copy()
    for position, _ in workload.explicit:
        weights[position] = start[position] = 0
    l1 = workload.weighted_sum(weights) + (int(start.sum()) << linear.VALUE_BITS)
    l2_squared = l1 << linear.VALUE_BITS
    for position, query in workload.explicit:
        change = np.abs(query.table - column[position])
        l1 += change
        l2_squared += change**2
    return l1, l2_squared


def _largest(distances: tuple[NDArray[np.int64], NDArray[np.int64]]) -> Pair:
    return int(distances[0].max()), int(distances[1].max())


def _worse(one: Pair, other: Pair) -> Pair:
    return max(one[0], other[0]), max(one[1], other[1])

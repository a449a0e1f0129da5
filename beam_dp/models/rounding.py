"""Rounds a distribution to records, and moves them until their tables are close to targets.

``junction_tree.tree_records`` makes the records of a tree.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Axes
from beam_dp.models.basis import on_one_thread

_MAX_CORRECTIONS = 4
_SOLVER_STEPS = 25
_SLOW = 0.5
_MAX_ROUNDS = 200
_FIRST_SHARE = 0.002


class Cells(Protocol):
    """The cells of an array, or candidates: ``ResidualBasis`` or ``CandidateBasis``."""

    def analyse(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the coefficients of the table with these values."""

    def synthesise(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the values of the table with these coefficients."""


def round_systematically(weights: NDArray[np.float64], num_records: int) -> NDArray[np.int64]:
    """Returns counts that stay within one record of the weights on every prefix of the cells.

    ``weights``: shape (num_cells,), >= 0, not all 0; the counts sum to ``num_records``.
    """
    cumulative = np.cumsum(weights)
    cumulative *= num_records / cumulative[-1]
    cumulative += 0.5
    ends = cumulative.astype(np.int64)
    ends[-1] = num_records
    return np.diff(ends, prepend=0)


@on_one_thread
def round_to_records(
    basis: Cells,
    weights: NDArray[np.float64],
    num_records: int,
    importance: NDArray[np.float64],
    max_error: float,
    wanted: NDArray[np.float64] | None = None,
) -> NDArray[np.int64]:
    """Returns whole counts whose marginals are close to those of a distribution.

    Starts from systematic rounding. Each correction then computes fractional moves that would
    cancel the error of all coefficients, and rounds the moves to whole records. Finally, batches of
    records move from the cells whose loss lowers the error most to the cells whose gain raises the
    error least. Stops when the error is small enough or no move helps. Uses no randomness.

    ``weights``: shape (num_cells,), float64, >= 0, sums to 1.
    ``importance``: shape (num_coefficients,), >= 0.
    ``max_error``: the root of the weighted squared error, in records, at which to stop.
    ``wanted``: the coefficients to approximate, in records; by default those of ``weights``.

    Accuracy: the error of independent draws is about the root of a cell's count; the error of this
    rounding is about one record.

    Returns:
        shape (num_cells,), int64, >= 0, sums to ``num_records``.
    """
    counts = round_systematically(weights, num_records)
    if wanted is None:
        wanted = basis.analyse(weights) * num_records
    difference = basis.analyse(counts.astype(np.float64)) - wanted
    error = float(importance @ difference**2)
    for _ in range(_MAX_CORRECTIONS):
        if error <= max_error**2:
            break
        moved = _corrected(basis, counts, difference, np.sqrt(importance))
        moved_difference = basis.analyse(moved.astype(np.float64)) - wanted
        moved_error = float(importance @ moved_difference**2)
        if moved_error >= error:
            break
        is_slow = moved_error > _SLOW * error  # where counts are small, moves are faster
        counts, difference, error = moved, moved_difference, moved_error
        if is_slow:
            break
    batch = max(1, int(num_records * _FIRST_SHARE))
    changes = _moves(basis, counts, importance * difference, batch)
    for _ in range(_MAX_ROUNDS):
        if error <= max_error**2 or batch == 0:
            break
        change = _change(changes, batch, len(counts))
        moved_difference = difference + basis.analyse(change)
        moved_error = float(importance @ moved_difference**2)
        if moved_error < error:
            counts = counts + change.astype(np.int64)
            difference, error = moved_difference, moved_error
            batch += (batch + 1) // 2
            changes = _moves(basis, counts, importance * difference, batch)
        else:
            batch //= 2
    return counts


# The cells that records leave and the cells that records enter; the most helpful moves come first.
_Moves = tuple[NDArray[np.int64], NDArray[np.int64]]


def _moves(
    basis: Cells, counts: NDArray[np.int64], gradient: NDArray[np.float64], limit: int
) -> _Moves:
    """Returns at most ``most`` moves down a gradient; every move lowers the error."""
    slopes = basis.synthesise(gradient)
    filled = np.flatnonzero(counts != 0)
    limit = min(limit, len(filled))
    sources = filled[_lowest(-slopes[filled], limit)]
    targets = _lowest(slopes, limit)
    helps = slopes[sources] > slopes[targets]
    return sources[helps], targets[helps]


def _lowest(values: NDArray[np.float64], number: int) -> NDArray[np.int64]:
    """Returns the positions of the lowest values, in ascending order of values."""
    chosen = np.arange(len(values))
    if number < len(values):
        chosen = np.sort(np.argpartition(values, number)[:number])
    return chosen[np.argsort(values[chosen], kind="stable")]


def _change(moves: _Moves, batch: int, num_cells: int) -> NDArray[np.float64]:
    """Returns by how many records the first ``batch`` moves change each cell."""
    sources, targets = (cells[:batch] for cells in moves)
    change = np.zeros(num_cells)
    change[sources] -= 1
    change[targets] += 1
    return change


def _corrected(
    basis: Cells,
    counts: NDArray[np.int64],
    difference: NDArray[np.float64],
    roots: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Returns the counts after the change that cancels a difference, rounded to whole records.

    The change is the counts times a function that the coefficients span: the change is small,
    affects filled cells only and has one unknown per coefficient. A few steps of conjugate
    gradients find the change as precisely as whole records can follow.
    """
    if not counts.any():
        return counts
    solution = np.zeros_like(difference)
    residual = -roots * difference
    direction = residual
    square = first_square = float(residual @ residual)
    for _ in range(_SOLVER_STEPS):
        image = roots * basis.analyse(counts * basis.synthesise(roots * direction))
        curvature = float(direction @ image)
        if curvature <= 0 or square <= 1e-4 * first_square:
            break
        length = square / curvature
        solution = solution + length * direction
        residual = residual - length * image
        previous, square = square, float(residual @ residual)
        direction = residual + (square / previous) * direction
    change = counts * basis.synthesise(roots * solution)
    if not np.isfinite(change).all():
        return counts
    change = np.clip(change, -counts, counts.sum())
    change -= counts * (change.sum() / counts.sum())
    ends = np.floor(np.cumsum(change) + 0.5).astype(np.int64)
    whole = np.maximum(np.diff(ends, prepend=0), -counts)
    # The fullest cells absorb the surplus that is left by the floor at 0 and the rounding.
    surplus = int(whole.sum())
    fullest = np.argsort(-(counts + whole), kind="stable")[: abs(surplus)]
    whole[fullest] -= np.sign(surplus)
    if whole.sum() != 0 or (counts + whole).min() < 0:
        return counts  # the filled cells cannot absorb the surplus
    return counts + whole


# Local search on records: changes codes until the records' tables are close to targets.
#
# Records move from cells with too many records to cells with too few. For every record and every
# code of one attribute, the change of the weighted squared error is a sum over the tables that
# contain the attribute. Many records choose in the same step and would overshoot, so only a share
# of the records that choose the same cells moves.


_GOLDEN = (math.sqrt(5) - 1) / 2
# The number of records times codes per part: small enough that moves rarely conflict, and large
# enough for fast array operations.
_PART_CELLS = 2**15
_MAX_SWEEPS = 20
# Only the cells that change are listed, by sorting, if there are this many times as many cells.
_SPARSE = 16
_MAX_HALVINGS = 10
# The search ends after a sweep that lowers the squared error by less than this share.
_LEAST_GAIN = 0.05
# The weight of the squared error beyond the slack, relative to that of all squared errors. It keeps
# measured tables from being outweighed by the other tables of the same attributes.
_EXCESS_WEIGHT = 4.0


@dataclasses.dataclass(frozen=True)
class Target:
    """The target for a table of the records."""

    axes: Axes  # ascending
    table: NDArray[np.float64]  # in records
    weight: float  # of the squared error of every cell, >= 0
    # How far each cell may be off, in records: the excess has a further weight, and after a sweep
    # the target moves by it to the other side, so that the next sweep pushes harder.
    slack: NDArray[np.float64] | None = None


def improve_records(
    shape: Sequence[int],
    codes: NDArray[np.int32],
    targets: Sequence[Target],
    max_error: float,
    max_sweeps: int = _MAX_SWEEPS,
    impossible: Sequence[tuple[Axes, NDArray[np.bool_]]] = (),
) -> float:
    """Moves records towards target tables, in place; returns the root of the remaining error.

    ``codes``: the records to change, shape (number of attributes, number of records).
    ``max_error``: the root of the weighted squared error at which to stop.
    ``impossible``: (axes, table) pairs, with True in forbidden cells; no record may start in a
    forbidden cell, and none enters one.

    Accuracy: the error never rises in a sweep.
    """
    moves = _CodeMoves(shape, codes, targets, impossible)
    for number in range(max_sweeps):
        if number:
            moves.correct_targets()
        before = moves.error
        for axis in range(len(shape)):
            if moves.error <= max_error**2:
                break
            moves.sweep(axis)
        if moves.error <= max_error**2 or moves.error > (1 - _LEAST_GAIN) * before:
            break
    codes[...] = moves.codes()
    return math.sqrt(moves.error)


class _CodeMoves:
    """The records, the surplus of their tables over the targets, and the squared error."""

    def __init__(
        self,
        shape: Sequence[int],
        codes: NDArray[np.int32],
        targets: Sequence[Target],
        impossible: Sequence[tuple[Axes, NDArray[np.bool_]]],
    ) -> None:
        self._shape = shape
        # Store each record's codes contiguously, because a part takes every n-th record.
        self._codes = np.ascontiguousarray(codes.T)
        self._targets = [goal for goal in targets if goal.weight > 0]
        self._impossible = impossible
        self._surplus = []
        for target in self._targets:
            cells = np.zeros(codes.shape[1], dtype=np.int64)
            for axis in target.axes:
                cells = cells * shape[axis] + codes[axis]
            counts = np.bincount(cells, minlength=target.table.size)
            self._surplus.append(counts.reshape(target.table.shape) - target.table)
        self._slack = [
            np.full(target.table.shape, np.inf) if target.slack is None else target.slack
            for target in self._targets
        ]
        self._moved = [np.zeros(target.table.shape) for target in self._targets]
        self.error = self._error()
        self._offset = 0.0

    def codes(self) -> NDArray[np.int32]:
        """Returns the records, in the shape of the input."""
        return self._codes.T

    def _error(self) -> float:
        error = 0.0
        for target, gap, slack in zip(self._targets, self._surplus, self._slack, strict=True):
            excess = _excess(gap, slack)
            squares = float(np.vdot(gap, gap)) + _EXCESS_WEIGHT * float(np.vdot(excess, excess))
            error += target.weight * squares
        return error

    def correct_targets(self) -> None:
        """Moves the targets of cells that are off by more than their slack by the excess."""
        for surplus, moved, slack in zip(self._surplus, self._moved, self._slack, strict=True):
            excess = _excess(surplus - moved, slack)
            moved += excess
            surplus += excess
        self.error = self._error()

    def sweep(self, axis: int) -> None:
        """Moves records along one attribute, one part of the records at a time."""
        places = [number for number, target in enumerate(self._targets) if axis in target.axes]
        size = self._shape[axis]
        if not places or size == 1:
            return
        tables = _StackedTables(
            size,
            [self._by_code(axis, self._targets[i].axes, self._surplus[i]) for i in places],
            [self._by_code(axis, self._targets[i].axes, self._slack[i]) for i in places],
            [self._targets[i].weight for i in places],
            np.stack([self._strides(self._targets[i].axes, axis) for i in places]),
        )
        num_parts = max(1, -(-len(self._codes) * size // _PART_CELLS))
        for part in range(num_parts):
            # Adjacent records are alike, so each part takes every n-th record.
            records = self._codes[part::num_parts]
            rows = tables.rows(records)
            wanted, gains = self._wanted_codes(axis, tables, records, rows)
            helps = np.flatnonzero(gains > 0)
            if len(helps):
                movers = helps * num_parts + part
                self._apply(axis, tables, movers, rows[helps], wanted[helps], gains[helps])
        for place, table in zip(places, tables.unstacked(), strict=True):
            surplus = np.moveaxis(self._surplus[place], self._targets[place].axes.index(axis), -1)
            surplus[...] = table.reshape(surplus.shape)

    def _by_code(self, axis: int, axes: Axes, table: NDArray[Any]) -> NDArray[Any]:
        """Returns a table reshaped to two axes; the last one is the given axis."""
        return np.moveaxis(table, axes.index(axis), -1).reshape(-1, self._shape[axis])

    def _draws(self, length: int) -> NDArray[np.float64]:
        """Returns evenly spread numbers in [0, 1), different ones in every call."""
        self._offset = (self._offset + _GOLDEN) % 1.0
        draws: NDArray[np.float64] = np.arange(length, dtype=np.float64) * _GOLDEN
        return (draws + self._offset) % 1.0

    def _strides(self, axes: Axes, without: int) -> NDArray[np.float64]:
        """Returns the stride of each attribute's code in the cell numbers of a table."""
        strides = np.zeros(len(self._shape))
        stride = 1
        for axis in reversed(axes):
            if axis != without:
                strides[axis] = stride
                stride *= self._shape[axis]
        return strides

    def _wanted_codes(
        self, axis: int, tables: _StackedTables, records: NDArray[np.int32], rows: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Returns a new code per record, and the gain: how much this move alone lowers the error.

        Helpful codes are chosen with probability proportional to the gain: if every record took the
        best code, all records would crowd into the same few cells.
        """
        # The array has one row per code, so sums and comparisons run along the records.
        slopes = tables.slopes(rows)
        numbers = np.arange(slopes.shape[1])
        # The quadratic terms of leaving and entering a cell, which do not depend on the surplus.
        bends = slopes[records[:, axis], numbers] - np.float32(2 * tables.weights.sum())
        for axes, forbidden in self._impossible:
            if axis in axes:
                shut = self._by_code(axis, axes, forbidden)
                slopes[shut[_cells(records, self._strides(axes, axis))].T] = np.inf
        gains = np.maximum(bends - slopes, 0)
        ends = gains.copy()
        for before, row in pairwise(ends):  # np.cumsum takes ten times as long
            row += before
        chosen = (self._draws(len(numbers)) * ends[-1]).astype(np.float32)
        wanted = np.minimum((ends <= chosen).sum(axis=0, dtype=np.int32), len(slopes) - 1)
        return wanted, gains[wanted, numbers]

    def _apply(
        self,
        axis: int,
        tables: _StackedTables,
        movers: NDArray[np.intp],
        rows: NDArray[np.int64],
        wanted: NDArray[np.int32],
        gains: NDArray[np.float32],
    ) -> None:
        """Moves a share of the records, so that moves do not conflict."""
        codes = self._codes[movers, axis]
        left = rows * tables.size + codes[:, None]
        entered = left + (wanted - codes)[:, None]
        change, ids = tables.change(left, entered)
        # When several moves enter or leave one cell, every move reduces the gain of the other
        # moves. If only a share p of the moves is made, the reduction is p times as large.
        left_ids, entered_ids = ids
        meeting = change.amounts.take(entered_ids) - change.amounts.take(left_ids)
        meeting = meeting @ tables.weights - 2 * tables.weights.sum()
        # Uses double precision, because 1e-9 times a small single-precision gain may be 0.
        least = 1e-9 * gains.astype(np.float64)
        shares = np.minimum(gains / np.maximum(2 * meeting, least), 1.0)
        draws = self._draws(len(movers))
        for _ in range(_MAX_HALVINGS):
            moved = np.flatnonzero(draws < shares)
            shares /= 2
            if not len(moved):
                continue
            change, _ = tables.change(left[moved], entered[moved])
            gain = tables.gain(change)
            if gain > 0:
                tables.add(change)
                self.error = max(self.error - gain, 0.0)
                self._codes[movers[moved], axis] = wanted[moved]
                return


@dataclasses.dataclass(frozen=True)
class _Change:
    """Amounts to add to the surplus: to all cells in order, or only to the given cells."""

    cells: Any  # slice(None), or distinct cell numbers
    amounts: NDArray[np.float64]


class _StackedTables:
    """The surplus of all tables that contain an attribute, as rows along the attribute's codes.

    ``tables``: tables of shape (number of cells of the other attributes, size).
    ``slack``: how far each of their cells may be off.
    ``strides``: of codes in the row numbers, shape (number of tables, number of attributes).
    """

    def __init__(
        self,
        size: int,
        tables: Sequence[NDArray[np.float64]],
        slack: Sequence[NDArray[np.float64]],
        weights: Sequence[float],
        strides: NDArray[np.float64],
    ) -> None:
        self.size = size
        lengths = [len(table) for table in tables]
        # Single precision is exact for whole numbers below 2^24, and its products are faster.
        self._strides = strides.T.astype(np.float32 if sum(lengths) < 2**24 else np.float64)
        self.weights = np.array(weights)
        self._starts = np.cumsum([0, *lengths[:-1]], dtype=np.int64)
        self._surplus = np.ascontiguousarray(np.concatenate(tables))
        self._slack = np.ascontiguousarray(np.concatenate(slack))
        self._cell_weights = np.repeat(self.weights, np.multiply(lengths, size))

    def rows(self, records: NDArray[np.int32]) -> NDArray[np.int64]:
        """Returns the rows of records, shape (number of records, number of tables)."""
        rows = _cells(records, self._strides)
        rows += self._starts
        return rows

    def slopes(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns the change of the squared error by one more record, per code."""
        from scipy.sparse import csr_array  # verification rounds, and does without

        # The shape is (size, number of records), with one column per record.
        chosen: Any = slice(None)
        columns = rows.ravel()
        if rows.size < len(self._surplus):  # the rows of the records, with repetitions
            chosen, columns = columns, np.arange(rows.size)
        weights = self._cell_weights[:: self.size, None]  # the same along a row
        surplus = self._surplus[chosen]
        excess = _EXCESS_WEIGHT * _excess(surplus, self._slack[chosen])
        table = (2 * weights[chosen] * (surplus + excess)).astype(np.float32)
        ends = np.arange(0, rows.size + 1, rows.shape[1])
        ones = np.ones(rows.size, dtype=np.float32)
        sums = csr_array((ones, columns, ends), shape=(len(rows), len(table))) @ table
        return np.ascontiguousarray(sums.T)

    def change(
        self, left: NDArray[np.int64], entered: NDArray[np.int64]
    ) -> tuple[_Change, NDArray[np.int64]]:
        """Returns the change if records leave and enter cells, and where these cells are in it."""
        cells: Any = slice(None)
        places, number = np.stack([left, entered]), self._surplus.size
        if _SPARSE * places.size < number:
            cells, places = np.unique(places, return_inverse=True)
            number = len(cells)
        places = places.reshape(2, *left.shape)
        amounts = np.bincount(places[1].ravel(), minlength=number)
        amounts -= np.bincount(places[0].ravel(), minlength=number)
        return _Change(cells, amounts.astype(np.float64)), places

    def gain(self, change: _Change) -> float:
        """Returns how much a change would lower the squared error."""
        surplus, amounts = self._surplus.reshape(-1)[change.cells], change.amounts
        weights, slack = self._cell_weights[change.cells], self._slack.reshape(-1)[change.cells]
        before, after = _excess(surplus, slack), _excess(surplus + amounts, slack)
        of_excess = float(weights @ (after**2 - before**2))
        return -float((weights * amounts) @ (2 * surplus + amounts)) - _EXCESS_WEIGHT * of_excess

    def add(self, change: _Change) -> None:
        """Adds a change to the surplus."""
        self._surplus.reshape(-1)[change.cells] += change.amounts

    def unstacked(self) -> list[NDArray[np.float64]]:
        """Returns the tables in their original shapes."""
        return np.split(self._surplus, self._starts[1:])


def _excess(surplus: NDArray[np.float64], slack: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the part of a surplus, of either sign, that is beyond the slack."""
    return surplus - np.clip(surplus, -slack, slack)


def _cells(records: NDArray[np.int32], strides: NDArray[Any]) -> NDArray[np.int64]:
    """Returns cell numbers; the type of the strides must represent cell numbers exactly."""
    numbers: NDArray[Any] = records.astype(strides.dtype) @ strides
    return numbers.astype(np.int64)


def nearest_increasing(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the nearest numbers, in the sum of squares, that never decrease.

    Decreasing neighbours are replaced by the mean of these neighbours, repeatedly; the result does
    not depend on the order of the replacements (Barlow and others, 1972).
    """
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        mean, size = value, 1
        while means and means[-1] >= mean:
            before = sizes.pop()
            mean = (mean * size + means.pop() * before) / (size + before)
            size += before
        means.append(mean)
        sizes.append(size)
    return np.repeat(means, sizes)

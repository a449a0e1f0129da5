"""Local search on records: codes are changed until tables are close to given ones.

A cell in which there are too many records sends some to cells that lack them. For every record
and every code of one attribute the change of the weighted squared error is a sum over the tables
that hold the attribute. Many records choose at once, and would overshoot: of those that make for
the same cells only a share moves.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from beam_dp.models.elimination import Axes

_GOLDEN = (math.sqrt(5) - 1) / 2
# Records times codes that are decided at once: few, so that moves seldom conflict, but enough for
# arrays to pay.
_PART_CELLS = 2**15
_MAX_SWEEPS = 20
_MAX_HALVINGS = 10
# A sweep that lowers the squared error by less than this share is the last.
_LEAST_GAIN = 0.05


@dataclasses.dataclass(frozen=True)
class Target:
    """What a table of the records should be.

    ``axes``: ascending; the table has one axis for each, in records.
    ``weight``: of the squared error of each of its cells, >= 0.
    """

    axes: Axes
    table: NDArray[np.float64]
    weight: float


def improve_records(
    shape: Sequence[int],
    codes: NDArray[np.int32],
    targets: Sequence[Target],
    max_error: float,
    max_sweeps: int = _MAX_SWEEPS,
    impossible: Sequence[tuple[Axes, NDArray[np.bool_]]] = (),
) -> float:
    """Moves records towards target tables, in place; returns the root of the error that is left.

    ``codes``: shape (number of attributes, number of records); changed.
    ``max_error``: root of the weighted squared error at which to stop.
    ``impossible``: (axes, table) with True in the cells that no record may enter; no record may
    start there.

    Accuracy: the error never rises.
    """
    moves = _Moves(shape, codes, targets, impossible)
    for _ in range(max_sweeps):
        before = moves.error
        for axis in range(len(shape)):
            if moves.error <= max_error**2:
                break
            moves.sweep(axis)
        if moves.error <= max_error**2 or moves.error > (1 - _LEAST_GAIN) * before:
            break
    codes[...] = moves.codes()
    return math.sqrt(moves.error)


class _Moves:
    """The records, what their tables have too much, and the squared error of that."""

    def __init__(
        self,
        shape: Sequence[int],
        codes: NDArray[np.int32],
        targets: Sequence[Target],
        impossible: Sequence[tuple[Axes, NDArray[np.bool_]]],
    ) -> None:
        self._shape = shape
        # A record's codes side by side: a part's records are far from each other.
        self._codes = np.ascontiguousarray(codes.T)
        self._targets = [each for each in targets if each.weight > 0]
        self._impossible = impossible
        self._surplus = []
        for target in self._targets:
            cells = np.zeros(codes.shape[1], dtype=np.int64)
            for axis in target.axes:
                cells = cells * shape[axis] + codes[axis]
            counts = np.bincount(cells, minlength=target.table.size)
            self._surplus.append(counts.reshape(target.table.shape) - target.table)
        self.error = self._error()
        self._offset = 0.0

    def codes(self) -> NDArray[np.int32]:
        """Returns the records, in the shape in which they came."""
        return self._codes.T

    def _error(self) -> float:
        pairs = zip(self._targets, self._surplus, strict=True)
        return sum(target.weight * float(np.vdot(each, each)) for target, each in pairs)

    def sweep(self, axis: int) -> None:
        """Moves records along one attribute, a part of them at a time."""
        held = [number for number, each in enumerate(self._targets) if axis in each.axes]
        size = self._shape[axis]
        if not held or size == 1:
            return
        tables = _StackedTables(
            size,
            [self._by_code(axis, self._targets[each].axes, self._surplus[each]) for each in held],
            [self._targets[each].weight for each in held],
            np.stack([self._strides(self._targets[each].axes, axis) for each in held]),
        )
        num_parts = max(1, -(-len(self._codes) * size // _PART_CELLS))
        for part in range(num_parts):
            # Neighbours in the order of records are alike: every part takes some of all kinds.
            records = self._codes[part::num_parts]
            rows = tables.rows(records)
            wanted, gains = self._wanted_codes(axis, tables, records, rows)
            helps = np.flatnonzero(gains > 0)
            if len(helps):
                movers = helps * num_parts + part
                self._apply(axis, tables, movers, rows[helps], wanted[helps], gains[helps])
        for each, table in zip(held, tables.unstacked(), strict=True):
            surplus = np.moveaxis(self._surplus[each], self._targets[each].axes.index(axis), -1)
            surplus[...] = table.reshape(surplus.shape)

    def _by_code(self, axis: int, axes: Axes, table: NDArray[Any]) -> NDArray[Any]:
        """Returns a table as rows along one of its axes."""
        return np.moveaxis(table, axes.index(axis), -1).reshape(-1, self._shape[axis])

    def _draws(self, length: int) -> NDArray[np.float64]:
        """Returns evenly spread numbers in [0, 1), others with every call."""
        self._offset = (self._offset + _GOLDEN) % 1.0
        draws: NDArray[np.float64] = np.arange(length, dtype=np.float64) * _GOLDEN
        return (draws + self._offset) % 1.0

    def _strides(self, axes: Axes, without: int) -> NDArray[np.float64]:
        """Returns by how much each code counts in the number of a cell of a table."""
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
        """Returns for every record another code, and by how much it alone would lower the error.

        Codes that help are chosen in proportion to their gains: were it the best one, all records
        would crowd to the same few.
        """
        # One row a code: sums and comparisons then run along the records.
        slopes = tables.slopes(rows)
        numbers = np.arange(slopes.shape[1])
        # One record more or less in a cell costs its weight, whatever the surplus.
        own = slopes[records[:, axis], numbers] - np.float32(2 * tables.weights.sum())
        for axes, forbidden in self._impossible:
            if axis in axes:
                shut = self._by_code(axis, axes, forbidden)
                slopes[shut[_cells(records, self._strides(axes, axis))].T] = np.inf
        gains = np.maximum(own - slopes, 0)
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
        """Moves the records that do not crowd each other out."""
        own = self._codes[movers, axis]
        left = rows * tables.size + own[:, None]
        entered = left + (wanted - own)[:, None]
        change = tables.change(left, entered)
        # Where moves meet in a cell, or leave the same one, each makes the others' gain smaller.
        # Of a share p of them each loses p times what it would lose among all.
        meeting = (
            change.take(entered) - change.take(left)
        ) @ tables.weights - 2 * tables.weights.sum()
        # In doubles, where a part of the least gain of single precision is not 0.
        least = 1e-9 * gains.astype(np.float64)
        shares = np.minimum(gains / np.maximum(2 * meeting, least), 1.0)
        draws = self._draws(len(movers))
        for _ in range(_MAX_HALVINGS):
            moved = np.flatnonzero(draws < shares)
            shares /= 2
            if not len(moved):
                continue
            change = tables.change(left[moved], entered[moved])
            gain = tables.gain(change)
            if gain > 0:
                tables.add(change)
                self.error = max(self.error - gain, 0.0)
                self._codes[movers[moved], axis] = wanted[moved]
                return


class _StackedTables:
    """What is too much in all tables that hold an attribute, as rows along its codes.

    ``tables``: each of shape (cells of its other attributes, size).
    ``strides``: by how much each code of a record counts in the number of its row of each
    table, shape (number of tables, number of attributes).
    """

    def __init__(
        self,
        size: int,
        tables: Sequence[NDArray[np.float64]],
        weights: Sequence[float],
        strides: NDArray[np.float64],
    ) -> None:
        self.size = size
        lengths = [len(table) for table in tables]
        # Single precision holds whole numbers so small, and products take half as long.
        self._strides = strides.T.astype(np.float32 if sum(lengths) < 2**24 else np.float64)
        self.weights = np.array(weights)
        self._starts = np.cumsum([0, *lengths[:-1]], dtype=np.int64)
        self._surplus = np.concatenate(tables)
        self._row_weights = np.repeat(self.weights, lengths)[:, None]

    def rows(self, records: NDArray[np.int32]) -> NDArray[np.int64]:
        """Returns the rows of records, shape (number of records, number of tables)."""
        rows = _cells(records, self._strides)
        rows += self._starts
        return rows

    def slopes(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Returns by how much a record more with each code would raise the squared error.

        The shape is (size, number of records): one column for each record with these rows.
        """
        table = (2 * self._row_weights * self._surplus).astype(np.float32)
        ends = np.arange(0, rows.size + 1, rows.shape[1])
        ones = np.ones(rows.size, dtype=np.float32)
        shape = (len(rows), len(table))
        sums = csr_array((ones, rows.ravel(), ends), shape=shape) @ table
        return np.ascontiguousarray(sums.T)

    def change(self, left: NDArray[np.int64], entered: NDArray[np.int64]) -> NDArray[np.float64]:
        """Returns what records change that leave some cells and enter others, over all cells."""
        changed = np.bincount(entered.ravel(), minlength=self._surplus.size)
        changed -= np.bincount(left.ravel(), minlength=self._surplus.size)
        return changed.astype(np.float64)

    def gain(self, change: NDArray[np.float64]) -> float:
        """Returns by how much a change would lower the squared error."""
        table = change.reshape(self._surplus.shape)
        return -float(np.vdot(self._row_weights * table, 2 * self._surplus + table))

    def add(self, change: NDArray[np.float64]) -> None:
        """Makes a change."""
        self._surplus += change.reshape(self._surplus.shape)

    def unstacked(self) -> list[NDArray[np.float64]]:
        """Returns the tables, as they were given."""
        return np.split(self._surplus, self._starts[1:])


def _cells(records: NDArray[np.int32], strides: NDArray[Any]) -> NDArray[np.int64]:
    """Returns numbers of cells, as products: whole numbers that the type of strides holds."""
    numbers: NDArray[Any] = records.astype(strides.dtype) @ strides
    return numbers.astype(np.int64)

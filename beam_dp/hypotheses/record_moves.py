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

import numpy as np
from numpy.typing import NDArray

from beam_dp.hypotheses.elimination import Axes

_GOLDEN = (math.sqrt(5) - 1) / 2
# Cells of records times codes that are decided at once: few, so that they seldom get in each
# other's way, but enough for arrays to pay.
_PART_CELLS = 2**15
_MAX_SWEEPS = 20
_MAX_HALVINGS = 10
# A sweep that lowers the squared error by less than this share is the last.
_LEAST_GAIN = 0.05


@dataclasses.dataclass(frozen=True)
class Target:
    """What a table of the records should be.

    Args:
        axes: of the table, ascending.
        table: one axis an attribute, float64, in records.
        weight: of the squared error of each of its cells, >= 0.
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
    """Moves records towards target tables, in place.

    Args:
        shape: number of codes of every attribute.
        codes: shape (number of attributes, number of records), int32; changed.
        targets: tables; need not agree with each other.
        max_error: root of the weighted squared error at which to stop.
        max_sweeps: over all attributes.
        impossible: (axes, table) with True in the cells that no record may enter; none is there.

    Returns:
        The root of the weighted squared error that is left.

    Accuracy: the error never rises.
    Cost: a sweep reads, for every record and attribute, as many cells as the attribute has codes
    from every table that holds it.
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
        self._codes = codes
        self._targets = [each for each in targets if each.weight > 0]
        self._impossible = impossible
        self._surplus = []
        for target in self._targets:
            cells = self._cells(target.axes, np.arange(codes.shape[1]))
            counts = np.bincount(cells, minlength=target.table.size)
            self._surplus.append(counts.reshape(target.table.shape) - target.table)
        self.error = self._error()
        self._offset = 0.0

    def _error(self) -> float:
        pairs = zip(self._targets, self._surplus, strict=True)
        return sum(target.weight * float(np.vdot(each, each)) for target, each in pairs)

    def sweep(self, axis: int) -> None:
        """Moves records along one attribute, a part of them at a time."""
        held = [number for number, each in enumerate(self._targets) if axis in each.axes]
        if not held or self._shape[axis] == 1:
            return
        num_parts = max(1, -(-self._codes.shape[1] * self._shape[axis] // _PART_CELLS))
        for part in range(num_parts):
            # Neighbours in the order of records are alike: every part takes some of all kinds.
            records = np.arange(part, self._codes.shape[1], num_parts)
            wanted, gains = self._wanted_codes(axis, held, records)
            helps = gains > 0
            if helps.any():
                self._apply(axis, held, records[helps], wanted[helps], gains[helps])

    def _draws(self, length: int) -> NDArray[np.float64]:
        """Returns evenly spread numbers in [0, 1), others with every call."""
        self._offset = (self._offset + _GOLDEN) % 1.0
        draws: NDArray[np.float64] = np.arange(length, dtype=np.float64) * _GOLDEN
        return (draws + self._offset) % 1.0

    def _cells(
        self, axes: Axes, records: NDArray[np.intp], without: int | None = None
    ) -> NDArray[np.int64]:
        """Returns the cells of records in a table, or in one without one of its axes."""
        cells = np.zeros(len(records), dtype=np.int64)
        for axis in axes:
            if axis != without:
                cells = cells * self._shape[axis] + self._codes[axis, records]
        return cells

    def _wanted_codes(
        self, axis: int, held: Sequence[int], records: NDArray[np.intp]
    ) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
        """Returns for every record another code, and by how much it alone would lower the error.

        Codes that help are chosen in proportion to their gains: were it the best one, all records
        would crowd to the same few.
        """
        size = self._shape[axis]
        slopes = np.zeros((len(records), size), dtype=np.float32)
        for number in held:
            target = self._targets[number]
            rows = np.moveaxis(self._surplus[number], target.axes.index(axis), -1)
            table = ((2 * target.weight) * rows.reshape(-1, size)).astype(np.float32)
            slopes += table.take(self._cells(target.axes, records, axis), axis=0)
        numbers = np.arange(len(records))
        # One record more or less in a cell costs its weight, whatever the surplus.
        both = np.float32(2 * sum(self._targets[number].weight for number in held))
        own = slopes[numbers, self._codes[axis, records]] - both
        for axes, forbidden in self._impossible:
            if axis in axes:
                shut = np.moveaxis(forbidden, axes.index(axis), -1).reshape(-1, size)
                slopes[shut[self._cells(axes, records, axis)]] = np.inf
        gains = np.maximum(own[:, None] - slopes, 0)
        ends = np.cumsum(gains, axis=1)
        chosen = (self._draws(len(records)) * ends[:, -1]).astype(np.float32)
        wanted = np.minimum((ends <= chosen[:, None]).sum(axis=1), size - 1)
        return wanted.astype(np.int32), gains[numbers, wanted]

    def _apply(
        self,
        axis: int,
        held: Sequence[int],
        movers: NDArray[np.intp],
        wanted: NDArray[np.int32],
        gains: NDArray[np.float32],
    ) -> None:
        """Moves the records that do not crowd each other out."""
        changes = self._changes(axis, held, movers, wanted)
        weights = [self._targets[number].weight for number in held]
        # Where moves meet in a cell, or leave the same one, each makes the others' gain smaller.
        # Of a share p of them each loses p times what it would lose among all.
        meeting = np.full(len(movers), -2 * sum(weights))
        own = self._codes[axis, movers]
        for number, weight, change in zip(held, weights, changes, strict=True):
            axes = self._targets[number].axes
            table = np.moveaxis(change, axes.index(axis), -1).reshape(-1, self._shape[axis])
            rest = self._cells(axes, movers, axis)
            meeting += weight * (table[rest, wanted] - table[rest, own])
        # In doubles, where a part of the least gain of single precision is not 0.
        least = 1e-9 * gains.astype(np.float64)
        shares = np.minimum(gains / np.maximum(2 * meeting, least), 1.0)
        draws = self._draws(len(movers))
        for _ in range(_MAX_HALVINGS):
            moved = draws < shares
            shares /= 2
            if not moved.any():
                continue
            changes = self._changes(axis, held, movers[moved], wanted[moved])
            gain = 0.0
            for number, weight, change in zip(held, weights, changes, strict=True):
                gain -= weight * float(np.vdot(change, 2 * self._surplus[number] + change))
            if gain > 0:
                for number, change in zip(held, changes, strict=True):
                    self._surplus[number] += change
                self.error = max(self.error - gain, 0.0)
                self._codes[axis, movers[moved]] = wanted[moved]
                return

    def _changes(
        self,
        axis: int,
        held: Sequence[int],
        movers: NDArray[np.intp],
        wanted: NDArray[np.int32],
    ) -> list[NDArray[np.float64]]:
        """Returns what some moves change in each table."""
        changes = []
        for number in held:
            target = self._targets[number]
            stride = math.prod(target.table.shape[target.axes.index(axis) + 1 :])
            cells = self._cells(target.axes, movers)
            change = (wanted - self._codes[axis, movers]).astype(np.int64)
            moved = np.bincount(cells + change * stride, minlength=target.table.size)
            moved -= np.bincount(cells, minlength=target.table.size)
            changes.append(moved.reshape(target.table.shape).astype(np.float64))
        return changes

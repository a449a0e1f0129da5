"""Rounding of a distribution to records that answer the workload almost as well."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import on_one_thread
from beam_dp.models.residual_basis import ResidualBasis

_MAX_CORRECTIONS = 4
_SOLVER_STEPS = 25
_MAX_ROUNDS = 200
_FIRST_SHARE = 0.002


def round_systematically(weights: NDArray[np.float64], num_records: int) -> NDArray[np.int64]:
    """Returns counts that stay within one record of the weights on every prefix of the cells.

    ``weights``: shape (num_cells,), float64, >= 0, not all 0.

    Returns:
        shape (num_cells,), int64, sums to ``num_records``.

    Example:
        >>> round_systematically(np.array([0.5, 0.2, 0.3]), 4).tolist()
        [2, 1, 1]
    """
    cumulative = np.cumsum(weights)
    cumulative *= num_records / cumulative[-1]
    cumulative += 0.5
    ends = cumulative.astype(np.int64)
    ends[-1] = num_records
    return np.diff(ends, prepend=0)


@on_one_thread
def round_to_records(
    basis: ResidualBasis,
    weights: NDArray[np.float64],
    num_records: int,
    importance: NDArray[np.float64],
    max_error: float,
) -> NDArray[np.int64]:
    """Returns whole counts whose marginals are close to those of a distribution.

    Starts from systematic rounding. Corrections then move the records that would, could they be
    split, cancel the error of all coefficients; each leaves the error of rounding a few moves.
    Last, batches of records go from the cells where that lowers the error most to those where it
    raises it least. Stops when the error is small enough or nothing helps any more. Deterministic.

    ``weights``: shape (num_cells,), float64, >= 0, sums to 1.
    ``importance``: shape (num_coefficients,), >= 0.
    ``max_error``: root of the weighted squared error, in records, at which to stop.

    Accuracy: independent draws err by about the root of a cell's count; this by about one record.

    Returns:
        shape (num_cells,), int64, >= 0, sums to ``num_records``.
    """
    counts = round_systematically(weights, num_records)
    records = _Records.of(basis, counts)
    wanted = basis.analyse(weights) * num_records
    difference = records.coefficients() - wanted
    error = float(importance @ difference**2)
    for _ in range(_MAX_CORRECTIONS):
        if error <= max_error**2:
            break
        moved = records.corrected(difference, np.sqrt(importance))
        moved_difference = moved.coefficients() - wanted
        moved_error = float(importance @ moved_difference**2)
        if moved_error >= error:
            break
        records, difference, error = moved, moved_difference, moved_error
    batch = max(1, int(num_records * _FIRST_SHARE))
    moves = records.moves(importance * difference, batch)
    for _ in range(_MAX_ROUNDS):
        if error <= max_error**2 or batch == 0:
            break
        changed, changes = moves.of(batch)
        moved_difference = difference + basis.chosen(changed).analyse(changes.astype(np.float64))
        moved_error = float(importance @ moved_difference**2)
        if moved_error < error:
            records = records.changed(changed, changes)
            difference, error = moved_difference, moved_error
            batch += (batch + 1) // 2
            moves = records.moves(importance * difference, batch)
        else:
            batch //= 2
    counts[:] = 0
    counts[basis.domain_cells(records.cells)] = records.held
    return counts


@dataclasses.dataclass(frozen=True)
class _Moves:
    """Records that could go elsewhere, and where to: those that would gain most first.

    ``sources``: cells that a record may leave, shape (number of moves,).
    ``targets``: cells that it may enter, same shape.
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]

    def of(self, batch: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns what the first moves change: distinct cells, and by how many records each."""
        cells = np.concatenate([self.sources[:batch], self.targets[:batch]])
        distinct, places = np.unique(cells, return_inverse=True)
        changes = np.zeros(len(distinct), dtype=np.int64)
        np.add.at(changes, places, np.repeat([-1, 1], len(cells) // 2))
        return distinct, changes


@dataclasses.dataclass(frozen=True)
class _Records:
    """Whole records in a few cells of a table.

    ``cells``: distinct, ascending, in the basis's own order.
    ``held``: records in each, > 0.
    """

    basis: ResidualBasis
    cells: NDArray[np.int64]
    held: NDArray[np.int64]

    @staticmethod
    def of(basis: ResidualBasis, counts: NDArray[np.int64]) -> _Records:
        """Returns the records of a table of counts, in C order of the domain."""
        filled = np.flatnonzero(counts)
        own = basis.own_cells(filled)
        order = np.argsort(own)
        return _Records(basis, own[order], counts[filled[order]])

    def coefficients(self) -> NDArray[np.float64]:
        """Returns the coefficients of the table of records."""
        return self.basis.chosen(self.cells).analyse(self.held.astype(np.float64))

    def changed(self, cells: NDArray[np.int64], changes: NDArray[np.int64]) -> _Records:
        """Returns the records after adding changes to distinct cells."""
        every, places = np.unique(np.concatenate([self.cells, cells]), return_inverse=True)
        held = np.bincount(places[: len(self.cells)], self.held, len(every)).astype(np.int64)
        held[places[len(self.cells) :]] += changes
        return _Records(self.basis, every[held > 0], held[held > 0])

    def corrected(self, difference: NDArray[np.float64], roots: NDArray[np.float64]) -> _Records:
        """Returns the records after a whole version of the change that cancels a difference.

        The change is sought among counts times functions that the coefficients span, so that it
        is small, stays on filled cells and has as few unknowns as there are coefficients. A few
        steps of conjugate gradients find it as well as whole records can follow it.
        """
        held = self.held
        if not len(held):
            return self
        chosen = self.basis.chosen(self.cells)
        solution = np.zeros_like(difference)
        residual = -roots * difference
        direction = residual
        square = first_square = float(residual @ residual)
        for _ in range(_SOLVER_STEPS):
            image = roots * chosen.analyse(held * chosen.synthesise(roots * direction))
            curvature = float(direction @ image)
            if curvature <= 0 or square <= 1e-4 * first_square:
                break
            length = square / curvature
            solution = solution + length * direction
            residual = residual - length * image
            previous, square = square, float(residual @ residual)
            direction = residual + (square / previous) * direction
        change = held * chosen.synthesise(roots * solution)
        if not np.isfinite(change).all():
            return self
        change = np.clip(change, -held, held.sum())
        change -= held * (change.sum() / held.sum())
        ends = np.floor(np.cumsum(change) + 0.5).astype(np.int64)
        whole = np.maximum(np.diff(ends, prepend=0), -held)
        # What the floor at 0 and the last rounding left over is taken from, or given to, the
        # fullest.
        surplus = int(whole.sum())
        fullest = np.argsort(-(held + whole), kind="stable")[: abs(surplus)]
        whole[fullest] -= np.sign(surplus)
        if whole.sum() != 0 or (held + whole).min() < 0:
            return self  # Too few cells to share it out: no correction.
        return self.changed(self.cells, whole)

    def moves(self, gradient: NDArray[np.float64], most: int) -> _Moves:
        """Returns at most this many moves down a gradient, each of which helps."""
        most = min(most, len(self.cells))
        lowest = _Lowest(most)
        here = np.empty(len(self.cells))
        rows, columns = np.divmod(self.cells, self.basis.num_columns)
        by_column = np.argsort(columns, kind="stable")
        done = 0
        for where, values in self.basis.pieces(gradient):
            end = int(np.searchsorted(columns, where.stop, sorter=by_column))
            inside = by_column[done:end]
            here[inside] = values[rows[inside], columns[inside] - where.start]
            done = end
            lowest.see(values, where.start)
        target_rows, target_columns, reached = lowest.found()
        left = np.argsort(-here, kind="stable")[:most]
        helps = here[left] > reached
        targets = target_rows * self.basis.num_columns + target_columns
        return _Moves(self.cells[left][helps], targets[helps])


class _Lowest:
    """The cells with the smallest values of a table that is seen piece by piece."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._limit = math.inf
        self._kept = np.empty((2, 0), dtype=np.int64)
        self._values = np.empty(0)

    def see(self, values: NDArray[np.float64], first_column: int) -> None:
        """Takes some columns of the table into account."""
        rows, columns = np.nonzero(values < self._limit)
        if not len(rows):
            return
        cells = np.stack([rows, columns + first_column])
        self._kept = np.concatenate([self._kept, cells], axis=1)
        self._values = np.concatenate([self._values, values[rows, columns]])
        if len(self._values) > self._number:
            best = np.argpartition(self._values, self._number)[: self._number]
            self._kept, self._values = self._kept[:, best], self._values[best]
            self._limit = float(self._values.max()) if self._number else -math.inf

    def found(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Returns their rows, columns and values, the smallest first."""
        order = np.argsort(self._values, kind="stable")
        return self._kept[0, order], self._kept[1, order], self._values[order]

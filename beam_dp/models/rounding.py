"""Rounds a distribution to records; ``junction_tree.tree_records`` makes those of a tree."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import on_one_thread

_MAX_CORRECTIONS = 4
_SOLVER_STEPS = 25
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
        counts, difference, error = moved, moved_difference, moved_error
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
    basis: Cells, counts: NDArray[np.int64], gradient: NDArray[np.float64], most: int
) -> _Moves:
    """Returns at most ``most`` moves down a gradient; every move lowers the error."""
    slopes = basis.synthesise(gradient)
    filled = np.flatnonzero(counts)
    most = min(most, len(filled))
    sources = filled[_lowest(-slopes[filled], most)]
    targets = _lowest(slopes, most)
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

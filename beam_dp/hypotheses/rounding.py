"""Rounding of a distribution to records that answer the workload almost as well."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beam_dp.hypotheses.residual_basis import ResidualBasis
from beam_dp.hypotheses.threads import on_one_thread

_MAX_CORRECTIONS = 4
_SOLVER_STEPS = 25
_MAX_ROUNDS = 200
_FIRST_SHARE = 0.002


def round_systematically(weights: NDArray[np.float64], num_records: int) -> NDArray[np.int64]:
    """Returns counts that stay within one record of the weights on every prefix of the cells.

    Args:
        weights: shape (num_cells,), float64, >= 0, not all 0.
        num_records: >= 0.

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

    Accuracy: independent draws err by about the root of a cell's count; this by about one record.

    Args:
        basis: coefficients in which the error is measured.
        weights: shape (num_cells,), float64, >= 0, sums to 1.
        num_records: >= 0.
        importance: shape (num_coefficients,), >= 0.
        max_error: root of the weighted squared error, in records, at which to stop.

    Returns:
        shape (num_cells,), int64, >= 0, sums to ``num_records``.

    Cost: at most 300 times two transforms, 200 of them with a selection over the cells.
    """
    counts = round_systematically(weights, num_records)
    wanted = basis.analyse(weights) * num_records
    difference = basis.analyse(counts.astype(np.float64)) - wanted
    error = float(importance @ difference**2)
    for _ in range(_MAX_CORRECTIONS):
        if error <= max_error**2:
            break
        moved = _correct(basis, counts, difference, np.sqrt(importance))
        moved_difference = basis.analyse(moved.astype(np.float64)) - wanted
        moved_error = float(importance @ moved_difference**2)
        if moved_error >= error:
            break
        counts, difference, error = moved, moved_difference, moved_error
    batch = max(1, int(num_records * _FIRST_SHARE))
    gradient = basis.synthesise(importance * difference)
    for _ in range(_MAX_ROUNDS):
        if error <= max_error**2 or batch == 0:
            break
        moved = _move(counts, gradient, batch)
        difference = basis.analyse(moved.astype(np.float64)) - wanted
        moved_error = float(importance @ difference**2)
        if moved_error < error:
            counts, error = moved, moved_error
            gradient = basis.synthesise(importance * difference)
            batch += (batch + 1) // 2
        else:
            batch //= 2
    return counts


def _correct(
    basis: ResidualBasis,
    counts: NDArray[np.int64],
    difference: NDArray[np.float64],
    roots: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Returns the counts after a whole-record version of the change that cancels a difference.

    The change is sought among counts times functions that the coefficients span, so that it is
    small, stays on filled cells and has as few unknowns as there are coefficients. A few steps of
    conjugate gradients find it as well as whole records can follow it.
    """
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
    filled = np.flatnonzero(counts)
    held = counts[filled]
    if not len(held):
        return counts
    change = held * basis.synthesise(roots * solution)[filled]
    if not np.isfinite(change).all():
        return counts
    change = np.clip(change, -held, held.sum())
    change -= held * (change.sum() / held.sum())
    ends = np.floor(np.cumsum(change) + 0.5).astype(np.int64)
    whole = np.maximum(np.diff(ends, prepend=0), -held)
    # What the floor at 0 and the last rounding left over is taken from, or given to, the fullest.
    surplus = int(whole.sum())
    fullest = np.argsort(-(held + whole), kind="stable")[: abs(surplus)]
    whole[fullest] -= np.sign(surplus)
    if whole.sum() != 0 or (held + whole).min() < 0:
        return counts  # Too few cells to share it out: no correction.
    moved = counts.copy()
    moved[filled] += whole
    return moved


def _move(
    counts: NDArray[np.int64], gradient: NDArray[np.float64], batch: int
) -> NDArray[np.int64]:
    """Returns the counts after moving up to ``batch`` records down the gradient."""
    filled = np.flatnonzero(counts)
    batch = min(batch, len(filled))
    sources = filled[_smallest(-gradient[filled], batch)]
    targets = _smallest(gradient, batch)
    helps = gradient[sources] > gradient[targets]
    moved = counts.copy()
    moved[sources[helps]] -= 1
    moved[targets[helps]] += 1
    return moved


def _smallest(values: NDArray[np.float64], number: int) -> NDArray[np.intp]:
    """Returns the positions of the smallest values, in ascending order."""
    if number == 0:
        return np.zeros(0, dtype=np.intp)
    found = np.argpartition(values, number - 1)[:number]
    return found[np.argsort(values[found], kind="stable")]

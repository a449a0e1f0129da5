"""From a distribution to records that answer the workload almost as well."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beam_dp.hypotheses.residual_basis import ResidualBasis
from beam_dp.hypotheses.threads import on_one_thread

_MAX_ROUNDS = 200
_FIRST_SHARE = 0.02


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

    Starts from systematic rounding and moves batches of records from the cells where that lowers
    the weighted squared error of the coefficients most to those where it raises it least, until
    the error is small enough or no batch helps any more. Deterministic.

    Accuracy: independent draws err by about the root of a cell's count; this by about one record.

    Args:
        basis: coefficients in which the error is measured.
        weights: shape (num_cells,), float64, >= 0, sums to 1.
        num_records: >= 0.
        importance: shape (num_coefficients,), >= 0.
        max_error: root of the weighted squared error, in records, at which to stop.

    Returns:
        shape (num_cells,), int64, >= 0, sums to ``num_records``.

    Cost: at most 200 times two transforms and a selection over the cells.
    """
    counts = round_systematically(weights, num_records)
    wanted = basis.analyse(weights) * num_records
    difference = basis.analyse(counts.astype(np.float64)) - wanted
    error = float(importance @ difference**2)
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

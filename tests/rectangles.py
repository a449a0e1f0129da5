"""Products of strategies as dense matrices, and errors measured over all rectangles."""

from __future__ import annotations

import numpy as np
from noise_sources import Seeded

from beam_dp.mechanisms.intervals import RectanglePlan, release_rectangles
from beam_dp.mechanisms.intervals.rectangles import ProductStrategy


def dense_product(strategy: ProductStrategy) -> np.ndarray:
    """The matrix, from what it says of each cell alone."""
    shape = (strategy.first.num_leaves, strategy.second.num_leaves)
    cells = np.eye(shape[0] * shape[1], dtype=np.int64).reshape(-1, *shape)
    return np.array([strategy.measure(cell).ravel() for cell in cells]).T


def prefix_table(counts: np.ndarray) -> np.ndarray:
    return np.pad(counts.cumsum(axis=0).cumsum(axis=1), ((1, 0), (1, 0)))


def mean_square(errors: np.ndarray) -> float:
    """The mean squared error of all rectangles, whose errors are differences of a table's.

    The sum over i < j of (f_j - f_i)^2 is f'(n - 11')f, for either axis.
    """
    rows, columns = errors.shape
    both = rows * errors - errors.sum(axis=0)
    both = columns * both - both.sum(axis=1, keepdims=True)
    num_rectangles = rows * (rows - 1) // 2 * (columns * (columns - 1) // 2)
    return float((errors * both).sum()) / num_rectangles


def rectangle_errors(plan: RectanglePlan, runs: int, seed: int) -> np.ndarray:
    """The mean squared error over all rectangles of each of some noisy releases."""
    noise = Seeded(seed)
    counts = np.random.default_rng(seed).integers(0, 50, plan.shape)
    exact = prefix_table(counts)
    return np.array(
        [mean_square(release_rectangles(plan, counts, noise).prefixes - exact) for _ in range(runs)]
    )

"""Strategies for intervals as dense matrices, and errors measured over all intervals."""

import numpy as np
from noise_sources import Seeded

from beam_dp.mechanisms.intervals import IntervalPlan, release_intervals
from beam_dp.models.intervals.strategy import Prefixes, Strategy

INTERVALS_A_RUN = 4000


def all_intervals(num_leaves: int) -> tuple[np.ndarray, np.ndarray]:
    low, stop = np.triu_indices(num_leaves + 1, 1)
    return low, stop - 1


def dense(strategy: Strategy) -> np.ndarray:
    """The matrix, from what it says of each cell alone."""
    return np.array(
        [strategy.measure(cell) for cell in np.eye(strategy.num_leaves, dtype=np.int64)]
    ).T


def interval_matrix(num_leaves: int) -> np.ndarray:
    low, high = all_intervals(num_leaves)
    cells = np.arange(num_leaves)
    return ((cells >= low[:, None]) & (cells <= high[:, None])).astype(np.float64)


def squared_errors(plan: IntervalPlan, runs: int, seed: int) -> np.ndarray:
    """The mean squared error of each of some noisy releases.

    Of all intervals, by the sums of the errors of prefixes; of the textbook tree, whose answers
    are no differences of prefixes, of some intervals at random.
    """
    generator = np.random.default_rng(seed)
    noise = Seeded(seed)
    num_leaves = plan.num_leaves
    counts = generator.integers(0, 50, num_leaves)
    exact = np.append(0, np.cumsum(counts))
    found = []
    for _ in range(runs):
        release = release_intervals(plan, counts, noise)
        if isinstance(release.estimate, Prefixes):
            errors = release.prefixes() - exact
            total = (num_leaves + 1) * (errors @ errors) - errors.sum() ** 2
            found.append(total / (num_leaves * (num_leaves + 1) / 2))
            continue
        ends = generator.integers(0, num_leaves + 1, (2, INTERVALS_A_RUN))
        low, stop = np.sort(ends[:, ends[0] != ends[1]], axis=0)
        errors = release.estimate.answer(low, stop - 1) - (exact[stop] - exact[low])
        found.append(errors @ errors / len(errors))
    return np.array(found)

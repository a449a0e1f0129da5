"""How many records of a privacy unit to use: the noise of the counts, and the choice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.interval_strategies.hierarchy import tree
from beam_dp.noise.bound import FAILURE_PROBABILITY, Distribution, weighted_noise_bound
from beam_dp.verification.steps import Step, noise_step

# Above this number of records, levels begin at numbers that grow by at most a fifth.
_GROWTH = 5


def record_levels(most: int) -> tuple[int, ...]:
    """Returns the numbers of records at which levels begin: 1, 2, 3, ..., ``most``.

    A unit is in the last level that begins at its number of records or below.
    """
    levels = [1]
    while levels[-1] < most:
        levels.append(min(most, levels[-1] + max(1, levels[-1] // _GROWTH)))
    return tuple(levels)


def records_step(*, num_moved: int, distribution: str, scale: float, sizes: Sequence[int]) -> Step:
    """Returns the step that counts the units of each level, by a tree of sums.

    A unit is in one level or, without records, in none. So it changes one sum of each part of the
    tree by 1, and a unit that replaces another changes two sums of each part.

    ``num_moved``: 1 if neighbours differ in the presence of a unit, 2 if a unit is replaced.
    ``sizes``: the number of sums of each part of the tree; the last one is the number of levels.
    """
    changed = num_moved * len(sizes)
    what = f"count units in {sizes[-1]:,} levels of records"
    return noise_step(what, distribution, changed, changed, scale)


def count_errors(
    distribution: Distribution, scale: float, sizes: Sequence[int]
) -> NDArray[np.float64]:
    """Returns, for each level, a bound on the error of the number of units at or above it.

    The bound is exceeded with probability at most 5 %, for each level by itself; shape (levels,).
    """
    low = np.arange(sizes[-1])
    squared_norms = tree(tuple(sizes)).errors.variances(low, np.full_like(low, sizes[-1] - 1))
    return np.array(
        [
            weighted_noise_bound(distribution, scale, norm, 1, 1, FAILURE_PROBABILITY)
            for norm in squared_norms.tolist()
        ]
    )


def chosen_records(
    most: int, noise_per_record: float, at_least: Sequence[float], errors: Sequence[float]
) -> int:
    """Returns how many records of a unit to use.

    ``most``: the largest number that can be chosen; its levels are ``record_levels``.
    ``noise_per_record``: the expected noise of a table per record of a unit, over all cells.
    ``at_least``: noisy numbers of the units in each level or above; ``errors``: their bounds.

    With k records per unit, tables lack the other records of units, B(k) in total, and get noise
    that is proportional to k: c k in total, where c is ``noise_per_record``. The k-th records of
    units are N(k) records, where N(k) is the number of units that have at least k. So B(k) + c k is
    convex, and smallest at the largest k with N(k) >= c. N(k) is known with noise, whose bound is
    subtracted, and at the beginning of levels. The last level before the first one with too few
    units is chosen: its beginning or, if the mean of N(k) over the level is at least c, its end.

    Accuracy: a level above that of the best k is chosen with probability at most 5 %: then the
    first level above that of the best k passes, by its noise alone. If an error is within its
    bound, the first level above the chosen one has fewer than c units plus twice the bound.

    The expected error of a table, summed over its cells, is at most B(k) + c k, and at least the
    larger of the two, however the lacking records are spread over the cells. So the k that
    minimises the sum has at most twice the smallest error.

    Reference: Amin, Kulesza, Munoz Medina and Vassilvitskii (2019), Bounding user contributions: a
    bias-variance trade-off in differential privacy.
    """
    levels = [*record_levels(most), most + 1]
    surely = [max(0.0, n - error) for n, error in zip(at_least, errors, strict=True)]
    passes = (n >= noise_per_record for n in surely[1:])
    last = next((place for place, each in enumerate(passes) if not each), len(surely) - 1)
    mean = (surely[last] + [*surely, 0.0][last + 1]) / 2
    return levels[last + 1] - 1 if mean >= noise_per_record else levels[last]

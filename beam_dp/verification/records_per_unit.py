"""How many records of a privacy unit to use: the noise of the counts, and the choice."""

from __future__ import annotations

from collections.abc import Sequence

from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY, weighted_noise_bound

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


def chosen_records(
    counts: Sequence[float], *, scale: float, most: int, noise_per_record: float
) -> int:
    """Returns how many records of a unit to use.

    ``counts``: the noisy numbers of units in the levels ``record_levels(most)``, with Laplace
    noise; ``most``: the largest number that can be chosen.
    ``noise_per_record``: the expected noise of a table per record of a unit, over all cells.

    With k records per unit, tables lack the other records of units, B(k) in total, and get noise
    that is proportional to k: c k in total, where c is ``noise_per_record``. The k-th records of
    units are N(k) records, where N(k) is the number of units that have at least k. So B(k) + c k is
    convex, and smallest at the largest k with N(k) >= c. N(k) is known at the beginning of levels,
    with noise, whose bound is subtracted. The last level before the first one with too few units
    is chosen: its beginning or, if the mean of N(k) over the level is at least c, its end.

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
    surely = []
    for place in range(len(counts)):
        num_sums = len(counts) - place
        error = weighted_noise_bound("discrete_laplace", scale, num_sums, 1, 1, FAILURE_PROBABILITY)
        surely.append(max(0.0, sum(counts[place:]) - error))
    passes = (units >= noise_per_record for units in surely[1:])
    last = next((place for place, each in enumerate(passes) if not each), len(surely) - 1)
    mean = (surely[last] + [*surely, 0.0][last + 1]) / 2
    return levels[last + 1] - 1 if mean >= noise_per_record else levels[last]

"""Thresholds below which texts are not released, and the probability that one unit's text passes.

A unit that has m texts of a column adds floor(grid / sqrt(m)) to the sum of each. Sums get discrete
Gaussian noise; texts whose noisy sum is below the threshold are dropped. All numbers are integers
in steps of 1 / grid of a unit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from fractions import Fraction

from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY, normal_quantile, weighted_noise_bound
from beam_dp.privacy.steps import Step, above, gaussian_vector, normal_tail, number, positive

THRESHOLD = "Korolova and others (2009); Gopi and others (2020); Swanberg and others (2023)"
# Numbers of texts up to this one are tried one by one, larger numbers in groups of 1 / 8.
_ONE_BY_ONE = 16
_GROUPS = 8
# Relative error of the quantile and of the operations after it.
_ROUNDING = 1e-12


def text_weight(num_texts: int, grid: int) -> int:
    """Returns floor(grid / sqrt(m)): the weight of each text of a unit that has m texts.

    So a unit adds at most grid to the sums in L2 norm.
    """
    return math.isqrt(grid**2 // num_texts)


def _groups(max_texts: int) -> Iterator[tuple[int, int]]:
    """Yields ranges (least, most) of the number of a unit's texts; the last one is exact."""
    least = 1
    while least < max_texts:
        largest = least if least < _ONE_BY_ONE else least + least // _GROUPS
        yield least, min(largest, max_texts - 1)
        least = largest + 1
    yield max_texts, max_texts


def least_threshold(scale: float, slack: float, max_texts: int, grid: int) -> int:
    """Returns a threshold that texts of one unit alone reach with probability at most ``slack``.

    See ``alone_probability``: for each number of texts, this is the quantile of the noise.
    """
    return max(
        text_weight(least, grid)
        + 1
        + math.ceil(-normal_quantile(math.log(slack) - math.log(largest)) * scale * (1 + _ROUNDING))
        for least, largest in _groups(max_texts)
    )


def alone_probability(scale: float, threshold: int, max_texts: int, grid: int) -> Fraction:
    """Returns an upper bound on the probability that any text of one unit alone is released.

    If a unit has m texts, at most m texts are its own alone. Each has the sum w = floor(grid /
    sqrt(m)), so it is released with the probability P(noise >= threshold - w). Discrete Gaussian
    noise has P(Z >= x) <= P(N(0, scale^2) >= x - 1) (Canonne, Kamath and Steinke, 2020,
    Proposition 25). The union bound adds a factor m. The result is the largest for all m up to
    ``max_texts``; in a group of numbers of texts, the heaviest weight and the largest m.
    """
    sigma, worst = positive(scale), Fraction(0)
    for least, largest in _groups(max_texts):
        distance = threshold - text_weight(least, grid) - 1
        worst = max(worst, largest * normal_tail(distance / sigma) if distance > 0 else Fraction(1))
    return min(worst, Fraction(1))


def threshold_step(
    what: str, *, num_moved: int, max_texts: int, grid: int, scale: float, threshold: int
) -> Step:
    """Returns the step of texts above a threshold: its mu^2, and the slack of the threshold.

    ``num_moved``: the number of units whose texts change (``Neighboring.num_moved``).
    """
    step = gaussian_vector(what, num_moved * grid**2, scale)
    slack = alone_probability(scale, threshold, max_texts, grid)
    shown = number(Fraction(threshold, grid))
    return dataclasses.replace(
        step,
        formula=f"{step.formula}; delta = P(a text of one unit is released)",
        theorem=f"{step.theorem}; {THRESHOLD}",
        numbers=f"{step.numbers}; P(a text of one unit >= {shown} units) = {above(slack)}",
        loss=dataclasses.replace(step.loss, slack=slack),
    )


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

"""Thresholds below which texts are not released, and the probability that one unit's text passes.

A unit that has m texts of a column adds floor(grid / sqrt(m)) to the sum of each. Sums get discrete
Gaussian noise; texts whose noisy sum is below the threshold are dropped. All numbers are integers
in steps of 1 / grid of a unit.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from fractions import Fraction

from beam_dp.privacy.noise.bound import normal_quantile
from beam_dp.verification.steps import Step, above, gaussian_vector, normal_tail, number, positive

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
        most = least if least < _ONE_BY_ONE else least + least // _GROUPS
        yield least, min(most, max_texts - 1)
        least = most + 1
    yield max_texts, max_texts


def least_threshold(scale: float, slack: float, max_texts: int, grid: int) -> int:
    """Returns a threshold that texts of one unit alone reach with probability at most ``slack``.

    See ``alone_probability``: for each number of texts, this is the quantile of the noise.
    """
    return max(
        text_weight(least, grid)
        + 1
        + math.ceil(-normal_quantile(math.log(slack) - math.log(most)) * scale * (1 + _ROUNDING))
        for least, most in _groups(max_texts)
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
    for least, most in _groups(max_texts):
        distance = threshold - text_weight(least, grid) - 1
        worst = max(worst, most * normal_tail(distance / sigma) if distance > 0 else Fraction(1))
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

"""The choice of noise, blocks and shares for questions about sums of windows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import check_noise
from beam_dp.mechanisms.marginals.strategies import predicted_variance
from beam_dp.mechanisms.windows.levels import gaussian_level, laplace_tables, most_squares
from beam_dp.mechanisms.windows.questions import (
    Moment,
    Question,
    check_questions,
    default_questions,
    mean_squared_error,
)
from beam_dp.noise.bound import DISTRIBUTIONS, Distribution, noise_variance
from beam_dp.noise.source import MAX_SCALE
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload
from beam_dp.windows.blocks import Blocks
from beam_dp.windows.horizon import MAX_WINDOWS, Horizon
from beam_dp.windows.promise import LEVELS_CONDITION, protects_horizon
from beam_dp.windows.unit import WindowUnit

Strategy = Literal["independent", "levels"]
StrategyChoice = Strategy | Literal["best"]
DistributionChoice = Distribution | Literal["auto"]

DEFAULT_BLOCK = 24

# Shares of the budget for blocks that are tried; one between them is hardly better.
_SHARES = tuple(Fraction(percent, 100) for percent in range(1, 100))
_WHOLE = Fraction(1)


@dataclasses.dataclass(frozen=True)
class Choice:
    """One way to measure windows, and the variances that it leaves.

    Args:
        distribution: of the noise.
        num_windows: of the horizon.
        window_variance: of a cell of a window, averaged over the workload, in squared records.
        block: windows of a block; None where none are measured.
        share: of the budget for blocks.
        block_variance: of the same cell of a block.
    """

    distribution: Distribution
    num_windows: int
    window_variance: float
    block: int | None = None
    share: Fraction = Fraction(0)
    block_variance: float = 0.0

    @property
    def strategy(self) -> Strategy:
        """Its name."""
        return "independent" if self.block is None else "levels"

    def error(self, question: Question, moment: Moment = "now") -> float:
        """Returns the root mean squared error of a question, in records a cell."""
        return math.sqrt(
            mean_squared_error(
                question,
                self.num_windows,
                self.window_variance,
                self.block,
                self.block_variance,
                moment,
            )
        )

    def mean_error(self, questions: Sequence[Question]) -> float:
        """Returns the geometric mean of the errors of questions, each as soon as it can be asked.

        So that all questions matter alike: what a sum of many windows gains counts as much as what
        one window loses, by the same factor.
        """
        logs = [math.log(self.error(question)) for question in questions]
        return math.exp(sum(logs) / len(logs))


@dataclasses.dataclass(frozen=True)
class Noise:
    """How much noise a promise needs, for every part of its budget.

    Args:
        distribution: of the noise.
        scale: the least of Laplace noise, in records, where windows have the whole budget.
        cell_variance: of a cell of a window then, averaged over the workload.
        max_windows_per_unit: c.
    """

    distribution: Distribution
    scale: float
    cell_variance: float
    max_windows_per_unit: int

    @classmethod
    def of(
        cls, distribution: Distribution, workload: Workload, promise: Guarantee, unit: WindowUnit
    ) -> Noise:
        """Returns the noise of a distribution for a promise, on what is best measured with it.

        Cost: that of the strategies of marginals, a second for the largest workloads.
        """
        most = unit.max_windows_per_unit
        if distribution == "discrete_laplace":
            measured = laplace_tables(workload, promise)
        else:
            measured = gaussian_level(workload, promise, unit, _WHOLE, most_squares(most))
        variance = predicted_variance(workload, measured, False)
        return cls(distribution, min(each.scale for each in measured), variance, most)

    def variance(self, part: Fraction, block: int | None = None) -> float:
        """Returns the variance of a cell of a window, or of a block, for a part of the budget."""
        if self.distribution == "discrete_laplace":
            kind = self.distribution
            ratio = noise_variance(kind, self.scale / part) / noise_variance(kind, self.scale)
            return self.cell_variance * ratio
        most = self.max_windows_per_unit
        return self.cell_variance * most_squares(most, block) / (most_squares(most) * float(part))


def ranked_choices(
    workload: Workload,
    horizon: Horizon,
    unit: WindowUnit,
    promise: Guarantee,
    *,
    distribution: DistributionChoice = "auto",
    strategy: StrategyChoice = "best",
    block: int = DEFAULT_BLOCK,
    share: float | None = None,
    questions: Sequence[str] | None = None,
) -> list[Choice]:
    """Returns what can be measured, the best for some questions first: ``Choice.mean_error``.

    Each noise and each size of blocks is there once, with the best share of the budget: from 1 %
    to 99 % in steps of 1 %.

    Args: as of ``plan_window_tables``, and
        promise: of all windows that are protected together.

    Raises:
        InputError: as of ``plan_window_tables``.

    Cost: that of the strategies of marginals, and O(num_windows) for each size and question: 0.1 s
    for a million.
    """
    num_windows = horizon.num_windows
    check_choice("strategy", strategy, ("independent", "levels", "best"))
    texts = default_questions(num_windows) if questions is None else questions
    asked = check_questions(texts, num_windows)
    checked_integer("block", block, 2, MAX_WINDOWS, note=", of windows")
    part = None if share is None else Fraction(checked_number("share", share, above=0, below=1))
    has_blocks = protects_horizon(horizon, unit) and num_windows > 1
    if strategy == "levels":
        if not has_blocks:
            raise InputError("strategy", strategy, LEVELS_CONDITION)
        sizes = [Blocks(num_windows, block).size]
    elif strategy == "best" and has_blocks:
        sizes = block_sizes(num_windows, block)
    else:
        sizes = []
    noise = _noise(workload, promise, unit, distribution)
    found = [_with_blocks(each, num_windows, size, part, asked) for each in noise for size in sizes]
    if strategy != "levels":
        found += [Choice(n.distribution, num_windows, n.variance(_WHOLE)) for n in noise]
    return sorted(found, key=lambda choice: choice.mean_error(asked))


def block_sizes(num_windows: int, asked: int) -> list[int]:
    """Returns the sizes of blocks that are worth a comparison: what was asked, and divisors.

    Example:
        >>> block_sizes(168, 24)[:9], block_sizes(5, 24)
        ([2, 3, 4, 6, 7, 8, 12, 14, 21], [5])
    """
    sizes = {size for size in range(2, num_windows + 1) if num_windows % size == 0}
    return sorted(sizes | ({asked} if 2 <= asked <= num_windows else set()))


def _noise(
    workload: Workload, promise: Guarantee, unit: WindowUnit, distribution: DistributionChoice
) -> list[Noise]:
    check_choice("distribution", distribution, ("auto", *DISTRIBUTIONS))
    if distribution == "discrete_gaussian" and promise.delta == 0:
        raise InputError("delta", 0.0, "must be > 0 for Gaussian noise")
    found = [
        Noise.of(each, workload, promise, unit)
        for each in DISTRIBUTIONS
        if distribution in ("auto", each) and (each == "discrete_laplace" or promise.delta > 0)
    ]
    check_noise(promise, [min(each.scale for each in found)])
    return [each for each in found if each.scale <= MAX_SCALE]


def _with_blocks(
    noise: Noise,
    num_windows: int,
    block: int,
    share: Fraction | None,
    questions: Sequence[Question],
) -> Choice:
    """Returns the choice of blocks of a size with the best share of the budget, or a given one."""
    tried = [
        Choice(
            noise.distribution,
            num_windows,
            noise.variance(1 - part),
            block,
            part,
            noise.variance(part, block),
        )
        for part in (_SHARES if share is None else (share,))
    ]
    return min(tried, key=lambda choice: choice.mean_error(questions))

"""Chooses noise, blocks and budget shares for questions about sums of windows."""

from __future__ import annotations

import dataclasses
import functools
import math
import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.horizon import (
    LEVELS_CONDITION,
    MAX_WINDOWS,
    Blocks,
    Horizon,
    WindowUnit,
    protects_horizon,
)
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import check_noise
from beam_dp.mechanisms.marginals import measurements
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import DISTRIBUTIONS, Distribution, noise_variance
from beam_dp.privacy.noise.source import MAX_SCALE
from beam_dp.privacy.rounding import up
from beam_dp.queries.workload import Workload

# When a question is asked: once the sum's last window is released, or after the horizon ends.
Moment = Literal["now", "end"]
Ends = NDArray[np.int64]

_CONDITION = "must be 'one', 'running' or 'trailing:N' with N from 1 to"


@dataclasses.dataclass(frozen=True)
class Question:
    """Sums of the last ``length`` windows, or sums from the first window if ``length`` is None."""

    length: int | None

    @classmethod
    def parse(cls, text: object, num_windows: int) -> Question:
        """Parses a question: ``one``, ``trailing:24`` or ``running``."""
        match = re.fullmatch(r"one|running|trailing:([1-9][0-9]{0,6})", str(text))
        length = int(match[1]) if match and match[1] else 1
        if match is None or length > num_windows:
            raise InputError("questions", text, f"{_CONDITION} {num_windows:,}")
        return cls(None if match[0] == "running" else length)

    def ends(self, num_windows: int) -> tuple[Ends, Ends]:
        """Returns two arrays: per sum, its first window and the window after its last window."""
        stop = np.arange(self.length or 1, num_windows + 1)
        return (stop - self.length if self.length else np.zeros_like(stop)), stop


def default_questions(num_windows: int) -> tuple[str, ...]:
    """Returns the default questions; ``trailing:24`` only if there are at least 24 windows."""
    return ("one", *(("trailing:24",) if num_windows >= 24 else ()), "running")


def check_questions(questions: Sequence[str], num_windows: int) -> tuple[Question, ...]:
    """Parses at least one question."""
    if isinstance(questions, str) or not questions:
        raise InputError("questions", questions, f"{_CONDITION} {num_windows:,}, at least one")
    return tuple(Question.parse(text, num_windows) for text in questions)


def mean_squared_error(
    question: Question,
    num_windows: int,
    window_variance: float,
    block: int | None = None,
    block_variance: float = 0.0,
    moment: Moment = "now",
) -> float:
    """Returns the variance of the estimated sums of a question, averaged over the horizon.

    Without blocks, a sum of m windows has variance m v. A released block of n windows and variance
    u, of which the sum includes j windows, lowers this by j^2 v^2 / (n v + u): see
    ``block_weight``.

    ``block``: the number of windows in a block; None if no blocks are measured.
    ``moment``: ``now`` if only blocks that end with the sum or earlier are released, or ``end``.
    """
    size = num_windows if block is None else block
    mean_length, whole, shorter = _means(question, num_windows, size, moment)
    error = mean_length * window_variance
    if block is None:
        return error
    rest = num_windows % block
    for windows, square in ((block, whole), (rest, shorter)):
        gain = window_variance / (windows * window_variance + block_variance)
        error -= square * gain * window_variance
    return error


@functools.lru_cache(maxsize=4096)
def _means(
    question: Question, num_windows: int, size: int, moment: Moment
) -> tuple[float, float, float]:
    """Returns three means over the sums of a question, for blocks of the given size.

    Returns:
        Per sum, on average: its number of windows; its number of windows in each released full
        block, squared and added up; and the same square for a shorter last block.
    """
    first, stop = question.ends(num_windows)
    last = (num_windows - 1) // size
    seen = stop if moment == "now" else np.full_like(stop, num_windows)
    left, right = first // size, (stop - 1) // size
    # Blocks strictly between a sum's first and last block are inside the sum and released.
    whole = np.maximum(right - left - 1, 0) * size**2
    shorter = np.zeros_like(stop)
    pieces = (
        (left, np.minimum(stop, (left + 1) * size) - first),
        (right, np.where(left < right, stop - right * size, 0)),
    )
    for block, length in pieces:
        is_released = np.minimum((block + 1) * size, num_windows) <= seen
        is_short = (block == last) & (num_windows % size > 0)
        squares = np.where(is_released, length**2, 0)
        shorter += np.where(is_short, squares, 0)
        whole += np.where(is_short, 0, squares)
    return float((stop - first).mean()), float(whole.mean()), float(shorter.mean())


# Small tables are merged only up to this number of cells, because drawing noise takes about 1e-5 s
# per cell and window.
_MAX_UNITED_CELLS = 2**20


def most_squares(max_windows_per_unit: int, block: int | None = None) -> int:
    """Returns the largest sum, over blocks, of the squares of a unit's windows per block.

    A unit is kept in c windows, at most n of them in one block. The sum of squares is convex, so
    the sum is largest if all but one of the numbers are 0 or n. With c = q n + r and r < n the
    largest sum is q n^2 + r^2. For windows alone (blocks of one window) the largest sum is c.

    ``block``: n; None for windows.
    """
    whole, rest = divmod(max_windows_per_unit, block or 1)
    return whole * (block or 1) ** 2 + rest**2


def laplace_tables(workload: Workload, promise: Guarantee) -> tuple[Measurement, ...]:
    """Returns the best Laplace measurements of one window that gets the whole budget."""
    domain = workload.domain
    largest = max(
        math.prod(domain.shape[axis] for axis in domain.axes(names)) for names in workload
    )
    return measurements.best_table_strategy(
        workload, promise, False, max(largest, _MAX_UNITED_CELLS)
    )


def laplace_level(whole: tuple[Measurement, ...], part: Fraction) -> tuple[Measurement, ...]:
    """Returns Laplace measurements of each window, or of each block, for a part of the budget.

    Privacy: part x epsilon, pure, for all windows that are protected together, or for all blocks of
    a horizon. A unit has at most k c records in these windows, as the promise says, and each record
    counts in one cell of each table of one window, and of one block. So the L1 sensitivity of a
    table is k c, wherever the records are, and all tables together have epsilon at the scales of
    ``whole``. Neighbours: one unit is added or removed.
    """
    return tuple(dataclasses.replace(each, scale=up(Fraction(each.scale) / part)) for each in whole)


def gaussian_level(
    workload: Workload, promise: Guarantee, unit: WindowUnit, part: Fraction, squares: int
) -> tuple[Measurement, ...]:
    """Returns Gaussian measurements of each window, or of each block, for a part of the budget.

    Privacy: sqrt(part) times the mu of (epsilon, delta), for all windows that are protected
    together, or for all blocks of a horizon. A unit that has records in j windows of a block moves
    the measurements of the block by at most k j times as much as one record does, in L2 norm, by
    the triangle inequality. The squares of several blocks add up: each block may have mu /
    sqrt(squares) by itself, for k records. Neighbours: one unit is added or removed.

    A single marginal is measured as a table, which is never worse than residuals; several marginals
    are measured as residuals.
    """
    mu = Budget.of(promise, "gaussian").part(part / squares).level
    of_window = promise.with_limits(max_records_per_unit=unit.max_records_per_unit)
    if len(workload) == 1:
        return (measurements.gaussian_table(workload.marginals[0], of_window, mu),)
    supports = [workload.domain.axes(names) for names in workload.closure()]
    return measurements.residual_measurements(workload, supports, of_window, mu, is_fitted=False)


Strategy = Literal["independent", "levels"]
StrategyChoice = Strategy | Literal["best"]
DistributionChoice = Distribution | Literal["auto"]

DEFAULT_BLOCK = 24

# The budget shares to try for blocks, in percent; a finer search would gain almost nothing.
_PERCENTS = range(1, 100)
_WHOLE = Fraction(1)


@dataclasses.dataclass(frozen=True)
class Choice:
    """A possible way to measure windows, with the resulting variances."""

    distribution: Distribution
    num_windows: int
    window_variance: float  # the mean over a window's cells in the workload, squared records
    block: int | None = None  # the number of windows in a block
    share: Fraction = Fraction(0)
    block_variance: float = 0.0

    @property
    def strategy(self) -> Strategy:
        """The name of the strategy."""
        return "independent" if self.block is None else "levels"

    def error(self, question: Question, moment: Moment = "now") -> float:
        """Returns the root mean squared error of a question, in records per cell."""
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
        """Returns the geometric mean of the errors of questions, asked as early as possible.

        The geometric mean weighs all questions equally: halving the error of a sum of many windows
        makes up for doubling the error of one window.
        """
        logs = [math.log(self.error(question)) for question in questions]
        return math.exp(sum(logs) / len(logs))


@dataclasses.dataclass(frozen=True)
class Noise:
    """The noise that a guarantee needs, for any part of its budget."""

    distribution: Distribution
    scale: float  # the smallest scale, in records, if windows have the whole budget
    cell_variance: float
    max_windows_per_unit: int

    @classmethod
    def of(
        cls, distribution: Distribution, workload: Workload, promise: Guarantee, unit: WindowUnit
    ) -> Noise:
        """Returns the noise of the best measurements for a distribution and a guarantee."""
        limit = unit.max_windows_per_unit
        if distribution == "discrete_laplace":
            measured = laplace_tables(workload, promise)
        else:
            measured = gaussian_level(workload, promise, unit, _WHOLE, most_squares(limit))
        variance = measurements.predicted_variance(workload, measured, False)
        return cls(distribution, min(table.scale for table in measured), variance, limit)

    def variance(self, part: Fraction, block: int | None = None) -> float:
        """Returns the variance of a cell of a window, or of a block, for a part of the budget."""
        if self.distribution == "discrete_laplace":
            kind = self.distribution
            ratio = noise_variance(kind, self.scale / part) / noise_variance(kind, self.scale)
            return self.cell_variance * ratio
        limit = self.max_windows_per_unit
        return self.cell_variance * most_squares(limit, block) / (most_squares(limit) * float(part))


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
    """Returns the possible choices, sorted by ``Choice.mean_error``.

    Each combination of noise and block size appears once, with the best share of the budget for
    blocks, from 1 % to 99 % in steps of 1 %.

    ``promise``: the guarantee of all windows that are protected together.
    Other arguments: see ``plan_window_tables``.
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
    choices = [_with_blocks(n, num_windows, size, part, asked) for n in noise for size in sizes]
    if strategy != "levels":
        choices += [Choice(n.distribution, num_windows, n.variance(_WHOLE)) for n in noise]
    return sorted(choices, key=lambda choice: choice.mean_error(asked))


def block_sizes(num_windows: int, asked: int) -> list[int]:
    """Returns the block sizes to compare: the requested size, and divisors of the horizon."""
    sizes = {size for size in range(2, num_windows + 1) if num_windows % size == 0}
    return sorted(sizes | ({asked} if 2 <= asked <= num_windows else set()))


def _noise(
    workload: Workload, promise: Guarantee, unit: WindowUnit, distribution: DistributionChoice
) -> list[Noise]:
    check_choice("distribution", distribution, ("auto", *DISTRIBUTIONS))
    if distribution == "discrete_gaussian" and promise.delta == 0:
        raise InputError("delta", 0.0, "must be > 0 for Gaussian noise")
    noises = [
        Noise.of(kind, workload, promise, unit)
        for kind in DISTRIBUTIONS
        if distribution in ("auto", kind) and (kind == "discrete_laplace" or promise.delta > 0)
    ]
    check_noise(promise, [min(noise.scale for noise in noises)])
    return [noise for noise in noises if noise.scale <= MAX_SCALE]


def _with_blocks(
    noise: Noise,
    num_windows: int,
    block: int,
    share: Fraction | None,
    questions: Sequence[Question],
) -> Choice:
    """Returns the choice for one block size, with the given budget share or else the best one."""
    tried = [
        Choice(
            noise.distribution,
            num_windows,
            noise.variance(1 - part),
            block,
            part,
            noise.variance(part, block),
        )
        for part in ([Fraction(n, 100) for n in _PERCENTS] if share is None else [share])
    ]
    return min(tried, key=lambda choice: choice.mean_error(questions))

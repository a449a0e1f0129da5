"""Questions about sums of windows, and how wrong their answers are, in closed form."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError

# When a sum is asked for: as soon as its last window is released, or after the whole horizon.
Moment = Literal["now", "end"]
Ends = NDArray[np.int64]

_CONDITION = "must be 'one', 'running' or 'trailing:N' with N from 1 to"


@dataclasses.dataclass(frozen=True)
class Question:
    """Sums of consecutive windows that are asked for at all times alike.

    Args:
        length: how many windows are summed; None for all of them since the start.
    """

    length: int | None

    @classmethod
    def parse(cls, text: object, num_windows: int) -> Question:
        """Returns the question that a text names: ``one``, ``trailing:24`` or ``running``.

        Raises:
            InputError: if it names none, or a sum of more windows than there are.

        Example:
            >>> Question.parse("trailing:24", 168)
            Question(length=24)
        """
        found = re.fullmatch(r"one|running|trailing:([1-9][0-9]{0,6})", str(text))
        length = int(found[1]) if found and found[1] else 1
        if found is None or length > num_windows:
            raise InputError("questions", text, f"{_CONDITION} {num_windows:,}")
        return cls(None if found[0] == "running" else length)

    def ends(self, num_windows: int) -> tuple[Ends, Ends]:
        """Returns the first windows of all sums that are asked for, and those after their last."""
        stop = np.arange(self.length or 1, num_windows + 1)
        return (stop - self.length if self.length else np.zeros_like(stop)), stop


def default_questions(num_windows: int) -> tuple[str, ...]:
    """Returns one window, the last 24 where there are so many, and the running total."""
    return ("one", *(("trailing:24",) if num_windows >= 24 else ()), "running")


def check_questions(questions: Sequence[str], num_windows: int) -> tuple[Question, ...]:
    """Returns the questions that texts name.

    Raises:
        InputError: if there are none, or one is refused.
    """
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

    A sum of m windows has m v without blocks. Where a block of n windows is released, j of which
    are summed, it brings that down by j^2 v^2 / (n v + u): see ``windows.blocks.block_weight``.

    Args:
        question: which sums.
        num_windows: of the horizon.
        window_variance: v, of what is asked of one window.
        block: windows of a block; None where none are measured.
        block_variance: u, of the same of a block.
        moment: which blocks have been released when a sum is asked for: those that end with it or
            earlier, or all.
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
    """Returns means over the sums of a question, for blocks of a size.

    Returns:
        of the number of windows summed, of the sum over released blocks of the squared number that
        is summed of each, and of that of the last block where it is shorter than the others.
    """
    first, stop = question.ends(num_windows)
    last = (num_windows - 1) // size
    seen = stop if moment == "now" else np.full_like(stop, num_windows)
    left, right = first // size, (stop - 1) // size
    # The blocks between lie inside the sum, and are released before it ends.
    whole = np.maximum(right - left - 1, 0) * size**2
    shorter = np.zeros_like(stop)
    pieces = (
        (left, np.minimum(stop, (left + 1) * size) - first),
        (right, np.where(left < right, stop - right * size, 0)),
    )
    for block, held in pieces:
        is_released = np.minimum((block + 1) * size, num_windows) <= seen
        is_short = (block == last) & (num_windows % size > 0)
        squares = np.where(is_released, held**2, 0)
        shorter += np.where(is_short, squares, 0)
        whole += np.where(is_short, 0, squares)
    return float((stop - first).mean()), float(whole.mean()), float(shorter.mean())

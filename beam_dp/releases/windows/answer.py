"""The part of `beam-dp answer` for the windows of a horizon."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable

from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, refused
from beam_dp.releases.synthetic_database.answer import answer_synthetic
from beam_dp.releases.windows.describe import moment
from beam_dp.releases.windows.horizon import HorizonRelease

_CONDITION = "must be one window, such as 7, or some, such as 10:34, :24 or -24:"
_NUMBER = "-?[0-9]{1,7}"
_SHOWN_RUNS = 6


def answer_horizon(options: argparse.Namespace, release: HorizonRelease) -> None:
    """Prints what a command line asks of some windows together.

    Raises:
        FlagError: if a flag is missing or refused.
        InputError: if a window is damaged, or can't be summed with others.
    """
    if options.windows is None:
        raise FlagError(f"--windows: missing; {_CONDITION}")
    windows = windows_of(options.windows, release.horizon.num_windows)
    missing = [each for each in range(windows.start, windows.stop) if each not in release.windows]
    if missing:
        told = f"must be released, and {shown_runs(missing)} of them are not yet"
        raise refused("windows", options.windows, told)
    try:
        estimate = release.summed(windows)
    except InputError as error:
        if error.name != "windows":
            raise
        raise refused("windows", options.windows, error.condition) from None
    if not options.json:
        asked = range(windows.start, windows.stop)
        between = " to ".join(map(moment, release.horizon.times(asked)))
        print(f"windows {shown_runs(asked)}: {between}")
    answer_synthetic(options, estimate)


def windows_of(text: str, num_windows: int) -> slice:
    """Returns the windows that a text names as Python does: ``7``, ``10:34``, ``:24`` or ``-24:``.

    Unlike a slice of Python's, one that goes beyond the horizon is refused, as is an empty one.

    Raises:
        FlagError: if it names none.

    Example:
        >>> windows_of("-24:", 168), windows_of("7", 168)
        (slice(144, 168, None), slice(7, 8, None))
    """
    found = re.fullmatch(rf"({_NUMBER})|({_NUMBER})?:({_NUMBER})?", text)
    if found is None:
        raise refused("windows", text, _CONDITION)
    one, first_text, stop_text = found.groups()
    first = _from_start(one or first_text or "0", num_windows)
    stop = first + 1 if one else num_windows
    if stop_text:
        stop = _from_start(stop_text, num_windows)
    if not 0 <= first < stop <= num_windows:
        condition = f"must be some of the {num_windows:,} windows of the horizon, from 0 on"
        raise refused("windows", text, condition)
    return slice(first, stop)


def runs(numbers: Iterable[int]) -> list[range]:
    """Returns ascending numbers as runs of consecutive ones.

    Example:
        >>> runs([0, 1, 2, 7])
        [range(0, 3), range(7, 8)]
    """
    found: list[range] = []
    for number in numbers:
        if found and found[-1].stop == number:
            found[-1] = range(found[-1].start, number + 1)
        else:
            found.append(range(number, number + 1))
    return found


def shown_runs(numbers: Iterable[int]) -> str:
    """Returns ascending numbers in a few words.

    Example:
        >>> shown_runs([0, 1, 2, 7])
        '0 to 2, 7'
    """
    found = runs(numbers)
    texts = [f"{run.start}" if len(run) == 1 else f"{run.start} to {run[-1]}" for run in found]
    more = [f"{len(texts) - _SHOWN_RUNS:,} more runs"] if len(texts) > _SHOWN_RUNS else []
    return ", ".join([*texts[:_SHOWN_RUNS], *more])


def _from_start(text: str, num_windows: int) -> int:
    number = int(text)
    return number + num_windows if number < 0 else number

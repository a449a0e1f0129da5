"""The part of `beam-dp answer` for the windows of a horizon."""

from __future__ import annotations

import argparse
import re

from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, refused
from beam_dp.flags.questions import refuse_others
from beam_dp.releases.differences import marginal_differences
from beam_dp.releases.synthetic_database.answer import answer_tables
from beam_dp.releases.windows.describe import shown_runs
from beam_dp.releases.windows.release import HorizonRelease, WindowTables
from beam_dp.reports.terminal import moment

compare_window_tables = marginal_differences

_CONDITION = "must be one window, such as 7, or some, such as 10:34, :24 or -24:"
_NUMBER = "-?[0-9]{1,7}"


def answer_window_tables(release: WindowTables, options: argparse.Namespace) -> None:
    """Prints the answers from one window or block that a command line asks for."""
    refuse_others(options, ())
    answer_tables(release, options)


def answer_horizon(release: HorizonRelease, options: argparse.Namespace) -> None:
    """Prints the answers from the sum of some windows that a command line asks for."""
    refuse_others(options, ("windows",))
    if options.windows is None:
        raise FlagError(f"--windows is required: {_CONDITION}")
    windows = windows_of(options.windows, release.horizon.num_windows)
    missing = [each for each in range(windows.start, windows.stop) if each not in release.windows]
    if missing:
        condition = f"must be released; not released yet: {shown_runs(missing)}"
        raise refused("windows", options.windows, condition)
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
    answer_tables(estimate, options)


def windows_of(text: str, num_windows: int) -> slice:
    """Returns the windows for a string such as ``7``, ``10:34``, ``:24`` or ``-24:``, as in Python.

    Unlike in Python, slices that are empty or extend beyond the horizon raise a FlagError.
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


def _from_start(text: str, num_windows: int) -> int:
    """Returns a window number; negative numbers count from the end of the horizon."""
    number = int(text)
    return number + num_windows if number < 0 else number

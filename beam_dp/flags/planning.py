"""Flags of `beam-dp plan` that also choose the job: the windows of a stream, and target errors.

This module has no slow imports, because `beam-dp` reads these flags before it plans anything.
"""

from __future__ import annotations

import dataclasses

from beam_dp.flags import windows
from beam_dp.flags.flag import Flag

WINDOWS = Flag("windows", "plan releases of the windows of a stream", is_switch=True)


def _with_windows(flag: Flag, help: str | None = None) -> Flag:
    text = f"with --windows: {help or flag.help}"
    return dataclasses.replace(flag, required=False, help=text)


HORIZON = tuple(map(_with_windows, windows.HORIZON))  # required with --windows
OF_WINDOWS = (
    *HORIZON,
    *map(_with_windows, (*windows.UNIT, windows.QUESTIONS, windows.BLOCK)),
    *(_with_windows(flag, "for the printed command line") for flag in windows.TIMES),
)
# Flags that ask for the smallest epsilon; --epsilon must not be given with these flags.
TARGET_ERROR = Flag(
    "target_error",
    "without --epsilon: find the smallest epsilon for which the expected error (root mean"
    " square) is at most A records; with --epsilon, but without --workload: find the number of"
    " queries for which no answer is off by more than A records",
    "A",
    form="number",
)
TARGET_BOUND = Flag(
    "target_bound",
    "without --epsilon: find the smallest epsilon for which all answers are off by at most A"
    " records, with probability 1 - --failure_probability",
    "A",
    form="number",
)

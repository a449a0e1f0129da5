"""Flags for releases of windows: the horizon, the protected unit, and the questions.

This module has no slow imports, because `beam-dp` reads these flags for every command.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beam_dp.flags.flag import Flag, integer, integer_flag
from beam_dp.flags.shared import MAX_RECORDS_PER_UNIT, read_limit_of_unit

if TYPE_CHECKING:
    from beam_dp.domain.horizon import Horizon, WindowUnit

START = Flag("start", "the start of the first window, such as 2026-11-23T00:00Z", "TIME", True)
WINDOW = Flag("window", "the length of a window, such as 90s, 30m, 1h or 7d", "LENGTH", True)
NUM_WINDOWS = integer_flag(
    "num_windows",
    "the number of windows, from 1 to 2^20",
    "W",
    True,
    limits={"least": 1, "most": 2**20},
)
GRACE = Flag(
    "grace",
    "how long each window waits for late records, such as 30m, or 0s",
    "LENGTH",
    True,
)
MAX_WINDOWS_PER_UNIT = integer_flag(
    "max_windows_per_unit",
    "records of one unit are used in at most this many of any --protected_windows consecutive"
    " windows; required unless the unit is the record",
    "C",
)
PROTECTED_WINDOWS = integer_flag(
    "protected_windows",
    "epsilon and delta hold for any P consecutive windows together; P is from 1 to"
    " --num_windows; required unless the unit is the record",
    "P",
)
EVENT_TIME = Flag("event_time", "the column of event times", "COLUMN", True)
ARRIVAL = Flag(
    "arrival",
    "when a record arrived: a column with the time stamp set by the source, or file_time for"
    " the modification time of its file",
    "COLUMN|file_time",
    True,
)
STRATEGY = Flag(
    "strategy",
    "what to count: each window (independent), also blocks of windows (levels), or whichever"
    " answers --questions best (best)",
    default="independent",
    choices=("independent", "levels", "best"),
)
QUESTIONS = Flag(
    "questions",
    "the sums that you expect to ask for, separated by commas: one (window), trailing:N (the"
    " last N windows), running (all windows so far). The default is one, trailing:24 (if there"
    " are 24 windows), running",
    "LIST",
)
BLOCK = integer_flag("block", "the number of windows in a block (default: 24)", "N")

HORIZON = (START, WINDOW, NUM_WINDOWS, GRACE)
# These flags, --privacy_unit and --max_records_per_unit define the unit that a release protects.
UNIT = (MAX_WINDOWS_PER_UNIT, PROTECTED_WINDOWS)
MEASURED = (STRATEGY, QUESTIONS, BLOCK)
TIMES = (EVENT_TIME, ARRIVAL)

PLANS = Flag("windows", "plan releases of the windows of a stream", is_switch=True)


def _with_windows(flag: Flag, help: str | None = None) -> Flag:
    text = f"with --windows: {help or flag.help}"
    return dataclasses.replace(flag, required=False, help=text)


# For `beam-dp plan`; the first are required with --windows.
PLANNED_HORIZON = tuple(map(_with_windows, HORIZON))
PLANNED = (
    *PLANNED_HORIZON,
    *map(_with_windows, (*UNIT, QUESTIONS, BLOCK)),
    *(_with_windows(flag, "for the printed command line") for flag in TIMES),
)


def read_horizon(given: Mapping[str, str]) -> Horizon:
    """Returns the horizon that the flags describe."""
    from beam_dp.domain.horizon import Horizon

    return Horizon(
        start=given["start"],
        window=given["window"],
        num_windows=integer("num_windows", given["num_windows"]),
        grace=given["grace"],
    )


def read_window_unit(given: Mapping[str, str]) -> WindowUnit:
    """Returns the unit that a release of windows protects."""
    from beam_dp.domain.horizon import WindowUnit

    return WindowUnit(
        given["privacy_unit"],
        max_records_per_unit=read_limit_of_unit(MAX_RECORDS_PER_UNIT, given),
        max_windows_per_unit=read_limit_of_unit(MAX_WINDOWS_PER_UNIT, given),
        protected_windows=read_limit_of_unit(PROTECTED_WINDOWS, given),
    )


def read_measured(given: Mapping[str, str]) -> dict[str, Any]:
    """Returns the arguments for the planner of windows from ``QUESTIONS`` and ``BLOCK``."""
    options: dict[str, Any] = {}
    if "questions" in given:
        options["questions"] = tuple(text.strip() for text in given["questions"].split(","))
    if "block" in given:
        options["block"] = integer("block", given["block"])
    return options

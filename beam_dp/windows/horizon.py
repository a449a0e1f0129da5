"""The horizon of a stream: its windows, and the rule by which a record counts in one of them.

A record has the time of its event, and an arrival that its source stamped. Where it counts follows
from these two alone, never from when an engine saw it: tables are the same in batch, in a stream
and after any replay.
"""

from __future__ import annotations

import dataclasses
import datetime
import re

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, is_integer
from beam_dp.errors import InputError

MAX_WINDOWS = 2**20
# At a time: what is held meanwhile stays in the cache. All at once takes five times as long.
_ROWS = 2**14
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Every time of a horizon has a calendar date.
_FIRST = int(datetime.datetime(1, 1, 1, tzinfo=datetime.UTC).timestamp())
_LAST = int(datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC).timestamp())


@dataclasses.dataclass(frozen=True)
class Horizon:
    """Consecutive windows of equal length, in seconds since 1970 in UTC.

    Args:
        start: of the first window: seconds, or a text such as ``2026-11-23T00:00Z``, with its zone.
        window: the length of a window: seconds, or a text such as ``90s``, ``30m``, ``1h``, ``7d``.
        num_windows: from 1 to 2^20.
        grace: how long after its end a window waits for records that arrive late; >= 0, written
            like ``window``. Nothing has a default: what arrives later is lost.

    Raises:
        InputError: if a value is out of range, or the horizon ends beyond the year 9999.

    Example:
        >>> horizon = Horizon("2026-11-23T00:00Z", "1h", 168, "30m")
        >>> horizon.closes(0) - horizon.start
        5400
    """

    start: int
    window: int
    num_windows: int
    grace: int

    # What the constructor takes beside integers.
    def __init__(
        self, start: int | str, window: int | str, num_windows: int, grace: int | str
    ) -> None:
        for name, value in (
            ("start", _moment("start", start)),
            ("window", seconds_of_duration("window", window, least=1)),
            ("num_windows", checked_integer("num_windows", num_windows, 1, MAX_WINDOWS)),
            ("grace", seconds_of_duration("grace", grace, least=0)),
        ):
            object.__setattr__(self, name, value)
        if self.closes(self.num_windows - 1) > _LAST:
            condition = "must be so small that the horizon ends before the year 10000"
            raise InputError("num_windows", num_windows, condition)

    @property
    def window_text(self) -> str:
        """The length of a window as people write it.

        Example:
            >>> Horizon(0, 3600, 1, 0).window_text, Horizon(0, 5400, 1, 0).window_text
            ('1h', '90m')
        """
        return span_text(self.window)

    @property
    def end(self) -> int:
        """The end of the last window, in seconds; its records may arrive until ``closes`` of it."""
        return self.start + self.num_windows * self.window

    def times(self, windows: range) -> tuple[int, int]:
        """Returns the start of the first of some windows and the end of the last, in seconds."""
        return self.start + windows.start * self.window, self.start + windows.stop * self.window

    def closes(self, number: int) -> int:
        """Returns the second from which on nothing that arrives counts in a window."""
        return self.start + (number + 1) * self.window + self.grace


def counted_windows(
    horizon: Horizon, events: NDArray[np.int64], arrivals: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the window in which each record counts, or -1 where it counts in none.

    A record counts in the window that its event is in, if it arrived before that window closed and
    not before its event: one that comes from the future has a clock that is wrong.

    Args:
        horizon: the windows.
        events: shape (n,), when each record's event was, in seconds, rounded down.
        arrivals: shape (n,), when each record reached its source, in seconds, rounded down.

    Returns:
        shape (n,), from -1 to ``num_windows`` - 1.

    Example:
        >>> horizon = Horizon(0, 10, 3, 5)
        >>> counted_windows(horizon, np.array([9, 9, 9, 30]), np.array([14, 15, 8, 30])).tolist()
        [0, -1, -1, -1]
    """
    numbers = np.empty(events.size, np.int64)
    for first in range(0, events.size, _ROWS):
        part = slice(first, first + _ROWS)
        numbers[part] = _counted_windows(horizon, events[part], arrivals[part])
    return numbers


def _counted_windows(
    horizon: Horizon, events: NDArray[np.int64], arrivals: NDArray[np.int64]
) -> NDArray[np.int64]:
    counts = events <= arrivals
    if events.min() < horizon.start or events.max() >= horizon.end:
        counts &= (events >= horizon.start) & (events < horizon.end)
        # Others may be too far away for a difference of 64 bits.
        events = np.where(counts, events, horizon.start)
    numbers = events - horizon.start
    numbers //= horizon.window
    closes = numbers * horizon.window
    closes += horizon.closes(0)
    counts &= arrivals < closes
    np.copyto(numbers, -1, where=~counts)
    return numbers


def seconds_of_duration(name: str, value: object, least: int) -> int:
    """Returns a duration in seconds.

    Args:
        name: what is refused with it.
        value: seconds, or a text such as ``90s``, ``30m``, ``1h``, ``7d``.
        least: the shortest one.

    Raises:
        InputError: if it is none, shorter, or longer than 9,998 years.
    """
    if isinstance(value, str):
        found = re.fullmatch(r"([0-9]{1,12})([smhd])", value)
        if found is None:
            condition = "must be a whole number with its unit, such as 90s, 30m, 1h or 7d"
            raise InputError(name, value, condition)
        value = int(found[1]) * _SECONDS[found[2]]
    return checked_integer(name, value, least, _LAST - _FIRST, note=" of seconds")


def _moment(name: str, value: object) -> int:
    condition = "must be a time with its zone in whole seconds, such as 2026-11-23T00:00Z"
    if isinstance(value, str):
        try:
            moment = datetime.datetime.fromisoformat(value)
        except ValueError:
            raise InputError(name, value, condition) from None
        if moment.tzinfo is None or moment.microsecond:
            raise InputError(name, value, condition)
        seconds = (moment - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)).total_seconds()
        value = int(seconds)
    if not is_integer(value) or not _FIRST <= value <= _LAST:
        raise InputError(name, value, f"{condition}, or seconds since 1970")
    return value


def span_text(seconds: int) -> str:
    """Returns a number of seconds in the largest unit that holds it whole.

    Example:
        >>> span_text(1800), span_text(86_400), span_text(0)
        ('30m', '1d', '0s')
    """
    whole = [unit for unit in _SECONDS if seconds and seconds % _SECONDS[unit] == 0]
    unit = max(whole, key=_SECONDS.__getitem__, default="s")
    return f"{seconds // _SECONDS[unit]}{unit}"

"""The horizon of a stream: its windows, blocks of windows, and the window of each record.

A record has an event time, and an arrival time that its source stamped. Its window depends on these
two times alone, not on the time when an engine processes the record. So tables are the same in
batch, in a stream and after any replay.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, is_integer
from beam_dp.errors import InputError

MAX_WINDOWS = 2**20
# Rows are processed in parts that fit into the cache, which is five times as fast.
_ROWS = 2**14
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# Limits such that every time of a horizon has a calendar date.
_FIRST = int(datetime.datetime(1, 1, 1, tzinfo=datetime.UTC).timestamp())
_LAST = int(datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC).timestamp())


@dataclasses.dataclass(frozen=True)
class Horizon:
    """Consecutive windows of equal length, in seconds since 1970 in UTC.

    Args:
        start: the start of the first window: seconds, or a string with a time zone, such as
            ``2026-11-23T00:00Z``.
        window: the length of a window: seconds, or a string such as ``90s``, ``30m``, ``1h``.
        num_windows: the number of windows, from 1 to 2^20.
        grace: the time for which a window waits after its end for late records; >= 0, written like
            ``window``. There is no default, because records that arrive later are lost.

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

    # The constructor also accepts strings.
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
        """The length of a window in a short form, such as ``90m``."""
        return span_text(self.window)

    @property
    def end(self) -> int:
        """The end of the last window, in seconds; late records may arrive until it closes."""
        return self.start + self.num_windows * self.window

    def times(self, windows: range) -> tuple[int, int]:
        """Returns the start of the first window and the end of the last window, in seconds."""
        return self.start + windows.start * self.window, self.start + windows.stop * self.window

    def closes(self, number: int) -> int:
        """Returns the second at which a window closes: later arrivals do not count."""
        return self.start + (number + 1) * self.window + self.grace


def counted_windows(
    horizon: Horizon, events: NDArray[np.int64], arrivals: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the window in which each record counts, or -1 if there is none.

    A record counts in the window of its event if it arrived before that window closed. It does not
    count if it arrived before its event: an event in the future comes from a wrong clock.

    ``events``, ``arrivals``: shape (n,), times in seconds, rounded down.

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
        # Other times may be so far away that a 64-bit difference would overflow.
        events = np.where(counts, events, horizon.start)
    numbers = events - horizon.start
    numbers //= horizon.window
    closes = numbers * horizon.window
    closes += horizon.closes(0)
    counts &= arrivals < closes
    np.copyto(numbers, -1, where=~counts)
    return numbers


def seconds_of_duration(name: str, value: object, least: int) -> int:
    """Returns a duration in seconds; accepts strings such as ``90s``, ``30m`` or ``7d``."""
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
    """Returns a number of seconds as a whole number of the largest possible unit.

    Example:
        >>> span_text(1800), span_text(86_400), span_text(0)
        ('30m', '1d', '0s')
    """
    whole = [unit for unit in _SECONDS if seconds and seconds % _SECONDS[unit] == 0]
    unit = max(whole, key=_SECONDS.__getitem__, default="s")
    return f"{seconds // _SECONDS[unit]}{unit}"


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The blocks of a horizon: runs of ``size`` >= 2 windows; the last block may have fewer.

    Example:
        >>> [list(Blocks(5, 2).windows(number)) for number in range(len(Blocks(5, 2)))]
        [[0, 1], [2, 3], [4]]
    """

    num_windows: int
    size: int

    def __post_init__(self) -> None:
        checked_integer("block", self.size, 2, self.num_windows, note=", of windows")

    def __len__(self) -> int:
        return -(-self.num_windows // self.size)

    def windows(self, number: int) -> range:
        """Returns the numbers of the windows in a block."""
        start = number * self.size
        return range(start, min(start + self.size, self.num_windows))

    def parts(self, first: int, stop: int) -> Iterator[tuple[int, range]]:
        """Yields the number of each block that overlaps a run of windows, and the overlap."""
        for number in range(first // self.size, (stop - 1) // self.size + 1):
            windows = self.windows(number)
            yield number, range(max(first, windows.start), min(stop, windows.stop))


def block_weight(num_summed: int, num_windows: int, variance_ratio: float) -> float:
    """Returns the share w of a block's residual that is added to a sum of some of its windows.

    Let n windows contain counts x_i, measured as y_i with noise of variance v, and let the total
    be measured as B with noise of variance u, all independent. The estimate for j of these windows
    is P + w (B - S), where P and S are the sums of y_i over the j windows and over all n windows.
    The estimate is unbiased for every w, and only such combinations are, because the coefficients
    of x_i must be 1 in the sum and 0 outside. The variance v (j (1 - w)^2 + (n - j) w^2) + u w^2
    is smallest at w = j / (n + u / v), with the value j v - j^2 v^2 / (n v + u). This is the least
    squares estimate, which is the best unbiased estimate (Gauss and Markov).
    """
    return num_summed / (num_windows + variance_ratio)

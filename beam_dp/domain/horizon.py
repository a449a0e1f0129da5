"""The horizon of a stream: its windows and blocks, and the unit that its releases protect.

A record has an event time, and an arrival time set by its source. The record's window depends
on these two times alone, not on the time when an engine processes the record. So tables are the
same in a batch, in a stream and after any replay.

The kept windows of a unit depend only on the unit's own records and on the order of the windows,
not on the order of processing. Windows that were released before a crash remain released, so if a
replay kept other windows, the unit would be in up to twice as many windows.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, is_integer
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import MAX_RECORDS_PER_UNIT, RECORD, Guarantee, Neighboring
from beam_dp.privacy.rounding import up

MAX_WINDOWS = 2**20
# Rows are processed in parts that fit into the cache, which is five times faster.
_ROWS = 2**14
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
# With these limits, every time of a horizon has a calendar date.
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
            ``window``. There is no default, because records that arrive after the grace time are
            lost.

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
        """Returns the second at which a window closes: records that arrive later do not count."""
        return self.start + (number + 1) * self.window + self.grace

    def check_over(self, settled: float) -> None:
        """Refuses a replay if files are complete until ``settled``, and a window closes later."""
        if settled < (end := self.closes(self.num_windows - 1)):
            moment = datetime.datetime.fromtimestamp(end, datetime.UTC)
            closes = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
            condition = f"can't be given before the last window has closed ({closes}) and settled"
            raise InputError("replay", True, condition)


def counted_windows(
    horizon: Horizon, events: NDArray[np.int64], arrivals: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Returns the window in which each record counts; -1 if the record counts in no window.

    A record counts in the window of its event if it arrived before that window closed. A record
    that arrived before its event does not count, because events in the future come from wrong
    clocks.

    ``events``, ``arrivals``: shape (n,), times in seconds, rounded down.
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
        # A time outside the horizon may be so far away that a 64-bit difference would overflow.
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
        match = re.fullmatch(r"([0-9]{1,12})([smhd])", value)
        if match is None:
            condition = "must be a whole number with its unit, such as 90s, 30m, 1h or 7d"
            raise InputError(name, value, condition)
        value = int(match[1]) * _SECONDS[match[2]]
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
    """Returns seconds as a whole number of the largest possible unit, such as ``30m``."""
    whole = [unit for unit in _SECONDS if seconds and seconds % _SECONDS[unit] == 0]
    unit = max(whole, key=_SECONDS.__getitem__, default="s")
    return f"{seconds // _SECONDS[unit]}{unit}"


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The blocks of a horizon: runs of ``size`` >= 2 windows; the last block may have fewer."""

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
        """Yields the number of each block that overlaps a run of windows, with the overlap."""
        for number in range(first // self.size, (stop - 1) // self.size + 1):
            windows = self.windows(number)
            yield number, range(max(first, windows.start), min(stop, windows.stop))


def block_weight(num_summed: int, num_windows: int, variance_ratio: float) -> float:
    """Returns the share w of a block's residual to add to a sum of some windows in the block.

    Let n windows contain counts x_i, measured as y_i with noise of variance v, and let the total
    be measured as B with noise of variance u, all independent. The estimate for j of these windows
    is P + w (B - S), where P and S are the sums of y_i over the j windows and over all n windows.
    The estimate is unbiased for every w, and only such combinations are, because the coefficients
    of x_i must be 1 in the sum and 0 outside. The variance v (j (1 - w)^2 + (n - j) w^2) + u w^2
    is smallest at w = j / (n + u / v), with the value j v - j^2 v^2 / (n v + u). This is the least
    squares estimate, which is the best unbiased estimate (Gauss and Markov).
    """
    return num_summed / (num_windows + variance_ratio)


MECHANISM = "windows"
LEVELS_CONDITION = (
    "needs a promise for the whole horizon: protected_windows of all its windows, or records"
)

# The format of an entry: two words of a fingerprint, a window, a number of windows.
_DTYPES: tuple[np.dtype[Any], ...]
_DTYPES = np.dtype("<u8"), np.dtype("<u8"), np.dtype("<i4"), np.dtype("<u4")


@dataclasses.dataclass(frozen=True)
class WindowUnit:
    """The unit that a windowed release protects, and the number of windows. No field has a default.

    The guarantee: in any ``protected_windows`` consecutive windows, the records of a unit are used
    in at most ``max_windows_per_unit``, and each uses at most ``max_records_per_unit``.
    These windows together are (epsilon, delta)-private. If both numbers of windows are 1, each
    window is protected on its own. If ``protected_windows`` is the number of all windows, the whole
    horizon is protected. In between, the budget renews in a sliding window.

    Args:
        privacy_unit: the column whose values are the protected units, or ``"record"``.
        max_records_per_unit: the limit on records of a unit in a window, from 1 to 2^40.
        max_windows_per_unit: the limit on windows of a unit, from 1 to ``protected_windows``.
        protected_windows: the number of windows that are protected together, from 1 to all windows
            of the horizon. If the unit is a record, both numbers must be 1: a record is in a single
            window, so the guarantee covers all windows together.

    Raises:
        InputError: if a value is out of range.

    Reference: Kellaris, Papadopoulos, Xiao and Papadias (2014), for sliding windows.
    """

    privacy_unit: str
    max_records_per_unit: int
    max_windows_per_unit: int
    protected_windows: int

    def __post_init__(self) -> None:
        if not isinstance(self.privacy_unit, str) or not self.privacy_unit:
            raise InputError("privacy_unit", self.privacy_unit, "must be a column or 'record'")
        checked_integer("max_records_per_unit", self.max_records_per_unit, 1, MAX_RECORDS_PER_UNIT)
        checked_integer("protected_windows", self.protected_windows, 1, MAX_WINDOWS)
        limit = self.protected_windows
        checked_integer("max_windows_per_unit", self.max_windows_per_unit, 1, limit)
        if self.privacy_unit == RECORD:
            for name in ("max_records_per_unit", "protected_windows"):
                if getattr(self, name) != 1:
                    condition = "must be 1 where the privacy unit is a record"
                    raise InputError(name, getattr(self, name), condition)

    def check_times(self, *columns: str) -> None:
        """Refuses a unit that is one of the columns of times."""
        if self.privacy_unit in columns:
            condition = "must be another column than those of times"
            raise InputError("privacy_unit", self.privacy_unit, condition)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KeptWindows:
    """The kept windows of each unit that can still affect later windows.

    A unit has one entry per remembered window, or a single entry with the number of its windows.
    """

    units: NDArray[np.uint64]  # fingerprints in ascending order, shape (2, m)
    windows: NDArray[np.int32]  # the window of each entry, or the unit's last
    numbers: NDArray[np.uint32]  # of windows per entry, >= 1

    @classmethod
    def nothing(cls) -> KeptWindows:
        """Returns the state before the first window."""
        return cls(np.empty((2, 0), np.uint64), np.empty(0, np.int32), np.empty(0, np.uint32))

    def to_bytes(self) -> bytes:
        """Returns the entries as bytes, 24 bytes per entry."""
        columns = zip((*self.units, self.windows, self.numbers), _DTYPES, strict=True)
        return b"".join([column.astype(dtype).tobytes() for column, dtype in columns])

    @classmethod
    def from_bytes(cls, data: bytes) -> KeptWindows:
        """Reads entries that ``to_bytes`` wrote."""
        entries = len(data) // sum(dtype.itemsize for dtype in _DTYPES)
        columns, position = [], 0
        for dtype in _DTYPES:
            columns.append(np.frombuffer(data, dtype, entries, position))
            position += entries * dtype.itemsize
        return cls(np.stack(columns[:2]), *columns[2:])

    def __repr__(self) -> str:
        return "KeptWindows(secret)"


def keep_windows(
    remembered: KeptWindows,
    units: NDArray[np.uint64],
    number: int,
    limits: WindowUnit,
    num_windows: int,
) -> tuple[NDArray[np.bool_], KeptWindows]:
    """Returns the mask of units that are kept in a window, and the kept windows to remember.

    ``units``: distinct fingerprints in ascending order, first word first, shape (2, n).

    Privacy: let c be ``max_windows_per_unit`` and P ``protected_windows``. A window of a unit is
    kept if and only if fewer than c of the P - 1 windows before it were kept, so of any P
    consecutive windows at most c are kept. The choice depends only on the unit's own windows. If P
    is the whole horizon, the unit's first c windows are kept.

    At most P - 1 windows of a unit are remembered. If no window is ever forgotten, only their
    number is remembered.
    """
    protected, limit = limits.protected_windows, limits.max_windows_per_unit
    if limit == protected:  # then every window of a unit is kept
        return np.ones(units.shape[1], np.bool_), remembered
    forgets = protected < num_windows
    if forgets:
        recent = np.flatnonzero(remembered.windows > number - protected)
        remembered = KeptWindows(
            remembered.units.take(recent, axis=1),
            remembered.windows.take(recent),
            remembered.numbers.take(recent),
        )
    first, last = _places(remembered.units, units)
    before = np.concatenate([[0], np.cumsum(remembered.numbers, dtype=np.int64)])
    keep = before[last] - before[first] < limit
    numbers = remembered.numbers.copy()
    added = keep
    if not forgets:  # in this case, each unit has a single entry
        exists = first < last
        numbers[first[keep & exists]] += 1
        added = keep & ~exists
    # The positions of the new entries among the old entries are the same for all columns.
    new = last[added] + np.arange(np.count_nonzero(added))
    is_old = np.ones(numbers.size + new.size, np.bool_)
    is_old[new] = False
    old = np.flatnonzero(is_old)

    def merged(before: NDArray[Any], more: Any) -> NDArray[Any]:
        column = np.empty(is_old.size, before.dtype)
        column[old], column[new] = before, more
        return column

    first_words, second_words = map(merged, remembered.units, units[:, added])
    windows, numbers = merged(remembered.windows, number), merged(numbers, 1)
    return keep, KeptWindows(np.stack((first_words, second_words)), windows, numbers)


def _places(
    among: NDArray[np.uint64], units: NDArray[np.uint64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns the start and the end of each unit's entries in a sorted list of entries."""
    first = np.searchsorted(among[0], units[0], side="left")
    last = np.searchsorted(among[0], units[0], side="right")
    some = np.flatnonzero(first < last)
    words = units[1][some]
    is_alone = (among[1][first[some]] == words) & (among[1][last[some] - 1] == words)
    for place in some[~is_alone].tolist():  # units that share a first word are very rare
        start, stop = first[place], last[place]
        group = among[1][start:stop]
        first[place] = start + np.searchsorted(group, units[1][place], side="left")
        last[place] = start + np.searchsorted(group, units[1][place], side="right")
    return first, last


def whole_promise(
    horizon: Horizon,
    unit: WindowUnit,
    epsilon: float,
    delta: float,
    *,
    allow_large_delta: bool = False,
) -> Guarantee:
    """Returns the guarantee for all windows that are protected together.

    Neighbours differ by one unit that is added or removed. Replacing a unit could move its records
    to other windows, and the number of records in a window is not public. The
    ``max_records_per_unit`` of the guarantee is k c: any P consecutive windows use records of a
    unit from at most c windows, at most k from each. The L1 distance of tables follows from k c
    alone. At most k of these records are in one window, which makes the L2 distance smaller; the
    plan states this.
    """
    if unit.protected_windows > horizon.num_windows:
        condition = f"must be at most the {horizon.num_windows:,} windows of the horizon"
        raise InputError("protected_windows", unit.protected_windows, condition)
    if unit.max_records_per_unit * unit.max_windows_per_unit > MAX_RECORDS_PER_UNIT:
        condition = "must be at most 2^40, times max_windows_per_unit"
        raise InputError("max_records_per_unit", unit.max_records_per_unit, condition)
    return Guarantee(
        epsilon,
        delta,
        Neighboring.ADD_OR_REMOVE_ONE,
        _protected(horizon, unit, unit.protected_windows),
        unit.max_records_per_unit * unit.max_windows_per_unit,
        allow_large_delta=allow_large_delta,
    )


def window_promise(horizon: Horizon, unit: WindowUnit, epsilon: float, delta: float) -> Guarantee:
    """Returns the guarantee for a single window; the whole guarantee is a composition of these."""
    return Guarantee(
        epsilon,
        delta,
        Neighboring.ADD_OR_REMOVE_ONE,
        _protected(horizon, unit, 1),
        unit.max_records_per_unit,
        allow_large_delta=True,  # a part of a guarantee whose delta was checked
    )


def protects_horizon(horizon: Horizon, unit: WindowUnit) -> bool:
    """Returns whether the guarantee covers the whole horizon; always true for records."""
    return unit.privacy_unit == RECORD or unit.protected_windows == horizon.num_windows


def stated_promise(horizon: Horizon, unit: WindowUnit, guarantee: Guarantee) -> dict[str, Any]:
    """Returns the guarantee as cards state it, and the worst case over the whole horizon.

    Privacy: the W windows of the horizon split into ceil(W / P) runs of at most P windows, where P
    is ``protected_windows``. Each run is (epsilon, delta)-private for any releases of the other
    runs; the epsilons and deltas of the runs add up.
    """
    periods = 1
    if not protects_horizon(horizon, unit):
        periods = -(-horizon.num_windows // unit.protected_windows)
    epsilon = up(periods * Fraction(guarantee.epsilon))
    delta = min(up(periods * Fraction(guarantee.delta)), 1.0)
    protected, limit = unit.protected_windows, unit.max_windows_per_unit
    spent = f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}"
    together = f"all {horizon.num_windows:,} windows together"
    if unit.privacy_unit == RECORD:
        words = f"a record counts in one window; {together} reveal of it at most {spent}"
    else:
        among = f"at most {limit:,} of any {protected:,} consecutive windows"
        words = (
            f"records of one {unit.privacy_unit} are used in {among} of {horizon.window_text},"
            f" at most {unit.max_records_per_unit:,} in each; so many windows together reveal of"
            f" them at most {spent}"
        )
        if periods > 1:
            words += f", and {together} at most epsilon {epsilon:g}, delta {delta:g}"
    return {
        "horizon": dataclasses.asdict(horizon),
        "max_records_per_unit": unit.max_records_per_unit,
        "max_windows_per_unit": limit,
        "protected_windows": protected,
        "promise": words,
        "worst_case": {"periods": periods, "epsilon": epsilon, "delta": delta},
    }


def _protected(horizon: Horizon, unit: WindowUnit, num_windows: int) -> str:
    """Returns the text for a unit in ``num_windows`` windows, which ledgers compare."""
    if unit.privacy_unit == RECORD:
        return RECORD
    windows = f"window of {horizon.window_text}"
    if num_windows > 1:
        windows = f"{num_windows} consecutive windows of {horizon.window_text}"
    # A window of a shifted grid overlaps two windows of this grid, so losses are not just sums.
    shift = horizon.start % horizon.window
    shifted = f", {shift} s after multiples of it since 1970" if shift else ""
    return f"{unit.privacy_unit} in any {windows}{shifted}"

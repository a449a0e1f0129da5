"""The unit of a windowed release: in how many windows of it records are used, and which ones.

Which windows of a unit are kept follows from its own records, in order of windows. The order of
processing would not do: windows that were released before a crash stay, and a replay that chose
others would leave the unit in twice as many.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import MAX_RECORDS_PER_UNIT, RECORD
from beam_dp.windows.horizon import MAX_WINDOWS

# An entry: two words of a fingerprint, a window, a number.
_DTYPES: tuple[np.dtype[Any], ...]
_DTYPES = np.dtype("<u8"), np.dtype("<u8"), np.dtype("<i4"), np.dtype("<u4")


@dataclasses.dataclass(frozen=True)
class WindowUnit:
    """Whom a windowed release protects, and over how long a time; nothing of it has a default.

    The promise: in any ``protected_windows`` consecutive windows at most ``max_windows_per_unit``
    hold records of a unit, at most ``max_records_per_unit`` each, and what they reveal together
    is (epsilon, delta). With both numbers of windows 1 each window is protected for itself; with
    ``protected_windows`` all windows of the horizon the whole horizon is; between, the budget
    renews, in a window that slides.

    Args:
        privacy_unit: the column whose values are the protected units, or ``"record"``.
        max_records_per_unit: how many records of a unit are used in a window, from 1 to 2^40.
        max_windows_per_unit: from 1 to ``protected_windows``.
        protected_windows: from 1 to the number of windows of the horizon. A record is in one
            window alone: then both numbers must be 1, and all windows together keep the promise.

    Raises:
        InputError: if a value is out of range.

    Reference: Kellaris, Papadopoulos, Xiao and Papadias (2014), for windows that slide.
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
        most = self.protected_windows
        checked_integer("max_windows_per_unit", self.max_windows_per_unit, 1, most)
        if self.privacy_unit == RECORD:
            for name in ("max_records_per_unit", "protected_windows"):
                if getattr(self, name) != 1:
                    condition = "must be 1 where the privacy unit is a record"
                    raise InputError(name, getattr(self, name), condition)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class KeptWindows:
    """The kept windows of each unit, as far as later windows need them.

    ``units``: shape (2, m), uint64, fingerprints in ascending order, first word first; a unit
    has as many entries as windows are remembered of it, or one with their number.
    ``windows``: shape (m,), int32, the window of each; the last one where several are counted.
    ``numbers``: shape (m,), uint32, how many windows each entry counts, >= 1.
    """

    units: NDArray[np.uint64]
    windows: NDArray[np.int32]
    numbers: NDArray[np.uint32]

    @classmethod
    def nothing(cls) -> KeptWindows:
        """Returns what is remembered before the first window."""
        return cls(np.empty((2, 0), np.uint64), np.empty(0, np.int32), np.empty(0, np.uint32))

    def to_bytes(self) -> bytes:
        """Returns the entries as bytes, 24 each."""
        columns = zip((*self.units, self.windows, self.numbers), _DTYPES, strict=True)
        return b"".join([column.astype(dtype).tobytes() for column, dtype in columns])

    @classmethod
    def from_bytes(cls, data: bytes) -> KeptWindows:
        """Returns what ``to_bytes`` wrote."""
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
    """Returns which units of a window are kept there, and what is remembered for the next one.

    ``units``: shape (2, n), distinct fingerprints in ascending order, first word first.

    Privacy: a window of a unit is kept if and only if fewer than c of the P - 1 windows before it
    were kept, so that of any P consecutive windows at most c are. It depends on the unit's own
    windows alone. Where P is the whole horizon these are its first c windows.

    Returns:
        shape (n,), True for the units that are kept; and what is remembered: at most P - 1
        windows of a unit, or one number where nothing is ever forgotten.
    """
    protected, most = limits.protected_windows, limits.max_windows_per_unit
    if most == protected:  # there is nothing to refuse
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
    keep = before[last] - before[first] < most
    numbers = remembered.numbers.copy()
    added = keep
    if not forgets:  # one entry a unit
        known = first < last
        numbers[first[keep & known]] += 1
        added = keep & ~known
    # The places of the new entries among the others, found once for all columns.
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
    """Returns where the entries of each unit start and stop among others in ascending order."""
    first = np.searchsorted(among[0], units[0], side="left")
    last = np.searchsorted(among[0], units[0], side="right")
    some = np.flatnonzero(first < last)
    words = units[1][some]
    is_alone = (among[1][first[some]] == words) & (among[1][last[some] - 1] == words)
    for place in some[~is_alone].tolist():  # other units have the same first word: very rare
        start, stop = first[place], last[place]
        group = among[1][start:stop]
        first[place] = start + np.searchsorted(group, units[1][place], side="left")
        last[place] = start + np.searchsorted(group, units[1][place], side="right")
    return first, last

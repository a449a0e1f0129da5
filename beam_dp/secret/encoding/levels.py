"""Encoders that convert values to codes, one class per type of attribute."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain import readings
from beam_dp.domain.attributes import Attribute, BooleanAttribute, ListedAttribute
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.texts import DAY, integer_key, integer_of, plain_integer, time_of
from beam_dp.secret.encoding import layouts


class Coded(NamedTuple):
    """The codes of a column, and the mask of values outside the domain; None if all are inside.

    Codes have shape (n,) and the smallest sufficient unsigned type. The codes may be a read-only
    view of the column. Values outside the domain have arbitrary codes.
    """

    codes: NDArray[Any]
    outside: layouts.Mask | None


class Levels(ABC):
    """Encodes values as the regular levels of one attribute, and null values as null.

    The caller encodes actual nulls and ``other``. Methods take a column and never raise.
    """

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self.dtype = np.min_scalar_type(max(attribute.size - 1, 1))
        texts = attribute.null_texts
        self._null_texts = layouts.TextFinder(attribute, texts) if texts else None

    def integers(self, values: NDArray[Any]) -> Coded:
        """Encodes integers of any numpy type."""
        return self.nothing(values.size)

    def floats(self, values: NDArray[Any]) -> Coded:
        """Encodes floats of any numpy type; NaN has no code."""
        return self.nothing(values.size)

    def texts(self, values: pa.Array) -> Coded:
        """Encodes UTF-8 strings, an array of (large) binary; codes of null are arbitrary."""
        coded = self._texts(values)
        if self._null_texts is None:
            return coded
        return self._as_null(coded, self._null_texts.find(values) >= 0)

    @abstractmethod
    def _texts(self, values: pa.Array) -> Coded:
        """Encodes the strings that are not null values."""

    def times(self, values: NDArray[Any], unit: int, has_zone: bool) -> Coded:
        """Encodes times in units of ``unit`` nanoseconds since 1970, UTC if ``has_zone``."""
        return self.nothing(len(values))

    def booleans(self, values: layouts.Mask) -> Coded:
        """Encodes booleans, as 0 and 1."""
        return self.integers(values.view(np.uint8))

    def nothing(self, length: int) -> Coded:
        """Returns the result for values that never have a level: all values are outside."""
        return Coded(np.zeros(length, self.dtype), np.ones(length, np.bool_))

    def _narrow(self, codes: NDArray[Any]) -> Coded:
        """Converts signed codes, -1 for values outside, to ``Coded``."""
        outside = codes < 0
        return Coded(codes.astype(self.dtype), outside if outside.any() else None)

    def _whole_floats(self, values: NDArray[Any]) -> Coded:
        """Encodes whole floats as integers; other floats are outside."""
        values = values.astype(np.float64, copy=False)
        whole = (values == np.trunc(values)) & (values >= -(2.0**63)) & (values < 2.0**63)
        coded = self.integers(np.where(whole, values, 0).astype(np.int64))
        return also_outside(coded, ~whole)

    def _as_null(self, coded: Coded, places: layouts.Mask) -> Coded:
        null = self.attribute.null_code
        return coded if null is None else self._give(coded, places, null)

    def _give(self, coded: Coded, places: layouts.Mask, code: int) -> Coded:
        """Sets the code of the values at the given places."""
        if not places.any():
            return coded
        codes = coded.codes.copy()
        codes[places] = code
        return Coded(codes, None if coded.outside is None else coded.outside & ~places)


def inside(coded: Coded) -> layouts.Mask:
    """Returns the mask of values that have a code."""
    return np.ones(len(coded.codes), np.bool_) if coded.outside is None else ~coded.outside


def also_outside(coded: Coded, outside: layouts.Mask) -> Coded:
    """Returns the codes with more values marked as outside."""
    if not outside.any():
        return coded
    return Coded(coded.codes, outside if coded.outside is None else coded.outside | outside)


_TABLE_SPAN = 2**16  # integers within a span of this size are looked up in a table
_COMPARED_EDGES = 128  # up to this number, comparing with every edge is faster than a binary search


class IntegerLevels(Levels):
    """Encodes a range of integers by subtraction."""

    def __init__(
        self, attribute: Attribute, minimum: int, maximum: int, *, clips: bool = False
    ) -> None:
        super().__init__(attribute)
        self._minimum, self._maximum = minimum, maximum
        self._clips = clips
        # Integers of a fixed width form a ring: for every value in the range, subtracting after
        # narrowing gives the same code as subtracting before narrowing.
        self._shift = self.dtype.type(minimum % 2 ** (8 * self.dtype.itemsize))

    def integers(self, values: NDArray[Any]) -> Coded:
        """Encodes integers of any numpy type."""
        coded = self._by_range(values)
        # numpy compares exactly with Python integers of any size.
        if self._clips:
            coded = self._to_ends(coded, values < self._minimum, values > self._maximum)
        for null in self.attribute.null_natives:
            coded = self._as_null(coded, values == null)
        return coded

    def floats(self, values: NDArray[Any]) -> Coded:
        """Encodes floats of any numpy type; NaN has no code."""
        values = values.astype(np.float64, copy=False)
        coded = self._whole_floats(values)
        if not self._clips:
            return coded
        # A float whose magnitude is at least 2^63 is whole or infinite.
        finite = np.isfinite(values)
        return self._to_ends(coded, finite & (values < -(2.0**63)), finite & (values >= 2.0**63))

    def _texts(self, values: pa.Array) -> Coded:
        integers, readable = layouts.parse_integers(values)
        coded = also_outside(self.integers(integers), ~readable)
        if not self._clips or coded.outside is None:
            return coded
        # The only integers without a code are integers of more than 64 bits.
        unread = np.flatnonzero(coded.outside)
        ends = np.zeros(len(values), np.int64)
        ends[unread] = layouts.by_distinct(values.take(unread), _signs)
        return self._to_ends(coded, ends == -1, ends == 1)

    def _by_range(self, values: NDArray[Any]) -> Coded:
        if not values.size:
            return Coded(values.astype(self.dtype), None)
        lowest, highest = int(values.min()), int(values.max())
        codes = values.astype(self.dtype, copy=False)
        if self._shift:
            codes = codes - self._shift
        if lowest >= self._minimum and highest <= self._maximum:
            return Coded(codes, None)
        if lowest > self._maximum or highest < self._minimum:
            return self.nothing(values.size)
        # The ends are clipped to the column's values, so that they fit in the column's type.
        low, high = max(self._minimum, lowest), min(self._maximum, highest)
        return Coded(codes, (values < low) | (values > high))

    def _to_ends(self, coded: Coded, below: layouts.Mask, above: layouts.Mask) -> Coded:
        coded = self._give(coded, below, 0)
        return self._give(coded, above, self.attribute.num_levels - 1)


class BooleanLevels(IntegerLevels):
    """Encodes booleans, 0 and 1, and the words ``false`` and ``true``, ignoring case."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__(attribute, 0, 1)

    def _texts(self, values: pa.Array) -> Coded:
        import pyarrow.compute as pc

        words = pc.ascii_lower(pc.ascii_trim_whitespace(layouts.as_string(values)))
        codes = layouts.positions(words, ["false", "true"], [0, 1])
        if (missing := np.flatnonzero(codes < 0)).size:
            others = super()._texts(values.take(missing))
            fits = inside(others)
            codes[missing[fits]] = others.codes[fits]
        return self._narrow(codes)


class NumericLevels(Levels):
    """Encodes numbers by declared bins."""

    def __init__(self, attribute: NumericAttribute) -> None:
        super().__init__(attribute)
        self._low, self._high = attribute.ends
        self._clips = attribute.clip
        self._inner = attribute.inner_edges

    def integers(self, values: NDArray[Any]) -> Coded:
        """Encodes integers of any numpy type."""
        return by_table(values, lambda column: self.floats(column.astype(np.float64)))

    def floats(self, values: NDArray[Any]) -> Coded:
        """Encodes floats of any numpy type; NaN has no code."""
        values = values.astype(np.float64, copy=False)
        if len(self._inner) <= _COMPARED_EDGES:
            codes = np.zeros(len(values), self.dtype)
            for edge in self._inner:
                np.add(codes, values >= edge, out=codes)
        else:
            codes = np.searchsorted(self._inner, values, side="right").astype(self.dtype)
        # Values below the first edge or above the last already have the code of the nearest bin.
        fits = (
            np.isfinite(values) if self._clips else (values >= self._low) & (values <= self._high)
        )
        coded = Coded(codes, None if fits.all() else ~fits)
        for null in self.attribute.null_natives:
            coded = self._as_null(coded, values == null)
        return coded

    def _texts(self, values: pa.Array) -> Coded:
        numbers, readable = layouts.parse_numbers(values)
        return also_outside(self.floats(numbers), ~readable)


class PlaceLevels(NumericLevels):
    """Encodes where a number lies in its bin, from 0 at the smallest number to 2^20.

    Numbers beyond the ends of the column are at 0 or 2^20.
    """

    PLACES: ClassVar[int] = 2**20

    def __init__(self, attribute: NumericAttribute) -> None:
        # Without null and other, which have no place.
        super().__init__(NumericAttribute(attribute.name, attribute.edges, clip=True))
        self.dtype = np.dtype(np.uint32)
        self._first, self._last = (ends.astype(np.float64) for ends in attribute.bin_ends)

    def floats(self, values: NDArray[Any]) -> Coded:
        """Encodes floats of any numpy type; NaN has no code."""
        bins, outside = super().floats(values)
        first, last = self._first[bins], self._last[bins]
        with np.errstate(all="ignore"):  # a bin may have one number, or an infinite width
            shares = np.nan_to_num((values - first) / (last - first), nan=0.5)
        places = np.rint(self.PLACES * np.clip(shares, 0.0, 1.0))
        return Coded(places.astype(self.dtype), outside)


def _signs(texts: list[bytes]) -> NDArray[np.int64]:
    """Returns 1 for strings of positive integers, -1 for negative integers, 0 for other strings."""
    numbers = [integer_of(text) for text in texts]
    signs = [
        0 if number is None or math.isinf(number) else (number > 0) - (number < 0)
        for number in numbers
    ]
    return np.array(signs, np.int64)


def by_table(values: NDArray[Any], encode: Callable[[NDArray[Any]], Coded]) -> Coded:
    """Encodes integers; uses a table of all codes if their range is shorter than the column."""
    if not values.size:
        return encode(values)
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest >= min(_TABLE_SPAN, values.size):
        return encode(values)
    # Built from Python integers, so that the limits of every dtype stay exact.
    table = encode(np.array(range(lowest, highest + 1), values.dtype))
    # A difference of signed integers may wrap around; as an unsigned number it is correct.
    place = (values - values.dtype.type(lowest)).view(f"u{values.dtype.itemsize}")
    codes = table.codes.take(place)
    return Coded(codes, None if table.outside is None else table.outside.take(place))


class ListedLevels(Levels):
    """Encodes values from a list of strings and integers, which includes the null values.

    A number is read as its usual text: 7 and 7.0 as ``"7"``, 3.5 as ``"3.5"``. The string ``"7.0"``
    equals ``"7"``, unless both are declared. A declared integer has any spelling, such as ``"07"``.
    """

    def __init__(self, attribute: ListedAttribute) -> None:
        super().__init__(attribute)
        self._null_texts = None  # null values are in the list
        values, codes = zip(*attribute.listed(), strict=True)
        texts = [attribute.normal(str(value)) for value in values]
        self._finder = layouts.TextFinder(attribute, texts)
        self._codes = np.array([*codes, -1], np.int64)  # the last code is for unlisted strings
        usual: dict[int, int] = {}
        declared: dict[int, int] = {}
        self._plain: dict[bytes, int] = {}
        entries = list(zip(values, texts, codes, strict=True))
        # Texts that are written as floats come last: "7" decides about 7 before "7.0" does.
        for value, text, code in sorted(entries, key=lambda entry: entry[1].endswith(".0")):
            whole = integer_key(text.encode())
            if whole is not None:
                usual.setdefault(whole, code)
                self._plain.setdefault(b"%d" % whole, code)
                if isinstance(value, int):
                    declared.setdefault(whole, code)
        self._usual, self._declared = _Integers(usual), _Integers(declared)
        self._lists_floats = any(map(_is_float, texts))
        words = (b"false", b"true")
        self._boolean_codes = np.array([self._code_of_boolean(word) for word in words], np.int64)
        if isinstance(attribute, BooleanAttribute):
            self._boolean_codes = np.arange(2)

    def integers(self, values: NDArray[Any]) -> Coded:
        """Encodes integers of any numpy type."""
        if self._usual.is_empty:
            return self.nothing(values.size)
        return by_table(values, lambda column: self._narrow(self._usual.find(column)))

    def floats(self, values: NDArray[Any]) -> Coded:
        """Encodes floats of any numpy type; NaN has no code."""
        coded = self._whole_floats(values)
        if not self._lists_floats or coded.outside is None:
            return coded
        rest = np.flatnonzero(coded.outside & ~np.isnan(values))
        distinct, places = np.unique(values[rest], return_inverse=True)
        texts = self._texts(pa.array(layouts.float_texts(distinct), pa.binary()))
        codes, outside = coded.codes.copy(), coded.outside.copy()
        codes[rest], outside[rest] = texts.codes[places], ~inside(texts)[places]
        return Coded(codes, outside)

    def booleans(self, values: layouts.Mask) -> Coded:
        """Encodes booleans."""
        return self._narrow(self._boolean_codes[values.view(np.uint8)])

    def _texts(self, values: pa.Array) -> Coded:
        codes = self._codes.take(self._finder.find(values))
        if self._plain and (missing := np.flatnonzero(codes < 0)).size:
            codes[missing] = layouts.by_distinct(values.take(missing), self._plain_codes)
        if not self._declared.is_empty and (missing := np.flatnonzero(codes < 0)).size:
            # Other ways to write a declared integer, such as "01" or " 1 ".
            integers, readable = layouts.parse_integers(values.take(missing))
            codes[missing] = np.where(readable, self._declared.find(integers), -1)
        return self._narrow(codes)

    def _plain_codes(self, texts: list[bytes]) -> NDArray[np.int64]:
        """Returns the codes of texts such as ``7.0`` by their integers; -1 for other texts."""
        normal = (layouts.normal_bytes(self.attribute, text) for text in texts)
        plain = [None if text is None else plain_integer(text.encode()) for text in normal]
        return np.array([self._plain.get(text or b"", -1) for text in plain], np.int64)

    def _code_of_boolean(self, word: bytes) -> int:
        code = int(self._codes[self._finder.find(pa.array([word]))[0]])
        return code if code >= 0 else int(self._usual.find(np.array([word == b"true"], "u1"))[0])


def _is_float(text: str) -> bool:
    """Returns whether a text may be a number that is not an integer of 64 bits."""
    whole = integer_key(text.encode())
    try:
        return whole >= 2**63 if whole is not None else not math.isnan(float(text))
    except ValueError:
        return False


class _Integers:
    """Finds the codes of integers in a sorted list."""

    def __init__(self, code_of: dict[int, int]) -> None:
        self._tables = {}
        for dtype in (np.int64, np.uint64):
            limits = np.iinfo(dtype)
            listed = sorted(value for value in code_of if limits.min <= value <= limits.max)
            codes = [code_of[value] for value in listed]
            self._tables[np.dtype(dtype)] = np.array(listed, dtype), np.array(codes, np.int64)
        self.is_empty = not code_of

    def find(self, values: NDArray[Any]) -> NDArray[np.int64]:
        """Returns the code of each integer, of any numpy type; -1 for unlisted integers."""
        # Only uint64 has integers beyond int64, and only its own table has no negative ones.
        dtype = np.dtype(np.uint64 if values.dtype == np.uint64 else np.int64)
        listed, codes = self._tables[dtype]
        if not listed.size:
            return np.full(len(values), -1)
        values = values.astype(dtype, copy=False)
        place = np.minimum(np.searchsorted(listed, values), len(listed) - 1)
        return np.where(listed[place] == values, codes[place], -1)


_INT64 = np.iinfo(np.int64)


class TimeLevels(Levels):
    """Encodes dates and times by declared bins; numbers are not read as times."""

    def __init__(self, attribute: TimeAttribute) -> None:
        super().__init__(attribute)
        self._resolution, self._has_zone = attribute.resolution, attribute.has_zone
        self._edges = [attribute.units(edge) * self._resolution for edge in attribute.edges]
        self._nulls = [null * self._resolution for null in attribute.null_natives]
        self._clips = attribute.clip

    def times(self, values: NDArray[Any], unit: int, has_zone: bool) -> Coded:
        """Encodes times that have a zone if the edges have one; other times are outside."""
        if has_zone != self._has_zone:
            return self.nothing(len(values))
        if unit < self._resolution:  # a date attribute reads a time as its day
            values, unit = values // (self._resolution // unit), self._resolution
        # Edges are rounded up to the column's unit: values reach the edge if they reach that unit.
        low, *inner = (-(-edge // unit) for edge in self._edges[:-1])
        high = self._edges[-1] // unit
        below = 0
        if values.dtype != object:
            # An edge outside int64 is below or above all values of the column.
            below = sum(edge < _INT64.min for edge in inner)
            inner = [edge for edge in inner if _INT64.min <= edge <= _INT64.max]
        places = np.searchsorted(np.array(inner, values.dtype), values, side="right") + below
        # numpy compares exactly with Python integers of any size.
        outside = (values < low) | (values > high)
        is_kept = self._clips or not outside.any()
        coded = Coded(places.astype(self.dtype), None if is_kept else outside)
        for null in self._nulls:
            if null % unit == 0:
                coded = self._as_null(coded, values == null // unit)
        return coded

    def _texts(self, values: pa.Array) -> Coded:
        return self._narrow(layouts.by_distinct(values, self._code_texts))

    def _code_texts(self, texts: list[bytes]) -> NDArray[np.int64]:
        read = [time_of(text) for text in texts]
        mine = np.array([time is not None and time[1] == self._has_zone for time in read], np.bool_)
        # No numpy integer type fits the nanoseconds of all years.
        times = np.array([time[0] for time in read if time and time[1] == self._has_zone], object)
        coded = self.times(times, 1, self._has_zone)
        codes = np.full(len(texts), -1)
        codes[mine] = np.where(inside(coded), coded.codes.astype(np.int64), -1)
        return codes


class ReadingLevels(Levels):
    """Encodes each value as its narrowest reading, which depends on this value alone.

    NaN is missing. Booleans, infinite numbers and what nothing else reads are text.
    """

    def nothing(self, length: int) -> Coded:
        """See ``Levels``; here these values are text."""
        return self._narrow(np.full(length, readings.TEXT))

    def booleans(self, values: layouts.Mask) -> Coded:
        """Encodes booleans, which are text, as in CSV."""
        return self.nothing(len(values))

    def integers(self, values: NDArray[Any]) -> Coded:
        """Encodes integers of any numpy type."""
        return self._narrow(np.full(len(values), readings.WHOLE))

    def floats(self, values: NDArray[Any]) -> Coded:
        """Encodes floats of any numpy type; NaN has no code."""
        kinds = [np.isnan(values), np.isinf(values), values == np.trunc(values)]
        codes = np.select(kinds, [-1, readings.TEXT, readings.WHOLE], readings.NUMBER)
        return self._narrow(codes)

    def times(self, values: NDArray[Any], unit: int, has_zone: bool) -> Coded:
        """Encodes times; without a zone, midnight is a date."""
        codes = np.where(values % (DAY // unit) == 0, readings.DATE, readings.TIME)
        return self._narrow(np.full_like(codes, readings.MOMENT) if has_zone else codes)

    def _texts(self, values: pa.Array) -> Coded:
        numbers, is_number = layouts.parse_numbers(values)
        codes = self.floats(numbers).codes.copy()
        rest = np.flatnonzero(~is_number | np.isnan(numbers))
        codes[rest] = layouts.by_distinct(values.take(rest), self._code_texts)
        return Coded(codes, None)

    def _code_texts(self, texts: list[bytes]) -> NDArray[np.int64]:
        """Returns the codes of texts that are no numbers."""
        text, moment, time, date = readings.TEXT, readings.MOMENT, readings.TIME, readings.DATE
        codes = [
            text if read is None else moment if read[1] else time if read[0] % DAY else date
            for read in map(time_of, texts)
        ]
        return np.array(codes, np.int64)


def levels_of(attribute: Attribute) -> Levels:
    """Returns the encoder for the values of an attribute."""
    if isinstance(attribute, readings.ReadingsAttribute):
        return ReadingLevels(attribute)
    if isinstance(attribute, IntegerAttribute):
        low, high = attribute.minimum, attribute.maximum
        return IntegerLevels(attribute, low, high, clips=attribute.clip)
    if isinstance(attribute, NumericAttribute):
        return NumericLevels(attribute)
    if isinstance(attribute, TimeAttribute):
        return TimeLevels(attribute)
    if isinstance(attribute, BooleanAttribute) and not attribute.is_listed:
        return BooleanLevels(attribute)
    if isinstance(attribute, ListedAttribute):
        return ListedLevels(attribute)
    raise TypeError(f"{type(attribute).__name__} has no encoder")

"""Encoders of integers, bins of numbers, and plain booleans."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.domain.texts import integer_of
from beam_dp.encoding.coded import Coded, Levels, also_outside, inside
from beam_dp.encoding.texts import (
    Mask,
    as_string,
    by_distinct,
    parse_integers,
    parse_numbers,
    positions,
)

if TYPE_CHECKING:
    import pyarrow as pa

_TABLE_SPAN = 2**16  # integers this close together are looked up instead of searched
_COMPARED_EDGES = 128  # below, comparing with every edge is faster than a binary search


class IntegerLevels(Levels):
    """Codes a range of integers by subtraction."""

    def __init__(
        self, attribute: Attribute, minimum: int, maximum: int, *, clips: bool = False
    ) -> None:
        super().__init__(attribute)
        self._minimum, self._maximum = minimum, maximum
        self._clips = clips
        # Integers of a fixed width form a ring: subtracting after narrowing gives the same codes
        # as before, for every value in the range.
        self._shift = self.dtype.type(minimum % 2 ** (8 * self.dtype.itemsize))

    def integers(self, values: NDArray[Any]) -> Coded:
        """Codes integers of any numpy type."""
        coded = self._by_range(values)
        # numpy compares with any integer of Python exactly.
        if self._clips:
            coded = self._to_ends(coded, values < self._minimum, values > self._maximum)
        for null in self.attribute.null_natives:
            coded = self._as_null(coded, values == null)
        return coded

    def floats(self, values: NDArray[np.float64]) -> Coded:
        """Codes floats; NaN has no code."""
        coded = self._whole_floats(values)
        if not self._clips:
            return coded
        # A float of this size is whole, unless it is infinite.
        finite = np.isfinite(values)
        return self._to_ends(coded, finite & (values < -(2.0**63)), finite & (values >= 2.0**63))

    def _texts(self, values: pa.Array) -> Coded:
        integers, readable = parse_integers(values)
        coded = also_outside(self.integers(integers), ~readable)
        if not self._clips or coded.outside is None:
            return coded
        # Only integers of more than 64 bits are left.
        unread = np.flatnonzero(coded.outside)
        ends = np.zeros(len(values), np.int64)
        ends[unread] = by_distinct(values.take(unread), _signs)
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
        # The ends are clipped to what the column holds, hence to its type.
        low, high = max(self._minimum, lowest), min(self._maximum, highest)
        return Coded(codes, (values < low) | (values > high))

    def _to_ends(self, coded: Coded, below: Mask, above: Mask) -> Coded:
        coded = self._give(coded, below, 0)
        return self._give(coded, above, self.attribute.num_levels - 1)


class BooleanLevels(IntegerLevels):
    """Codes false and true, also as 0 and 1, and as text in any capitals."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__(attribute, 0, 1)

    def _texts(self, values: pa.Array) -> Coded:
        import pyarrow.compute as pc

        words = pc.ascii_lower(pc.ascii_trim_whitespace(as_string(values)))
        codes = positions(words, ["false", "true"], [0, 1])
        if (missing := np.flatnonzero(codes < 0)).size:
            found = super()._texts(values.take(missing))
            fits = inside(found)
            codes[missing[fits]] = found.codes[fits]
        return self._narrow(codes)


class NumericLevels(Levels):
    """Codes numbers by declared bins."""

    def __init__(self, attribute: NumericAttribute) -> None:
        super().__init__(attribute)
        self._low, self._high = attribute.ends
        self._clips = attribute.clip
        self._inner = np.array(attribute.edges[1:-1], np.float64)

    def integers(self, values: NDArray[Any]) -> Coded:
        """Codes integers of any numpy type."""
        return by_table(values, lambda column: self.floats(column.astype(np.float64)))

    def floats(self, values: NDArray[np.float64]) -> Coded:
        """Codes floats; NaN has no code."""
        if len(self._inner) <= _COMPARED_EDGES:
            codes = np.zeros(len(values), self.dtype)
            for edge in self._inner:
                np.add(codes, values >= edge, out=codes)
        else:
            codes = np.searchsorted(self._inner, values, side="right").astype(self.dtype)
        # What lies beyond an end has the code of the end already.
        fits = (
            np.isfinite(values) if self._clips else (values >= self._low) & (values <= self._high)
        )
        coded = Coded(codes, None if fits.all() else ~fits)
        for null in self.attribute.null_natives:
            coded = self._as_null(coded, values == null)
        return coded

    def _texts(self, values: pa.Array) -> Coded:
        numbers, readable = parse_numbers(values)
        return also_outside(self.floats(numbers), ~readable)


def _signs(texts: list[bytes]) -> NDArray[np.int64]:
    """1 for an integer that is positive, -1 for a negative one; 0 for anything else."""
    found = [integer_of(text) for text in texts]
    signs = [0 if each is None or math.isinf(each) else (each > 0) - (each < 0) for each in found]
    return np.array(signs, np.int64)


def by_table(values: NDArray[Any], encode: Callable[[NDArray[Any]], Coded]) -> Coded:
    """Codes integers through a table of all from lowest to highest, if shorter than the column."""
    if not values.size:
        return encode(values)
    lowest, highest = int(values.min()), int(values.max())
    if highest - lowest >= min(_TABLE_SPAN, values.size):
        return encode(values)
    # Built from Python's integers, which keep the ends of every type exact.
    table = encode(np.array(range(lowest, highest + 1), values.dtype))
    # A difference of signed integers may wrap; read as unsigned it is right.
    place = (values - values.dtype.type(lowest)).view(f"u{values.dtype.itemsize}")
    codes = table.codes.take(place)
    return Coded(codes, None if table.outside is None else table.outside.take(place))

"""Values to codes, one small class per kind of attribute.

Every method takes a whole column and returns ``Coded``; none raises on data.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain import (
    Attribute,
    BooleanAttribute,
    CategoricalAttribute,
    IntegerAttribute,
    NumericAttribute,
)

if TYPE_CHECKING:
    import pyarrow as pa

Mask = NDArray[np.bool_]

_INT64 = np.iinfo(np.int64)
_TABLE_SPAN = 2**16  # integers this close together are looked up instead of searched
_COMPARED_EDGES = 128  # below, comparing with every edge is faster than a binary search

# No part of these expressions can match the same text in two ways: junk costs linear time.
_INTEGER = re.compile(rb"\s*([+-]?[0-9]+)(?:\.0*)?\s*")
_NUMBER = re.compile(rb"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?\s*")
_PLAIN_INTEGER = "^-?[0-9]{1,18}$"
_PLAIN_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class Coded(NamedTuple):
    """Codes of a column, and which of its values have none.

    codes: shape (n,), the smallest unsigned type that holds the attribute's codes; arbitrary
        where outside. May be a read-only view of the column.
    outside: shape (n,), or None when every value has a code.
    """

    codes: NDArray[Any]
    outside: Mask | None


def levels_of(attribute: Attribute) -> Levels:
    """Returns what codes the values of an attribute."""
    if isinstance(attribute, IntegerAttribute):
        return _IntegerLevels(attribute, attribute.minimum, attribute.maximum)
    if isinstance(attribute, NumericAttribute):
        return _NumericLevels(attribute)
    if isinstance(attribute, CategoricalAttribute):
        return _CategoricalLevels(attribute)
    if isinstance(attribute, BooleanAttribute):
        return _BooleanLevels(attribute)
    raise TypeError(f"{type(attribute).__name__} has no encoder")


class Levels(ABC):
    """Codes the regular levels of one attribute; ``other`` and null are the caller's."""

    def __init__(self, attribute: Attribute) -> None:
        self.attribute = attribute
        self.dtype = np.min_scalar_type(max(attribute.size - 1, 1))

    @abstractmethod
    def integers(self, values: NDArray[Any]) -> Coded:
        """Codes integers of any numpy type."""

    @abstractmethod
    def floats(self, values: NDArray[np.float64]) -> Coded:
        """Codes floats; NaN has no code."""

    @abstractmethod
    def texts(self, values: pa.Array) -> Coded:
        """Codes UTF-8 strings, given as an array of (large) binary; null has no code."""

    def booleans(self, values: Mask) -> Coded:
        """Codes booleans, as 0 and 1."""
        return self.integers(values.view(np.uint8))

    def nothing(self, length: int) -> Coded:
        """What values of a type that has no meaning here are coded as."""
        return Coded(np.zeros(length, self.dtype), np.ones(length, np.bool_))

    def _narrow(self, codes: NDArray[Any]) -> Coded:
        """From signed codes, -1 where there is none."""
        outside = codes < 0
        return Coded(codes.astype(self.dtype), outside if outside.any() else None)

    def _whole_floats(self, values: NDArray[np.float64]) -> Coded:
        """Codes floats that are integers, as those."""
        whole = (values == np.trunc(values)) & (values >= -(2.0**63)) & (values < 2.0**63)
        coded = self.integers(np.where(whole, values, 0).astype(np.int64))
        return _also_outside(coded, ~whole)

    def _integer_texts(self, values: pa.Array) -> Coded:
        """Codes texts that look like integers, as those."""
        integers, readable = parse_integers(values)
        return _also_outside(self.integers(integers), ~readable)


class _IntegerLevels(Levels):
    """Codes a range of integers by subtraction."""

    def __init__(self, attribute: Attribute, minimum: int, maximum: int) -> None:
        super().__init__(attribute)
        self._minimum, self._maximum = minimum, maximum
        # Integers of a fixed width form a ring: subtracting after narrowing gives the same codes
        # as before, for every value in the range.
        self._shift = self.dtype.type(minimum % 2 ** (8 * self.dtype.itemsize))

    def integers(self, values: NDArray[Any]) -> Coded:
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
        # The bounds are clipped to what the column holds, hence to its type.
        low, high = max(self._minimum, lowest), min(self._maximum, highest)
        return Coded(codes, (values < low) | (values > high))

    def floats(self, values: NDArray[np.float64]) -> Coded:
        return self._whole_floats(values)

    def texts(self, values: pa.Array) -> Coded:
        return self._integer_texts(values)


class _BooleanLevels(_IntegerLevels):
    """Codes false and true, also as 0 and 1, and as text in any capitals."""

    def __init__(self, attribute: Attribute) -> None:
        super().__init__(attribute, 0, 1)

    def texts(self, values: pa.Array) -> Coded:
        import pyarrow.compute as pc

        words = pc.ascii_lower(pc.ascii_trim_whitespace(_as_string(values)))
        codes = _positions(words, ["false", "true"], [0, 1])
        if (missing := np.flatnonzero(codes < 0)).size:
            found = self._integer_texts(values.take(missing))
            fits = inside(found)
            codes[missing[fits]] = found.codes[fits]
        return self._narrow(codes)


class _NumericLevels(Levels):
    """Codes numbers by declared bins."""

    def __init__(self, attribute: NumericAttribute) -> None:
        super().__init__(attribute)
        self._low, self._high = attribute.edges[0], attribute.edges[-1]
        self._inner = np.array(attribute.edges[1:-1], np.float64)

    def integers(self, values: NDArray[Any]) -> Coded:
        return _by_table(values, lambda column: self.floats(column.astype(np.float64)))

    def floats(self, values: NDArray[np.float64]) -> Coded:
        if len(self._inner) <= _COMPARED_EDGES:
            codes = np.zeros(len(values), self.dtype)
            for edge in self._inner:
                np.add(codes, values >= edge, out=codes)
        else:
            codes = np.searchsorted(self._inner, values, side="right").astype(self.dtype)
        inside = (values >= self._low) & (values <= self._high)
        return Coded(codes, None if inside.all() else ~inside)

    def texts(self, values: pa.Array) -> Coded:
        numbers, readable = parse_numbers(values)
        return _also_outside(self.floats(numbers), ~readable)


class _CategoricalLevels(Levels):
    """Codes a list of strings and integers.

    A declared string that is the usual writing of an integer stands for the integer too, so that
    ``"1"`` is found in a column of integers, and 1 in a column of texts.
    """

    def __init__(self, attribute: CategoricalAttribute) -> None:
        super().__init__(attribute)
        self._texts = [str(value).encode() for value in attribute.values]
        self._declared_integer = np.array([isinstance(value, int) for value in attribute.values])
        whole = {}
        for code, text in enumerate(self._texts):
            value = _integer_of(text)
            if value is not None and str(value).encode() == text:
                whole[value] = code
        self._integers = np.array(sorted(whole), np.int64)
        self._integer_codes = np.array([whole[value] for value in sorted(whole)], np.int64)
        codes = [self._code_of_boolean(b"false", 0), self._code_of_boolean(b"true", 1)]
        self._boolean_codes = np.array(codes, np.int64)

    def integers(self, values: NDArray[Any]) -> Coded:
        if not len(self._integers):
            return self.nothing(values.size)
        return _by_table(values, self._search)

    def floats(self, values: NDArray[np.float64]) -> Coded:
        return self._whole_floats(values)

    def booleans(self, values: Mask) -> Coded:
        return self._narrow(self._boolean_codes[values.view(np.uint8)])

    def texts(self, values: pa.Array) -> Coded:
        codes = _positions(values, self._texts, np.arange(len(self._texts)))
        if self._declared_integer.any() and (missing := np.flatnonzero(codes < 0)).size:
            # Other ways to write a declared integer, such as "01" or " 1 ".
            found = self._integer_texts(values.take(missing))
            fits = np.flatnonzero(inside(found))
            fits = fits[self._declared_integer[found.codes[fits]]]
            codes[missing[fits]] = found.codes[fits]
        return self._narrow(codes)

    def _code_of_boolean(self, text: bytes, value: int) -> int:
        if text in self._texts:
            return self._texts.index(text)
        found = self._search(np.array([value]))
        return -1 if found.outside is not None else int(found.codes[0])

    def _search(self, values: NDArray[Any]) -> Coded:
        if not len(self._integers):
            return self.nothing(values.size)
        place = np.searchsorted(self._integers, values.astype(np.int64))
        np.minimum(place, len(self._integers) - 1, out=place)
        # Compared in the column's own type: a large uint64 must not wrap to a declared value.
        same = (self._integers[place] == values) & (values <= _INT64.max)
        return self._narrow(np.where(same, self._integer_codes[place], -1))


def parse_integers(values: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    """Reads texts such as ``12``, ``-3``, `` +07 `` and ``5.0``.

    Returns:
        The integers, shape (n,), and where there is one that fits in 64 bits.
    """
    import pyarrow as pa

    # Arrow reads 0x1F as well, which is no integer here.
    plain = not _holds_letter_x(values)
    return _parse(values, pa.int64(), np.int64, _PLAIN_INTEGER, _integer_of, whole_column=plain)


def parse_numbers(values: pa.Array) -> tuple[NDArray[np.float64], Mask]:
    """Reads texts such as ``12``, ``-3.5``, `` .5e3 ``.

    Returns:
        The numbers, shape (n,), NaN or infinite where the text says so, and where there is one.
    """
    import pyarrow as pa

    return _parse(values, pa.float64(), np.float64, _PLAIN_NUMBER, _number_of, whole_column=True)


def _parse(
    values: pa.Array,
    arrow_type: pa.DataType,
    dtype: Any,
    plain_form: str,
    read: Callable[[bytes], Any],
    *,
    whole_column: bool,
) -> tuple[NDArray[Any], Mask]:
    """Reads plainly written texts with Arrow, each distinct one of the rest with ``read``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if whole_column:
        try:
            parsed = pc.cast(values, arrow_type)
        except pa.ArrowInvalid:
            pass
        else:
            readable = values.is_valid().to_numpy(zero_copy_only=False)
            return pc.fill_null(parsed, 0).to_numpy(zero_copy_only=False), readable
    result = np.zeros(len(values), dtype)
    plain = pc.fill_null(pc.match_substring_regex(values, plain_form), False)
    readable = plain.to_numpy(zero_copy_only=False).copy()
    result[readable] = pc.cast(values.filter(plain), arrow_type).to_numpy(zero_copy_only=False)
    rest = np.flatnonzero(~readable & values.is_valid().to_numpy(zero_copy_only=False))
    distinct = values.take(rest).dictionary_encode()
    found = [read(text) for text in distinct.dictionary.to_pylist()]
    known = np.array([value is not None for value in found], np.bool_)
    numbers = np.array([0 if value is None else value for value in found], dtype)
    which = distinct.indices.to_numpy(zero_copy_only=False)
    readable[rest] = known[which]
    result[rest] = numbers[which]
    return result, readable


def _integer_of(text: bytes) -> int | None:
    match = _INTEGER.fullmatch(text)
    if match is None:
        return None
    digits = match[1].lstrip(b"+-").lstrip(b"0")
    if len(digits) > 19:
        return None
    value = int(digits or b"0") * (-1 if match[1].startswith(b"-") else 1)
    return value if _INT64.min <= value <= _INT64.max else None


def _number_of(text: bytes) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _by_table(values: NDArray[Any], encode: Callable[[NDArray[Any]], Coded]) -> Coded:
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


def _positions(values: pa.Array, choices: list[Any], code_of: Any) -> NDArray[np.int64]:
    """The code of each value's place among the choices, -1 where it is not there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    place = pc.fill_null(pc.index_in(values, pa.array(choices, values.type)), len(choices))
    table = np.append(np.asarray(code_of, np.int64), -1)
    codes: NDArray[np.int64] = table.take(place.to_numpy(zero_copy_only=False))
    return codes


def inside(coded: Coded) -> Mask:
    """Returns which values have a code."""
    return np.ones(len(coded.codes), np.bool_) if coded.outside is None else ~coded.outside


def _also_outside(coded: Coded, outside: Mask) -> Coded:
    if not outside.any():
        return coded
    return Coded(coded.codes, outside if coded.outside is None else coded.outside | outside)


def _as_string(values: pa.Array) -> pa.Array:
    """The same bytes under a string type, which Arrow's text functions require."""
    import pyarrow as pa

    return values.view(pa.large_string() if values.type == pa.large_binary() else pa.string())


def _holds_letter_x(values: pa.Array) -> bool:
    import pyarrow as pa

    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return False
    dtype = np.int64 if values.type == pa.large_binary() else np.int32
    ends = np.frombuffer(offsets, dtype)[values.offset : values.offset + len(values) + 1]
    letters = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return bool(((letters | 0x20) == ord("x")).any())

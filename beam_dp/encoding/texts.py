"""Columns of texts: parsing of numbers, and lookup among declared words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.texts import int64_of, number_of
from beam_dp.encoding.layouts import gather, not_null

if TYPE_CHECKING:
    import pyarrow as pa

Mask = NDArray[np.bool_]

_PLAIN_INTEGER = "^-?[0-9]{1,18}$"
_PLAIN_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class TextFinder:
    """Finds texts among the declared ones of an attribute, as it compares them."""

    def __init__(self, attribute: Attribute, texts: Sequence[str]) -> None:
        self._attribute = attribute
        self._is_exact = attribute.case == "exact" and not attribute.trim
        normal = [attribute.normal(text) for text in texts]
        self._encoded = [text.encode() for text in normal]
        self._place = {text: place for place, text in reversed(list(enumerate(normal)))}

    def find(self, values: pa.Array) -> NDArray[np.int64]:
        """Returns the place of each text among the declared ones, -1 where it is not there.

        Args:
            values: (large) binary; what is no UTF-8 is not there, and for null it is arbitrary.

        Cost: about 10 ns a value; where case or blanks are ignored, half a microsecond for each
        distinct one.
        """
        if self._is_exact:
            return positions(values, self._encoded, np.arange(len(self._encoded)))
        return by_distinct(values, self._places)

    def _places(self, texts: list[bytes]) -> NDArray[np.int64]:
        return np.array([self._find_one(text) for text in texts], np.int64)

    def _find_one(self, text: bytes) -> int:
        try:
            return self._place.get(self._attribute.normal(text.decode()), -1)
        except UnicodeDecodeError:
            return -1


def by_distinct(
    values: pa.Array, code: Callable[[list[bytes]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Returns what a function makes of each distinct text, one for each value; 0 for null."""
    distinct = values.dictionary_encode()
    return gather(code(distinct.dictionary.to_pylist()), distinct.indices)


def parse_integers(values: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    """Reads texts such as ``12``, ``-3``, `` +07 `` and ``5.0``.

    Returns:
        The integers, shape (n,), and where there is one that fits in 64 bits.
    """
    import pyarrow as pa

    # Arrow reads 0x1F as well, which is no integer here.
    plain = not _holds_letter_x(values)
    return _parse(values, pa.int64(), np.int64, _PLAIN_INTEGER, int64_of, whole_column=plain)


def parse_numbers(values: pa.Array) -> tuple[NDArray[np.float64], Mask]:
    """Reads texts such as ``12``, ``-3.5``, `` .5e3 ``.

    Returns:
        The numbers, shape (n,), NaN or infinite where the text says so, and where there is one.
    """
    import pyarrow as pa

    return _parse(values, pa.float64(), np.float64, _PLAIN_NUMBER, number_of, whole_column=True)


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
            return pc.fill_null(parsed, 0).to_numpy(zero_copy_only=False), not_null(values)
    result = np.zeros(len(values), dtype)
    plain = pc.fill_null(pc.match_substring_regex(values, plain_form), False)
    readable = plain.to_numpy(zero_copy_only=False).copy()
    result[readable] = pc.cast(values.filter(plain), arrow_type).to_numpy(zero_copy_only=False)
    rest = np.flatnonzero(~readable & not_null(values))
    distinct = values.take(rest).dictionary_encode()
    found = [read(text) for text in distinct.dictionary.to_pylist()]
    known = np.array([value is not None for value in found], np.bool_)
    numbers = np.array([0 if value is None else value for value in found], dtype)
    which = distinct.indices.to_numpy(zero_copy_only=False)
    readable[rest] = known[which]
    result[rest] = numbers[which]
    return result, readable


def positions(values: pa.Array, choices: list[Any], code_of: Any) -> NDArray[np.int64]:
    """Returns the code of each value's place among the choices, -1 where it is not there."""
    import pyarrow as pa
    import pyarrow.compute as pc

    place = pc.fill_null(pc.index_in(values, pa.array(choices, values.type)), len(choices))
    table = np.append(np.asarray(code_of, np.int64), -1)
    codes: NDArray[np.int64] = table.take(place.to_numpy(zero_copy_only=False))
    return codes


def as_string(values: pa.Array) -> pa.Array:
    """Returns the same bytes under a string type, which Arrow's text functions require."""
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

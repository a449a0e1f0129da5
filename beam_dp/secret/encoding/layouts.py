"""Reads Arrow arrays of any layout as plain arrays, and parses their text; never raises on data."""

from __future__ import annotations

import dataclasses
import decimal
import enum
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.attributes import (
    Attribute,
    BooleanAttribute,
    CategoricalAttribute,
    nearest_known,
)
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.texts import int64_of, number_of, time_of
from beam_dp.privacy.guarantee import RECORD
from beam_dp.secret.encoding.canonical import NANOSECONDS, canonical_bytes


def is_indirect(kind: pa.DataType) -> bool:
    """Returns whether arrays of this type are dictionary-encoded or run-end encoded."""
    return bool(pa.types.is_dictionary(kind) or pa.types.is_run_end_encoded(kind))


def may_be_address(kind: pa.DataType) -> bool:
    """Returns whether values of this type may be addresses of objects (8 bytes, from polars)."""
    # Addresses can't serve as ids: a person has a different address in every record. An 8-byte id
    # stored as ``binary`` is accepted.
    if isinstance(kind, pa.BaseExtensionType):
        return may_be_address(kind.storage_type)
    if is_indirect(kind):
        return may_be_address(kind.value_type)
    if pa.types.is_nested(kind):
        return any(may_be_address(kind.field(place).type) for place in range(kind.num_fields))
    return bool(pa.types.is_fixed_size_binary(kind) and kind.byte_width == 8)


def values_and_places(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Returns the distinct values of a dictionary or runs, and each entry's position in them."""
    # Arrow's own decoding does not support many types of values.
    if pa.types.is_run_end_encoded(array.type):
        stop = array.offset + len(array)
        ends = np.clip(array.run_ends.to_numpy(), array.offset, stop)
        lengths = np.diff(ends, prepend=array.offset)
        return array.values, pa.array(np.repeat(np.arange(len(lengths)), lengths))
    values, places = array.dictionary, array.indices
    if len(values) > len(array):  # many batches share the values
        try:
            return values.take(places), pa.array(np.arange(len(array)))
        except pa.ArrowNotImplementedError:
            pass
    return values, places


def as_bytes(array: pa.Array) -> pa.Array | None:
    """Returns strings or bytes as (large) binary, without validation; None for other types."""
    types, kind = pa.types, array.type
    if types.is_string(kind) or types.is_binary(kind):
        return array.view(pa.binary())
    if types.is_large_string(kind) or types.is_large_binary(kind):
        return array.view(pa.large_binary())
    if types.is_string_view(kind) or types.is_binary_view(kind):
        return array.cast(pa.large_binary())
    if types.is_fixed_size_binary(kind) and not types.is_decimal(kind):
        return array.cast(pa.binary())
    return None


def not_null(array: pa.Array) -> NDArray[np.bool_]:
    """Returns the mask of entries that are not null, shape (n,)."""
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    mask: NDArray[np.bool_] = array.is_valid().to_numpy(zero_copy_only=False)
    return mask


def gather(values: NDArray[Any], places: pa.Array) -> NDArray[Any]:
    """Returns the values at the given positions along the last axis; zero for null positions."""
    if not places.null_count:
        return values[..., places.to_numpy(zero_copy_only=False)]
    zero = np.zeros((*values.shape[:-1], 1), values.dtype)
    at = places.fill_null(values.shape[-1]).to_numpy(zero_copy_only=False)
    return np.concatenate((values, zero), axis=-1)[..., at]


def union_parts(union: pa.UnionArray) -> Iterator[tuple[NDArray[np.intp], pa.Array, NDArray[Any]]]:
    """Yields, per child, the child's rows in the union, a slice of the child, and places in it."""
    if not len(union):
        return
    # The ``type_codes`` and ``offsets`` of a slice are wrong: they ignore the slice's offset.
    _, codes, offsets, *_ = union.buffers()
    mine = slice(union.offset, union.offset + len(union))
    types = np.frombuffer(codes, np.int8)[mine]
    dense = union.type.mode == "dense"
    places = np.frombuffer(offsets, np.int32)[mine] if dense else np.arange(len(union))
    for number, code in enumerate(union.type.type_codes):
        rows = np.flatnonzero(types == code)
        if rows.size:
            first, last = places[rows].min(), places[rows].max()
            child = union.field(number).slice(first, last - first + 1)
            yield rows, child, places[rows] - first


def by_values(
    array: pa.Array, read: Callable[[pa.Array], tuple[NDArray[Any], ...]]
) -> tuple[NDArray[Any], ...]:
    """Applies a function of plain arrays to an array of any layout.

    An extension array is read as its storage; null in a dictionary or in runs becomes zero.
    ``read`` returns arrays with one entry per value along the last axis.
    """
    if isinstance(array, pa.ExtensionArray):
        return by_values(array.storage, read)
    if is_indirect(array.type):
        values, places = values_and_places(array)
        return tuple(gather(column, places) for column in by_values(values, read))
    if not pa.types.is_union(array.type):
        return read(array)
    size = len(array)
    empty = tuple(np.zeros((*part.shape[:-1], size), part.dtype) for part in read(pa.nulls(0)))
    for rows, child, places in union_parts(array):
        for whole, part in zip(empty, by_values(child, read), strict=True):
            whole[..., rows] = part[..., places]
    return empty


Mask = NDArray[np.bool_]

_PLAIN_INTEGER = "^-?[0-9]{1,18}$"
_PLAIN_NUMBER = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


class TextFinder:
    """Finds strings among an attribute's declared strings, under its ``case`` and ``trim``."""

    def __init__(self, attribute: Attribute, texts: Sequence[str]) -> None:
        self._attribute = attribute
        self._is_exact = attribute.case == "exact" and not attribute.trim
        normal = [attribute.normal(text) for text in texts]
        self._encoded = [text.encode() for text in normal]
        self._place = {text: place for place, text in reversed(list(enumerate(normal)))}

    def find(self, values: pa.Array) -> NDArray[np.int64]:
        """Returns the place of each declared string, -1 for other strings; arbitrary for null."""
        if self._is_exact:
            return positions(values, self._encoded, np.arange(len(self._encoded)))
        return by_distinct(values, self._places)

    def _places(self, texts: list[bytes]) -> NDArray[np.int64]:
        return np.array([self._find_one(text) for text in texts], np.int64)

    def _find_one(self, text: bytes) -> int:
        normal = normal_bytes(self._attribute, text)
        return -1 if normal is None else self._place.get(normal, -1)


def normal_bytes(attribute: Attribute, text: bytes) -> str | None:
    """Returns the form in which an attribute compares a text; None if the text is not UTF-8."""
    try:
        return attribute.normal(text.decode())
    except UnicodeDecodeError:
        return None


def float_texts(values: NDArray[Any]) -> list[bytes | None]:
    """Returns the usual text of each float: digits, or the shortest decimal; None for NaN."""
    wholes = np.trunc(values) == values
    pairs = zip(values, wholes.tolist(), strict=True)
    return [canonical_bytes(float(value if whole else str(value))) for value, whole in pairs]


def by_distinct(
    values: pa.Array, code: Callable[[list[bytes]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Applies a function to the distinct strings; returns the result per value, 0 for null."""
    distinct = values.dictionary_encode()
    return gather(code(distinct.dictionary.to_pylist()), distinct.indices)


def parse_integers(values: pa.Array) -> tuple[NDArray[np.int64], Mask]:
    """Returns the integers in strings such as `` +07 `` or ``5.0``, and a mask of such strings."""
    # Arrow also reads 0x1F, which is not an integer here.
    plain = not _holds_letter_x(values)
    return _parse(values, pa.int64(), np.int64, _PLAIN_INTEGER, int64_of, whole_column=plain)


def parse_numbers(values: pa.Array) -> tuple[NDArray[np.float64], Mask]:
    """Returns the numbers (NaN and infinity, too) in strings, and a mask of these strings."""
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
    """Parses plain numbers with Arrow, and calls ``read`` once for each other distinct string."""
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
    results = [read(text) for text in distinct.dictionary.to_pylist()]
    valid = np.array([value is not None for value in results], np.bool_)
    numbers = np.array([0 if value is None else value for value in results], dtype)
    which = distinct.indices.to_numpy(zero_copy_only=False)
    readable[rest] = valid[which]
    result[rest] = numbers[which]
    return result, readable


def positions(values: pa.Array, choices: list[Any], code_of: Any) -> NDArray[np.int64]:
    """Returns the code of each value, -1 if the value is not among the choices."""
    import pyarrow.compute as pc

    place = pc.fill_null(pc.index_in(values, pa.array(choices, values.type)), len(choices))
    table = np.append(np.asarray(code_of, np.int64), -1)
    codes: NDArray[np.int64] = table.take(place.to_numpy(zero_copy_only=False))
    return codes


def as_string(values: pa.Array) -> pa.Array:
    """Returns bytes as a string type, which Arrow's text functions require, without copying."""
    return values.view(pa.large_string() if values.type == pa.large_binary() else pa.string())


def _holds_letter_x(values: pa.Array) -> bool:
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return False
    dtype = np.int64 if values.type == pa.large_binary() else np.int32
    ends = np.frombuffer(offsets, dtype)[values.offset : values.offset + len(values) + 1]
    letters = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    return bool(((letters | 0x20) == ord("x")).any())


NO_TIME = -(2**63)
_A_SECOND, _A_DAY = 10**9, 86_400
_SECONDS = re.compile(rb"\s*[+-]?[0-9]{1,20}(\.[0-9]{0,20})?\s*")
_LARGEST = 2**62  # larger numbers are not read as times


def seconds_of(column: pa.Array) -> NDArray[np.int64]:
    """Returns the whole seconds since 1970 of each value, rounded down; ``NO_TIME`` if not a time.

    Times are dates, timestamps, ISO 8601 strings and numbers of seconds. Strings that spell numbers
    are read as numbers, because CSV has only strings. A time without a zone is read as UTC. Other
    values, such as booleans and durations, are not times.
    """
    seconds, has_time = by_values(column, _read_times)
    return seconds if has_time.all() else np.where(has_time, seconds, NO_TIME)


def _read_times(values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Returns the seconds of values in a plain array, and the mask of values that are times."""
    kind, has_time = values.type, not_null(values)
    if pa.types.is_timestamp(kind):
        return _filled(values.view(pa.int64())) // (_A_SECOND // NANOSECONDS[kind.unit]), has_time
    if pa.types.is_date32(kind):
        return _filled(values.view(pa.int32())) * _A_DAY, has_time
    if pa.types.is_date64(kind):
        return _filled(values.view(pa.int64())) // 1000, has_time
    if pa.types.is_integer(kind):
        integers = _filled(values)
        if integers.max(initial=0) >= _LARGEST:
            has_time &= integers < _LARGEST
        return integers.astype(np.int64, copy=False), has_time
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        floats = np.floor(_filled(values.cast(pa.float64())))
        is_near = np.abs(floats) < _LARGEST
        return np.where(is_near, floats, 0).astype(np.int64), has_time & is_near
    if (texts := as_bytes(values)) is not None:
        seconds = by_distinct(texts, _seconds_of_texts)
        return seconds, has_time & (seconds != NO_TIME)
    return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)


def _filled(values: pa.Array) -> NDArray[Any]:
    """Returns numbers, 0 for null. Widens int32 dates so that products don't overflow."""
    filled: NDArray[Any] = (values.fill_null(0) if values.null_count else values).to_numpy(
        zero_copy_only=False
    )
    return filled.astype(np.int64) if filled.dtype == np.int32 else filled


def _seconds_of_texts(texts: list[bytes]) -> NDArray[np.int64]:
    return np.array([_seconds_of_text(text) for text in texts], np.int64)


def _seconds_of_text(text: bytes) -> int:
    """Reads a string as a number of seconds if possible, as CSV requires, else as a time."""
    if _SECONDS.fullmatch(text):
        seconds = math.floor(decimal.Decimal(text.decode().strip()))
        return seconds if abs(seconds) < _LARGEST else NO_TIME
    read = time_of(text)
    return NO_TIME if read is None else read[0] // _A_SECOND


# Checks of column types, by one rule for all sources.
#
# A column whose type never has a level would drop every record, and the release would be pure
# noise. Each source (Avro, Parquet, declared types of Python) translates its types to ``Kind``.


# Arguments that name columns in which at least some values must be readable; otherwise every record
# would be dropped, or nothing would be counted.
NEED_LEVELS = ("domain", "key", "weight", "rows")
NEED_TIMES = ("event_time", "arrival")


class Kind(enum.Enum):
    """Kinds of values, distinguished by the attributes and keys that can read them."""

    UNKNOWN = enum.auto()  # values of any type, or only null
    TEXT = enum.auto()  # text or bytes
    NUMBER = enum.auto()  # numbers or booleans
    SYMBOL = enum.auto()  # text that never spells a number
    UUID = enum.auto()  # text that never spells a number or a boolean
    BYTES_OF_UUID = enum.auto()  # a UUID as 16 bytes, not as text
    TIME = enum.auto()  # dates, or times without a zone
    MOMENT = enum.auto()  # times with a zone
    OTHER = enum.auto()  # nested values, times of day, durations, objects of a class


_VALUES = frozenset((Kind.UNKNOWN, Kind.TEXT, Kind.NUMBER))
_TIMES = _VALUES | {Kind.TIME, Kind.MOMENT}
_KEYS = _VALUES | {Kind.SYMBOL, Kind.UUID, Kind.BYTES_OF_UUID}


@dataclasses.dataclass(frozen=True)
class ColumnType:
    """The type of a column; ``stored`` has the kinds that keys and weights read, if they differ."""

    name: str
    kinds: frozenset[Kind]
    stored: frozenset[Kind] | None = None
    may_be_address: bool = False
    is_decodable: bool = True

    @classmethod
    def of_arrow(cls, kind: pa.DataType) -> ColumnType:
        """Returns the column type for an Arrow type."""
        return cls(str(kind), frozenset((arrow_kind(kind),)), may_be_address=may_be_address(kind))

    def is_readable(self, attribute: Attribute | None) -> bool:
        """Returns whether values may have a level of ``attribute`` or, if it is None, be keys."""
        if attribute is None:
            return not _KEYS.isdisjoint(self.kinds if self.stored is None else self.stored)
        return any(has_levels(attribute, kind) for kind in self.kinds)


def nearest_column(
    argument: str, column: str, names: Iterable[str], *, list_all: bool = True
) -> str:
    """Returns a hint for a missing column; the privacy unit may also be the record."""
    units = [RECORD] if argument == "privacy_unit" else []
    return nearest_known(column, [*names, *units], list_all=list_all)


def unfit(kind: ColumnType, argument: str, attribute: Attribute | None) -> str | None:
    """Describes the values that an argument's column must contain; None if the type fits."""
    if not kind.is_decodable:
        return "values that can be read here (else convert them to text or numbers)"
    if argument == "privacy_unit" and kind.may_be_address:
        return (
            "ids that are not 8 bytes of fixed size, which may be addresses in memory"
            " (cast such ids to binary)"
        )
    if argument in NEED_TIMES and _TIMES.isdisjoint(kind.kinds):
        return "times, dates, text or numbers of seconds since 1970"
    if argument in NEED_LEVELS and not kind.is_readable(attribute):
        return readable(attribute)
    return None


def has_levels(attribute: Attribute, kind: Kind) -> bool:
    """Returns whether values of this kind may have a level of the attribute."""
    if attribute.any_type:
        return kind is not Kind.OTHER
    if isinstance(attribute, TimeAttribute):
        return kind in (Kind.UNKNOWN, Kind.TEXT, Kind.MOMENT if attribute.has_zone else Kind.TIME)
    if kind is Kind.UUID:
        return isinstance(attribute, CategoricalAttribute)
    if kind is Kind.SYMBOL:
        return isinstance(attribute, (CategoricalAttribute, BooleanAttribute))
    return kind in _VALUES


def readable(attribute: Attribute | None) -> str:
    """Describes the values that can have a level of the attribute."""
    if not isinstance(attribute, TimeAttribute):
        return "numbers, text or booleans"
    return "text or times with a zone" if attribute.has_zone else "text, dates or times, not in UTC"


def arrow_kind(kind: pa.DataType) -> Kind:
    """Returns the kind of the values of an Arrow type."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        named = kind.extension_name == "arrow.uuid"
        return Kind.BYTES_OF_UUID if named else arrow_kind(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return arrow_kind(kind.value_type)
    if types.is_null(kind):
        return Kind.UNKNOWN
    if types.is_timestamp(kind):
        return Kind.TIME if kind.tz is None else Kind.MOMENT
    if types.is_date(kind):
        return Kind.TIME
    if types.is_nested(kind) or types.is_temporal(kind):
        return Kind.OTHER
    is_number = types.is_decimal(kind) or types.is_integer(kind) or types.is_floating(kind)
    return Kind.NUMBER if is_number or types.is_boolean(kind) else Kind.TEXT

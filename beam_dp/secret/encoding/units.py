"""Privacy units as exact 128-bit fingerprints of values of any type.

A unit is identified by the canonical text of its value. ``7``, ``7.0``, ``"7"``, ``"7.0"`` and
``b"7"`` are one unit; ``"007"`` and ``"7.00"`` are different units. So a unit does not depend on
how a file or batch stores the column. Null and values without a canonical text are not units,
because the records of such a unit could not be recognised and limited.

If two units shared a fingerprint, they would be limited as one unit. The presence of one unit could
then displace records of the other unit, and one unit would change up to twice as many records as
promised. So all values of at most 15 bytes and all 64-bit integers have distinct fingerprints, by
construction. Fingerprints of longer values collide only if 120 bits of BLAKE2b collide.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.texts import plain_integers
from beam_dp.secret.encoding import layouts
from beam_dp.secret.encoding.canonical import NANOSECONDS, canonical_bytes, time_of_object

# The fingerprint of a value of at most this length contains the value.
SHORT_BYTES = 15
_LONG_INTEGER, _DIGEST = 0x80, 0xFF  # tags in the last byte, which for short values is the length
_INTEGER = re.compile(rb"-?[1-9][0-9]*")
_ADDRESS = re.compile(rb"<.* at 0x[0-9A-Fa-f]+>", re.DOTALL)  # Python's default repr of objects
# Children of the union for mixed columns; times are in microseconds or, with _NANO, nanoseconds.
_NULL, _BOOLEAN, _INTEGER64, _FLOAT, _TEXT, _OPAQUE, _DATE, _TIME, _MOMENT, *_NANO = range(11)
# Keyed by exact type: values of other types, even of subclasses, are read as in a mixed column.
_ARROW_KINDS: dict[type, str] = {
    **dict.fromkeys((bool, np.bool_), "bool"),
    **dict.fromkeys((int, np.int8, np.int16, np.int32, np.int64), "int64"),
    **dict.fromkeys((np.uint8, np.uint16, np.uint32, np.uint64), "int64"),
    **dict.fromkeys((float, np.float16, np.float32, np.float64), "float64"),
    **dict.fromkeys((str, np.str_), "string"),
    **dict.fromkeys((bytes, np.bytes_), "binary"),
    datetime.date: "date32",
}
_ZONES = (None, "UTC")
_OPAQUE_FIELD = "beam_dp.opaque"
# Public constants (digits of pi): the hash selects the kept records and need not be secret.
_KEYS = (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0)


def arrow_column(values: Sequence[Any]) -> pa.Array:
    """Returns Python values of any types, possibly mixed, as an Arrow array.

    Each value is converted independently of other values: Arrow only sees values of one declared
    type, and mixed values become a union. Scalars of numpy or Arrow, and buffers, count as values.
    """
    types = {*map(type, values)} - {type(None)}
    if not types:
        return pa.nulls(len(values))
    kinds = {_ARROW_KINDS.get(kind) for kind in types}
    # Arrow converts only exactly representable integers to floats; whole floats count as integers.
    kind = "float64" if types == {int, float} else kinds.pop() if len(kinds) == 1 else None
    if kind is not None:
        try:
            return pa.array(values, pa.type_for_alias(kind))
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            pass  # more than 64 bits, or a string that is not UTF-8
    return _union(values)


def _union(values: Sequence[Any]) -> pa.UnionArray:
    """Returns a union with one child per type; values of other types become canonical texts."""
    kinds = [pa.null(), pa.bool_(), pa.int64(), pa.float64(), pa.binary(), pa.binary()]
    kinds += [pa.date32(), *(pa.timestamp(unit, zone) for unit in ("us", "ns") for zone in _ZONES)]
    children: list[list[Any]] = [[] for _ in kinds]
    types, offsets = [], []
    for value in values:
        which, kept = _keep(value)
        types.append(which)
        offsets.append(len(children[which]))
        children[which].append(kept)
    arrays = [pa.array(child, kind) for child, kind in zip(children, kinds, strict=True)]
    arrays[_OPAQUE] = pa.StructArray.from_arrays([arrays[_OPAQUE]], [_OPAQUE_FIELD])
    return pa.UnionArray.from_dense(
        pa.array(types, pa.int8()), pa.array(offsets, pa.int32()), arrays
    )


def _keep(value: object) -> tuple[int, Any]:
    """Returns the position of a value's child in the union, and the value to store in the child."""
    try:
        return _meaning(value)
    except Exception:  # a user's class that fails, or a scalar that can't be read
        return _OPAQUE, None


def _meaning(value: Any) -> tuple[int, Any]:
    if value is None:
        return _NULL, None
    # Strings are stored as written, as in a column of strings; the reader interprets "7.0".
    if isinstance(value, str):
        return _TEXT, str.encode(value, "utf-8", "surrogatepass")
    if isinstance(value, (bytes, bytearray, memoryview)):
        return _TEXT, bytes(value)
    if isinstance(value, np.generic):
        if isinstance(value, (np.datetime64, np.timedelta64)):
            return (_NULL, None) if np.isnat(value) else _meaning_of_time(value)
        value = value.item()
    if isinstance(value, bool):
        return _BOOLEAN, value
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return _INTEGER64, int(value)
    if isinstance(value, float):
        return _FLOAT, float(value)
    if isinstance(value, decimal.Decimal) and value.is_nan():
        return _FLOAT, math.nan
    if isinstance(value, pa.Scalar):
        read = _read(value)
        return (_OPAQUE, bytes(read)) if isinstance(read, _Time) else _meaning(read)
    text = canonical_bytes(value)
    is_text = isinstance(value, (int, decimal.Decimal)) and text is not None
    return (_TEXT, text) if is_text else _meaning_of_time(value)


def _meaning_of_time(value: Any) -> tuple[int, Any]:
    """Returns dates and times within Arrow's range as times, and all other values as text."""
    time = time_of_object(value)
    if time is not None and time.is_date:
        days = time.nanoseconds // (24 * NANOSECONDS["h"])
        if -(2**31) <= days < 2**31:
            return _DATE, days
    elif time is not None:
        microseconds, rest = divmod(time.nanoseconds, 1000)
        if rest and -(2**63) <= time.nanoseconds < 2**63:
            return _NANO[time.has_zone], time.nanoseconds
        if not rest and -(2**63) <= microseconds < 2**63:
            return (_TIME, _MOMENT)[time.has_zone], microseconds
    return _OPAQUE, canonical_bytes(value)


def unit_fingerprints(
    column: pa.Array | pa.ChunkedArray,
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Returns each record's unit as 128 well-mixed bits, shape (2, n), and the mask of valid units.

    Null, NaN, values without a canonical text (``canonical_bytes``) and addresses of objects
    (``may_be_address``) are not units.
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    parts = [layouts.by_values(chunk, _fingerprints) for chunk in chunks]
    if not parts:
        return np.empty((2, 0), np.uint64), np.empty(0, bool)
    raw = np.concatenate([fingerprints for fingerprints, _ in parts], axis=1)
    return _mix_pair(raw), np.concatenate([valid for _, valid in parts])


def mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Applies the 64-bit finaliser of SplitMix, a bijection whose results look random."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _mix_pair(raw: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Applies three Feistel rounds, a bijection of 128 bits: distinct units stay distinct."""
    high, low = raw
    high = high ^ mix(low ^ np.uint64(_KEYS[0]))
    low = low ^ mix(high ^ np.uint64(_KEYS[1]))
    high = high ^ mix(low ^ np.uint64(_KEYS[2]))
    return np.stack((high, low))


def short_values(fingerprints: NDArray[np.uint64]) -> pa.Array:
    """Returns the values, as large binary, of fingerprints that contain them; null for others."""
    high, low = fingerprints
    high = high ^ mix(low ^ np.uint64(_KEYS[2]))
    low = low ^ mix(high ^ np.uint64(_KEYS[1]))
    high = high ^ mix(low ^ np.uint64(_KEYS[0]))
    packed = np.stack((high, low), axis=1).astype("<u8").view(np.uint8)
    is_short = packed[:, SHORT_BYTES] <= SHORT_BYTES
    lengths = np.where(is_short, packed[:, SHORT_BYTES], 0).astype(np.int64)
    data = packed[:, :SHORT_BYTES][np.arange(SHORT_BYTES) < lengths[:, None]]
    parts = (
        np.packbits(is_short, bitorder="little"),
        np.concatenate(([0], np.cumsum(lengths))),
        data,
    )
    buffers = [pa.py_buffer(np.ascontiguousarray(part)) for part in parts]
    return pa.Array.from_buffers(pa.large_binary(), len(lengths), buffers)


def _fingerprints(chunk: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    kind = chunk.type
    if layouts.may_be_address(kind):
        return np.zeros((2, len(chunk)), np.uint64), np.zeros(len(chunk), np.bool_)
    if pa.types.is_floating(kind):
        chunk = _whole_floats_as_integers(chunk)
        kind = chunk.type
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and not pa.types.is_uint64(kind)):
        numbers = chunk.fill_null(False if pa.types.is_boolean(kind) else 0)
        return _integer_fingerprints(
            numbers.cast(pa.int64()).to_numpy(zero_copy_only=False)
        ), layouts.not_null(chunk)
    texts = layouts.as_bytes(chunk)
    if texts is None:
        return _object_fingerprints(chunk)
    if pa.types.is_binary(texts.type):
        return _bytes_fingerprints(texts)
    encoded = texts.dictionary_encode()
    of_value, has_unit = _fingerprints(pa.array(encoded.dictionary.to_pylist(), pa.binary()))
    return layouts.gather(of_value, encoded.indices), layouts.gather(has_unit, encoded.indices)


def _whole_floats_as_integers(chunk: pa.Array) -> pa.Array:
    """Returns floats as integers if all floats are whole, otherwise as strings; NaN as null."""
    values = chunk.cast(pa.float64()).to_numpy(zero_copy_only=False)  # null as NaN
    missing = np.isnan(values)
    small = np.where(missing, 0, values)
    if (np.abs(small) < 2.0**53).all() and (small == np.floor(small)).all():
        return pa.array(small.astype(np.int64), mask=missing)
    return pa.array([canonical_bytes(value) for value in values.tolist()], pa.binary())


def _integer_fingerprints(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    # Short integers have at most 15 characters, including the minus sign.
    long = (numbers >= 10**15) | (numbers <= -(10**14))
    short = pa.array(np.where(long, 0, numbers)).cast(pa.string()).cast(pa.binary())
    words = _pack_short(short)
    words[0, long] = numbers[long].view(np.uint64)
    words[1, long] = np.uint64(_LONG_INTEGER << 56)
    return words


def _bytes_fingerprints(column: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    import pyarrow.compute as pc

    column, has_unit = plain_integers(column), layouts.not_null(column)
    lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    long = lengths > SHORT_BYTES
    words = _pack_short(column)
    if long.any():
        encoded = column.filter(pa.array(long)).dictionary_encode()
        texts, places = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
        of_value = np.frombuffer(b"".join(map(_long_fingerprint, texts)), "<u8").reshape(-1, 2)
        words[:, long] = of_value[places].T
        has_unit[long] = np.array([_ADDRESS.fullmatch(text) is None for text in texts])[places]
    return words, has_unit


def _pack_short(column: pa.Array) -> NDArray[np.uint64]:
    """Packs bytes, zeros, and the length in the last byte; results of long values are arbitrary."""
    num_rows = len(column)
    _, offset_buffer, data_buffer = column.buffers()
    packed = np.zeros((num_rows, 16), np.uint8)
    if num_rows and data_buffer is not None and data_buffer.size:
        offsets = np.frombuffer(offset_buffer, np.int32)[column.offset :][: num_rows + 1]
        data = np.frombuffer(data_buffer, np.uint8)
        lengths = np.minimum(np.diff(offsets), SHORT_BYTES).astype(np.uint8)
        starts = offsets[:-1].astype(np.int64)
        for position in range(int(lengths.max())):
            inside = np.minimum(starts + position, data.size - 1)
            packed[:, position] = np.where(lengths > position, data[inside], 0)
        packed[:, 15] = lengths
    return np.ascontiguousarray(packed.view("<u8").T)


def _long_fingerprint(value: bytes) -> bytes:
    """Returns 16 bytes for a value of over 15 bytes; integers as by ``_integer_fingerprints``."""
    if len(value) <= 20 and _INTEGER.fullmatch(value) and -(2**63) <= int(value) < 2**63:
        return int(value).to_bytes(8, "little", signed=True) + bytes(7) + bytes((_LONG_INTEGER,))
    digest = hashlib.blake2b(value, digest_size=15, key=b"privacy unit").digest()
    return digest + bytes((_DIGEST,))


def _object_fingerprints(chunk: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Returns fingerprints of values of other types, converted to Python objects."""
    kind = chunk.type
    if pa.types.is_struct(kind) and kind.names == [_OPAQUE_FIELD]:
        return _fingerprints(*chunk.flatten())
    texts: Sequence[bytes | None]
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        texts = _temporal_texts(chunk)
    else:
        texts = [_text_of_scalar(scalar) for scalar in chunk]
    return _fingerprints(pa.array(texts, pa.binary()))


def _temporal_texts(chunk: pa.Array) -> list[_Time | None]:
    """Returns canonical texts of times, including values beyond the range of Python's types."""
    kind = chunk.type
    if pa.types.is_date(kind):
        days = pa.types.is_date32(kind)
        name, scale, divisor = b"date", 1, 1 if days else 86_400_000
    else:
        names = ((pa.types.is_timestamp, b"timestamp"), (pa.types.is_duration, b"duration"))
        name = next((name for is_kind, name in names if is_kind(kind)), b"time")
        scale, divisor = NANOSECONDS[kind.unit], 1
    integers = chunk.view(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
    return [None if n is None else _Time(b"%s:%d" % (name, n * scale // divisor)) for n in integers]


def _text_of_scalar(scalar: pa.Scalar) -> bytes | None:
    """Returns the canonical text of one value; None (not a unit) if Python can't read the value."""
    try:
        return canonical_bytes(_read(scalar))
    except Exception:  # many types of errors, such as a map with a repeated key
        return None


def _read(scalar: pa.Scalar) -> object:
    """Returns the Python value, with maps as dictionaries and times as canonical texts."""
    # Arrow's own conversion needs pandas for nanoseconds, and a time zone database. But a unit must
    # not depend on the packages that are installed on a worker.
    if not scalar.is_valid:
        return None
    kind = scalar.type
    if layouts.may_be_address(kind):
        raise ValueError("a possible address has no text")
    if isinstance(scalar, (pa.ExtensionScalar, pa.UnionScalar)) or layouts.is_indirect(kind):
        return _read(scalar.value)
    if pa.types.is_temporal(kind) and not pa.types.is_interval(kind):
        return _temporal_texts(pa.array([scalar.value], kind))[0]
    if pa.types.is_struct(kind):
        return _dictionary((field.name, scalar[place]) for place, field in enumerate(kind))
    if pa.types.is_map(kind):
        return _dictionary((_read(pair[0]), pair[1]) for pair in scalar.values)
    if pa.types.is_nested(kind):
        return [_read(value) for value in scalar.values]
    return scalar.as_py()


def _dictionary(pairs: Iterable[tuple[Any, pa.Scalar]]) -> dict[Any, Any]:
    """Returns a dictionary with the given keys and with Arrow values converted to Python."""
    read: dict[Any, Any] = {}
    for key, inner in pairs:
        if key in read:
            raise ValueError("a map with a repeated key has no text")
        read[key] = _read(inner)
    return read


class _Time(bytes):
    """The canonical text of a time, distinguished from a string with the same characters."""

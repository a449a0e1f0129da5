"""Which privacy unit a record belongs to: values of any type as exact 128-bit fingerprints.

A unit is the text of its value: ``7``, ``7.0``, ``"7"`` and ``b"7"`` are one unit, ``"007"``
another, so that a unit is not split in two by how a file, or a batch of it, stores its column.

Two units that shared a fingerprint would be bounded as if they were one. Then the presence of
one could push out records of the other, and one unit would change up to twice as many records
as promised. So values of at most 15 bytes and all 64-bit integers have fingerprints of their
own, by construction; longer values share one only if 120 bits of BLAKE2b collide.
"""

from __future__ import annotations

import datetime
import decimal
import hashlib
import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pyarrow as pa

_SHORT_BYTES = 15
_LONG_INTEGER, _DIGEST = 0x80, 0xFF  # tags in the last byte, where short values have their length
_INTEGER = re.compile(rb"-?[1-9][0-9]*")
_UNIX_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
# Public constants (digits of pi): the hash decides which records are kept, it hides nothing.
_KEYS = (0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0)


def canonical_bytes(value: object) -> bytes | None:
    """Returns the text of a value as bytes; None for null and NaN.

    Example:
        >>> [canonical_bytes(value) for value in (7, 7.0, "7", True, None)]
        [b'7', b'7', b'7', b'1', None]
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, int):
        return b"%d" % value
    if isinstance(value, float):
        if math.isnan(value):
            return None
        return b"%d" % int(value) if value.is_integer() else repr(value).encode()
    if isinstance(value, decimal.Decimal):
        if value.is_nan():
            return None
        if not value.is_finite() or abs(value.adjusted()) > 400:
            return str(value).encode()
        text = format(value, "f") if value else "0"
        return (text.rstrip("0").rstrip(".") if "." in text else text).encode()
    if isinstance(value, datetime.datetime):
        aware = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
        microseconds = (aware - _UNIX_EPOCH) // datetime.timedelta(microseconds=1)
        return b"timestamp:%d" % (microseconds * 1000)
    return f"{type(value).__name__}:{value}".encode("utf-8", "surrogatepass")


def arrow_column(values: Sequence[Any]) -> pa.Array:
    """Returns Python values as an Arrow array, whatever they are: mixed types become texts."""
    import pyarrow as pa

    try:
        column = pa.array(values)
        # Arrow reads the integers among moments as moments.
        if not pa.types.is_temporal(column.type) or len({*map(type, values)} - {type(None)}) < 2:
            return column
    except (pa.ArrowException, ValueError, TypeError, OverflowError):
        pass
    return pa.array([_canonical_or_type(value) for value in values], pa.binary())


def unit_fingerprints(
    column: pa.Array | pa.ChunkedArray,
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Returns each record's unit as 128 bits, and where there is one.

    Args:
        column: an Arrow array of any type. Null and NaN are no unit.

    Returns:
        Shape (2, n), well mixed, and shape (n,), False where the record has no unit.

    Cost: 50-100 ns a record; 1 microsecond for each distinct value of more than 15 bytes.
    """
    import pyarrow as pa

    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    found = [_chunk_fingerprints(chunk) for chunk in chunks]
    if not found:
        return np.empty((2, 0), np.uint64), np.empty(0, bool)
    raw = np.concatenate([fingerprints for fingerprints, _ in found], axis=1)
    return _mix_pair(raw), np.concatenate([valid for _, valid in found])


def mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the 64-bit finaliser of SplitMix: a bijection without visible structure."""
    words = words + np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return words ^ (words >> np.uint64(31))


def _mix_pair(raw: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Three Feistel rounds: a bijection of 128 bits, so that distinct units stay distinct."""
    high, low = raw
    high = high ^ mix(low ^ np.uint64(_KEYS[0]))
    low = low ^ mix(high ^ np.uint64(_KEYS[1]))
    high = high ^ mix(low ^ np.uint64(_KEYS[2]))
    return np.stack((high, low))


def _chunk_fingerprints(chunk: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    import pyarrow as pa

    kind = chunk.type
    if isinstance(chunk, pa.ExtensionArray):
        return _chunk_fingerprints(chunk.storage)
    if isinstance(chunk, pa.DictionaryArray):
        if len(chunk.dictionary) > len(chunk):  # shared by many batches
            return _chunk_fingerprints(chunk.dictionary_decode())
        of_value, has_unit = _chunk_fingerprints(chunk.dictionary)
        valid = _valid(chunk)
        if not len(of_value[0]):
            return np.zeros((2, len(chunk)), np.uint64), np.zeros(len(chunk), bool)
        indices = chunk.indices.fill_null(0).to_numpy(zero_copy_only=False)
        return of_value[:, indices], valid & has_unit[indices]
    if pa.types.is_floating(kind):
        chunk = _whole_floats_as_integers(chunk)
        kind = chunk.type
    if pa.types.is_boolean(kind) or (pa.types.is_integer(kind) and not pa.types.is_uint64(kind)):
        numbers = chunk.fill_null(False if pa.types.is_boolean(kind) else 0)
        return _integer_fingerprints(
            numbers.cast(pa.int64()).to_numpy(zero_copy_only=False)
        ), _valid(chunk)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _bytes_fingerprints(chunk.cast(pa.binary())), _valid(chunk)
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        encoded = chunk.dictionary_encode()
        as_bytes = pa.array(encoded.dictionary.cast(pa.large_binary()).to_pylist(), pa.binary())
        return _chunk_fingerprints(pa.DictionaryArray.from_arrays(encoded.indices, as_bytes))
    return _object_fingerprints(chunk)


def _valid(chunk: pa.Array) -> NDArray[np.bool_]:
    valid: NDArray[np.bool_] = chunk.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _whole_floats_as_integers(chunk: pa.Array) -> pa.Array:
    """Floats as integers where they all are; else as texts; NaN as null."""
    import pyarrow as pa

    values = chunk.cast(pa.float64()).to_numpy(zero_copy_only=False)  # null as NaN
    missing = np.isnan(values)
    small = np.where(missing, 0, values)
    if (np.abs(small) < 2.0**53).all() and (small == np.floor(small)).all():
        return pa.array(small.astype(np.int64), mask=missing)
    return pa.array([canonical_bytes(value) for value in values.tolist()], pa.binary())


def _integer_fingerprints(numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    import pyarrow as pa

    # Texts of at most 15 bytes, the minus sign included.
    long = (numbers >= 10**15) | (numbers <= -(10**14))
    short = pa.array(np.where(long, 0, numbers)).cast(pa.string()).cast(pa.binary())
    found = _pack_short(short)
    found[0, long] = numbers[long].view(np.uint64)
    found[1, long] = np.uint64(_LONG_INTEGER << 56)
    return found


def _bytes_fingerprints(column: pa.Array) -> NDArray[np.uint64]:
    import pyarrow as pa
    import pyarrow.compute as pc

    lengths = pc.binary_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    long = lengths > _SHORT_BYTES
    found = _pack_short(column)
    if long.any():
        encoded = column.filter(pa.array(long)).dictionary_encode()
        of_value = np.frombuffer(
            b"".join(map(_long_fingerprint, encoded.dictionary.to_pylist())), "<u8"
        ).reshape(-1, 2)
        found[:, long] = of_value[encoded.indices.to_numpy()].T
    return found


def _pack_short(column: pa.Array) -> NDArray[np.uint64]:
    """The bytes themselves, then zeros, with the length in the last byte; long values: anything."""
    num_rows = len(column)
    _, offset_buffer, data_buffer = column.buffers()
    packed = np.zeros((num_rows, 16), np.uint8)
    if num_rows and data_buffer is not None and data_buffer.size:
        offsets = np.frombuffer(offset_buffer, np.int32)[column.offset :][: num_rows + 1]
        data = np.frombuffer(data_buffer, np.uint8)
        lengths = np.minimum(np.diff(offsets), _SHORT_BYTES).astype(np.uint8)
        starts = offsets[:-1].astype(np.int64)
        for position in range(int(lengths.max())):
            inside = np.minimum(starts + position, data.size - 1)
            packed[:, position] = np.where(lengths > position, data[inside], 0)
        packed[:, 15] = lengths
    return np.ascontiguousarray(packed.view("<u8").T)


def _long_fingerprint(value: bytes) -> bytes:
    """16 bytes for a value of more than 15; integers as ``_integer_fingerprints`` has them."""
    if len(value) <= 20 and _INTEGER.fullmatch(value) and -(2**63) <= int(value) < 2**63:
        return int(value).to_bytes(8, "little", signed=True) + bytes(7) + bytes((_LONG_INTEGER,))
    digest = hashlib.blake2b(value, digest_size=15, key=b"privacy unit").digest()
    return digest + bytes((_DIGEST,))


def _object_fingerprints(chunk: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Every other type, through Python objects."""
    import pyarrow as pa

    if pa.types.is_timestamp(chunk.type):
        unit = _NANOSECONDS[chunk.type.unit]
        values = chunk.cast(pa.int64()).to_pylist()
        texts = [None if value is None else b"timestamp:%d" % (value * unit) for value in values]
    else:
        texts = [_canonical_or_type(value) for value in _objects(chunk)]
    return _chunk_fingerprints(pa.array(texts, pa.binary()))


def _objects(chunk: pa.Array) -> list[object]:
    try:
        objects: list[object] = chunk.to_pylist()
    except (ValueError, TypeError, OverflowError):  # beyond what Python's own types hold
        objects = [str(value) if value.is_valid else None for value in chunk]
    return objects


def _canonical_or_type(value: object) -> bytes | None:
    """``canonical_bytes``, and the type's name where an object has no text."""
    try:
        return canonical_bytes(value)
    except Exception:
        return type(value).__name__.encode()

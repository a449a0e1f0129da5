"""Avro object container files, written and read without trust.

A general reader believes the lengths that a file states. This one knows the schema beforehand,
takes every length as a claim to be checked against what is there, and expands a block no further
than its caller allows.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.releases.files.card import SCHEMA_VERSION
from beam_dp.storage.store import DamagedFileError

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
BLOCK_BYTES = 2**20
_MAX_METADATA_ENTRIES = 64
_CHECKSUM_BYTES = 4
_MAX_LONG_BYTES = 10  # seven bits each
_MAX_ITEMS = 2**16


def encode_long(value: int) -> bytes:
    r"""Returns Avro's zigzag variable-length form of a 64-bit integer.

    Example:
        >>> encode_long(-1), encode_long(64)
        (b'\x01', b'\x80\x01')
    """
    rest = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while rest > 0x7F:
        encoded.append(rest & 0x7F | 0x80)
        rest >>= 7
    encoded.append(rest)
    return bytes(encoded)


def encode_bytes(value: bytes) -> bytes:
    """Returns Avro's form of bytes or of a UTF-8 string."""
    return encode_long(len(value)) + value


def decode_long(data: bytes, position: int) -> tuple[int, int]:
    """Returns the integer at a position, and the position after it.

    Raises:
        DamagedFileError: if there is none.
    """
    value = shift = 0
    while shift < 64 and position < len(data):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            if value >= 2**64:
                break
            return (value >> 1) ^ -(value & 1), position
        shift += 7
    raise DamagedFileError("a number is cut short or too long")


def decode_bytes(data: bytes, position: int) -> tuple[bytes, int]:
    """Returns the bytes at a position, and the position after them.

    Raises:
        DamagedFileError: if they are not all there.
    """
    length, position = decode_long(data, position)
    if not 0 <= length <= len(data) - position:
        raise DamagedFileError("a text is longer than its file")
    return data[position : position + length], position + length


def encode_longs(values: NDArray[np.int64]) -> bytes:
    r"""Returns 64-bit integers, shape (n,), one after the other in Avro's zigzag form.

    Cost: about 50 ns a value.

    Example:
        >>> encode_longs(np.array([-1, 64]))
        b'\x01\x80\x01'
    """
    rest = ((values << 1) ^ (values >> 63)).astype(np.int64).view(np.uint64)
    digits = np.empty((len(values), _MAX_LONG_BYTES), np.uint8)
    used = np.empty((len(values), _MAX_LONG_BYTES), np.bool_)
    for place in range(_MAX_LONG_BYTES):
        digits[:, place] = rest & np.uint64(0x7F)
        used[:, place] = True if place == 0 else rest > 0
        rest >>= np.uint64(7)
    # All digits but the last one are marked.
    digits[:, :-1] |= np.where(used[:, 1:], np.uint8(0x80), np.uint8(0))
    return digits[used].tobytes()


def decode_longs(data: bytes, position: int, number: int) -> tuple[NDArray[np.int64], int]:
    r"""Returns so many integers from a position on, and the position after them.

    Raises:
        DamagedFileError: if they are not all there.

    Cost: about 30 ns a value.

    Example:
        >>> decode_longs(b"\x01\x80\x01", 0, 2)
        (array([-1, 64]), 3)
    """
    if number == 0:
        return np.zeros(0, np.int64), position
    window = np.frombuffer(data, np.uint8)[position : position + _MAX_LONG_BYTES * number]
    last = np.flatnonzero(window < 0x80)[:number]
    if len(last) < number:
        raise DamagedFileError("a number is cut short or too long")
    starts = np.concatenate(([0], last[:-1] + 1))
    lengths = last - starts + 1
    window = window[: int(last[-1]) + 1]
    place = np.arange(len(window)) - np.repeat(starts, lengths)
    if int(place.max()) >= _MAX_LONG_BYTES or (window[place == _MAX_LONG_BYTES - 1] > 1).any():
        raise DamagedFileError("a number is cut short or too long")
    digits = (window & 0x7F).astype(np.uint64) << (place * 7).astype(np.uint64)
    zigzag = np.bitwise_or.reduceat(digits, starts)
    values = (zigzag >> np.uint64(1)) ^ -(zigzag & np.uint64(1)).astype(np.int64).view(np.uint64)
    return values.view(np.int64), position + len(window)


def sync_marker(draw_id: str, purpose: str) -> bytes:
    """Returns the 16 bytes that part blocks: the draw's own, so that a retry writes the same file.

    Args:
        draw_id: of the noise.
        purpose: of the file, in words: no two files of a draw have the same marker.
    """
    return hashlib.sha256(f"{purpose} {draw_id}".encode()).digest()[:SYNC_BYTES]


def file_name(draw_id: str, purpose: str) -> str:
    """Returns the name of a file of a draw: see ``sync_marker``."""
    return f"{purpose.replace(' ', '-')}-{draw_id}.avro"


def encode_header(schema: Mapping[str, Any], metadata: Mapping[str, str], sync: bytes) -> bytes:
    """Returns the header of a container file: its schema, further entries and the sync marker."""
    header = {"avro.schema": json.dumps(schema, ensure_ascii=False), **metadata}
    entries = b"".join(
        encode_bytes(key.encode()) + encode_bytes(value.encode()) for key, value in header.items()
    )
    return MAGIC + encode_long(len(header)) + entries + encode_long(0) + sync


def write_container(
    schema: Mapping[str, Any],
    draw_id: str,
    purpose: str,
    blocks: Iterable[tuple[int, bytes]],
    *,
    deflate: bool,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Returns a container file.

    Args:
        schema: the Avro schema.
        draw_id: of the noise; the header names it.
        purpose: of the file: see ``sync_marker``.
        blocks: number of records and their bytes, of each block.
        deflate: whether blocks are compressed.
        metadata: further entries of the header.
    """
    sync = sync_marker(draw_id, purpose)
    declared = {
        "avro.codec": "deflate" if deflate else "null",
        "beam_dp.schema_version": str(SCHEMA_VERSION),
        "beam_dp.draw_id": draw_id,
        **(metadata or {}),
    }
    parts = [encode_header(schema, declared, sync)]
    for num_records, data in blocks:
        if deflate:
            compressor = zlib.compressobj(wbits=-15)
            data = compressor.compress(data) + compressor.flush()
        parts.append(encode_long(num_records) + encode_bytes(data) + sync)
    return b"".join(parts)


def in_blocks(records: Iterable[tuple[bytes, int]]) -> Iterator[tuple[int, bytes]]:
    """Yields records in blocks of about a mebibyte: their number and their bytes.

    Args:
        records: each with how often it stands.
    """
    block = bytearray()
    num_records = 0
    for record, count in records:
        while count:
            copies = min(count, max(1, (BLOCK_BYTES - len(block)) // len(record)))
            block += record * copies
            num_records += copies
            count -= copies
            if len(block) + len(record) > BLOCK_BYTES:
                yield num_records, bytes(block)
                block.clear()
                num_records = 0
    if num_records:
        yield num_records, bytes(block)


def read_container(
    data: bytes, schema: Mapping[str, Any], sync: bytes, *, max_block_bytes: int | None
) -> Iterator[tuple[int, bytes]]:
    """Yields the number of records and the bytes of each block.

    Args:
        data: the whole file.
        schema: what its schema must be.
        sync: what its sync marker must be.
        max_block_bytes: how far a compressed block may expand; None if none may be compressed.

    Raises:
        DamagedFileError: at the first thing that is wrong.
    """
    metadata, position, _ = read_header(data)
    try:
        written = json.loads(metadata.get(b"avro.schema", b""))
    except (ValueError, RecursionError):
        raise DamagedFileError("has a schema that is not JSON") from None
    if written != schema:
        raise DamagedFileError("has a schema that does not fit its card")
    if metadata.get(b"avro.codec") != (b"null" if max_block_bytes is None else b"deflate"):
        raise DamagedFileError("has a codec that this version does not write")
    position = _skip_sync(data, position, sync)
    while position < len(data):
        num_records, position = decode_long(data, position)
        block, position = decode_bytes(data, position)
        if max_block_bytes is not None:
            block = _inflate(block, max_block_bytes)
        # Every record of ours takes at least one byte.
        if not 0 <= num_records <= len(block):
            raise DamagedFileError("a block states more records than it has room for")
        position = _skip_sync(data, position, sync)
        yield num_records, block


def read_header(data: bytes) -> tuple[dict[bytes, bytes], int, bytes]:
    """Returns what a file says of itself, where its sync marker is, and that marker.

    Raises:
        DamagedFileError: if it is no such file.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise DamagedFileError("is not an Avro container file")
    metadata, position = decode_map(data, len(MAGIC), _MAX_METADATA_ENTRIES)
    return metadata, position, data[position : position + SYNC_BYTES]


def decode_map(data: bytes, position: int, longest: int) -> tuple[dict[bytes, bytes], int]:
    """Returns the map of texts or bytes at a position, and the position after it.

    Raises:
        DamagedFileError: if there is none, or one of more than ``longest`` entries.
    """
    found: dict[bytes, bytes] = {}
    while True:
        count, position = decode_long(data, position)
        if count == 0:
            return found, position
        if count < 0:  # the length of the block in bytes follows
            _, position = decode_long(data, position)
        for _ in range(abs(count)):
            key, position = decode_bytes(data, position)
            found[key], position = decode_bytes(data, position)
            if len(found) > longest:
                raise DamagedFileError("has a header of too many entries")


def check_end(block: bytes, position: int) -> None:
    """Refuses bytes behind the last record of a block.

    Raises:
        DamagedFileError: if there are some.
    """
    if position != len(block):
        raise DamagedFileError("has bytes after the records of a block")


def read_values(
    data: bytes, schema: Mapping[str, Any], draw_id: str, purpose: str, max_block_bytes: int | None
) -> Iterator[Any]:
    """Yields the records of a file, one after the other.

    Args:
        data: the whole file.
        schema: what its schema must be.
        draw_id: of the noise.
        purpose: of the file: see ``sync_marker``.
        max_block_bytes: see ``read_container``.

    Raises:
        DamagedFileError: at the first thing that is wrong.
    """
    sync = sync_marker(draw_id, purpose)
    for number, block in read_container(data, schema, sync, max_block_bytes=max_block_bytes):
        position = 0
        for _ in range(number):
            value, position = decode(schema, block, position)
            yield value
        check_end(block, position)


def encode(kind: Any, value: Any) -> bytes:
    r"""Returns the form of a value.

    Args:
        kind: a type as a schema has it: the name of a simple one, a record, an array of texts or
            numbers, or a union of simple ones; what else is said beside a type means nothing.
        value: of this type: a record by the names of its fields, numbers of an array in any shape.

    Example:
        >>> encode(["null", "string"], "ab"), encode({"type": "array", "items": "long"}, [1, 2])
        (b'\x02\x04ab', b'\x04\x02\x04\x00')
    """
    if isinstance(kind, str):
        return _ENCODERS[kind](value)
    if isinstance(kind, list):
        for member, each in enumerate(kind):
            if isinstance(value, _PYTHON_TYPES[each if isinstance(each, str) else each["type"]]):
                return encode_long(member) + encode(each, value)
        raise TypeError(f"a {type(value).__name__} is none of the union")
    if kind["type"] == "record":
        return b"".join([encode(each["type"], value[each["name"]]) for each in kind["fields"]])
    if kind["type"] != "array":
        return encode(kind["type"], value)
    if kind["items"] == "double":
        items = np.ascontiguousarray(value, "<f8").tobytes()
    elif kind["items"] == "long":
        items = encode_longs(np.asarray(value, np.int64))
    else:
        items = b"".join([encode(kind["items"], each) for each in value])
    return (encode_long(np.size(value)) + items if items else b"") + encode_long(0)


def decode(kind: Any, data: bytes, position: int) -> tuple[Any, int]:
    """Returns the value at a position, and the position after it: the inverse of ``encode``.

    Arrays of numbers come back as numpy's, of one axis. Those of doubles may be as long as their
    block is, and are finite; all others have at most 2^16 items.

    Raises:
        DamagedFileError: if there is none of this type.
    """
    if isinstance(kind, str):
        return _DECODERS[kind](data, position)
    if isinstance(kind, list):
        member, position = decode_long(data, position)
        if not 0 <= member < len(kind):
            raise DamagedFileError("has a value of a type that its schema has not")
        return decode(kind[member], data, position)
    if kind["type"] == "array":
        return _decode_array(kind["items"], data, position)
    if kind["type"] != "record":
        return decode(kind["type"], data, position)
    record = {}
    for each in kind["fields"]:
        record[each["name"]], position = decode(each["type"], data, position)
    return record, position


def _decode_array(items: str, data: bytes, position: int) -> tuple[Any, int]:
    number, position = decode_long(data, position)
    longest = (len(data) - position) // 8 if items == "double" else _MAX_ITEMS
    if not 0 <= number <= longest:
        raise DamagedFileError("has an array that is longer than it can be")
    values: Any
    if items == "double":
        values = np.frombuffer(data, "<f8", number, position).astype(np.float64)
        position += 8 * number
        if not np.isfinite(values).all():
            raise DamagedFileError("has a table of numbers that are not finite")
    elif items == "long":
        values, position = decode_longs(data, position, number)
    else:
        values = []
        for _ in range(number):
            value, position = decode(items, data, position)
            values.append(value)
    end, position = decode_long(data, position) if number else (0, position)
    if end != 0:
        raise DamagedFileError("has an array that does not end where it should")
    return values, position


def _decode_text(data: bytes, position: int) -> tuple[str, int]:
    text, position = decode_bytes(data, position)
    try:
        return text.decode(), position
    except UnicodeDecodeError:
        raise DamagedFileError("has a text that is not UTF-8") from None


def _decode_fixed(form: str, data: bytes, position: int) -> tuple[Any, int]:
    try:
        return *struct.unpack_from(form, data, position), position + struct.calcsize(form)
    except struct.error:
        raise DamagedFileError("has a value that is cut short") from None


def _skip_sync(data: bytes, position: int, sync: bytes) -> int:
    if data[position : position + SYNC_BYTES] != sync:
        raise DamagedFileError("has a sync marker that is missing or of another file")
    return position + SYNC_BYTES


def _inflate(data: bytes, max_bytes: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=-15)
    try:
        block = decompressor.decompress(data, max_bytes + 1)
    except zlib.error:
        raise DamagedFileError("has a block that does not decompress") from None
    # Some writers leave a part of the checksum behind, which Avro does not have.
    is_whole = decompressor.eof and len(decompressor.unused_data) <= _CHECKSUM_BYTES
    if len(block) > max_bytes or not is_whole:
        raise DamagedFileError("has a block that is cut short or expands too far")
    return block


_PYTHON_TYPES: dict[str, Any] = {
    "null": type(None),
    "boolean": bool,
    "int": (int, np.integer),
    "long": (int, np.integer),
    "double": (int, float, np.number),
    "string": str,
}
_ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "null": lambda _: b"",
    "boolean": partial(struct.pack, "<?"),
    "int": lambda number: encode_long(int(number)),
    "long": lambda number: encode_long(int(number)),
    "double": partial(struct.pack, "<d"),
    "string": lambda text: encode_bytes(text.encode()),
    "bytes": encode_bytes,
}
_DECODERS: dict[str, Callable[[bytes, int], tuple[Any, int]]] = {
    "null": lambda _, position: (None, position),
    "boolean": partial(_decode_fixed, "<?"),
    "int": decode_long,
    "long": decode_long,
    "double": partial(_decode_fixed, "<d"),
    "string": _decode_text,
    "bytes": decode_bytes,
}

"""Avro object container files, written and read without trust.

A general reader believes the lengths that a file states. This one knows the schema beforehand,
takes every length as a claim to be checked against what is there, and expands a block no further
than its caller allows.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
_MAX_METADATA_ENTRIES = 64
_CHECKSUM_BYTES = 4


class DamagedFileError(Exception):
    """The bytes are not what the format says; the message says what is wrong."""


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


def write_container(
    file: BinaryIO,
    schema: Mapping[str, Any],
    metadata: Mapping[str, str],
    sync: bytes,
    blocks: Iterable[tuple[int, bytes]],
    *,
    deflate: bool,
) -> None:
    """Writes a container file.

    Args:
        file: where to.
        schema: the Avro schema.
        metadata: further entries of the header.
        sync: 16 bytes that part the blocks.
        blocks: number of records and their bytes, of each block.
        deflate: whether blocks are compressed.
    """
    header = {
        "avro.schema": json.dumps(schema, ensure_ascii=False),
        "avro.codec": "deflate" if deflate else "null",
        **metadata,
    }
    entries = b"".join(
        encode_bytes(key.encode()) + encode_bytes(value.encode()) for key, value in header.items()
    )
    file.write(MAGIC + encode_long(len(header)) + entries + encode_long(0) + sync)
    for num_records, data in blocks:
        if deflate:
            compressor = zlib.compressobj(wbits=-15)
            data = compressor.compress(data) + compressor.flush()
        file.write(encode_long(num_records) + encode_bytes(data) + sync)


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
    metadata, position = _read_metadata(data, len(MAGIC))
    return metadata, position, data[position : position + SYNC_BYTES]


def _read_metadata(data: bytes, position: int) -> tuple[dict[bytes, bytes], int]:
    num_entries, position = decode_long(data, position)
    if not 0 < num_entries <= _MAX_METADATA_ENTRIES:
        raise DamagedFileError("has a header that this version does not write")
    metadata = {}
    for _ in range(num_entries):
        key, position = decode_bytes(data, position)
        metadata[key], position = decode_bytes(data, position)
    end, position = decode_long(data, position)
    if end != 0:
        raise DamagedFileError("has a header that this version does not write")
    return metadata, position


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

"""The guard of Avro files that anyone may have written: fastavro decodes only what it has checked.

fastavro believes what a file claims: it expands blocks without bound, and decodes whatever schema
the header states. Here the schema is known beforehand, every count and size is checked against the
bytes that are there, and a block expands only as far as its reader allows.
"""

from __future__ import annotations

import bz2
import io
import json
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro

from beam_dp.storage.store import DamagedFileError

MAGIC = b"Obj\x01"
SYNC_BYTES = 16
HEADER: Any = fastavro.parse_schema(
    {
        "type": "record",
        "name": "org.apache.avro.file.Header",
        "fields": [
            {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": len(MAGIC)}},
            {"name": "meta", "type": {"type": "map", "values": "bytes"}},
            {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": SYNC_BYTES}},
        ],
    }
)
_DECOMPRESSORS: dict[bytes, Any] = {
    b"deflate": lambda: zlib.decompressobj(-zlib.MAX_WBITS),
    b"bzip2": bz2.BZ2Decompressor,
}
_CHECKSUM_BYTES = 4
# How far a file may expand: this many times its size, and this many bytes more.
_EXPANSION, _SMALL = 16, 2**20


def read_blocks(
    data: bytes, schema: Mapping[str, Any], max_block_bytes: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yields the number of records and the uncompressed bytes of each block of a file.

    ``schema``: whose fields the file must have, with their types. A record takes at least a
    byte.
    ``max_block_bytes``: the largest block. By default all blocks together may take a mebibyte
    and 16 times the size of the file.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise DamagedFileError("is not an Avro container file")
    file = io.BytesIO(data)
    header = decode(HEADER, file)
    try:
        is_same = _types(json.loads(header["meta"].get("avro.schema", b""))) == _types(schema)
    except (LookupError, RecursionError, TypeError, ValueError):
        is_same = False
    if not is_same:
        raise DamagedFileError("has a schema that does not fit its card")
    codec, left = header["meta"].get("avro.codec", b"null"), _SMALL + _EXPANSION * len(data)
    if codec != b"null" and codec not in _DECOMPRESSORS:
        raise DamagedFileError("has a codec other than null, deflate and bzip2")
    while file.tell() < len(data):
        number, size = decode("long", file), decode("long", file)
        if not 0 <= size <= len(data) - file.tell():
            raise DamagedFileError("has a block that is longer than the file")
        block = _expanded(file.read(size), codec, max_block_bytes or left)
        if not 0 <= number <= len(block):
            raise DamagedFileError("has a block that states more records than it has room for")
        if file.read(SYNC_BYTES) != header["sync"]:
            raise DamagedFileError("has a sync marker that is missing or of another file")
        left -= len(block)
        yield number, block


def decode(schema: Any, file: io.BytesIO) -> Any:
    """Returns the value at the position of a file, which is behind it then."""
    try:
        return fastavro.schemaless_reader(file, schema)
    except Exception:  # of many types
        raise DamagedFileError("has a value that is cut short or not of its type") from None


def _expanded(data: bytes, codec: bytes, max_bytes: int) -> bytes:
    """Returns the bytes of a block."""
    is_whole, block = True, data
    if codec != b"null":
        decompressor = _DECOMPRESSORS[codec]()
        try:
            block = decompressor.decompress(data, max_bytes + 1)
        except (OSError, zlib.error):
            raise DamagedFileError("has a block that does not decompress") from None
        # Some writers leave a part of the checksum behind, which Avro does not have.
        is_whole = decompressor.eof and len(decompressor.unused_data) <= _CHECKSUM_BYTES
    if len(block) > max_bytes or not is_whole:
        raise DamagedFileError("has a block that is cut short or expands too far")
    return block


def _types(schema: Any) -> Any:
    """Returns what the form of a value depends on: types, and the fields in their order."""
    if isinstance(schema, list):
        return [_types(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] == "record":
        return "record", [(each["name"], _types(each["type"])) for each in schema["fields"]]
    return ("array", _types(schema["items"])) if "items" in schema else _types(schema["type"])

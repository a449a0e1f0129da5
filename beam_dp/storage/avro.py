"""Writes Avro files of releases with fastavro, and reads files from untrusted sources safely.

fastavro trusts a file: it expands blocks without bound and decodes any schema in the header.
``read_blocks`` knows the schema beforehand, checks every count and size against the bytes of the
file, and expands a block only up to a limit that the caller sets.

Arrays are written and read with numpy, several (integers) to hundreds (doubles) of times as fast.
"""

from __future__ import annotations

import bz2
import hashlib
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import IO, Any, NamedTuple, Self

import fastavro
import numpy as np
from numpy.typing import NDArray

from beam_dp.storage.store import DamagedFileError

SCHEMA_VERSION = 2  # of released files and cards
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
_MAX_HEADER_BYTES = 2**26
# The default limit for all blocks of a file: a multiple of the file's size, plus some bytes.
_EXPANSION, _SMALL = 16, 2**20
BLOCK_BYTES = 2**20
# For rows in random order, this level takes 40 % of the time of level 6 and 5 to 20 % more bytes.
_DEFLATE_LEVEL = 3
# Texts repeat. Short codes in random order only have frequent bytes: a search for repeats takes
# three times as long, and makes the file larger.
_STRATEGIES = zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY
_SAMPLE_BYTES = 2**16
_MAX_LONG_BYTES = 10  # seven bits per byte
_LONGS_AT_ONCE = 2**15
# Minimum sizes: bytes per record, and numbers per part of an array (the last part may be shorter).
# With these minimums, the time to read a file is bounded by its size.
_RECORD_BYTES, _PART_NUMBERS = 8, 1024
_SHIFTS = np.arange(0, 64, 7, dtype=np.uint64)  # shifts for the ten digits of a long
_LONGER = np.uint64(1) << _SHIFTS[1:]  # the first numbers that take one more digit


def file_name(draw_id: str, purpose: str) -> str:
    """Returns the name of the file that contains one part of a draw."""
    return f"{purpose.replace(' ', '-')}-{draw_id}.avro"


def read_metadata(file: IO[bytes]) -> tuple[dict[str, Any], int]:
    """Returns the header of an Avro file and its length, without fastavro's check of the schema."""
    head = file.read(2**16)
    if not head.startswith(MAGIC):
        raise ValueError("is not an Avro container file")
    while True:
        read = io.BytesIO(head)
        try:
            return decode(HEADER, read), read.tell()
        except DamagedFileError:
            more = file.read(len(head))
            if not more or len(head) > _MAX_HEADER_BYTES:
                raise ValueError("its header is cut short or too long") from None
            head += more


def encode(schema: Any, value: Any) -> bytes:
    """Returns the Avro encoding of a value."""
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, value)
    return file.getvalue()


def encode_record(schema: Mapping[str, Any], record: Mapping[str, Any]) -> bytes:
    """Returns the Avro encoding of a record whose arrays of numbers may be numpy arrays."""
    parts = []
    for field in schema["fields"]:
        value = record[field["name"]]
        if isinstance(value, np.ndarray):
            is_whole = value.dtype.kind == "i"
            items = encode_longs(value.ravel()) if is_whole else value.astype("<f8").tobytes()
            parts.append((encode("long", value.size) + items if items else b"") + b"\0")
        else:
            parts.append(encode(field["type"], value))
    return b"".join(parts)


def encode_longs(values: NDArray[np.int64]) -> bytes:
    """Returns 64-bit integers, shape (n,), one after the other in Avro's zigzag encoding."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    num_digits = 1 + int(np.searchsorted(_LONGER, zigzag.max(initial=0), "right"))
    digits = np.empty((len(zigzag), num_digits), np.uint8)
    is_used = np.empty(digits.shape, np.bool_)
    for place in range(num_digits):
        is_used[:, place] = (zigzag > 0) | (place == 0)
        digits[:, place] = zigzag.astype(np.uint8) & 0x7F
        zigzag >>= np.uint64(7)
    digits[:, :-1] |= is_used[:, 1:].view(np.uint8) << 7  # mark all but the last digit
    return digits[is_used].tobytes()


def long_lengths(values: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the number of bytes that ``encode_longs`` takes for each value."""
    zigzag = ((values << 1) ^ (values >> 63)).view(np.uint64)
    return 1 + np.searchsorted(_LONGER, zigzag, "right")


class Packed(NamedTuple):
    """Encoded values in one buffer of bytes: where each value starts, and its length."""

    buffer: NDArray[np.uint8]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]

    @classmethod
    def together(cls, buffer: bytes | NDArray[np.uint8], lengths: NDArray[np.int64]) -> Self:
        """Returns values that follow each other without gaps."""
        if isinstance(buffer, bytes):
            buffer = np.frombuffer(buffer, np.uint8)
        return cls(buffer, np.cumsum(lengths) - lengths, lengths)

    @classmethod
    def of(cls, values: Sequence[bytes]) -> Self:
        """Returns values that are given one by one."""
        return cls.together(b"".join(values), np.fromiter(map(len, values), np.int64, len(values)))

    def take(self, places: NDArray[np.integer[Any]]) -> Packed:
        """Returns the values at some places, in that order and without gaps."""
        lengths = self.lengths[places]
        starts = np.cumsum(lengths) - lengths
        width = len(self.buffer) // max(len(self.lengths), 1)
        if width and (self.lengths == width).all():  # often, and several times as fast
            rows = self.buffer.reshape(-1, width).take(places, axis=0)
            return Packed(rows.ravel(), starts, lengths)
        inside = np.arange(int(lengths.sum())) + np.repeat(self.starts[places] - starts, lengths)
        return Packed(self.buffer[inside], starts, lengths)


def side_by_side(columns: Sequence[Packed]) -> Packed:
    """Returns records: for each record, the values of all columns one after the other."""
    lengths = np.sum([column.lengths for column in columns], axis=0)
    records = Packed.together(np.empty(int(lengths.sum()), np.uint8), lengths)
    place = records.starts.copy()
    for column in columns:
        packed = Packed.together(column.buffer, column.lengths)
        inside = np.arange(len(column.buffer)) + np.repeat(place - packed.starts, column.lengths)
        records.buffer[inside] = column.buffer
        place += column.lengths
    return records


def in_blocks(parts: Iterable[Packed]) -> Iterator[tuple[int, bytes]]:
    """Yields the number of records and the bytes of blocks of about a mebibyte."""
    # ``parts``: records without gaps.
    for buffer, starts, lengths in parts:
        ends, start, written = starts + lengths, 0, 0
        while start < len(lengths):
            stop = max(start + 1, int(np.searchsorted(ends, written + BLOCK_BYTES, "right")))
            yield stop - start, buffer[written : ends[stop - 1]].tobytes()
            start, written = stop, int(ends[stop - 1])


def write_blocks(
    schema: Mapping[str, Any],
    draw_id: str,
    purpose: str,
    blocks: Iterable[tuple[int, bytes]],
    *,
    deflate: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> bytes:
    """Returns a container file; ``blocks`` yields the number of records and the bytes of a block.

    The sync marker is a hash of the purpose and the draw, so that a retry writes the same bytes.
    """
    sync = hashlib.sha256(f"{purpose} {draw_id}".encode()).digest()[:SYNC_BYTES]
    meta = {
        "avro.schema": json.dumps(schema, ensure_ascii=False),
        "avro.codec": "deflate" if deflate else "null",
        "beam_dp.schema_version": str(SCHEMA_VERSION),
        "beam_dp.draw_id": draw_id,
        **(metadata or {}),
    }
    encoded = {key: value.encode() for key, value in meta.items()}
    parts = [encode(HEADER, {"magic": MAGIC, "meta": encoded, "sync": sync})]
    strategy = None
    for num_records, block in blocks:
        if deflate:
            if strategy is None:
                sample = block[:_SAMPLE_BYTES]
                strategy = min(_STRATEGIES, key=lambda level: len(_deflated(sample, level)))
            block = _deflated(block, strategy)
        parts.append(encode("long", num_records) + encode("bytes", block) + sync)
    return b"".join(parts)


def write_records(
    schema: Mapping[str, Any],
    draw_id: str,
    purpose: str,
    records: Iterable[Mapping[str, Any]],
    *,
    deflate: bool = False,
) -> bytes:
    """Returns a container file with one record per block."""
    blocks = ((1, encode_record(schema, record)) for record in records)
    return write_blocks(schema, draw_id, purpose, blocks, deflate=deflate)


def _deflated(block: bytes, strategy: int) -> bytes:
    compressor = zlib.compressobj(_DEFLATE_LEVEL, wbits=-zlib.MAX_WBITS, strategy=strategy)
    return compressor.compress(block) + compressor.flush()


def read_blocks(
    data: bytes, schema: Mapping[str, Any], max_block_bytes: int | None = None
) -> Iterator[tuple[int, bytes]]:
    """Yields the number of records and the uncompressed bytes of each block of a file.

    ``schema``: the schema that the file must have, including the types of all fields. The encoding
    of a record must take at least one byte.
    ``max_block_bytes``: the maximum size of a block. By default, all blocks together may take a
    mebibyte plus 16 times the size of the file.
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
            raise DamagedFileError("has a block that states more records than fit in the block")
        if file.read(SYNC_BYTES) != header["sync"]:
            raise DamagedFileError("has a sync marker that is missing or belongs to another file")
        left -= len(block)
        yield number, block


def decode(schema: Any, file: io.BytesIO) -> Any:
    """Reads a value at the position of a file, and moves the position past the value."""
    try:
        return fastavro.schemaless_reader(file, schema)
    except Exception:  # fastavro raises exceptions of many types
        raise DamagedFileError("has a value that is truncated or has the wrong type") from None


def _expanded(data: bytes, codec: bytes, max_bytes: int) -> bytes:
    """Returns the uncompressed bytes of a block."""
    is_whole, block = True, data
    if codec != b"null":
        decompressor = _DECOMPRESSORS[codec]()
        try:
            block = decompressor.decompress(data, max_bytes + 1)
        except (OSError, zlib.error):
            raise DamagedFileError("has a block that does not decompress") from None
        # Some writers append a part of a checksum, although Avro's deflate has no checksum.
        is_whole = decompressor.eof and len(decompressor.unused_data) <= _CHECKSUM_BYTES
    if len(block) > max_bytes or not is_whole:
        raise DamagedFileError("has a block that is truncated or expands too far")
    return block


def _types(schema: Any) -> Any:
    """Returns the types and the ordered fields of a schema: the parts that decide the encoding."""
    if isinstance(schema, list):
        return [_types(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if schema["type"] == "record":
        return "record", [(part["name"], _types(part["type"])) for part in schema["fields"]]
    return ("array", _types(schema["items"])) if "items" in schema else _types(schema["type"])


def read_records(
    data: bytes, schema: Mapping[str, Any], max_block_bytes: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yields the records of a file, with numpy arrays; ``read_blocks`` checks the file."""
    total = 0
    for number, block in read_blocks(data, schema, max_block_bytes):
        total += number
        if number and _RECORD_BYTES * (total - 1) > len(data):
            raise DamagedFileError("has more records than a file of this size can contain")
        file = io.BytesIO(block)
        for _ in range(number):
            yield {part["name"]: _field(part["type"], file) for part in schema["fields"]}
        if file.read(1):
            raise DamagedFileError("has bytes after the records of a block")


def decode_longs(file: io.BytesIO, number: int) -> NDArray[np.int64]:
    """Reads integers at the position of a file, and moves the position past the integers."""
    values = bytearray()
    while 8 * number > len(values):
        start, wanted = file.tell(), min(number - len(values) // 8, _LONGS_AT_ONCE)
        window = np.frombuffer(file.read(_MAX_LONG_BYTES * wanted), np.uint8)
        last = np.flatnonzero(window < 0x80)[:wanted]
        lengths = np.diff(last, prepend=-1)
        window = window[: lengths.sum()]
        place = np.arange(len(window)) - np.repeat(last - lengths + 1, lengths)
        is_long = lengths.max(initial=0) > _MAX_LONG_BYTES
        if len(last) < wanted or is_long or (window[place == _MAX_LONG_BYTES - 1] > 1).any():
            raise DamagedFileError("has a number that is truncated or too long")
        digits = (window & 0x7F).astype(np.uint64) << (7 * place).astype(np.uint64)
        zigzag = np.bitwise_or.reduceat(digits, last - lengths + 1)
        values += ((zigzag >> np.uint64(1)) ^ -(zigzag & np.uint64(1))).tobytes()
        file.seek(start + len(window))
    return np.frombuffer(values, np.int64)


def _field(kind: Any, file: io.BytesIO) -> Any:
    items = kind["items"] if isinstance(kind, dict) and kind["type"] == "array" else None
    if items not in ("double", "long"):
        return decode(kind, file)
    values, is_last = bytearray(), False
    while number := decode("long", file):
        if is_last:
            raise DamagedFileError("has an array in too many parts")
        if number < 0:  # the length of this part of the array follows
            number, _ = -number, decode("long", file)
        is_last = number < _PART_NUMBERS
        if items == "long":
            values += decode_longs(file, number).tobytes()
            continue
        part = file.read(8 * min(number, 2**50))
        if len(part) != 8 * number or not np.isfinite(np.frombuffer(part)).all():
            raise DamagedFileError("has numbers that are truncated or not finite")
        values += part
    return np.frombuffer(values, np.int64 if items == "long" else np.float64)

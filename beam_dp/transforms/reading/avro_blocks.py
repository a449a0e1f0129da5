"""Avro files by byte ranges: blocks between sync markers, decoded into columns."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import fastavro
import pyarrow as pa
from fastavro.schema import UnknownType

from beam_dp.encoding.column_types import ColumnType
from beam_dp.encoding.units import arrow_column
from beam_dp.releases.files.avro import encode
from beam_dp.releases.files.avro_guard import HEADER, MAGIC, SYNC_BYTES, decode
from beam_dp.storage.store import DamagedFileError
from beam_dp.transforms.reading.avro_schemas import column_types, parse_schema, time_types

_BATCH_RECORDS = 2**15
_CHUNK_BYTES = 2**20
_MAX_HEADER_BYTES = 2**26


@dataclass(frozen=True)
class AvroHeader:
    """What stands before the first block of an Avro file.

    ``schema``: of the records, with dates and times declared as the integers they are (a date
    that Python cannot hold must not stop the job).
    ``header``: the header's bytes, with that schema.
    ``length``: bytes of the header in the file.
    """

    types: Mapping[str, ColumnType]
    times: Mapping[str, pa.DataType]
    schema: Any
    header: bytes
    length: int
    marker: bytes


def read_header(file: IO[bytes]) -> AvroHeader:
    """Returns the header of an Avro file, opened at its beginning."""
    found, length = _read_metadata(file)
    schema = parse_schema(found["meta"]["avro.schema"])
    plain = _without_times(schema)
    meta = {
        "avro.schema": json.dumps(plain).encode(),
        "avro.codec": found["meta"].get("avro.codec", b"null"),
    }
    header = encode(HEADER, {**found, "meta": meta})
    types, times = column_types(schema), time_types(schema)
    return AvroHeader(types, times, plain, header, length, found["sync"])


def _read_metadata(file: IO[bytes]) -> tuple[dict[str, Any], int]:
    """Returns the header and its length.

    fastavro's own reader would look at the schema before anything is known of it.
    """
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


def missing_package(header: AvroHeader) -> str | None:
    """Returns a line about what must be installed to decompress the blocks, if anything."""
    reader = fastavro.block_reader(io.BytesIO(header.header + b"\x02\x00" + header.marker))
    try:
        list(next(reader))
    except ValueError as error:
        # fastavro names the package in its message; that of an empty block holds no data.
        return " ".join(str(error).split()) if "install" in str(error) else None
    except Exception:
        return None
    return None


def range_batches(
    file: IO[bytes],
    header: AvroHeader,
    start: int,
    stop: int,
    columns: Sequence[str],
    times: Collection[str] = (),
) -> Iterator[pa.RecordBatch]:
    """Yields the records of the blocks whose preceding marker starts in ``[start, stop)``.

    Ranges that cover a file yield each of its records once, wherever they are cut.
    """
    first = header.length - SYNC_BYTES
    if start <= first:
        start = first
    if start >= stop:
        return
    file.seek(start)
    blocks = _blocks(file, header.marker, stop - start)
    if not blocks:
        return
    kinds = [header.times.get(name) if name in times else None for name in columns]
    values: list[list[Any]] = [[] for _ in columns]
    reader = fastavro.block_reader(
        io.BytesIO(header.header + blocks),
        _of_columns(header.schema, columns),
        handle_unicode_errors="surrogateescape",
    )
    for block in reader:
        records = list(block)
        for name, collected in zip(columns, values, strict=True):
            collected.extend([record[name] for record in records])
        if len(values[0]) >= _BATCH_RECORDS:
            yield _batch(columns, values, kinds)
            values = [[] for _ in columns]
    if values[0]:
        yield _batch(columns, values, kinds)


def _of_columns(schema: Any, columns: Sequence[str]) -> Any | None:
    """Returns the schema of some columns, so that the others are passed over without a value.

    None where the type of one is defined in a column that is not among them.
    """
    fields = [each for each in schema["fields"] if each["name"] in columns]
    if len(fields) == len(schema["fields"]):
        return None
    try:
        return fastavro.parse_schema({**schema, "fields": fields})
    except UnknownType:
        return None


def _batch(
    columns: Sequence[str], values: list[list[Any]], times: Sequence[pa.DataType | None]
) -> pa.RecordBatch:
    arrays = [
        arrow_column(each) if time is None else _times(each, time)
        for each, time in zip(values, times, strict=True)
    ]
    return pa.record_batch(arrays, names=list(columns))


def _times(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Values whose integers are dates or times; the others stay what they are.

    A file may hold a longer integer than its type allows: that is no date.
    """
    largest = 2 ** (kind.bit_width - 1)
    is_time = [type(value) is int and -largest <= value < largest for value in values]
    times = pa.array(
        [value if is_one else None for value, is_one in zip(values, is_time, strict=True)], kind
    )
    if all(is_one or value is None for value, is_one in zip(values, is_time, strict=True)):
        return times
    types = pa.array([0 if is_one else 1 for is_one in is_time], pa.int8())
    rest = arrow_column(
        [None if is_one else value for value, is_one in zip(values, is_time, strict=True)]
    )
    return pa.UnionArray.from_sparse(types, [times, rest])


def _blocks(file: IO[bytes], marker: bytes, length: int) -> bytes:
    """Returns what lies between the first marker and the first one at ``length`` or after."""
    data = bytearray()
    while True:
        chunk = file.read(_CHUNK_BYTES)
        searched = max(length, len(data) - SYNC_BYTES + 1)
        data += chunk
        last = data.find(marker, searched)
        if last >= 0 or not chunk:
            break
    first = data.find(marker)
    if first < 0 or first >= length:
        return b""
    stop = last + SYNC_BYTES if last >= 0 else len(data)
    return bytes(data[first + SYNC_BYTES : stop])


def _without_times(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_times(each) for each in schema]
    if isinstance(schema, dict):
        return {
            key: _without_times(value) if key in ("type", "fields", "items", "values") else value
            for key, value in schema.items()
            if key != "logicalType" or value == "decimal"
        }
    return schema

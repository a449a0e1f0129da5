"""Avro by byte ranges: blocks between sync markers, decoded by fastavro into columns."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO, Any

import fastavro
import pyarrow as pa

from beam_dp.encoding.units import arrow_column

_BATCH_RECORDS = 2**15
_CHUNK_BYTES = 2**20
_MARKER_BYTES = 16


@dataclass(frozen=True)
class AvroHeader:
    """What stands before the first block of an Avro file.

    Args:
        columns: names of the record's fields.
        header: the header's bytes, with dates and times declared as the integers they are
            (a date that Python cannot hold must not stop the job).
        length: bytes of the header in the file.
        marker: the sync marker that ends the header and each block.
        codec: how blocks are compressed.
    """

    columns: tuple[str, ...]
    header: bytes
    length: int
    marker: bytes
    codec: str


def read_header(file: IO[bytes]) -> AvroHeader:
    """Returns the header of an Avro file, opened at its beginning.

    Raises:
        ValueError: if the file is not an Avro file of records.
    """
    reader = fastavro.block_reader(_Untouched(file))
    length = file.tell()
    schema = json.loads(reader.metadata["avro.schema"])
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("its schema is no record")
    marker = bytes(reader._header["sync"])
    codec = reader.metadata.get("avro.codec", "null")
    columns = tuple(field["name"] for field in schema["fields"])
    return AvroHeader(columns, _write_header(codec, schema, marker), length, marker, codec)


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
    file: IO[bytes], header: AvroHeader, start: int, stop: int, columns: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Yields the records of the blocks whose preceding marker starts in ``[start, stop)``.

    Ranges that cover a file yield each of its records once, wherever they are cut.

    Raises:
        Exception: of many types, if a block is damaged.
    """
    first = header.length - _MARKER_BYTES
    if start <= first:
        start = first
    if start >= stop:
        return
    file.seek(start)
    blocks = _blocks(file, header.marker, stop - start)
    if not blocks:
        return
    values: list[list[Any]] = [[] for _ in columns]
    reader = fastavro.block_reader(
        io.BytesIO(header.header + blocks), handle_unicode_errors="surrogateescape"
    )
    for block in reader:
        records = list(block)
        for name, collected in zip(columns, values, strict=True):
            collected.extend([record[name] for record in records])
        if len(values[0]) >= _BATCH_RECORDS:
            yield _batch(columns, values)
            values = [[] for _ in columns]
    if values[0]:
        yield _batch(columns, values)


def _batch(columns: Sequence[str], values: list[list[Any]]) -> pa.RecordBatch:
    return pa.record_batch([arrow_column(each) for each in values], names=list(columns))


def _blocks(file: IO[bytes], marker: bytes, length: int) -> bytes:
    """Returns what lies between the first marker and the first one at ``length`` or after."""
    data = bytearray()
    while True:
        chunk = file.read(_CHUNK_BYTES)
        searched = max(length, len(data) - _MARKER_BYTES + 1)
        data += chunk
        last = data.find(marker, searched)
        if last >= 0 or not chunk:
            break
    first = data.find(marker)
    if first < 0 or first >= length:
        return b""
    stop = last + _MARKER_BYTES if last >= 0 else len(data)
    return bytes(data[first + _MARKER_BYTES : stop])


def _write_header(codec: str, schema: dict[str, Any], marker: bytes) -> bytes:
    meta = {"avro.codec": codec, "avro.schema": json.dumps(_without_times(schema))}
    target = io.BytesIO()
    fastavro.schemaless_writer(
        target,
        {
            "type": "record",
            "name": "header",
            "fields": [
                {"name": "magic", "type": {"type": "fixed", "name": "magic", "size": 4}},
                {"name": "meta", "type": {"type": "map", "values": "bytes"}},
                {"name": "sync", "type": {"type": "fixed", "name": "sync", "size": _MARKER_BYTES}},
            ],
        },
        {
            "magic": b"Obj\x01",
            "meta": {key: value.encode() for key, value in meta.items()},
            "sync": marker,
        },
    )
    return target.getvalue()


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


class _Untouched:
    """A file as fastavro reads it: byte by byte, so that ``tell`` is where the header ends."""

    def __init__(self, file: IO[bytes]) -> None:
        self.read = file.read

"""Reads schemas and byte ranges of Avro files, compressed with any codec that fastavro supports."""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from beam_dp.domain.schemas.avro import essential
from beam_dp.secret.encoding.layouts import ColumnType, Kind, arrow_kind
from beam_dp.secret.encoding.units import arrow_column
from beam_dp.storage.avro import HEADER, SYNC_BYTES, encode, read_metadata
from beam_dp.transforms.job_page import FileError

# The C decoder recurses once per nesting level, so a record nested too deeply kills the worker.
MAX_DEPTH = 64
_MAX_JSON_DEPTH = 5 * MAX_DEPTH  # a record in a union in a record takes five JSON levels
_TOO_DEEP = f"must have a schema whose records are nested at most {MAX_DEPTH} deep"

Schema = Any  # as JSON

_PRIMITIVES = frozenset(("null", "boolean", "int", "long", "float", "double", "bytes", "string"))
_INTEGERS = ("int", "long")
_UNITS = {"millis": "ms", "micros": "us", "nanos": "ns"}
_TIMES = {
    "date": pa.date32(),
    **{f"timestamp-{name}": pa.timestamp(unit, "UTC") for name, unit in _UNITS.items()},
    **{f"local-timestamp-{name}": pa.timestamp(unit) for name, unit in _UNITS.items()},
}
_KINDS = {
    "null": Kind.UNKNOWN,
    **dict.fromkeys(("boolean", "int", "long", "float", "double"), Kind.NUMBER),
    **dict.fromkeys(("bytes", "string", "fixed"), Kind.TEXT),
    "enum": Kind.SYMBOL,
}
_WITHOUT_LEVELS = ("time-millis", "time-micros", "duration", "big-decimal")


def parse_schema(text: bytes) -> dict[str, Any]:
    """Parses and checks the schema of a file of records."""
    try:
        # fastavro does not check a schema that contains its own marks; ``essential`` removes them.
        schema = json.loads(text, object_hook=essential)
    except RecursionError:
        raise FileError(_TOO_DEEP) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("its schema is not a record")
    _check_json_depth(schema)
    try:
        resolved = fastavro.parse_schema(schema)
    except (SchemaParseException, UnknownType) as error:
        raise FileError(f"must have a valid schema: {' '.join(str(error).split())}") from None
    _check_depth(resolved, 0, {})
    names = [field["name"] for field in resolved["fields"]]
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise FileError(f"must have fields of different names; {repeated!r} is repeated")
    return schema


def column_types(schema: Schema) -> dict[str, ColumnType]:
    """Returns the column type of each field of a record, keyed by field name."""
    resolved = fastavro.parse_schema(schema)
    named: dict[str, Schema] = resolved["__named_schemas"]
    return {field["name"]: _column_type(field["type"], named) for field in resolved["fields"]}


def time_types(schema: Schema) -> dict[str, pa.DataType]:
    """Returns the types of columns whose integers are times; skips unions of two integer types."""
    types = {}
    for field in schema["fields"]:
        integers = [part for part in _union(field["type"]) if _base(part) in _INTEGERS]
        if len(integers) == 1 and (kind := _time_type(integers[0])) is not None:
            types[field["name"]] = kind
    return types


def _union(kind: Schema) -> list[Schema]:
    return kind if isinstance(kind, list) else [kind]


def _column_type(kind: Schema, named: Mapping[str, Schema]) -> ColumnType:
    members = [named.get(part, part) if isinstance(part, str) else part for part in _union(kind)]
    # A union is readable only if a member other than null is readable.
    values = [member for member in members if _stored(member) is not Kind.UNKNOWN] or members
    is_alone = [_base(value) in _INTEGERS for value in values].count(True) < 2
    return ColumnType(
        " or ".join(map(_name, members)),
        frozenset(_meaning(value, is_alone) for value in values),
        stored=frozenset(_stored(value) for value in values),
    )


def _name(kind: Schema) -> str:
    if isinstance(kind, str):
        return kind
    return str(kind.get("logicalType", kind["type"]))


def _stored(kind: Schema) -> Kind:
    """Returns the kind of the stored values: dates and times are stored as integers."""
    return _KINDS.get(_base(kind), Kind.OTHER)


def _base(kind: Schema) -> str:
    return str(kind if isinstance(kind, str) else kind["type"])


def _meaning(kind: Schema, is_alone: bool) -> Kind:
    """Returns the kind of the values; integers of a union of two integer types are not times."""
    stored = _stored(kind)
    if isinstance(kind, str) or stored not in (Kind.TEXT, Kind.NUMBER):
        return stored
    logical: str = kind.get("logicalType", "")
    if (time := _time_type(kind)) is not None:
        return arrow_kind(time) if is_alone else Kind.OTHER
    if logical == "uuid":
        return Kind.UUID if kind["type"] == "string" else Kind.BYTES_OF_UUID
    return Kind.OTHER if logical in _WITHOUT_LEVELS else stored


def _time_type(kind: Schema) -> pa.DataType | None:
    """Returns the Arrow type of a date or time, or None."""
    return _TIMES.get(kind.get("logicalType", "")) if isinstance(kind, dict) else None


def _check_json_depth(schema: Schema) -> None:
    """Checks the depth of JSON without recursion; fastavro's may exceed the stack of a thread."""
    level = [schema]
    for _ in range(_MAX_JSON_DEPTH):
        level = [
            below
            for node in level
            if isinstance(node, (dict, list))
            for below in (node.values() if isinstance(node, dict) else node)
        ]
    if level:
        raise FileError(_TOO_DEEP)


def _check_depth(kind: Schema, level: int, depths: dict[str, int | None]) -> int:
    """Returns how deep a type is nested; ``depths`` maps type names to depths (None: unknown)."""
    if isinstance(kind, str):
        inner = 0 if kind in _PRIMITIVES else depths[kind]
        if inner is None:
            raise FileError(f"must not have a recursive schema: {kind!r} may contain itself")
        if level + inner > MAX_DEPTH:
            raise FileError(_TOO_DEEP)
        return inner
    if level >= MAX_DEPTH:
        raise FileError(_TOO_DEEP)
    below: list[Schema] = kind
    name = None
    if isinstance(kind, dict):
        below = [kind[key] for key in ("items", "values") if key in kind]
        below += [field["type"] for field in kind.get("fields", ())]
        name = kind.get("name")
        depths |= {} if name is None else {name: None}
    depth = 1
    for member in below:
        depth = max(depth, 1 + _check_depth(member, level + 1, depths))
    if name is not None:
        depths[name] = depth
    return depth


_BATCH_RECORDS = 2**15
_CHUNK_BYTES = 2**20


@dataclass(frozen=True)
class AvroHeader:
    """The part of an Avro file before its first block."""

    types: Mapping[str, ColumnType]
    times: Mapping[str, pa.DataType]
    schema: Any  # dates and times as integers: a date beyond Python's range must not stop the job
    header: bytes  # its bytes, with that schema
    length: int  # in the file, in bytes
    marker: bytes


def read_header(file: IO[bytes]) -> AvroHeader:
    """Returns the header of an Avro file, opened at its beginning."""
    metadata, length = read_metadata(file)
    schema = parse_schema(metadata["meta"]["avro.schema"])
    plain = _without_times(schema)
    meta = {
        "avro.schema": json.dumps(plain).encode(),
        "avro.codec": metadata["meta"].get("avro.codec", b"null"),
    }
    header = encode(HEADER, {**metadata, "meta": meta})
    types, times = column_types(schema), time_types(schema)
    return AvroHeader(types, times, plain, header, length, metadata["sync"])


def unreadable_codec(header: AvroHeader) -> str | None:
    """Says why the blocks can't be decompressed here, such as a missing package; None if they can.

    Only the codec's name in the header is used.
    """
    reader = fastavro.block_reader(io.BytesIO(header.header + b"\x02\x00" + header.marker))
    try:
        list(next(reader))
    except ValueError as error:
        # fastavro names the codec or package in its message; an empty block has no other data.
        reason = " ".join(str(error).split())
        return reason if "install" in reason or reason.startswith("Unrecognized codec") else None
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
    """Yields records of the blocks whose sync marker starts in a range."""
    # Ranges that cover a file yield each record once, wherever the ranges are cut.
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
    """Returns the schema of some columns; None if it uses a type defined in another column."""
    fields = [field for field in schema["fields"] if field["name"] in columns]
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
        arrow_column(column) if time is None else _times(column, time)
        for column, time in zip(values, times, strict=True)
    ]
    return pa.record_batch(arrays, names=list(columns))


def _times(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Returns values as dates or times; integers too large for the type stay integers."""
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
    """Returns the bytes from the first sync marker to the first one at ``length`` or later."""
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
        return [_without_times(part) for part in schema]
    if isinstance(schema, dict):
        return {
            key: _without_times(value) if key in ("type", "fields", "items", "values") else value
            for key, value in schema.items()
            if key != "logicalType" or value == "decimal"
        }
    return schema

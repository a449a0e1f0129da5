"""Avro schemas: which are read, and what the types of columns mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import fastavro
import pyarrow as pa

from beam_dp.encoding.column_types import ColumnType, Kind, arrow_kind
from beam_dp.transforms.errors import FileError

# The decoder calls itself for each level of a record, in C: one too deep kills the worker.
MAX_DEPTH = 64
_MAX_JSON_DEPTH = 5 * MAX_DEPTH  # a record in a union in a record takes five
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
_WITHOUT_LEVELS = ("time-millis", "time-micros", "duration")


def parse_schema(text: bytes) -> dict[str, Any]:
    """Returns the schema of a file of records."""
    try:
        # What fastavro writes into a schema that it has checked would make it check no more.
        schema = json.loads(text, object_hook=_without_marks)
    except RecursionError:
        raise FileError(_TOO_DEEP) from None
    if not isinstance(schema, dict) or schema.get("type") != "record":
        raise ValueError("its schema is not a record")
    _check_json_depth(schema)
    _check_depth(fastavro.parse_schema(schema), 0, {})
    return schema


def column_types(schema: Schema) -> dict[str, ColumnType]:
    """Returns what the types of a record's fields mean, by their names."""
    resolved = fastavro.parse_schema(schema)
    named: dict[str, Schema] = resolved["__named_schemas"]
    return {field["name"]: _column_type(field["type"], named) for field in resolved["fields"]}


def time_types(schema: Schema) -> dict[str, pa.DataType]:
    """Returns the columns whose integers are dates or times, with Arrow's types for these.

    Where a union has two types that are stored as integers, which is meant is not known.
    """
    found = {}
    for field in schema["fields"]:
        integers = [each for each in _union(field["type"]) if _base(each) in _INTEGERS]
        if len(integers) == 1 and (kind := _time_type(integers[0])) is not None:
            found[field["name"]] = kind
    return found


def _union(kind: Schema) -> list[Schema]:
    return kind if isinstance(kind, list) else [kind]


def _column_type(kind: Schema, named: Mapping[str, Schema]) -> ColumnType:
    members = [named.get(each, each) if isinstance(each, str) else each for each in _union(kind)]
    # A null alone is no reason to accept a union.
    values = [each for each in members if _stored(each) is not Kind.UNKNOWN] or members
    is_alone = [_base(each) in _INTEGERS for each in values].count(True) < 2
    return ColumnType(
        " or ".join(map(_name, members)),
        frozenset(_meaning(each, is_alone) for each in values),
        stored=frozenset(_stored(each) for each in values),
    )


def _name(kind: Schema) -> str:
    if isinstance(kind, str):
        return kind
    return str(kind.get("logicalType", kind["type"]))


def _stored(kind: Schema) -> Kind:
    """What is read: dates and times as the integers that they are."""
    return _KINDS.get(_base(kind), Kind.OTHER)


def _base(kind: Schema) -> str:
    return str(kind if isinstance(kind, str) else kind["type"])


def _meaning(kind: Schema, is_alone: bool) -> Kind:
    """What values mean; of two types in a union that are stored as integers, none is a time."""
    stored = _stored(kind)
    if isinstance(kind, str) or stored not in (Kind.TEXT, Kind.NUMBER):
        return stored
    logical: str = kind.get("logicalType", "")
    if logical in _TIMES and kind["type"] in _INTEGERS:
        time = _time_type(kind) if is_alone else None
        return Kind.OTHER if time is None else arrow_kind(time)
    if logical == "uuid":
        return Kind.UUID if kind["type"] == "string" else Kind.BYTES_OF_UUID
    # On other types the rest says nothing.
    is_taken = logical in _WITHOUT_LEVELS and kind["type"] in (*_INTEGERS, "fixed")
    return Kind.OTHER if is_taken else stored


def _time_type(kind: Schema) -> pa.DataType | None:
    """Arrow's type for a date or time that is stored in the integer it needs; None for others."""
    time = _TIMES.get(kind.get("logicalType", "")) if isinstance(kind, dict) else None
    is_wide = time is not None and time.bit_width == 64
    return time if _base(kind) == _INTEGERS[is_wide] else None


def _without_marks(parsed: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in parsed.items() if not key.startswith("__")}


def _check_json_depth(schema: Schema) -> None:
    """Without recursion, for what recurses afterwards."""
    level = [schema]
    for _ in range(_MAX_JSON_DEPTH):
        level = [
            below
            for each in level
            if isinstance(each, (dict, list))
            for below in (each.values() if isinstance(each, dict) else each)
        ]
    if level:
        raise FileError(_TOO_DEEP)


def _check_depth(kind: Schema, level: int, depths: dict[str, int | None]) -> int:
    """Returns how deep values of a type are nested: arrays, maps, records and unions in each other.

    ``depths``: of the types that have a name; None while theirs is not known.
    """
    if isinstance(kind, str):
        known = 0 if kind in _PRIMITIVES else depths[kind]
        if known is None:
            raise FileError(f"must have a schema that is not recursive: {kind!r} may hold itself")
        if level + known > MAX_DEPTH:
            raise FileError(_TOO_DEEP)
        return known
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
    for each in below:
        depth = max(depth, 1 + _check_depth(each, level + 1, depths))
    if name is not None:
        depths[name] = depth
    return depth

"""Reads columns from an Avro schema: in a file of records, or in a separate file (.avsc)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from beam_dp.checks import is_integer
from beam_dp.domain.schemas.draft import NESTED, NO_LEVELS, ONLY_NULL, Column, Kind, common_kind
from beam_dp.domain.texts import checked_json
from beam_dp.errors import InputError
from beam_dp.storage.avro import read_metadata

_KINDS: dict[str, Kind] = {
    "boolean": "boolean",
    **dict.fromkeys(("bytes", "fixed", "string"), "categorical"),
    **dict.fromkeys(("double", "float"), "numeric"),
    **dict.fromkeys(("int", "long"), "integer"),
}
_NULLS = ("null", {"type": "null"})
_NAMED = ("enum", "fixed", "record")
_NESTED = ("array", "map", "record")
_LOGICAL = {
    "date": ("int",),
    "time-millis": ("int",),
    "time-micros": ("long",),
    **{f"timestamp-{unit}": ("long",) for unit in ("millis", "micros", "nanos")},
    **{f"local-timestamp-{unit}": ("long",) for unit in ("millis", "micros", "nanos")},
    "decimal": ("bytes", "fixed"),
    "big-decimal": ("bytes",),
    "uuid": ("string", "fixed"),
    "duration": ("fixed",),
}
_FIXED_SIZES = {"uuid": 16, "duration": 12}
# Only these keys decide how values are stored. A wrong default, for example, is no obstacle.
_STORED_BY = ("fields", "items", "name", "namespace", "size", "symbols", "type", "values")
_KEYS = frozenset((*_STORED_BY, "logicalType", "precision", "scale"))


def essential(parsed: dict[str, Any]) -> dict[str, Any]:
    """Returns what decides how values of a schema are stored and read, as Apache's reader does.

    A logical type that is unknown or does not fit its type is ignored, as the specification says,
    ``error`` is a record, and ``{"type": {"type": "int"}}`` is an int. A hook for ``json.loads``.
    """
    kept = {key: value for key, value in parsed.items() if key in _KEYS}
    original = parsed.get("original_name")
    if isinstance(original, str) and parsed.get("doc") == original:
        kept["name"] = original  # a column of a release, whose name Avro does not allow
    inner = kept.get("type")
    if isinstance(inner, dict) and "name" not in kept:
        return inner
    if inner == "error":
        kept["type"] = "record"
    if "logicalType" in kept and not _is_logical(kept):
        del kept["logicalType"]
    return kept


def _is_logical(schema: dict[str, Any]) -> bool:
    """Returns whether a logical type is known and fits the type."""
    logical, size = schema["logicalType"], schema.get("size")
    if not isinstance(logical, str) or schema.get("type") not in _LOGICAL.get(logical, ()):
        return False
    is_fixed = schema["type"] == "fixed"
    if logical != "decimal":
        return not is_fixed or size == _FIXED_SIZES[logical]
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not (is_integer(precision) and is_integer(scale) and 0 <= scale <= precision > 0):
        return False
    if not is_fixed:
        return True
    return is_integer(size) and precision <= math.floor(math.log10(2) * (8 * size - 1))


def avro_file_columns(path: str) -> list[Column]:
    """Returns the columns of the schema in the header of a file, without reading its blocks."""
    try:
        with open(path, "rb") as file:
            text = read_metadata(file)[0]["meta"]["avro.schema"].decode()
    except OSError as error:
        condition = f"must be an Avro file that can be read: {error.strerror}"
        raise InputError("schema", path, condition) from None
    except Exception:
        # Damaged files raise many kinds of errors, whose messages may quote the file.
        raise InputError("schema", path, "must be an Avro file that can be read") from None
    return avro_columns(checked_json("schema", path, text), path)


def avro_columns(schema: Any, source: str) -> list[Column]:
    """Returns the columns of a parsed schema."""
    schema = json.loads(json.dumps(schema), object_hook=essential)
    fields = schema.get("fields") if isinstance(schema, dict) else None
    if not isinstance(fields, list) or schema.get("type") != "record":
        raise InputError("schema", source, "must be an Avro schema of records")
    columns, named = [], dict[str, Any]()
    for place, field in enumerate(fields, start=1):
        if not isinstance(field, dict) or not isinstance(field.get("name"), str):
            raise InputError("schema", source, f"field {place} must be an object with a name")
        columns.append(_column(field["name"], field.get("type"), named))
    return columns


def _column(name: str, schema: Any, named: dict[str, Any]) -> Column:
    _remember(schema, named)
    members = schema if isinstance(schema, list) else [schema]
    given = [named.get(member, member) if isinstance(member, str) else member for member in members]
    values = [_of_one_type(name, member) for member in given if member not in _NULLS]
    if not values:
        return Column.unusable(name, ONLY_NULL)
    return replace(common_kind(values), nullable=len(values) < len(given))


def _of_one_type(name: str, schema: Any) -> Column:
    kind, logical, symbols = schema, None, None
    if isinstance(schema, Mapping):
        kind = schema.get("type")
        logical, symbols = schema.get("logicalType"), schema.get("symbols")
    if kind in _NESTED or isinstance(kind, list | Mapping):
        return Column.unusable(name, NESTED)
    if kind == "enum" and isinstance(symbols, list):
        return Column(name, "categorical").listing(symbols)
    if logical == "date":
        return Column(name, "date")
    if isinstance(logical, str) and logical.removeprefix("local-").startswith("timestamp-"):
        return Column(name, "datetime", has_zone=not logical.startswith("local-"))
    if logical in ("time-millis", "time-micros", "duration", "big-decimal"):
        return Column.unusable(name, NO_LEVELS)
    if logical == "decimal":
        return Column(name, "numeric")
    if isinstance(kind, str) and kind in _KINDS:
        return Column(name, _KINDS[kind])
    return Column.unusable(name, "its type is unknown")


def _remember(schema: Any, named: dict[str, Any]) -> None:
    """Adds the named types that a field declares, for later fields.

    Adds each type with and without its namespace. If several types have one name, the first type is
    used. Types inside records are not added, so a field that names such a type is left out.
    """
    for member in schema if isinstance(schema, list) else [schema]:
        if isinstance(member, Mapping) and member.get("type") in _NAMED:
            name, space = member.get("name"), member.get("namespace")
            if isinstance(name, str):
                for alias in (name, name.rpartition(".")[2], f"{space}.{name}"):
                    named.setdefault(alias, member)

"""Reads columns from JSON Schema, pydantic and BigQuery, and from sizes by column name."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from typing import Any

from beam_dp.checks import is_integer, is_number
from beam_dp.domain.schemas.draft import NESTED, NO_LEVELS, Column, Kind, common_kind
from beam_dp.errors import InputError, public_fault, shown

_JSON_KINDS: dict[str, Kind] = {
    "boolean": "boolean", "integer": "integer", "number": "numeric", "string": "categorical",
}  # fmt: skip
_NUMERIC = ("BIGDECIMAL", "BIGNUMERIC", "DECIMAL", "FLOAT", "FLOAT64", "NUMERIC")
_BIGQUERY_KINDS: dict[str, Kind] = {
    "DATE": "date",
    **dict.fromkeys(("BOOL", "BOOLEAN"), "boolean"),
    **dict.fromkeys(("BYTES", "STRING"), "categorical"),
    **dict.fromkeys(("DATETIME", "TIMESTAMP"), "datetime"),
    **dict.fromkeys(("INT64", "INTEGER"), "integer"),
    **dict.fromkeys(_NUMERIC, "numeric"),
}
_UNTYPED = "its type is not stated"
_SIZES = ("domain", "size")
_CONTINUOUS = ("continuous", "numeric", "numerical", "float", "real")


def model_of(name: str) -> Any:
    """Imports the class ``module:Class`` from the working directory or an installed package."""
    module, _, path = name.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        model: Any = importlib.import_module(module)
        for part in path.split("."):
            model = getattr(model, part)
    except Exception as error:
        # If the module raises an error, only the type of the error is shown.
        fault = public_fault(error) or type(error).__name__
        if "pydantic" in fault:
            fault += ": pip install pydantic"
        condition = f"must name a class that can be imported: {fault}"
        raise InputError("schema", name, condition) from None
    finally:
        sys.path.remove(here)
    return model


def model_columns(model: Any, source: str) -> list[Column]:
    """Returns the columns of a pydantic model."""
    describe = getattr(model, "model_json_schema", None)
    if not isinstance(model, type) or not callable(describe):
        raise InputError("schema", source, "must be a pydantic model: a class of BaseModel")
    try:
        schema = describe()
    except Exception as error:
        condition = f"must be a model that has a JSON schema: {type(error).__name__}"
        raise InputError("schema", source, condition) from None
    return json_schema_columns(schema, source)


def json_schema_columns(schema: Any, source: str) -> list[Column]:
    """Returns the columns of an object that a JSON schema describes."""
    parts = schema.get("$defs") if isinstance(schema, dict) else None
    named = {
        f"#/$defs/{key.replace('~', '~0').replace('/', '~1')}": part
        for key, part in (parts.items() if isinstance(parts, dict) else ())
    }
    wholes = _members(schema, named, set())
    properties = wholes[0].get("properties") if len(wholes) == 1 else None
    if not isinstance(properties, dict):
        raise InputError("schema", source, "must be a JSON schema of an object with properties")
    return [_property(name, part, named) for name, part in properties.items()]


def _property(name: str, schema: Any, named: dict[str, Any]) -> Column:
    members = _members(schema, named, set())
    values = [_of_one_type(name, member) for member in members if member.get("type") != "null"]
    if not values:
        return Column.unusable(name, _UNTYPED)
    listed = [member["enum"] for member in members if isinstance(member.get("enum"), list)]
    nullable = len(values) < len(members) or any(None in enum for enum in listed)
    if {value.kind for value in values} == {"numeric", "categorical"}:
        # pydantic describes a decimal number as a number or a string.
        values = [value for value in values if value.kind == "numeric" or value.values]
    return replace(common_kind(values), nullable=nullable)


def _members(schema: Any, named: dict[str, Any], seen: set[str]) -> list[dict[str, Any]]:
    """Returns the alternatives of a union or a list of types; follows each reference once."""
    name = schema.get("$ref") if isinstance(schema, dict) else None
    if isinstance(name, str):
        if name in seen:
            return []
        seen.add(name)
        return _members(named.get(name), named, seen)
    if not isinstance(schema, dict):
        return [{}]
    for key in ("anyOf", "oneOf", "allOf"):
        parts = schema.get(key)
        if isinstance(parts, list) and (key != "allOf" or len(parts) == 1):
            return [member for part in parts for member in _members(part, named, seen)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": kind} for kind in schema["type"]]
    return [schema]


def _of_one_type(name: str, schema: dict[str, Any]) -> Column:
    kind, form = schema.get("type"), schema.get("format")
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(listed, list):
        column = Column(name, "categorical").listing(
            [value for value in listed if value is not None]
        )
        if column.values:
            return column
    if kind in ("array", "object"):
        return Column.unusable(name, NESTED)
    if kind == "string" and form in ("date", "date-time"):
        return Column(name, "date" if form == "date" else "datetime")
    if kind == "string" and form in ("time", "duration"):
        return Column.unusable(name, NO_LEVELS)
    if not isinstance(kind, str) or kind not in _JSON_KINDS:
        return Column.unusable(name, _UNTYPED)
    column = Column(name, _JSON_KINDS[kind])
    if kind in ("boolean", "string"):
        return column
    column = column.within(schema.get("minimum"), schema.get("maximum"))
    low, high = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    return column.within(low, high, is_open=(True, True))


def bigquery_columns(schema: Any, source: str) -> list[Column]:
    """Returns the columns of a BigQuery schema, as `bq show` or `bq show --schema` prints it."""
    if isinstance(schema, dict) and isinstance(schema.get("schema"), dict):
        schema = schema["schema"]
    fields = schema.get("fields") if isinstance(schema, dict) else schema
    if not isinstance(fields, list):
        raise InputError("schema", source, "must be a BigQuery schema: a list of fields")
    columns = []
    for place, field in enumerate(fields, start=1):
        texts = isinstance(field, dict) and [field.get(key) for key in ("name", "type")]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise InputError("schema", source, f"field {place} must have a name and a type")
        columns.append(_bigquery_column(field))
    return columns


def _bigquery_column(field: dict[str, Any]) -> Column:
    name, kind, mode = field["name"], field["type"].upper(), field.get("mode")
    if mode == "REPEATED" or kind in ("RECORD", "STRUCT"):
        return Column.unusable(name, NESTED)
    if kind in ("TIME", "INTERVAL"):
        return Column.unusable(name, NO_LEVELS)
    if kind not in _BIGQUERY_KINDS:
        return Column.unusable(name, f"values of the type {shown(kind)} have no levels")
    zone = kind == "TIMESTAMP" if _BIGQUERY_KINDS[kind] == "datetime" else None
    return Column(name, _BIGQUERY_KINDS[kind], nullable=mode != "REQUIRED", has_zone=zone)


def sizes_columns(schema: Any, source: str) -> list[Column]:
    """Returns the columns of a domain file of another synthetic-data tool: sizes by column name.

    The file is ``{"age": 85, "sex": 2}`` or, as in PrivMRF, has an object per attribute: ``{"age":
    {"type": "discrete", "domain": 85}}``. Instead of a size, an attribute may have ``values``, or
    ``min`` and ``max``.
    """
    if not isinstance(schema, dict) or not schema:
        raise InputError("schema", source, "must be an object of sizes by name")
    return [_size_column(str(name), entry, source) for name, entry in schema.items()]


def _size_column(name: str, entry: Any, source: str) -> Column:
    fields = entry if isinstance(entry, dict) else {"domain": entry}
    size = next((fields[key] for key in _SIZES if key in fields), None)
    low, high = (fields.get("min"), fields.get("max"))
    values = fields.get("values", size if isinstance(size, list) else None)
    is_continuous = str(fields.get("type", "")).lower() in _CONTINUOUS
    if is_continuous and isinstance(values, list) and len(values) == 2:
        (low, high), values, size = values, None, None
    if is_integer(size) and size >= 1:
        return Column(name, "integer", low=0, high=size - 1, is_domain=True)
    if isinstance(values, list):
        column = Column(name, "categorical").listing(values)
        if column.values:
            return column
    if is_number(low) and is_number(high):
        is_whole = is_integer(low) and is_integer(high) and not is_continuous
        return Column(name, "integer" if is_whole else "numeric").within(low, high)
    condition = f"{shown(name)} must have a size >= 1, a list of values, or min and max"
    raise InputError("schema", source, condition)

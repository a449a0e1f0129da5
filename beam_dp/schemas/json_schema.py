"""Columns of a JSON schema, such as the one that a pydantic model says of itself."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import replace
from typing import Any

from beam_dp.errors import InputError, public_fault
from beam_dp.schemas.columns import NESTED, NO_LEVELS, Column, Kind, common_kind

_KINDS: dict[str, Kind] = {
    "boolean": "boolean",
    "integer": "integer",
    "number": "numeric",
    "string": "categorical",
}


def model_of(name: str) -> Any:
    """Returns the class that ``module:Class`` names, of the working directory or installed.

    Its module is run, as by any import.

    Raises:
        InputError: if there is none.
    """
    module, _, path = name.partition(":")
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except Exception as error:
        # Whatever the module raises, it says no more here than its type.
        fault = public_fault(error) or type(error).__name__
        if "pydantic" in fault:
            fault += ": pip install pydantic"
        condition = f"must name a class that can be imported: {fault}"
        raise InputError("schema", name, condition) from None
    finally:
        sys.path.remove(here)
    return found


def model_columns(model: Any, source: str) -> list[Column]:
    """Returns the columns of a pydantic model.

    Raises:
        InputError: if it is none, or has no JSON schema.
    """
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
    """Returns the columns of an object that a JSON schema describes.

    Args:
        schema: parsed JSON.
        source: where it came from, for messages.

    Raises:
        InputError: if it describes no object.
    """
    parts = schema.get("$defs") if isinstance(schema, dict) else None
    named = {
        f"#/$defs/{key.replace('~', '~0').replace('/', '~1')}": part
        for key, part in (parts.items() if isinstance(parts, dict) else ())
    }
    wholes = _members(schema, named, set())
    properties = wholes[0].get("properties") if len(wholes) == 1 else None
    if not isinstance(properties, dict):
        raise InputError("schema", source, "must be a JSON schema of an object with properties")
    return [_column(name, each, named) for name, each in properties.items()]


def _column(name: str, schema: Any, named: dict[str, Any]) -> Column:
    members = _members(schema, named, set())
    values = [_of_one_type(name, each) for each in members if each.get("type") != "null"]
    if not values:
        return Column.unusable(name, "its type is not said")
    nullable = len(values) < len(members) or any(
        None in each.get("enum", ()) for each in members if isinstance(each.get("enum"), list)
    )
    if {each.kind for each in values} == {"numeric", "categorical"}:
        # A decimal number is described as a number or a text: the texts of numbers are numbers.
        values = [each for each in values if each.kind == "numeric" or each.values]
    return replace(common_kind(values), nullable=nullable)


def _members(schema: Any, named: dict[str, Any], seen: set[str]) -> list[dict[str, Any]]:
    """The schemas of which a value has one: those of unions, and one for each type of a list.

    What is named is looked into once, so that names that lead to each other come to an end.
    """
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
            return [each for part in parts for each in _members(part, named, seen)]
    if isinstance(schema.get("type"), list):
        return [{**schema, "type": kind} for kind in schema["type"]]
    return [schema]


def _of_one_type(name: str, schema: dict[str, Any]) -> Column:
    kind, form = schema.get("type"), schema.get("format")
    listed = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(listed, list):
        column = Column(name, "categorical").listing([each for each in listed if each is not None])
        if column.values:
            return column
    if kind in ("array", "object"):
        return Column.unusable(name, NESTED)
    if kind == "string" and form in ("date", "date-time"):
        return Column(name, "date" if form == "date" else "datetime")
    if kind == "string" and form in ("time", "duration"):
        return Column.unusable(name, NO_LEVELS)
    if not isinstance(kind, str) or kind not in _KINDS:
        return Column.unusable(name, "its type is not said")
    column = Column(name, _KINDS[kind])
    if column.kind not in ("integer", "numeric"):
        return column
    column = column.within(schema.get("minimum"), schema.get("maximum"))
    ends = schema.get("exclusiveMinimum"), schema.get("exclusiveMaximum")
    return column.within(*ends, is_open=(True, True))

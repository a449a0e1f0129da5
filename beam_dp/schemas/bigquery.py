"""Columns of a BigQuery schema, as `bq show --schema` prints it; of `bq show`, that part of it."""

from __future__ import annotations

from typing import Any

from beam_dp.errors import InputError, shown
from beam_dp.schemas.columns import NESTED, NO_LEVELS, Column, Kind

_KINDS: dict[str, Kind] = {
    "BIGDECIMAL": "numeric",
    "BIGNUMERIC": "numeric",
    "BOOL": "boolean",
    "BOOLEAN": "boolean",
    "BYTES": "categorical",
    "DATE": "date",
    "DATETIME": "datetime",
    "DECIMAL": "numeric",
    "FLOAT": "numeric",
    "FLOAT64": "numeric",
    "INT64": "integer",
    "INTEGER": "integer",
    "NUMERIC": "numeric",
    "STRING": "categorical",
    "TIMESTAMP": "datetime",
}


def bigquery_columns(schema: Any, source: str) -> list[Column]:
    """Returns the columns of a schema.

    Args:
        schema: parsed JSON: a list of fields, or an object with one as ``fields`` or
            ``schema.fields``.
        source: where it came from, for messages.

    Raises:
        InputError: if it is none.
    """
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
        columns.append(_column(field))
    return columns


def _column(field: dict[str, Any]) -> Column:
    name, kind, mode = field["name"], field["type"].upper(), field.get("mode")
    if mode == "REPEATED" or kind in ("RECORD", "STRUCT"):
        return Column.unusable(name, NESTED)
    if kind in ("TIME", "INTERVAL"):
        return Column.unusable(name, NO_LEVELS)
    if kind not in _KINDS:
        return Column.unusable(name, f"values of the type {shown(kind)} have no levels")
    zone = kind == "TIMESTAMP" if _KINDS[kind] == "datetime" else None
    return Column(name, _KINDS[kind], nullable=mode != "REQUIRED", has_zone=zone)

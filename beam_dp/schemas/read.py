"""`domain_draft`: which reader a schema needs, and the draft that comes of it."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal

from beam_dp.checks import check_choice
from beam_dp.domain.strict_json import checked_json, json_text
from beam_dp.errors import InputError
from beam_dp.schemas.columns import Column
from beam_dp.schemas.draft import DomainDraft, draft_of

# Where a schema stands, each with the extensions that tell it.
KINDS: dict[str, tuple[str, ...]] = {
    "arrow": (".arrow", ".arrows", ".feather", ".ipc"),
    "avro": (".avro", ".avsc"),
    "bigquery": (),
    "csv": (".csv",),
    "domain": (),
    "json_schema": (),
    "parquet": (".parquet", ".pq"),
    "pydantic": (),
    "sizes": (),
    "sql": (".ddl", ".sql"),
}
_WITHOUT_SCHEMA = (".jsonl", ".ndjson", ".tsv", ".txt", ".xlsx")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def domain_draft(
    source: Any,
    kind: str | None = None,
    *,
    table: str | None = None,
    dialect: str | None = None,
    null: Literal["declared", "none"] = "declared",
) -> DomainDraft:
    """Returns the domain that a declared schema makes, with open points where it says nothing.

    Privacy: only the names, the types and the nullability of the columns of a file or frame of
    records are used: neither statistics, row counts, the values of dictionaries and categories, nor
    any metadata. Two files of one schema give the same draft. The values of an enumeration in Avro,
    SQL or polars were written by people, and must be confirmed. The header of a CSV file is read,
    and no other line.

    Args:
        source: a local file with a schema: Parquet, Arrow, Avro or .avsc, SQL, JSON of BigQuery,
            JSON schema, sizes by name, or a domain file; a CSV file, whose types are all open;
            ``module:Class`` for a pydantic model; or in Python a pandas or polars frame, an Arrow
            table or schema, such a class, or parsed JSON.
        kind: one of ``KINDS``, where neither the extension nor the JSON itself tells.
        table: of SQL: which table.
        dialect: of SQL, as sqlglot names it.
        null: ``"none"`` if null does not occur in the records, although the schema allows it: many
            writers make every column nullable.

    Returns:
        The draft: ``write`` makes the file, ``open_points`` says what to fill in.

    Raises:
        InputError: if the source can't be read, or holds no schema.

    Example:
        >>> draft = domain_draft([{"name": "age", "type": "INT64", "mode": "REQUIRED"}])
        >>> draft.attributes[0]["type"], len(draft.open_points)
        ('integer', 2)
    """
    check_choice("null", null, ("declared", "none"))
    draft = _draft(source, kind, table, dialect)
    return draft.without_null() if null == "none" else draft


def _draft(source: Any, kind: str | None, table: str | None, dialect: str | None) -> DomainDraft:
    if kind is not None:
        check_choice("from", kind, KINDS)
    if isinstance(source, str | os.PathLike):
        return _of_text(os.fspath(source), kind, table, dialect)
    told = f"<{type(source).__name__}>"
    if isinstance(source, dict | list):
        return _of_json(source, kind, told)
    if isinstance(source, type):
        from beam_dp.schemas.json_schema import model_columns

        return draft_of(model_columns(source, source.__name__), source.__name__)
    if type(source).__module__.partition(".")[0] == "pyarrow":
        from beam_dp.schemas.arrow import arrow_columns

        schema = getattr(source, "schema", source)  # of a table, which has records too
        if hasattr(schema, "field"):
            return draft_of(arrow_columns(schema), told)
    from beam_dp.schemas.frames import frame_columns

    columns = frame_columns(source)
    if columns is not None:
        return draft_of(columns, told)
    raise InputError(
        "schema", told, "must be a path, parsed JSON, a pydantic model, a frame or an Arrow schema"
    )


def _of_text(source: str, kind: str | None, table: str | None, dialect: str | None) -> DomainDraft:
    """The draft of a path, of a class that is named, or of JSON text."""
    kind = kind or _kind_of_name(source)
    for name, given in (("table", table), ("dialect", dialect)):
        if given is not None and kind != "sql":
            raise InputError(name, given, "must be given for SQL only")
    if kind == "pydantic":
        from beam_dp.schemas.json_schema import model_columns, model_of

        return draft_of(model_columns(model_of(source), source), source)
    if kind in ("arrow", "avro", "csv", "parquet") and not os.path.exists(source):
        raise InputError("schema", source, "must be a file that exists")
    if kind == "parquet":
        from beam_dp.schemas.arrow import parquet_columns

        return draft_of(parquet_columns(source), source)
    if kind == "csv":
        from beam_dp.schemas.csv_header import csv_columns

        return draft_of(csv_columns(source), source)
    if kind == "arrow":
        from beam_dp.schemas.arrow import ipc_columns

        return draft_of(ipc_columns(source), source)
    if kind == "sql":
        from beam_dp.schemas.sql import sql_columns

        return draft_of(sql_columns(json_text("schema", source), source, table, dialect), source)
    if kind == "avro" and not source.endswith(".avsc"):
        from beam_dp.schemas.avro import avro_file_columns

        return draft_of(avro_file_columns(source), source)
    parsed = checked_json("schema", source, json_text("schema", source))
    return _of_json(parsed, None if kind == "json" else kind, source)


def _kind_of_name(source: str) -> str:
    """The kind that a name tells; ``json`` where what the file holds tells it."""
    suffix = Path(source).suffix.lower()
    if suffix == ".json" or source.lstrip().startswith("{"):
        return "json"
    for kind, suffixes in KINDS.items():
        if suffix in suffixes:
            return kind
    if suffix in _WITHOUT_SCHEMA:
        condition = (
            "must declare types, which such files do not: give the Parquet file, Avro file or SQL"
            " schema that the data came from"
        )
        raise InputError("schema", source, condition)
    if _CLASS.fullmatch(source):
        return "pydantic"
    raise InputError("from", None, f"must say how to read {source!r}: one of {', '.join(KINDS)}")


def _of_json(parsed: Any, kind: str | None, source: str) -> DomainDraft:
    kind = kind or _kind_of_json(parsed)
    if kind == "domain":
        return _of_domain(parsed, source)
    return draft_of(_json_columns(parsed, kind, source), source)


def _kind_of_json(parsed: Any) -> str:
    if isinstance(parsed, list):
        return "bigquery"
    if isinstance(parsed, dict):
        if isinstance(parsed.get("attributes"), list):
            return "domain"
        if parsed.get("type") == "record":
            return "avro"
        if isinstance(parsed.get("properties"), dict) or "$defs" in parsed:
            return "json_schema"
        if isinstance(parsed.get("fields"), list) or isinstance(parsed.get("schema"), dict):
            return "bigquery"
    return "sizes"


def _json_columns(parsed: Any, kind: str, source: str) -> list[Column]:
    if kind == "avro":
        from beam_dp.schemas.avro import avro_columns

        return avro_columns(parsed, source)
    if kind == "bigquery":
        from beam_dp.schemas.bigquery import bigquery_columns

        return bigquery_columns(parsed, source)
    if kind == "json_schema":
        from beam_dp.schemas.json_schema import json_schema_columns

        return json_schema_columns(parsed, source)
    if kind == "sizes":
        from beam_dp.schemas.sizes import sizes_columns

        return sizes_columns(parsed, source)
    raise InputError("from", kind, "must be a kind of JSON: avro, bigquery, json_schema or sizes")


def _of_domain(parsed: Any, source: str) -> DomainDraft:
    """A domain file as it stands, with the points that are still open."""
    entries = parsed.get("attributes") if isinstance(parsed, dict) else None
    if not isinstance(entries, list) or not all(isinstance(each, dict) for each in entries):
        raise InputError("schema", source, "must be a domain file: an object with attributes")
    rest = {key: value for key, value in parsed.items() if key != "attributes"}
    draft = DomainDraft(source, tuple(entries), (), rest)
    if not draft.open_points:
        draft.domain()
    return draft

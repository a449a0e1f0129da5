"""`domain_draft`: chooses the reader for a schema, and creates the draft."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from beam_dp.checks import check_choice
from beam_dp.domain.schemas import json_forms
from beam_dp.domain.schemas.draft import Column, DomainDraft, draft_of
from beam_dp.domain.schemas.file_kinds import (
    EXTENSIONS,
    content_of,
    format_name,
    other_kind,
    read_header,
)
from beam_dp.domain.texts import checked_json, json_text, number_of
from beam_dp.errors import FileError, InputError

# Sources of schemas, with their file extensions.
KINDS: dict[str, tuple[str, ...]] = {
    "arrow": (".arrow", ".arrows", ".feather", ".ipc"),
    "avro": (*EXTENSIONS["avro"], ".avsc"),
    "bigquery": (),
    "csv": EXTENSIONS["csv"],
    "domain": (),
    "json_schema": (),
    "parquet": EXTENSIONS["parquet"],
    "pydantic": (),
    "sizes": (),
    "sql": (".ddl", ".sql"),
}
_JSON_FORMS = {
    "bigquery": json_forms.bigquery_columns,
    "json_schema": json_forms.json_schema_columns,
    "sizes": json_forms.sizes_columns,
}
_YEAR = re.compile("[12][0-9]{3}")
_CLASS = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def domain_draft(
    source: Any,
    kind: str | None = None,
    *,
    table: str | None = None,
    dialect: str | None = None,
    null: Literal["declared", "undiscovered", "none"] = "declared",
    types: Mapping[str, str] | None = None,
    other_types: Literal["declared", "discover", "from_data"] = "declared",
    leave_out: Sequence[str] = (),
) -> DomainDraft:
    """Returns the domain that a schema declares; a release finds the values that it does not.

    Values and bins that a schema leaves open are to be discovered, for a part of the budget of the
    release (``OpenAttribute``). Facts that no release can find are open points.

    Privacy: for a file or frame of records, only the names, types and nullability of the columns
    are used. Statistics, row counts, values of dictionaries and categories, and metadata are not
    used. Two files with the same schema give the same draft. The values of an enumeration in Avro,
    SQL or polars were written by people, and must be confirmed. Only a CSV file's header is read.

    Args:
        source: a local file with a schema: Parquet, Arrow, Avro or .avsc, SQL, JSON of BigQuery,
            JSON schema, sizes by name, or a domain file; a CSV file, whose types are all open;
            ``module:Class`` for a pydantic model; or in Python a pandas or polars frame, an Arrow
            table or schema, a pydantic class, or parsed JSON.
        kind: one of ``KINDS``, for a source whose extension and content do not show the kind.
        table: the name of the table, if the SQL creates several tables.
        dialect: the dialect of the SQL, as sqlglot names it.
        null: ``"none"`` if the records do not contain null although the schema allows null (many
            writers make every column nullable); ``"undiscovered"`` for levels of null only where
            nothing is discovered, because other columns count a missing value elsewhere.
        types: the types of columns whose type a schema leaves open or declares otherwise:
            boolean, categorical, date, datetime, discover, integer or numeric.
        other_types: ``"discover"`` if the release finds the types of all other columns, whatever
            the schema declares; ``"from_data"`` to say on cards that they may follow from records.
        leave_out: columns that get no attribute, such as identifiers.

    Returns:
        The draft: ``write`` writes the domain file, ``open_points`` lists the missing facts.

    Raises:
        InputError: if the source can't be read, or contains no schema.

    Example:
        >>> draft = domain_draft([{"name": "age", "type": "FLOAT64", "mode": "REQUIRED"}])
        >>> draft.attributes[0]["discover"], len(draft.open_points)
        ({'bins': 20}, 0)
    """
    check_choice("null", null, ("declared", "undiscovered", "none"))
    check_choice("other_types", other_types, ("declared", "discover", "from_data"))
    draft = _draft(source, kind, table, dialect)
    if other_types == "discover":
        draft = draft.without_types()
    elif other_types == "from_data":
        draft = replace(draft, rest={**draft.rest, "types_from": "data"})
    draft = draft.with_types(types or {})
    draft = draft.without(leave_out) if leave_out else draft
    if null == "declared":
        return draft
    return draft.without_null(discovered_only=null == "undiscovered")


def _draft(source: Any, kind: str | None, table: str | None, dialect: str | None) -> DomainDraft:
    if kind is not None:
        check_choice("from", kind, KINDS)
    if isinstance(source, str | os.PathLike):
        return _of_text(os.fspath(source), kind, table, dialect)
    name = f"<{type(source).__name__}>"
    if isinstance(source, dict | list):
        return _of_json(source, kind, name)
    if isinstance(source, type):
        return draft_of(json_forms.model_columns(source, source.__name__), source.__name__)
    from beam_dp.domain.schemas.arrow import arrow_columns, frame_columns

    if type(source).__module__.partition(".")[0] == "pyarrow":
        schema = getattr(source, "schema", source)  # for a table, only its schema
        columns = arrow_columns(schema) if hasattr(schema, "field") else None
    else:
        columns = frame_columns(source)
    if columns is not None:
        return draft_of(columns, name)
    condition = "must be a path, parsed JSON, a pydantic model, a frame or an Arrow schema"
    raise InputError("schema", name, condition)


def _of_text(source: str, kind: str | None, table: str | None, dialect: str | None) -> DomainDraft:
    """Returns the draft for a path, a named class, or JSON text."""
    kind = kind or _kind_of_name(source)
    for name, given in (("table", table), ("dialect", dialect)):
        if given is not None and kind != "sql":
            raise InputError(name, given, "must be given for SQL only")
    if kind in ("arrow", "avro", "csv", "parquet") and not os.path.exists(source):
        raise InputError("schema", source, "must be a file that exists")
    if kind == "pydantic":
        columns = json_forms.model_columns(json_forms.model_of(source), source)
    elif kind in ("arrow", "parquet"):
        from beam_dp.domain.schemas.arrow import ipc_columns, parquet_columns

        columns = parquet_columns(source) if kind == "parquet" else ipc_columns(source)
    elif kind == "csv":
        columns = _csv_columns(source)
    elif kind == "sql":
        try:
            from beam_dp.domain.schemas.sql import sql_columns
        except ImportError:
            condition = "must be read by sqlglot: pip install 'beam_dp[sql]'"
            raise InputError("schema", source, condition) from None
        columns = sql_columns(json_text("schema", source), source, table, dialect)
    elif kind == "avro" and not source.endswith(".avsc"):
        from beam_dp.domain.schemas.avro import avro_file_columns

        columns = avro_file_columns(source)
    else:
        parsed = checked_json("schema", source, json_text("schema", source))
        return _of_json(parsed, None if kind == "json" else kind, source)
    return draft_of(columns, source)


def _csv_columns(path: str) -> list[Column]:
    """Returns the columns of a CSV file, all with open types; reads only the first line."""
    try:
        with open(path, "rb") as file:
            names, _ = read_header(content_of(file, path))
    except FileError as error:
        raise InputError("schema", path, str(error)) from None
    except OSError:
        raise InputError("schema", path, "must be a CSV file that can be read") from None
    # A number, other than a year, is a value: the header is missing.
    is_value = any(
        number_of(name.encode()) is not None and not _YEAR.fullmatch(name) for name in names
    )
    if not names or is_value:
        condition = "must start with a header: its first line must name its columns, not by numbers"
        raise InputError("schema", path, condition)
    return [Column(name.strip() and name, "discover", nullable=True) for name in names]


def _kind_of_name(source: str) -> str:
    """Returns the kind of schema by the name; ``json`` if only the content shows the kind."""
    if (named := format_name(source)) is not None:
        return named
    suffix = Path(source).suffix.lower()
    if suffix == ".json" or source.lstrip().startswith("{"):
        return "json"
    for kind, suffixes in KINDS.items():
        if suffix in suffixes:
            return kind
    if os.path.isdir(source):
        raise InputError("schema", source, "is a folder: give one of its files")
    if (other := other_kind(source)) is not None:
        raise InputError("schema", source, other)
    if _CLASS.fullmatch(source):
        return "pydantic"
    raise InputError("from", None, f"must say how to read {source!r}: one of {', '.join(KINDS)}")


def _of_json(parsed: Any, kind: str | None, source: str) -> DomainDraft:
    kind = kind or _kind_of_json(parsed)
    if kind == "domain":
        return _of_domain(parsed, source)
    if kind == "avro":
        from beam_dp.domain.schemas.avro import avro_columns

        return draft_of(avro_columns(parsed, source), source)
    if kind not in _JSON_FORMS:
        condition = "must be a kind of JSON: avro, bigquery, json_schema or sizes"
        raise InputError("from", kind, condition)
    return draft_of(_JSON_FORMS[kind](parsed, source), source)


def _kind_of_json(parsed: Any) -> str:
    if not isinstance(parsed, dict):
        return "bigquery" if isinstance(parsed, list) else "sizes"
    if isinstance(parsed.get("attributes"), list):
        return "domain"
    if parsed.get("type") == "record":
        return "avro"
    if isinstance(parsed.get("properties"), dict) or "$defs" in parsed:
        return "json_schema"
    if isinstance(parsed.get("fields"), list) or isinstance(parsed.get("schema"), dict):
        return "bigquery"
    return "sizes"


def _of_domain(parsed: Any, source: str) -> DomainDraft:
    """Returns a domain file unchanged, with its open points."""
    entries = parsed.get("attributes") if isinstance(parsed, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError("schema", source, "must be a domain file: an object with attributes")
    rest = {key: value for key, value in parsed.items() if key != "attributes"}
    draft = DomainDraft(source, tuple(entries), rest=rest)
    if not draft.open_points:
        draft.domain()
    return draft

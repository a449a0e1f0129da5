"""Columns of Parquet and Arrow files, and of pandas and polars frames.

Only names, types and nullability are used. The reader ignores the metadata of a schema and its
fields (in which pandas stores the number of rows), the rest of a Parquet footer, and the values of
a dictionary. It also ignores the categories of a pandas ``Categorical``, which come from the
records. The categories of a polars ``Enum`` are used, because a person declared these categories.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beam_dp.domain.schemas.draft import NESTED, NO_LEVELS, ONLY_NULL, Column, Kind
from beam_dp.errors import InputError

# Kinds by numpy's letters.
_PANDAS_KINDS: dict[str, Kind] = {
    "b": "boolean", "i": "integer", "u": "integer", "f": "numeric", "M": "datetime",
    "O": "discover",
}  # fmt: skip


def parquet_columns(path: str) -> list[Column]:
    """Returns the columns of a Parquet file."""
    return _columns_of(path, "a Parquet file", pq.read_schema)


def ipc_columns(path: str) -> list[Column]:
    """Returns the columns of an Arrow file (Feather), or of a stream in a file."""
    return _columns_of(path, "an Arrow file or stream", _ipc_schema)


def _ipc_schema(path: str) -> pa.Schema:
    with pa.OSFile(path) as file:
        try:
            return pa.ipc.open_file(file).schema
        except pa.ArrowInvalid:
            file.seek(0)
            return pa.ipc.open_stream(file).schema


def _columns_of(path: str, what: str, read: Callable[[str], pa.Schema]) -> list[Column]:
    try:
        return arrow_columns(read(path))
    except (OSError, pa.ArrowException, ValueError) as error:
        # Arrow's message about a damaged file may quote the file.
        reason = getattr(error, "strerror", None)
        condition = f"must be {what} that can be read" + (f": {reason}" if reason else "")
        raise InputError("schema", path, condition) from None


def arrow_columns(schema: pa.Schema) -> list[Column]:
    """Returns the columns of a schema."""
    return [_column(field.name, field.type, field.nullable) for field in schema]


def _column(name: str, kind: Any, nullable: bool) -> Column:
    types = pa.types
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return _column(name, kind.value_type, nullable)
    if isinstance(kind, pa.BaseExtensionType):
        if kind.extension_name == "arrow.bool8":
            return Column(name, "boolean", nullable)
        return _column(name, kind.storage_type, nullable)
    if types.is_nested(kind):
        return Column.unusable(name, NESTED)
    if types.is_null(kind):
        return Column.unusable(name, ONLY_NULL)
    if types.is_boolean(kind):
        return Column(name, "boolean", nullable)
    if types.is_integer(kind):
        return Column(name, "integer", nullable)
    if types.is_floating(kind) or types.is_decimal(kind):
        return Column(name, "numeric", nullable)
    if types.is_date(kind):
        return Column(name, "date", nullable)
    if types.is_timestamp(kind):
        return Column(name, "datetime", nullable, has_zone=kind.tz is not None)
    if types.is_temporal(kind):
        return Column.unusable(name, NO_LEVELS)
    return Column(name, "categorical", nullable)


def frame_columns(frame: Any) -> list[Column] | None:
    """Returns the columns of a pandas or polars frame, otherwise None; imports neither library."""
    pandas, polars = map(sys.modules.get, ("pandas", "polars"))
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        levels = [frame.index.get_level_values(at) for at in range(frame.index.nlevels)]
        named = [(level.name, level.dtype) for level in levels if level.name is not None]
        return [_pandas_column(*pair) for pair in (*named, *frame.dtypes.items())]
    if polars is not None and isinstance(frame, polars.DataFrame | polars.LazyFrame):
        return [_polars_column(polars, *pair) for pair in frame.collect_schema().items()]
    return None


def _pandas_column(name: object, kind: Any) -> Column:
    if not isinstance(name, str):
        return Column.unusable(str(name), "its name is not text")
    if isinstance(getattr(kind, "pyarrow_dtype", None), pa.DataType):
        return _column(name, kind.pyarrow_dtype, nullable=True)
    pandas = sys.modules["pandas"]
    if isinstance(kind, pandas.CategoricalDtype):
        column = replace(_pandas_column(name, kind.categories.dtype), nullable=True)
        return replace(column, kind="categorical") if column.kind == "discover" else column
    if isinstance(kind, pandas.StringDtype):
        return Column(name, "categorical", nullable=True)
    is_own = isinstance(kind, pandas.api.extensions.ExtensionDtype)
    if kind.kind not in _PANDAS_KINDS or (is_own and kind.kind == "O"):  # intervals and periods
        return Column.unusable(name, NO_LEVELS if kind.kind == "m" else f"{kind} has no levels")
    has_zone = isinstance(kind, pandas.DatetimeTZDtype) if kind.kind == "M" else None
    is_nullable = is_own or kind.kind in "fM"  # NaN and NaT are null
    return Column(name, _PANDAS_KINDS[kind.kind], is_nullable, has_zone)


def _polars_column(polars: Any, name: str, kind: Any) -> Column:
    if kind == polars.Object:
        return Column.unusable(name, "objects have no levels: make them text, for example")
    if isinstance(kind, polars.Enum):
        return Column(name, "categorical", nullable=True).listing(kind.categories.to_list())
    arrow = polars.DataFrame(schema={name: kind}).to_arrow().schema.field(0).type
    return _column(name, arrow, nullable=True)

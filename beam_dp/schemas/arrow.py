"""Columns of the Arrow schema of a Parquet file, or of Arrow's own files.

Only names, types and nullability are looked at. The metadata of a schema and of its fields is not:
that of pandas says how many rows there are. Nor is anything else of a Parquet footer, or the values
of a dictionary.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from beam_dp.errors import InputError
from beam_dp.schemas.columns import NESTED, NO_LEVELS, Column


def parquet_columns(path: str) -> list[Column]:
    """Returns the columns of a Parquet file.

    Raises:
        InputError: if it can't be read.
    """
    try:
        schema = pq.read_schema(path)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _refusal(path, "a Parquet file", error) from None
    return arrow_columns(schema)


def ipc_columns(path: str) -> list[Column]:
    """Returns the columns of an Arrow file (Feather), or of a stream that was written to a file.

    Raises:
        InputError: if it can't be read.
    """
    try:
        with pa.OSFile(path) as file:
            try:
                schema = pa.ipc.open_file(file).schema
            except pa.ArrowInvalid:
                file.seek(0)
                schema = pa.ipc.open_stream(file).schema
    except (OSError, pa.ArrowException, ValueError) as error:
        raise _refusal(path, "an Arrow file or stream", error) from None
    return arrow_columns(schema)


def arrow_columns(schema: pa.Schema) -> list[Column]:
    """Returns the columns of a schema.

    Example:
        >>> arrow_columns(pa.schema([pa.field("age", pa.int8(), nullable=False)]))[0].kind
        'integer'
    """
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
        return Column.unusable(name, "its type admits nothing but null")
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


def _refusal(path: str, what: str, error: Exception) -> InputError:
    # What Arrow says of a damaged file may quote it.
    reason = getattr(error, "strerror", None)
    condition = f"must be {what} that can be read" + (f": {reason}" if reason else "")
    return InputError("schema", path, condition)

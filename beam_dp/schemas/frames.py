"""Columns of a pandas or polars frame, from the types of its columns alone.

The categories of a pandas ``Categorical`` are values that came from the records, and are not looked
at. Those of a polars ``Enum`` were declared by its author.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import pyarrow as pa

from beam_dp.schemas.arrow import arrow_columns
from beam_dp.schemas.columns import NO_LEVELS, Column, Kind

_OBJECTS = "objects have no levels: make them text, for example"
_PANDAS_KINDS: dict[str, Kind] = {
    "b": "boolean",
    "i": "integer",
    "u": "integer",
    "f": "numeric",
    "M": "datetime",
    "O": "open",  # which may hold anything
}


def frame_columns(frame: Any) -> list[Column] | None:
    """Returns the columns of a frame, None if it is none; neither library is loaded for it.

    Example:
        >>> import pandas
        >>> [each.kind for each in frame_columns(pandas.DataFrame({"age": [3], "child": [True]}))]
        ['integer', 'boolean']
    """
    pandas, polars = map(sys.modules.get, ("pandas", "polars"))
    if pandas is not None and isinstance(frame, pandas.DataFrame):
        levels = [frame.index.get_level_values(at) for at in range(frame.index.nlevels)]
        named = [(level.name, level.dtype) for level in levels if level.name is not None]
        return [_pandas_column(*each) for each in (*named, *frame.dtypes.items())]
    if polars is not None and isinstance(frame, polars.DataFrame | polars.LazyFrame):
        return [_polars_column(polars, *each) for each in frame.collect_schema().items()]
    return None


def _pandas_column(name: object, kind: Any) -> Column:
    if not isinstance(name, str):
        return Column.unusable(str(name), "its name is not text")
    if isinstance(getattr(kind, "pyarrow_dtype", None), pa.DataType):
        return _of_arrow(name, kind.pyarrow_dtype)
    pandas = sys.modules["pandas"]
    if isinstance(kind, pandas.CategoricalDtype):
        column = replace(_pandas_column(name, kind.categories.dtype), nullable=True)
        return replace(column, kind="categorical") if column.kind == "open" else column
    if isinstance(kind, pandas.StringDtype):
        return Column(name, "categorical", nullable=True)
    is_own = isinstance(kind, pandas.api.extensions.ExtensionDtype)
    if kind.kind not in _PANDAS_KINDS or (is_own and kind.kind == "O"):  # an interval, a period
        return Column.unusable(name, NO_LEVELS if kind.kind == "m" else f"{kind} has no levels")
    has_zone = isinstance(kind, pandas.DatetimeTZDtype) if kind.kind == "M" else None
    is_nullable = is_own or kind.kind in "fM"  # NaN and NaT are null
    return Column(name, _PANDAS_KINDS[kind.kind], is_nullable, has_zone)


def _polars_column(polars: Any, name: str, kind: Any) -> Column:
    if kind == polars.Object:
        return Column.unusable(name, _OBJECTS)
    if isinstance(kind, polars.Enum):
        return Column(name, "categorical", nullable=True).listing(kind.categories.to_list())
    return _of_arrow(name, polars.DataFrame(schema={name: kind}).to_arrow().schema.field(0).type)


def _of_arrow(name: str, kind: pa.DataType) -> Column:
    (column,) = arrow_columns(pa.schema([pa.field(name, kind)]))
    return column

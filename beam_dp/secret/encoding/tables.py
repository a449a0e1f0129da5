"""Converts in-memory tables of any library, and pandas frames in a pipeline, to Arrow batches.

A function that reads files often yields frames without declaring the type, so only workers see that
elements are frames. Frames are accepted, because refusing a frame on a worker would reveal that the
collection is not empty. A value is read independently of the values of other records.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from beam_dp.domain.attributes import Attribute
from beam_dp.errors import ONE_COLUMN, InputError, UnreadableError
from beam_dp.secret.encoding.layouts import ColumnType, Kind, nearest_column, unfit
from beam_dp.secret.encoding.units import arrow_column


def is_frame_class(kind: type) -> bool:
    """Returns whether objects of a class are pandas frames, without importing pandas."""
    return "pandas" in sys.modules and issubclass(kind, _pandas().DataFrame)


def _pandas() -> Any:
    """Returns the pandas module, which is imported if a frame exists; it has no type stubs."""
    return sys.modules["pandas"]


def frame_batch(frame: Any, columns: Sequence[str]) -> pa.RecordBatch:
    """Returns columns of a frame as an Arrow batch.

    Missing values (NaN, NaT, NA) are null, as in a file that pandas writes, and all values of a
    missing column are null. Named index levels are columns. Several wanted columns of one name are
    refused. Values of mixed types are converted one by one. Subclasses of pandas frames are read
    like pandas frames.
    """
    frame = _pandas().DataFrame(frame)
    return pa.record_batch([_column(frame, name) for name in columns], names=list(columns))


def _column(frame: Any, name: str) -> pa.Array:
    names = _frame_names(frame)
    if names.count(name) > 1:
        raise UnreadableError("column", name, ONE_COLUMN)
    if name not in names:
        return pa.nulls(len(frame))
    place = names.index(name)
    if place < frame.shape[1]:
        return _array(frame.iloc[:, place])
    return _array(_series(frame.index.get_level_values(place - frame.shape[1])))


def _frame_names(frame: Any) -> list[str | None]:
    """Returns the names of the columns, then of the index levels; None if a name is not text."""
    names = (*frame.columns, *frame.index.names)
    return [str(name) if isinstance(name, str) else None for name in names]


def _series(index: Any) -> Any:
    """Returns an index as a series of the index's dtype, so that pandas guesses no dtype."""
    # Before version 3.1, pandas compared each object of an index array with itself.
    values = index.values if isinstance(index.dtype, np.dtype) else index.array
    return _pandas().Series(values, dtype=index.dtype)


def _array(values: Any) -> pa.Array:
    """Returns a series as an Arrow array whose type depends on the dtype, never on a value."""
    pandas, kind = _pandas(), values.dtype
    if isinstance(kind, pandas.CategoricalDtype):
        return _categories(values.cat)
    is_typed = isinstance(kind, pandas.DatetimeTZDtype) or hasattr(values.array, "__arrow_array__")
    if is_typed or (isinstance(kind, np.dtype) and kind.kind != "O"):
        try:
            array = pa.array(values, from_pandas=True)
            return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array
        except (pa.ArrowException, ValueError, TypeError):
            pass  # a type that Arrow lacks, or a string that is not UTF-8
    items = values.astype(object).tolist()
    try:
        missing = values.isna().tolist()
    except Exception:  # pandas compares each value with itself, which may raise
        missing = [_is_missing(value) for value in items]
    pairs = zip(items, missing, strict=True)
    return arrow_column([None if is_missing else value for value, is_missing in pairs])


def _categories(values: Any) -> pa.Array:
    codes = values.codes.to_numpy()
    categories = _array(_series(values.categories))
    if not pa.types.is_union(categories.type):
        return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), categories)
    items = values.categories.tolist()
    return arrow_column([None if code < 0 else items[code] for code in codes.tolist()])


def _is_missing(value: object) -> bool:
    try:
        return _pandas().isna(value) is True
    except Exception:
        return False


_TABLE = (
    "must be a pandas frame, a polars frame that is collected, an Arrow table, or another object"
    " with __arrow_c_stream__"
)
_READABLE = "must be readable as Arrow arrays"


class Table:
    """A table, read once and not copied.

    Pandas frames are read with ``frame_batch``. Other tables are read through Arrow's C stream,
    which pyarrow, polars and DuckDB provide, so polars and DuckDB need not be imported.
    """

    def __init__(self, table: Any) -> None:
        self._frame = table if is_frame_class(type(table)) else None
        self.types: Mapping[str, ColumnType | None]
        self.described: Any  # what `domain_draft` reads: a frame or a schema
        if self._frame is not None:
            frame = self.described = self._frame
            levels = [
                (name, frame.index.get_level_values(i)) for i, name in enumerate(frame.index.names)
            ]
            types = [*frame.dtypes.items(), *((name, level.dtype) for name, level in levels)]
            self.types = {name: _type_of(kind) for name, kind in types if isinstance(name, str)}
            self._names: Sequence[str | None] = _frame_names(frame)
            return
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not hasattr(table, "__arrow_c_stream__"):
            raise InputError("table", type(table).__name__, _TABLE)
        lost = _polars_lost(table)
        try:
            self._reader = pa.RecordBatchReader.from_stream(table.drop(lost) if lost else table)
        except Exception:  # the message of another library may quote a value
            raise InputError("table", type(table).__name__, _READABLE) from None
        schema = self.described = self._reader.schema
        self._names = [*schema.names, *lost]
        self.types = {field.name: ColumnType.of_arrow(field.type) for field in schema} | lost

    def check_column(self, argument: str, column: str, attribute: Attribute | None = None) -> None:
        """Refuses a column that is missing or has a type that the argument can't use."""
        if column not in self.types:
            near = nearest_column(argument, column, self.types)
            if self._frame is not None and not all(isinstance(n, str) for n in self._frame.columns):
                near = "names must be text, as after frame.columns = frame.columns.map(str)"
            raise InputError(argument, column, f"must be a column of the table; {near}")
        if self._names.count(column) > 1:
            raise InputError(argument, column, ONE_COLUMN)
        kind = self.types[column]
        if kind is None:
            return
        wanted = unfit(kind, argument, attribute)
        if wanted is not None:
            condition = f"must be a column of {wanted}; it is {kind.name}"
            raise InputError(argument, column, condition)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the records, once; raises ``UnreadableError``, without the library's message."""
        try:
            if self._frame is not None:
                yield frame_batch(self._frame, columns)
            else:
                yield from self._reader
        except Exception:  # even an OSError from a stream has the library's message
            raise UnreadableError("table", "a column", _READABLE) from None


def _polars_lost(table: Any) -> dict[str, ColumnType]:
    """Returns the columns of a polars frame that can't be read, such as Int128 and Object.

    polars exports Python objects as addresses in memory.
    """
    polars = sys.modules.get("polars")
    lost: dict[str, ColumnType] = {}
    if polars is not None and isinstance(table, polars.DataFrame):
        for name, kind in table.schema.items():
            try:
                pa.RecordBatchReader.from_stream(table.head(0).select(name))
                is_lost = kind == polars.Object
            except Exception:  # Arrow lacks the type
                is_lost = True
            if is_lost:
                lost[name] = ColumnType(str(kind), frozenset((Kind.OTHER,)), is_decodable=False)
    return lost


def _type_of(kind: Any) -> ColumnType | None:
    """Returns the type of a pandas column by its dtype; None if only its values would tell."""
    pandas = _pandas()
    if isinstance(kind, pandas.CategoricalDtype):
        return _type_of(kind.categories.dtype)
    if isinstance(kind, pandas.SparseDtype):
        return _type_of(kind.subtype)
    if isinstance(kind, pandas.DatetimeTZDtype):
        return ColumnType.of_arrow(pa.timestamp(kind.unit, str(kind.tz)))
    if isinstance(getattr(kind, "pyarrow_dtype", None), pa.DataType):
        return ColumnType.of_arrow(kind.pyarrow_dtype)
    if isinstance(kind, pandas.StringDtype):
        return ColumnType.of_arrow(pa.string())
    is_known = not isinstance(kind, pandas.IntervalDtype | pandas.PeriodDtype)
    if is_known and kind.kind == "O":
        return None
    try:
        return ColumnType.of_arrow(pa.from_numpy_dtype(getattr(kind, "numpy_dtype", kind)))
    except (pa.ArrowException, TypeError):  # intervals, periods, complex numbers and long doubles
        return ColumnType(str(kind), frozenset((Kind.OTHER,)), is_decodable=False)

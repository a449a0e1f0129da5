"""Tables in memory, of any library: what their columns are, and their records as Arrow batches."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from beam_dp.domain.attributes import Attribute, nearest_known
from beam_dp.encoding.column_types import ColumnType, unfit
from beam_dp.encoding.frames import frame_batch, is_frame_class
from beam_dp.errors import InputError, UnreadableError

_TABLE = (
    "must be a pandas frame, a polars frame that is collected, an Arrow table, or another object"
    " with __arrow_c_stream__"
)
_READABLE = "must be readable as Arrow arrays"


class Table:
    """A table, read once.

    Pandas frames are read as ``frame_batch`` says; all others through Arrow's C stream, which
    pyarrow, polars and DuckDB have, so that none of these is needed.

    Args:
        table: of the library; it is not copied.

    Raises:
        InputError: if it is none.
    """

    def __init__(self, table: Any) -> None:
        self._frame = table if is_frame_class(type(table)) else None
        self._objects = _polars_objects(table)
        self.types: Mapping[str, pa.DataType | None]
        if self._frame is not None:
            # The type of a column of objects would be that of its values: of the records.
            frame = self._frame
            self.types = {name: None for name in frame.index.names if isinstance(name, str)}
            types = [(name, _type_of(kind)) for name, kind in frame.dtypes.items()]
            self.types |= {name: kind for name, kind in reversed(types) if isinstance(name, str)}
            return
        if isinstance(table, pa.RecordBatch):
            table = pa.Table.from_batches([table])
        if not hasattr(table, "__arrow_c_stream__"):
            raise InputError("table", type(table).__name__, _TABLE)
        try:
            self._reader = pa.RecordBatchReader.from_stream(table)
        except Exception:  # the words of another library, which may quote a value
            raise InputError("table", type(table).__name__, _READABLE) from None
        schema = self._reader.schema
        self.types = dict(zip(reversed(schema.names), reversed(schema.types), strict=True))

    def check_column(self, argument: str, column: str, attribute: Attribute | None = None) -> None:
        """Refuses a column that is not there, or of a type whose values have no levels.

        Args:
            argument: that asks for it.
            column: its name.
            attribute: whose levels it is to hold, if that is what it is for.

        Raises:
            InputError: naming the argument and the nearest column, or the type.
        """
        if column not in self.types:
            near = nearest_known(column, self.types)
            raise InputError(argument, column, f"must be a column of the table; {near}")
        if column in self._objects:
            condition = (
                "must be a column of values; it is Object, which polars exports as addresses in"
                " memory: make it text, for example"
            )
            raise InputError(argument, column, condition)
        found = self.types[column]
        if found is None:
            return
        kind = ColumnType.of_arrow(found)
        wanted = unfit(kind, argument, attribute)
        if wanted is not None:
            condition = f"must be a column of {wanted}; it is {kind.name}"
            raise InputError(argument, column, condition)

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yields the records, once.

        Raises:
            UnreadableError: if the library fails; its own words may quote a record.
        """
        try:
            if self._frame is not None:
                yield frame_batch(self._frame, columns)
            else:
                yield from self._reader
        except Exception:  # an OSError of a stream, too, has the words of the library
            raise UnreadableError("table", "a column", _READABLE) from None


def _polars_objects(table: Any) -> frozenset[str]:
    """The columns of Python objects, if this is a polars frame; polars is not loaded for it."""
    polars = sys.modules.get("polars")
    if polars is None or not isinstance(table, polars.DataFrame):
        return frozenset()
    return frozenset(name for name, kind in table.schema.items() if kind == polars.Object)


def _type_of(kind: Any) -> pa.DataType | None:
    """The Arrow type of a column of pandas, by its declared type alone; None if that tells none."""
    if isinstance(getattr(kind, "pyarrow_dtype", None), pa.DataType):
        return kind.pyarrow_dtype
    try:
        return pa.from_numpy_dtype(kind)
    except (pa.ArrowException, TypeError):
        return None

"""What the transforms accept as records, and how it becomes Arrow batches."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindows
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.windowed_value import WindowedValue

from beam_dp.domain import nearest_known
from beam_dp.encoding.units import arrow_column
from beam_dp.errors import InputError
from beam_dp.transforms.errors import withhold_messages

_BATCH_RECORDS = 2**14


def refuse_windows(records: beam.PCollection[Any]) -> None:
    """Refuses collections that would be released more than once: a pane, a release.

    Raises:
        InputError: if the collection is unbounded, or not in the global window with the default
            trigger.
    """
    if not records.is_bounded:
        raise InputError("records", "an unbounded collection", "must be bounded")
    windowing = records.windowing
    if not windowing.is_default():
        raise InputError(
            "records", str(windowing), "must be in the global window with the default trigger"
        )


class RecordBatches(beam.PTransform):
    """Turns records of any accepted kind into Arrow batches with the columns that are needed.

    Accepted are Arrow batches and tables, dicts, and rows with a schema (beam.Row, NamedTuple).
    A record without a column has null there; an element that is no record is left out.

    Args:
        columns: for each column that is needed, the argument that asks for it.
        integers: columns in which a text means the same as the integer it looks like.

    Raises:
        InputError: when applied to a collection that is windowed, unbounded, or whose schema
            lacks a column.
    """

    def __init__(self, columns: Mapping[str, str], integers: Collection[str] = ()) -> None:
        super().__init__()
        self.columns = dict(columns)
        self.integers = frozenset(integers)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[pa.RecordBatch]:
        """Checks what is public, and buffers rows."""
        refuse_windows(records)
        reader = getattr(records, "reader", None)
        if reader is not None:
            for column, argument in self.columns.items():
                reader.check_column(argument, column)
            reader.need(list(self.columns), self.integers)
            return records
        known = _declared_columns(records.element_type)
        for column, argument in self.columns.items():
            if known is not None and column not in known:
                near = nearest_known(column, known)
                raise InputError(argument, column, f"must be a field of the records; {near}")
        batching = beam.ParDo(_BatchRows(list(self.columns)))
        return records | "Batch rows" >> batching.with_output_types(pa.RecordBatch)


def _declared_columns(element_type: Any) -> list[str] | None:
    """The field names of a type with a schema; None where the type tells nothing."""
    if isinstance(element_type, RowTypeConstraint):
        return [name for name, _ in element_type._fields]
    fields = getattr(element_type, "_fields", None)
    return list(fields) if isinstance(fields, tuple) else None


class _BatchRows(beam.DoFn):
    """Collects rows until they make a batch."""

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns

    def start_bundle(self) -> None:
        self._rows: list[Any] = []

    @withhold_messages
    def process(self, record: Any) -> Sequence[pa.RecordBatch]:
        if isinstance(record, pa.RecordBatch):
            return [record]
        if isinstance(record, pa.Table):
            return list(record.to_batches())
        self._rows.append(record)
        if len(self._rows) >= _BATCH_RECORDS:
            rows, self._rows = self._rows, []
            return [_batch(rows, self.columns)]
        return ()

    @withhold_messages
    def finish_bundle(self) -> Iterator[WindowedValue]:
        rows, self._rows = self._rows, []
        return iter([GlobalWindows.windowed_value(_batch(rows, self.columns))] if rows else [])


def _batch(rows: list[Any], columns: Sequence[str]) -> pa.RecordBatch:
    try:
        values = [[row[column] for row in rows] for column in columns]
    except Exception:  # not all are dicts that have all columns
        rows = [row for row in rows if isinstance(row, Mapping) or _has_fields(row)]
        values = [[_field(row, column) for row in rows] for column in columns]
    return pa.record_batch([arrow_column(each) for each in values], names=list(columns))


def _has_fields(row: object) -> bool:
    return isinstance(row, beam.Row) or hasattr(row, "_fields")


def _field(row: Any, column: str) -> Any:
    return row.get(column) if isinstance(row, Mapping) else getattr(row, column, None)

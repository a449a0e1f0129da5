"""Converts records of all accepted types to Arrow batches, and checks declared types."""

from __future__ import annotations

import abc
import dataclasses
import datetime
import decimal
import enum
import re
import typing
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.pipeline import AppliedPTransform, PipelineVisitor
from apache_beam.typehints import typehints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.timestamp import MAX_TIMESTAMP, Duration, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_dp.domain.attributes import Attribute
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD, warn_of_record_unit
from beam_dp.secret.encoding.layouts import ColumnType, Kind, nearest_column, unfit
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.encoding.tables import frame_batch, is_frame_class
from beam_dp.secret.encoding.units import arrow_column
from beam_dp.transforms.job_page import withhold_messages

LINES = "lines that are no records"
_RECORDS = (
    "must be Arrow batches or tables, pandas frames, mappings, or rows with a schema "
    "(beam.Row, NamedTuple, dataclass)"
)
_COLLECTIONS = (
    typehints.SequenceTypeConstraint,  # also lists, sets, iterables
    typehints.TupleConstraint,
    typehints.IteratorTypeConstraint,
)
_MAPPINGS = (typehints.DictConstraint, typehints.MappingTypeConstraint)
_CLASSES: tuple[tuple[tuple[type, ...], tuple[Kind, ...]], ...] = (
    ((datetime.time, datetime.timedelta, Duration, np.timedelta64, np.ndarray), (Kind.OTHER,)),
    ((datetime.datetime,), (Kind.TIME, Kind.MOMENT)),
    ((Timestamp,), (Kind.MOMENT,)),
    ((datetime.date, np.datetime64), (Kind.TIME,)),
    ((str, bytes), (Kind.TEXT,)),  # including string enumerations
    ((bool, int, float, decimal.Decimal, np.number, np.bool_), (Kind.NUMBER,)),
    ((enum.Enum,), (Kind.OTHER,)),
)


def declared_fields(element_type: Any) -> dict[str, Any] | None:
    """Returns the declared fields of records with their types; None if no fields are declared."""
    if not _may_be_record(element_type):
        raise InputError("records", _name(element_type), _RECORDS)
    if isinstance(element_type, RowTypeConstraint):
        return dict(element_type._fields)
    names = getattr(element_type, "_fields", None)
    if dataclasses.is_dataclass(element_type):
        names = tuple(field.name for field in dataclasses.fields(element_type))
    if not isinstance(names, tuple):
        return None
    try:
        types = typing.get_type_hints(element_type)
    except Exception:  # an annotation names a type that can't be resolved here
        types = {}
    return {name: types.get(name, Any) for name in names}


def check_field(
    argument: str, column: str, fields: Mapping[str, Any], attribute: Attribute | None = None
) -> None:
    """Refuses a column that is not a field, or whose type the argument can't use."""
    if column not in fields:
        near = nearest_column(argument, column, fields)
        raise InputError(argument, column, f"must be a field of the records; {near}")
    kind = convert_to_beam_type(fields[column])
    declared = ColumnType(_name(kind), frozenset(_kinds(kind)))
    wanted = unfit(declared, argument, attribute)
    if wanted is not None:
        condition = f"must be a field of {wanted}; it is {declared.name}"
        raise InputError(argument, column, condition)


def _may_be_record(kind: Any) -> bool:
    if isinstance(kind, typehints.UnionConstraint):
        # For an empty collection, Beam declares a union without members.
        return not kind.union_types or any(map(_may_be_record, kind.union_types))
    if isinstance(kind, type):
        # An object may be of a subclass of the declared class.
        return any(map(_is_record, _derived(kind)))
    return not isinstance(kind, _COLLECTIONS)


def _is_record(kind: type) -> bool:
    if issubclass(kind, (pa.RecordBatch, pa.Table, Mapping, beam.Row)):
        return True
    is_named_tuple = issubclass(kind, tuple) and hasattr(kind, "_fields")
    return is_named_tuple or dataclasses.is_dataclass(kind) or is_frame_class(kind)


def _kinds(kind: Any) -> Iterator[Kind]:
    if isinstance(kind, typehints.UnionConstraint):
        # A union is readable only if a member other than null is readable.
        for member in set(kind.union_types) - {type(None)}:
            yield from _kinds(member)
    elif isinstance(kind, type):
        yield from _kinds_of_class(kind)
    else:
        nested = isinstance(kind, (*_COLLECTIONS, *_MAPPINGS, RowTypeConstraint))
        yield Kind.OTHER if nested else Kind.UNKNOWN


def _kinds_of_class(kind: type) -> tuple[Kind, ...]:
    for classes, meant in _CLASSES:
        if issubclass(kind, classes):
            return meant
    # Compared by name, because importing the module would import a random source.
    is_uuid = (kind.__module__, kind.__name__) == ("uuid", "UUID")
    return (Kind.OTHER if is_uuid or _is_record(kind) else Kind.UNKNOWN,)


def _derived(kind: type) -> Iterator[type]:
    yield kind
    subclasses: list[type] = type.__subclasses__(kind)
    for subclass in subclasses:
        yield from _derived(subclass)


def _name(kind: Any) -> str:
    if isinstance(kind, type):
        return kind.__name__
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", repr(kind))


_BATCH_RECORDS = 2**14


def refuse_windows(records: beam.PCollection[Any], *, may_be_unbounded: bool = False) -> None:
    """Refuses collections that would be released once per pane.

    Every transform of ``beam_dp.transforms`` calls this first; otherwise grouping steps would limit
    a unit's records per pane. Accepts only bounded collections (or unbounded collections, with
    ``may_be_unbounded``) in the global window with Beam's default trigger, accumulation mode,
    allowed lateness and timestamp combiner.
    """
    if not (records.is_bounded or may_be_unbounded):
        raise InputError("records", "an unbounded collection", "must be bounded")
    windowing = records.windowing
    if not windowing.is_default():
        given = f"{type(windowing.windowfn).__name__}, {windowing.triggerfn}"
        condition = (
            "must be in the global window with the default trigger and nothing else set, as after"
            " beam.WindowInto(beam.window.GlobalWindows())"
        )
        raise InputError("records", given, condition)


class RecordBatches(beam.PTransform):
    """Converts records of any accepted type to Arrow batches with the needed columns.

    Accepts Arrow batches and tables, pandas frames, mappings, and rows with a schema (beam.Row,
    NamedTuple, dataclasses). Reads a missing column of a record as null. Leaves out elements that
    are not records.
    """

    def __init__(
        self,
        columns: Mapping[str, str],
        privacy_unit: str,
        integers: Collection[str] = (),
        attributes: Iterable[Attribute] = (),
        *,
        may_be_unbounded: bool = False,
    ) -> None:
        super().__init__()
        self.may_be_unbounded = may_be_unbounded
        self.attributes = {attribute.name: attribute for attribute in attributes}
        self.columns = dict(columns)
        self.unit_is_record = privacy_unit == RECORD
        if not self.unit_is_record:
            self.columns.setdefault(privacy_unit, "privacy_unit")
        self.integers = frozenset(integers)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[pa.RecordBatch]:
        """Checks the declared types, then collects rows in batches."""
        refuse_windows(records, may_be_unbounded=self.may_be_unbounded)
        source = source_of(records)
        if source is not None:
            for column, argument in self.columns.items():
                source.check_column(argument, column, self.attributes.get(column))
            for names in source.schemas.values():
                self._check_unit(names)
            source.reading(records)
            return records
        fields = declared_fields(records.element_type)
        if fields is not None:
            self._check_unit(fields)
            for column, argument in self.columns.items():
                check_field(argument, column, fields, self.attributes.get(column))
        batching = beam.ParDo(_BatchRows(list(self.columns)))
        return records | "Batch rows" >> batching.with_output_types(pa.RecordBatch)

    def _check_unit(self, names: Collection[str]) -> None:
        if not self.unit_is_record:
            return
        warn_of_record_unit(name for name in names if name not in self.columns)
        # Otherwise, a user who means the column would silently get the weaker guarantee.
        if RECORD in names:
            condition = "is also a column of the records: rename that column to say which is meant"
            raise InputError("privacy_unit", RECORD, condition)


class RecordSource(beam.PTransform, abc.ABC):
    """A transform that knows the columns of its records and reads only the needed columns."""

    schemas: Mapping[str, Collection[str]]  # the columns of each file

    @abc.abstractmethod
    def check_column(self, argument: str, column: str, attribute: Attribute | None = None) -> None:
        """Refuses a column that is not read, or whose type the argument can't use."""

    @abc.abstractmethod
    def reading(self, records: beam.PCollection[Any]) -> object:
        """Returns the columns that the steps after ``records`` need; raises if they conflict."""


def source_of(records: beam.PCollection[Any]) -> RecordSource | None:
    """Returns the ``RecordSource`` that outputs the collection; None for any other transform."""
    step = records.producer
    while step is not None and records in step.outputs.values():
        if isinstance(step.transform, RecordSource):
            return step.transform
        step = step.parent
    return None


def lines_of(records: beam.PCollection[Any]) -> beam.PCollection[EncodedBatch] | None:
    """Returns the lines of a collection's files that are no records, at the first attribute."""
    return None if source_of(records) is None else records.producer.outputs.get(LINES)


def takers_of(records: beam.PCollection[Any]) -> tuple[list[RecordBatches], bool]:
    """Returns the ``RecordBatches`` that read a collection, and whether other steps read it too."""
    takers = _Takers(records)
    records.pipeline.visit(takers)
    return takers.takers, takers.others


class _Takers(PipelineVisitor):
    """Finds the steps that use a collection as a main or side input.

    A step belongs to a release if its composite has a ``RecordBatches`` of the collection, too.
    """

    def __init__(self, collection: beam.PCollection[Any]) -> None:
        self.collection = collection
        self.takers: list[RecordBatches] = []
        self.others = False

    def enter_composite_transform(self, step: AppliedPTransform) -> None:
        if self._is_taker(step):
            self.takers.append(step.transform)

    def visit_transform(self, step: AppliedPTransform) -> None:
        if self.collection in (*step.inputs, *(side.pvalue for side in step.side_inputs)):
            self.others |= not any(map(self._is_taker, step.parent.parts))

    def _is_taker(self, step: AppliedPTransform) -> bool:
        return isinstance(step.transform, RecordBatches) and self.collection in step.inputs


class _BatchRows(beam.DoFn):
    """Collects rows in batches."""

    def __init__(self, columns: list[str]) -> None:
        self.columns = columns

    def start_bundle(self) -> None:
        self._rows: list[Any] = []
        self._least = MAX_TIMESTAMP

    @withhold_messages
    def process(
        self, record: Any, timestamp: Timestamp = beam.DoFn.TimestampParam
    ) -> Sequence[Any]:
        kind = type(record)
        if issubclass(kind, pa.RecordBatch):
            return [record]
        if issubclass(kind, pa.Table):
            return list(record.to_batches())
        if is_frame_class(kind):
            return [frame_batch(record, self.columns)]
        self._rows.append(record)
        self._least = min(self._least, timestamp)
        if len(self._rows) >= _BATCH_RECORDS:
            return [beam.window.TimestampedValue(*self._taken())]
        return ()

    @withhold_messages
    def finish_bundle(self) -> Iterator[WindowedValue]:
        return iter(
            [beam.window.GlobalWindows.windowed_value(*self._taken())] if self._rows else []
        )

    def _taken(self) -> tuple[pa.RecordBatch, Timestamp]:
        """Returns the rows collected so far as a batch, and their earliest timestamp."""
        rows, least = self._rows, self._least
        self.start_bundle()
        return _batch(rows, self.columns), least


def _batch(rows: list[Any], columns: Sequence[str]) -> pa.RecordBatch:
    """Returns the elements as columns; reads each element independently of the other elements."""
    values = _values_of_one_kind(rows, columns)
    if values is None:
        read = [taken for row in rows if (taken := _values(row, columns)) is not None]
        values = [[taken[place] for taken in read] for place in range(len(columns))]
    return pa.record_batch([arrow_column(value) for value in values], names=list(columns))


def _values_of_one_kind(rows: list[Any], columns: Sequence[str]) -> list[Sequence[Any]] | None:
    """Returns each column's values if the rows share one type and have all columns; else None."""
    kind = type(rows[0])
    # Mappings other than dict may return values for missing keys.
    if any(type(row) is not kind for row in rows):
        return None
    try:
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            by_name = dict(zip(kind._fields, zip(*rows, strict=True), strict=True))
            return [by_name[column] for column in columns]
        if kind is beam.Row:
            rows = [vars(row) for row in rows]
        elif kind is not dict:
            return None
        return [[row[column] for row in rows] for column in columns]
    except Exception:  # a row lacks a column or fails, which must affect only that row
        return None


def _values(row: Any, columns: Sequence[str]) -> list[Any] | None:
    """Returns a record's values, null for missing columns; None if the row is not a record."""
    kind: Any = type(row)
    try:
        if issubclass(kind, tuple) and hasattr(kind, "_fields"):
            row = dict(zip(kind._fields, row, strict=True))
        elif isinstance(row, beam.Row):
            row = vars(row)  # not ``as_dict()``: a field named ``as_dict`` would hide the method
        elif dataclasses.is_dataclass(row) and not isinstance(row, type):
            row = {field.name: getattr(row, field.name) for field in dataclasses.fields(row)}
        if isinstance(row, Mapping):
            return [row.get(column) for column in columns]
    except Exception:  # a user's class that fails on this record
        pass
    return None

"""Element types that a collection declares, and the columns that they promise."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import re
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.typehints import typehints
from apache_beam.typehints.native_type_compatibility import convert_to_beam_type
from apache_beam.typehints.row_type import RowTypeConstraint
from apache_beam.utils.timestamp import Duration, Timestamp

from beam_dp.domain.attributes import Attribute, nearest_known
from beam_dp.encoding.column_types import ColumnType, Kind, unfit
from beam_dp.encoding.frames import is_frame_class
from beam_dp.errors import InputError

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
    ((str, bytes), (Kind.TEXT,)),  # also where they are members of an enumeration
    ((bool, int, float, decimal.Decimal, np.number, np.bool_), (Kind.NUMBER,)),
    ((enum.Enum,), (Kind.OTHER,)),
)


def declared_fields(element_type: Any) -> dict[str, Any] | None:
    """Returns the fields of records, with their types; None where the type tells nothing.

    Raises:
        InputError: if nothing of this type is a record.
    """
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
    except Exception:  # it names a type that is not known here
        types = {}
    return {name: types.get(name, Any) for name in names}


def check_field(
    argument: str, column: str, fields: Mapping[str, Any], attribute: Attribute | None = None
) -> None:
    """Refuses a column that is no field, or of a type whose values cannot be read.

    Args:
        argument: that asks for it.
        column: its name.
        fields: of the records, with their types.
        attribute: whose levels it is to hold, if that is what it is for.

    Raises:
        InputError: naming the argument and the nearest field, or the type.
    """
    if column not in fields:
        near = nearest_known(column, fields)
        raise InputError(argument, column, f"must be a field of the records; {near}")
    kind = convert_to_beam_type(fields[column])
    declared = ColumnType(_name(kind), frozenset(_kinds(kind)))
    wanted = unfit(declared, argument, attribute)
    if wanted is not None:
        condition = f"must be a field of {wanted}; it is {declared.name}"
        raise InputError(argument, column, condition)


def _may_be_record(kind: Any) -> bool:
    if isinstance(kind, typehints.UnionConstraint):
        # Beam declares the union of no types for a collection of no elements.
        return not kind.union_types or any(map(_may_be_record, kind.union_types))
    if isinstance(kind, type):
        # An object may be of a class that is derived from the one that is declared.
        return any(map(_is_record, _derived(kind)))
    return not isinstance(kind, _COLLECTIONS)


def _is_record(kind: type) -> bool:
    if issubclass(kind, (pa.RecordBatch, pa.Table, Mapping, beam.Row)):
        return True
    return dataclasses.is_dataclass(kind) or _is_named_tuple(kind) or is_frame_class(kind)


def _kinds(kind: Any) -> Iterator[Kind]:
    if isinstance(kind, typehints.UnionConstraint):
        # A null alone is no reason to accept it.
        for each in set(kind.union_types) - {type(None)}:
            yield from _kinds(each)
    elif isinstance(kind, type):
        yield from _kinds_of_class(kind)
    else:
        nested = isinstance(kind, (*_COLLECTIONS, *_MAPPINGS, RowTypeConstraint))
        yield Kind.OTHER if nested else Kind.UNKNOWN


def _kinds_of_class(kind: type) -> tuple[Kind, ...]:
    for classes, meant in _CLASSES:
        if issubclass(kind, classes):
            return meant
    # Not by the class itself: its module can draw, too.
    is_uuid = (kind.__module__, kind.__name__) == ("uuid", "UUID")
    return (Kind.OTHER if is_uuid or _is_record(kind) else Kind.UNKNOWN,)


def _is_named_tuple(kind: type) -> bool:
    return issubclass(kind, tuple) and hasattr(kind, "_fields")


def _derived(kind: type) -> Iterator[type]:
    yield kind
    subclasses: list[type] = type.__subclasses__(kind)
    for each in subclasses:
        yield from _derived(each)


def _name(kind: Any) -> str:
    if isinstance(kind, type):
        return kind.__name__
    return re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", repr(kind))

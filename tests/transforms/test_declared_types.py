"""Types that collections declare are public: those that would make an empty release are refused."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import typing
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from apache_beam.utils.timestamp import Duration, Timestamp
from fakes import guarantee, pipeline
from versions import since

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.sketches.mechanisms import CountSketch
from beam_dp.transforms import EncodeRecords, KeyColumns, ReleaseProjection

if typing.TYPE_CHECKING:
    import fractions

AGE = Domain((IntegerAttribute("age", 0, 9),))
T = typing.TypeVar("T")


def declared(kind: Any) -> beam.PCollection[Any]:
    return pipeline() | beam.Create([None]).with_output_types(kind)


def encode(records: beam.PCollection[Any], unit: str = "record") -> Any:
    return records | EncodeRecords(AGE, unit, as_cells=True)


class Plain:
    """An object with attributes is no record."""


class Person(typing.NamedTuple):
    age: int


@dataclasses.dataclass
class Citizen:
    age: int


class Base:
    """One of those derived from it is a record."""


@dataclasses.dataclass
class Derived(Base):
    age: int


class Plainly(enum.Enum):
    """Whose members are no texts."""

    F = "f"


class Named(enum.StrEnum):
    """Whose members are texts."""

    F = "f"


class Unknown(typing.NamedTuple):
    age: fractions.Fraction


class Lacking(typing.NamedTuple):
    agee: fractions.Fraction


class Fields(typing.TypedDict):
    age: int


@pytest.mark.parametrize(
    "kind",
    [
        typing.Any,
        T,
        object,
        Base,
        Person,
        Citizen,
        Fields,
        beam.Row,
        pa.RecordBatch,
        pa.Table,
        pd.DataFrame,
        pa.StructScalar,
        dict,
        dict[str, int],
        Mapping[str, Any],
        Person | None,
        dict[str, int] | str,
    ],
    ids=str,
)
def test_types_that_may_be_records_are_accepted(kind: Any) -> None:
    encode(declared(kind))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (str, "str"),
        (bytes, "bytes"),
        (int, "int"),
        (float | None, "Union[NoneType, float]"),
        (tuple[str, dict], "Tuple[str, Dict[Any, Any]]"),
        (tuple[Any, ...], "Tuple[Any, ...]"),
        (list[dict[str, int]], "List[Dict[str, int]]"),
        (Iterable[Person], "Iterable[Person]"),
        (set[int], "Set[int]"),
        (typing.Iterator[int], "Iterator[int]"),
        (pd.Series, "Series"),
        (pa.StructArray, "StructArray"),
        (pa.ChunkedArray, "ChunkedArray"),
        (Plain, "Plain"),
        (np.ndarray, "ndarray"),
        (decimal.Decimal, "Decimal"),
        (Timestamp, "Timestamp"),
    ],
    ids=str,
)
def test_types_that_are_no_records_are_refused(kind: Any, name: str) -> None:
    with pytest.raises(InputError) as error:
        encode(declared(kind))
    assert str(error.value) == (
        f"records: {name!r} is refused; must be Arrow batches or tables, pandas frames, mappings, "
        "or rows with a schema (beam.Row, NamedTuple, dataclass)"
    )


def test_what_groups_is_refused() -> None:
    p = pipeline()
    pairs = p | beam.Create([{"age": 5}]) | beam.WithKeys(lambda record: record["age"])
    with pytest.raises(InputError, match=r"records: 'Tuple\[Any, Iterable\[Dict\["):
        encode(pairs | beam.GroupByKey())


def schemas(kind: Any) -> list[Any]:
    """The types of records with one field of this type."""
    return [
        typing.NamedTuple("Tupled", [("age", kind), ("who", kind)]),
        dataclasses.make_dataclass("Classed", [("age", kind), ("who", kind)]),
        beam.typehints.row_type.RowTypeConstraint.from_fields([("age", kind), ("who", kind)]),
    ]


WITHOUT_LEVELS = [
    (Timestamp, "Timestamp"),
    (Duration, "Duration"),
    (datetime.date, "date"),
    (datetime.datetime | None, "Union[NoneType, datetime]"),
    (datetime.time, "time"),
    (datetime.timedelta, "timedelta"),
    (Sequence[int], "Sequence[int]"),
    (list[str] | dict[str, int], "Union[Dict[str, int], List[str]]"),
    (tuple[int, int], "Tuple[int, int]"),
    (Mapping[str, int], "Mapping[str, int]"),
    (Person, "Person"),
    pytest.param(np.ndarray, "ndarray", marks=since("apache-beam", "2.77"), id="ndarray-ndarray"),
    (np.datetime64, "datetime64"),
    (np.timedelta64, "timedelta64"),
    (uuid.UUID | None, "Union[NoneType, UUID]"),
    (Plainly, "Plainly"),
]


@pytest.mark.parametrize(("kind", "name"), WITHOUT_LEVELS, ids=str)
def test_a_field_that_matches_no_level_is_refused(kind: Any, name: str) -> None:
    for schema in schemas(kind):
        with pytest.raises(InputError) as error:
            encode(declared(schema))
        text = str(error.value)
        assert text.startswith("domain: 'age' is refused; must be a field of numbers, text or boo")
        assert name in text or "it is Row(age=" in text
        assert "\n" not in text


@pytest.mark.parametrize("argument", ["key", "weight"])
def test_a_key_or_weight_of_such_a_type_is_refused(argument: str) -> None:
    names = {"key": "clinic", "weight": "cost", argument: "age"}
    fields = [(name, Timestamp if name == "age" else int) for name in names.values()]
    plan = CountSketch(3 * 64).plan(guarantee(), max_sparsity=2)
    release = ReleaseProjection(plan, KeyColumns(names["key"], weight=names["weight"]))
    with pytest.raises(InputError, match=f"{argument}: 'age' is refused; must be a field of numb"):
        declared(typing.NamedTuple("Visit", fields)) | release


@pytest.mark.parametrize(
    "kind",
    [
        int,
        float,
        str,
        bytes,
        bool,
        decimal.Decimal,
        np.int64,
        Named,
        Citizen | float,
        typing.Any,
        int | None,
        typing.Literal["f", "m"],
        int | datetime.date,
        T,
    ],
    ids=str,
)
def test_a_field_that_may_match_a_level_is_accepted(kind: Any) -> None:
    for schema in schemas(kind):
        encode(declared(schema))


def test_a_unit_may_be_of_any_type() -> None:
    fields = [("age", int), ("who", datetime.date)]
    encode(declared(typing.NamedTuple("Visit", fields)), unit="who")


def test_types_that_cannot_be_looked_up_are_accepted() -> None:
    encode(declared(Unknown))
    with pytest.raises(InputError, match="domain: 'age' is refused; must be a field of the rec"):
        encode(declared(Lacking))

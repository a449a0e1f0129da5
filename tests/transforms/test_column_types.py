"""One rule decides which columns have levels, in files of any format and in declared types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import functools
import json
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.utils.timestamp import Timestamp
from fakes import outputs, pipeline, write_avro
from versions import since

from beam_dp.domain.attributes import Attribute, BooleanAttribute, CategoricalAttribute
from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.texts import KEY_TYPES
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.secret.encoding.keys import KeyColumns, key_elements
from beam_dp.secret.encoding.records import encode_column
from beam_dp.transforms.counting.count_keys import EncodeKeys
from beam_dp.transforms.counting.summarise import EncodeRecords
from beam_dp.transforms.reading.formats import FORMATS, Wanted
from beam_dp.transforms.reading.read import ReadRecords
from beam_dp.transforms.reading.records import check_field
from pipelines.check_domain import main as check_domain

SOME = uuid.UUID(int=7)
NOON = datetime.datetime(2020, 1, 2, 12)
DAYS = 18_263
MICROS = DAYS * 86_400 * 10**6 + 12 * 3600 * 10**6
TEXTS = ("0", "1", "true", "f", "7", str(SOME), "x")
OF_TIMES = ["2020-01-02", "2020-01-02T05:00", "2020-01-02T13:00Z"]
# By a letter each; below, the letters of the attributes that have levels for values of a type.
ATTRIBUTES: dict[str, Attribute] = {
    "i": IntegerAttribute("a", 0, 9),
    "n": NumericAttribute("a", (0.0, 5.0, 10.0)),
    "b": BooleanAttribute("a"),
    "c": CategoricalAttribute("a", TEXTS),
    "d": DateAttribute("a", ("2020-01-02", "2020-01-03")),
    "l": DatetimeAttribute("a", ("2020-01-02T00:00", "2020-01-02T12:00")),
    "m": DatetimeAttribute("a", ("2020-01-02T12:00Z", "2020-01-03T00:00Z")),
}
VALUES, TIMES, ALL = "inbc", "dlm", "inbcdlm"


def logical(stored: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": stored, "logicalType": name, **more}


DATE = logical("int", "date")
RECORD = {"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}
INTS = {"type": "array", "items": "int"}, {"type": "map", "values": "int"}
AVRO: dict[str, tuple[Any, list[Any], str]] = {
    "long": ("long", [1, MICROS], VALUES),
    "int": ("int", [1, DAYS], VALUES),
    "float": ("float", [1.0], VALUES),
    "double": ("double", [1.0], VALUES),
    "boolean": ("boolean", [True], VALUES),
    "string": ("string", [*TEXTS, *OF_TIMES], ALL),
    "bytes": ("bytes", [b"1", *(text.encode() for text in OF_TIMES)], ALL),
    "enum": ({"type": "enum", "name": "E", "symbols": ["f", "true"]}, ["f", "true"], "bc"),
    "fixed": ({"type": "fixed", "name": "F", "size": 1}, [b"1"], ALL),
    "decimal": (
        logical("bytes", "decimal", precision=4, scale=1), [decimal.Decimal("1.0")], ALL,
    ),
    "null": ("null", [None], ALL),
    "union": (["null", "string", DATE], ["1", DAYS, *OF_TIMES], ALL),
    "bytes of an unknown logical type": (logical("bytes", "made-up"), [b"1"], ALL),
    "uuid": (logical("string", "uuid"), [str(SOME)], "c"),
    "date": (DATE, [DAYS], "dl"),
    "nullable date": (["null", DATE], [DAYS, None], "dl"),
    "date in 64 bits": (logical("long", "date"), [1], VALUES),  # which is no date, but a number
    "date or timestamp": ([DATE, logical("long", "timestamp-micros")], [], ""),
    "timestamp-millis": (logical("long", "timestamp-millis"), [MICROS // 1000], "m"),
    "timestamp-micros": (logical("long", "timestamp-micros"), [MICROS], "m"),
    "timestamp-nanos": (logical("long", "timestamp-nanos"), [MICROS * 1000], "m"),
    "local-timestamp-millis": (logical("long", "local-timestamp-millis"), [MICROS // 1000], "dl"),
    "local-timestamp-micros": (logical("long", "local-timestamp-micros"), [MICROS], "dl"),
    "local-timestamp-nanos": (logical("long", "local-timestamp-nanos"), [MICROS * 1000], "dl"),
    "time-millis": (logical("int", "time-millis"), [], ""),
    "time-micros": (logical("long", "time-micros"), [], ""),
    "duration": (
        {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, [bytes(12)], "",
    ),
    "array": ({"type": "array", "items": "long"}, [[1]], ""),
    "map": ({"type": "map", "values": "long"}, [{"a": 1}], ""),
    "record": (RECORD, [], ""),
    "array or map": (["null", *INTS], [None, [1], {"a": 1}], ""),
}  # fmt: skip
# Types whose values might be texts of times; these here are not.
NO_TIMES = ("fixed", "decimal", "bytes of an unknown logical type")
NO_KEYS = ("array", "map", "record", "array or map")
# The same meanings in other sources: Arrow's types, and Python's.
ARROW: list[tuple[pa.Array, str]] = [
    *((pa.array([1], kind), VALUES) for kind in (pa.int8(), pa.int32(), pa.float64())),
    *((pa.array([True], kind), VALUES) for kind in (pa.bool_(),)),
    *((pa.array(["1", *OF_TIMES], kind), ALL) for kind in (pa.string(), pa.large_string())),
    (pa.array([b"1", *(text.encode() for text in OF_TIMES)], pa.binary()), ALL),
    (pa.array([decimal.Decimal(1)], pa.decimal128(4, 1)), VALUES),
    (pa.array([None], pa.null()), ALL),
    (pa.array(["1", *OF_TIMES]).dictionary_encode(), ALL),
    (pa.array([], pa.uuid()), ""),
    *((pa.array([NOON.date(), None], kind), "dl") for kind in (pa.date32(), pa.date64())),
    (pa.array([NOON.date(), None]).dictionary_encode(), "dl"),
    *((pa.array([NOON, None], pa.timestamp(unit)), "dl") for unit in ("s", "ms", "us", "ns")),
    *((pa.array([NOON, None], pa.timestamp(unit, "UTC")), "m") for unit in ("ms", "us", "ns")),
    *((pa.array([], kind), "") for kind in (pa.time32("ms"), pa.duration("us"), pa.duration("s"))),
    *((pa.array([], kind), "") for kind in (pa.list_(pa.int8()), pa.map_(pa.string(), pa.int8()))),
    (pa.array([], pa.struct({"x": pa.int8()})), ""),
]
PYTHON: dict[Any, str] = {
    datetime.date: "dl",
    datetime.datetime: TIMES,
    Timestamp: "m",
    str: ALL,
    bytes: ALL,
    datetime.date | None: "dl",
    int: VALUES,
    float: VALUES,
    bool: VALUES,
    datetime.timedelta: "",
    Any: ALL,
}


def accepted(check: Callable[..., None]) -> str:
    """The attributes that a column is accepted for."""
    found = ""
    for letter, attribute in ATTRIBUTES.items():
        try:
            check("domain", "a", attribute=attribute)
        except InputError as error:
            text = str(error)
            assert text.startswith("domain: 'a' is not valid: must be a ") and "\n" not in text
            assert letter in TIMES or "numbers, text or booleans" in text
            assert ("times with a zone" in text) == (letter == "m")
        else:
            found += letter
    return found


def with_levels(columns: Mapping[bool, pa.Array]) -> str:
    """The attributes that have a level for some value; of columns that are read as times or not."""
    return "".join(
        letter
        for letter, attribute in ATTRIBUTES.items()
        if (encode_column(attribute, columns[letter in TIMES]) >= 0).any()
    )


@pytest.mark.parametrize("name", AVRO)
def test_accepts_avro_column_or_key_if_its_type_has_levels_or_is_readable(tmp_path, name):
    kind, values, expected = AVRO[name]
    path = write_avro(tmp_path, kind, values)
    assert accepted(ReadRecords(path).check_column) == expected
    # And these are the attributes that its values do have levels of.
    if values and name != "null":
        columns = {
            is_time: next(
                FORMATS["avro"].batches(path, 0, 2**20, Wanted(["a"], times=["a"] * is_time))
            ).column(0)
            for is_time in (False, True)
        }
        assert with_levels(columns) == (VALUES if name in NO_TIMES else expected)
    for argument in ("key", "weight"):
        if name in NO_KEYS:
            with pytest.raises(InputError, match=f"{argument}: 'a' is not valid: must be a col"):
                ReadRecords(path).check_column(argument, "a")
        else:
            ReadRecords(path).check_column(argument, "a")
    if any(value is not None for value in values):
        (batch,) = FORMATS["avro"].batches(path, 0, 2**20, Wanted(["a"]))
        key = HashKey.draw(1)
        found = [key_elements(batch.column(0), each, key)[1].any() for each in KEY_TYPES]
        assert any(found) == (name not in NO_KEYS)


@pytest.mark.parametrize(
    ("column", "expected"), ARROW, ids=lambda each: str(getattr(each, "type", ""))
)
def test_accepts_parquet_column_if_its_type_has_levels(tmp_path, column, expected):
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"a": column}), path)
    assert accepted(ReadRecords(str(path)).check_column) == expected
    if len(column) > column.null_count:
        assert with_levels({True: column, False: column}) == expected


@pytest.mark.parametrize("kind", PYTHON, ids=str)
def test_accepts_declared_field_if_its_type_has_levels(kind):
    assert accepted(functools.partial(check_field, fields={"a": kind})) == PYTHON[kind]


@pytest.mark.job
def test_dates_and_times_of_jobs_have_levels(tmp_path):
    domain = Domain(
        (
            DateAttribute("day", ("2020-01-01", "2020-01-02", "2020-01-03")),
            DatetimeAttribute(
                "at", ("2020-01-02T00:00Z", "2020-01-02T12:00Z", "2020-01-03T00:00Z")
            ),
        )
    )
    aware = NOON.replace(tzinfo=datetime.UTC)
    rows = [
        {"day": NOON.date(), "at": aware},
        {"day": NOON, "at": Timestamp.from_utc_datetime(aware)},
        {"day": "2020-01-01", "at": "2020-01-02T12:59+01:00"},
        {"day": aware, "at": aware},  # a moment has no day of its own
        {"day": NOON, "at": NOON},
        {"day": DAYS, "at": MICROS},
    ]
    kinds = {name: AVRO[name] for name in ("date", "timestamp-micros")}
    paths = {name: write_avro(tmp_path, *each[:2], name=name) for name, each in kinds.items()}
    sources = {"rows": (beam.Create(rows), domain)} | {
        name: (ReadRecords(paths[name]), Domain((ATTRIBUTES[kinds[name][2][0]],))) for name in kinds
    }
    found = outputs(
        {
            name: lambda p, source=source, domain=domain: (
                p | source | EncodeRecords(domain, "record", as_cells=True)
            )
            for name, (source, domain) in sources.items()
        }
    )
    cells = {name: np.concatenate([b.cells for b in each]) for name, each in found.items()}
    assert {name: sorted(each.tolist()) for name, each in cells.items()} == {
        "rows": [0, 3, 3],
        "date": [0],
        "timestamp-micros": [0],
    }
    for name, (_, _, expected) in kinds.items():
        text = json.dumps({"attributes": [ATTRIBUTES[expected[0]].to_json()]})
        assert check_domain(["--domain", text, "--sample", paths[name]]) == 0


def test_rejects_column_used_both_as_date_and_as_key(tmp_path):
    records = beam.Pipeline() | ReadRecords(write_avro(tmp_path, *AVRO["date"][:2]))
    _ = records | EncodeRecords(Domain((ATTRIBUTES["d"],)), "record", as_cells=True)
    with pytest.raises(InputError, match="'a' is not valid: must not be both dates"):
        _ = records | EncodeKeys(KeyColumns("a"), 1, HashKey.draw(4), "record")


if typing.TYPE_CHECKING:
    import fractions

AGE = Domain((IntegerAttribute("age", 0, 9),))
T = typing.TypeVar("T")


def declared(kind: Any) -> beam.PCollection[Any]:
    return pipeline() | beam.Create([None]).with_output_types(kind)


def encode(records: beam.PCollection[Any], unit: str = "record") -> Any:
    return records | EncodeRecords(AGE, unit, as_cells=True)


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


class Named(enum.StrEnum):
    """Whose members are texts."""

    F = "f"


class Unknown(typing.NamedTuple):
    age: fractions.Fraction


class Lacking(typing.NamedTuple):
    agee: fractions.Fraction


class Fields(typing.TypedDict):
    age: int


RECORDS = [
    *(typing.Any, T, object, Base, Person, Citizen, Fields, beam.Row, pa.RecordBatch, pa.Table),
    *(pd.DataFrame, pa.StructScalar, dict, dict[str, int], Mapping[str, Any], Person | None),
    dict[str, int] | str,
]
FIELDS = [
    *(int, float, str, bytes, bool, decimal.Decimal, np.int64, Named, Citizen | float, typing.Any),
    *(int | None, typing.Literal["f", "m"], int | datetime.date, T),
]


def schemas(kind: Any) -> list[Any]:
    """The types of records with one field of this type."""
    return [
        typing.NamedTuple("Tupled", [("age", kind), ("who", kind)]),
        dataclasses.make_dataclass("Classed", [("age", kind), ("who", kind)]),
        beam.typehints.row_type.RowTypeConstraint.from_fields([("age", kind), ("who", kind)]),
    ]


def test_accepts_types_that_may_be_records_with_levels():
    for kind in (*RECORDS, *(schema for each in FIELDS for schema in schemas(each))):
        encode(declared(kind))
    # A unit may have any type.
    fields = [("age", int), ("who", datetime.date)]
    encode(declared(typing.NamedTuple("Visit", fields)), unit="who")
    encode(declared(Unknown))  # whose hints cannot be resolved
    with pytest.raises(InputError, match="domain: 'age' is not valid: must be a field of the rec"):
        encode(declared(Lacking))


@since("apache-beam", "2.77")
def test_rejects_field_of_numpy_arrays():
    for schema in schemas(np.ndarray):
        with pytest.raises(InputError, match="domain: 'age' is not valid: must be a field of num"):
            encode(declared(schema))

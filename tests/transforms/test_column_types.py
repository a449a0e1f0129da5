"""One rule decides which columns have levels, in files of any format and in declared types."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
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
from fakes import pipeline, write_avro
from versions import since

import beam_dp.transforms.reading.read as read_module
from beam_dp.domain.attributes import Attribute, BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.keys import key_elements
from beam_dp.encoding.records import encode_column
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.sparse import KEY_TYPES
from beam_dp.transforms import EncodeRecords, ReadRecords
from beam_dp.transforms.reading.formats import FORMATS, Wanted

SOME = uuid.UUID(int=7)
TEXTS = ("0", "1", "true", "f", "7", str(SOME), "x")
ATTRIBUTES: list[Attribute] = [
    IntegerAttribute("a", 0, 9),
    NumericAttribute("a", (0.0, 5.0, 10.0)),
    BooleanAttribute("a"),
    CategoricalAttribute("a", TEXTS),
]
CATEGORICAL = ATTRIBUTES[3:]

ALL, NONE = ATTRIBUTES, list[Attribute]()
# An Avro type, values of it, and the attributes that have a level for some value of the type.
AVRO: dict[str, tuple[Any, list[Any], list[Attribute]]] = {
    "long": ("long", [1], ALL),
    "int": ("int", [1], ALL),
    "float": ("float", [1.0], ALL),
    "boolean": ("boolean", [True], ALL),
    "string": ("string", list(TEXTS), ALL),
    "bytes": ("bytes", [b"1"], ALL),
    "enum": (
        {"type": "enum", "name": "E", "symbols": ["f", "true"]},
        ["f", "true"],
        ATTRIBUTES[2:],
    ),
    "fixed": ({"type": "fixed", "name": "F", "size": 1}, [b"1"], ALL),
    "decimal": (
        {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1},
        [decimal.Decimal("1.0")],
        ALL,
    ),
    "null": ("null", [None], ALL),
    "union": (["null", "string", {"type": "int", "logicalType": "date"}], ["1"], ALL),
    "bytes of an unknown logical type": (
        {"type": "bytes", "logicalType": "made-up"},
        [b"1"],
        ALL,
    ),
    "uuid": ({"type": "string", "logicalType": "uuid"}, [str(SOME)], CATEGORICAL),
    "date": ({"type": "int", "logicalType": "date"}, [], NONE),
    "nullable date": (["null", {"type": "int", "logicalType": "date"}], [None], NONE),
    "timestamp-millis": ({"type": "long", "logicalType": "timestamp-millis"}, [], NONE),
    "timestamp-micros": ({"type": "long", "logicalType": "timestamp-micros"}, [], NONE),
    "timestamp-nanos": ({"type": "long", "logicalType": "timestamp-nanos"}, [], NONE),
    "local-timestamp-micros": ({"type": "long", "logicalType": "local-timestamp-micros"}, [], NONE),
    "time-millis": ({"type": "int", "logicalType": "time-millis"}, [], NONE),
    "time-micros": ({"type": "long", "logicalType": "time-micros"}, [], NONE),
    "duration": (
        {"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"},
        [bytes(12)],
        NONE,
    ),
    "array": ({"type": "array", "items": "long"}, [[1]], NONE),
    "map": ({"type": "map", "values": "long"}, [{"a": 1}], NONE),
    "record": ({"type": "record", "name": "I", "fields": [{"name": "x", "type": "int"}]}, [], NONE),
    "array or map": (
        ["null", {"type": "array", "items": "int"}, {"type": "map", "values": "int"}],
        [None, [1], {"a": 1}],
        NONE,
    ),
}
NO_KEYS = ("array", "map", "record", "array or map")
# The same meanings in other sources: Arrow's types, and Python's.
ARROW: dict[str, tuple[pa.DataType, list[Attribute]]] = {
    str(kind): (kind, has)
    for kind, has in [
        *((kind, ALL) for kind in (pa.int8(), pa.float64(), pa.bool_(), pa.string(), pa.binary())),
        *((kind, ALL) for kind in (pa.decimal128(4, 1), pa.null(), pa.large_string())),
        (pa.dictionary(pa.int8(), pa.string()), ALL),
        (pa.uuid(), NONE),
        *((kind, NONE) for kind in (pa.date32(), pa.timestamp("us"), pa.timestamp("ms", "UTC"))),
        *((kind, NONE) for kind in (pa.time32("ms"), pa.duration("us"), pa.list_(pa.int8()))),
        *((kind, NONE) for kind in (pa.map_(pa.string(), pa.int8()), pa.struct({"x": pa.int8()}))),
    ]
}


def accepted(check: Callable[..., None]) -> list[Attribute]:
    """The attributes that a column is accepted for."""
    found = []
    for attribute in ATTRIBUTES:
        try:
            check("domain", "a", attribute=attribute)
        except InputError as error:
            text = str(error)
            assert text.startswith("domain: 'a' is not valid: must be a ") and "\n" not in text
            assert "numbers, text or booleans" in text
        else:
            found.append(attribute)
    check("privacy_unit", "a")
    return found


@pytest.mark.parametrize("name", AVRO)
def test_accepts_avro_column_if_its_type_has_levels(tmp_path, name):
    kind, values, expected = AVRO[name]
    path = write_avro(tmp_path, kind, values)
    assert accepted(ReadRecords(path).check_column) == expected
    # And these are the attributes that its values do have levels of.
    batches = list(FORMATS["avro"].batches(path, 0, 2**20, Wanted(["a"])))
    for attribute in ATTRIBUTES if batches and name != "null" else ():
        codes = encode_column(attribute, batches[0].column(0))
        assert (codes >= 0).any() == (attribute in expected), attribute


@pytest.mark.parametrize("name", AVRO)
def test_accepts_avro_key_or_weight_if_its_type_is_readable(tmp_path, name):
    kind, values, _ = AVRO[name]
    path = write_avro(tmp_path, kind, values)
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


@pytest.mark.parametrize("name", ARROW)
def test_accepts_parquet_column_if_its_type_has_levels(tmp_path, name):
    kind, expected = ARROW[name]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"a": pa.array([], kind)}), path)
    assert accepted(ReadRecords(str(path)).check_column) == expected


@pytest.mark.job
def test_avro_file_whose_column_has_no_levels_stops_the_job(tmp_path, monkeypatch):
    monkeypatch.setattr(read_module, "_CHECKED_FILES", 1)
    write_avro(tmp_path, "long", [1, 2, 3], "a")
    write_avro(tmp_path, AVRO["uuid"][0], [], "b")
    condition = "column 'a' must be of numbers, text or booleans; it is uuid"
    with pytest.raises(Exception, match=rf"b\.avro: {condition}"):  # noqa: SIM117
        with pipeline() as p:
            domain = Domain((IntegerAttribute("a", 0, 9),))
            _ = p | ReadRecords(f"{tmp_path}/*") | EncodeRecords(domain, "record", as_cells=True)


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
def test_accepts_types_that_may_be_records(kind):
    encode(declared(kind))


def schemas(kind: Any) -> list[Any]:
    """The types of records with one field of this type."""
    return [
        typing.NamedTuple("Tupled", [("age", kind), ("who", kind)]),
        dataclasses.make_dataclass("Classed", [("age", kind), ("who", kind)]),
        beam.typehints.row_type.RowTypeConstraint.from_fields([("age", kind), ("who", kind)]),
    ]


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
def test_accepts_field_that_may_have_levels(kind):
    for schema in schemas(kind):
        encode(declared(schema))


@since("apache-beam", "2.77")
def test_rejects_field_of_numpy_arrays():
    for schema in schemas(np.ndarray):
        with pytest.raises(InputError, match="domain: 'age' is not valid: must be a field of num"):
            encode(declared(schema))


def test_unit_may_have_any_type():
    fields = [("age", int), ("who", datetime.date)]
    encode(declared(typing.NamedTuple("Visit", fields)), unit="who")


def test_accepts_types_with_unresolvable_hints():
    encode(declared(Unknown))
    with pytest.raises(InputError, match="domain: 'age' is not valid: must be a field of the rec"):
        encode(declared(Lacking))

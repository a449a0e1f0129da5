"""One rule says which columns have levels, in files of any format and in declared types alike."""

from __future__ import annotations

import datetime
import decimal
import functools
import pathlib
import typing
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet
import pytest
from fakes import pipeline

import beam_dp.transforms.reading.read as read_module
from beam_dp.domain.attributes import Attribute
from beam_dp.domain.listed import BooleanAttribute, CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute, NumericAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.columns import encode_column
from beam_dp.encoding.keys import key_elements
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.sparse import KEY_TYPES
from beam_dp.transforms import EncodeRecords, ReadRecords
from beam_dp.transforms.reading.formats import FORMATS, Wanted
from beam_dp.transforms.reading.records import check_field

SOME = uuid.UUID(int=7)
NOON = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
TEXTS = ("0", "1", "true", "f", "7", str(SOME), "x")
ATTRIBUTES: list[Attribute] = [
    IntegerAttribute("a", 0, 9),
    NumericAttribute("a", (0.0, 5.0, 10.0)),
    BooleanAttribute("a"),
    CategoricalAttribute("a", TEXTS),
]
CATEGORICAL = ATTRIBUTES[3:]

ALL, NONE = ATTRIBUTES, list[Attribute]()
# An Avro type, values of it, and the attributes of which some value of the type has a level.
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


def avro(folder: pathlib.Path, kind: Any, values: list[Any], name: str = "a") -> str:
    path = folder / f"{name}.avro"
    schema = {"type": "record", "name": "r", "fields": [{"name": "a", "type": kind}]}
    with path.open("wb") as file:
        fastavro.writer(file, schema, [{"a": value} for value in values])
    return str(path)


def accepted(check: Callable[..., None]) -> list[Attribute]:
    """The attributes that a column is accepted for."""
    found = []
    for attribute in ATTRIBUTES:
        try:
            check("domain", "a", attribute=attribute)
        except InputError as error:
            text = str(error)
            assert text.startswith("domain: 'a' is refused; must be a ") and "\n" not in text
            assert "numbers, text or booleans" in text
        else:
            found.append(attribute)
    check("privacy_unit", "a")
    return found


@pytest.mark.parametrize("name", AVRO)
def test_an_avro_column_is_accepted_where_its_type_has_levels(
    tmp_path: pathlib.Path, name: str
) -> None:
    kind, values, expected = AVRO[name]
    path = avro(tmp_path, kind, values)
    assert accepted(ReadRecords(path).check_column) == expected
    # And these are the attributes that its values do have levels of.
    batches = list(FORMATS["avro"].batches(path, 0, 2**20, Wanted(["a"])))
    for attribute in ATTRIBUTES if batches and name != "null" else ():
        codes = encode_column(attribute, batches[0].column(0))
        assert (codes >= 0).any() == (attribute in expected), attribute


@pytest.mark.mostly_slow(one_in=3)
@pytest.mark.parametrize("argument", ["key", "weight"])
@pytest.mark.parametrize("name", AVRO)
def test_an_avro_column_is_a_key_or_a_weight_where_its_values_are(
    tmp_path: pathlib.Path, name: str, argument: str
) -> None:
    kind, values, _ = AVRO[name]
    path = avro(tmp_path, kind, values)
    if name in NO_KEYS:
        with pytest.raises(InputError, match=f"{argument}: 'a' is refused; must be a column of n"):
            ReadRecords(path).check_column(argument, "a")
    else:
        ReadRecords(path).check_column(argument, "a")
    if any(value is not None for value in values):
        (batch,) = FORMATS["avro"].batches(path, 0, 2**20, Wanted(["a"]))
        key = HashKey.draw(1)
        found = [key_elements(batch.column(0), each, key)[1].any() for each in KEY_TYPES]
        assert any(found) == (name not in NO_KEYS)


@pytest.mark.parametrize("name", ARROW)
def test_a_parquet_column_is_accepted_where_its_type_has_levels(
    tmp_path: pathlib.Path, name: str
) -> None:
    kind, expected = ARROW[name]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"a": pa.array([], kind)}), path)
    assert accepted(ReadRecords(str(path)).check_column) == expected


def test_refuses_a_parquet_unit_of_8_bytes_which_may_be_addresses(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pa.table({"a": pa.array([b"12345678"], pa.binary(8))}), path)
    reader = ReadRecords(str(path))
    with pytest.raises(InputError, match=r"privacy_unit: 'a' is refused; .*fixed_size_binary\[8\]"):
        reader.check_column("privacy_unit", "a")
    reader.check_column("domain", "a", CategoricalAttribute("a", ("12345678",)))


PYTHON: dict[Any, list[Attribute]] = {
    **dict.fromkeys((int, float, bool, str, bytes, decimal.Decimal, typing.Any), ALL),
    **dict.fromkeys((datetime.date, datetime.datetime, datetime.time, datetime.timedelta), NONE),
    **dict.fromkeys((list[int], Mapping[str, int], uuid.UUID), NONE),
}


@pytest.mark.parametrize("kind", PYTHON, ids=str)
def test_a_declared_field_is_accepted_where_its_type_has_levels(kind: Any) -> None:
    check = functools.partial(check_field, fields={"a": kind})
    assert accepted(check) == PYTHON[kind]


@pytest.mark.parametrize("name", ["date", "array", "uuid"])
def test_a_job_stops_at_an_avro_file_whose_column_has_no_levels(
    tmp_path: pathlib.Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_module, "_CHECKED_FILES", 1)
    avro(tmp_path, "long", [1, 2, 3], "a")
    avro(tmp_path, AVRO[name][0], [], "b")
    condition = f"column 'a' must be of numbers, text or booleans; it is {name}"
    with pytest.raises(Exception, match=rf"b\.avro: {condition}"):  # noqa: SIM117
        with pipeline() as p:
            domain = Domain((IntegerAttribute("a", 0, 9),))
            _ = p | ReadRecords(f"{tmp_path}/*") | EncodeRecords(domain, "record", as_cells=True)


def test_a_refusal_names_the_type_as_the_file_does(tmp_path: pathlib.Path) -> None:
    path = avro(tmp_path, *AVRO["nullable date"][:2])
    with pytest.raises(InputError) as error:
        _ = (
            pipeline()
            | ReadRecords(path)
            | EncodeRecords(Domain((ATTRIBUTES[0],)), "record", as_cells=True)
        )
    assert str(error.value) == (
        "domain: 'a' is refused; must be a column of numbers, text or booleans; "
        f"in {path} it is null or date"
    )

"""Dates and times of every source have levels, and columns of other types are refused for them."""

from __future__ import annotations

import datetime
import functools
import json
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.utils.timestamp import Timestamp
from fakes import outputs, write_avro

from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.records import encode_column
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.transforms import EncodeRecords, KeyColumns, ReadRecords
from beam_dp.transforms.counting.summarise import EncodeKeys
from beam_dp.transforms.reading.formats import FORMATS, Wanted
from beam_dp.transforms.reading.records import check_field
from pipelines.check_domain import main as check_domain

NOON = datetime.datetime(2020, 1, 2, 12)
DATE = DateAttribute("a", ("2020-01-02", "2020-01-03"), nullable=True)
LOCAL = DatetimeAttribute("a", ("2020-01-02T00:00", "2020-01-02T12:00"), nullable=True)
MOMENT = DatetimeAttribute("a", ("2020-01-02T12:00Z", "2020-01-03T00:00Z"), nullable=True)
TIMES = [DATE, LOCAL, MOMENT]
ALL, WALL, ZONED, NONE = TIMES, [DATE, LOCAL], [MOMENT], list[Any]()


def logical(stored: str, name: str) -> dict[str, str]:
    return {"type": stored, "logicalType": name}


DAYS = 18_263
MICROS = DAYS * 86_400 * 10**6 + 12 * 3600 * 10**6
AVRO: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "date": (logical("int", "date"), [DAYS], WALL),
    "nullable date": (["null", logical("int", "date")], [DAYS, None], WALL),
    "date or string": ([logical("int", "date"), "string", "null"], [DAYS, "2020-01-02"], ALL),
    "timestamp-millis": (logical("long", "timestamp-millis"), [MICROS // 1000], ZONED),
    "timestamp-micros": (logical("long", "timestamp-micros"), [MICROS], ZONED),
    "timestamp-nanos": (logical("long", "timestamp-nanos"), [MICROS * 1000], ZONED),
    "local-timestamp-millis": (logical("long", "local-timestamp-millis"), [MICROS // 1000], WALL),
    "local-timestamp-micros": (logical("long", "local-timestamp-micros"), [MICROS], WALL),
    "local-timestamp-nanos": (logical("long", "local-timestamp-nanos"), [MICROS * 1000], WALL),
    "string": ("string", ["2020-01-02", "2020-01-02T12:00Z"], ALL),
    "bytes": ("bytes", [b"2020-01-02"], ALL),
    "int": ("int", [DAYS], NONE),
    "long": ("long", [MICROS], NONE),
    "date in 64 bits": (logical("long", "date"), [DAYS], NONE),
    "double": ("double", [1.0], NONE),
    "boolean": ("boolean", [True], NONE),
    "time of day": (logical("int", "time-millis"), [5], NONE),
    "date or timestamp": ([logical("int", "date"), logical("long", "timestamp-micros")], [], NONE),
    "uuid": (logical("string", "uuid"), [], NONE),
}


def accepted(check: Any) -> list[Any]:
    found = []
    for attribute in TIMES:
        try:
            check("domain", "a", attribute=attribute)
        except InputError as error:
            assert "must be a" in str(error) and "\n" not in str(error)
            assert ("times with a zone" in str(error)) == (attribute is MOMENT)
        else:
            found.append(attribute)
    return found


@pytest.mark.parametrize("name", AVRO)
def test_avro_column_is_accepted_only_by_attributes_that_can_read_its_type(tmp_path, name):
    kind, values, expected = AVRO[name]
    path = write_avro(tmp_path, kind, values)
    assert accepted(ReadRecords(path).check_column) == expected
    for attribute in TIMES if values else ():
        (batch,) = FORMATS["avro"].batches(path, 0, 2**20, Wanted(["a"], times=["a"]))
        codes = encode_column(attribute, batch.column(0)).tolist()
        if "string" in name or name == "bytes":
            continue
        inside = [1 if value is None else 0 if attribute in expected else -1 for value in values]
        assert codes == inside, attribute
    if "or string" in name:
        assert encode_column(DATE, batch.column(0)).tolist() == [0, 0]
        assert encode_column(MOMENT, batch.column(0)).tolist() == [-1, -1]


ARROW: list[tuple[pa.Array, list[Any]]] = [
    (pa.array([NOON.date(), None]), WALL),
    (pa.array([NOON.date(), None], pa.date64()), WALL),
    *((pa.array([NOON, None], pa.timestamp(unit)), WALL) for unit in ("s", "ms", "us", "ns")),
    *((pa.array([NOON, None], pa.timestamp(unit, "UTC")), ZONED) for unit in ("ms", "us", "ns")),
    (pa.array([NOON.date(), None]).dictionary_encode(), WALL),
    (pa.array([None], pa.null()), ALL),
    *((pa.array([1, None], kind), NONE) for kind in (pa.int32(), pa.float64(), pa.duration("s"))),
]


@pytest.mark.parametrize(
    ("column", "expected"), ARROW, ids=lambda each: str(getattr(each, "type", ""))
)
def test_parquet_time_column_is_read_only_by_matching_attributes(tmp_path, column, expected):
    path = str(tmp_path / "a.parquet")
    pyarrow.parquet.write_table(pa.table({"a": column}), path)
    assert accepted(ReadRecords(path).check_column) == expected
    for attribute in TIMES:
        codes = encode_column(attribute, column).tolist()
        assert codes == ([0 if attribute in expected else -1] if len(column) > 1 else []) + [1]


PYTHON: dict[Any, list[Any]] = {
    datetime.date: WALL,
    datetime.datetime: ALL,
    Timestamp: ZONED,
    str: ALL,
    bytes: ALL,
    datetime.date | None: WALL,
    int: NONE,
    float: NONE,
    bool: NONE,
    datetime.timedelta: NONE,
    Any: ALL,
}


@pytest.mark.parametrize("kind", PYTHON, ids=str)
def test_declared_time_field_has_levels(kind):
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
        name: (ReadRecords(paths[name]), Domain((kinds[name][2][0],))) for name in kinds
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
        text = json.dumps({"attributes": [expected[0].to_json()]})
        assert check_domain(["--domain", text, "--sample", paths[name]]) == 0


def test_rejects_column_used_both_as_date_and_as_key(tmp_path):
    records = beam.Pipeline() | ReadRecords(write_avro(tmp_path, *AVRO["date"][:2]))
    _ = records | EncodeRecords(Domain((DATE,)), "record", as_cells=True)
    with pytest.raises(InputError, match="'a' is not valid: must not be both dates"):
        _ = records | EncodeKeys(KeyColumns("a"), 1, HashKey.draw(4), "record")

"""Files are read once, in ranges, and only their needed columns; unsuitable ones are refused."""

import contextlib
import gzip
import json
import os
import pathlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import apache_beam as beam
import fake_amazon_storage
import fake_google_storage
import fastavro
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from fake_storage import FakeStorage
from fakes import COLLECTED, collect, outputs, pipeline, reading
from hypothesis import given, settings, strategies as st

import beam_dp as dp
import beam_dp.transforms.reading.formats as formats
import beam_dp.transforms.reading.read as read_module
from beam_dp.errors import UnreadableError
from beam_dp.secret.encoding.open_values import OpenColumns, encode_values
from beam_dp.secret.encoding.records import encode_cells, encode_records
from beam_dp.secret.encoding.tables import frame_batch
from beam_dp.transforms.counting.summarise import EncodeRecords
from beam_dp.transforms.job_page import FileError
from beam_dp.transforms.reading.avro_blocks import parse_schema
from beam_dp.transforms.reading.formats import FORMATS, Wanted
from beam_dp.transforms.reading.read import timed_files

EXTENSIONS = ["avro", "parquet", "csv", "csv.gz"]


def table(num_records: int, first: int = 0) -> pa.Table:
    ids = np.arange(first, first + num_records)
    return pa.table({"id": ids, "group": ids % 3, "name": [f"n{i % 5}" for i in ids]})


def write(path: pathlib.Path, records: pa.Table) -> None:
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(records, path, row_group_size=100)
    elif path.suffix == ".avro":
        fields = [{"name": name, "type": ["long", "string"]} for name in records.column_names]
        schema = {"type": "record", "name": "r", "fields": fields}
        with path.open("wb") as file:
            fastavro.writer(file, schema, records.to_pylist(), sync_interval=200)
    else:
        sink = pa.BufferOutputStream()
        pyarrow.csv.write_csv(records, sink)
        data = sink.getvalue().to_pybytes()
        path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)


def rows_of(batches: list[pa.RecordBatch]) -> list[dict[str, Any]]:
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [{key: _plain(value) for key, value in row.items()} for row in rows]


def _plain(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@pytest.mark.job
def test_reads_every_file_of_a_pattern(tmp_path, monkeypatch):
    monkeypatch.setattr(formats, "_SPLIT_BYTES", 4000)
    monkeypatch.chdir(tmp_path)
    for extension in EXTENSIONS:
        for name, records in (("a", table(1000)), ("b", table(0)), ("c", table(500, first=1000))):
            write(tmp_path / f"{name}.{extension}", records)
    (tmp_path / "day-1").mkdir()
    write(tmp_path / "day-1" / "one.csv", table(2))
    (tmp_path / "a b").mkdir()
    for name, text in {"1": "x,y\n1,2\n", "2": "z,y,x\n5,4,3\n", "3": ""}.items():
        (tmp_path / "a b" / f"{name}.csv").write_text(text)
    (tmp_path / "people.txt").write_text("x\n1\n")
    two = [{"id": str(i), "group": str(i), "name": f"n{i}"} for i in range(2)]
    columns = [{"x": "1", "y": "2"}, {"x": "3", "y": "4"}]
    all_of_them = [{"name": f"n{i % 5}", "id": str(i)} for i in range(1500)]
    cases: dict[str, tuple[dp.ReadRecords, list[dict[str, str]]]] = {
        **{
            extension: (
                dp.ReadRecords(f"{tmp_path}/*.{extension}", columns=["name", "id"]),
                all_of_them,
            )
            for extension in EXTENSIONS
        },
        **{
            pattern: (dp.ReadRecords(pattern), two)
            for pattern in ("d*/*.csv", "day-1/one.csv", "day-[12]/o?e.csv", "./day-1/*.csv")
        },
        **{
            url: (dp.ReadRecords(f"{url}{tmp_path}/a%20b/*.csv", columns=["x", "y"]), columns)
            for url in ("file://", "FILE://", "file://localhost")
        },
        "a named format": (dp.ReadRecords("people.txt", file_format="csv"), [{"x": "1"}]),
        "the same again": (dp.ReadRecords("people.txt", file_format="csv"), [{"x": "1"}]),
    }
    found = outputs({name: lambda p, read=read: p | read for name, (read, _) in cases.items()})
    for name, (_, expected) in cases.items():
        rows = sorted(rows_of(found[name]), key=lambda row: int(row.get("id", row.get("x", 0))))
        assert rows == expected, name
    monkeypatch.setattr(read_module, "_NAMED_FILES", 3)
    monkeypatch.setattr(read_module, "_CHECKED_FILES", 2)
    (tmp_path / "more").mkdir()
    for i in range(5):
        write(tmp_path / "more" / f"{i}.csv", table(2, first=2 * i))
    read = dp.ReadRecords(f"{tmp_path}/more/*.csv", columns=["id"])
    rows = rows_of(outputs({"found": lambda p: p | read})["found"])
    assert sorted(row["id"] for row in rows) == [str(i) for i in range(10)]


def test_reads_text_as_dictionary_only_if_dictionary_is_short(tmp_path):
    path = tmp_path / "a.parquet"
    records = {"few": [f"n{i % 9}" for i in range(9000)], "all": [f"n{i}" for i in range(9000)]}
    pyarrow.parquet.write_table(pa.table(records), path)
    (batch,) = formats.Parquet().batches(str(path), 0, 1, formats.Wanted(["few", "all"]))
    assert [pa.types.is_dictionary(kind) for kind in batch.schema.types] == [True, False]
    assert batch.to_pydict() == records


@pytest.mark.job
def test_file_that_lost_a_column_stops_the_job(tmp_path):
    write(tmp_path / "a.parquet", table(3))
    reading = dp.ReadRecords(str(tmp_path / "a.parquet"), columns=["id"])
    write(tmp_path / "a.parquet", table(3).drop_columns("id"))
    with pytest.raises(Exception, match=r"a\.parquet: has no column 'id'"), pipeline() as p:
        _ = p | reading


@pytest.fixture
def two_files(tmp_path, monkeypatch) -> pathlib.Path:
    """Two files; only the first is inspected before the job runs."""
    monkeypatch.setattr(read_module, "_CHECKED_FILES", 1)
    for name in ("a", "b"):
        write(tmp_path / f"{name}.parquet", table(3))
    return tmp_path


@pytest.mark.job
def test_file_that_is_looked_into_by_the_job_is_checked_there(two_files):
    days = pa.array([1, 2, 3], pa.date32())
    write(two_files / "b.parquet", table(3).set_column(0, "id", days).append_column("day", days))
    domain = dp.Domain((dp.IntegerAttribute("group", 0, 9),))
    read, unit = dp.ReadRecords(f"{two_files}/*"), EncodeRecords(domain, "id", as_cells=True)
    found = outputs({"encoded": lambda p: p | read | unit})
    assert sum(len(batch.cells) for batch in found["encoded"]) == 6
    lists = pa.nulls(3, pa.list_(pa.field("element", pa.int64())))
    write(two_files / "b.parquet", table(3).set_column(1, "group", lists))
    domain = dp.Domain((dp.IntegerAttribute("group", 0, 9),))
    condition = "column 'group' must be of numbers, text or booleans; it is list<element: int64>"
    with pytest.raises(Exception, match=rf"b\.parquet: {condition}") as error, pipeline() as p:
        _ = p | dp.ReadRecords(f"{two_files}/*") | EncodeRecords(domain, "record", as_cells=True)
    assert type(error.value).__name__ == "ReadError"


AGE = dp.Domain((dp.IntegerAttribute("age", 0, 9),))
HOURS = dp.Domain((dp.IntegerAttribute("hours", 0, 9),))


@pytest.fixture
def path(tmp_path) -> str:
    lines = [f"{i},0{i % 10},{i % 10}" for i in range(20)]
    (tmp_path / "people.csv").write_text("\n".join(["person,age,hours", *lines, ""]))
    return str(tmp_path / "people.csv")


def encode(domain: dp.Domain = AGE, unit: str = "record") -> beam.PTransform:
    return f"Encode {domain.names} {unit}" >> EncodeRecords(domain, unit, as_cells=True)


def own_step(records: beam.PCollection[Any]) -> Any:
    return records | "Own step" >> beam.Map(lambda batch: batch)


def test_reads_only_columns_that_releases_need_or_that_are_named(path):
    p = pipeline()
    records = p | dp.ReadRecords(path)
    _ = records | encode()
    assert reading(p).columns == ["age"] and reading(p).integers == {"age"}
    _ = records | encode(HOURS, unit="person")
    assert reading(p).columns == ["age", "hours", "person"]
    # A unit is the text as it was written, also where another release takes it for a number.
    _ = records | encode(HOURS, unit="age")
    assert reading(p).columns == ["age", "hours", "person"]
    assert reading(p).integers == {"hours"}
    p = pipeline()
    records = p | dp.ReadRecords(path, columns=["hours", "age"])
    _ = records | encode()
    assert reading(p).columns == ["hours", "age"]
    own_step(records)
    assert reading(p).columns == ["hours", "age"] and not reading(p).integers


CONSUMERS: dict[str, Callable[[Any], Any]] = {
    "a step": own_step,
    "a composite": lambda records: records | "Sum" >> beam.CombineGlobally(lambda batches: None),
    "a flatten": lambda records: (records, records) | beam.Flatten(),
    "a side input": lambda records: (
        records.pipeline
        | beam.Create([None])
        | beam.Map(lambda _, batches: None, beam.pvalue.AsList(records))
    ),
    "a windowing": lambda records: records | beam.WindowInto(beam.window.FixedWindows(60)),
}


@pytest.mark.parametrize("comes_first", [True, False])
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_reads_all_columns_as_text_if_another_step_uses_them(path, consumer, comes_first):
    p = pipeline()
    records = p | dp.ReadRecords(path)
    if comes_first:
        CONSUMERS[consumer](records)
    _ = records | encode()
    if not comes_first:
        CONSUMERS[consumer](records)
    assert reading(p).columns is None and not reading(p).integers


@pytest.mark.job
def test_release_after_a_user_step_has_its_columns(path):
    with pipeline() as p:
        records = p | dp.ReadRecords(path)
        _ = records | encode() | collect("ages")
        _ = own_step(records) | encode(HOURS, unit="age") | collect("hours")
    assert [batch.cells.tolist() for batch in COLLECTED["ages"]] == [[*range(10), *range(10)]]
    (batch,) = COLLECTED["hours"]
    assert batch.cells.tolist() == [*range(10), *range(10)]
    texts = [{"age": f"0{i}", "hours": 1} for i in range(10)]
    assert batch.units.T.tolist()[:10] == [unit_of(each) for each in texts]


def unit_of(record: dict[str, Any]) -> list[int]:
    (batch,) = [record] | encode(HOURS, unit="age")
    return batch.units[:, 0].tolist()


def numbered(count: int, read: list[int], fails_at: int | None = None) -> Iterator[pa.RecordBatch]:
    for number in range(count):
        if number == fails_at:
            raise OSError("damaged")
        read.append(number)
        yield pa.record_batch({"number": [number]})


@given(taken=st.integers(1, 5))
def test_reads_only_one_batch_ahead(taken):
    read: list[int] = []
    batches = formats._read_ahead(numbered(9, read))
    for _ in range(taken):
        next(batches)
    batches.close()  # waits for the thread
    assert len(read) == taken + 1


def test_yields_batches_before_an_error():
    batches = formats._read_ahead(numbered(9, [], fails_at=2))
    assert [next(batches)["number"][0].as_py() for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="damaged"):
        next(batches)


@settings(max_examples=20, deadline=None)
@given(rows=st.integers(0, 300), group=st.integers(1, 90), batch=st.integers(1, 120))
def test_reads_all_rows_of_a_range_in_order(tmp_path_factory, rows, group, batch):
    path = str(pathlib.Path(tmp_path_factory.mktemp("rows"), "rows.parquet"))
    table = pa.table({"number": np.arange(rows), "text": [f"t{i % 7}" for i in range(rows)]})
    pyarrow.parquet.write_table(table, path, row_group_size=group)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats, "_BATCH_RECORDS", batch)
        groups = pyarrow.parquet.ParquetFile(path).num_row_groups
        middle = groups // 2
        found = [
            number
            for start, stop in ((0, middle), (middle, groups))
            for each in FORMATS["parquet"].batches(path, start, stop, Wanted(["number"]))
            for number in each["number"].to_pylist()
        ]
    assert found == list(range(rows))


DOMAIN = dp.Domain((dp.IntegerAttribute("age", 0, 9),))
PLAIN = pa.table({"who": [1, 2], "age": [3, 4]})
REPEATED = PLAIN.append_column("who", pa.array([7, 7]))


def untyped(elements: list[Any]) -> beam.PTransform:
    return beam.FlatMap(lambda _: elements).with_output_types(Any)


@pytest.mark.job
@pytest.mark.parametrize("is_frame", [False, True])
def test_pipeline_stops_with_the_name_of_a_unit_that_one_batch_of_three_repeats(is_frame):
    """Read as missing, the unit would leave out every record of the batch after payment."""
    batches = [table.to_pandas() if is_frame else table for table in (PLAIN, REPEATED, PLAIN)]
    encode = EncodeRecords(DOMAIN, "who", as_cells=True)
    with pytest.raises(Exception, match=r"column.*: 'who' .* only one column"):
        outputs({"repeated": lambda p: p | beam.Create([0]) | untyped(batches) | encode})


def test_repeated_columns_are_refused_if_they_are_named():
    (batch,) = REPEATED.append_column("age", PLAIN["age"]).to_batches()
    city = dp.CategoricalAttribute("age", ("x",), other=True)
    for read in (
        lambda: encode_cells(DOMAIN, batch),
        lambda: encode_records(dp.Domain(()), "who", False, batch),
        lambda: list(encode_values(OpenColumns(None, [city], []), "record", batch)),
        lambda: frame_batch(batch.to_pandas(), ["age"]),
        lambda: frame_batch(PLAIN.to_pandas().set_index("who", drop=False), ["who"]),
    ):
        with pytest.raises(UnreadableError, match="only one column"):
            read()
    frame = pd.concat([PLAIN.to_pandas(), PLAIN.to_pandas()[["who"]]], axis=1)
    for batch in (REPEATED.to_batches()[0], frame_batch(frame, ["age"])):
        assert encode_cells(DOMAIN, batch).tolist() == [3, 4]
    field = {"name": "who", "type": "long"}
    schema = {"type": "record", "name": "Visit", "fields": [field, field]}
    with pytest.raises(FileError, match="'who' is repeated"):
        parse_schema(json.dumps(schema).encode())


SUMMER, WINTER = 1_782_907_200, 1_796_817_600  # 2026-07-01T12:00Z and 2026-12-09T12:00Z
SERVICES = {"gs": fake_google_storage, "s3": fake_amazon_storage}


def in_each_zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Changes the time zone of this process: two of them have daylight saving time."""
    for zone in ("UTC", "America/New_York", "Australia/Lord_Howe"):
        with monkeypatch.context() as changed:
            changed.setenv("TZ", zone)
            time.tzset()
            yield zone
        time.tzset()


@contextlib.contextmanager
def landing(scheme: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStorage]:
    """A bucket with two files that arrived in summer and in winter, and some others."""
    with SERVICES[scheme].serving(monkeypatch) as service:
        for name, written in (
            ("landing/1.parquet", "2026-07-01T12:00:00.000Z"),
            ("landing/2.parquet", "2026-12-09T12:00:00.000Z"),
            ("landing/below/3.parquet", "2026-12-09T12:00:00.000Z"),
            ("landing/4.csv", "2026-12-09T12:00:00.000Z"),
            ("landing.parquet", "2026-12-09T12:00:00.000Z"),
        ):
            service.put(name, b"a row")
            service.buckets["releases"].written[name] = written
        yield service


def found(pattern: str) -> list[tuple[str, int, float]]:
    return [(file.path.rpartition("/")[2], *file[1:]) for file in timed_files(pattern)]


@pytest.mark.parametrize("scheme", ["gs", pytest.param("s3", marks=pytest.mark.job)])
def test_times_of_bucket_objects_are_in_utc(scheme, monkeypatch):
    with landing(scheme, monkeypatch):
        expected = [("1.parquet", 5, SUMMER), ("2.parquet", 5, WINTER)]
        for zone in in_each_zone(monkeypatch):
            assert found(f"{scheme}://releases/landing/*.parquet") == expected, zone
            assert found(f"{scheme}://releases/landing/1.parquet") == expected[:1]
            assert len(found(f"{scheme}://releases/landing/**")) == 4


def test_time_of_a_local_file_is_in_utc(tmp_path, monkeypatch):
    for name, arrived in (("1.csv", SUMMER), ("2.csv", WINTER)):
        (tmp_path / name).write_bytes(b"a row")
        os.utime(tmp_path / name, (arrived, arrived))
    expected = [("1.csv", 5, SUMMER), ("2.csv", 5, WINTER)]
    for zone in in_each_zone(monkeypatch):
        assert sorted(found(f"{tmp_path}/*.csv")) == expected, zone


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pattern", ["visits[1].csv", "v*s[1].csv", "[1] a?b/*.csv"])
def test_existing_names_stand_for_themselves(tmp_path, monkeypatch, pattern):
    for name in ("visits[1].csv", "visits1.csv", "[1] a?b/c.csv", "1 aab/c.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("a\n1\n")
    expected = {"v*s[1].csv": "visits1.csv"}.get(pattern, pattern.replace("*", "c"))
    assert dp.ReadRecords(f"{tmp_path}/{pattern}").files == [(f"{tmp_path}/{expected}", 4)]
    monkeypatch.chdir(tmp_path)
    assert dp.ReadRecords(pattern).files == [(expected, 4)]
    assert [file.path for file in read_module.timed_files(pattern)] == [expected]

"""Files of a folder as arrivals: their time is the file's, and the watermark follows the clock."""

from __future__ import annotations

import os
import pathlib
import time
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.utils.timestamp import Timestamp
from fakes import pipeline
from versions import since

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.count_windows import CountWindows
from beam_dp.transforms.reading import read_arrivals
from beam_dp.transforms.reading.read_arrivals import FILE_TIME, ReadArrivals
from beam_dp.windows.horizon import Horizon, WindowUnit

pytestmark = since("apache-beam", "2.76")
DOMAIN = Domain((IntegerAttribute("a", 0, 3),))
HORIZON = Horizon(1000, 10, 3, 5)
RECORDS = WindowUnit("record", 1, 1, 1)
TABLES: list[tuple[int, list[int]]] = []  # of this process, in which the runner runs


class Keep(beam.DoFn):
    def process(self, pane: Any) -> None:
        number, shards = pane
        TABLES.append((number, HistogramAccumulator(DOMAIN).from_shards(shards).counts.tolist()))


def drop(folder: pathlib.Path, name: str, arrived: float, rows: list[tuple[int, int]]) -> None:
    path = folder / name
    columns = {"a": [a for a, _ in rows], "event": [event for _, event in rows]}
    pq.write_table(pa.table(columns), path)
    os.utime(path, (arrived, arrived))


@pytest.fixture
def landing(tmp_path) -> pathlib.Path:
    """Of the file at 1016 the first window is closed already, and its second record is to come."""
    drop(tmp_path, "1.parquet", 1014.9, [(0, 1000), (1, 1009), (2, 1014)])
    drop(tmp_path, "2.parquet", 1016, [(3, 1009), (3, 1017), (1, 1016), (1, 1015)])
    drop(tmp_path, "3.parquet", 1034.5, [(2, 1020), (2, 1034), (9, 1028)])
    return tmp_path


EXPECTED = [(0, [1, 1, 0, 0]), (1, [0, 2, 1, 0]), (2, [0, 0, 1, 0])]


def tables(read: ReadArrivals) -> list[tuple[int, list[int]]]:
    TABLES.clear()
    count = CountWindows(DOMAIN, HORIZON, RECORDS, "event", FILE_TIME, unit_costs=None)
    with pipeline() as p:
        _ = p | read | count | beam.ParDo(Keep())
    return sorted(TABLES)


@pytest.mark.job
def test_replay_counts_records_by_the_time_of_their_file(landing):
    read = ReadArrivals(f"{landing}/*.parquet", HORIZON, poll=1, settle=0, replay=True)
    assert tables(read) == EXPECTED


@pytest.mark.job
def test_watched_folder_gives_the_same_tables_as_a_replay(landing):
    """The horizon is over, so that the first look is the last one."""
    read = ReadArrivals(f"{landing}/*.parquet", HORIZON, poll=1, settle=0)
    assert tables(read) == EXPECTED


def test_watermark_depends_only_on_the_clock(landing, monkeypatch):
    """Not on files, which may have future times or be missing."""
    poll = ReadArrivals(f"{landing}/*.parquet", HORIZON, poll=1, settle=20).polling
    for clock, watermark in ((1005.5, 985.5), (1054.5, 1034.5)):
        monkeypatch.setattr(read_arrivals, "time", SimpleNamespace(time=lambda clock=clock: clock))
        found = poll(f"{landing}/*.parquet")
        arrivals = sorted(each.timestamp.micros / 1e6 for each in found.outputs)
        assert arrivals == pytest.approx([1014.9, 1016, 1034.5], abs=1e-5)
        assert found.watermark == Timestamp(watermark)
        assert not found.is_complete
        assert poll(f"{landing}/none/*").watermark == Timestamp(watermark)
    monkeypatch.setattr(read_arrivals, "time", SimpleNamespace(time=lambda: 1055.0))
    assert poll(f"{landing}/*.parquet").is_complete


def test_reads_clock_before_files(landing, monkeypatch):
    """Else a file that came in between would be late."""
    order: list[str] = []
    listed = read_arrivals.read.timed_files
    clock = SimpleNamespace(time=lambda: order.append("clock") or 1005.0)
    monkeypatch.setattr(read_arrivals, "time", clock)
    monkeypatch.setattr(
        read_arrivals.read, "timed_files", lambda each: order.append("files") or listed(each)
    )
    ReadArrivals(f"{landing}/*.parquet", HORIZON, poll=1, settle=0).polling(f"{landing}/*")
    assert order == ["clock", "files"]


@pytest.mark.job
def test_reads_avro_timestamps_as_times(tmp_path):
    schema = {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "a", "type": "int"},
            {"name": "event", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        ],
    }
    path = tmp_path / "1.avro"
    rows = [{"a": a, "event": 1_000_000 * event} for a, event in ((0, 1000), (1, 1009), (2, 1014))]
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows)
    os.utime(path, (1014.9, 1014.9))
    read = ReadArrivals(str(path), HORIZON, poll=1, settle=0, replay=True)
    assert tables(read) == [(0, [1, 1, 0, 0]), (1, [0, 0, 1, 0]), (2, [0, 0, 0, 0])]


def test_rejects_replay_before_the_horizon_ends(landing):
    later = Horizon(int(time.time()) - 25, 10, 3, 5)
    with pytest.raises(InputError, match=r"^replay: True can't be given before the la"):
        ReadArrivals(f"{landing}/*.parquet", later, poll=1, settle=60, replay=True)


def test_rejects_stream_if_beam_cannot_watch_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(read_arrivals, "Watch", None)
    with pytest.raises(InputError, match=r"^apache-beam: '2\..*must be 2.76 or newer"):
        ReadArrivals(f"{tmp_path}/*.csv", HORIZON, poll=1, settle=0)


@pytest.mark.job
def test_folder_may_be_empty_at_the_start(tmp_path):
    read = ReadArrivals(f"{tmp_path}/*.parquet", HORIZON, poll="30s", settle="2m")
    assert tables(read) == [(number, [0] * 4) for number in range(3)]

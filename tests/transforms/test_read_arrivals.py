"""Files of a folder as arrivals: their time is the file's, and the watermark follows the clock."""

from __future__ import annotations

import os
import pathlib
import pickle
import shutil
import stat
import time
from types import SimpleNamespace
from typing import Any

import apache_beam as beam
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.utils.timestamp import Timestamp
from fakes import pipeline
from versions import since

import beam_dp as dp
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.count_windows import CountWindows
from beam_dp.transforms.job_page import ReadError
from beam_dp.transforms.reading import read_arrivals
from beam_dp.transforms.reading.read_arrivals import FILE_TIME, SeenFiles, keep_files

pytestmark = since("apache-beam", "2.76")
DOMAIN = dp.Domain((dp.IntegerAttribute("a", 0, 3),))
HORIZON = dp.Horizon(1000, 10, 3, 5)
RECORDS = dp.WindowUnit("record", 1, 1, 1)
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


def tables(read: dp.ReadArrivals) -> list[tuple[int, list[int]]]:
    TABLES.clear()
    count = CountWindows(DOMAIN, HORIZON, RECORDS, "event", FILE_TIME, unit_costs=None)
    with pipeline() as p:
        _ = p | read | count | beam.ParDo(Keep())
    return sorted(TABLES)


@pytest.mark.job
def test_replay_and_watched_folder_count_records_by_the_time_of_their_file(landing):
    read = dp.ReadArrivals(f"{landing}/*.parquet", HORIZON, poll=1, settle=0, replay=True)
    assert tables(read) == EXPECTED
    # The horizon is over, so that the first look is the last one.
    read = dp.ReadArrivals(f"{landing}/*.parquet", HORIZON, poll=1, settle=0)
    assert tables(read) == EXPECTED


def test_watermark_depends_only_on_the_clock(landing, monkeypatch):
    """Not on files, which may have future times or be missing."""
    poll = dp.ReadArrivals(f"{landing}/*.parquet", HORIZON, poll=1, settle=20).polling
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
    dp.ReadArrivals(f"{landing}/*.parquet", HORIZON, poll=1, settle=0).polling(f"{landing}/*")
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
    read = dp.ReadArrivals(str(path), HORIZON, poll=1, settle=0, replay=True)
    assert tables(read) == [(0, [1, 1, 0, 0]), (1, [0, 0, 1, 0]), (2, [0, 0, 0, 0])]


def test_rejects_replay_before_the_horizon_ends(landing):
    later = dp.Horizon(int(time.time()) - 25, 10, 3, 5)
    with pytest.raises(dp.InputError, match=r"^replay: True can't be given before the la"):
        dp.ReadArrivals(f"{landing}/*.parquet", later, poll=1, settle=60, replay=True)


def test_rejects_stream_if_beam_cannot_watch_the_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(read_arrivals, "Watch", None)
    with pytest.raises(dp.InputError, match=r"^apache-beam: '2\..*must be 2.76 or newer"):
        dp.ReadArrivals(f"{tmp_path}/*.csv", HORIZON, poll=1, settle=0)


@pytest.mark.job
def test_folder_may_be_empty_at_the_start(tmp_path):
    read = dp.ReadArrivals(f"{tmp_path}/*.parquet", HORIZON, poll="30s", settle="2m")
    assert tables(read) == [(number, [0] * 4) for number in range(3)]


FIRST, SECOND = "1" * 32, "2" * 32


class Folder:
    """Where files appear, and a clock that tests move."""

    def __init__(self, folder: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.output = folder / "out"
        self.private = folder / "out.private"
        self.landing = folder / "landing"
        self.landing.mkdir()
        self.monkeypatch = monkeypatch

    def drop(self, name: str, modified: float, size: int = 3) -> pathlib.Path:
        path = self.landing / f"{name}.csv"
        path.write_bytes(b"a\n1"[:size])
        os.utime(path, (modified, modified))
        return path

    def reader(self, horizon_id: str = FIRST, **options: Any) -> dp.ReadArrivals:
        """That of a new job; by default of a horizon with limits, of which windows are released."""
        read = dp.ReadArrivals(f"{self.landing}/*.csv", HORIZON, poll=1, settle=20)
        seen = SeenFiles(self.output, None)
        seen.begin(horizon_id, may_be_new=options.get("may_be_new", not self.private.exists()))
        keep_files(read, seen, may_be_removed=options.get("may_be_removed", False))
        return read

    def look(self, read: dp.ReadArrivals, clock: float) -> list[str]:
        """What a worker finds at some moment."""
        self.monkeypatch.setattr(read_arrivals, "time", SimpleNamespace(time=lambda: clock))
        polling = pickle.loads(pickle.dumps(read.polling))
        found = polling(read.pattern).outputs
        return sorted(pathlib.Path(each.value[0]).stem for each in found)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Folder:
    return Folder(tmp_path, monkeypatch)


def test_file_that_appears_after_settle_never_counts(folder):
    folder.drop("at-first", 900)
    read = folder.reader()
    assert folder.look(read, 1010) == ["at-first"]  # settled: 990
    folder.drop("late", 989.9)
    folder.drop("in-time", 990)
    assert folder.look(read, 1020) == ["at-first", "in-time"]
    assert folder.look(folder.reader(), 1021) == ["at-first", "in-time"]
    # A file that appeared while no job ran does not count either.
    folder.drop("late-again", 999)
    folder.drop("in-time-again", 1005)
    assert folder.look(folder.reader(), 1090) == ["at-first", "in-time", "in-time-again"]


def test_failed_listing_of_files_does_not_settle_their_times(folder, monkeypatch):
    read = folder.reader()

    def broken(pattern: str) -> Any:
        raise OSError("the bucket can't be listed")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="listed"):
        patch.setattr(read_arrivals.read, "timed_files", broken)
        folder.look(read, 1090)
    folder.drop("in-time", 1000)
    assert folder.look(read, 1020) == ["in-time"]


def test_two_jobs_on_a_horizon_count_the_same_files(folder):
    one, other = folder.reader(), folder.reader()
    folder.look(one, 1010)
    folder.drop("late", 985)
    assert folder.look(other, 1000) == folder.look(one, 1011) == []


@pytest.mark.parametrize(("modified", "size"), [(901, 3), (900, 2)])
def test_refuses_changed_file_and_shows_only_its_name(folder, modified, size):
    folder.drop("before", 900)
    read = folder.reader()
    folder.look(read, 1010)
    path = folder.drop("before", modified, size)
    with pytest.raises(dp.InputError) as refused:
        folder.reader()
    expected = "must not change before its horizon is over, but has changed"
    assert str(refused.value) == f"input: {str(path)!r} is not valid: {expected}"
    with pytest.raises(ReadError) as stopped:
        folder.look(read, 1020)
    assert str(stopped.value) == f"{path}: {expected}"


def test_refuses_missing_file_if_the_guarantee_depends_on_it(folder):
    path = folder.drop("before", 900)
    folder.drop("after", 980)
    folder.look(folder.reader(), 1010)
    path.unlink()
    with pytest.raises(
        dp.InputError, match=r"before.csv' is not valid: must not be removed before"
    ):
        folder.reader()
    assert folder.look(folder.reader(may_be_removed=True), 1020) == ["after"]


def test_accepts_removal_of_file_that_never_counted(folder):
    read = folder.reader()
    folder.look(read, 1010)
    path = folder.drop("late", 900)
    folder.look(read, 1020)
    path.unlink()
    assert folder.look(folder.reader(), 1030) == []


def test_recognises_files_after_a_change_of_current_folder(folder, monkeypatch):
    folder.drop("before", 900)
    folder.look(folder.reader(), 1010)
    monkeypatch.chdir(folder.landing)
    read = dp.ReadArrivals("*.csv", HORIZON, poll=1, settle=20)
    keep_files(read, SeenFiles(folder.output, None), may_be_removed=False)
    assert folder.look(read, 1020) == ["before"]


def test_private_folder_belongs_to_its_owner_and_one_horizon(folder):
    folder.reader()
    with pytest.raises(dp.InputError, match=r"^private_folder: .* must not belong to another"):
        folder.reader(SECOND)
    folder.reader()
    assert stat.S_IMODE(folder.private.stat().st_mode) == 0o700
    assert not folder.output.exists()
    folder.private.chmod(0o750)
    with pytest.raises(
        dp.InputError, match=r"^private_folder: .* must be accessible only to its owner"
    ):
        folder.reader()


def test_refuses_lost_private_folder_after_windows_are_released(folder):
    folder.drop("before", 900)
    folder.look(folder.reader(), 1010)
    for path in folder.private.iterdir():
        path.unlink()
    with pytest.raises(
        dp.InputError, match=r"^private_folder: .* must be the folder that lists the files"
    ):
        folder.reader(may_be_new=False)
    assert folder.look(folder.reader(may_be_new=True), 1020) == ["before"]


@pytest.mark.parametrize("content", [b"", b"no database" * 1000])
def test_refuses_damaged_list_of_files(folder, content):
    read = folder.reader()
    (folder.private / "files.sqlite").write_bytes(content)
    with pytest.raises(dp.InputError, match=r"^private_folder: "):
        folder.reader()
    with pytest.raises(ReadError, match="must be a folder that every worker sees and can write"):
        folder.look(read, 1010)


def test_worker_without_the_private_folder_creates_no_list(folder):
    read = folder.reader()
    (folder.private / "files.sqlite").unlink()
    with pytest.raises(ReadError, match="must be a folder that every worker sees and can write"):
        folder.look(read, 1010)
    assert list(folder.private.iterdir()) == []


def release_of(
    out: pathlib.Path, arrival: str, windows: int = 1, protected: int = 3, epsilon: float = 1.0
) -> dp.ReleaseWindows:
    """Begins or continues a horizon, whose private folder is beside it."""
    workload = dp.marginals(dp.Domain((dp.IntegerAttribute("a", 0, 1),)), ways=1)
    unit = dp.WindowUnit("person", 9, windows, protected)
    plan = dp.plan_window_tables(workload, HORIZON, unit, epsilon, 0.0)
    begun = dp.begin_windows(plan, out, event_time="t", arrival=arrival, replayable=True)
    return dp.ReleaseWindows(plan, out, begun, "t", arrival, f"{out}-mine")


def arriving(folder: pathlib.Path) -> dp.ReadArrivals:
    return dp.ReadArrivals(f"{folder}/*.csv", HORIZON, poll=1, settle=0)


@pytest.mark.job
def test_continued_stream_does_not_count_late_files(tmp_path):
    """Through Beam, on a horizon that is over; the last window is lost before the second job."""
    out = tmp_path / "out"
    for name, arrived in (("1", 1010), ("late", 1026)):
        path = tmp_path / f"{name}.csv"
        path.write_text("a,t,person\n1,1001,7\n1,1021,7\n")
        os.utime(path, (arrived, arrived + 0.5))
        release = release_of(out, FILE_TIME, 3, epsilon=2e4)
        with pipeline() as p:
            _ = p | arriving(tmp_path) | release
        found = dp.read_windows(out).answer(release.plan.workload, slice(0, 3))[0].values
        np.testing.assert_allclose(found, [0, 1], atol=0.1)
        shutil.rmtree(out / "windows" / "000002")
    (tmp_path / "1.csv").touch()
    with pytest.raises(dp.InputError, match=r"1\.csv' is not valid: must not change"):
        _ = beam.Pipeline() | arriving(tmp_path) | release


@pytest.mark.parametrize("fault", ["changed", "removed", "new"])
def test_restarted_batch_job_requires_the_same_files(tmp_path, fault):
    def records() -> Any:
        return beam.Pipeline() | dp.ReadRecords(f"{tmp_path}/*.csv")

    for name in ("1", "2"):
        (tmp_path / f"{name}.csv").write_text("a,t,arrival,person\n1,1001,1002,7\n")
    of_each, release = (release_of(tmp_path / f"{n}", "arrival", protected=n) for n in (1, 3))
    for each in (release, release, of_each, of_each):
        _ = records() | each
    name = "3" if fault == "new" else "2"
    if fault == "removed":
        (tmp_path / "2.csv").unlink()
    else:
        (tmp_path / f"{name}.csv").write_text("a,t,arrival,person\n1,1001,1002,77\n")
    with pytest.raises(dp.InputError, match=rf"^input: '.*{name}\.csv' is not valid: must not"):
        _ = records() | release
    _ = records() | of_each
    assert not (tmp_path / "1-mine").exists()


def test_refuses_changed_file_or_two_readers_before_user_steps(tmp_path):
    (tmp_path / "1.csv").write_text("a,t\n1,1001\n")
    release = release_of(tmp_path / "out", FILE_TIME)

    def changed(records: Any) -> Any:
        return records | beam.Map(lambda batch: batch) | "Again" >> beam.Filter(bool)

    _ = changed(beam.Pipeline() | arriving(tmp_path)) | release
    os.utime(tmp_path / "1.csv", (1, 1))
    with pytest.raises(dp.InputError, match=r"1\.csv' is not valid: must not change"):
        _ = changed(beam.Pipeline() | arriving(tmp_path)) | release
    start = beam.Pipeline()
    several = (start | arriving(tmp_path), start | "Others" >> arriving(tmp_path)) | beam.Flatten()
    with pytest.raises(dp.InputError, match=r"^records: 'from 2 readers' is not valid: must come"):
        _ = several | release


def test_restart_does_not_unsettle_times(folder):
    """A file that appears between the start of a second job and its first listing."""
    folder.drop("at-first", 900)
    assert folder.look(folder.reader(), 1010) == ["at-first"]  # settled: 990
    again = folder.reader()
    folder.drop("late", 980)
    assert folder.look(again, 1020) == ["at-first"]

"""The program that releases windows, from a folder of files to sums of windows."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pyarrow.parquet as pq
import pytest
from jobs import START, everything_under, refused_line, window_flags, write_table
from program_jobs import WINDOWS
from versions import since
from yaml_jobs import run, step

import beam_dp as dp
import beam_dp.yaml
from beam_dp.releases.windows.horizon_files import read_windows, window_directory
from beam_dp.views.cells import single_levels
from pipelines import release_windows, yaml_windows
from pipelines.flags import read_truth
from pipelines.release_windows import main

PERSONS = {
    "privacy_unit": "person",
    "max_records_per_unit": "1",
    "max_windows_per_unit": "1",
    "protected_windows": "3",
}
# Of window 0 the record of the second file is late; that of the second 13 is of the future.
COUNTS = [[2, 0, 0, 0], [0, 1, 0, 2], [0, 0, 0, 0]]


def bytes_under(folder: Path) -> dict[str, bytes]:
    files = [path for path in everything_under(folder) if (folder / path).is_file()]
    return {path: (folder / path).read_bytes() for path in files}


def counts_of(folder: Path) -> list[list[float]]:
    release = read_windows(folder / "out")
    (sums,) = zip(
        *(release.answer(release.workload, slice(n, n + 1)) for n in release.released), strict=True
    )
    return [np.rint(each.values).tolist() for each in sums]


def true_counts_of(folder: Path) -> list[list[int]]:
    """The exact counts that a report shows next to the release."""
    release = read_windows(folder / "out")
    truth = read_truth(release, str(folder / "landing" / "*.parquet"))
    groups = [single_levels(attribute) for attribute in release.domain]
    return [truth.among(range(n, n + 1)).of((0,), groups) for n in release.released]


@pytest.mark.job
def test_releases_windows_of_a_folder(tmp_path, capsys):
    assert main(window_flags(tmp_path)) == 0
    assert counts_of(tmp_path) == true_counts_of(tmp_path) == COUNTS
    out, err = capsys.readouterr()
    assert "All windows are in" in out
    assert "3 windows of 10s" in err


@pytest.mark.job
@pytest.mark.parametrize(
    ("changed", "counts"),
    [({"arrival": "came"}, COUNTS), (PERSONS, [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]])],
)
def test_counts_by_a_column_of_arrivals_or_for_each_unit_what_it_may(tmp_path, changed, counts):
    assert main(window_flags(tmp_path, **changed)) == 0
    assert counts_of(tmp_path) == true_counts_of(tmp_path) == counts


def add_file(folder: Path, name: str, modified: float) -> Path:
    """A file with records of the last window."""
    path = folder / "landing" / f"{name}.parquet"
    columns = {"age": [3] * 4, "t": [START + 20] * 4, "person": [7, 8, 9, 10], "came": [0] * 4}
    pyarrow.parquet.write_table(pa.table(columns), path)
    os.utime(path, (modified, modified))
    return path


@pytest.mark.job
def test_resumed_job_rejects_changed_or_removed_files(tmp_path, capsys):
    argv = window_flags(tmp_path, **PERSONS)
    path = add_file(tmp_path, "2", START + 22)
    assert main(argv) == 0
    shutil.rmtree(window_directory(tmp_path / "out", 2))
    before = bytes_under(tmp_path / "out")
    for fault, what in ((lambda: os.utime(path), "change"), (path.unlink, "be removed")):
        capsys.readouterr()
        fault()
        assert main(argv) == 2
        (line,) = capsys.readouterr().err.splitlines()[-1:]
        start = f"error: --input: {str(path)!r} is not valid: must not {what} before its horizon"
        assert line.startswith(start) and str(START + 22) not in line
        assert bytes_under(tmp_path / "out") == before


@pytest.mark.job
def test_list_of_read_files_is_private(tmp_path):
    assert main(window_flags(tmp_path, private_folder=str(tmp_path / "mine"))) == 0
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "out.private").exists()
    assert not any("sqlite" in name for name in everything_under(tmp_path / "out"))
    public = (tmp_path / "out" / "horizon.json").read_text()
    assert "mine" not in public and str(START + 18) not in public


def test_rejects_private_folder_that_workers_do_not_share(tmp_path, capfd, monkeypatch):
    check = release_windows.refuse_unshared_output

    def of_dataflow(output: str, runner: str, name: str = "output") -> None:
        if name != "output":
            check(output, "DataflowRunner", name)

    monkeypatch.setattr(release_windows, "refuse_unshared_output", of_dataflow)
    told = "^error: --private_folder: 'mine' is not valid: must be a URL such as gs://"
    refused_line(main, window_flags(tmp_path, private_folder="mine"), capfd, told)


@pytest.mark.job
def test_source_is_the_same_from_another_current_folder(tmp_path, monkeypatch):
    assert main(window_flags(tmp_path)) == 0
    monkeypatch.chdir(tmp_path)
    assert main(window_flags(tmp_path, input="landing/*.parquet")) == 0
    (tmp_path / "other").mkdir()
    (tmp_path / "landing").rename(tmp_path / "other" / "landing")
    monkeypatch.chdir(tmp_path / "other")
    argv = window_flags(tmp_path)
    argv[0] = "--input=landing/*.parquet"
    assert main(argv) == 2


@since("apache-beam", "2.76")
def test_stream_may_start_with_an_empty_folder(tmp_path, capsys, monkeypatch):
    (tmp_path / "landing").mkdir()
    stream = {"replay": None, "runner": "PortableRunner", "job_endpoint": "embed"}
    for pattern in (f"{tmp_path}/landing/*.parquet", "*.parquet"):
        monkeypatch.chdir(tmp_path / "landing")
        argv = window_flags(tmp_path, validate_only="", **stream)
        argv[0] = f"--input={pattern}"
        for file in (tmp_path / "landing").iterdir():
            file.unlink()
        assert main(argv) == 0
    capsys.readouterr()
    argv[0] = "--input=landing/*.parquet"
    assert main(argv) == 2
    assert "must be in a folder that exists" in capsys.readouterr().err
    # What is read once and ends needs files.
    argv = window_flags(tmp_path, validate_only="")
    argv[0] = "--input=*.csv"
    assert main(argv) == 2
    assert "--input: '*.csv' is not valid: must match a file" in capsys.readouterr().err


OTHERS = [(person, person % 4, 3 * person % 30, 3 * person % 30 + 1) for person in range(20)]
NEIGHBOURS = {
    "in every window": [(99, n % 4, 10 * w + n, 10 * w + n) for w in range(3) for n in range(4)],
    "of the far future": [(99, 1, 2**40, 20)],
    "too late": [(99, 1, 2, 27)],
}


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.job if "every" in name else pytest.mark.part)
        for name in NEIGHBOURS
    ],
)
def test_one_unit_changes_tables_by_at_most_the_stated_records(tmp_path, name):
    """Of counts, k records in c windows; of files, names and sizes of cards nothing at all."""
    found = []
    for folder, rows in (("without", OTHERS), ("with", OTHERS + NEIGHBOURS[name])):
        (tmp_path / folder).mkdir()
        pattern = tmp_path / folder / "rows.parquet"
        person, age, event, came = zip(*rows, strict=True)
        columns = {"person": person, "age": age, "t": event, "came": came}
        shifted = {each: [START + value for value in columns[each]] for each in ("t", "came")}
        pyarrow.parquet.write_table(pa.table({**columns, **shifted}), pattern)
        flags = window_flags(
            tmp_path / folder,
            input=str(pattern),
            arrival="came",
            privacy_unit="person",
            max_records_per_unit="3",
            max_windows_per_unit="1",
            protected_windows="2",
            output=str(tmp_path / "out"),  # the same, for a card names it
        )
        assert main(flags) == 0
        files = everything_under(tmp_path / "out")
        cards = [
            (tmp_path / "out" / path).stat().st_size for path in files if path.endswith("card.json")
        ]
        names = [re.sub("[0-9a-f]{32}", "DRAW", path) for path in files]
        found.append((np.array(counts_of(tmp_path)), names, cards))
        for each in ("out", "out.private"):
            shutil.rmtree(tmp_path / each)
    (before, *files_before), (after, *files_after) = found
    moved = np.abs(after - before).sum(axis=1)
    assert moved.max() <= 3 and all(np.count_nonzero(moved[n : n + 2]) <= 1 for n in range(2))
    assert moved.any() == (name == "in every window")
    assert files_before == files_after


BEGIN = 1_790_000_000 - 1_790_000_000 % 3600
UNIT = "person in any 3 consecutive windows of 1h"
PROMISED = ("guarantee", "plan", "workload")
HORIZON = {name: WINDOWS[name] for name in ("start", "window", "num_windows", "grace")}
FIELDS: dict[str, Any] = {
    **WINDOWS,
    "privacy_unit": "person",
    "max_records_per_unit": 1,
}


def read_visits(folder: Path) -> dict[str, Any]:
    numbers = range(300)
    times = [BEGIN + 36 * number for number in numbers]
    table = {"person": list(numbers), "age": [number % 4 for number in numbers], "t": times}
    return step("ReadRecords", input=write_table(folder, pa.table(table)))


@pytest.mark.job
def test_horizon_continues_without_another_draw_or_payment(tmp_path):
    ledger = dp.Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 1.5, 0, UNIT, "add_or_remove_one")
    out = tmp_path / "out"
    budget = {"ledger": ledger.name, "dataset_id": "people", "output": str(out)}
    release = step("ReleaseWindows", **FIELDS, **budget)
    draws, reading = [], read_visits(tmp_path)
    for name in ("first", "second"):
        write = step("WriteToParquet", path=str(tmp_path / name))
        run(reading, release, step("WindowRows", attributes="age"), write)
        table = pa.concat_tables(map(pq.read_table, tmp_path.glob(f"{name}-*")))
        draws.append(sorted(zip(*table.to_pydict().values(), strict=True)))
    assert draws[0] == draws[1] and len(draws[0]) == 3 * 4
    (entry,) = ledger.entries("people")
    ledger.mark_released(entry)
    shutil.rmtree(out / "windows" / "000001")
    with pytest.raises(ValueError, match="is missing released windows, and people/1 paid for"):
        run(reading, release)
    flags = {name: str(each) for name, each in FIELDS.items() if name != "domain"}
    flags |= {"domain": '{"age": 4}', "input": "unused", "output": "unused", "replay": "true"}
    argv = [f"--{name}" if each == "true" else f"--{name}={each}" for name, each in flags.items()]
    promised = json.loads(json.dumps(release_windows.parse_arguments(argv).card()))
    card = json.loads((out / "horizon.json").read_text())
    assert [card[name] for name in PROMISED] == [promised[name] for name in PROMISED]


def test_mistake_leaves_no_horizon_that_keeps_it(tmp_path):
    source = {"input": write_table(tmp_path, pa.table({"person": [1], "age": [2], "t": [BEGIN]}))}
    right = {**FIELDS, "output": str(tmp_path / "out")}
    for wrong in ({"event_time": "seen"}, {"private_folder": "gs://bucket/folder"}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: "):
            records = beam.Pipeline() | beam_dp.yaml.ReadRecords(**source)
            _ = records | beam_dp.yaml.ReleaseWindows(**{**right, **wrong})
    assert [each.name for each in tmp_path.iterdir()] == [Path(source["input"]).name]
    records = beam.Pipeline() | beam_dp.yaml.ReadRecords(**source)
    _ = records | beam_dp.yaml.ReleaseWindows(**right)
    assert (tmp_path / "out" / "horizon.json").exists()
    assert (tmp_path / "out.private" / "files.sqlite").exists()


def test_yaml_takes_a_horizon_that_is_not_over(tmp_path):
    """A topic is read while windows are open, and its source ends by itself."""
    later = {**FIELDS, "start": "2999-01-01T00:00Z", "output": str(tmp_path / "out")}
    assert beam_dp.yaml.ReleaseWindows(**later)


def test_horizon_that_another_pipeline_has_just_begun_is_refused(tmp_path, monkeypatch):
    other = "0" * 32
    monkeypatch.setattr(yaml_windows, "begin_horizon", lambda *_: other)
    with pytest.raises(ValueError, match=r"^output: .* two pipelines at a time"):
        records = beam.Pipeline() | beam_dp.yaml.ReadRecords(**read_visits(tmp_path)["config"])
        _ = records | beam_dp.yaml.ReleaseWindows(**FIELDS, output=str(tmp_path / "out"))


def test_topic_is_read_as_its_fields_say(monkeypatch):
    given: list[Any] = []
    topic = beam.Create([{"age": 1}])

    def made(*arguments: Any, **named: Any) -> beam.PTransform:
        given.append((arguments, named))
        return topic

    monkeypatch.setattr(yaml_windows.read_kafka, "ReadKafka", made)
    fields = {"servers": "broker:9092", "topic": "visits", "settle": "10s"}
    _ = beam.Pipeline() | beam_dp.yaml.ReadKafka(**fields, **HORIZON)
    horizon = dp.Horizon("2026-09-21T14:00Z", "1h", 3, "0s")
    assert given == [(("broker:9092", "visits", horizon), {"settle": "10s"})]

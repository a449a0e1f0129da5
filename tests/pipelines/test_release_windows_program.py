"""The program that releases windows, from a folder of files to sums of windows."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from jobs import START, everything_under, refused_line, window_flags
from preview_pages import check_page
from versions import since

from beam_dp.cli import main as cli
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.windows.horizon_files import read_windows, window_directory
from beam_dp.reports.cells import single_levels
from pipelines import release_windows
from pipelines.flags import read_truth
from pipelines.release_windows import main

ARRIVED = START + 30


PERSONS = {
    "privacy_unit": "person",
    "max_records_per_unit": "1",
    "max_windows_per_unit": "1",
    "protected_windows": "3",
}
# Of window 0 the record of the second file is late; that of the second 13 is of the future.
COUNTS = [[2, 0, 0, 0], [0, 1, 0, 2], [0, 0, 0, 0]]


def paid_job(folder: Path, epsilon: float = 2000.0, **flags: str) -> tuple[Ledger, list[str]]:
    """A ledger with a budget, and the flags of a job that it pays for."""
    ledger = Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("visits", epsilon, 1e-9, "record", "add_or_remove_one")
    return ledger, window_flags(folder, ledger=ledger.name, dataset_id="visits", **flags)


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
    assert cli.main(["describe", str(tmp_path / "out")]) == 0
    assert cli.main(["answer", str(tmp_path / "out"), "--windows", "0:3", "--marginal", "age"]) == 0


@pytest.mark.job
def test_replay_may_take_arrival_times_from_a_column(tmp_path):
    assert main(window_flags(tmp_path, arrival="came")) == 0
    assert counts_of(tmp_path) == true_counts_of(tmp_path) == COUNTS


@pytest.mark.job
def test_each_unit_counts_at_most_its_allowed_records_and_windows(tmp_path):
    assert main(window_flags(tmp_path, **PERSONS)) == 0
    assert counts_of(tmp_path) == [[1, 0, 0, 0], [0, 1, 0, 1], [0, 0, 0, 0]]
    assert true_counts_of(tmp_path) == counts_of(tmp_path)


@pytest.mark.job
def test_rerun_of_the_command_resumes_and_pays_once(tmp_path, capsys, monkeypatch):
    ledger, argv = paid_job(tmp_path)
    with monkeypatch.context() as killed:
        killed.setattr(release_windows, "mark_released", lambda *_: None)
        assert main(argv) == 0
    before = bytes_under(tmp_path / "out")
    shutil.rmtree(window_directory(tmp_path / "out", 1))
    assert main(argv) == 0
    assert main(argv) == 0
    (entry,) = ledger.entries("visits")
    horizon_id = json.loads((tmp_path / "out" / "horizon.json").read_text())["horizon_id"]
    assert (entry.state, entry.draw_id) == ("released", horizon_id)
    assert entry.parameters["horizon_id"] == horizon_id
    after = bytes_under(tmp_path / "out")
    assert {path for path in before if after.get(path) != before[path]} == {
        path for path in before if "/000001/" in path
    }
    assert counts_of(tmp_path) == COUNTS
    assert "continues: visits/1 in the ledger" in capsys.readouterr().err


@pytest.mark.job
def test_job_refuses_to_redraw_a_deleted_window(tmp_path, capsys):
    _, argv = paid_job(tmp_path)
    assert main(argv) == 0
    shutil.rmtree(window_directory(tmp_path / "out", 1))
    capsys.readouterr()
    assert main(argv) == 2
    assert "is missing released windows, and visits/1 paid" in capsys.readouterr().err
    assert not os.path.exists(window_directory(tmp_path / "out", 1))


def add_file(folder: Path, name: str, modified: float) -> Path:
    """A file with records of the last window."""
    path = folder / "landing" / f"{name}.parquet"
    columns = {"age": [3] * 4, "t": [START + 20] * 4, "person": [7, 8, 9, 10], "came": [0] * 4}
    pyarrow.parquet.write_table(pa.table(columns), path)
    os.utime(path, (modified, modified))
    return path


def lose_last_window(folder: Path) -> None:
    shutil.rmtree(window_directory(folder / "out", 2))


@pytest.mark.job
@pytest.mark.parametrize(
    "fault", [pytest.param("touched", marks=pytest.mark.job), "grown", "removed"]
)
def test_resumed_job_rejects_changed_files(tmp_path, capsys, fault):
    argv = window_flags(tmp_path, **PERSONS)
    path = add_file(tmp_path, "2", START + 22)
    assert main(argv) == 0
    lose_last_window(tmp_path)
    before = bytes_under(tmp_path / "out")
    capsys.readouterr()
    if fault == "removed":
        path.unlink()
    elif fault == "grown":
        path.write_bytes(path.read_bytes() * 2)
        os.utime(path, (START + 22, START + 22))
    else:
        os.utime(path, (START + 23, START + 23))
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    what = "must not be removed" if fault == "removed" else "must not change"
    assert line.startswith(f"error: --input: {str(path)!r} is not valid: {what} before its horizon")
    assert str(START + 22) not in line and str(START + 23) not in line
    assert bytes_under(tmp_path / "out") == before


@pytest.mark.job
def test_read_files_may_be_removed_if_each_window_is_protected_separately(tmp_path):
    argv = window_flags(tmp_path)
    path = add_file(tmp_path, "2", START + 22)
    assert main(argv) == 0
    assert counts_of(tmp_path)[2] == [0, 0, 0, 4]
    lose_last_window(tmp_path)
    path.unlink()
    assert main(argv) == 0
    assert counts_of(tmp_path) == COUNTS


@pytest.mark.part
def test_late_file_does_not_count_after_a_restart(tmp_path):
    argv = window_flags(tmp_path, **PERSONS)
    assert main(argv) == 0
    expected = counts_of(tmp_path)
    lose_last_window(tmp_path)
    add_file(tmp_path, "late", START + 22)
    for _ in range(2):
        assert main(argv) == 0
        assert counts_of(tmp_path) == expected
        lose_last_window(tmp_path)


@pytest.mark.job
def test_list_of_read_files_is_private(tmp_path):
    assert main(window_flags(tmp_path, private_folder=str(tmp_path / "mine"))) == 0
    assert (tmp_path / "mine").stat().st_mode & 0o777 == 0o700
    assert not (tmp_path / "out.private").exists()
    assert not any("sqlite" in name for name in everything_under(tmp_path / "out"))
    public = (tmp_path / "out" / "horizon.json").read_text()
    assert "mine" not in public and str(START + 18) not in public


def test_rejects_private_folder_that_workers_do_not_share(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(release_windows, "runner_name", lambda runner: "DataflowRunner")
    told = "^error: --private_folder: 'mine' is not valid: must be a URL such as gs://"
    refused_line(main, window_flags(tmp_path, private_folder="mine"), capfd, told)


@pytest.mark.job
def test_rejects_another_private_folder_after_windows_are_released(tmp_path, capsys):
    """As is a horizon that an earlier version began, which kept no list of files."""
    argv = window_flags(tmp_path, **PERSONS)
    assert main(argv) == 0
    lose_last_window(tmp_path)
    shutil.rmtree(tmp_path / "out.private")
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()[-1:]
    assert "--private_folder: " in line and "must be the folder that lists the files" in line


@pytest.mark.job
def test_completes_release_of_a_killed_writer_unless_its_files_are_lost(tmp_path):
    """Between the card and the payload of the last window."""
    argv = window_flags(tmp_path)
    assert main(argv) == 0
    folder = Path(window_directory(tmp_path / "out", 2))
    (payload,) = folder.glob("tables-*.avro")
    draft = folder / ".draft-left"
    draft.mkdir()
    payload.rename(draft / payload.name)
    assert main(argv) == 0
    assert counts_of(tmp_path) == COUNTS
    payload.unlink()
    assert main(argv) == 1


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


@pytest.mark.job
def test_resumed_job_rejects_other_parameters(tmp_path, capsys):
    assert main(window_flags(tmp_path)) == 0
    before = bytes_under(tmp_path / "out")
    assert main(window_flags(tmp_path, epsilon="1999")) == 2
    assert "epsilon" in capsys.readouterr().err.splitlines()[-1]
    assert before == bytes_under(tmp_path / "out")


@pytest.mark.parametrize("mechanism", ["tables", "mwem"])
def test_preview_shows_the_windows_to_release(tmp_path, capfd, monkeypatch, mechanism):
    monkeypatch.setenv("COLUMNS", "80")
    argv = window_flags(tmp_path, validate_only="", mechanism=mechanism)
    assert main(argv) == 0
    facts = (
        "3 windows of",
        "records expected in a cell",
        "no ledger: releases from this data are not added up",
    )
    check_page(capfd.readouterr().out, *facts)
    assert [path.name for path in tmp_path.iterdir()] == ["landing"]


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

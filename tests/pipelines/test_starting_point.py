"""The flag that names what a fit starts from: a release, or public files of any format."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jobs import everything_under, job_flags, people, write_table

from pipelines.release_synthetic_database import main


def card(folder: Path) -> dict:
    return json.loads((folder / "card.json").read_text())


@pytest.mark.mostly_slow(one_in=3)
@pytest.mark.parametrize("file_format", ["parquet", "csv", "avro"])
def test_public_files_are_read_where_the_job_is_planned(tmp_path: Path, file_format: str):
    public = tmp_path / "public"
    public.mkdir()
    path = write_table(public, people(300), file_format)
    assert main(job_flags(tmp_path, start_from=path)) == 0
    found = card(tmp_path / "out")
    assert found["parameters"]["start_from"] == "300 public records"
    assert found["fit"]["start_was_used"] in (True, False)


@pytest.mark.slow
def test_an_earlier_release_is_a_start(tmp_path: Path):
    first = str(tmp_path / "first")
    assert main(job_flags(tmp_path, output=first)) == 0
    assert main(job_flags(tmp_path, start_from=first)) == 0
    draw = card(tmp_path / "first")["draw_id"]
    assert card(tmp_path / "out")["parameters"]["start_from"] == draw


@pytest.mark.parametrize(
    ("named", "pattern"),
    [
        ({"start_from": "nowhere"}, r"'nowhere' is refused; must be a directory that holds"),
        ({"start_from": "none.csv"}, r"'none.csv' is refused; must match a file"),
        ({"start_from": "PUBLIC"}, r"is refused; column 'age' must be a column of .*people.csv"),
        (
            {"start_from": "DAMAGED"},
            r"is refused; .*people.parquet: cannot be read",
        ),
        ({"start_from": "EMPTY"}, r"empty.csv' is refused; must hold a record inside the domain"),
    ],
)
def test_a_wrong_start_costs_one_line(tmp_path, capfd, named, pattern):
    folder = tmp_path / "public"
    folder.mkdir()
    paths = {
        "PUBLIC": write_table(folder, people(9).drop(["age"]), "csv"),
        "DAMAGED": write_table(folder, people(5000)),
        "EMPTY": str(folder / "empty.csv"),
    }
    damaged = bytearray((folder / "people.parquet").read_bytes())
    damaged[4:-4096] = b"\xff" * (len(damaged) - 4100)
    (folder / "people.parquet").write_bytes(damaged)
    (folder / "empty.csv").write_text("age,sex,smokes\n-1,Female,true\n")
    named = {name: paths.get(value, value) for name, value in named.items()}
    argv = job_flags(tmp_path, **named)
    before = everything_under(tmp_path)
    assert main(argv) == 2
    out, err = capfd.readouterr()
    assert out == "" and re.fullmatch(r"error: --start_from: [^\n]+\n", err), err
    assert re.search(pattern, err), err
    assert everything_under(tmp_path) == before

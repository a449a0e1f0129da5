"""Somebody who is handed a release, and installs what reads it: no Beam, and what that costs."""

from __future__ import annotations

import pathlib
import zipfile

import pytest
from newcomers import GOLDEN, GOLDEN_RELEASES, Home
from source_imports import ROOT

pytestmark = pytest.mark.wheel
MOST_BYTES = 150 * 2**20
NO_PART = "only what reads releases is installed here; the rest: pip install beam_dp"


def test_the_parts_share_no_file_and_make_the_whole(wheels: dict[str, pathlib.Path]) -> None:
    names = []
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as opened:
            names += [name for name in opened.namelist() if ".dist-info/" not in name]
    assert len(set(names)) == len(names)
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "beam_dp").rglob("*")
        if path.suffix in (".py", ".json", ".css") or path.name == "py.typed"
    }
    programs = {f"beam_dp/pipelines/{path.name}" for path in (ROOT / "pipelines").glob("*.py")}
    kernel = {name for name in names if name.startswith("beam_dp/hashing/_kernel.")}
    assert len(kernel) == 1
    assert {*names} == sources | programs | kernel


def test_an_environment_that_reads_is_small(reading: Home) -> None:
    files = (reading.folder / "environment").rglob("*")
    assert sum(each.stat().st_size for each in files if each.is_file()) < MOST_BYTES


@pytest.mark.parametrize("release", GOLDEN_RELEASES)
def test_it_describes_verifies_and_reports_every_kind(reading: Home, release: str) -> None:
    reading.check_reading(release)


def test_it_answers_on_the_command_line_and_in_python(reading: Home) -> None:
    place = str(GOLDEN / "synthetic_database_1")
    assert "age" in reading.run("beam-dp", "answer", place, "--marginal", "age")
    program = f"import beam_dp; print(beam_dp.read_release({place!r}).query('age < 25').count())"
    assert reading.run("python", "-c", program)


@pytest.mark.parametrize(
    "command",
    [
        "check-domain --domain domain.json",
        "init visits.sql --output domain.json",
        "ledger budgets.sqlite",
        'plan --domain {"attributes":[{"name":"a","type":"integer","min":0,"max":1}]}'
        " --workload marginals:1 --epsilon 1 --delta 0 --neighboring replace_one"
        " --privacy_unit record --num_records 9",
        "release-intervals --runner DirectRunner",
    ],
)
def test_what_makes_releases_is_refused_by_one_line(reading: Home, command: str) -> None:
    words = command.split(" ")
    told = reading.refused("beam-dp", *words)
    assert told == f"error: {words[0]}: {NO_PART}\n"


def test_names_of_what_makes_releases_say_how_to_get_it(reading: Home) -> None:
    program = "import beam_dp\ntry: beam_dp.MWEM\nexcept ImportError as error: print(error)"
    assert reading.run("python", "-c", program) == f"beam_dp.MWEM: {NO_PART}\n"


def test_the_doctor_finds_nothing_broken(reading: Home) -> None:
    told = reading.run("beam-dp", "doctor")
    assert told.endswith("Releases can be read here.\n")
    assert "broken" not in told

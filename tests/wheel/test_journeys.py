"""The journeys of an analyst, an engineer and an officer, with nothing but the wheel."""

from __future__ import annotations

import pathlib
import resource
import shutil

import pytest
from newcomers import Home

pytestmark = pytest.mark.wheel
EXAMPLES = pathlib.Path(__file__).resolve().parents[2] / "examples"
MAX_SECONDS = 120  # of processor time; about 35 are usual, and machines differ


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def written(home: Home) -> set[pathlib.Path]:
    """Every file but those of the environment, which Python compiles as it goes."""
    environment = home.folder / "environment"
    return {path for path in home.folder.rglob("*") if not path.is_relative_to(environment)}


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("analyst", "The truth is within the 95 % error bar of"),
        ("engineer", "the release is complete"),
        ("officer", "does not hold: epsilon 1 at delta 1e-09, where 0.1 was promised"),
    ],
)
def test_a_journey_ends_well_and_writes_only_into_its_folder(
    home: Home, name: str, told: str
) -> None:
    copied = home.folder / "examples"
    if not copied.exists():
        shutil.copytree(EXAMPLES, copied, ignore=shutil.ignore_patterns("__pycache__"))
    output = home.folder / "elsewhere" / "journeys"
    before, started = written(home), processor_seconds()
    printed = home.run("python", "-B", str(copied / f"{name}.py"), "--folder", "journeys")
    assert processor_seconds() - started < MAX_SECONDS
    assert told in printed
    assert "Traceback" not in printed
    assert (output / name).is_dir()
    assert {path for path in written(home) - before if not path.is_relative_to(output)} == set()

"""Beam makes a folder for each pipeline, and forgets it where the pipeline never runs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from jobs import interval_flags, job_flags
from pytest import MonkeyPatch
from yaml_jobs import RELEASE, read, run, step

import beam_dp as dp
from pipelines import release_intervals, release_synthetic_database


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def budget(tmp_path: Path) -> dict[str, str]:
    """Flags of a ledger with a budget, with which programs build their pipeline twice."""
    url = str(tmp_path / "ledger.sqlite")
    unit = RELEASE["privacy_unit"]
    dp.Ledger(url).declare("people", 1000.0, 1e-9, unit, "add_or_remove_one")
    return {"ledger": url, "dataset_id": "people"}


def test_a_check_leaves_no_temporary_files(tmp_path: Path, temporary: Path) -> None:
    argv = [*job_flags(tmp_path), "--validate_only"]
    assert release_synthetic_database.main(argv) == 0
    assert os.listdir(temporary) == []


def test_a_refusal_leaves_no_temporary_files(tmp_path: Path, temporary: Path) -> None:
    argv = job_flags(tmp_path, input=str(tmp_path / "none.csv"))
    assert release_synthetic_database.main(argv) == 2
    assert os.listdir(temporary) == []


@pytest.mark.slow
def test_a_paid_release_leaves_no_temporary_files(
    tmp_path: Path, temporary: Path, budget: dict[str, str]
) -> None:
    assert release_intervals.main(interval_flags(tmp_path, **budget)) == 0
    assert os.listdir(temporary) == []


@pytest.mark.slow
def test_a_paid_release_of_beam_yaml_leaves_no_temporary_files(
    tmp_path: Path, temporary: Path, budget: dict[str, str]
) -> None:
    output = str(tmp_path / "out")
    run(read(tmp_path), step("ReleaseSyntheticDatabase", **RELEASE, **budget, output=output))
    assert os.listdir(temporary) == []

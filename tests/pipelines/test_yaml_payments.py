"""Beam YAML: every transform pays once, for what is released, and for nothing that is refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from jobs import people, write_table
from pytest import LogCaptureFixture
from yaml_jobs import PAID_JOBS, RELEASE, paid, read, run, step

import beam_dp.yaml
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.kinds import read_release

LOGGER = "beam_dp.yaml"


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 100, 1e-9, "household", "add_or_remove_one")
    return ledger


@pytest.mark.slow
@pytest.mark.parametrize("job", PAID_JOBS)
def test_a_release_is_paid_for_by_the_entry_that_its_card_names(
    tmp_path: Path, ledger: Ledger, job: str
) -> None:
    run(read(tmp_path), paid(job, ledger, tmp_path))
    (entry,) = ledger.entries("people")
    assert entry.state == "spent" and entry.guarantee.epsilon == 1
    card = (tmp_path / "out" / "card.json").read_text("utf-8")
    assert json.dumps({"ledger_release": entry.release_id})[1:-1] in card


@pytest.mark.parametrize("job", PAID_JOBS)
def test_rows_that_lack_a_field_cost_nothing(tmp_path: Path, ledger: Ledger, job: str) -> None:
    rows = step("Create", elements=[{"household": 1, "agee": 3, "sexx": "Male"}])
    with pytest.raises(ValueError, match="must be a field of the records; the nearest known is"):
        run(rows, paid(job, ledger, tmp_path))
    assert ledger.entries("people") == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("job", PAID_JOBS)
def test_windows_cost_nothing(tmp_path: Path, ledger: Ledger, job: str) -> None:
    fixed = step("WindowInto", windowing={"type": "fixed", "size": "60s"})
    with pytest.raises(ValueError, match=r"records: .* must be in the global window"):
        run(read(tmp_path), fixed, paid(job, ledger, tmp_path))
    assert ledger.entries("people") == [] and not (tmp_path / "out").exists()


@pytest.mark.parametrize("job", PAID_JOBS)
def test_unbounded_records_cost_nothing(tmp_path: Path, ledger: Ledger, job: str) -> None:
    records = beam.Pipeline("FnApiRunner") | beam.Create([])
    records.is_bounded = False
    release = paid(job, ledger, tmp_path)
    with pytest.raises(ValueError, match=r"^records: .* must be bounded$"):
        _ = records | getattr(beam_dp.yaml, release["type"])(**release["config"])
    assert ledger.entries("people") == []


@pytest.mark.slow
@pytest.mark.parametrize(("file_format", "extension"), [("csv", "parquet"), ("parquet", "dat")])
def test_the_format_that_is_given_is_that_of_the_files(
    tmp_path: Path, file_format: str, extension: str
) -> None:
    written = Path(write_table(tmp_path, people(), file_format))
    path = str(written.rename(tmp_path / f"file.{extension}"))
    fields = {**RELEASE, "epsilon": 1e6, "output": str(tmp_path / "out")}
    run(
        step("ReadRecords", input=path, input_format=file_format),
        step("ReleaseSyntheticDatabase", **fields),
    )
    assert read_release(tmp_path / "out").num_records == 500


def test_a_format_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    path = write_table(tmp_path, people())
    with pytest.raises(ValueError, match=r"^input_format: 'xlsx' is refused; must be one of avro"):
        beam_dp.yaml.ReadRecords(input=path, input_format="xlsx")


@pytest.mark.parametrize("sampler", ["search", "auto"])
def test_what_a_release_warns_of_is_logged_in_words_of_fields(
    tmp_path: Path, caplog: LogCaptureFixture, sampler: str
) -> None:
    fields = {**RELEASE, "domain": {"age": 2}, "workload": "marginals:1", "num_records": 5}
    release = beam_dp.yaml.ReleaseSyntheticDatabase(
        **fields, mechanism="small_db", size=3, sampler=sampler, output=str(tmp_path / "out")
    )
    records = beam.Pipeline(runner=FnApiRunner()) | beam.Create([])
    with caplog.at_level(logging.WARNING, LOGGER):
        _ = records | release
    warned = [each.getMessage() for each in caplog.records if each.name == LOGGER]
    expected = ["sampler search: how long it takes"] if sampler == "search" else []
    assert [each[:33] for each in warned] == expected

"""Beam YAML: every transform pays once, for what is released, and for nothing that is refused."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from jobs import people, write_table
from yaml_jobs import PAID_JOBS, PROMISE, RELEASE, build, paid, read, run, step

import beam_dp.yaml
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.releases.kinds import read_release

LOGGER = "beam_dp.yaml"


@pytest.fixture
def ledger(tmp_path) -> Ledger:
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 100, 1e-9, "household", "add_or_remove_one")
    return ledger


@pytest.mark.job
@pytest.mark.parametrize("job", PAID_JOBS)
def test_release_is_paid_for_by_the_entry_on_its_card(tmp_path, ledger, job):
    run(read(tmp_path), paid(job, ledger, tmp_path))
    (entry,) = ledger.entries("people")
    assert entry.state == "submitted" and entry.guarantee.epsilon == 1
    card = (tmp_path / "out" / "card.json").read_text("utf-8")
    assert json.dumps({"ledger_release": entry.release_id})[1:-1] in card


@pytest.mark.job
@pytest.mark.parametrize("job", PAID_JOBS)
def test_refuses_records_that_it_cannot_count_before_paying(tmp_path, ledger, job):
    rows = step("Create", elements=[{"household": 1, "agee": 3, "sexx": "Male"}])
    release = paid(job, ledger, tmp_path)
    with pytest.raises(ValueError, match="must be a field of the records; the nearest known is"):
        run(rows, release)
    fixed = step("WindowInto", windowing={"type": "fixed", "size": "60s"})
    with pytest.raises(ValueError, match=r"records: .* must be in the global window"):
        run(read(tmp_path), fixed, release)
    records = beam.Pipeline("FnApiRunner") | beam.Create([])
    records.is_bounded = False
    with pytest.raises(ValueError, match=r"^records: .* must be bounded$"):
        _ = records | getattr(beam_dp.yaml, release["type"])(**release["config"])
    assert ledger.entries("people") == [] and not (tmp_path / "out").exists()


@pytest.mark.job
@pytest.mark.parametrize(("file_format", "extension"), [("csv", "parquet"), ("parquet", "dat")])
def test_reads_files_in_the_given_format(tmp_path, file_format, extension):
    written = Path(write_table(tmp_path, people(), file_format))
    path = str(written.rename(tmp_path / f"file.{extension}"))
    fields = {**RELEASE, "epsilon": 1e6, "output": str(tmp_path / "out")}
    run(
        step("ReadRecords", input=path, input_format=file_format),
        step("ReleaseSyntheticDatabase", **fields),
    )
    assert read_release(tmp_path / "out").num_records == 500


def test_refuses_unknown_input_format(tmp_path):
    path = write_table(tmp_path, people())
    with pytest.raises(
        ValueError, match=r"^input_format: 'xlsx' is not valid: must be one of avro"
    ):
        beam_dp.yaml.ReadRecords(input=path, input_format="xlsx")


@pytest.mark.job
@pytest.mark.parametrize("sampler", ["search", "auto"])
def test_yaml_logs_warnings_with_names_of_fields(tmp_path, caplog, sampler):
    fields = {**RELEASE, "domain": {"age": 2}, "workload": "marginals:1", "num_records": 5}
    release = beam_dp.yaml.ReleaseSyntheticDatabase(
        **fields, mechanism="small_db", size=3, sampler=sampler, output=str(tmp_path / "out")
    )
    records = beam.Pipeline(runner=FnApiRunner()) | beam.Create([])
    with caplog.at_level(logging.WARNING, LOGGER):
        _ = records | release
    warned = [each.getMessage() for each in caplog.records if each.name == LOGGER]
    expected = ["sampler search: the running time depends"] if sampler == "search" else []
    assert [each[:40] for each in warned] == expected


def of_ledger(ledger: Ledger, **fields: Any) -> dict[str, Any]:
    return {"ledger": ledger.name, "dataset_id": "people", **fields}


def refusal(pipeline: beam.Pipeline, *transforms: dict[str, Any], kind: str = "composite") -> str:
    """What is said, after Beam's words on where; demands one line."""
    with pytest.raises(ValueError) as refused:
        build(pipeline, {"type": kind, "transforms": list(transforms)})
    line = str(refused.value)
    assert "\n" not in line
    return line.partition(": ")[2]


@pytest.mark.job
def test_refuses_second_release_in_a_folder_before_paying(tmp_path, ledger):
    def release(attribute: str, output: str) -> dict[str, Any]:
        fields = of_ledger(ledger, **PROMISE, domain={"age": 9, "hours": 9}, attribute=attribute)
        named = step("ReleaseIntervals", output=output, **fields)
        return {**named, "name": attribute, "input": "People"}

    rows = step("Create", elements=[{"household": 1, "age": 3, "hours": 4}])
    pipeline = beam.Pipeline("FnApiRunner")
    first, second = str(tmp_path / "out"), f"{tmp_path}/deep/../out/"
    line = refusal(
        pipeline, {**rows, "name": "People"}, release("age", first), release("hours", second)
    )
    condition = "must be another directory: this pipeline writes there already"
    assert line == f"output: {second!r} is not valid: {condition}"
    # That of the first one was spent before anybody could know of the second.
    assert len(ledger.entries("people")) == 1


@pytest.mark.parametrize("has_ledger", [True, False])
def test_refuses_local_output_for_dataflow_workers(tmp_path, ledger, has_ledger):
    pipeline = beam.Pipeline("FnApiRunner")
    pipeline.runner = DataflowRunner()  # a pipeline that is made with it looks for its bucket
    fields = of_ledger(ledger, **RELEASE) if has_ledger else RELEASE
    release = step("ReleaseSyntheticDatabase", output=str(tmp_path / "out"), **fields)
    line = refusal(pipeline, read(tmp_path), release, kind="chain")
    assert line == (
        f"output: '{tmp_path}/out' is not valid: must be a URL such as gs://BUCKET/FOLDER with"
        " --runner DataflowRunner: its workers share no local folder"
    )
    assert ledger.entries("people") == []


def test_yaml_reader_refuses_records(tmp_path):
    rows = step("Create", elements=[{"age": 3}])
    release = step("ReleaseSyntheticDatabase", output=str(tmp_path / "out"), **RELEASE)
    line = refusal(beam.Pipeline("FnApiRunner"), rows, read(tmp_path), release, kind="chain")
    assert line == (
        "records: 'the output of another transform' is not valid: must not be given: ReadRecords"
        " reads files, and must come first"
    )


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"input": {"one": "A", "two": "B"}}, "['one', 'two']"),
        ({"input": []}, "'PBegin'"),
    ],
    ids=["several", "none"],
)
def test_refuses_input_other_than_one_collection_of_records(tmp_path, ledger, given, value):
    rows = step("Create", elements=[{"household": 1, "age": 3}])
    fields = of_ledger(ledger, output=str(tmp_path / "out"), **RELEASE)
    release = {**step("ReleaseSyntheticDatabase", **fields), **given}
    sources = [{**rows, "name": name} for name in "AB"]
    line = refusal(beam.Pipeline("FnApiRunner"), *sources, release)
    condition = "must be one collection: join several with Flatten"
    assert line == f"records: {value} is not valid: {condition}"
    assert ledger.entries("people") == []

"""Beam YAML: what only a whole pipeline shows is refused in one line, before it is paid for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.dataflow.dataflow_runner import DataflowRunner
from yaml_jobs import PROMISE, RELEASE, build, read, step

from beam_dp.privacy.ledger.ledger import Ledger


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 100, 1e-9, "household", "add_or_remove_one")
    return ledger


def paid(ledger: Ledger, **fields: Any) -> dict[str, Any]:
    return {"ledger": ledger.name, "dataset_id": "people", **fields}


def refusal(pipeline: beam.Pipeline, *transforms: dict[str, Any], kind: str = "composite") -> str:
    """What is said, after Beam's words on where; demands one line."""
    with pytest.raises(ValueError) as refused:
        build(pipeline, {"type": kind, "transforms": list(transforms)})
    line = str(refused.value)
    assert "\n" not in line
    return line.partition(": ")[2]


@pytest.mark.slow
def test_a_second_release_in_a_folder_is_refused_before_it_is_paid_for(
    tmp_path: Path, ledger: Ledger
) -> None:
    def release(attribute: str, output: str) -> dict[str, Any]:
        fields = paid(ledger, **PROMISE, domain={"age": 9, "hours": 9}, attribute=attribute)
        named = step("ReleaseIntervals", output=output, **fields)
        return {**named, "name": attribute, "input": "People"}

    rows = step("Create", elements=[{"household": 1, "age": 3, "hours": 4}])
    pipeline = beam.Pipeline("FnApiRunner")
    first, second = str(tmp_path / "out"), f"{tmp_path}/deep/../out/"
    line = refusal(
        pipeline, {**rows, "name": "People"}, release("age", first), release("hours", second)
    )
    condition = "must be another directory: this pipeline writes there already"
    assert line == f"output: {second!r} is refused; {condition}"
    # That of the first one was spent before anybody could know of the second.
    assert len(ledger.entries("people")) == 1


@pytest.mark.parametrize("has_ledger", [True, False])
def test_workers_of_dataflow_share_no_folder(
    tmp_path: Path, ledger: Ledger, has_ledger: bool
) -> None:
    pipeline = beam.Pipeline("FnApiRunner")
    pipeline.runner = DataflowRunner()  # a pipeline that is made with it looks for its bucket
    fields = paid(ledger, **RELEASE) if has_ledger else RELEASE
    release = step("ReleaseSyntheticDatabase", output=str(tmp_path / "out"), **fields)
    line = refusal(pipeline, read(tmp_path), release, kind="chain")
    assert line == (
        f"output: '{tmp_path}/out' is refused; must not be a folder of one machine with"
        " --runner DataflowRunner: its workers share none"
    )
    assert ledger.entries("people") == []


def test_a_reader_takes_no_records(tmp_path: Path) -> None:
    rows = step("Create", elements=[{"age": 3}])
    release = step("ReleaseSyntheticDatabase", output=str(tmp_path / "out"), **RELEASE)
    line = refusal(beam.Pipeline("FnApiRunner"), rows, read(tmp_path), release, kind="chain")
    assert line == (
        "records: 'the output of another transform' is refused; must not be given: ReadRecords"
        " reads files, and is the first of a chain"
    )


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ({"input": {"one": "A", "two": "B"}}, "['one', 'two']"),
        ({"input": []}, "'PBegin'"),
    ],
    ids=["several", "none"],
)
def test_anything_but_one_collection_of_records_is_refused(
    tmp_path: Path, ledger: Ledger, given: dict[str, Any], value: str
) -> None:
    rows = step("Create", elements=[{"household": 1, "age": 3}])
    fields = paid(ledger, output=str(tmp_path / "out"), **RELEASE)
    release = {**step("ReleaseSyntheticDatabase", **fields), **given}
    sources = [{**rows, "name": name} for name in "AB"]
    line = refusal(beam.Pipeline("FnApiRunner"), *sources, release)
    condition = "must be one collection: join several by Flatten"
    assert line == f"records: {value} is refused; {condition}"
    assert ledger.entries("people") == []

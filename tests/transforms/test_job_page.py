"""The page of a job shows the promise of a release, and counts only what was committed."""

from __future__ import annotations

import json
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.metrics.metric import Lineage
from apache_beam.transforms.display import DisplayData
from fakes import pipeline
from job_pages import DOMAIN, KINDS, NEIGHBOURS, PEOPLE, PROMISE, counters, expected, released, run

import beam_dp as dp

LOCAL = ["--runner=FnApiRunner"]
SHOWN = {
    "epsilon": 1.0,
    "delta": 1e-9,
    "neighboring": "add_or_remove_one",
    "privacy_unit": "record",
    "max_records_per_unit": 1,
}


@pytest.mark.parametrize("kind", KINDS)
def test_steps_show_the_promise_of_the_release(kind, tmp_path):
    p = pipeline()
    released(kind, p | beam.Create(PEOPLE), tmp_path)
    steps = p.to_runner_api().components.transforms.values()
    (step,) = (step for step in steps if "beam_dp" in step.annotations)
    promise = json.loads(step.annotations["beam_dp"])
    mechanism = promise.pop("mechanism")
    assert promise == SHOWN
    payloads = b"".join(item.payload for item in step.display_data)
    assert all(text.encode() in payloads for text in (mechanism, "privacy unit", "add_or_remove"))


def test_display_data_names_the_ledger_entry_but_not_the_ledger(tmp_path):
    ledger = dp.Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 2.0, 1e-6, "record", "add_or_remove_one")
    plan = dp.ReleaseIntervals(DOMAIN, "age", PROMISE).plan
    token = ledger.spend("people", plan.promised, plan.loss, plan.mechanism)
    release = dp.ReleaseIntervals(DOMAIN, "age", PROMISE, ledger_token=token)
    shown = {item.key: item.value for item in DisplayData.create_from(release).items}
    assert shown == {**SHOWN, "mechanism": plan.mechanism, "ledger_release": "people/1"}
    assert "sqlite" not in json.dumps(release.annotations())


@pytest.mark.job
@pytest.mark.parametrize("kind", KINDS)
def test_counters_of_neighbours_are_functions_of_the_release(kind, tmp_path):
    for number, people in enumerate(NEIGHBOURS):
        out = tmp_path / str(number)
        assert counters(run(kind, people, out, LOCAL)) == expected(out)


def lineage(result: Any) -> tuple[set[str], set[str]]:
    """The sources and the sinks that a job reports."""
    sources, sinks = (
        Lineage.query(result.metrics(), label) for label in (Lineage.SOURCE, Lineage.SINK)
    )
    return sources, sinks


@pytest.mark.job
def test_lineage_names_the_pattern_that_was_given_and_the_committed_directory(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.csv").write_text("age\n1\n2\n")
    p = pipeline()
    records = p | dp.ReadRecords(str(tmp_path / "*.csv"))
    released("intervals", records, tmp_path / "out")
    place = f"filesystem:localhost.{tmp_path}"
    assert lineage(p.run()) == ({f"{place}/*.csv"}, {f"{place}/out"})


@pytest.mark.job
def test_job_without_a_commit_counts_nothing(tmp_path, monkeypatch):
    """The draw is lost: its counters would tell of a draw that is not released."""
    monkeypatch.setattr("beam_dp.transforms.writing.commit_release", lambda *_: False)
    result = run("intervals", PEOPLE, tmp_path / "out", LOCAL)
    assert counters(result) == {} and lineage(result) == (set(), set())

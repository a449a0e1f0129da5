"""A plan takes seconds for a large workload: a job makes one, whoever starts it and pays for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from calls import calls_of
from engines.programs import PROGRAMS
from pytest import MonkeyPatch
from yaml_jobs import PAID_JOBS, build, paid, read

from beam_dp.mechanisms.intervals.plan import plan_intervals
from beam_dp.mechanisms.linear_answers.answers import plan_workload_answers
from beam_dp.mechanisms.marginals.mwem import MWEM
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
from beam_dp.mechanisms.sketches.mechanisms import CountSketch
from beam_dp.privacy.ledger.ledger import Ledger
from pipelines import program

PLANNERS: dict[str, Callable[..., Any]] = {
    "release_synthetic_database": MWEM.plan,
    "release_projection": CountSketch.plan,
    "release_intervals": plan_intervals,
    "answer_queries, private_mw": plan_private_mw,
    "answer_queries, sparse_mw": plan_sparse_mw,
    "answer_queries, laplace": plan_workload_answers,
}
PLANNERS_OF_YAML: dict[str, Callable[..., Any]] = {
    "synthetic database": MWEM.plan,
    "projection": CountSketch.plan,
    "intervals": plan_intervals,
    "private_mw": plan_private_mw,
    "laplace": plan_workload_answers,
}


def declared(folder: Path, unit: str) -> Ledger:
    ledger = Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("people", 1e6, 1e-6, unit, "add_or_remove_one")
    return ledger


@pytest.mark.slow
@pytest.mark.parametrize(
    ("end", "payment"),
    [("run", "with a ledger"), ("run", "without"), ("validated", "with a ledger")],
)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_job_of_the_command_line_is_planned_and_built_once(
    tmp_path: Path, monkeypatch: MonkeyPatch, name: str, end: str, payment: str
) -> None:
    flags = PROGRAMS[name].flags(tmp_path)
    if payment == "with a ledger":
        unit = next(flag for flag in flags if flag.startswith("--privacy_unit=")).partition("=")[2]
        flags += [f"--ledger={declared(tmp_path, unit).name}", "--dataset_id=people"]
    started: list[str] = []
    # The job that was built is not needed here.
    monkeypatch.setattr(
        "pipelines.program.run_pipeline", lambda _, __, outputs: bool(started.extend(outputs))
    )
    with calls_of(PLANNERS[name]) as planned, calls_of(program.build) as built:
        code = PROGRAMS[name].main(
            [*flags, *(["--validate_only", "--json"] if end == "validated" else [])]
        )
    assert (code, started) == ((0, []) if end == "validated" else (1, [str(tmp_path / "out")]))
    assert (len(planned), len(built)) == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", PAID_JOBS)
def test_a_job_of_yaml_is_planned_once(tmp_path: Path, name: str) -> None:
    ledger = declared(tmp_path, "household")
    chain = {"type": "chain", "transforms": [read(tmp_path), paid(name, ledger, tmp_path)]}
    with calls_of(PLANNERS_OF_YAML[name]) as planned:
        build(beam.Pipeline(runner=FnApiRunner()), chain)
    assert len(planned) == 1, planned
    assert [entry.state for entry in ledger.entries("people")] == ["spent"]

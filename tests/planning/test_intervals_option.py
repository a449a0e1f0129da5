"""What planning says of interval counts is what a release of them states."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from noise_sources import Seeded

from beam_dp.cli import main as cli
from beam_dp.domain.files import domain_from_json
from beam_dp.mechanisms.intervals.plan import plan_intervals, release_intervals
from beam_dp.planning.job import PlanningJob
from beam_dp.planning.linear_answers import asked_intervals, intervals_option
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.queries.workload import parse_workload

PROMISE = Guarantee(0.5, 0, "add_or_remove_one", "person", 2)
DOMAIN = {
    "attributes": [
        {"name": "age", "type": "integer", "min": 5, "max": 40, "other": True},
        {"name": "pay", "type": "numeric", "edges": [0, 1, 2, 3]},
        {"name": "sex", "type": "categorical", "values": ["a", "b", "c"]},
    ]
}


def job_of(spec: str) -> PlanningJob:
    domain = domain_from_json(DOMAIN)
    return PlanningJob(parse_linear_workload(spec, domain), PROMISE, 10_000, False)


@pytest.mark.parametrize("spec", ["intervals:age", "prefixes:age", "prefixes:pay"])
def test_the_error_is_that_of_the_intervals_asked_for(spec: str) -> None:
    job = job_of(spec)
    option = intervals_option(job)
    attribute, low, high = asked_intervals(job)
    num_leaves = job.domain[attribute].num_levels
    release = release_intervals(
        plan_intervals(num_leaves, PROMISE), np.zeros(num_leaves, np.int64), Seeded(1)
    )
    errors = release.answer(low, high).standard_errors
    assert len(low) == job.num_queries
    assert option.expected_error == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert option.bound is not None and option.bound.max_error > errors.max()
    if spec == "prefixes:age":
        assert low.tolist() == [0] * 36 and high.tolist() == list(range(36))


@pytest.mark.parametrize("spec", ["intervals:sex", "conjunctions:2", "conjunctions:1"])
def test_other_queries_are_refused(spec: str) -> None:
    option = intervals_option(job_of(spec))
    assert option.refusal is not None and "must be" in option.refusal


def test_marginals_are_refused() -> None:
    domain = domain_from_json(DOMAIN)
    job = PlanningJob(parse_workload("marginals:1", domain), PROMISE, 10_000, False)
    assert "one ordered attribute" in str(intervals_option(job).refusal)


@pytest.mark.slow
def test_the_command_line_runs(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pipelines.release_intervals import parse_arguments

    path = tmp_path / "domain.json"
    path.write_text(json.dumps(DOMAIN))
    flags = {
        "domain": str(path), "workload": "intervals:age", "epsilon": "0.5", "delta": "0",
        "neighboring": "add_or_remove_one", "privacy_unit": "person", "max_records_per_unit": "2",
        "num_records": "10000",
    }  # fmt: skip
    words = [word for name, value in flags.items() for word in (f"--{name}", value)]
    assert cli.main(["plan", *words]) == 0
    start = "beam-dp release-intervals "
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith(start))
    job = parse_arguments(line.split()[2:])
    assert (job.attribute, job.guarantee) == ("age", PROMISE)

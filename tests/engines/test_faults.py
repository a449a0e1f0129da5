"""Kills parts of a Flink cluster in the middle of a job; one draw is published, or nothing.

`make test-jobs` runs one trial of each fault on one program, `make test-faults` the table of
docs/faults.md: 20 trials, or FAULT_TRIALS, of each fault on each program.
"""

import json
import os
import pathlib
import shutil
import threading
from collections.abc import Callable, Sequence

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from engines import faults, moments
from engines.contracts import ON_CLUSTER
from engines.faults import FAULTS, Fault, Outcome, new_folder, run_trial
from job_pages import DOMAIN, PEOPLE, released, write_row
from patience import HANG_SECONDS, wait_for

import beam_dp as dp

COLUMNS = (
    "fault",
    "program",
    "trials",
    "complete releases",
    "clean failures",
    "noise drawn again",
    "cleaned up later",
    "second draws",
    "lost ledger entries",
)
IN_A_BUCKET = "synthetic database, in a bucket"
NUM_TRIALS = int(os.environ.get("FAULT_TRIALS", "20"))


# Each landing kills a task manager while it writes.
AT_LANDINGS = "c. task manager, during the write"


@pytest.mark.engines
@pytest.mark.parametrize(
    ("name", "in_a_bucket"),
    [
        pytest.param(
            name,
            in_a_bucket,
            marks=pytest.mark.job
            if (name, in_a_bucket) == (AT_LANDINGS, False)
            else pytest.mark.part,
        )
        for name in FAULTS
        for in_a_bucket in (False, True)
        if not in_a_bucket or name[0] in "cdf"
    ],
)
def test_one_whole_draw_or_nothing_is_published_after_a_fault(
    tmp_path, cluster, waiting, google_storage, name, in_a_bucket
):
    program, fault = ON_CLUSTER["synthetic database"], FAULTS[name]
    # The worst moment of the write: committed, but nothing in its place yet.
    worst = moments.AFTER_CARD
    number = fault.at.index(worst) if worst in fault.at else 0
    service = google_storage if in_a_bucket else None
    folder = new_folder(tmp_path, number)
    outcome = run_trial(cluster, waiting, program, fault, folder, number, service)
    assert outcome.flaws == ()
    # A job manager that does not remember jobs can't resume one.
    assert outcome.is_complete or fault.victim == faults.JOB_MANAGER


@pytest.mark.engines
@pytest.mark.part
def test_fault_checks_detect_a_careless_writer(tmp_path, cluster, waiting):
    """A writer that publishes file by file, as ordinary ones do: the checks must detect it."""
    fault = Fault(faults.TASK_MANAGER, (moments.HALF_DRAFT,), is_careless=True)
    outcome = run_trial(cluster, waiting, ON_CLUSTER["synthetic database"], fault, tmp_path)
    assert outcome.num_draws >= 2
    assert [flaw for flaw in outcome.flaws if flaw.startswith(faults.SECOND_DRAW)]


def row(fault: str, program: str, outcomes: Sequence[Outcome]) -> Sequence[str]:
    """Counts the outcomes of the trials of a fault on a program."""
    flaws = [" ".join(outcome.flaws) for outcome in outcomes]
    numbers = (
        len(outcomes),
        sum(outcome.is_complete and not outcome.flaws for outcome in outcomes),
        sum(not outcome.is_complete and not outcome.flaws for outcome in outcomes),
        sum(outcome.num_draws > 1 for outcome in outcomes),
        sum(outcome.needs_cleaning for outcome in outcomes),
        sum(faults.SECOND_DRAW in each or faults.DRAFT in each for each in flaws),
        sum(faults.LEDGER in each for each in flaws),
    )
    return (fault, program, *map(str, numbers))


@pytest.fixture(scope="module")
def show(pytestconfig) -> Callable[[Sequence[str]], None]:
    """Prints a row for each program and fault, whose sums are in docs/faults.md."""
    capture = pytestconfig.pluginmanager.get_plugin("capturemanager")
    assert capture is not None

    def write(cells: Sequence[str]) -> None:
        with capture.global_and_fixture_disabled():
            print(f"| {' | '.join(cells)} |", flush=True)

    print()
    write(COLUMNS)
    write(("---",) * len(COLUMNS))
    return write


@pytest.mark.faults
@pytest.mark.parametrize("program", [*ON_CLUSTER, IN_A_BUCKET])
@pytest.mark.parametrize("name", FAULTS)
def test_at_most_one_draw_is_published_after_any_fault_in_any_program(
    tmp_path, cluster, waiting, google_storage, show, name, program
):
    service = google_storage if program == IN_A_BUCKET else None
    job, outcomes = ON_CLUSTER[program.removesuffix(", in a bucket")], []
    for number in range(NUM_TRIALS):
        folder = new_folder(tmp_path, number)
        fault = FAULTS[name]
        outcomes.append(run_trial(cluster, waiting, job, fault, folder, number, service))
        shutil.rmtree(folder)
    show(row(name, program, outcomes))
    assert [outcome for outcome in outcomes if outcome.flaws] == []


def write_rows(folder: pathlib.Path, flags: list[str]) -> None:
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        written = released("intervals", pipeline | beam.Create(PEOPLE), folder / "out")
        rows = written | dp.IntervalRows(domain=DOMAIN, attribute="age")
        _ = rows | beam.Map(write_row, folder)


@pytest.mark.engines
@pytest.mark.part
@pytest.mark.parametrize("moment", [moments.DRAWN, moments.AFTER_CARD, moments.BEFORE_TIDYING])
def test_rows_of_one_draw_reach_the_sink_after_a_kill(tmp_path, cluster, waiting, moment):
    job = threading.Thread(target=write_rows, args=(tmp_path, cluster.flags()), daemon=True)
    waiting.arm(moment)
    job.start()
    try:
        faults.kill(cluster, faults.TASK_MANAGER, wait_for(moment, waiting.reached))
        waiting.let_go()
        job.join(timeout=HANG_SECONDS)
    finally:
        waiting.let_go()
        faults.repair(cluster)
        draws = waiting.draws()
        waiting.disarm()
    rows = [json.loads(path.read_text()) for path in tmp_path.glob("row-*")]
    assert {row["low"] for row in rows} == set(range(10))
    assert {row["draw_id"] for row in rows} == {dp.read_release(tmp_path / "out").draw_id}
    assert len(draws) > 1  # the test is not blind: noise was drawn again

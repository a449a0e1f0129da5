"""Release counts of all intervals of one ordered column, with differential privacy.

    beam-dp release-intervals \
        --input 'visits/*.parquet' --domain visits.json --attribute age \
        --epsilon 1 --delta 0 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --output out/ages

Arguments are parsed, then everything is validated from public parameters, then the pipeline is
built, as in `release_synthetic_database`. The number of records is not needed, and not released.
`beam-dp release-intervals --help` lists the flags.
"""

from __future__ import annotations

import json
import math
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, get_args

import apache_beam as beam

from beam_dp.cli.programs import command_of
from beam_dp.domain import Domain
from beam_dp.domain.files import parse_domain
from beam_dp.flags import shared
from beam_dp.flags.flag import Flag
from beam_dp.flags.shared import read_guarantee
from beam_dp.mechanisms.intervals import IntervalPlan
from beam_dp.mechanisms.intervals.plan import StrategyChoice, StrategyName
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger import Ledger, Token
from beam_dp.releases import probe_output
from beam_dp.transforms import ReadRecords, ReleaseIntervals, WriteRelease
from beam_dp.transforms.drawing.release_intervals import MECHANISM

from . import flags
from .common import (
    ledger_card,
    left_out_json,
    make_pipeline,
    promised_left_out,
    read_ledger,
    read_text,
)
from .progress import Progress
from .record_number import read_expected, warn_of_number
from .running import run_main, run_release

PROGRAM = command_of("release_intervals")
ATTRIBUTE = Flag(
    "attribute", "ordered attribute of the domain, of 2 to 2^20 levels", "COLUMN", True
)
STRATEGY = Flag(
    "strategy",
    "what is measured; best is the one with the least mean squared error over all intervals",
    default="best",
    choices=("best", *get_args(StrategyName)),
)
_UNUSED = (shared.WORKLOAD, shared.NUM_RECORDS, shared.CALIBRATION)
FLAGS = (
    *(flag for flag in shared.COMMON if flag not in _UNUSED),
    shared.COUNT_LEFT_OUT,
    shared.EXPECT_RECORDS,
    ATTRIBUTE,
    STRATEGY,
)


@dataclass(frozen=True)
class Job:
    """Everything that the command line says, as values that have been checked one by one."""

    input: str
    input_format: str | None
    domain: Domain
    attribute: str
    guarantee: Guarantee
    strategy: StrategyChoice
    count_left_out: bool
    expect_records: int | None
    ledger: Ledger | None
    dataset_id: str
    output: str
    validate_only: bool
    beam_flags: tuple[str, ...]


def parse_arguments(argv: Sequence[str]) -> Job:
    """Returns the job that a command line describes.

    Args:
        argv: the command line, without the program's name.

    Returns:
        The job; nothing has been read but the domain file.

    Raises:
        FlagError: a flag is unknown, missing, repeated or outside its choices.
        InputError: a value is refused.
    """
    given, beam_flags = flags.parse(FLAGS, argv, program=PROGRAM, description=__doc__ or "")
    return read_job(given, beam_flags)


def read_job(given: dict[str, str], beam_flags: Sequence[str] = ()) -> Job:
    """Returns the job that flags describe.

    Args:
        given: the texts of the flags that were given or have a default.
        beam_flags: Beam's own.

    Raises:
        FlagError: a flag that others need is missing.
        InputError: a value is refused.
    """
    return Job(
        input=given["input"],
        input_format=given.get("input_format"),
        domain=parse_domain(read_text("domain", given["domain"]), source=given["domain"]),
        attribute=given["attribute"],
        guarantee=read_guarantee(given),
        strategy=given["strategy"],  # type: ignore[arg-type]  # one of its choices
        count_left_out="count_left_out" in given,
        expect_records=read_expected(given, "noisy"),
        ledger=read_ledger(given),
        dataset_id=given.get("dataset_id", ""),
        output=given["output"],
        validate_only="validate_only" in given,
        beam_flags=tuple(beam_flags),
    )


def build(job: Job, pipeline: beam.Pipeline, token: Token | None = None) -> IntervalPlan:
    """Adds the job to a pipeline. Every refusal happens here, before anything runs.

    Args:
        job: what to release.
        pipeline: to which it is added.
        token: of the ledger that paid for it; the card then names the entry.

    Returns:
        What will be measured.

    Raises:
        InputError: the input, the output or a combination of parameters is refused.
    """
    add_release(
        job, pipeline | "Read" >> ReadRecords(job.input, file_format=job.input_format), token
    )
    return plan_of(job)


def plan_of(job: Job) -> IntervalPlan:
    """Returns what will be measured.

    Raises:
        InputError: if the attribute is not ordered, or the strategy can't keep the guarantee.
    """
    return _transform(job).plan


def _transform(job: Job, token: Token | None = None) -> ReleaseIntervals:
    return ReleaseIntervals(
        job.domain, job.attribute, job.guarantee, job.strategy, token, job.count_left_out
    )


def add_release(
    job: Job, records: beam.PCollection[Any], token: Token | None = None
) -> beam.PCollection[str]:
    """Adds the release of some records, and its writing; returns the directory.

    Raises:
        InputError: the records, the output or a combination of parameters is refused.
    """
    return records | "Release" >> _transform(job, token) | "Write" >> WriteRelease(job.output)


def public_card(job: Job, plan: IntervalPlan) -> dict[str, Any]:
    """Returns the part of the card that is known before any record is read.

    With a ledger also what the release would cost and what is left; nothing is spent.

    Raises:
        InputError: if the ledger would refuse the release.
    """
    card = {
        **_promised(job, plan),
        **left_out_json(plan.left_out),
        "noise": {"distribution": plan.choice[1], "scale": plan.scale, "grid": plan.grid},
        "errors": {
            "mean_squared_error": plan.mean_squared_error,
            "root_mean_squared_error": math.sqrt(plan.mean_squared_error),
        },
    }
    if job.ledger is not None:
        card["ledger"] = ledger_card(job.ledger, job.dataset_id, job.guarantee, plan.loss)
    return card


def _promised(job: Job, plan: IntervalPlan) -> dict[str, Any]:
    """What decides the rest: a strategy that is found numerically is compared by its name."""
    return {
        "mechanism": plan.choice[0],
        "guarantee": job.guarantee.to_json(),
        "attribute": job.domain[job.attribute].to_json(),
        **promised_left_out(plan.left_out),
    }


def spend(ledger: Ledger, job: Job, plan: IntervalPlan) -> Token:
    """Pays for a release.

    Raises:
        InputError: if the ledger refuses; then nothing was spent.
    """
    parameters = {
        "attribute": job.attribute,
        "strategy": plan.choice[0],
        **left_out_json(plan.left_out),
    }
    return ledger.spend(job.dataset_id, job.guarantee, plan.loss, MECHANISM, parameters)


def run(job: Job, plan: IntervalPlan, pipeline: beam.Pipeline, progress: Progress) -> int:
    """Pays for a release, runs the pipeline that makes it, and returns the exit code.

    Raises:
        InputError: if the output or the ledger refuses; then nothing was spent or run.
    """
    probe_output(job.output)
    token = None
    if job.ledger is not None:
        token = spend(job.ledger, job, plan)
        progress.say(f"spent: {token.release_id} in the ledger")
        # The same job once more, whose card will name the ledger's entry.
        pipeline = make_pipeline(job)
        build(job, pipeline, token)
    progress.say(
        f"all intervals of {job.attribute}, {plan.num_leaves:,} levels, by {plan.choice[0]};"
        f" runner {type(pipeline.runner).__name__}"
    )
    released = run_release(pipeline, job.output, _promised(job, plan), job.ledger, token, progress)
    if isinstance(released, int):
        return released
    warn_of_number(released, job.expect_records)
    directory = shlex.quote(job.output)
    print(f"The release is in {job.output}. Its error, the root of the mean square over all")
    print(f"intervals, is {math.sqrt(plan.mean_squared_error):,.1f} records. Look at it:")
    print(f"  beam-dp describe {directory}")
    print(f"  beam-dp answer {directory} --interval LOW HIGH")
    return 0


def _main(argv: Sequence[str], progress: Progress) -> int:
    job = parse_arguments(argv)
    pipeline = make_pipeline(job)
    plan = build(job, pipeline)
    if job.validate_only:
        print(json.dumps(public_card(job, plan), indent=2, ensure_ascii=False))
        return 0
    return run(job, plan, pipeline, progress)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit code: 0, 1 if the job failed, 2 for a bad argument."""
    return run_main(FLAGS, argv, _main)


if __name__ == "__main__":
    sys.exit(main())

"""Release a synthetic database that answers a workload, with differential privacy.

    beam-dp release-synthetic-database \
        --input 'visits/*.parquet' --domain visits.json --workload marginals:3 \
        --epsilon 1 --delta 1e-9 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --num_records noisy --output out/visits

Arguments are parsed, then everything is validated from public parameters, then the pipeline is
built: a bad argument costs one line and exit code 2, before any worker starts and with nothing
written. `beam-dp release-synthetic-database --help` lists the flags.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import apache_beam as beam

from beam_dp.cli.programs import command_of
from beam_dp.domain import Domain
from beam_dp.domain.files import parse_domain
from beam_dp.errors import magnitude
from beam_dp.flags import shared
from beam_dp.flags.flag import Flag, FlagError, check_applies
from beam_dp.flags.options import flags_of, values_of
from beam_dp.flags.shared import read_guarantee, read_num_records
from beam_dp.mechanisms import MWEM, MarginalsPlan, Mechanism, SmallDB, plan_release
from beam_dp.mechanisms.registry import SYNTHETIC, options_of
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger import Ledger, Token
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.releases import probe_output
from beam_dp.transforms import ReadRecords, ReleaseSyntheticDatabase, WriteRelease

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

PROGRAM = command_of("release_synthetic_database")
MECHANISM = Flag(
    "mechanism",
    "; ".join(f"{name} {each.summary}" for name, each in SYNTHETIC.items()),
    default=MWEM.name,
    choices=tuple(SYNTHETIC),
)
FLAGS = (
    *shared.COMMON,
    shared.COUNT_LEFT_OUT,
    shared.EXPECT_RECORDS,
    MECHANISM,
    *(flag for flag in flags_of(*SYNTHETIC.values()) if flag not in shared.COMMON),
)


@dataclass(frozen=True)
class Job:
    """Everything that the command line says, as values that have been checked one by one."""

    input: str
    input_format: str | None
    domain: Domain
    workload: Workload | LinearWorkload
    workload_spec: str
    guarantee: Guarantee
    mechanism: Mechanism
    num_records: int | Literal["noisy"]
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
        The job; each of its fields is valid, and nothing has been read but the domain file.

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
    guarantee = read_guarantee(given)
    num_records = read_num_records(given)
    domain = parse_domain(read_text("domain", given["domain"]), source=given["domain"])
    return Job(
        input=given["input"],
        input_format=given.get("input_format"),
        domain=domain,
        workload=(
            parse_linear_workload(given["workload"], domain)
            if SYNTHETIC[given["mechanism"]].answers_linear_queries
            else parse_workload(given["workload"], domain)
        ),
        workload_spec=given["workload"],
        guarantee=guarantee,
        mechanism=_mechanism(given),
        num_records=num_records,
        count_left_out="count_left_out" in given,
        expect_records=read_expected(given, num_records),
        ledger=read_ledger(given),
        dataset_id=given.get("dataset_id", ""),
        output=given["output"],
        validate_only="validate_only" in given,
        beam_flags=tuple(beam_flags),
    )


def _mechanism(given: dict[str, str]) -> Mechanism:
    name = given["mechanism"]
    check_applies(given, name, options_of(SYNTHETIC))
    if name == SmallDB.name and not {"size", "max_error_fraction"} & given.keys():
        raise FlagError(
            "--size: missing; must be given with --mechanism small_db, or --max_error_fraction"
        )
    return SYNTHETIC[name](**values_of(SYNTHETIC[name], given))


def plan_of(job: Job) -> MarginalsPlan:
    """Returns what will be done.

    Raises:
        InputError: if a combination of parameters is refused.
    """
    return plan_release(
        job.mechanism,
        job.domain,
        job.workload,
        job.guarantee,
        job.num_records,
        job.count_left_out,
    )


def build(job: Job, pipeline: beam.Pipeline, token: Token | None = None) -> None:
    """Adds the job to a pipeline. Every refusal happens here, before anything runs.

    Args:
        job: what to release.
        pipeline: to which it is added.
        token: of the ledger that paid for it; the card then names the entry.

    Raises:
        InputError: the input, the output or a combination of parameters is refused.
    """
    add_release(
        job, pipeline | "Read" >> ReadRecords(job.input, file_format=job.input_format), token
    )


def add_release(
    job: Job, records: beam.PCollection[Any], token: Token | None = None
) -> beam.PCollection[str]:
    """Adds the release of some records, and its writing; returns the directory.

    Raises:
        InputError: the records, the output or a combination of parameters is refused.
    """
    return (
        records
        | "Release"
        >> ReleaseSyntheticDatabase(
            job.domain,
            job.workload,
            job.guarantee,
            job.mechanism,
            num_records=job.num_records,
            ledger_token=token,
            count_left_out=job.count_left_out,
        )
        | "Write" >> WriteRelease(job.output)
    )


def public_card(job: Job, plan: MarginalsPlan) -> dict[str, Any]:
    """Returns the part of the card that is known before any record is read.

    With a ledger also what the release would cost and what is left; nothing is spent.

    Raises:
        InputError: if the ledger would refuse the release.
    """
    card = {
        **_promised(job, plan),
        **left_out_json(plan.left_out),
        "num_records": job.num_records,
        "workload": _workload_json(job),
    }
    if job.ledger is not None:
        card["ledger"] = ledger_card(job.ledger, job.dataset_id, job.guarantee, plan.loss)
    return card


def _promised(job: Job, plan: MarginalsPlan) -> dict[str, Any]:
    return {
        "mechanism": job.mechanism.name,
        "guarantee": job.guarantee.to_json(),
        "domain": job.domain.to_json(),
        "workload": plan.workload.to_json(),
        "parameters": plan.public,
        **promised_left_out(plan.left_out),
    }


def _workload_json(job: Job) -> Any:
    """Returns the workload, in a line where it has very many queries."""
    if isinstance(job.workload, Workload):
        return job.workload.to_json()
    return {"queries": job.workload_spec, "num_queries": len(job.workload)}


def spend(ledger: Ledger, job: Job, plan: MarginalsPlan) -> Token:
    """Pays for a release.

    Raises:
        InputError: if the ledger refuses; then nothing was spent.
    """
    parameters = {
        "num_records": job.num_records,
        "workload": _workload_json(job),
        **plan.public,
        **left_out_json(plan.left_out),
    }
    return ledger.spend(job.dataset_id, job.guarantee, plan.loss, job.mechanism.name, parameters)


def warnings_of(plan: MarginalsPlan) -> list[str]:
    """Returns what to tell before a release is made."""
    if not plan.time_depends_on_data:
        return []
    return [
        "--sampler search: how long it takes depends on the records; use it only where nobody else"
        " sees the time"
    ]


def run(job: Job, plan: MarginalsPlan, pipeline: beam.Pipeline, progress: Progress) -> int:
    """Pays for a release, runs the pipeline that makes it, and returns the exit code.

    Whatever can be refused was refused before the budget is spent, when the job was built for the
    first time, and no noise can be drawn before. A job that fails has spent it all the same: its
    noise may have been seen.

    Raises:
        InputError: if the output or the ledger refuses; then nothing was spent or run.
    """
    probe_output(job.output)
    token = None
    for warning in warnings_of(plan):
        print(f"warning: {warning}", file=sys.stderr)
    if job.ledger is not None:
        token = spend(job.ledger, job, plan)
        progress.say(f"spent: {token.release_id} in the ledger")
        # The same job once more, whose card will name the ledger's entry.
        pipeline = make_pipeline(job)
        build(job, pipeline, token)
    what = "marginals" if isinstance(job.workload, Workload) else "linear queries"
    progress.say(
        f"release of {len(job.domain.names)} attributes, {magnitude(job.domain.num_cells)} cells,"
        f" {len(job.workload):,} {what}; runner {type(pipeline.runner).__name__}"
    )
    released = run_release(pipeline, job.output, _promised(job, plan), job.ledger, token, progress)
    if isinstance(released, int):
        return released
    warn_of_number(released, job.expect_records)
    print(f"The release is in {job.output}. Look at it:")
    directory = shlex.quote(job.output)
    names = shlex.quote(",".join(plan.workload.marginals[0]))
    print(f"  beam-dp describe {directory}")
    print(f"  beam-dp answer {directory} --marginal {names}")
    return 0


def _main(argv: Sequence[str], progress: Progress) -> int:
    job = parse_arguments(argv)
    plan = plan_of(job)
    pipeline = make_pipeline(job)
    build(job, pipeline)
    if job.validate_only:
        print(json.dumps(public_card(job, plan), indent=2, ensure_ascii=False))
        return 0
    return run(job, plan, pipeline, progress)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit code: 0, 1 if the job failed, 2 for a bad argument."""
    return run_main(FLAGS, argv, _main)


if __name__ == "__main__":
    sys.exit(main())

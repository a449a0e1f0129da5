"""Release one artifact that answers any sparse query over a huge universe of keys.

    beam-dp release-projection \
        --input 'visits/*.parquet' --key email --max_sparsity 1000 \
        --epsilon 1 --delta 1e-9 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --output out/visits

Arguments are parsed, then everything is validated from public parameters, then the pipeline is
built, as in `release_synthetic_database`. The keys need not be declared: the universe is all text,
all bytes or all integers from 0 to 2^64 - 1.
`beam-dp release-projection --help` lists the flags.
"""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam

from beam_dp.cli.programs import command_of
from beam_dp.flags import shared
from beam_dp.flags.flag import Flag, FlagError
from beam_dp.flags.numbers import integer
from beam_dp.flags.shared import read_guarantee
from beam_dp.mechanisms.sketches.plan import SparsePlan
from beam_dp.privacy.ledger import Ledger, Token
from beam_dp.queries.sparse import key_type_named
from beam_dp.releases import probe_output
from beam_dp.transforms import KeyColumns, ReadRecords, ReleaseProjection, WriteRelease

from . import flags
from .common import ledger_card, make_pipeline, read_ledger
from .progress import Progress
from .running import run_main, run_release
from .sparse_mechanisms import AUTO, MECHANISM_FLAGS, choices_json, choose

PROGRAM = command_of("release_projection")
WEIGHT = Flag("weight", "column of whole weights; by default each record weighs 1", "COLUMN")
MAX_WEIGHT = Flag(
    "max_weight", "the largest weight, with --weight; larger ones become it, negative ones 0", "W"
)
FLAGS = (
    shared.INPUT,
    shared.INPUT_FORMAT,
    shared.KEY,
    shared.KEY_TYPE,
    WEIGHT,
    MAX_WEIGHT,
    shared.MAX_SPARSITY,
    shared.EPSILON,
    shared.DELTA,
    shared.ALLOW_LARGE_DELTA,
    shared.NEIGHBORING,
    shared.PRIVACY_UNIT,
    shared.MAX_RECORDS_PER_UNIT,
    *MECHANISM_FLAGS,
    shared.LEDGER,
    shared.DATASET_ID,
    shared.VALIDATE_ONLY,
    shared.OUTPUT,
)


@dataclass(frozen=True)
class Job:
    """Everything that the command line says, as values that have been checked one by one."""

    input: str
    input_format: str | None
    columns: KeyColumns
    plan: SparsePlan
    choices: list[dict[str, Any]]
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
        The job; each of its fields is valid, and nothing has been read, but the ledger for
        ``auto``. The hash key of its plan is drawn here.

    Raises:
        FlagError: a flag is unknown, missing, repeated or outside its choices.
        InputError: a value is refused, or the ledger knows no such dataset id.
    """
    given, beam_flags = flags.parse(FLAGS, argv, program=PROGRAM, description=__doc__ or "")
    return read_job(given, beam_flags)


def read_job(given: dict[str, str], beam_flags: Sequence[str] = ()) -> Job:
    """Returns the job that flags describe; the hash key of its plan is drawn here.

    Args:
        given: the texts of the flags that were given or have a default.
        beam_flags: Beam's own.

    Raises:
        FlagError: a flag that others need is missing.
        InputError: a value is refused.
    """
    guarantee = read_guarantee(given)
    ledger = read_ledger(given)
    max_sparsity = integer("max_sparsity", given["max_sparsity"])
    max_weight = _max_weight(given)
    account = None
    if ledger is not None and given["mechanism"] == AUTO:
        account = ledger.account(given["dataset_id"])
    mechanism, choices = choose(given, guarantee, max_sparsity, max_weight, account=account)
    return Job(
        input=given["input"],
        input_format=given.get("input_format"),
        columns=KeyColumns(
            key=given["key"],
            key_type=key_type_named(given["key_type"]),
            weight=given.get("weight"),
        ),
        plan=mechanism.plan(guarantee, max_sparsity=max_sparsity, max_weight=max_weight),
        choices=choices_json(choices),
        ledger=ledger,
        dataset_id=given.get("dataset_id", ""),
        output=given["output"],
        validate_only="validate_only" in given,
        beam_flags=tuple(beam_flags),
    )


def _max_weight(given: dict[str, str]) -> int:
    for name, other in (("weight", "max_weight"), ("max_weight", "weight")):
        if name in given and other not in given:
            raise FlagError(f"--{other}: missing; must be given with --{name}")
    return integer("max_weight", given["max_weight"]) if "max_weight" in given else 1


def build(job: Job, pipeline: beam.Pipeline, token: Token | None = None) -> None:
    """Adds the job to a pipeline. Every refusal happens here, before anything runs.

    Args:
        job: what to release.
        pipeline: to which it is added.
        token: of the ledger that paid for it; the card then names the entry.

    Raises:
        InputError: the input or the output is refused.
    """
    add_release(
        job, pipeline | "Read" >> ReadRecords(job.input, file_format=job.input_format), token
    )


def add_release(
    job: Job, records: beam.PCollection[Any], token: Token | None = None
) -> beam.PCollection[str]:
    """Adds the release of some records, and its writing; returns the directory.

    Raises:
        InputError: the records or the output is refused.
    """
    return (
        records
        | "Release" >> ReleaseProjection(job.plan, job.columns, token)
        | "Write" >> WriteRelease(job.output)
    )


def public_card(job: Job) -> dict[str, Any]:
    """Returns the part of the card that is known before any record is read.

    With a ledger also what the release would cost and what is left; nothing is spent.

    Raises:
        InputError: if the ledger would refuse the release.
    """
    plan, card = job.plan, _promised(job)
    if job.choices:
        card["choices"] = job.choices
    if job.ledger is not None:
        card["ledger"] = ledger_card(job.ledger, job.dataset_id, plan.guarantee, plan.loss)
    return card


def _promised(job: Job) -> dict[str, Any]:
    plan = job.plan
    return {
        "mechanism": plan.mechanism,
        "guarantee": plan.guarantee.to_json(),
        "max_sparsity": plan.max_sparsity,
        "max_weight": plan.max_weight,
        "parameters": {**plan.public, "key": dataclasses.asdict(job.columns)},
    }


def spend(ledger: Ledger, job: Job) -> Token:
    """Pays for a release.

    Raises:
        InputError: if the ledger refuses; then nothing was spent.
    """
    plan = job.plan
    parameters = {**plan.public, "key": dataclasses.asdict(job.columns)}
    return ledger.spend(job.dataset_id, plan.guarantee, plan.loss, plan.mechanism, parameters)


def run(job: Job, pipeline: beam.Pipeline, progress: Progress) -> int:
    """Pays for a release, runs the pipeline that makes it, and returns the exit code.

    Raises:
        InputError: if the output or the ledger refuses; then nothing was spent or run.
    """
    probe_output(job.output)
    plan, token = job.plan, None
    if job.ledger is not None:
        token = spend(job.ledger, job)
        progress.say(f"spent: {token.release_id} in the ledger")
        # The same job once more, whose card will name the ledger's entry.
        pipeline = make_pipeline(job)
        build(job, pipeline, token)
    progress.say(f"{plan.mechanism}, {_size(plan)}; runner {type(pipeline.runner).__name__}")
    promised = {**_promised(job), "hash_key": plan.hash_key.to_bytes().hex()}
    released = run_release(pipeline, job.output, promised, job.ledger, token, progress)
    if isinstance(released, int):
        return released
    print(f"The release is in {job.output}. Look at it, and ask it, with a key on each line:")
    directory = shlex.quote(job.output)
    print(f"  beam-dp describe {directory}")
    print(f"  beam-dp answer {directory} --sparse keys.txt")
    return 0


def _size(plan: SparsePlan) -> str:
    if plan.sketch is None:
        return "as many keys as reach the threshold"
    return f"{plan.sketch.projection_width:,} cells"


def _main(argv: Sequence[str], progress: Progress) -> int:
    job = parse_arguments(argv)
    pipeline = make_pipeline(job)
    build(job, pipeline)
    if job.validate_only:
        print(json.dumps(public_card(job), indent=2, ensure_ascii=False))
        return 0
    return run(job, pipeline, progress)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program and returns its exit code: 0, 1 if the job failed, 2 for a bad argument."""
    return run_main(FLAGS, argv, _main)


if __name__ == "__main__":
    sys.exit(main())

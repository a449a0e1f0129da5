"""Answer linear queries about records one after the other, with differential privacy.

    beam-dp answer-queries \
        --input 'visits/*.parquet' --domain visits.json --queries queries.jsonl \
        --epsilon 1 --delta 1e-9 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --num_records noisy --output out/answers

Arguments are parsed, then everything is validated from public parameters, then the pipeline is
built, as in `release_synthetic_database`. A query that is refused is named before anything is
spent, and is answered with an error; the others are answered.
`beam-dp answer-queries --help` lists the flags.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apache_beam as beam

from beam_dp.checks import checked_integer
from beam_dp.cli.programs import command_of
from beam_dp.domain import Domain
from beam_dp.domain.files import parse_domain
from beam_dp.errors import InputError, magnitude
from beam_dp.flags import shared
from beam_dp.flags.flag import Flag, FlagError, check_applies
from beam_dp.flags.numbers import integer
from beam_dp.flags.options import flags_of, values_of
from beam_dp.flags.shared import read_guarantee, read_num_records
from beam_dp.hashing import HashKey
from beam_dp.mechanisms import PrivateMWPlan, SparseMWPlan, plan_private_mw, plan_sparse_mw
from beam_dp.mechanisms.linear_answers.answers import (
    WorkloadAnswersPlan,
    plan_workload_answers,
)
from beam_dp.mechanisms.marginals.measurements import Distribution
from beam_dp.mechanisms.online.sparse_mw_plan import MAX_SPARSITY
from beam_dp.mechanisms.registry import ANSWERS, options_of
from beam_dp.privacy.ledger import Token
from beam_dp.queries.linear_workload import (
    LinearWorkload,
    names_workload,
    parse_linear_workload,
)
from beam_dp.queries.lines import QueryReader, expand_line, read_line
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sparse import key_type_named
from beam_dp.queries.sparse_reader import SparseQueries
from beam_dp.releases import AnswersRelease, SyntheticDatabase, probe_output, read_release
from beam_dp.transforms import KeyColumns, ReadRecords

from . import flags
from .accuracy import accuracy
from .answer_job import Job, add_answers, spend, warnings_of
from .common import ledger_card, make_pipeline, read_ledger, read_text
from .own_release import card_of
from .progress import Progress
from .running import (
    is_launched,
    is_own,
    mark_released,
    run_main,
    run_pipeline,
    stage_pipeline,
)
from .saved_state import (
    keep_state,
    new_state,
    private_folder,
    read_payment,
    saved_num_questions,
)

PRIVATE_MW, SPARSE_MW = "private_mw", "sparse_mw"
KEY = dataclasses.replace(shared.KEY, required=False, help="sparse_mw: the column of keys")
PROGRAM = command_of("answer_queries")
QUERIES = Flag(
    "queries",
    "file of JSON lines, one linear query or marginal each; or conjunctions:2, intervals:age, ...",
    "SPEC",
    True,
)
MECHANISM = Flag(
    "mechanism",
    "private_mw answers each query when it is asked, and learns from its answers; sparse_mw does"
    " so for sparse queries about --key, without a domain; laplace and gaussian answer all at once,"
    " each with noise of its own",
    default=PRIVATE_MW,
    choices=tuple(ANSWERS),
)
START_FROM = Flag(
    "start_from", "directory of a synthetic database of the same domain to start from", "DIR"
)
DOMAIN = dataclasses.replace(shared.DOMAIN, required=False)
STATE = Flag(
    "state",
    "folder to save the run to, so that more queries can be answered later; holds a secret",
    "DIR",
)
RESUME = Flag(
    "resume", "folder of a saved run to go on from, once; with the same flags of the plan", "DIR"
)
FLAGS = (
    QUERIES,
    DOMAIN,
    *(flag for flag in shared.COMMON if flag not in (shared.WORKLOAD, shared.DOMAIN)),
    KEY,
    shared.KEY_TYPE,
    MECHANISM,
    *(flag for flag in flags_of(*ANSWERS.values()) if flag not in shared.COMMON),
    START_FROM,
    STATE,
    RESUME,
)
# Flags of programs that apply to some mechanisms only; the first must be given.
_BESIDES = {PRIVATE_MW: (DOMAIN, START_FROM, STATE, RESUME), SPARSE_MW: (KEY,)}
_OPTIONS = {
    name: (*_BESIDES.get(name, (DOMAIN,)), *flags) for name, flags in options_of(ANSWERS).items()
}


def parse_arguments(argv: Sequence[str]) -> Job:
    """Returns the job that a command line describes.

    Args:
        argv: the command line, without the program's name.

    Returns:
        The job; each of its fields is valid, and nothing has been read but the files of the
        domain, the queries and the release to start from.

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
    is_sparse = given["mechanism"] == SPARSE_MW
    check_applies(given, given["mechanism"], _OPTIONS)
    needed = ("key", "max_sparsity") if is_sparse else ("domain",)
    for flag in FLAGS:
        if flag.name in needed and flag.name not in given:
            raise FlagError(f"--{flag.name}: missing; must be given: {flag.help}")
    columns, domain = None, None
    queries: QueryReader
    if is_sparse:
        columns = KeyColumns(given["key"], key_type_named(given["key_type"]))
        max_sparsity = integer("max_sparsity", given["max_sparsity"])
        checked_integer("max_sparsity", max_sparsity, 1, MAX_SPARSITY)
        # Only to refuse queries early: the run draws another key.
        queries = SparseQueries(columns.key_type, max_sparsity, HashKey.draw(1))
    else:
        domain = parse_domain(read_text("domain", given["domain"]), source=given["domain"])
        queries = LinearQueries(domain)
    numbered = [
        (number, each)
        for number, line in enumerate(_read_queries(given["queries"], domain), start=1)
        if line.strip()
        for each in _expanded(queries, line, number, given["queries"])
    ]
    lines = tuple(line for _, line in numbered)
    asked = tuple(read_line(queries, line) for line in lines)
    refusals = tuple(
        f"line {number}: {line.error}"
        for (number, _), line in zip(numbered, asked, strict=True)
        if line.error is not None
    )
    if len(refusals) == len(lines):
        reason = f": {refusals[0]}" if refusals else ""
        condition = f"must hold a query that can be answered{reason}"
        raise InputError("queries", given["queries"], condition)
    known = [line.query for line in asked if line.query is not None]
    options = values_of(ANSWERS[given["mechanism"]], given)
    num_records = read_num_records(given)
    plan: PrivateMWPlan | SparseMWPlan | WorkloadAnswersPlan
    if domain is None:
        plan = plan_sparse_mw(guarantee, num_records, **{"num_questions": len(lines), **options})
    elif given["mechanism"] == PRIVATE_MW:
        resumed = saved_num_questions(given["resume"]) if "resume" in given else len(lines)
        plan = plan_private_mw(
            domain,
            guarantee,
            num_records,
            **{"num_questions": resumed, **options},
            starts_from_release="start_from" in given,
        )
    else:
        workload = LinearWorkload(domain, tuple(dict.fromkeys(known)))
        kind: Distribution
        kind = "discrete_laplace" if given["mechanism"] == "laplace" else "discrete_gaussian"
        plan = plan_workload_answers(workload, guarantee, num_records, kind, **options)
    ledger = read_ledger(given)
    state = new_state(given["state"], given["output"]) if "state" in given else None
    resume = Path(given["resume"]) if "resume" in given else None
    return Job(
        input=given["input"],
        input_format=given.get("input_format"),
        lines=lines,
        asked=asked,
        refusals=refusals,
        plan=plan,
        start=None if domain is None else _start(given, domain),
        columns=columns,
        state=state,
        resume=resume,
        payment=read_payment(resume, plan, ledger, given) if resume is not None else None,
        ledger_url=given.get("ledger"),
        ledger=ledger,
        dataset_id=given.get("dataset_id", ""),
        output=given["output"],
        validate_only="validate_only" in given,
        beam_flags=tuple(beam_flags),
    )


def _read_queries(spec: str, domain: Domain | None) -> list[str]:
    """The lines of a file, or a line for each query of a workload that is named of a domain."""
    if domain is None or not names_workload(spec):
        return read_text("queries", spec).split("\n")
    try:
        return [json.dumps(query) for query in parse_linear_workload(spec, domain).to_json()]
    except InputError as error:
        raise InputError("queries", spec, error.condition) from None


def _expanded(queries: QueryReader, line: str, number: int, source: str) -> list[str]:
    """A line for each query that a line of a file stands for."""
    if not isinstance(queries, LinearQueries):
        return [line]
    try:
        return expand_line(queries, line)
    except InputError as error:
        raise InputError("queries", source, f"line {number}: {error.condition}") from None


def _start(given: dict[str, str], domain: Domain) -> SyntheticDatabase | None:
    path = given.get("start_from")
    if path is None:
        return None
    try:
        release = read_release(path)
    except InputError as error:
        raise InputError("start_from", path, error.condition) from None
    if not isinstance(release, SyntheticDatabase) or release.domain != domain:
        raise InputError("start_from", path, "must be a synthetic database of the same domain")
    return release


def build(
    job: Job, pipeline: beam.Pipeline, token: Token | None = None, save_in: Path | None = None
) -> None:
    """Adds the job to a pipeline. Every refusal happens here, before anything runs.

    Args:
        job: what to answer.
        pipeline: to which it is added.
        token: of the ledger that paid for it; the card then names the entry.
        save_in: the private folder for states, if the run is saved; None for a pipeline that is
            only checked and not run.

    Raises:
        InputError: the input or the output is refused.
    """
    records = pipeline | "Read" >> ReadRecords(job.input, file_format=job.input_format)
    try:
        add_answers(job, records, token, save_in)
    except InputError as error:
        if error.name != "runner":
            raise
        name, path = ("resume", job.resume) if job.state is None else ("state", job.state)
        raise InputError(
            name,
            str(path),
            f"must not be given with --runner {error.value}, which {error.condition}",
        ) from None


def public_card(job: Job) -> dict[str, Any]:
    """Returns the part of the card that is known before any record is read.

    With a ledger also what the answers would cost and what is left; nothing is spent.

    Raises:
        InputError: if the ledger would refuse the run.
    """
    plan = job.plan
    card = {
        **plan.card(None if plan.num_records == "noisy" else plan.num_records),
        "queries": {"lines": len(job.lines), "refused": list(job.refusals)},
    }
    if job.payment is not None:
        paid = job.payment
        card["resumes"] = {
            "ledger_release": paid.token.release_id,
            "ledger_state": paid.state_number,
        }
    elif job.ledger is not None:
        card["ledger"] = ledger_card(job.ledger, job.dataset_id, plan.guarantee, plan.loss)
    return card


def _promised(job: Job) -> dict[str, Any]:
    """What the card says whatever the number of records turns out to be."""
    card = job.plan.card(None)
    fixed = ("mechanism", "guarantee", "domain", "plan")
    promised = {"kind": "answers", **{name: card[name] for name in fixed if name in card}}
    if job.payment is not None:
        promised["ledger_state"] = job.payment.state_number
    return promised


def run(job: Job, pipeline: beam.Pipeline, progress: Progress) -> int:
    """Pays for the answers, runs the pipeline that gives them, and returns the exit code.

    Raises:
        InputError: if the output, the place of the state or the ledger refuses; then nothing was
            spent or run.
    """
    token = None
    probe_output(job.output)
    with private_folder(job.state) as save_in:
        for warning in warnings_of(job):
            print(f"warning: {warning}", file=sys.stderr)
        if job.payment is not None:
            token = job.payment.token
            progress.say(f"resumes: state {job.payment.state_number} of {token.release_id}")
        elif job.ledger is not None:
            token = spend(job.ledger, job)
            progress.say(f"spent: {token.release_id} in the ledger")
        progress.say(
            f"{len(job.lines):,} queries over {_universe(job)};"
            f" runner {type(pipeline.runner).__name__}"
        )
        # The same job once more, which now knows the ledger's entry and where to save.
        pipeline = make_pipeline(job)
        build(job, pipeline, token, save_in)
        if is_launched(pipeline):
            return stage_pipeline(pipeline, progress)
        if not run_pipeline(pipeline, progress, job.output):
            return flags.EXIT_JOB_FAILED
        try:
            answers = read_release(job.output)
        except InputError as error:
            print(f"error: {error}; every worker must see --output", file=sys.stderr)
            return flags.EXIT_JOB_FAILED
        card = card_of(answers, job.output)
        if not is_own(job.output, card, _promised(job), token):
            return flags.EXIT_JOB_FAILED
        assert isinstance(answers, AnswersRelease)
        progress.say("answered")
        # A run that goes on is one draw with what it said before, which the ledger knows.
        if job.ledger is not None and token is not None and job.payment is None:
            mark_released(job.ledger, token, card["draw_id"])
        is_saved = True
        if save_in is not None and job.state is not None:
            is_saved = keep_state(save_in, card["draw_id"], job.state)
    print(f"{card['num_answers']:,} answers, {card['num_refused']:,} refused: {job.output}")
    print(accuracy(card, answers.rows))
    return 0 if is_saved else flags.EXIT_JOB_FAILED


def _universe(job: Job) -> str:
    domain = job.plan.universe
    return "keys without end" if domain is None else f"{magnitude(domain.num_cells)} cells"


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

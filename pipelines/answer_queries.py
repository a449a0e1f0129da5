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
from pathlib import Path
from typing import Any, Literal

from beam_dp.domain import Domain
from beam_dp.domain.files import parse_domain
from beam_dp.errors import InputError
from beam_dp.mechanisms import PrivateMWPlan, plan_private_mw
from beam_dp.mechanisms.linear_answers.answers import (
    WorkloadAnswersPlan,
    plan_workload_answers,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear_workload import (
    LinearWorkload,
    names_workload,
    parse_linear_workload,
)
from beam_dp.queries.lines import QueryReader, expand_line, read_line
from beam_dp.queries.reader import LinearQueries
from beam_dp.releases import SyntheticDatabase, read_release
from beam_dp.transforms.drawing.answer_queries import MECHANISM as PRIVATE_MW
from beam_dp.transforms.drawing.answer_queries import SPARSE_MW, AnswerPlan

from . import flags, program
from .answer_job import Job
from .answer_sparse import KEY, MAX_SPARSITY, OF_SPARSE_MW, sparse_mw_plan, sparse_queries
from .common import read_num_records, read_text
from .flags import Flag, FlagError, integer, number
from .saved_state import new_state, read_payment, saved_num_questions

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
    choices=(PRIVATE_MW, SPARSE_MW, "laplace", "gaussian"),
)
NUM_QUESTIONS = Flag(
    "num_questions",
    "different queries that error bounds are stated for; by default all of --queries",
    "K",
)
FAILURE_PROBABILITY = Flag(
    "failure_probability",
    "of any stated bound being wrong, > 0 and < 1",
    "B",
    default="0.05",
)
MAX_ERROR = Flag(
    "max_error",
    "alpha, a share of the records, > 0 and < 1; by default the one with the least bound",
    "A",
)
MAX_UPDATES = Flag(
    "max_updates", "how often it may learn; by default as often as --max_error needs", "C"
)
START_FROM = Flag(
    "start_from", "directory of a synthetic database of the same domain to start from", "DIR"
)
DOMAIN = dataclasses.replace(flags.DOMAIN, required=False)
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
    *(flag for flag in flags.COMMON if flag not in (flags.WORKLOAD, flags.DOMAIN)),
    KEY,
    flags.KEY_TYPE,
    MAX_SPARSITY,
    MECHANISM,
    NUM_QUESTIONS,
    FAILURE_PROBABILITY,
    MAX_ERROR,
    MAX_UPDATES,
    START_FROM,
    STATE,
    RESUME,
)
OF_PRIVATE_MW = (NUM_QUESTIONS, MAX_ERROR, MAX_UPDATES, START_FROM, STATE, RESUME)


def _read_job(given: dict[str, str], shared: dict[str, Any]) -> Job:
    """Returns the job that flags describe."""
    guarantee, ledger = shared["guarantee"], shared["ledger"]
    is_sparse = given["mechanism"] == SPARSE_MW
    _check_belongs(given, is_sparse)
    columns, domain = None, None
    queries: QueryReader
    if is_sparse:
        columns, queries = sparse_queries(given)
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
    failure_probability = number("failure_probability", given["failure_probability"])
    plan: AnswerPlan
    if domain is None:
        plan = sparse_mw_plan(given, guarantee, len(lines), failure_probability)
    elif given["mechanism"] == PRIVATE_MW:
        plan = _private_mw(given, domain, guarantee, len(lines), failure_probability)
    else:
        workload = LinearWorkload(domain, tuple(dict.fromkeys(known)))
        plan = _workload(given, workload, guarantee, failure_probability)
    state = new_state(given["state"], given["output"]) if "state" in given else None
    resume = Path(given["resume"]) if "resume" in given else None
    return Job(
        **shared,
        lines=lines,
        asked=asked,
        refusals=refusals,
        plan=plan,
        failure_probability=failure_probability,
        start=None if domain is None else _start(given, domain),
        columns=columns,
        state=state,
        resume=resume,
        payment=read_payment(resume, plan, ledger, given) if resume is not None else None,
        ledger_url=given.get("ledger"),
    )


def _check_belongs(given: dict[str, str], is_sparse: bool) -> None:
    """Refuses flags that are not of the mechanism, and the lack of those that it needs."""
    needed, others = (
        (OF_SPARSE_MW, (DOMAIN, START_FROM, STATE, RESUME))
        if is_sparse
        else ((DOMAIN,), OF_SPARSE_MW)
    )
    for flag in others:
        if flag.name in given:
            condition = f"must not be given for {given['mechanism']}"
            raise InputError(flag.name, given[flag.name], condition)
    for flag in needed:
        if flag.name not in given:
            raise FlagError(f"--{flag.name}: missing; must be given: {flag.help}")


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


def _private_mw(
    given: dict[str, str],
    domain: Domain,
    guarantee: Guarantee,
    num_lines: int,
    failure_probability: float,
) -> PrivateMWPlan:
    return plan_private_mw(
        domain,
        guarantee,
        read_num_records(given),
        num_questions=(
            integer("num_questions", given["num_questions"])
            if "num_questions" in given
            else saved_num_questions(given["resume"])
            if "resume" in given
            else num_lines
        ),
        failure_probability=failure_probability,
        calibration="tight" if given["calibration"] == "tight" else "textbook",
        max_error=number("max_error", given["max_error"]) if "max_error" in given else None,
        max_updates=(
            integer("max_updates", given["max_updates"]) if "max_updates" in given else None
        ),
        starts_from_release="start_from" in given,
    )


def _workload(
    given: dict[str, str],
    workload: LinearWorkload,
    guarantee: Guarantee,
    failure_probability: float,
) -> WorkloadAnswersPlan:
    name = given["mechanism"]
    for flag in OF_PRIVATE_MW:
        if flag.name in given:
            condition = f"must not be given: it is of {PRIVATE_MW}, not of {name}"
            raise InputError(flag.name, given[flag.name], condition)
    if given["calibration"] != "tight":
        raise InputError("calibration", given["calibration"], f"must be 'tight' for {name}")
    distribution: Literal["discrete_laplace", "discrete_gaussian"]
    distribution = "discrete_laplace" if name == "laplace" else "discrete_gaussian"
    num_records = read_num_records(given)
    return plan_workload_answers(
        workload, guarantee, num_records, distribution, failure_probability
    )


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


PROGRAM = program.Program("answer_queries", FLAGS, __doc__, _read_job)
parse_arguments, main = PROGRAM.parse_arguments, PROGRAM.main

if __name__ == "__main__":
    raise SystemExit(main())

"""Answer linear queries about records one after the other, with differential privacy.

    beam-dp answer-queries \
        --input 'visits/*.parquet' --domain visits.json --queries queries.jsonl \
        --epsilon 1 --delta 1e-9 --neighboring add_or_remove_one \
        --privacy_unit person_id --max_records_per_unit 1 --num_records noisy --output out/answers

Invalid queries are reported before anything is spent, and get an error instead of an answer. All
other queries are answered.
`beam-dp answer-queries --help` lists the flags.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

from beam_dp.domain.attributes import nearest_known
from beam_dp.domain.texts import KeyType
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags import shared
from beam_dp.flags.flag import Flag, FlagError, check_mechanism, flags_of, integer, values_of
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.linear_answers import LinearAnswersPlan, plan_workload_answers
from beam_dp.mechanisms.online.private_mw import PrivateMWPlan, plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import SparseMWPlan, plan_sparse_mw
from beam_dp.mechanisms.registry import ANSWERS, options_of
from beam_dp.mechanisms.top_queries import plan_top_queries
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.queries import linear_workload, sparse
from beam_dp.queries.reader import LinearQueries, QueryLine, QueryReader, expand_line, read_line
from beam_dp.queries.sparse import SparseQueries
from beam_dp.secret.encoding.keys import KeyColumns

from . import program
from .answer_job import Job, new_state, read_payment, saved_num_questions
from .flags import START_RELEASE, read_domain, read_text, start_release

PRIVATE_MW, SPARSE_MW, TOP_QUERIES = "private_mw", "sparse_mw", "top_queries"
KEY = dataclasses.replace(shared.KEY, required=False, help="sparse_mw: the column of keys")
QUERIES = Flag(
    "queries",
    "a file of JSON lines with one linear query or marginal per line; or conjunctions:2,"
    " intervals:age, ...; for sparse_mw also row_conjunctions:12,10",
    "SPEC",
    True,
    form="file",
)
MECHANISM = Flag(
    "mechanism",
    "private_mw answers each query when it is asked, and learns from its answers; sparse_mw does"
    " so for sparse queries about --key, without a domain; laplace and gaussian answer all queries"
    " at once, with independent noise; top_queries answers only the --top queries, chosen for their"
    " large answers",
    default=PRIVATE_MW,
    choices=tuple(ANSWERS),
)
DOMAIN = dataclasses.replace(shared.DOMAIN, required=False)
STATE = Flag(
    "state",
    "save the run in this folder, to answer more queries later; the folder contains a secret",
    "DIR",
)
RESUME = Flag(
    "resume", "resume the run in this folder, once; needs the same flags for the plan", "DIR"
)
FLAGS = (
    QUERIES,
    DOMAIN,
    *(flag for flag in shared.COMMON if flag not in (shared.WORKLOAD, shared.DOMAIN)),
    KEY,
    shared.KEY_TYPE,
    MECHANISM,
    *(flag for flag in flags_of(*ANSWERS.values()) if flag not in shared.COMMON),
    START_RELEASE,
    STATE,
    RESUME,
)
# Flags of this program that apply only to some mechanisms.
_BESIDES = {PRIVATE_MW: (DOMAIN, START_RELEASE, STATE, RESUME), SPARSE_MW: (KEY,)}
NEEDED = {name: [("domain",)] for name in ANSWERS}
NEEDED |= {SPARSE_MW: [("key",)], TOP_QUERIES: [("domain",), ("top",)]}
OPTIONS = {
    name: (*_BESIDES.get(name, (DOMAIN,)), *flags) for name, flags in options_of(ANSWERS).items()
}


def _read_job(given: dict[str, str], fields: dict[str, Any]) -> Job:
    """Returns the job that the flags describe."""
    is_sparse = given["mechanism"] == SPARSE_MW
    check_mechanism(given, OPTIONS, NEEDED)
    family = _row_conjunctions(given["queries"]) if is_sparse else None
    if family is not None:
        given = {"max_sparsity": str(family.sparsity), **given}
    if is_sparse and "max_sparsity" not in given:
        raise FlagError(f"--max_sparsity is required with --mechanism {SPARSE_MW}")
    columns, domain = None, None
    queries: QueryReader
    if is_sparse:
        columns = KeyColumns(given["key"], cast(KeyType, given["key_type"]))
        max_sparsity = integer("max_sparsity", given["max_sparsity"])
        # This key only serves to refuse invalid queries early: the run draws another key.
        queries = SparseQueries(columns.key_type, max_sparsity, HashKey.draw(1))
    else:
        domain = read_domain(given)
        queries = LinearQueries(domain)
    numbered = [
        (number, entry)
        for number, line in enumerate(_read_queries(given["queries"], domain, family), start=1)
        if line.strip()
        for entry in _expanded(queries, line, number, given["queries"])
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
        condition = f"must contain a query that can be answered{reason}"
        raise InputError("queries", given["queries"], condition)
    plan = _plan(given, shared.read_guarantee(given), domain, asked)
    state = new_state(given["state"], given["output"]) if "state" in given else None
    resume = Path(given["resume"]) if "resume" in given else None
    return Job(
        **fields,
        lines=lines,
        asked=asked,
        refusals=refusals,
        plan=plan,
        start=None if domain is None else start_release(given, domain),
        columns=columns,
        state=state,
        resume=resume,
        payment=None if resume is None else read_payment(resume, plan, fields["ledger"], given),
        ledger_url=given.get("ledger"),
    )


def _plan(
    given: dict[str, str], guarantee: Guarantee, domain: Domain | None, asked: Sequence[QueryLine]
) -> PrivateMWPlan | SparseMWPlan | LinearAnswersPlan:
    options = values_of(ANSWERS[given["mechanism"]], given)
    num_records = shared.read_num_records(given)
    if domain is None:
        return plan_sparse_mw(guarantee, num_records, **{"num_questions": len(asked), **options})
    if given["mechanism"] == PRIVATE_MW:
        resumed = saved_num_questions(given["resume"]) if "resume" in given else len(asked)
        return plan_private_mw(
            domain,
            guarantee,
            num_records,
            **{"num_questions": resumed, **options},
            starts_from_release="start_from" in given,
        )
    distinct = dict.fromkeys(line.query for line in asked if line.query is not None)
    workload = linear_workload.LinearWorkload(domain, tuple(distinct))
    if given["mechanism"] == TOP_QUERIES:
        return plan_top_queries(workload, guarantee, num_records, **options)
    noise = cast(Distribution, f"discrete_{given['mechanism']}")
    return plan_workload_answers(workload, guarantee, num_records, noise, **options)


def _row_conjunctions(spec: str) -> sparse.RowConjunctions | None:
    """Returns the named family of queries; None if ``spec`` is a file."""
    if not sparse.names_row_conjunctions(spec):
        return None
    try:
        return sparse.parse_row_conjunctions(spec)
    except InputError as error:
        raise InputError("queries", spec, error.condition) from None


def _read_queries(
    spec: str, domain: Domain | None, family: sparse.RowConjunctions | None
) -> list[str]:
    """Returns the lines of a file, or one line for each query of a named workload."""
    if family is not None:
        return [json.dumps(query) for query in family.to_json()]
    if sparse.names_row_conjunctions(spec):
        raise InputError("queries", spec, f"needs --mechanism {SPARSE_MW}")
    if not linear_workload.names_workload(spec):
        return _read_file(spec, sparse.ROW_FORMS if domain is None else linear_workload.FORMS)
    if domain is None:
        condition = f"needs --domain and a mechanism other than {SPARSE_MW}"
        raise InputError("queries", spec, condition)
    try:
        return [
            json.dumps(query)
            for query in linear_workload.parse_linear_workload(spec, domain).to_json()
        ]
    except InputError as error:
        raise InputError("queries", spec, error.condition) from None


def _read_file(spec: str, forms: Iterable[str]) -> list[str]:
    """Returns the lines of a file; if the file is missing, the error names the nearest form."""
    try:
        return read_text("queries", spec).split("\n")
    except InputError as error:
        form, colon, _ = spec.partition(":")
        near = nearest_known(form, forms, list_all=False) if colon else ""
        condition = f"{error.condition}; {near}" if near else error.condition
        raise InputError("queries", spec, condition) from None


def _expanded(queries: QueryReader, line: str, number: int, source: str) -> list[str]:
    """Expands a line of a query file to one line for each query that it describes."""
    if not isinstance(queries, LinearQueries):
        return [line]
    try:
        return expand_line(queries, line)
    except InputError as error:
        raise InputError("queries", source, f"line {number}: {error.condition}") from None


PROGRAM = program.Program("answer_queries", FLAGS, __doc__, _read_job)
parse_arguments, main = PROGRAM.parse_arguments, PROGRAM.main

if __name__ == "__main__":
    raise SystemExit(main())

"""The part of `beam-dp answer` for synthetic databases and tables of windows."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import pathlib
from collections.abc import Sequence
from typing import Any, Protocol

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import refused
from beam_dp.flags.questions import QUESTIONS, asks_a_question, refuse_others
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.releases.differences import marginal_differences
from beam_dp.releases.synthetic_database.answer_questions import answer_question, print_answers
from beam_dp.releases.synthetic_database.questions import MAX_GROUPS
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.released_answers import MarginalAnswer, QueryAnswer
from beam_dp.reports.terminal import print_table

compare_synthetic_database = marginal_differences


class _Answering(Protocol):
    """Tables of records, or of noisy counts, that answer marginals and linear queries."""

    @property
    def domain(self) -> Domain: ...

    def answer(self, workload: Workload) -> list[MarginalAnswer]: ...

    def answer_queries(self, queries: Sequence[LinearQuery]) -> list[QueryAnswer]: ...


def answer_synthetic_database(release: SyntheticDatabase, options: argparse.Namespace) -> None:
    """Prints what a command line asks of a synthetic database.

    Raises:
        FlagError: if a flag is refused.
    """
    refuse_others(options, ("quantile", *QUESTIONS))
    answer_tables(release, options)


def answer_tables(release: _Answering, options: argparse.Namespace) -> None:
    """Prints what a command line asks of a release.

    Raises:
        FlagError: if a flag is refused.
    """
    domain = release.domain
    is_question = asks_a_question(options) or options.quantile is not None
    if isinstance(release, SyntheticDatabase) and is_question:
        answer_question(options, release)
        return
    try:
        if options.queries is not None:
            if not pathlib.Path(options.queries).is_file():
                raise InputError("workload", options.queries, "must be a file that can be read")
            workload: Workload | LinearWorkload
            if _holds_marginals(options.queries):
                workload = parse_workload(options.queries, domain)
            else:
                workload = parse_linear_workload(options.queries, domain)
        else:
            # A name may hold a comma itself.
            tables = [[text] if text in domain else text.split(",") for text in options.marginal]
            workload = Workload(domain, tuple(tuple(map(str.strip, names)) for names in tables))
    except InputError as error:
        flag = "queries" if options.queries is not None else "marginal"
        raise refused(flag, error.value, error.condition) from None
    if isinstance(workload, LinearWorkload):
        _answer_queries(options, release, workload)
        return
    if isinstance(release, SyntheticDatabase) and not options.json and _has_bars(release, workload):
        for names in workload:
            table = release.query().group_by(*names).count()
            print_answers(table, " x ".join(names), options.limit)
        return
    answers = release.answer(workload)
    if options.json:
        print(json.dumps([_answer_json(answer, domain) for answer in answers], ensure_ascii=False))
        return
    for answer in answers:
        attributes = [domain[name] for name in answer.attributes]
        cells = itertools.product(*(attribute.labels() for attribute in attributes))
        rows = [
            (*labels, f"{value:,.1f}")
            for labels, value in itertools.islice(
                zip(cells, answer.values.ravel().tolist(), strict=True),
                min(options.limit, answer.values.size),
            )
        ]
        print_table(" x ".join(answer.attributes), (*answer.attributes, "records"), rows)
        if answer.standard_error is not None:
            print(f"standard error of a cell {answer.standard_error:,.1f} records")
        else:
            print("no error is stated: the release did not measure this marginal whole")
        if answer.bound is not None:
            print(
                f"every cell is within {answer.bound:,.1f} records of the truth,"
                f" except with probability {answer.failure_probability:g}"
            )
        if len(rows) < answer.values.size:
            print(f"{len(rows)} of {answer.values.size:,} cells; --limit shows more")


def _has_bars(release: SyntheticDatabase, workload: Workload) -> bool:
    """Whether each cell of some marginals may have an error bar of its own."""
    largest = max(release.domain.restrict(names).num_cells for names in workload)
    return release.measurements is not None and largest <= MAX_GROUPS


def _holds_marginals(path: str) -> bool:
    """Whether a file asks for tables: what is on its first line decides."""
    with pathlib.Path(path).open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    return b'"marginal"' in first


def _answer_queries(
    options: argparse.Namespace,
    release: _Answering,
    workload: LinearWorkload,
) -> None:
    answers = release.answer_queries(workload.queries)
    if options.json:
        print(json.dumps([dataclasses.asdict(answer) for answer in answers]))
        return
    lines = pathlib.Path(options.queries).read_text("utf-8-sig").split("\n")
    asked = [line for line in lines if line.strip()]
    texts = asked if len(asked) == len(answers) else [json.dumps(q) for q in workload.to_json()]
    shown_answers = list(zip(texts, answers, strict=True))[: options.limit]
    has_errors = any(each.standard_error is not None for each in answers)
    columns = ("query", *(("standard error",) if has_errors else ()), "within (records)", "records")
    rows = []
    for text, each in shown_answers:
        stated = [each.standard_error] if has_errors else []
        told = [_or_not_stated(value) for value in (*stated, each.bound)]
        rows.append((text, *told, f"{each.value:,.1f}"))
    print_table("linear queries", columns, rows)
    if len(answers) > len(shown_answers):
        print(f"{len(shown_answers)} of {len(answers):,} queries; --limit shows more")
    bounded = [each for each in answers if each.bound is not None]
    if bounded:
        print(
            "all stated bounds hold together, except with probability"
            f" {bounded[0].failure_probability:g}"
        )


def _or_not_stated(value: float | None) -> str:
    return "not stated" if value is None else f"{value:,.1f}"


def _answer_json(answer: MarginalAnswer, domain: Domain) -> dict[str, Any]:
    return {
        "marginal": list(answer.attributes),
        "labels": {name: domain[name].labels() for name in answer.attributes},
        "records": answer.values.tolist(),
        "standard_error": answer.standard_error,
        "bound": answer.bound,
        "failure_probability": answer.failure_probability,
    }

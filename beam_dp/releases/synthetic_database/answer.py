"""The part of `beam-dp answer` for synthetic databases and tables of windows."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import re
import shlex
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, number, refused
from beam_dp.flags.questions import QUESTIONS, asks_a_question, refuse_others
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.releases.differences import marginal_differences
from beam_dp.releases.error_bars import FROM_NOISE, Estimate, MarginalAnswer
from beam_dp.releases.synthetic_database import questions
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.reports.terminal import (
    print_shown,
    print_table,
    print_wrapped,
    surely,
    together_text,
)

compare_synthetic_database = marginal_differences


class _Answering(Protocol):
    """A release that answers marginals and linear queries."""

    @property
    def domain(self) -> Domain: ...

    def answer(self, workload: Workload) -> list[MarginalAnswer]: ...

    def answer_queries(self, queries: Sequence[LinearQuery]) -> list[Estimate]: ...


def answer_synthetic_database(release: SyntheticDatabase, options: argparse.Namespace) -> None:
    """Prints the answers from a synthetic database that a command line asks for."""
    refuse_others(options, ("quantile", *QUESTIONS))
    answer_tables(release, options)


def answer_tables(release: _Answering, options: argparse.Namespace) -> None:
    """Prints the answers that a command line asks for."""
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
            # A name may contain a comma.
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
            print_answers(table, options.limit)
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
        print_table((*answer.attributes, "count"), rows, (len(attributes),))
        print_shown(len(rows), answer.values.size, "cells")
        if answer.standard_error is None:
            told = "No error bar: the release did not measure this whole marginal."
        else:
            told = f"The standard error of a count is {answer.standard_error:,.1f} records"
            if answer.bound is not None and answer.failure_probability is not None:
                told += f"; {surely(answer.failure_probability)}, all counts are within"
                told += f" {answer.bound:,.1f} of the truth"
            told += "."
        print_wrapped(told)


def _has_bars(release: SyntheticDatabase, workload: Workload) -> bool:
    """Returns whether each cell of these marginals may have its own error bar."""
    largest = max(release.domain.restrict(names).num_cells for names in workload)
    return release.measurements is not None and largest <= questions.MAX_GROUPS


def _holds_marginals(path: str) -> bool:
    """Returns whether the first line of a query file asks for a marginal."""
    with pathlib.Path(path).open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    return b'"marginal"' in first


def _answer_queries(
    options: argparse.Namespace, release: _Answering, workload: LinearWorkload
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
    columns = ("query", "count", *(("standard error",) if has_errors else ()), _BARS["bound"])
    rows = []
    for text, each in shown_answers:
        stated = [*([each.standard_error] if has_errors else []), each.bound]
        errors = ["not stated" if value is None else f"{value:,.1f}" for value in stated]
        rows.append((text, f"{each.value:,.1f}", *errors))
    print_table(columns, rows, range(1, len(columns)))
    print_shown(len(rows), len(answers), "queries")
    failing = [each.failure_probability for each in answers if each.bound is not None]
    if failing and failing[0] is not None:
        print_wrapped(together_text(failing[0]))


def _answer_json(answer: MarginalAnswer, domain: Domain) -> dict[str, Any]:
    return {
        "marginal": list(answer.attributes),
        "labels": {name: domain[name].labels() for name in answer.attributes},
        "records": answer.values.tolist(),
        "standard_error": answer.standard_error,
        "bound": answer.bound,
        "failure_probability": answer.failure_probability,
    }


_BARS = {
    "margin": "± (95 %)",
    "low": "from (95 %)",
    "high": "to",
    "bound": "± (proved)",
    "within_bins": "± in bins",
}
# The names of arguments, and the flags that set the arguments.
_FLAGS = {"column": ("mean", "sum")}


def answer_question(options: argparse.Namespace, release: SyntheticDatabase) -> None:
    """Prints the answers to a question about records, perhaps in groups."""
    try:
        asked = release.query(options.where)
        if options.group_by is not None:
            asked = asked.group_by(*_names(release, options.group_by))
        tables = _answers(options, asked)
    except InputError as error:
        named = [name for name in _FLAGS.get(error.name, ()) if getattr(options, name) is not None]
        # An error about a condition may also name an attribute.
        argument, comma, attribute = error.name.partition(",")
        flag = named[0] if named else argument
        if flag == "where" and options.where is None:
            flag = "share"
        # On the command line, Python's ``share(...)`` is the flag --share.
        condition = re.sub(
            r"share\('(.+)'\)", lambda call: f"--share {shlex.quote(call[1])}", error.condition
        )
        condition = re.sub(r"share\((\".+\")\)", r"--share \1", condition)
        raise refused(f"{flag}{comma}{attribute}", error.value, condition) from None
    for table in tables:
        if options.json:
            print(json.dumps([*map(_finite, table.rows())], ensure_ascii=False))
        else:
            print_answers(table, options.limit)


def _answers(options: argparse.Namespace, asked: questions.Question) -> list[questions.AnswerTable]:
    if options.quantile is not None:
        if options.of is None:
            example = "--quantile 0.5 --of COLUMN is the median"
            raise FlagError(f"--of is required: the column whose quantiles you want; {example}")
        shares = [number("quantile", text) for text in options.quantile]
        return [asked.quantile(options.of, share) for share in shares]
    for name, answer in (("mean", asked.mean), ("sum", asked.sum), ("share", asked.share)):
        text = getattr(options, name)
        if text is not None:
            return [answer(text)]
    return [asked.count()]


def print_answers(table: questions.AnswerTable, limit: int) -> None:
    """Prints answers with error bars, and a sentence about how to read them."""
    names = [name for name in table.columns if name not in questions.BESIDE_ANSWERS]
    bars = [name for name in _BARS if name in table.columns]
    rows: list[tuple[str, ...]] = []
    kinds, reasons = set(), set()
    for row in table.rows():
        kinds.add(row["error"])
        if row["reason"]:
            reasons.add(("no error bar: " if row["error"] is None else "") + row["reason"])
        if len(rows) < limit:
            groups = [questions.group_text(row[name]) for name in names[: table.num_groups]]
            answers = [
                questions.answer_text(row[name]) for name in (*names[table.num_groups :], *bars)
            ]
            rows.append((*groups, *answers, (row["error"] or "no error bar").replace("_", "-")))
    columns = (*names, *(_BARS[bar] for bar in bars), "error")
    print_table(columns, rows, range(len(names) - 1, len(columns) - 1))
    print_shown(len(rows), len(table), "rows")
    has_proof = any(each is not None for each in table.columns.get("bound", ()))
    of = next(iter(table.columns.get("of", [""])))
    words = [*_how_to_read(kinds - {None}, bars, of, has_proof=has_proof), *sorted(reasons)]
    print_wrapped("; ".join(words) + "." * bool(words))


def _how_to_read(
    kinds: set[str], bars: Sequence[str], of: str, *, has_proof: bool
) -> Iterator[str]:
    """Yields sentences about the printed error bars, whose truth is ``of`` some values."""
    if not kinds:
        return
    about = "" if kinds <= {FROM_NOISE, questions.FROM_NOISE_AND_BINS} else "of about "
    bar = f"within {_BARS['margin']} of an answer"
    bar = "between these two values" if "low" in bars else bar
    said = f"With probability {about}95 %, the truth{f' of {of}' if of else ''} is {bar}"
    if has_proof:
        sure = "" if not about else "with probability 95 % "
        said += f", and {sure}within {_BARS['bound']} of all of them at once"
    yield said
    if of:
        yield "no bar can tell what values beyond the ends would add"
    if "within_bins" in bars:
        yield f"{_BARS['within_bins']} is the part of it due to unknown positions within bins"
    if "model_based" in kinds:
        yield "model-based bars rest on an assumption about the data"


def _names(release: SyntheticDatabase, text: str) -> list[str]:
    # A name may contain a comma.
    return [text] if text in release.domain else [*map(str.strip, text.split(","))]


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """Returns a row in which null replaces numbers that are not finite."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }

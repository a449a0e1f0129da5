"""What `beam-dp describe`, `report` and `answer` show of a synthetic database."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import BinnedAttribute, NumericAttribute
from beam_dp.domain.universe import Domain, released_edges
from beam_dp.errors import InputError, magnitude
from beam_dp.flags.flag import FlagError, number, refused
from beam_dp.flags.questions import OF_COLUMNS, QUESTIONS, asks_a_question, refuse_others
from beam_dp.privacy.guarantee import RECORD
from beam_dp.queries.dense_tables import VectorQuery
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.linear_workload import LinearWorkload, parse_linear_workload
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.releases.earlier_stage import CUT
from beam_dp.releases.error_bars import FROM_NOISE, Estimate, MarginalAnswer
from beam_dp.releases.synthetic_database import questions
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.views import markup, terminal
from beam_dp.views.cells import (
    Asked,
    Groups,
    Truth,
    column_warnings,
    indicators,
    summed_groups,
)
from beam_dp.views.columns import compare_columns
from beam_dp.views.marginals import COLUMNS, MAX_PAIRS, Marginals, pairs_of
from beam_dp.views.page import Told, noise_words, noisy_number_fact
from beam_dp.views.terminal import (
    counted,
    print_shown,
    print_table,
    print_wrapped,
    some,
    surely,
    together_text,
)

if TYPE_CHECKING:
    from rich.console import RenderableType


_SHOWN_MARGINALS = 20
_SHOWN_LABELS = 6
_ABOUT_COUNTS = (
    "Estimated numbers of original records, as beam-dp answer gives them: report these, with their"
    " error bars. A number below 0 is noise."
)
_WITHIN_BINS = (
    " Values within bins were drawn: only the bin, and perhaps its mean, carries information."
)
_ABOUT_PAIRS = "All is computed from the model, which can make pairs look weaker or stronger."
_LABEL_LETTERS = 44  # for all shown labels of an attribute, so that a row fits in 80 columns


def describe(release: SyntheticDatabase) -> RenderableType:
    """Returns tables with the guarantee and the errors of a release, for ``rich`` to print."""
    cells = magnitude(release.domain.num_cells)
    facts = {
        "mechanism": release.mechanism,
        **terminal.promise_facts(release.guarantee),
        **_limit_facts(release),
        **_number_facts(release),
        **_queries_facts(release),
        **_bins_facts(release),
        **_level_facts(release),
        **terminal.left_out_facts(release.left_out),
        "cells": f"{cells} in the domain, {len(release.counts):,} released",
        "workload": workload_text(release.workload),
        **_types_facts(release),
        "draw": release.draw_id,
    }
    attributes = map(_attribute_row, release.domain)
    parts: list[RenderableType] = [
        terminal.plain_text(_headline(release), "bold"),
        *(
            terminal.plain_text(f"Warning: {warning}.", "bold")
            for warning in column_warnings(release.not_described)
        ),
        *terminal.facts_tables({"release": facts}),
        terminal.plain_table(("attribute", "type", "codes", "levels"), attributes, (2,)),
    ]
    if release.domain.impossible:
        parts.append(terminal.first_lines("impossible", release.domain.to_json()["impossible"]))
    if release.left_out is not None:
        parts.append(terminal.left_out_table(release.left_out))
    parts.append(_errors(release))
    if release.noise:
        parts.append(terminal.noise_table(release.noise))
    rest = {"parameter": release.plan, "fit": release.fit, "made with": release.versions}
    return terminal.below_each_other([*parts, *terminal.facts_tables(rest)])


def _types_facts(release: SyntheticDatabase) -> dict[str, str]:
    """Returns what was assumed about the types of columns."""
    text = "as in the data, whose writer may have chosen them by the values: not covered by epsilon"
    return {"types": text} if release.domain.types_from else {}


def _limit_facts(release: SyntheticDatabase) -> dict[str, str]:
    """Returns the number of records per unit, if a release chose it."""
    apart, chosen = release.plan.get("records_per_unit_from"), release.records_per_unit
    if chosen is None and apart is None:
        return {}
    number = release.limited_guarantee.max_records_per_unit
    draw = chosen.draw_id if chosen is not None else (apart or {}).get("draw_id")
    return {"records per unit": f"at most {number:,} were used, as draw {draw} chose"}


def _headline(release: SyntheticDatabase) -> str:
    """Returns what the release contains and how accurate it is."""
    what = counted(release.num_records, "synthetic record")
    what += f" with {counted(release.domain.num_attributes, 'attribute')}"
    errors = [release.errors.get(names, {}).get("standard_error") for names in release.workload]
    numbers = [error for error in errors if error is not None]
    if not numbers:
        return f"{what}. The release does not state the errors of its marginals."
    ends = " to ".join(dict.fromkeys(map(terminal.short, (min(numbers), max(numbers)))))
    return f"{what}. A count in a marginal has a standard error of {ends} records."


def workload_text(workload: Workload) -> str:
    """Returns the numbers of marginals and cells of a workload as text."""
    return f"{counted(len(workload), 'marginal')}, {counted(workload.num_cells(), 'cell')}"


def _number_facts(release: SyntheticDatabase) -> dict[str, str]:
    """Returns facts about the number of records, and about the released number if it differs."""
    noisy = release.noisy_number()
    origin = "public" if release.num_records_is_public and noisy is None else "a noisy count"
    if noisy is not None:
        origin += f", standard error {noisy[1]:,.1f}"
    facts = {"records": f"{release.represented:,} ({origin})"}
    if release.num_represented is not None:
        facts["released"] = f"{release.num_records:,} records; answers are scaled to all records"
        scale = release.fitted.scale
        if scale > 1 and release.plan.get("strategy") != "small_db":
            rows = f"one row represents {scale:,.6g} records: sampling adds a standard error of"
            facts["rows"] = f"{rows} {math.sqrt(scale - 1):,.3g} times the root of a count"
    return facts


def _queries_facts(release: SyntheticDatabase) -> dict[str, str]:
    """Returns facts about the linear queries that a release was made for."""
    facts = {}
    if release.queries:
        text = counted(len(release.queries), "linear query", "linear queries")
        bound = release.query_error.get("bound")
        if bound is not None:
            beta = release.query_error.get("failure_probability")
            text += f", all within {bound:,.1f} records of the truth"
            text += "" if beta is None else f" {terminal.surely(beta)}"
        facts["answers"] = text
    return facts


def _bins_facts(release: SyntheticDatabase) -> dict[str, str]:
    """Returns a fact about the released values within bins, if any attribute has bins."""
    if not any(isinstance(attribute, BinnedAttribute) for attribute in release.domain):
        return {}
    how = "uniformly" if release.within_bins == "uniform" else "more often beside fuller bins"
    known = "the bin" if release.bin_sums is None else "the bin, or its measured mean,"
    drawn = f"drawn within their bins, {how}; only {known} carries information"
    return {"values": drawn if release.positions else "the middles of their bins"}


def _level_facts(release: SyntheticDatabase) -> dict[str, str]:
    """Returns facts about end levels, levels that an earlier release found, and all others.

    The shares are those of the synthetic records, so they have the error of the release.
    """
    ends = [attribute.name for attribute in release.domain if getattr(attribute, "clip", False)]
    text = "moved into the first or last level; their share is not known"
    facts = {"values outside the levels": f"{some(ends)}: {text}"} if ends else {}
    if others := [f"{name} {share:.1%}" for name, share in release.other_shares.items()]:
        facts = {"share of rows in 'other'": some(others), **facts}
    draws = dict.fromkeys(origin.draw_id for _, origin in released_edges(release.domain))
    if draws:
        columns = [column for column in release.domain if any(released_edges([column]))]
        names = some([column.name for column in columns])
        text = f"{names}, by the release {', '.join(draw[:8] for draw in draws)}"
        codes = [
            column.outside_code if column.null_code is None else column.null_code
            for column in columns
        ]
        missing = [
            f"{column.name} {'left out' if code is None else f'in {column.label(code)}'}"
            for column, code in zip(columns, codes, strict=True)
        ]
        facts = {"found privately": text, "missing values": some(missing), **facts}
    return facts


def _errors(release: SyntheticDatabase) -> RenderableType:
    """Returns a table of the workload's marginals, with the largest error first."""
    from rich.console import Group
    from rich.text import Text

    def size(names: tuple[str, ...]) -> float:
        error = release.errors.get(names, {}).get("standard_error")
        return -1.0 if error is None else error

    ordered = sorted(release.workload, key=size, reverse=True)
    num_stated = sum(size(names) >= 0 for names in ordered)
    rows = []
    for names in ordered[:_SHOWN_MARGINALS]:
        error = release.errors.get(names, {})
        figures = (terminal.short_value(error.get(key)) for key in _ERROR_COLUMNS)
        rows.append((", ".join(names), *figures))
    columns = ("marginal", *_ERROR_COLUMNS.values())
    words = "Errors are in records; 'bound' holds for all counts of a marginal at once."
    parts: list[RenderableType] = [
        terminal.plain_table(columns, rows, range(1, len(columns))),
        Text(words),
    ]
    smaller = num_stated - _SHOWN_MARGINALS
    if smaller > 0:
        parts.append(Text(f"and {smaller:,} more, with no larger errors"))
    not_shown = len(ordered) - max(num_stated, _SHOWN_MARGINALS)
    if not_shown > 0:
        words = (
            f"and {not_shown:,} more, which were not measured as a whole and have no stated error"
        )
        parts.append(Text(words))
    return Group(*parts)


_ERROR_COLUMNS = {
    "standard_error": "standard error",
    "bound": "bound",
    "failure_probability": "fails with probability",
}


def _attribute_row(attribute: Attribute) -> tuple[str, ...]:
    size = attribute.size

    def listed(number: int) -> str:
        labels = [attribute.label(code) for code in range(number)]
        return "  ".join(labels if number == size else [*labels, "...", attribute.label(size - 1)])

    whole = [listed(size)] if size <= _SHOWN_LABELS else []
    parts = [listed(number) for number in range(min(size - 2, _SHOWN_LABELS - 1), 0, -1)]
    # If no label fits, the first and the last label are shown regardless of their length.
    fitting = [text for text in whole + parts if len(text) <= _LABEL_LETTERS]
    shown = (fitting or (whole + parts)[-1:])[0]
    return attribute.name, attribute.kind, f"{size:,}", shown


def report(release: SyntheticDatabase, truth: Truth | None) -> Told:
    """Returns the sections about marginals, and the noise."""
    domain = release.domain
    measured = release.measurements.described if release.measurements is not None else ()
    asked = [domain.axes(names) for names in release.workload]
    sets = [*(domain.axes(table.names) for table in measured), *asked]
    pairs = pairs_of(sets, domain.num_attributes, MAX_PAIRS)
    singles = range(domain.num_attributes)
    answers, total = RecordAnswers(release), max(release.represented, 1)
    max_records = release.limited_guarantee.max_records_per_unit
    columns = [column.name for column in domain if isinstance(column, NumericAttribute)]
    wide = [name for name in columns if _wide_bins(release.query().mean(name))]
    about = f"Averages of {some(wide)}: their bins are wider than the noise. " if wide else ""
    about += _ABOUT_COUNTS + (_WITHIN_BINS if release.positions else "")
    if (scale := release.fitted.scale) != 1:
        about += f" One row of the copy stands for {scale:,.3g} records."
    ends = {
        name: (min(units * max_records / total, 1.0), CUT in release.not_described.get(name, ""))
        for name, units in release.hidden_units.items()
    }
    marginals = Marginals(
        answers, singles, pairs, truth, sets, answers.of_records, about, _ABOUT_PAIRS, ends
    )
    number = noisy_number_fact(release).get("Records", f"{release.represented:,}")
    what = f"A synthetic copy of a table of {counted(domain.num_attributes, 'column')} and"
    what += f" {number} records; its rows are artificial"
    sections = marginals.sections()
    if facts := _level_facts(release):
        levels = {name.capitalize(): fact for name, fact in facts.items()}
        sections[COLUMNS] += markup.folded("Where levels come from", markup.facts(levels))
    if truth is not None and truth.columns:
        compared = {"Compared with the records": compare_columns(release, truth)}
        sections = {COLUMNS: sections[COLUMNS], **compared, **sections}
    noise = noise_words(release.noise, *_measured(release))
    return Told(what, *marginals.headlines(), {}, sections, noise)


def _measured(release: SyntheticDatabase) -> Iterator[str]:
    """Yields sentences about what was measured."""
    measurements = release.measurements
    yield f"It was made to answer a workload of {workload_text(release.workload)}."
    if release.guarantee.privacy_unit != RECORD:
        yield "No row belongs to a unit: nothing about a person over several rows can be learned."
    if release.queries:
        queries = counted(len(release.queries), "linear query", "linear queries")
        yield f"It was made to answer {queries}."
    if measurements is None:
        yield "The release does not keep noisy tables, so few answers have error bars."
    elif measurements.are_fixed:
        yield (
            "The measured tables were fixed before any record was read: error bars of sums of these"
            " tables follow from the noise alone."
        )
    else:
        yield "The measured tables were chosen with noise: error bars are approximate."
    yield "Other questions: beam-dp answer DIR --where CONDITION --group_by a,b"


@dataclasses.dataclass(frozen=True, eq=False)
class RecordAnswers:
    """Answers from a synthetic database."""

    release: SyntheticDatabase

    @property
    def domain(self) -> Domain:
        """See ``Answers``."""
        return self.release.domain

    def of(self, tables: Sequence[Asked]) -> list[list[Estimate]]:
        """See ``Answers``."""
        queries = [self._queries(*asked) for asked in tables]
        estimates = iter(self.release.estimates.of(list(itertools.chain.from_iterable(queries))))
        return [list(itertools.islice(estimates, len(query))) for query in queries]

    def of_records(self, axes: tuple[int, ...], groups: Groups) -> NDArray[np.float64]:
        """Returns the counts of released records that ``of`` estimates, scaled to all records."""
        table = self.release.record_marginal([self.domain.names[axis] for axis in axes])
        return summed_groups(table, groups).ravel() * self.release.fitted.scale

    def _queries(self, axes: tuple[int, ...], groups: Groups) -> list[VectorQuery]:
        shape = self.domain.shape
        vectors = [indicators(group, shape[a]) for a, group in zip(axes, groups, strict=True)]
        products = itertools.product(*vectors)
        return [VectorQuery.of(dict(zip(axes, product, strict=True))) for product in products]


class _Answering(Protocol):
    """A release that answers marginals and linear queries."""

    @property
    def domain(self) -> Domain: ...

    def answer(self, workload: Workload) -> list[MarginalAnswer]: ...

    def answer_queries(self, queries: Sequence[LinearQuery]) -> list[Estimate]: ...


def answer(release: SyntheticDatabase, options: argparse.Namespace) -> None:
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
            words = "No error bar: the release did not measure this whole marginal."
        else:
            words = f"The standard error of a count is {answer.standard_error:,.1f} records"
            if answer.bound is not None and answer.failure_probability is not None:
                words += f"; {surely(answer.failure_probability)}, all counts are within"
                words += f" {answer.bound:,.1f} of the truth"
            words += "."
        print_wrapped(words)


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
    has_errors = any(one.standard_error is not None for one in answers)
    columns = ("query", "count", *(("standard error",) if has_errors else ()), _BARS["bound"])
    rows = []
    for text, one in shown_answers:
        bars = [*([one.standard_error] if has_errors else []), one.bound]
        errors = ["not stated" if value is None else f"{value:,.1f}" for value in bars]
        rows.append((text, f"{one.value:,.1f}", *errors))
    print_table(columns, rows, range(1, len(columns)))
    print_shown(len(rows), len(answers), "queries")
    failing = [one.failure_probability for one in answers if one.bound is not None]
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


def answer_question(options: argparse.Namespace, release: SyntheticDatabase) -> None:
    """Prints the answers to a question about records, perhaps in groups."""
    try:
        asked = release.query(options.where)
        if options.group_by is not None:
            asked = asked.group_by(*_names(release, options.group_by))
        tables = _answers(options, asked)
    except InputError as error:
        # An error about a condition may also name an attribute.
        flag, comma, attribute = error.name.partition(",")
        if flag == "column" or getattr(options, flag, "") is None:
            flag = next(name for name in OF_COLUMNS if getattr(options, name) is not None)
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
            example = "--quantile 0.9 --of COLUMN"
            raise FlagError(f"--of is required: the column whose quantiles you want; {example}")
        shares = [number("quantile", text) for text in options.quantile]
        return [asked.quantile(options.of, share) for share in shares]
    answers: dict[str, Callable[[str], questions.AnswerTable]] = {
        "mean": asked.mean,
        "sum": asked.sum,
        "median": asked.median,
        "variance": asked.variance,
        "min": asked.min,
        "max": asked.max,
        "histogram": asked.histogram,
        "top": asked.top,
        "share": asked.share,
        "correlation": lambda text: asked.correlation(*_split(text, ",", "a,b")),
        "regression": lambda text: asked.regression(*_split(text, "~", "'wage ~ age + hours'")),
    }
    for name, answer in answers.items():
        text = getattr(options, name)
        if text is not None:
            return [answer(text)]
    return [asked.count()]


def _split(text: str, sign: str, form: str) -> tuple[str, str]:
    """Returns the texts before and after a sign."""
    before, found, after = text.partition(sign)
    if not found:
        raise InputError("column", text, f"must have the form {form}")
    return before.strip(" `"), after.strip(" `")


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
    print_wrapped(_wide_bins(table))
    print_table(columns, rows, range(len(names) - 1, len(columns) - 1))
    print_shown(len(rows), len(table), "rows")
    has_proof = any(bound is not None for bound in table.columns.get("bound", ()))
    of = next(iter(table.columns.get("of", [""])))
    words = [*_how_to_read(kinds - {None}, bars, of, has_proof=has_proof), *sorted(reasons)]
    print_wrapped("; ".join(words) + "." * bool(words))


def _wide_bins(table: questions.AnswerTable) -> str:
    """Returns a sentence if the bins of a column move an answer more than the noise does."""
    bars = zip(table.columns.get("within_bins", ()), table.columns.get("margin", ()), strict=False)
    if not any(margin is not None and 2 * within > margin for within, margin in bars):
        return ""
    widest = some([*dict.fromkeys(filter(None, table.columns.get("widest_bin", ())))])
    more = f"; more than half of it may come from {widest}" if widest else ""
    return f"Bins are wider than the noise: they make most of an error{more}."


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

"""The part of `beam-dp answer` for questions about synthetic records, each with its error bar."""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
from collections.abc import Callable, Sequence
from typing import Any

from beam_dp.errors import InputError
from beam_dp.flags.flag import FlagError, refused
from beam_dp.flags.numbers import number
from beam_dp.noise.bound import FAILURE_PROBABILITY
from beam_dp.releases.synthetic_database.questions import (
    BESIDE_ANSWERS,
    AnswerTable,
    Question,
    answer_text,
    group_text,
)
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.reports.terminal import print_table

_KINDS = {"exact": "exact", "approximate": "approximate", "model_based": "model-based"}
# The names of arguments, and the flags that they come from.
_FLAGS = {"column": ("mean", "sum")}


def answer_question(options: argparse.Namespace, release: SyntheticDatabase) -> None:
    """Prints what is asked: of records for which a condition holds, perhaps in groups.

    Raises:
        FlagError: if a flag is refused.
    """
    try:
        asked = release.query(options.where)
        if options.group_by is not None:
            asked = asked.group_by(*_names(release, options.group_by))
        tables = _answers(options, asked)
    except InputError as error:
        named = [name for name in _FLAGS.get(error.name, ()) if getattr(options, name) is not None]
        # What is refused of a condition may name an attribute, too.
        argument, comma, attribute = error.name.partition(",")
        flag = named[0] if named else argument
        if flag == "where" and options.where is None:
            flag = "share"
        # What a condition calls in Python is a flag here.
        condition = re.sub(r"share\('(.+)'\)", _share_flag, error.condition)
        raise refused(f"{flag}{comma}{attribute}", error.value, condition) from None
    for table in tables:
        if options.json:
            print(json.dumps([*map(_finite, table.rows())], ensure_ascii=False))
        else:
            print_answers(table, "records in groups" if asked.groups else "records", options.limit)


def _share_flag(call: re.Match[str]) -> str:
    return f"--share {shlex.quote(call[1])}"


def _answers(options: argparse.Namespace, asked: Question) -> list[AnswerTable]:
    if options.quantile is not None:
        if options.of is None:
            raise FlagError("--of: missing; must be the column whose quantiles are asked for")
        shares = [number("quantile", text) for text in options.quantile]
        return [asked.quantile(options.of, share) for share in shares]
    of_column: dict[str, Callable[[str], AnswerTable]] = {
        "mean": asked.mean,
        "sum": asked.sum,
        "share": asked.share,
    }
    for name, answer in of_column.items():
        text = getattr(options, name)
        if text is not None:
            return [answer(text)]
    return [asked.count()]


def print_answers(table: AnswerTable, title: str, limit: int) -> None:
    """Prints answers with their error bars, and what these mean."""
    names = [name for name in table.columns if name not in BESIDE_ANSWERS]
    has_ends = "low" in table.columns
    more = [name for name in ("bound", "within_bins") if name in table.columns]
    bars = [*(("low", "high") if has_ends else ("margin",)), *more]
    shown = {
        "margin": "± (95 %)",
        "bound": "± (proved)",
        "low": "from (95 %)",
        "high": "to",
        "within_bins": "± in bins",
    }
    rows: list[tuple[str, ...]] = []
    kinds, reasons = set(), set()
    for row in table.rows():
        kinds.add(row["error"])
        reasons.add(row["reason"])
        if len(rows) < limit:
            told = _KINDS.get(row["error"], "no error bar")
            groups = [group_text(row[name]) for name in names[: table.num_groups]]
            answers = [answer_text(row[name]) for name in (*names[table.num_groups :], *bars)]
            rows.append((*groups, *answers, told))
    columns = (*names, *(shown[bar] for bar in bars), "error")
    print_table(title, columns, rows, range(len(names) - 1, len(columns) - 1))
    if len(table) > len(rows):
        print(f"{len(rows)} of {len(table):,} rows; --limit shows more")
    for line in _explained(kinds, reasons, bars):
        print(line)
    if any(each is not None for each in table.columns.get("bound", ())):
        print(
            f"± (proved): with probability {1 - FAILURE_PROBABILITY:.0%}, every answer here is"
            " within this distance of the truth"
        )


def _explained(kinds: set[Any], reasons: set[str], bars: Sequence[str]) -> list[str]:
    """What the error bars mean, of the kinds that are shown."""
    lines = {
        "exact": "exact: the error follows from the noise alone, whatever the data",
        "approximate": "approximate: predicted, of a fit to what was measured, or of a ratio",
        "model_based": "model-based: predicted; these columns were not measured together",
    }
    found = [text for kind, text in lines.items() if kind in kinds]
    found += [f"no error bar: {reason}" for reason in sorted(reasons - {""})]
    if "within_bins" in bars:
        found.append("± in bins: extra uncertainty, because positions within bins are not known")
    return found


def _names(release: SyntheticDatabase, text: str) -> list[str]:
    # A name may hold a comma itself.
    return [text] if text in release.domain else [*map(str.strip, text.split(","))]


def _finite(row: dict[str, Any]) -> dict[str, Any]:
    """A row as JSON knows numbers."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }

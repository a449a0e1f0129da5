"""What `beam-dp describe`, `report` and `answer` show of interval counts."""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import math
import pathlib
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import integer, number
from beam_dp.flags.questions import refuse_others
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY
from beam_dp.queries.linear import LinearQuery, Product
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.releases.differences import CellDifference, not_comparable
from beam_dp.releases.error_bars import FROM_NOISE, Estimate
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.release import Release
from beam_dp.views import terminal
from beam_dp.views.cells import Asked, Cell, Truth, groups_of
from beam_dp.views.marginals import Marginals, bar_words, figure
from beam_dp.views.page import Told, noise_words, noisy_number_fact
from beam_dp.views.pictures import MAX_COLUMNS, vertical_bars
from beam_dp.views.terminal import print_shown, print_table, print_wrapped, together_text

if TYPE_CHECKING:
    from rich.console import RenderableType


def describe(release: IntervalRelease) -> RenderableType:
    """Returns tables of the guarantee, the attribute, the error and the noise."""
    attribute = release.attribute
    num_leaves = release.num_leaves
    headline = (
        f"Counts of all {num_leaves * (num_leaves + 1) // 2:,} intervals of {attribute.name}, with"
        f" an error of {math.sqrt(release.mean_squared_error):,.1f} records (root mean square)."
    )
    facts = {
        "strategy": release.choice[0],
        **terminal.promise_facts(release.guarantee),
        "levels": f"{num_leaves:,}, from {attribute.label(0)} to {attribute.label(num_leaves - 1)}",
        "noise": f"{terminal.noise_text(release.choice[1])},"
        f" scale {release.scale / release.grid:.4g}",
        **terminal.left_out_facts(release.left_out),
        "draw": release.draw_id,
    }
    levels = {"other": "other", "nullable": "null"}
    left_out = [name for field, name in levels.items() if getattr(attribute, field)]
    if left_out:
        facts["not counted"] = f"records whose {attribute.name} is {' and '.join(left_out)}"
    tables = {"release": facts, "parameter": release.plan, "made with": release.versions}
    return terminal.below_each_other(
        [terminal.plain_text(headline, "bold"), *terminal.facts_tables(tables)]
    )


def report(release: IntervalRelease, truth: Truth | None) -> Told:
    """Returns the sections about the counts, also up to each value, and the noise."""
    answers = IntervalAnswers(release)
    marginals = Marginals(answers, [0], [], truth)
    facts = {
        **noisy_number_fact(release),
        "Error of an interval": f"{terminal.short(math.sqrt(release.mean_squared_error))} records"
        " (root mean square)",
    }
    sections = {**marginals.sections(), "Up to each value": _up_to(answers, truth)}
    what = f"Counts of all intervals of {release.attribute.name[:60]}"
    return Told(what, *marginals.headlines(), facts, sections, noise_words(release.noise))


def _up_to(answers: IntervalAnswers, truth: Truth | None) -> str:
    """Returns a picture of the numbers of records up to each value, and the quartiles."""
    groups = groups_of(answers, 0, MAX_COLUMNS)
    lasts = [int(group.codes[-1]) for group in groups]
    true: Sequence[int | None] = [None] * len(groups)
    if truth is not None:
        true = list(itertools.accumulate(truth.of((0,), (groups,))))
    labels = [(answers.release.attribute.label(last),) for last in lasts]
    estimates = answers.between([0] * len(lasts), lasts)
    cells = [Cell(*parts) for parts in zip(labels, estimates, true, strict=True)]
    quartiles = answers.release.quantiles([0.25, 0.5, 0.75]).tolist()
    low, middle, high = map(answers.release.attribute.label, quartiles)
    words = f"Quartiles: {low}, {middle} (the median) and {high}. {bar_words(cells)}"
    picture = vertical_bars("Records up to each value", cells, is_line=True)
    return figure("Records up to each value", words, [picture], cells, "wide")


@dataclasses.dataclass(frozen=True, eq=False)
class IntervalAnswers:
    """Answers from interval counts, for groups of neighbouring levels."""

    release: IntervalRelease

    @cached_property
    def domain(self) -> Domain:
        """The domain without the levels that intervals leave out; see ``Answers``."""
        assert isinstance(self.release.attribute, OrderedAttribute)
        return Domain((self.release.attribute.regular(),))

    def of(self, tables: Sequence[Asked]) -> list[list[Estimate]]:
        """See ``Answers``."""
        ends = [
            ([group.codes[0] for group in groups], [group.codes[-1] for group in groups])
            for _, (groups,) in tables
        ]
        return [self.between(*end) for end in ends]

    def between(self, firsts: Sequence[int], lasts: Sequence[int]) -> list[Estimate]:
        """Returns the numbers of records from first to last codes."""
        answers = self.release.answer(firsts, lasts, failure_probability=FAILURE_PROBABILITY)
        columns = answers.values, answers.standard_errors, answers.bounds
        rows = zip(*(column.tolist() for column in columns), strict=True)
        return [Estimate(value, error, bar, FROM_NOISE) for value, error, bar in rows]


Cells = tuple[int, int]

_ERRORS = ("count", "standard error", "± (proved)")
_FLAGS = ("marginal", "interval", "queries", "quantile")


def answer(release: IntervalRelease, options: argparse.Namespace) -> None:
    """Prints the answers that a command line asks for."""
    refuse_others(options, ("interval", "quantile"))
    (flag,) = (name for name in _FLAGS if getattr(options, name) is not None)
    try:
        if flag == "marginal":
            condition = "must be --interval LOW HIGH: interval counts have no marginals"
            raise InputError(flag, options.marginal, condition)
        if flag == "quantile":
            _print_quantiles(options, release)
        elif flag == "queries":
            _print_intervals(options, release, *_of_file(release, options.queries))
        else:
            ends = [[_level(release.attribute, end) for end in pair] for pair in options.interval]
            cells = [release.cells(*pair) for pair in ends]
            names = [f"{low} to {high}" for low, high in options.interval]
            _print_intervals(options, release, names, cells)
    except InputError as error:
        raise InputError(f"--{flag}", error.value, error.condition) from None


def _of_file(release: IntervalRelease, path: str) -> tuple[list[str], list[Cells]]:
    """Returns the names and cells of the intervals and prefixes in a file of JSON lines."""
    if not pathlib.Path(path).is_file():
        raise InputError("queries", path, "must be a file that can be read")
    assert isinstance(release.attribute, OrderedAttribute)
    ordered = release.attribute.regular()
    workload = parse_linear_workload(path, Domain((ordered,)))
    cells = [_range(query, release.num_leaves) for query in workload]
    return [f"{ordered.label(low)} to {ordered.label(high)}" for low, high in cells], cells


def _print_intervals(
    options: argparse.Namespace,
    release: IntervalRelease,
    names: Sequence[str],
    cells: Sequence[Cells],
) -> None:
    answers = release.answer(*np.array(cells, np.int64).T)
    beta = answers.failure_probability
    columns = (answers.values, answers.standard_errors, answers.bounds)
    numbers = list(zip(*(column.tolist() for column in columns), strict=True))
    if options.json:
        entries = [
            {"interval": name, "value": value, "standard_error": error, "bound": bound}
            | {"failure_probability": beta}
            for name, (value, error, bound) in zip(names, numbers, strict=True)
        ]
        print(json.dumps(entries))
        return
    shown = list(zip(names, numbers, strict=True))[: options.limit]
    rows = [(name, *(f"{value:,.1f}" for value in values)) for name, values in shown]
    print_table((release.attribute.name, *_ERRORS), rows, range(1, 4))
    print_shown(len(rows), len(names), "intervals")
    print_wrapped(together_text(beta))


def _print_quantiles(options: argparse.Namespace, release: IntervalRelease) -> None:
    shares = [number("value", share) for share in options.quantile]
    levels = [release.attribute.label(cell) for cell in release.quantiles(shares).tolist()]
    pairs = list(zip(shares, levels, strict=True))
    if options.json:
        print(json.dumps([{"share": share, "level": level} for share, level in pairs]))
        return
    rows = [(f"{share:g}", level) for share, level in pairs]
    print_table(("share of records", f"quantile_{release.attribute.name}"), rows, (0,))
    print_wrapped("No error bar: ask for the intervals on both sides, which have one.")


def _range(query: LinearQuery, num_leaves: int) -> Cells:
    if isinstance(query, Product):
        if not query.ranges:
            return 0, num_leaves - 1
        if len(query.ranges[0]) == 1:
            ((start, stop),) = query.ranges[0]
            return start, stop - 1
    raise InputError("queries", query.to_json(), "must be an interval or a prefix")


def _level(attribute: Attribute, text: str) -> int | float | str:
    """Returns a time as text, else a number; integers stay exact, as floats would lose digits."""
    if isinstance(attribute, TimeAttribute):
        return text
    try:
        return integer("value", text)
    except InputError:
        return number("value", text)


def compare(first: IntervalRelease, second: Release) -> Iterator[CellDifference]:
    """Yields the cells of two releases of interval counts for the same attribute."""
    if not isinstance(second, IntervalRelease):
        raise not_comparable(first, second)
    attribute = first.attribute
    if attribute != second.attribute:
        condition = "must be declared exactly as in the first release, whose attribute is"
        raise InputError("second", second.attribute.name, f"{condition} {attribute.name!r}")
    cells = np.arange(first.num_leaves)
    one, other = first.answer(cells, cells), second.answer(cells, cells)
    errors = np.hypot(one.standard_errors, other.standard_errors).tolist()
    values = zip(one.values.tolist(), other.values.tolist(), errors, strict=True)
    for code, (before, after, error) in enumerate(values):
        yield CellDifference(((attribute.name, attribute.label(code)),), before, after, error)

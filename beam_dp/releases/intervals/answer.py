"""The part of `beam-dp answer` for releases of interval counts."""

from __future__ import annotations

import argparse
import json
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import integer, number
from beam_dp.flags.questions import refuse_others
from beam_dp.queries.linear import LinearQuery, Product
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.queries.workload import Workload
from beam_dp.releases.differences import CellDifference, not_comparable
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.release import Release
from beam_dp.reports.terminal import print_shown, print_table, print_wrapped, together_text

Cells = tuple[int, int]

_ERRORS = ("count", "standard error", "± (proved)")
_FLAGS = ("marginal", "interval", "queries", "quantile")


def answer_intervals(release: IntervalRelease, options: argparse.Namespace) -> None:
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
        found = [
            {"interval": name, "value": value, "standard_error": error, "bound": bound}
            | {"failure_probability": beta}
            for name, (value, error, bound) in zip(names, numbers, strict=True)
        ]
        print(json.dumps(found))
        return
    shown = list(zip(names, numbers, strict=True))[: options.limit]
    rows = [(name, *(f"{value:,.1f}" for value in each)) for name, each in shown]
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


def compare_intervals(
    first: IntervalRelease, second: Release, _: Workload | None
) -> Iterator[CellDifference]:
    """Yields the cells of two releases of interval counts for the same attribute."""
    if not isinstance(second, IntervalRelease):
        raise not_comparable(first, second)
    attribute = first.attribute
    if attribute != second.attribute:
        condition = "must be declared exactly as in the first release, whose attribute is"
        raise InputError("second", second.attribute.name, f"{condition} {attribute.name!r}")
    cells = np.arange(first.num_leaves)
    answers = [each.answer(cells, cells) for each in (first, second)]
    errors = np.hypot(*(each.standard_errors for each in answers))
    columns = (*(each.values.tolist() for each in answers), errors.tolist())
    for code, (one, other, error) in enumerate(zip(*columns, strict=True)):
        yield CellDifference(((attribute.name, attribute.label(code)),), one, other, error)

"""The command `beam-dp diff`: the cells of two releases, those that differ most first."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import TYPE_CHECKING

from beam_dp.errors import InputError
from beam_dp.flags.command_line import Command
from beam_dp.flags.flag import JSON, Flag, refused
from beam_dp.flags.questions import LIMIT, MARGINAL, read_limit
from beam_dp.reports.terminal import counted, print_table

if TYPE_CHECKING:
    from beam_dp.queries.workload import Workload
    from beam_dp.releases.differences import CellDifference
    from beam_dp.releases.release import Release

_FAR = 3.0  # standard errors
NO_ERROR_BAR = "no error bar"


def _run(options: argparse.Namespace) -> None:
    """Prints the cells of two releases, those that differ most first."""
    from beam_dp.releases.kinds import holds_horizon, read_release

    read_limit(options)
    for name, directory in (("A", options.first), ("B", options.second)):
        if holds_horizon(directory):
            condition = "holds many windows: name two of them, such as DIR/windows/000000"
            raise InputError(name, directory, condition)
    first, second = read_release(options.first), read_release(options.second)
    if first.draw_id == second.draw_id:
        raise InputError("B", options.second, "must be another release than A: both are one draw")
    workload = None if options.marginal is None else _workload(first, options.marginal)
    found = _compared(first, second, workload)
    if options.json:
        print(json.dumps([each.to_json() for each in found], ensure_ascii=False))
        return
    columns = ("cell", "A", "B", "difference", "standard error", "z")
    rows = [_row(each) for each in found[: options.limit]]
    print(f"A  {options.first}\nB  {options.second}\n")
    print_table("counts in records", columns, rows, range(1, len(columns)))
    if len(found) > options.limit:
        print(f"{options.limit:,} of {len(found):,} cells are shown; --limit shows more")
    print(f"\n{_summary(found)}")


def _compared(first: Release, second: Release, workload: Workload | None) -> list[CellDifference]:
    from beam_dp.releases.differences import compare_releases

    try:
        return compare_releases(first, second, workload)
    except InputError as error:
        if error.name != "workload":
            raise
        condition = "must be given: A and B were made for no marginal that is the same"
        raise refused("marginal", None, condition) from None


def _row(each: CellDifference) -> tuple[str, ...]:
    cell = ", ".join(f"{name} {label}" for name, label in each.cell)
    numbers = (f"{each.first:,.1f}", f"{each.second:,.1f}", f"{each.difference:+,.1f}")
    if each.standard_error is None or each.z_score is None:
        return cell, *numbers, NO_ERROR_BAR, ""
    return cell, *numbers, f"{each.standard_error:,.1f}", f"{each.z_score:+.2f}"


def _summary(found: list[CellDifference]) -> str:
    """Returns how many z-scores are large, in lines of at most 80 characters."""
    scores = [each.z_score for each in found if each.z_score is not None]
    if not scores:
        return "No cell has an error bar: noise alone may explain every difference, or none."
    far = sum(abs(score) > _FAR for score in scores)
    lines = [f"{far:,} of {len(scores):,} cells differ by more than {_FAR:g} standard errors (z)."]
    if len(scores) < len(found):
        lines.append(f"{counted(len(found) - len(scores), 'cell')} without an error bar.")
    lines.append("Noise alone does that to 3 cells in 1,000, or up to 10 if it is Laplace noise.")
    return "\n".join(lines)


def _workload(release: Release, given: list[str]) -> Workload:
    from beam_dp.queries.workload import Workload
    from beam_dp.releases.differences import MarginalsRelease

    if not isinstance(release, MarginalsRelease):
        raise refused("marginal", given[0], "applies only to releases of marginals")
    domain = release.domain
    # A name may hold a comma itself.
    tables = [[text] if text in domain else text.split(",") for text in given]
    try:
        return Workload(domain, tuple(tuple(map(str.strip, names)) for names in tables))
    except InputError as error:
        raise refused("marginal", error.value, error.condition) from None


_FLAGS = (
    Flag("first", "directory that holds a release", "A", is_positional=True),
    Flag("second", "directory of another one, of the same domain", "B", is_positional=True),
    MARGINAL,
    JSON,
    dataclasses.replace(LIMIT, help="cells shown (default: 20)", default="20"),
)
COMMANDS = {"diff": Command(_FLAGS, _run)}

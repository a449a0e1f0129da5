"""The tables that `beam-dp plan` prints of mechanisms for a job, best first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from beam_dp.cli.tables import guarantee_text
from beam_dp.errors import magnitude
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.ranking import Ranking
from beam_dp.planning.sketches.job import SparseOption, SparsePlanningJob
from beam_dp.planning.sketches.ranking import SparseRanking

if TYPE_CHECKING:
    from rich.console import RenderableType

OptionT = TypeVar("OptionT", bound=Option)


def ranking_table(ranking: Ranking) -> RenderableType:
    """Returns a ranking for ``rich`` to print: options, then notes, then why others cannot.

    Args:
        ranking: the ranking.
    """
    job = ranking.job
    is_inverse = job.max_error_fraction is not None
    columns = ["expected error", f"bound at {job.failure_probability:g}"]
    columns += [f"records for {job.max_error_fraction:.3g}"] if is_inverse else []

    def cells(option: Option) -> list[str]:
        needed = "-" if option.records_needed is None else f"{option.records_needed:,}"
        cost = ["-", "-"] if option.resources is None else _cost(option)
        return [_expected(option), _bound(option), *([needed] if is_inverse else []), *cost]

    rows = [(f"{each.mechanism}, {each.calibration}", each, cells) for each in ranking.options]
    return _table(_title(job), [*columns, "memory", "time"], rows)


def _title(job: PlanningJob) -> str:
    guarantee = job.guarantee
    origin = "public" if job.num_records_is_public else "private, a guess"
    return (
        f"{magnitude(job.domain.num_cells)} cells, {job.num_queries:,} answers;"
        f" {job.num_records:,} records ({origin});"
        f" {guarantee_text(guarantee)}. Errors in records."
    )


def _expected(option: Option) -> str:
    if option.expected_error is not None:
        return short(option.expected_error)
    if option.measured_error is not None:
        return f"({short(option.measured_error)} where measured)"
    return "depends on the data"


def _bound(option: Option) -> str:
    if option.bound is None:
        return "none"
    return short(option.bound.max_error) + (" vacuous" if option.bound.vacuous else "")


def short(error: float) -> str:
    """Returns an error in a few digits."""
    if not math.isfinite(error):
        return "none"
    return f"{error:,.0f}" if error >= 100 else f"{error:.3g}"


def _cost(option: Option) -> list[str]:
    assert option.resources is not None
    memory, seconds = option.resources.memory_bytes, option.resources.seconds
    megabytes = f"{memory / 1e6:,.0f} MB" if memory < 1e9 else f"{memory / 1e9:,.1f} GB"
    if seconds < 100:
        return [megabytes, f"{seconds:.1g} s" if seconds < 10 else f"{seconds:.0f} s"]
    if seconds < 6000:
        return [megabytes, f"{seconds / 60:.0f} min"]
    return [megabytes, f"{seconds / 3600:,.0f} h"]


def sparse_ranking_table(ranking: SparseRanking) -> RenderableType:
    """Returns a ranking of sparse queries for ``rich`` to print, like ``ranking_table``.

    Args:
        ranking: the ranking.
    """
    job = ranking.job
    columns = [f"expected error, {job.max_sparsity:,} keys", "of 1 key"]
    columns += [f"bound at {job.failure_probability:g}", "numbers"]

    def cells(option: SparseOption) -> list[str]:
        expected = option.expected_error
        return [
            "depends on the data" if expected is None else short(expected),
            "-" if option.error_of_one is None else short(option.error_of_one),
            "see the release" if option.bound is None else _bound(option),
            "-" if option.size is None else f"{option.size:,}",
        ]

    nothing = f"Answering 0 to every query would err by {short(ranking.error_of_nothing)}."
    rows = [(_name(each), each, cells) for each in ranking.options]
    return _table(_sparse_title(job), columns, rows, nothing)


def _table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, OptionT, Callable[[OptionT], list[str]]]],
    *remarks: str,
) -> RenderableType:
    """Returns a table of named options with their cells, then notes, remarks and refusals."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_lines=False)
    table.add_column("mechanism", overflow="fold")
    for column in columns:
        table.add_column(column, justify="right")
    notes: dict[str, int] = {}
    refusals = []
    for name, option, cells in rows:
        if option.refusal is not None:
            refusals.append(f"{name}: not possible: {option.refusal}")
            continue
        mark = notes.setdefault(option.note, len(notes) + 1) if option.note else None
        table.add_row(*map(Text, [name + (f" [{mark}]" if mark else ""), *cells(option)]))
    below = [f"[{mark}] {note}" for note, mark in notes.items()]
    return Group(table, *map(Text, [*below, *remarks, *refusals]))


def _sparse_title(job: SparsePlanningJob) -> str:
    profile = job.profile
    origin = "public" if job.num_records_is_public else "private, a guess"
    return (
        f"Queries of up to {job.max_sparsity:,} keys; {profile.num_records:,} records ({origin}),"
        f" {profile.num_keys:,} keys, at most {profile.largest_count:,} records of one;"
        f" {guarantee_text(job.guarantee)}. Errors in records."
    )


def _name(option: SparseOption) -> str:
    forms = {"num_rows": "rows: {}", "noise": "{}", "histogram_share": "share: {}"}
    known = dict(option.parameters)
    return ", ".join(
        [option.mechanism, *(forms[name].format(known[name]) for name in forms if name in known)]
    )

"""The table that `beam-dp plan` prints of mechanisms for a job, best first."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from beam_dp.errors import magnitude
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.ranking import Ranking
from beam_dp.planning.sketches.job import SparseOption, SparsePlanningJob
from beam_dp.planning.sketches.ranking import SparseRanking
from beam_dp.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclasses.dataclass(frozen=True)
class _Layout:
    """What a table has for one kind of job.

    Args:
        title: the job.
        columns: headings, each with what stands below it for an option.
        name: of an option.
        remark: below the notes; empty for none.
    """

    title: str
    columns: tuple[tuple[str, Callable[[Any], str]], ...]
    name: Callable[[Any], str]
    remark: str = ""


def ranking_table(ranking: Ranking | SparseRanking) -> RenderableType:
    """Returns a ranking for ``rich`` to print: options, then notes, then why others cannot.

    Args:
        ranking: the ranking.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    layout = _of_sparse(ranking) if isinstance(ranking, SparseRanking) else _of_queries(ranking.job)
    table = Table(title=layout.title, title_justify="left", show_lines=False)
    table.add_column("mechanism", overflow="fold")
    for heading, _ in layout.columns:
        table.add_column(heading, justify="right")
    notes: dict[str, int] = {}
    for option in ranking.options:
        if not option.is_feasible:
            continue
        mark = notes.setdefault(option.note, len(notes) + 1) if option.note else None
        name = layout.name(option) + (f" [{mark}]" if mark else "")
        table.add_row(*map(Text, (name, *(text(option) for _, text in layout.columns))))
    parts: list[RenderableType] = [table]
    parts += [Text(f"[{mark}] {note}") for note, mark in notes.items()]
    if layout.remark:
        parts.append(Text(layout.remark))
    parts += [
        Text(f"{layout.name(option)}: no: {option.refusal}")
        for option in ranking.options
        if not option.is_feasible
    ]
    return Group(*parts)


def _of_queries(job: PlanningJob) -> _Layout:
    columns: list[tuple[str, Callable[[Option], str]]] = [
        ("expected error", _expected),
        (f"bound at {job.failure_probability:g}", lambda option: _bound(option, "none")),
    ]
    if job.max_error_fraction is not None:
        columns.append((f"records for {job.max_error_fraction:.3g}", _needed))
    columns += [("memory", _memory), ("time", _time)]
    return _Layout(
        f"{magnitude(job.domain.num_cells)} cells, {job.num_queries:,} answers;"
        f" {job.num_records:,} records ({_origin(job)});"
        f" {_guarantee(job.guarantee)}. Errors in records.",
        tuple(columns),
        lambda option: f"{option.mechanism}, {option.calibration}",
    )


def _of_sparse(ranking: SparseRanking) -> _Layout:
    job = ranking.job
    profile = job.profile
    return _Layout(
        f"Queries of up to {job.max_sparsity:,} keys;"
        f" {profile.num_records:,} records ({_origin(job)}),"
        f" {profile.num_keys:,} keys, at most {profile.largest_count:,} records of one;"
        f" {_guarantee(job.guarantee)}. Errors in records.",
        (
            (
                f"expected error, {job.max_sparsity:,} keys",
                lambda option: _or(option.expected_error, "depends on the data"),
            ),
            ("of 1 key", lambda option: _or(option.error_of_one, "-")),
            (
                f"bound at {job.failure_probability:g}",
                lambda option: _bound(option, "see the release"),
            ),
            ("numbers", lambda option: "-" if option.size is None else f"{option.size:,}"),
        ),
        _sparse_name,
        f"Answering 0 to every query would err by {_short(ranking.error_of_nothing)}.",
    )


def _sparse_name(option: SparseOption) -> str:
    forms = {"num_rows": "rows: {}", "noise": "{}", "histogram_share": "share: {}"}
    known = dict(option.parameters)
    return ", ".join(
        [option.mechanism, *(forms[name].format(known[name]) for name in forms if name in known)]
    )


def _origin(job: PlanningJob | SparsePlanningJob) -> str:
    return "public" if job.num_records_is_public else "private, a guess"


def _guarantee(guarantee: Guarantee) -> str:
    return (
        f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g},"
        f" {guarantee.neighboring.value.replace('_', ' ')}"
    )


def _expected(option: Option) -> str:
    if option.expected_error is None and option.measured_error is not None:
        return f"({_short(option.measured_error)} where measured)"
    return _or(option.expected_error, "depends on the data")


def _needed(option: Option) -> str:
    return "-" if option.records_needed is None else f"{option.records_needed:,}"


def _bound(option: Option, unknown: str) -> str:
    if option.bound is None:
        return unknown
    return _short(option.bound.max_error) + (" vacuous" if option.bound.vacuous else "")


def _or(error: float | None, unknown: str) -> str:
    return unknown if error is None else _short(error)


def _short(error: float) -> str:
    """An error in a few digits."""
    if not math.isfinite(error):
        return "none"
    return f"{error:,.0f}" if error >= 100 else f"{error:.3g}"


def _memory(option: Option) -> str:
    if option.resources is None:
        return "-"
    memory = option.resources.memory_bytes
    return f"{memory / 1e6:,.0f} MB" if memory < 1e9 else f"{memory / 1e9:,.1f} GB"


def _time(option: Option) -> str:
    if option.resources is None:
        return "-"
    seconds = option.resources.seconds
    if seconds < 100:
        return f"{seconds:.1g} s" if seconds < 10 else f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:,.0f} h"

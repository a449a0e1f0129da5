"""The table that `beam-dp plan` prints of mechanisms for a job, best first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from beam_dp.errors import magnitude
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.ranking import Ranking
from beam_dp.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from rich.console import RenderableType


def ranking_table(ranking: Ranking) -> RenderableType:
    """Returns a ranking for ``rich`` to print: options, then why others cannot, then notes.

    Args:
        ranking: the ranking.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    job = ranking.job
    feasible = [option for option in ranking.options if option.is_feasible]
    table = Table(title=_title(job), title_justify="left", show_lines=False)
    table.add_column("mechanism", overflow="fold")
    table.add_column("expected error", justify="right")
    table.add_column(f"bound at {job.failure_probability:g}", justify="right")
    if job.max_error_fraction is not None:
        table.add_column(f"records for {job.max_error_fraction:.3g}", justify="right")
    table.add_column("memory", justify="right")
    table.add_column("time", justify="right")
    notes: dict[str, int] = {}
    for option in feasible:
        mark = notes.setdefault(option.note, len(notes) + 1) if option.note else None
        row = [
            f"{option.mechanism}, {option.calibration}" + (f" [{mark}]" if mark else ""),
            _expected(option),
            _bound(option),
        ]
        if job.max_error_fraction is not None:
            row.append("-" if option.records_needed is None else f"{option.records_needed:,}")
        row += ["-", "-"] if option.resources is None else _cost(option)
        table.add_row(*map(Text, row))
    parts: list[RenderableType] = [table]
    parts += [Text(f"[{mark}] {note}") for note, mark in notes.items()]
    parts += [
        Text(f"{option.mechanism}, {option.calibration}: no: {option.refusal}")
        for option in ranking.options
        if not option.is_feasible
    ]
    return Group(*parts)


def _title(job: PlanningJob) -> str:
    guarantee = job.guarantee
    origin = "public" if job.num_records_is_public else "private, a guess"
    return (
        f"{magnitude(job.domain.num_cells)} cells, {job.num_queries:,} answers;"
        f" {job.num_records:,} records ({origin});"
        f" {guarantee_text(guarantee)}. Errors in records."
    )


def guarantee_text(guarantee: Guarantee) -> str:
    """Returns a promise in a few words."""
    return (
        f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g},"
        f" {guarantee.neighboring.value.replace('_', ' ')}"
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

"""The table that `beam-dp plan` prints of mechanisms for sparse queries, best first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beam_dp.cli.plan_table import (
    guarantee_text,
    short,
)
from beam_dp.planning.sketches.job import SparseOption, SparsePlanningJob
from beam_dp.planning.sketches.ranking import SparseRanking

if TYPE_CHECKING:
    from rich.console import RenderableType


def sparse_ranking_table(ranking: SparseRanking) -> RenderableType:
    """Returns a ranking for ``rich`` to print: options, then why others cannot, then notes.

    Args:
        ranking: the ranking.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    job = ranking.job
    table = Table(title=_title(job), title_justify="left", show_lines=False)
    table.add_column("mechanism", overflow="fold")
    table.add_column(f"expected error, {job.max_sparsity:,} keys", justify="right")
    table.add_column("of 1 key", justify="right")
    table.add_column(f"bound at {job.failure_probability:g}", justify="right")
    table.add_column("numbers", justify="right")
    notes: dict[str, int] = {}
    parts: list[RenderableType] = [table]
    for option in ranking.options:
        if not option.is_feasible:
            continue
        mark = notes.setdefault(option.note, len(notes) + 1) if option.note else None
        row = [
            _name(option) + (f" [{mark}]" if mark else ""),
            "depends on the data"
            if option.expected_error is None
            else short(option.expected_error),
            "-" if option.error_of_one is None else short(option.error_of_one),
            "see the release" if option.bound is None else _bound(option),
            "-" if option.size is None else f"{option.size:,}",
        ]
        table.add_row(*map(Text, row))
    parts += [Text(f"[{mark}] {note}") for note, mark in notes.items()]
    nothing = short(ranking.error_of_nothing)
    parts.append(Text(f"Answering 0 to every query would err by {nothing}."))
    parts += [
        Text(f"{_name(option)}: no: {option.refusal}")
        for option in ranking.options
        if not option.is_feasible
    ]
    return Group(*parts)


def _title(job: SparsePlanningJob) -> str:
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


def _bound(option: SparseOption) -> str:
    assert option.bound is not None
    return short(option.bound.max_error) + (" vacuous" if option.bound.vacuous else "")

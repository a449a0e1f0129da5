"""The tables that `beam-dp plan` prints of mechanisms for a job, best first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from beam_dp.errors import magnitude
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.ranking import Ranking
from beam_dp.planning.sketches.job import SparseOption, SparsePlanningJob
from beam_dp.planning.sketches.ranking import SparseRanking
from beam_dp.queries.workload import Workload
from beam_dp.reports.terminal import counted, guarantee_text, plain_table, short

if TYPE_CHECKING:
    from rich.console import RenderableType


def ranking_table(ranking: Ranking, *, show_refused: bool = False) -> RenderableType:
    """Returns a ranking for ``rich`` to print: options, what columns mean, notes, refusals.

    Args:
        ranking: the ranking.
        show_refused: whether to say of each mechanism that cannot do the job why not.
    """
    job = ranking.job
    columns, legend = ["error", "bound"], [legend_of_errors(job), UNKNOWN]
    if job.max_error_fraction is not None:
        columns.append("records")
        share = f"{job.max_error_fraction:.3g} of them"
        legend.append(f"records: how many there must be for a bound of at most {share}")

    best = ranking.best
    if best is not None and best.noisy_cells is not None:
        legend.append(
            f"too noisy to use with {name_of(best)}: {best.noisy_cells:,} of"
            f" {job.num_queries:,} cells, if the records are spread evenly; their error bar is"
            " longer than half of the count"
        )

    def cells(option: Option) -> list[str]:
        needed = "-" if option.records_needed is None else short(option.records_needed)
        is_inverse = job.max_error_fraction is not None
        return [
            _expected(option),
            bound_of(option),
            *([needed] if is_inverse else []),
            *cost(option),
        ]

    rows = [Row(name_of(each), each, cells(each)) for each in ranking.options]
    return options_table(_title(job), [*columns, *COST], rows, legend, show_refused=show_refused)


COST = ("memory", "time")
UNKNOWN = "unknown: depends on the data; (in brackets): only of what is measured on the way"


def name_of(option: Option) -> str:
    """Returns what a row of the table calls an option."""
    return f"{option.mechanism}, {option.calibration}"


def legend_of_errors(job: PlanningJob) -> str:
    """Returns what the errors in a table are, and in which unit."""
    of = "a cell" if isinstance(job.workload, Workload) else "an answer"
    return (
        f"error: expected of {of}, root mean squared; bound: with probability"
        f" {1 - job.failure_probability:.6g}, no error is larger; both in records"
    )


def _title(job: PlanningJob) -> str:
    origin = "public" if job.num_records_is_public else "private, a guess"
    return (
        f"{magnitude(job.domain.num_cells)} cells, {job.num_queries:,} answers;"
        f" {job.num_records:,} records ({origin}); {guarantee_text(job.guarantee)}"
    )


def _expected(option: Option) -> str:
    if option.expected_error is not None:
        return short(option.expected_error)
    return "unknown" if option.measured_error is None else f"({short(option.measured_error)})"


def bound_of(option: Option) -> str:
    """Returns the bound of all errors of an option, or that it says nothing."""
    if option.bound is None:
        return "none"
    return "vacuous" if option.bound.vacuous else short(option.bound.max_error)


def cost(option: Option) -> list[str]:
    """Returns memory and time of an option."""
    if option.resources is None:
        return ["-", "-"]
    memory, seconds = option.resources.memory_bytes, option.resources.seconds
    megabytes = f"{memory / 1e6:,.0f} MB" if memory < 1e9 else f"{short(memory / 1e9)} GB"
    if seconds < 100:
        return [megabytes, f"{seconds:.1g} s" if seconds < 10 else f"{seconds:.0f} s"]
    if seconds < 6000:
        return [megabytes, f"{seconds / 60:.0f} min"]
    return [megabytes, f"{short(seconds / 3600)} h"]


def sparse_ranking_table(ranking: SparseRanking, *, show_refused: bool = False) -> RenderableType:
    """Returns a ranking of sparse queries for ``rich`` to print, like ``ranking_table``.

    Args:
        ranking: the ranking.
        show_refused: whether to say of each mechanism that cannot do the job why not.
    """
    job = ranking.job

    def cells(option: SparseOption) -> list[str]:
        return [
            "unknown" if option.expected_error is None else short(option.expected_error),
            "-" if option.error_of_one is None else short(option.error_of_one),
            "-" if option.bound is None else bound_of(option),
            "-" if option.size is None else f"{option.size:,}",
        ]

    legend = [
        legend_of_sparse_errors(job),
        f"bound: of all answers, except with probability {job.failure_probability:g}; where there"
        " is none here each answer comes with its own",
        f"Answering 0 to every query would err by {short(ranking.error_of_nothing)}.",
    ]
    rows = [Row(sparse_name(each), each, cells(each)) for each in ranking.options]
    columns = ("error", "of one key", "bound", "numbers")
    return options_table(_sparse_title(job), columns, rows, legend, show_refused=show_refused)


def legend_of_sparse_errors(job: SparsePlanningJob) -> str:
    """Returns what the errors in a table are, and in which unit."""
    return f"error: expected of a query of {job.max_sparsity:,} keys, root mean squared, in records"


class Noted(Protocol):
    """What a row is of."""

    @property
    def note(self) -> str:
        """What must be known beside the numbers."""

    @property
    def refusal(self) -> str | None:
        """Why it cannot do the job; None where it can."""


class Row(NamedTuple):
    """One row of a table: an option, its name and the texts of its cells."""

    name: str
    option: Noted
    cells: Sequence[str]


def options_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Row],
    legend: Sequence[str],
    *,
    show_refused: bool,
) -> RenderableType:
    """Returns a table of options, best first, that fits 80 columns; refused ones are counted.

    Args:
        title: what is planned.
        columns: of the cells.
        rows: possible and refused ones.
        legend: lines that say what the columns are.
        show_refused: whether to say of each refused one why.
    """
    from rich.console import Group
    from rich.text import Text

    notes: dict[str, int] = {}
    shown, refusals = [], []
    for name, option, cells in rows:
        if option.refusal is not None:
            refusals.append(f"{name}: not possible: {option.refusal}")
            continue
        mark = notes.setdefault(option.note, len(notes) + 1) if option.note else None
        shown.append((name + (f" [{mark}]" if mark else ""), *cells))
    below = [f"[{mark}] {note}" for note, mark in notes.items()]
    if refusals and not show_refused:
        more = counted(len(refusals), "other mechanism")
        refusals = [f"{more} cannot do this job; --all explains why"]
    table = plain_table(("mechanism", *columns), shown, range(1, len(columns) + 1))
    return Group(Text(title), Text(), table, Text(), *map(Text, [*legend, *below, *refusals]))


def _sparse_title(job: SparsePlanningJob) -> str:
    profile = job.profile
    origin = "public" if job.num_records_is_public else "private, a guess"
    return (
        f"Queries of up to {job.max_sparsity:,} keys; {profile.num_records:,} records ({origin}),"
        f" {profile.num_keys:,} keys, at most {profile.largest_count:,} records of one;"
        f" {guarantee_text(job.guarantee)}"
    )


def sparse_name(option: SparseOption) -> str:
    """Returns what a row of the table calls an option."""
    forms = {"num_rows": "rows: {}", "noise": "{}", "histogram_share": "share: {}"}
    known = dict(option.parameters)
    return ", ".join(
        [option.mechanism, *(forms[name].format(known[name]) for name in forms if name in known)]
    )

"""The part of `beam-dp plan` for an error that is to be kept: the least epsilon that keeps it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from beam_dp.cli.plan_command import command_line, job_of, sparse_job_of
from beam_dp.cli.plan_flags import TARGET_BOUND, TARGET_ERROR
from beam_dp.cli.plan_table import (
    COST,
    Row,
    bound_of,
    cost,
    legend_of_errors,
    legend_of_sparse_errors,
    name_of,
    options_table,
    sparse_name,
)
from beam_dp.flags.numbers import number
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.least_epsilon import Least
from beam_dp.planning.sketches.job import SparseOption
from beam_dp.planning.target import Target, TargetRanking, rank_for_target
from beam_dp.privacy.advice import large_epsilon
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.reports.terminal import short

if TYPE_CHECKING:
    from rich.console import RenderableType


def read_target(texts: Mapping[str, str | None]) -> Target | None:
    """Returns the error that is to be kept; None where an epsilon is given instead.

    Args:
        texts: the text of each flag of `beam-dp plan`; None where it was not given.

    Raises:
        InputError: naming the flag, without its dashes.
    """
    for flag in (TARGET_ERROR, TARGET_BOUND):
        text = texts[flag.name]
        if text is not None:
            return Target(number(flag.name, text), flag is TARGET_BOUND)
    return None


def plan_target(texts: Mapping[str, str | None], target: Target, as_json: bool) -> None:
    """Prints the least epsilon of each mechanism that keeps an error, best first; reads no data.

    Args:
        texts: the text of each flag of `beam-dp plan`; None where it was not given.
        target: the error.
        as_json: whether to print JSON, of all of them.

    Raises:
        FlagError: a flag is missing.
        InputError: naming the flag, without its dashes; also where no mechanism keeps the error.
    """
    from rich.console import Console

    texts = with_epsilon(texts, 1.0)  # of the job that asks; each option has its own
    job = job_of(texts) if texts["max_sparsity"] is None else sparse_job_of(texts)
    ranking = rank_for_target(job, target)
    if as_json:
        found = ranking.to_json()
        for entry, least in zip(found["options"], ranking.found, strict=True):
            entry["command"] = _command(ranking, least, texts)
        print(json.dumps(found, ensure_ascii=False))
        return
    Console().print(_table(ranking, show_refused=texts["all"] is not None))
    command = _command(ranking, ranking.best, texts)
    if command is not None:
        print(f"\n{command}")


def with_epsilon(texts: Mapping[str, str | None], epsilon: float) -> dict[str, str | None]:
    """Returns the texts of flags with an epsilon of at most six digits, as it is typed."""
    return {**texts, "epsilon": f"{epsilon:g}"}


def target_title(target: Target, guarantee: Guarantee) -> str:
    """Returns what a table of least epsilons is of."""
    what = "bound" if target.of_bound else "expected error"
    relation = guarantee.neighboring.value.replace("_", " ")
    return (
        f"least epsilon with which the {what} is at most {target.error:,.6g} records;"
        f" delta {guarantee.delta:g}, {relation}"
    )


def large_epsilon_lines(epsilon: float) -> list[str]:
    """Returns a line of warning where an epsilon protects little."""
    text = large_epsilon(epsilon)
    return [] if text is None else [f"warning: {text}; accept a larger error, or ask for less"]


def _command(
    ranking: TargetRanking, least: Least[Option], texts: Mapping[str, str | None]
) -> str | None:
    assert least.epsilon is not None
    return command_line(ranking.job, least.option, with_epsilon(texts, least.epsilon))


def _table(ranking: TargetRanking, *, show_refused: bool) -> RenderableType:
    job, target = ranking.job, ranking.target
    if isinstance(job, PlanningJob):
        columns, legend = ["epsilon", "error", "bound", *COST], [legend_of_errors(job)]
    else:
        columns, legend = ["epsilon", "error", "numbers"], [legend_of_sparse_errors(job)]
        if target.of_bound:
            beta = f"{job.failure_probability:g}"
            legend = [f"error: bound of all answers, except with probability {beta}, in records"]

    def cells(option: Option) -> list[str]:
        error = "unknown" if option.expected_error is None else short(option.expected_error)
        if isinstance(option, SparseOption):
            held = "-" if option.size is None else f"{option.size:,}"
            return [bound_of(option) if target.of_bound else error, held]
        return [error, bound_of(option), *cost(option)]

    rows = [
        Row(_name(least.option), least.option, [f"{least.epsilon:g}", *cells(least.option)])
        for least in ranking.found
    ]
    rows += [Row(_name(option), option, ()) for option in ranking.refused]
    legend += [
        f"not reached: {_name(least.option)} gives at best {short(least.error)} records"
        for least in ranking.beyond
    ]
    best = ranking.best.epsilon
    legend += [] if best is None else large_epsilon_lines(best)
    title = target_title(target, job.guarantee)
    return options_table(title, columns, rows, legend, show_refused=show_refused)


def _name(option: Option) -> str:
    return sparse_name(option) if isinstance(option, SparseOption) else name_of(option)

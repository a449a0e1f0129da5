"""Plans releases of the windows of a stream: ranks all ways to measure them, best first."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from beam_dp.domain.files import read_domain
from beam_dp.domain.horizon import Horizon, WindowUnit, stated_promise, whole_promise
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.flags.flag import number
from beam_dp.flags.shared import FILE_TIME
from beam_dp.flags.windows import HORIZON, UNIT, read_horizon, read_measured, read_window_unit
from beam_dp.mechanisms.marginals.plan import check_request
from beam_dp.mechanisms.windows import choices
from beam_dp.planning import tables
from beam_dp.planning.ranking import Least, Target, least_epsilon, out_of_reach
from beam_dp.planning.tables import Flags, Plan
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.queries.workload import Workload, parse_workload
from beam_dp.views.terminal import noise_text, plain_table, short


@dataclasses.dataclass(frozen=True)
class WindowsOption:
    """One way to measure the windows of a horizon, with the resulting errors.

    ``errors``: per question, the root mean squared error of a cell, in records, averaged over the
    workload and the horizon, if the question is asked as early as possible.
    """

    strategy: choices.Strategy
    distribution: Distribution
    block: int | None  # the number of windows in a block
    share: float
    errors: Mapping[str, float]
    final_errors: Mapping[str, float]
    mean_error: float


def rank_window_strategies(
    workload: Workload,
    horizon: Horizon,
    unit: WindowUnit,
    epsilon: float,
    delta: float,
    *,
    questions: Sequence[str] | None = None,
    distribution: choices.DistributionChoice = "auto",
    block: int = choices.DEFAULT_BLOCK,
    allow_large_delta: bool = False,
) -> list[WindowsOption]:
    """Returns all ways to measure windows, the smallest mean error first. Reads no data.

    Arguments and errors: see ``plan_window_tables``. ``auto`` compares both distributions, and
    the divisors of the horizon are compared in addition to ``block``.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> workload = Workload(read_domain('{"age": 10}'), (("age",),))
        >>> week, people = Horizon(0, "1h", 168, 0), WindowUnit("person_id", 1, 7, 168)
        >>> best = rank_window_strategies(workload, week, people, 1.0, 1e-9)[0]
        >>> best.strategy, {question: round(error, 1) for question, error in best.errors.items()}
        ('independent', {'one': 9.9, 'trailing:24': 48.5, 'running': 90.9})
    """
    promise = whole_promise(horizon, unit, epsilon, delta, allow_large_delta=allow_large_delta)
    check_request(workload.domain, workload, promise, "noisy")
    if questions is None:
        questions = choices.default_questions(horizon.num_windows)
    ranked = choices.ranked_choices(
        workload,
        horizon,
        unit,
        promise,
        distribution=distribution,
        block=block,
        questions=questions,
    )
    asked = {text: choices.Question.parse(text, horizon.num_windows) for text in questions}
    return [
        WindowsOption(
            choice.strategy,
            choice.distribution,
            choice.block,
            float(choice.share),
            {text: choice.error(question) for text, question in asked.items()},
            {text: choice.error(question, "end") for text, question in asked.items()},
            choice.mean_error([*asked.values()]),
        )
        for choice in ranked
    ]


def rank_windows_for_target(
    rank: Callable[[float], list[WindowsOption]], target: Target
) -> list[Least[WindowsOption]]:
    """Returns the least epsilon that meets an error target, for each strategy for windows.

    The error is the largest error of the questions, if every question is asked as early as
    possible. Noise and blocks are the best for all questions together, as in a release with the
    strategy. Strategies are sorted by epsilon, smallest first.

    ``rank``: returns the options of ``rank_window_strategies`` at an epsilon.
    """

    @functools.cache
    def best(epsilon: float) -> dict[str, WindowsOption]:
        try:
            options = rank(epsilon)
        except InputError:
            if epsilon == 1:
                raise
            return {}  # the noise for this epsilon cannot be drawn
        return {option.strategy: option for option in reversed(options)}

    ranked: list[Least[Any]] = [
        least_epsilon(
            lambda epsilon, strategy=strategy: best(epsilon).get(strategy),  # type: ignore[misc]
            lambda option: math.inf if option is None else max(option.errors.values()),
            target.error,
        )
        for strategy in best(1.0)
    ]
    ranked.sort(key=lambda least: least.rank)
    reached = [least for least in ranked if least.epsilon is not None]
    if not reached:
        raise out_of_reach(target, ranked[0].error)
    return reached


def plan_of_windows(flags: Flags) -> Plan:
    """Returns the ways to measure windows of a stream; a target applies to all questions."""
    target = tables.read_target(flags)
    if target is not None:
        flags = tables.with_epsilon(flags, 1.0)
    workload = parse_workload(flags["workload"], read_domain(flags["domain"]))
    horizon, unit = read_horizon(flags), read_window_unit(flags)
    delta = number("delta", flags["delta"])
    measured, is_large = read_measured(flags), "allow_large_delta" in flags

    def rank(epsilon: float) -> list[WindowsOption]:
        return rank_window_strategies(
            workload, horizon, unit, epsilon, delta, allow_large_delta=is_large, **measured
        )

    epsilons: list[float] = []
    if target is None:
        epsilon = number("epsilon", flags["epsilon"])
        options = rank(epsilon)
        entries = [dataclasses.asdict(option) for option in options]
        # Per kind of noise, the best size of blocks.
        best = {(option.strategy, option.distribution): option for option in reversed(options)}
        shown = [option for option in options if option in best.values()]
    else:
        least = rank_windows_for_target(rank, target)
        options = shown = [row.option for row in least]
        epsilons = [row.epsilon for row in least if row.epsilon is not None]
        entries = [{"epsilon": row.epsilon, **dataclasses.asdict(row.option)} for row in least]
        epsilon, flags = epsilons[0], tables.with_epsilon(flags, epsilons[0])
    promise = whole_promise(horizon, unit, epsilon, delta, allow_large_delta=is_large)
    promised = stated_promise(horizon, unit, promise)
    below = [
        "error: expected error (root mean square, in records) of a cell in a sum of windows, when"
        " the sum can first be asked; 'in the end': after the last window"
    ]
    if len(options) > len(shown):
        more = len(options) - len(shown)
        below.append(f"{more:,} more options have other blocks; --json shows all")
    below.append(promised["promise"])
    best_text = f"Best: {options[0].strategy}, {noise_text(options[0].distribution)} noise."
    above = [Text(best_text, style="bold"), Text()]
    if target is not None:
        above.insert(1, Text(tables.target_title(target, promise)))
        below += tables.large_epsilon_lines(epsilon)
    return Plan(
        Group(*above, _windows_table(shown, epsilons), Text(), *map(Text, below)),
        {**promised, "options": entries},
        _command(options[0], flags, workload.domain),
    )


def _windows_table(options: Sequence[WindowsOption], epsilons: Sequence[float]) -> RenderableType:
    """Returns a table with one column per option, best first, and one row per question."""
    blocks = [option.block for option in options]
    rows = [
        ("noise", *(option.distribution.removeprefix("discrete_") for option in options)),
        *([("epsilon", *(f"{epsilon:g}" for epsilon in epsilons))] if epsilons else []),
        ("windows of a block", *("-" if block is None else f"{block:,}" for block in blocks)),
        (
            "budget of blocks",
            *("-" if option.block is None else f"{option.share:.0%}" for option in options),
        ),
    ]
    for question in options[0].errors:
        early = [short(option.errors[question]) for option in options]
        final = [short(option.final_errors[question]) for option in options]
        rows.append((question, *early))
        if final != early:
            rows.append((f"{question}, in the end", *final))
    columns = ("error", *(option.strategy for option in options))
    return plain_table(columns, rows, range(1, len(columns)))


def _command(option: WindowsOption, flags: Flags, domain: Domain) -> str:
    """Returns the command that releases windows with an option."""
    placed = {"input": "INPUT", "event_time": "EVENT_TIME", "arrival": FILE_TIME}
    command = {name: flags.get(name, place) for name, place in placed.items()}
    command |= tables.paying_flags(domain)
    horizon, limits = ([flag.name for flag in group] for group in (HORIZON, UNIT))
    names = ["domain", "workload", *horizon, "privacy_unit", "max_records_per_unit", *limits]
    command |= {name: flags[name] for name in (*names, "epsilon", "delta") if name in flags}
    command |= {"neighboring": Neighboring.ADD_OR_REMOVE_ONE.value, "strategy": option.strategy}
    if "questions" in flags:
        command["questions"] = flags["questions"]
    if option.block is not None:
        command["block"] = str(option.block)
    command["output"] = flags.get("output", "OUTPUT")
    return tables.typed("release_windows", command, number("delta", flags["delta"]))

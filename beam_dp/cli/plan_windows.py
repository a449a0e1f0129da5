"""The part of `beam-dp plan` for the windows of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from rich.console import Console, Group, RenderableType
from rich.text import Text

from beam_dp.cli.plan_command import paying_flags, typed
from beam_dp.cli.plan_flags import HORIZON
from beam_dp.cli.plan_target import large_epsilon_lines, target_title, with_epsilon
from beam_dp.domain.files import read_domain
from beam_dp.domain.universe import Domain
from beam_dp.flags.numbers import number
from beam_dp.flags.windows import FILE_TIME, UNIT, read_horizon, read_measured, read_window_unit
from beam_dp.planning.target import Target, rank_windows_for_target
from beam_dp.planning.windows import WindowsOption, rank_window_strategies
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.queries.workload import parse_workload
from beam_dp.reports.terminal import plain_table, short
from beam_dp.windows.promise import stated_promise, whole_promise


def plan_windows(texts: Mapping[str, str | None], target: Target | None, as_json: bool) -> None:
    """Prints the ways to measure the windows of a stream, best first; reads no data.

    Args:
        texts: the text of each flag of `beam-dp plan`, as ``check_plan`` lets them pass; None
            where it was not given.
        target: the error of every question that is to be kept; None where an epsilon is given.
        as_json: whether to print JSON, of all of them.

    Raises:
        FlagError: a flag is missing.
        InputError: naming the flag, without its dashes; also where no way keeps the error.
    """
    asked = texts if target is None else with_epsilon(texts, 1.0)
    given = {name: text for name, text in asked.items() if text is not None}
    workload = parse_workload(given["workload"], read_domain(given["domain"]))
    horizon, unit = read_horizon(given), read_window_unit(given)
    delta = number("delta", given["delta"])
    measured, is_large = read_measured(given), "allow_large_delta" in given

    def rank(epsilon: float) -> list[WindowsOption]:
        return rank_window_strategies(
            workload, horizon, unit, epsilon, delta, allow_large_delta=is_large, **measured
        )

    if target is None:
        epsilon = number("epsilon", given["epsilon"])
        options = rank(epsilon)
        found = [option.to_json() for option in options]
        # Of many sizes of blocks the best one, for each noise.
        best = {(option.strategy, option.distribution): option for option in reversed(options)}
        shown = [option for option in options if option in best.values()]
        epsilons: list[float] = []
    else:
        least = rank_windows_for_target(rank, target)
        options = shown = [each.option for each in least]
        epsilons = [each.epsilon for each in least if each.epsilon is not None]
        found = [{"epsilon": each.epsilon, **each.option.to_json()} for each in least]
        epsilon, given = epsilons[0], {**given, "epsilon": f"{epsilons[0]:g}"}
    promise = whole_promise(horizon, unit, epsilon, delta, is_large)
    stated = stated_promise(horizon, unit, promise)
    if as_json:
        print(json.dumps({**stated, "options": found}, ensure_ascii=False))
        return
    lines = [stated["promise"], *large_epsilon_lines(epsilon)] if epsilons else [stated["promise"]]
    title = None if target is None else target_title(target, promise)
    Console().print(_table(title, shown, epsilons, len(options), lines))
    print(f"\n{_command(options[0], given, workload.domain)}")


def _command(option: WindowsOption, given: Mapping[str, str], domain: Domain) -> str:
    """Returns what to type to release windows in a way."""
    placed = {"input": "INPUT", "event_time": "EVENT_TIME", "arrival": FILE_TIME}
    flags = {name: given.get(name, place) for name, place in placed.items()} | paying_flags(domain)
    asked = ("domain", "workload", *(flag.name for flag in HORIZON), "privacy_unit")
    limits = ("max_records_per_unit", *(flag.name for flag in UNIT))
    flags |= {name: given[name] for name in (*asked, *limits) if name in given}
    flags |= {name: given[name] for name in ("epsilon", "delta")}
    flags |= {"neighboring": Neighboring.ADD_OR_REMOVE_ONE.value, "strategy": option.strategy}
    if "questions" in given:
        flags["questions"] = given["questions"]
    if option.block is not None:
        flags["block"] = str(option.block)
    flags["output"] = given.get("output", "OUTPUT")
    return typed("release_windows", flags, number("delta", given["delta"]))


def _table(
    title: str | None,
    options: Sequence[WindowsOption],
    epsilons: Sequence[float],
    number: int,
    lines: Sequence[str],
) -> RenderableType:
    """Returns a column for each way, best first: of questions there may be many."""
    blocks = [
        ("-", "-") if each.block is None else (f"{each.block:,}", f"{each.share:.0%}")
        for each in options
    ]
    rows = [
        ("noise", *(option.distribution.removeprefix("discrete_") for option in options)),
        *([("epsilon", *(f"{epsilon:g}" for epsilon in epsilons))] if epsilons else []),
        ("windows of a block", *(windows for windows, _ in blocks)),
        ("budget of blocks", *(share for _, share in blocks)),
    ]
    for question in options[0].errors:
        asked = [short(option.errors[question]) for option in options]
        final = [short(option.final_errors[question]) for option in options]
        rows.append((question, *asked))
        if final != asked:
            rows.append((f"{question}, in the end", *final))
    table = plain_table(
        ("error", *(option.strategy for option in options)), rows, range(1, len(options) + 1)
    )
    below = [
        "error: expected of a cell of a sum of windows, root mean squared, in records; as soon as"
        " it can be asked, and after the whole horizon where that differs"
    ]
    if number > len(options):
        below.append(f"and {number - len(options):,} more, with other blocks: --json shows all")
    above = [] if title is None else [Text(title), Text()]
    return Group(*above, table, Text(), *map(Text, [*below, *lines]))

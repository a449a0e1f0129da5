"""The part of `beam-dp plan` for the windows of a stream."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from beam_dp.cli.plan_command import typed
from beam_dp.cli.plan_flags import HORIZON
from beam_dp.cli.plan_table import short
from beam_dp.domain.files import read_domain
from beam_dp.flags.numbers import number
from beam_dp.flags.windows import FILE_TIME, UNIT, read_horizon, read_measured, read_window_unit
from beam_dp.planning.windows import WindowsOption, rank_window_strategies
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.queries.workload import parse_workload
from beam_dp.windows.promise import stated_promise, whole_promise

if TYPE_CHECKING:
    from rich.console import RenderableType


def plan_windows(texts: Mapping[str, str | None], as_json: bool) -> None:
    """Prints the ways to measure the windows of a stream, best first; reads no data.

    Args:
        texts: the text of each flag of `beam-dp plan`, as ``check_plan`` lets them pass; None
            where it was not given.
        as_json: whether to print JSON, of all of them.

    Raises:
        FlagError: a flag is missing.
        InputError: naming the flag, without its dashes.
    """
    from rich.console import Console

    given = {name: text for name, text in texts.items() if text is not None}
    workload = parse_workload(given["workload"], read_domain(given["domain"]))
    horizon, unit = read_horizon(given), read_window_unit(given)
    epsilon, delta = (number(name, given[name]) for name in ("epsilon", "delta"))
    is_large = "allow_large_delta" in given
    options = rank_window_strategies(
        workload,
        horizon,
        unit,
        epsilon,
        delta,
        allow_large_delta=is_large,
        **read_measured(given),
    )
    promise = whole_promise(horizon, unit, epsilon, delta, is_large)
    stated = stated_promise(horizon, unit, promise)
    if as_json:
        found = [option.to_json() for option in options]
        print(json.dumps({**stated, "options": found}, ensure_ascii=False))
        return
    # Of many sizes of blocks the best one, for each noise.
    best = {(option.strategy, option.distribution): option for option in reversed(options)}
    shown = [option for option in options if option in best.values()]
    Console().print(_table(shown, len(options), stated["promise"]))
    print(_command(options[0], given))


def _command(option: WindowsOption, given: Mapping[str, str]) -> str:
    """Returns what to type to release windows in a way."""
    placed = {"input": "INPUT", "event_time": "EVENT_TIME", "arrival": FILE_TIME}
    flags = {name: given.get(name, place) for name, place in placed.items()}
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


def _table(options: Sequence[WindowsOption], number: int, promise: str) -> RenderableType:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    title = "Errors of a cell of sums of windows, in records: as soon as asked / in the end"
    table = Table(title=title, title_justify="left")
    table.add_column("strategy", overflow="fold")
    for column in ("noise", "blocks", *options[0].errors):
        table.add_column(column, justify="right", overflow="fold")
    for option in options:
        blocks = "-" if option.block is None else f"{option.block:,}, {option.share:.0%}"
        errors = [
            f"{short(error)} / {short(option.final_errors[question])}"
            for question, error in option.errors.items()
        ]
        noise = option.distribution.removeprefix("discrete_")
        table.add_row(*map(Text, [option.strategy, noise, blocks, *errors]))
    below = ["blocks: windows of one, and what all of them have of the budget"]
    if number > len(options):
        below.append(f"and {number - len(options):,} more, with other blocks: --json shows all")
    return Group(table, *map(Text, [*below, promise]))

"""Verifies tables of windows: any P windows together, the blocks, and the whole horizon."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.horizon import (
    Blocks,
    Horizon,
    WindowUnit,
    protects_horizon,
    whole_promise,
    window_promise,
)
from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.rounding import rounded_up, up
from beam_dp.privacy.steps import Step, above, loss_json, number
from beam_dp.releases import verdict
from beam_dp.releases.release import Release
from beam_dp.releases.synthetic_database.measured_tables import table_steps
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.verify import verify as verify_database
from beam_dp.releases.verdict import misread
from beam_dp.releases.windows.release import HorizonRelease, WindowTables

WINDOWS = "Kellaris and others (2014)"
_PLAN = ("strategy", "window_loss")
_LEVELS = ("block", "share")
_UNIT = ("max_records_per_unit", "max_windows_per_unit", "protected_windows")
_PROMISE = ("horizon", "promise", "worst_case", *_UNIT)
_WORST = ("periods", "epsilon", "delta")
_HORIZON = ("start", "window", "num_windows", "grace")
# Texts may change with a version, and the entry of a ledger does not describe the noise.
_FREE = ("promise", "ledger_release")
_OWN = ("horizon_id", "number")


def _promised(promise: Guarantee, fields: Mapping[str, Any]) -> tuple[Horizon, WindowUnit]:
    """Returns the horizon that a card states, and the unit that its promise protects."""
    verdict.check_fields("horizon", fields.get("horizon"), _HORIZON)
    unit = WindowUnit(
        privacy_unit=promise.privacy_unit.split(" in any ")[0],
        max_records_per_unit=fields["max_records_per_unit"],
        max_windows_per_unit=fields["max_windows_per_unit"],
        protected_windows=fields["protected_windows"],
    )
    return Horizon(**fields["horizon"]), unit


def verify(release: WindowTables | HorizonRelease) -> verdict.Verification:
    """Verifies one window or block, or all released windows and blocks of a horizon."""
    return _horizon(release) if isinstance(release, HorizonRelease) else _tables(release)


def _tables(release: WindowTables) -> verdict.Verification:
    """Verifies one window or block together with all other windows or blocks of the horizon.

    If windows and blocks are measured, the other level is assumed to spend its stated share.
    """
    figures, plan, notes = verdict.Figures(), release.plan, []
    share = share_of_blocks(plan)
    levels = () if share is None else _LEVELS
    verdict.check_fields("parameters", plan, (*_PLAN, *levels, *_PROMISE), ("ledger_release",))
    horizon, unit = _promised(release.guarantee, plan)
    promise_figures(release.guarantee, plan, horizon, unit, figures)
    _time_figures(release, horizon, figures)
    limited = release.guarantee.with_limits(max_records_per_unit=unit.max_records_per_unit)
    of_one = table_steps(release.domain, release.measured, limited)
    steps = level_steps(of_one, release.level, unit.max_windows_per_unit, plan.get("block"))
    if release.level == "window":
        figures.loss("window_loss", plan["window_loss"], _together(of_one))
        if share is not None:
            _share_figures(share, _together(steps), None, release.guarantee, figures)
    else:
        assert share is not None  # else there is no block
        of_others = Fraction(1 - share) / Fraction(share) / unit.max_windows_per_unit
        figures.loss("window_loss", plan["window_loss"], _scaled(_together(steps), of_others))
    if share is not None:
        part = 1 - Fraction(math.nextafter(share, 0.0))
        if release.level == "block":
            part = Fraction(math.nextafter(share, 1.0))
        steps = [_with_other_level(step, part) for step in steps]
        other = "blocks" if release.level == "window" else "windows"
        notes.append(
            f"The {other} were not read and are assumed to spend their share of the budget."
            f" To verify the {other}, verify the directory of the horizon."
        )
    return verdict.judged(
        f"tables of a {release.level}", "windows", release.guarantee, steps, figures, notes=notes
    )


def of_one_window(verification: verdict.Verification, release: Release) -> verdict.Verification:
    """Adds the statements about the window of a release to the release's verification."""
    figures, parameters = verdict.Figures(), release.plan["windows"]
    note = "This release is one window of a horizon: verify the directory of the horizon, too."
    verdict.check_fields("windows", parameters, (*_PROMISE, "window", *_OWN), _FREE)
    horizon, unit = _promised(release.guarantee, parameters)
    verdict.check_fields("worst_case", parameters["worst_case"], _WORST)
    checked_integer("number", parameters["number"], 0, horizon.num_windows - 1)
    promise = {"mechanism": release.mechanism, "guarantee": release.guarantee.to_json()}
    figures.equal("windows.window", parameters["window"], promise)
    records = release.guarantee.max_records_per_unit
    figures.equal("windows.max_records_per_unit", unit.max_records_per_unit, records)
    return dataclasses.replace(
        verification,
        num_figures=verification.num_figures + figures.number,
        faults=(*verification.faults, *figures.faults),
        notes=(*verification.notes, note),
    )


def _horizon(release: HorizonRelease) -> verdict.Verification:
    """Verifies all released windows and blocks of a horizon together."""
    figures, card, notes = verdict.Figures(), release.card, []
    horizon, unit = _promised(release.guarantee, card)
    promise_figures(release.guarantee, card, horizon, unit, figures)
    plan = card["plan"]
    share = None if "window" in plan else share_of_blocks(plan)
    levels = () if share is None else _LEVELS
    needed = ("window",) if "window" in plan else (*_PLAN, *levels)
    verdict.check_fields("plan", plan, needed, ("ledger_release",))
    if "window" in plan:
        _database_figures(plan["window"], unit, release, figures)
    for place, member in (*release.windows.items(), *release.blocks.items()):
        figures.faults += [f"{place}: {fault}" for fault in _of_horizon(member, card)]
    steps: list[Step] = []
    if not release.windows:
        notes.append("No window is released yet: the loss follows from the plan alone.")
        steps = [_planned_step(plan, unit.max_windows_per_unit)]
    elif "window" in plan:
        steps = [_database_step(release, unit.max_windows_per_unit, figures)]
    else:
        limited = release.guarantee.with_limits(max_records_per_unit=unit.max_records_per_unit)
        by_level = dict[str, list[Step]]()
        for level, members in (("window", release.windows), ("block", release.blocks)):
            measured = dict.fromkeys(
                member.measured for member in members.values() if isinstance(member, WindowTables)
            )
            for tables in measured:
                of_one = table_steps(release.workload.domain, tables, limited)
                if level == "window":
                    figures.loss("window_loss", plan["window_loss"], _together(of_one))
                limit = unit.max_windows_per_unit
                by_level[level] = level_steps(of_one, level, limit, plan.get("block"))
                steps += by_level[level]
            if len(measured) > 1:
                notes.append(
                    f"Not every {level} has the same noise: the losses of all noises add up."
                )
        if share is not None:
            blocks = _together(by_level["block"]) if release.blocks else None
            _share_figures(share, _together(by_level["window"]), blocks, release.guarantee, figures)
        if share is not None and not release.blocks:
            notes.append("No block is released yet: blocks are assumed to spend their share.")
            part = 1 - Fraction(math.nextafter(share, 0.0))
            steps = [_with_other_level(step, part) for step in steps]
    return verdict.judged("horizon", "windows", release.guarantee, steps, figures, notes=notes)


def share_of_blocks(plan: Mapping[str, Any]) -> float | None:
    """Returns the share of the budget that blocks spend; None without blocks."""
    check_choice("strategy", plan.get("strategy"), ("independent", "levels"))
    if plan["strategy"] == "independent":
        if plan.get("block") is not None:
            condition = "must be absent if only windows are measured"
            raise InputError("block", plan["block"], condition)
        return None
    checked_integer("block", plan.get("block"), 2)
    return checked_number("share", plan.get("share"), above=0, below=1)


def promise_figures(
    promise: Guarantee,
    parameters: Mapping[str, Any],
    horizon: Horizon,
    unit: WindowUnit,
    figures: verdict.Figures,
) -> None:
    """Compares the promise with the limits for a unit, and the worst case with the horizon.

    The horizon consists of at most ceil(W / P) runs of P windows, whose epsilons and deltas add up.
    """
    whole = whole_promise(horizon, unit, promise.epsilon, promise.delta, allow_large_delta=True)
    if parameters.get("plan", parameters).get("block") is not None:
        figures.equal("the promise is of the horizon", protects_horizon(horizon, unit), True)
    for name, value in promise.to_json().items():
        figures.equal(f"guarantee.{name}", value, whole.to_json()[name])
    figures.at_least("num_windows", horizon.num_windows, unit.protected_windows)
    periods = -(-horizon.num_windows // unit.protected_windows)
    if promise.privacy_unit == RECORD:
        periods = 1  # a record is in one window
    worst = parameters.get("worst_case")
    verdict.check_fields("worst_case", worst, _WORST)
    assert isinstance(worst, Mapping)
    figures.equal("worst_case.periods", worst.get("periods"), periods)
    epsilon = up(periods * Fraction(promise.epsilon))
    figures.same("worst_case.epsilon", worst.get("epsilon"), epsilon)
    delta = min(up(periods * Fraction(promise.delta)), 1.0)
    figures.same("worst_case.delta", worst.get("delta"), delta)


def level_steps(of_one: Iterable[Step], level: str, limit: int, block: int | None) -> list[Step]:
    """Returns the steps of all windows that are protected together, or of all blocks.

    A unit is in at most c = ``limit`` windows. Windows are disjoint, so c times the loss of one
    window adds up. A unit that is in j windows of a block moves the block's tables j times as
    much. With Laplace noise the total cost is c times as much; with Gaussian noise it is the sum
    of j^2 times as much, which is largest if the c windows are in as few blocks as possible.
    """
    if level == "window":
        where = f"in {limit:,} windows"
        return [_times(step, where, limit, step.loss.repeated(limit)) for step in of_one]
    size = checked_integer("block", block, 2)
    whole, rest = divmod(limit, size)
    squares = whole * size**2 + rest**2
    where, steps = f"in blocks of {size:,} windows", []
    for step in of_one:
        if step.loss.epsilon is not None:
            steps.append(_times(step, where, limit, Loss.pure(limit * step.loss.epsilon)))
        else:
            steps.append(_times(step, where, squares, step.loss.repeated(squares)))
    return steps


def _time_figures(release: WindowTables, horizon: Horizon, figures: verdict.Figures) -> None:
    """Compares the times of a window or block with its number in the horizon."""
    windows = range(release.number, release.number + 1)
    if release.level == "block":
        windows = Blocks(horizon.num_windows, release.plan["block"]).windows(release.number)
    figures.equal("start and end", (release.start, release.end), horizon.times(windows))
    is_within = windows.stop <= horizon.num_windows
    figures.equal("number is within the horizon", is_within, True)


def _share_figures(
    share: float, windows: Loss, blocks: Loss | None, promise: Guarantee, figures: verdict.Figures
) -> None:
    """Compares the blocks' share of the budget with the losses of windows and blocks."""
    # Before a block is released, the whole budget is known only as epsilon.
    spent, whole = windows.epsilon, Fraction(promise.epsilon)
    if blocks is not None:
        losses = [
            loss.mu_squared if loss.epsilon is None else loss.epsilon for loss in (windows, blocks)
        ]
        if None in losses:
            return
        spent, of_blocks = losses
        assert spent is not None and of_blocks is not None
        whole = spent + of_blocks
    if spent is not None:
        figures.same("share", 1 - share, float(spent / whole))


def _database_figures(
    window: object, unit: WindowUnit, release: HorizonRelease, figures: verdict.Figures
) -> None:
    """Compares a horizon's promise for one window with its promise for all protected windows."""
    verdict.check_fields("plan.window", window, ("mechanism", "guarantee"))
    assert isinstance(window, Mapping)
    guarantee = Guarantee.from_json(window["guarantee"])
    one = window_promise(release.horizon, unit, guarantee.epsilon, guarantee.delta)
    for name, value in guarantee.to_json().items():
        figures.equal(f"plan.window.guarantee.{name}", value, one.to_json()[name])
    for place, database in release.windows.items():
        assert isinstance(database, SyntheticDatabase)
        figures.equal(f"window {place}: mechanism", database.mechanism, window["mechanism"])


def _of_horizon(release: WindowTables | SyntheticDatabase, card: Mapping[str, Any]) -> list[str]:
    """Returns the differences between the card of a window and the card of the horizon."""
    said = release.plan
    if isinstance(release, SyntheticDatabase):
        said = said["windows"]
        verdict.check_fields("windows", said, (*_PROMISE, "window", "horizon_id", "number"), _FREE)
    terms = {name: said[name] for name in said if name not in _FREE and name not in _OWN}
    promised = {**card["plan"], **{name: card[name] for name in _PROMISE}}
    whole = {name: value for name, value in promised.items() if name not in _FREE}
    return [*misread(release), *verdict.differences(terms, whole)]


def _scaled(loss: Loss, factor: Fraction) -> Loss:
    """Returns the loss of a mechanism after its budget is multiplied by a factor."""
    if loss.epsilon is not None:
        return Loss.pure(loss.epsilon * factor)
    rho, mu_squared = loss.rho, loss.mu_squared
    return Loss(
        rho=None if rho is None else rounded_up(rho * factor),
        mu_squared=None if mu_squared is None else rounded_up(mu_squared * factor),
    )


def _together(steps: Iterable[Step]) -> Loss:
    return composed(step.loss for step in steps)


def _times(step: Step, where: str, factor: int, loss: Loss) -> Step:
    return dataclasses.replace(
        step,
        what=f"{step.what}, {where}",
        formula=f"{factor:,} times: {step.formula}",
        theorem=f"{step.theorem}; {WINDOWS}",
        numbers=f"{factor:,} x ({step.numbers})",
        loss=loss,
    )


def _with_other_level(step: Step, part: Fraction) -> Step:
    """Returns the step with the loss of both levels, if this one spends the share ``part``."""
    loss = _scaled(step.loss, 1 / part)
    if loss.epsilon is not None:
        loss = Loss(epsilon=loss.epsilon)
    share = number(part)
    return dataclasses.replace(
        step,
        formula=f"{step.formula}; / {share}, its share",
        numbers=f"{step.numbers} / {share}",
        loss=loss,
    )


def _planned_step(plan: Mapping[str, Any], limit: int) -> Step:
    """Returns the step that the plan of a horizon states, for use before any window is released."""
    loss, declared = Loss.nothing(), plan.get("window_loss")
    if isinstance(declared, Mapping):
        loss = Loss.from_json(declared)
    bounds = loss_json(loss).items()
    losses = ", ".join(f"{name} {above(bound)}" for name, bound in bounds).replace("_squared", "^2")
    return Step(
        f"measure {limit:,} windows, as planned",
        f"{limit:,} times: the loss of one window, as stated",
        WINDOWS,
        f"{limit:,} x ({losses})",
        loss.repeated(limit),
    )


def _database_step(release: HorizonRelease, number: int, figures: verdict.Figures) -> Step:
    """Returns the step of the synthetic databases of c windows; verifies each database alone."""
    words, losses = "", list[Loss]()
    for place, database in release.windows.items():
        assert isinstance(database, SyntheticDatabase)
        verification = verify_database(database)
        figures.number += verification.num_figures
        figures.faults += [f"window {place}: {fault}" for fault in verification.faults]
        loss = composed(step.loss for step in verification.steps)
        words = verification.together.numbers
        if loss not in losses:
            losses.append(loss)
    formula = f"{number:,} times: what one window reveals"
    loss = composed(part.repeated(number) for part in _largest(losses))
    what = f"synthetic databases of {number:,} windows"
    return Step(what, formula, WINDOWS, f"one window: {words}", loss)


def _largest(losses: list[Loss]) -> list[Loss]:
    """Returns the loss that has the largest bound of every kind, if one exists; else all losses."""
    for one in losses:
        if all(_is_above(one, other) for other in losses):
            return [one]
    return losses


def _is_above(one: Loss, other: Loss) -> bool:
    pairs = zip(dataclasses.astuple(one), dataclasses.astuple(other), strict=True)
    return all((a is None) == (b is None) and (a is None or b is None or a >= b) for a, b in pairs)

"""MWEM in rounds: selections and measurements whose losses add up, as published and tight."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.answers.verify_online import comparisons_step
from beam_dp.releases.synthetic_database.measured_tables import MAX_GRID, MeasuredTable
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.verification.left_out import of_release
from beam_dp.verification.steps import Step, flip_step, noise_step, repeated, selection_step
from beam_dp.verification.verdict import Figures

# Of sums of units that were spent, by rounding.
_ROUNDING = 1e-9
_STOP_SCALES = ("threshold_scale", "question_scale")


def rounds_steps(
    guarantee: Guarantee,
    parameters: Mapping[str, Any],
    tables: Sequence[MeasuredTable] | None,
    figures: Figures,
) -> list[Step]:
    """Returns the steps of rounds that select a marginal and measure it whole.

    A round of several units costs what so many rounds of one unit do, in epsilon or in squares of
    mu (in rhos on cards of earlier versions), whichever rounds an annealed schedule makes of them.
    So what is proved follows from the scales of one unit and from the number of units. What was
    measured must have cost no more.

    Args:
        guarantee: of the mechanism.
        parameters: that it states.
        tables: that were measured; None before they are.
        figures: that tables are compared by.
    """
    distribution = parameters.get("distribution")
    num_units = checked_integer("num_units", parameters.get("num_units"), 1)
    moved, k = guarantee.neighboring.num_moved, guarantee.max_records_per_unit
    # A replacement moves a table by k in two cells, a count and an L1 distance by 2 k.
    # Cards of earlier versions do not say which one: they had no other.
    named = parameters.get("selection", "exponential_mechanism")
    check_choice("selection", named, ("permute_and_flip", "exponential_mechanism"))
    select = flip_step if named == "permute_and_flip" else selection_step
    selections = select(
        "select a marginal", moved * k, parameters.get("selection_scale", 0.0), num_units
    )
    scale, grid = parameters.get("measurement_scale", 0.0), _grid(parameters)
    l1, l2_squared = moved * k * grid, moved * (k * grid) ** 2
    one = noise_step("measure the selected one", distribution, l1, l2_squared, scale)
    steps = [selections, repeated(one, num_units)]
    total_scale = checked_number("total_scale", parameters.get("total_scale"), least=0)
    totals = [total_scale] if total_scale else []
    if tables is not None:
        # Of two scales that do not agree the smaller one is charged, and each total that is listed.
        totals = [min([each.scale, *totals]) for each in tables if not each.names]
        steps += [
            noise_step(
                "measure what the rounds do not pay for", distribution, l1, l2_squared, finer
            )
            for finer in _compare(parameters, tables, figures)
        ]
    return [noise_step("count the records", distribution, l1, l1**2, s) for s in totals] + steps


def _compare(
    parameters: Mapping[str, Any], tables: Sequence[MeasuredTable], figures: Figures
) -> list[float]:
    """Compares what was measured with what the rounds pay for; returns the scales if it is more."""
    distribution, grid = parameters["distribution"], _grid(parameters)
    rounds = [each for each in tables if each.names]
    is_counted = bool(parameters["total_scale"])
    figures.equal("noise of the total, entries", len(tables) - len(rounds), int(is_counted))
    for each in tables:
        kind = (each.kind, each.distribution, each.grid)
        figures.equal("noise", kind, ("table", distribution, grid))
        if not each.names:
            figures.same("scale of the total", each.scale, parameters["total_scale"])
    unit: float = parameters["measurement_scale"]

    def units(scale: float) -> float:
        if distribution == "discrete_laplace":
            return unit / scale
        # Cards of earlier versions add rhos up, on no grid.
        less = 4 if "grid" in parameters else 0
        return (unit**2 - less) / (scale**2 - less) if scale**2 > less else math.inf

    spent = sum(units(each.scale) for each in rounds)
    figures.number += 1
    if spent > parameters["num_units"] * (1 + _ROUNDING):
        words = f"noise: the tables cost {spent:.6g} units; must be at most"
        figures.faults.append(f"{words} {parameters['num_units']}")
    if parameters.get("num_rounds") != "annealed":
        figures.equal("num_rounds", parameters.get("num_rounds"), len(rounds))
        for each in rounds:
            figures.same("scale of a round", each.scale, unit)
    is_paid = spent <= parameters["num_units"] * (1 + _ROUNDING)
    return [] if is_paid else [each.scale for each in rounds]


def _grid(parameters: Mapping[str, Any]) -> int:
    """Returns the grid units of a record that measurements lie on: 1 on earlier cards."""
    return checked_integer("grid", parameters.get("grid", 1), 1, MAX_GRID)


def textbook_steps(guarantee: Guarantee, parameters: Mapping[str, Any]) -> list[Step]:
    """Returns the steps of Hardt, Ligett and McSherry's algorithm: one cell a round.

    A cell is moved by k records at most, under either relation, and so is its error, which may be
    compared with a threshold before it is measured: one comparison that is above it ends all.
    """
    distribution = parameters.get("distribution")
    rounds = checked_integer("num_rounds", parameters.get("num_rounds"), 1)
    k = guarantee.max_records_per_unit
    one = noise_step("measure it", distribution, k, k**2, parameters.get("measurement_scale", 0.0))
    selected = selection_step("select a cell", k, parameters.get("selection_scale", 0.0), rounds)
    steps = [selected, repeated(one, rounds)]
    if "stop_below" in parameters:
        noise = {each: parameters.get(f"stop_{each}") for each in _STOP_SCALES}
        steps.insert(1, comparisons_step({**noise, "redraws_threshold": False}, k, 1))
    return steps


def textbook_bound(release: SyntheticDatabase, figures: Figures) -> None:
    """Compares the published bound, 2 N sqrt(ln|X| / T) + 10 k T ln|Q| / epsilon.

    It is of all T rounds. Where they may end early there is another one.
    """
    if "stop_below" in release.plan:
        _stopped_bound(release, figures)
    parameters, guarantee = release.plan, of_release(release.guarantee, release.left_out)
    rounds, found = parameters["num_rounds"], None
    num_queries = release.workload.num_cells()
    if guarantee.delta == 0 and "stop_below" not in parameters:
        found = 2 * release.num_records * math.sqrt(math.log(release.domain.num_cells) / rounds)
        each = guarantee.epsilon / guarantee.max_records_per_unit
        found += 10 * rounds * math.log(max(num_queries, 2)) / each
    figures.same("bound_of_average", parameters.get("bound_of_average"), found)
    is_vacuous = found is None or found >= release.num_records or 2 * rounds >= num_queries
    figures.equal(
        "bound_of_average_is_vacuous", parameters.get("bound_of_average_is_vacuous"), is_vacuous
    )


def _stopped_bound(release: SyntheticDatabase, figures: Figures) -> None:
    """Compares the bound of all errors where the rounds ended early, and how many they were."""
    parameters, rounds = release.plan, release.plan["num_rounds"]
    selection_scale, beta = parameters["selection_scale"], parameters["failure_probability"]
    grid = checked_integer("score_grid", parameters.get("score_grid"), 1, MAX_GRID)

    def rounded(scale: float, log_term: float) -> float:
        return math.ceil(scale * grid * log_term) / grid

    found = parameters["stop_below"] * release.num_records + 1 / grid
    found += rounded(parameters["stop_threshold_scale"], math.log(4 / beta))
    found += rounded(parameters["stop_question_scale"], math.log(4 * rounds / beta))
    found += selection_scale * math.log(4 * release.workload.num_cells() * rounds / beta)
    figures.same("bound_when_stopped", parameters.get("bound_when_stopped"), found)
    updates = checked_integer("num_updates", parameters["num_updates"], 0)
    figures.number += 1
    if updates > rounds:
        figures.faults.append(f"{updates:,} updates were made; must be at most {rounds:,}")

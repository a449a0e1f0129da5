"""Interval releases: the price over all neighbours, the exact law, whole runs, and their mutants.

Every strategy is audited with each noise, under each relation, with one record a unit and with two,
on five cells: few enough for all neighbours, and not a power of the tree's branching. The best tree
of five cells is their histogram, so trees of two levels are audited in its place.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from typing import Any

import numpy as np
from auditing import (
    Audit,
    Bug,
    Finding,
    Patch,
    around,
    audited,
    halve_scales,
    repeated,
    skip_empty_cells,
    told_apart,
)
from noise_sources import Draw, NoNoise
from run_views import Recording
from tiny import ADD, REPLACE, promise, with_unit, worst_share

from beam_dp.interval_strategies.hierarchy import Hierarchy, tree
from beam_dp.interval_strategies.strategy import TextbookTree
from beam_dp.mechanisms.intervals import plan as plan_module
from beam_dp.mechanisms.intervals.plan import (
    GAUSSIAN,
    PURE,
    Choice,
    IntervalPlan,
    release_intervals,
)
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.testing import audit

CELLS = 5
TREES = {"tree": tree((2, CELLS))}
BASE = (2, 0, 0, 1, 0)
RUNS = 1500
DELTA = 1e-6
# Columns of windows and of Gaussian strategies overlap: their differences have smaller norms
# than is charged for.
LEAST_SHARE = 0.5
REACH = 2


@dataclasses.dataclass(frozen=True)
class Case:
    choice: Choice
    guarantee: Guarantee


def planned_for(guarantee: Guarantee) -> Guarantee:
    """The guarantee that noise is planned for: the promised one, but in some mutants."""
    return guarantee


def planned(case: Case, num_leaves: int = CELLS) -> IntervalPlan:
    if case.choice[0] in TREES:
        return plan_module.calibrated(
            TREES[case.choice[0]], planned_for(case.guarantee), case.choice
        )
    return plan_module.planned(num_leaves, planned_for(case.guarantee), case.choice)


def draws(plan: IntervalPlan, counts: np.ndarray) -> list[Draw]:
    source = NoNoise()
    release_intervals(plan, counts, source)
    return source.draws


def price(case: Case) -> Finding:
    """The share of the guarantee that the worst neighbours spend, of all."""
    bases = np.zeros(CELLS, np.int64), np.array(BASE)
    worst = worst_share(case.guarantee, bases, functools.partial(draws, planned(case)))
    return Finding(bool(LEAST_SHARE < worst <= 1 + 1e-12))


def exact_law(case: Case) -> Finding:
    """The law of all that is released, clipped, over all neighbours of two cells."""
    plan = planned(case, 2)

    def law(data: tuple[int, ...]) -> dict[Any, float]:
        (draw,) = draws(plan, with_unit(np.zeros(2, np.int64), data))
        laws = [
            audit.discrete_laplace(draw.scale, int(value), -REACH, REACH + 3)
            for value in draw.exact
        ]
        return audit.product_law(laws)

    found = audit.audit_law(law, range(2), case.guarantee, num_others=1)
    return Finding(found.is_private and found.epsilon > 0.6 * case.guarantee.epsilon)


def black_box(case: Case) -> Finding:
    """Whole runs with the production sampler, told apart by their likelihood ratio."""
    plan, guarantee = planned(case), case.guarantee
    most = guarantee.max_records_per_unit
    # Cells in which no one else has a record.
    pair = (4,) * most, () if guarantee.neighboring == ADD else (1,) * most
    data = [with_unit(np.array(BASE), unit) for unit in pair]
    exact = [draws(plan, each)[0].exact for each in data]

    def ratio(counts: np.ndarray) -> float:
        record = Recording(NoiseSource())
        release_intervals(plan, counts, record)
        noisy = record.tables[0]
        if case.choice[1] == "discrete_laplace":
            logs = [-np.abs(noisy - each).sum() / plan.scale for each in exact]
        else:
            logs = [-((noisy - each) ** 2.0).sum() / (2 * plan.scale**2) for each in exact]
        return round(float(logs[0] - logs[1]), 3)

    sides = [repeated(functools.partial(ratio, each)) for each in data]
    # Of windows neighbours spend a part of the promise, so that half the noise is seen late.
    runs = 3 * RUNS if case.choice[0] == "windows" else RUNS
    return told_apart(sides, guarantee, runs=runs, score=float)


def plan_with(**changed: Any) -> Bug:
    return lambda patch: patch.setattr(
        "audit_intervals.planned_for", lambda promised: dataclasses.replace(promised, **changed)
    )


def lower_sensitivity(kind: Any, by: int) -> Bug:
    """A sensitivity that forgets one level, such as the root."""
    original = kind.l1_sensitivity
    return lambda patch: patch.setattr(
        kind, "l1_sensitivity", property(lambda self: max(1, original.fget(self) - by))
    )


def _scaled_by_number(
    original: Any, plan: IntervalPlan, counts: np.ndarray, noise: NoiseSource
) -> Any:
    factor = 10 / max(int(counts.sum()), 1)
    return original(dataclasses.replace(plan, scale=plan.scale * factor), counts, noise)


scale_by_number = around(sys.modules[__name__], "release_intervals", _scaled_by_number)


def pad_to_the_last_record(patch: Patch) -> None:
    """Padding that ends where the data do."""
    original = TextbookTree.measure

    def mutant(self: TextbookTree, counts: np.ndarray) -> np.ndarray:
        used = int(np.max(np.nonzero(counts)[0], initial=0)) + 1
        return original(TextbookTree(used, self.has_root), counts[:used])

    patch.setattr(TextbookTree, "measure", mutant)
    patch.setattr(TextbookTree, "estimate", lambda self, noisy: None)


def bugs_of(case: Case) -> dict[str, dict[str, Bug]]:
    guarantee = case.guarantee
    name, distribution = case.choice
    replaces = guarantee.neighboring == REPLACE
    price = {
        "epsilon doubled": plan_with(epsilon=2 * guarantee.epsilon),
        "n used as a scale": scale_by_number,
    }
    if replaces:
        price["replace-one run with add-remove noise"] = plan_with(neighboring=ADD)
    if guarantee.max_records_per_unit > 1:
        price["k ignored"] = plan_with(max_records_per_unit=1)
    if distribution != "discrete_laplace":
        return {"price": price}
    runs = {"empty nodes without noise": skip_empty_cells}
    # Many noisy nodes tell too little in so few runs, of a replacement above all.
    if name != "textbook_tree" and not (name in TREES and replaces):
        runs["noise scale halved in the sampler"] = halve_scales
    if name == "textbook_tree":
        price["a level not counted"] = lower_sensitivity(TextbookTree, 1)
        price["padding that depends on the data"] = pad_to_the_last_record
    if name in TREES:
        price["a level not counted"] = lower_sensitivity(Hierarchy, 1)
    if name == "windows":
        price["windows not counted"] = lower_sensitivity(Hierarchy, 3000)
    return {"price": price, "black box": runs}


def audits() -> list[Audit]:
    found = []
    for choice in PURE + GAUSSIAN:
        is_pure = choice[1] == "discrete_laplace"
        for relation in (ADD, REPLACE):
            for most in (1, 2):
                epsilon = 3.0 if is_pure else 2.0
                case = Case(choice, promise(relation, 0.0 if is_pure else DELTA, epsilon, most))
                checks = {"price": price}
                if is_pure:
                    checks["black box"] = black_box
                    # Of two cells these are no trees, and windows have a wide law.
                    if choice[0] not in (*TREES, "windows") and most == 1:
                        checks["law"] = exact_law
                name = f"intervals, {choice[0]}, {'pure' if is_pure else 'delta'}, k = {most}"
                found.append(audited(name, case.guarantee, checks, bugs_of(case), case))
    return found

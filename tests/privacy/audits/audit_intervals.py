"""Interval releases: the price over all neighbours, the exact law, whole runs, and their mutants.

Every strategy is audited with each noise, under each relation, with one record a unit and with two,
on five cells: few enough for all neighbours, and not a power of the tree's branching. The best tree
of five cells is their histogram, so trees of two levels are audited in its place.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from audit_cases import Audit, Mutant, Patch, halve_scales, skip_empty_cells
from audit_views import Finding, from_black_box
from noise_sources import Draw, NoNoise
from tiny import ADD, REPLACE, neighbours, promise, share_spent, units, with_unit

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
from beam_dp.privacy.guarantee import Guarantee, Neighboring
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
    plan = planned(case)
    held = units(CELLS, case.guarantee.max_records_per_unit)
    worst = 0.0
    for base in (np.zeros(CELLS, np.int64), np.array(BASE)):
        seen = {unit: draws(plan, with_unit(base, unit)) for unit in held}
        if len({tuple(draw.exact.shape for draw in each) for each in seen.values()}) > 1:
            return Finding(False)
        for one, other in neighbours(held, case.guarantee.neighboring):
            worst = max(worst, share_spent(case.guarantee, seen[one], seen[other]))
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
    plan = planned(case)
    most = case.guarantee.max_records_per_unit
    # Cells in which no one else has a record.
    pair = (
        (4,) * most,
        () if case.guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE else ((1,) * most),
    )
    data = [with_unit(np.array(BASE), unit) for unit in pair]
    exact = [draws(plan, each)[0].exact for each in data]

    def sampler(counts: np.ndarray, source: NoiseSource) -> Callable[[int], list[float]]:
        def sample(runs: int) -> list[float]:
            return [ratio(seen(plan, counts, source)) for _ in range(runs)]

        return sample

    def ratio(noisy: np.ndarray) -> float:
        if case.choice[1] == "discrete_laplace":
            logs = [-np.abs(noisy - each).sum() / plan.scale for each in exact]
        else:
            logs = [-((noisy - each) ** 2.0).sum() / (2 * plan.scale**2) for each in exact]
        return round(float(logs[0] - logs[1]), 3)

    found = audit.audit_black_box(
        *(sampler(each, NoiseSource()) for each in data),
        case.guarantee.epsilon,
        case.guarantee.delta,
        # Of windows neighbours spend a part of the promise, so that half the noise is seen late.
        runs=3 * RUNS if case.choice[0] == "windows" else RUNS,
        score=float,
    )
    return from_black_box(found)


def seen(plan: IntervalPlan, counts: np.ndarray, source: NoiseSource) -> np.ndarray:
    """The noisy measurements of one run."""
    kept: list[np.ndarray] = []

    class Keeping(NoNoise):
        def laplace(self, values: np.ndarray, scale: float) -> np.ndarray:
            kept.append(source.laplace(values, scale))
            return kept[-1]

        def gaussian(self, values: np.ndarray, sigma: float) -> np.ndarray:
            kept.append(source.gaussian(values, sigma))
            return kept[-1]

    release_intervals(plan, counts, Keeping())
    return kept[0]


def plan_with(**changed: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(
        "audit_intervals.planned_for", lambda promised: dataclasses.replace(promised, **changed)
    )


def lower_sensitivity(name: str, kind: type, by: int) -> Callable[[Patch], None]:
    """A sensitivity that forgets one level, such as the root."""
    original = getattr(kind, name)
    return lambda patch: patch.setattr(
        kind, name, property(lambda self: max(1, original.fget(self) - by))
    )


def scale_by_number(patch: Patch) -> None:
    original = plan_module.release_intervals

    def mutant(plan: IntervalPlan, counts: np.ndarray, noise: NoiseSource) -> Any:
        factor = 10 / max(int(counts.sum()), 1)
        return original(dataclasses.replace(plan, scale=plan.scale * factor), counts, noise)

    patch.setattr("audit_intervals.release_intervals", mutant)


def pad_to_the_last_record(patch: Patch) -> None:
    """Padding that ends where the data do."""
    original = TextbookTree.measure

    def mutant(self: TextbookTree, counts: np.ndarray) -> np.ndarray:
        used = int(np.max(np.nonzero(counts)[0], initial=0)) + 1
        return original(TextbookTree(used, self.has_root), counts[:used])

    patch.setattr(TextbookTree, "measure", mutant)
    patch.setattr(TextbookTree, "estimate", lambda self, noisy: None)


def mutants_of(case: Case) -> dict[str, Mutant]:
    guarantee = case.guarantee
    found = {
        "epsilon doubled": Mutant(plan_with(epsilon=2 * guarantee.epsilon), "price"),
        "n used as a scale": Mutant(scale_by_number, "price"),
    }
    if guarantee.neighboring is Neighboring.REPLACE_ONE:
        found["replace-one run with add-remove noise"] = Mutant(
            plan_with(neighboring=Neighboring.ADD_OR_REMOVE_ONE), "price"
        )
    if guarantee.max_records_per_unit > 1:
        found["k ignored"] = Mutant(plan_with(max_records_per_unit=1), "price")
    name, distribution = case.choice
    if distribution == "discrete_laplace":
        # Many noisy nodes tell too little in so few runs, of a replacement above all.
        is_replaced_tree = name in TREES and guarantee.neighboring is Neighboring.REPLACE_ONE
        if name != "textbook_tree" and not is_replaced_tree:
            found["noise scale halved in the sampler"] = Mutant(halve_scales, "black box")
        found["empty nodes without noise"] = Mutant(skip_empty_cells, "black box")
        if name == "textbook_tree":
            found["a level not counted"] = Mutant(
                lower_sensitivity("l1_sensitivity", TextbookTree, 1), "price"
            )
            found["padding that depends on the data"] = Mutant(pad_to_the_last_record, "price")
        if name in TREES:
            found["a level not counted"] = Mutant(
                lower_sensitivity("l1_sensitivity", Hierarchy, 1), "price"
            )
        if name == "windows":
            found["windows not counted"] = Mutant(
                lower_sensitivity("l1_sensitivity", Hierarchy, 3000), "price"
            )
    return found


def interval_audits() -> list[Audit]:
    found = []
    for choice in PURE + GAUSSIAN:
        is_pure = choice[1] == "discrete_laplace"
        for relation in (ADD, REPLACE):
            for most in (1, 2):
                epsilon = 3.0 if is_pure else 2.0
                case = Case(choice, promise(relation, 0.0 if is_pure else DELTA, epsilon, most))
                checks = {"price": functools.partial(price, case)}
                if is_pure:
                    checks["black box"] = functools.partial(black_box, case)
                    # Of two cells these are no trees, and windows have a wide law.
                    if choice[0] not in (*TREES, "windows") and most == 1:
                        checks["law"] = functools.partial(exact_law, case)
                name = f"intervals, {choice[0]}, {'pure' if is_pure else 'delta'}, k = {most}"
                found.append(Audit(name, case.guarantee, checks, mutants_of(case)))
    return found

"""Rectangles, and several attributes from one budget: prices, exact laws, whole runs, mutants.

Rectangles are audited on 2 x 3 cells with each kind of noise, under each relation, with one record
a unit and with two. Of several attributes a record has a cell in each: the price is that of all
their measurements together.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, get_args

import numpy as np
from audit_cases import Audit, Mutant, Patch, halve_scales, skip_empty_cells
from audit_views import Finding, from_black_box
from noise_sources import Draw, NoNoise
from tiny import ADD, REPLACE, Unit, neighbours, promise, share_spent, units, with_unit

from beam_dp.mechanisms.intervals import (
    RectanglePlan,
    plan_rectangles,
    plan_several_intervals,
    release_rectangles,
    release_several_intervals,
)
from beam_dp.mechanisms.intervals import several as several_module
from beam_dp.mechanisms.intervals.rectangles import ProductStrategy, RectangleChoice
from beam_dp.mechanisms.intervals.several import Objective
from beam_dp.mechanisms.marginals.measurements import Distribution
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.testing import audit

SHAPE = (2, 3)
CELLS = math.prod(SHAPE)
BASE = (2, 0, 0, 1, 0, 0)
RUNS = 1500
DELTA = 1e-6
# Columns of windows and of Gaussian strategies overlap: their differences have smaller norms
# than is charged for.
LEAST_SHARE = 0.5
REACH = 2
CHOICES: tuple[RectangleChoice, ...] = (
    ("histogram", "histogram", "discrete_laplace"),
    ("windows", "histogram", "discrete_laplace"),
    ("windows", "windows", "discrete_laplace"),
    ("histogram", "histogram", "discrete_gaussian"),
    ("histogram", "sine", "discrete_gaussian"),
    ("sine", "sine", "discrete_gaussian"),
)


@dataclasses.dataclass(frozen=True)
class Case:
    choice: RectangleChoice
    guarantee: Guarantee


def planned_for(guarantee: Guarantee) -> Guarantee:
    """The guarantee that noise is planned for: the promised one, but in some mutants."""
    return guarantee


def planned(case: Case, shape: tuple[int, int] = SHAPE) -> RectanglePlan:
    return plan_rectangles(shape, planned_for(case.guarantee), case.choice[:2], case.choice[2])


def draws(plan: RectanglePlan, counts: np.ndarray) -> list[Draw]:
    source = NoNoise()
    release_rectangles(plan, counts.reshape(plan.shape), source)
    return source.draws


def worst_share(guarantee: Guarantee, run: Callable[[np.ndarray], Sequence[Draw]]) -> Finding:
    """The share of the guarantee that the worst neighbours spend, of all."""
    held = units(CELLS, guarantee.max_records_per_unit)
    worst = 0.0
    for base in (np.zeros(CELLS, np.int64), np.array(BASE)):
        seen: dict[Unit, Sequence[Draw]] = {unit: run(with_unit(base, unit)) for unit in held}
        for one, other in neighbours(held, guarantee.neighboring):
            worst = max(worst, share_spent(guarantee, seen[one], seen[other]))
    return Finding(bool(LEAST_SHARE < worst <= 1 + 1e-12))


def price(case: Case) -> Finding:
    plan = planned(case)
    return worst_share(case.guarantee, lambda counts: draws(plan, counts))


def exact_law(case: Case) -> Finding:
    """The law of all that is released, clipped, over all neighbours of 2 x 1 cells."""
    plan = planned(case, (2, 1))

    def law(data: tuple[int, ...]) -> dict[Any, float]:
        (draw,) = draws(plan, with_unit(np.zeros(2, np.int64), data))
        laws = [
            audit.discrete_laplace(draw.scale, int(value), -REACH, REACH + 3)
            for value in draw.exact.ravel()
        ]
        return audit.product_law(laws)

    found = audit.audit_law(law, range(2), case.guarantee, num_others=1)
    return Finding(found.is_private and found.epsilon > 0.6 * case.guarantee.epsilon)


def black_box(case: Case) -> Finding:
    """Whole runs with the production sampler, told apart by their likelihood ratio."""
    plan = planned(case)
    most = case.guarantee.max_records_per_unit
    # Cells that nobody else has a record in.
    pair = (
        (4,) * most,
        () if case.guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE else ((2,) * most),
    )
    data = [with_unit(np.array(BASE), unit) for unit in pair]
    exact = [draws(plan, each)[0].exact for each in data]

    def sampler(counts: np.ndarray, source: NoiseSource) -> Callable[[int], list[float]]:
        def sample(runs: int) -> list[float]:
            return [ratio(seen(plan, counts, source)) for _ in range(runs)]

        return sample

    def ratio(noisy: np.ndarray) -> float:
        logs = [-np.abs(noisy - each).sum() / plan.noise.scale for each in exact]
        return round(float(logs[0] - logs[1]), 3)

    found = audit.audit_black_box(
        *(sampler(each, NoiseSource()) for each in data),
        case.guarantee.epsilon,
        case.guarantee.delta,
        runs=RUNS,
        score=float,
    )
    return from_black_box(found)


def seen(plan: RectanglePlan, counts: np.ndarray, source: NoiseSource) -> np.ndarray:
    """The noisy measurements of one run."""
    kept: list[np.ndarray] = []

    class Keeping(NoNoise):
        def laplace(self, values: np.ndarray, scale: float) -> np.ndarray:
            kept.append(source.laplace(values, scale))
            return kept[-1]

    release_rectangles(plan, counts.reshape(plan.shape), Keeping())
    return kept[0]


def several_price(guarantee: Guarantee, minimise: Objective) -> Finding:
    """Records have a cell in each of two attributes, and count in both."""
    sizes = {"first": SHAPE[0], "second": SHAPE[1]}
    distribution: Distribution = "discrete_gaussian" if guarantee.delta else "discrete_laplace"
    plan = plan_several_intervals(sizes, planned_for(guarantee), minimise, distribution)

    def run(counts: np.ndarray) -> list[Draw]:
        source = NoNoise()
        table = counts.reshape(SHAPE)
        both = {"first": table.sum(axis=1), "second": table.sum(axis=0)}
        release_several_intervals(plan, both, source)
        return source.draws

    return worst_share(guarantee, run)


def plan_with(**changed: Any) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(
        "audit_rectangles.planned_for", lambda promised: dataclasses.replace(promised, **changed)
    )


def one_side_counted(name: str) -> Callable[[Patch], None]:
    """The sensitivity of one side alone."""
    return lambda patch: patch.setattr(
        ProductStrategy, name, property(lambda self: getattr(self.first, name))
    )


def scale_by_number(patch: Patch) -> None:
    original = release_rectangles

    def mutant(plan: RectanglePlan, counts: np.ndarray, noise: NoiseSource) -> Any:
        factor = 10 / max(int(counts.sum()), 1)
        scaled = dataclasses.replace(plan.noise, scale=plan.noise.scale * factor)
        return original(dataclasses.replace(plan, noise=scaled), counts, noise)

    patch.setattr("audit_rectangles.release_rectangles", mutant)


def whole_budget_for_each(patch: Patch) -> None:
    patch.setattr(several_module, "shares_of", lambda errors, *_: [1.0] * len(errors))


def common_mutants(guarantee: Guarantee) -> dict[str, Mutant]:
    found = {"epsilon doubled": Mutant(plan_with(epsilon=2 * guarantee.epsilon), "price")}
    if guarantee.neighboring is Neighboring.REPLACE_ONE:
        found["replace-one run with add-remove noise"] = Mutant(
            plan_with(neighboring=Neighboring.ADD_OR_REMOVE_ONE), "price"
        )
    if guarantee.max_records_per_unit > 1:
        found["k ignored"] = Mutant(plan_with(max_records_per_unit=1), "price")
    return found


def mutants_of(case: Case) -> dict[str, Mutant]:
    found = common_mutants(case.guarantee)
    found["n used as a scale"] = Mutant(scale_by_number, "price")
    first, second, distribution = case.choice
    is_pure = distribution == "discrete_laplace"
    if second != "histogram":
        name = "l1_sensitivity" if is_pure else "l2_sensitivity_squared"
        found["one side not counted"] = Mutant(one_side_counted(name), "price")
    if is_pure:
        found["empty measurements without noise"] = Mutant(skip_empty_cells, "black box")
        if first == "histogram":
            found["noise scale halved in the sampler"] = Mutant(halve_scales, "black box")
    return found


def rectangle_audits() -> list[Audit]:
    found = []
    for choice in CHOICES:
        is_pure = choice[2] == "discrete_laplace"
        for relation in (ADD, REPLACE):
            for most in (1, 2):
                epsilon = 3.0 if is_pure else 2.0
                case = Case(choice, promise(relation, 0.0 if is_pure else DELTA, epsilon, most))
                checks = {"price": functools.partial(price, case)}
                if is_pure:
                    checks["black box"] = functools.partial(black_box, case)
                    if "windows" not in choice and most == 1:
                        checks["law"] = functools.partial(exact_law, case)
                kind = "pure" if is_pure else "delta"
                name = f"rectangles, {choice[0]} x {choice[1]}, {kind}, k = {most}"
                found.append(Audit(name, case.guarantee, checks, mutants_of(case)))
    return found


def several_audits() -> list[Audit]:
    found = []
    for delta, epsilon in ((0.0, 3.0), (DELTA, 2.0)):
        for minimise in get_args(Objective):
            for relation in (ADD, REPLACE):
                for most in (1, 2):
                    guarantee = promise(relation, delta, epsilon, most)
                    checks = {"price": functools.partial(several_price, guarantee, minimise)}
                    mutants = common_mutants(guarantee)
                    mutants["all of the budget for each"] = Mutant(whole_budget_for_each, "price")
                    kind = "delta" if delta else "pure"
                    name = f"several intervals, least {minimise}, {kind}, k = {most}"
                    found.append(Audit(name, guarantee, checks, mutants))
    return found

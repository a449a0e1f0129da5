"""The choice of the records per unit: its price over all neighbours, its exact law, and whole runs.

A unit may have any number of records, also far more than can be chosen.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Sequence
from typing import Any
from unittest import mock

import numpy as np
from audit_cases import halve_scales, skip_empty_cells
from auditing import Audit, Bug, Finding, around, audited, repeated, replaced, told_apart
from noise_sources import Draw, NoNoise
from run_views import Recording
from tiny import ADD, REPLACE, neighbours, promise, share_spent

from beam_dp.interval_strategies.hierarchy import Hierarchy, tree
from beam_dp.mechanisms.discovery import records_per_unit as module
from beam_dp.mechanisms.discovery.records_per_unit import (
    RecordsPerUnitPlan,
    plan_records_per_unit,
)
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.summaries import records_per_unit as counting
from beam_dp.testing import audit

HERE = sys.modules[__name__]
MOST = 4  # so there are four levels
TREE = tree((2, 4))
# The numbers of records of other units.
BASES: tuple[tuple[int, ...], ...] = ((), (1, 1, 3))
HELD = [(), (1,), (2,), (4,), (5,), (1000,)]
DELTA = 1e-6
RUNS = 1500


def planned_for(guarantee: Guarantee) -> Guarantee:
    """The guarantee that noise is planned for: the promised one, but in some mutants."""
    return guarantee


def strategy(num_levels: int, power: int) -> Hierarchy:
    """A tree of two parts, which so few levels would not have."""
    return TREE if num_levels == MOST else tree((num_levels,))


def planned(guarantee: Guarantee, most: int = MOST) -> RecordsPerUnitPlan:
    promised = planned_for(guarantee)
    loss: dict[str, Any] = {"epsilon": promised.epsilon}
    if promised.delta:
        loss = {"mu": discrete_gaussian_mu(promised.epsilon, promised.delta)}
    with mock.patch.object(module, "best_tree", strategy):
        return plan_records_per_unit(most, 0.1, promised.neighboring, **loss)


def levels(held: Sequence[int], most: int = MOST) -> np.ndarray:
    """The number of units in each level, by the code that counts them."""
    rows = np.repeat(np.arange(len(held), dtype=np.uint64), 2)
    units = np.stack((rows, rows * np.uint64(7)))
    counts = np.array([part for n in held for part in (n - n // 2, n // 2)], np.int64)
    kept = counts > 0
    found = counting.levels_of_units(units[:, kept], counts[kept], most)
    return np.bincount(found, minlength=most).astype(np.int64)


def release(plan: RecordsPerUnitPlan, held: Sequence[int], noise: Any) -> Any:
    with mock.patch.object(module, "best_tree", strategy):
        return plan.release(levels(held, plan.most), noise)


def draws(plan: RecordsPerUnitPlan, held: Sequence[int]) -> list[Draw]:
    source = NoNoise()
    release(plan, held, source)
    return source.draws


def pairs(guarantee: Guarantee) -> list[tuple[Any, Any]]:
    return list(neighbours(HELD, guarantee.neighboring.value))


def price(guarantee: Guarantee) -> Finding:
    """The share of the guarantee that the worst neighbours spend, of all."""
    plan = planned(guarantee)
    shares = [
        share_spent(guarantee, *(draws(plan, [*base, *unit]) for unit in pair))
        for base in BASES
        for pair in pairs(guarantee)
    ]
    return Finding(bool(0.9 < max(shares) <= 1 + 1e-12))


class Given(NoNoise):
    """Noise that turns the values into given ones."""

    def __init__(self, noisy: Sequence[int]) -> None:
        super().__init__()
        self._noisy = np.array(noisy, np.int64)

    def noisy(self, values: np.ndarray) -> np.ndarray:
        return self._noisy


def exact_law(guarantee: Guarantee) -> Finding:
    """The law of the chosen number and the counts of two levels, over all neighbours."""
    plan = planned(guarantee, 2)
    low, high = -3, 7

    @functools.cache
    def law(held: tuple[int, ...]) -> dict[Any, float]:
        laws = [
            audit.discrete_laplace(plan.scale, int(each), low, high) for each in levels(held, 2)
        ]
        found: dict[Any, float] = {}
        for noisy, probability in audit.product_law(laws).items():
            chosen, at_least = release(plan, held, Given(noisy))
            outcome = (chosen, *at_least.tolist())
            found[outcome] = found.get(outcome, 0.0) + probability
        return found

    others: list[tuple[int, ...]] = [(), (1,), (2,), (2, 3), (2, 2, 9)]
    ratios = [
        audit.largest_log_ratio(law((*other, *one)), law((*other, *two)))
        for other, (one, two) in itertools.product(others, pairs(guarantee))
    ]
    epsilon = guarantee.epsilon
    return Finding(0.9 * epsilon < max(ratios) <= epsilon * (1 + 1e-9))


def black_box(guarantee: Guarantee) -> Finding:
    """Whole runs with the production sampler, told apart by their likelihood ratio."""
    plan = planned(guarantee)
    sides = [[*BASES[1], *unit] for unit in ((1000,), () if guarantee.neighboring == ADD else (2,))]
    exact = [draws(plan, each)[0].exact for each in sides]

    def ratio(held: Sequence[int]) -> float:
        record = Recording(NoiseSource())
        release(plan, held, record)
        noisy = record.tables[0]
        if plan.distribution == "discrete_laplace":
            logs = [-np.abs(noisy - each).sum() / plan.scale for each in exact]
        else:
            logs = [-((noisy - each) ** 2.0).sum() / (2 * plan.scale**2) for each in exact]
        return round(float(logs[0] - logs[1]), 3)

    observed = [repeated(functools.partial(ratio, each)) for each in sides]
    return told_apart(observed, guarantee, runs=RUNS, score=float)


def plan_with(**changed: Any) -> Bug:
    return replaced(HERE, "planned_for", lambda promised: dataclasses.replace(promised, **changed))


def scaled(factor: float) -> Bug:
    return around(
        HERE,
        "plan_records_per_unit",
        lambda plan, *given, **named: dataclasses.replace(
            found := plan(*given, **named), scale=found.scale * factor
        ),
    )


def _count_records(original: Any, units: Any, counts: Any, most: int) -> np.ndarray:
    """A unit counts once per row of records, not once."""
    found = [original(units[:, [row]], counts[[row]], most) for row in range(len(counts))]
    return np.concatenate([np.zeros(0, np.int64), *found])


def _without_bound(original: Any, units: Any, counts: Any, most: int) -> np.ndarray:
    """A unit with more records than can be chosen counts again for the others."""
    found = original(units, counts, most)
    rest = counts - most
    if not (rest > 0).any():
        return found
    return np.concatenate([found, original(units[:, rest > 0], rest[rest > 0], most)])


def _choose_exactly(original: Any, plan: RecordsPerUnitPlan, counts: Any, noise: Any) -> Any:
    """The choice follows from the exact counts."""
    _, at_least = original(plan, counts, noise)
    chosen, _ = original(plan, counts, NoNoise())
    return chosen, at_least


def bugs_of(guarantee: Guarantee) -> dict[str, dict[str, Bug]]:
    found: dict[str, dict[str, Bug]] = {
        "price": {
            "epsilon doubled": plan_with(epsilon=2 * guarantee.epsilon),
            "a part of the tree not counted": scaled(0.5 if guarantee.delta == 0 else 0.5**0.5),
            "records counted instead of units": around(counting, "levels_of_units", _count_records),
            "number of a unit's records without bound": around(
                counting, "levels_of_units", _without_bound
            ),
        },
    }
    if guarantee.neighboring == REPLACE:
        found["price"]["replace-one run with add-remove noise"] = plan_with(neighboring=ADD)
    if guarantee.delta == 0:
        exactly = around(RecordsPerUnitPlan, "release", _choose_exactly)
        found["law"] = {"choice by exact counts": exactly}
        found["black box"] = {"empty levels without noise": skip_empty_cells}
        if guarantee.neighboring == ADD:
            found["black box"]["noise scale halved in the sampler"] = halve_scales
    return found


def audits() -> list[Audit]:
    """The choice under both relations, with Laplace noise and with Gaussian noise."""
    found = []
    for relation, delta in itertools.product((ADD, REPLACE), (0.0, DELTA)):
        # With little noise, the variance that a grid of whole units adds would be most of it.
        guarantee = promise(relation, delta, 0.4 if delta else 3.0, MOST)
        checks: dict[str, Any] = {"price": price}
        if not delta:
            checks |= {"law": exact_law, "black box": black_box}
        name = f"records per unit, {'delta' if delta else 'pure'}"
        found.append(audited(name, guarantee, checks, bugs_of(guarantee), guarantee))
    return found

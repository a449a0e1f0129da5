"""Bins of a column: the price over all neighbours, the exact law of what is found, and whole runs.

Leaves have a tree of two levels. A unit has one record or two; the records of a unit share the
steps of the grid, which two do not divide.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from auditing import (
    Audit,
    Bug,
    Finding,
    around,
    audited,
    halve_scales,
    repeated,
    replaced,
    skip_empty_cells,
    told_apart,
)
from noise_sources import Draw, Given, NoNoise
from run_views import Recording
from tiny import ADD, REPLACE, Unit, neighbours, promise, share_spent, units

from beam_dp.domain.ordered import NumericAttribute
from beam_dp.interval_strategies.hierarchy import tree
from beam_dp.mechanisms.discovery import bins as bins_module
from beam_dp.mechanisms.discovery.bins import Bins, BinsPlan, plan_bins
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.testing import audit

HERE = sys.modules[__name__]
GRID = 5
TREE = tree((2, 4))
# Other units, with one record or two.
BASES: tuple[tuple[Unit, ...], ...] = ((), ((0,), (0, 1), (3,)))
DELTA = 1e-6
RUNS = 3000


@dataclasses.dataclass(frozen=True)
class Case:
    guarantee: Guarantee


def weight(num_records: int) -> int:
    """What a record of a unit adds to its leaf."""
    return GRID // num_records


def sums(held: Sequence[Unit], num_leaves: int = TREE.num_leaves) -> np.ndarray:
    counts = np.zeros(num_leaves, np.int64)
    for unit in held:
        np.add.at(counts, list(unit), weight(len(unit)) if unit else 0)
    return counts


def planned_for(guarantee: Guarantee) -> Guarantee:
    """The guarantee that noise is planned for: the promised one, but in some mutants."""
    return guarantee


def planned(case: Case, num_leaves: int = TREE.num_leaves) -> BinsPlan:
    promised = planned_for(case.guarantee)
    leaves = NumericAttribute("a", tuple(range(num_leaves + 1)))
    loss: dict[str, Any] = {"epsilon": promised.epsilon}
    if promised.delta:
        loss = {"mu": discrete_gaussian_mu(promised.epsilon, promised.delta)}
    return plan_bins(leaves, 2, promised.neighboring, grid=GRID, **loss)


def draws(plan: BinsPlan, held: Sequence[Unit]) -> list[Draw]:
    source = NoNoise()
    plan.release(sums(held, plan.leaves.num_levels), source)
    return source.draws


def pairs(case: Case, num_leaves: int = TREE.num_leaves) -> list[tuple[Any, Any]]:
    held = units(num_leaves, case.guarantee.max_records_per_unit)
    return list(neighbours(held, case.guarantee.neighboring.value))


def price(case: Case) -> Finding:
    """The share of the guarantee that the worst neighbours spend, of all."""
    plan = planned(case)
    shares = [
        share_spent(case.guarantee, *(draws(plan, [*base, unit]) for unit in pair))
        for base in BASES
        for pair in pairs(case)
    ]
    return Finding(bool(0.9 < max(shares) <= 1 + 1e-12))


def exact_law(case: Case) -> Finding:
    """The law of the bins and counts of two leaves, from clipped noise, over all neighbours."""
    plan = planned(case, 2)
    low, high = -4, 14

    @functools.cache
    def law(held: tuple[Unit, ...]) -> dict[Any, float]:
        exact = plan.strategy.measure(sums(held, 2))
        laws = [audit.discrete_laplace(plan.scale, int(each), low, high) for each in exact]
        found: dict[Any, float] = {}
        for noisy, probability in audit.product_law(laws).items():
            bins = plan.release(sums(held, 2), Given(noisy))
            outcome = (bins.cuts, bins.counts)
            found[outcome] = found.get(outcome, 0.0) + probability
        return found

    others: list[tuple[Unit, ...]] = [(), ((0,),), ((0,), (1,))]
    ratios = [
        audit.largest_log_ratio(law((*other, one)), law((*other, two)))
        for other, (one, two) in itertools.product(others, pairs(case, 2))
    ]
    epsilon = case.guarantee.epsilon
    return Finding(0.6 * epsilon < max(ratios) <= epsilon * (1 + 1e-9))


def black_box(case: Case) -> Finding:
    """Whole runs with the production sampler, told apart by their likelihood ratio."""
    plan, guarantee = planned(case), case.guarantee
    # Leaves in which no one else has a record. Two records of a unit add less, as 5 is odd.
    sides = [[*BASES[1], unit] for unit in ((2,), () if guarantee.neighboring == ADD else (1,))]
    exact = [draws(plan, each)[0].exact for each in sides]

    def ratio(held: Sequence[Unit]) -> float:
        record = Recording(NoiseSource())
        plan.release(sums(held), record)
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
        "plan_bins",
        lambda plan, *given, **named: dataclasses.replace(
            found := plan(*given, **named), scale=found.scale * factor
        ),
    )


def _scaled_by_number(release: Any, plan: BinsPlan, counts: Any, noise: Any) -> Bins:
    factor = 10 * GRID / max(int(counts.sum()), 1)
    return release(dataclasses.replace(plan, scale=plan.scale * factor), counts, noise)


def _without_empty_ends(release: Any, plan: BinsPlan, counts: Any, noise: Any) -> Bins:
    """Cuts off the ends that are empty, instead of those that seem to be empty."""
    bins = release(plan, counts, noise)
    used = np.flatnonzero(counts)
    ends = {int(used[0]), int(used[-1]) + 1} if len(used) else {0, len(counts)}
    return dataclasses.replace(bins, cuts=tuple(sorted(ends)))


def bugs_of(case: Case) -> dict[str, dict[str, Bug]]:
    guarantee = case.guarantee
    replaces = guarantee.neighboring == REPLACE
    found: dict[str, dict[str, Bug]] = {
        "price": {
            "epsilon doubled": plan_with(epsilon=2 * guarantee.epsilon),
            "a level not counted": scaled(0.5 if guarantee.delta == 0 else 0.5**0.5),
            "n used as a scale": around(BinsPlan, "release", _scaled_by_number),
        }
    }
    if replaces:
        found["price"]["replace-one run with add-remove noise"] = plan_with(neighboring=ADD)
    if guarantee.max_records_per_unit > 1:
        found["price"]["records counted instead of units"] = replaced(
            HERE, "weight", lambda _: GRID
        )
    if guarantee.delta == 0:
        found["law"] = {"exact ends": around(BinsPlan, "release", _without_empty_ends)}
        found["black box"] = {"empty nodes without noise": skip_empty_cells}
        if not replaces:
            found["black box"]["noise scale halved in the sampler"] = halve_scales
    return found


def with_tree(check: Any) -> Any:
    """Runs a check where four leaves have a tree, instead of their histogram."""

    @functools.wraps(check)
    def wrapped(case: Case) -> Finding:
        original = bins_module.best_tree
        bins_module.best_tree = lambda leaves, power: (
            TREE if leaves == TREE.num_leaves else original(leaves, power)
        )
        try:
            return check(case)
        finally:
            bins_module.best_tree = original

    return wrapped


def audits() -> list[Audit]:
    found = []
    for delta in (0.0, DELTA):
        for relation in (ADD, REPLACE):
            for most in (1, 2):
                case = Case(promise(relation, delta, 2.0 if delta else 3.0, most))
                checks = {"price": with_tree(price)}
                if not delta:
                    checks |= {"law": exact_law, "black box": with_tree(black_box)}
                name = f"bins, {'delta' if delta else 'pure'}, k = {most}"
                found.append(audited(name, case.guarantee, checks, bugs_of(case), case))
    return found

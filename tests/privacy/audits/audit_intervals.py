"""Interval releases: the price over all neighbours, and their mutants.

Every strategy is audited with each noise, under each relation, with one record a unit and with two,
on five cells: few enough for all neighbours, and not a power of the tree's branching. The best tree
of five cells is their histogram, so trees of two levels are audited in its place.
"""

import functools
import itertools
from typing import Any

import numpy as np
from auditing import DELTA, Audit, Bug, Patch, audited, derived
from subjects import Subject, counts_beside, price
from tiny import ADD, REPLACE, neighbours, promise, units

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
from beam_dp.privacy.guarantee import Guarantee

CELLS = 5
TREES = {"tree": tree((2, CELLS))}
BASE = (2, 0, 0, 1, 0)


def least_share(choice: Choice) -> float:
    """Columns of windows and of Gaussian strategies overlap: they differ by less than is paid."""
    return 0.9 if choice[1] == "discrete_laplace" and choice[0] != "windows" else 0.5


def planned(choice: Choice, guarantee: Guarantee) -> IntervalPlan:
    if choice[0] in TREES:
        return plan_module.calibrated(TREES[choice[0]], guarantee, choice)
    return plan_module.planned(CELLS, guarantee, choice)


def release(plan: IntervalPlan, counts: Any, noise: Any) -> Any:
    return release_intervals(plan, np.array(counts, np.int64), noise)


def subject(choice: Choice, guarantee: Guarantee) -> Subject:
    most, relation = guarantee.max_records_per_unit, guarantee.neighboring.value
    held = units(CELLS, most)
    return Subject(
        guarantee,
        functools.partial(planned, choice),
        release,
        lambda: counts_beside(([0] * CELLS, BASE), neighbours(held, relation)),
        least=least_share(choice),
    )


def lower_sensitivity(kind: Any, by: int) -> Bug:
    """A sensitivity that forgets one level, such as the root."""
    original = kind.l1_sensitivity
    return lambda patch: patch.setattr(
        kind, "l1_sensitivity", property(lambda self: max(1, original.fget(self) - by))
    )


def pad_to_the_last_record(patch: Patch) -> None:
    """Padding that ends where the data do."""
    original = TextbookTree.measure

    def mutant(self: TextbookTree, counts: np.ndarray) -> np.ndarray:
        used = int(np.max(np.nonzero(counts)[0], initial=0)) + 1
        return original(TextbookTree(used, self.has_root), counts[:used])

    patch.setattr(TextbookTree, "measure", mutant)
    patch.setattr(TextbookTree, "estimate", lambda self, noisy: None)


ODD: dict[str, dict[str, Bug]] = {
    "textbook_tree": {
        "a level not counted": lower_sensitivity(TextbookTree, 1),
        "padding that depends on the data": pad_to_the_last_record,
    },
    "tree": {"a level not counted": lower_sensitivity(Hierarchy, 1)},
    "windows": {"windows not counted": lower_sensitivity(Hierarchy, 3000)},
}


def audits() -> list[Audit]:
    found = []
    for choice, relation, most in itertools.product(PURE + GAUSSIAN, (ADD, REPLACE), (1, 2)):
        name, is_pure = choice[0], choice[1] == "discrete_laplace"
        guarantee = promise(relation, *((0.0, 3.0) if is_pure else (DELTA, 2.0)), most)
        checks = {"price": lambda *case: price(subject(*case))}
        bugs = {"price": derived(guarantee, draws=1, least=least_share(choice))}
        if is_pure:
            bugs["price"] |= ODD.get(name, {})
        title = f"intervals, {name}, {'pure' if is_pure else 'delta'}, k = {most}"
        found.append(audited(title, guarantee, checks, bugs, choice, guarantee))
    return found

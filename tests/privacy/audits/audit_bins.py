"""Bins of a column: the price over all neighbours, and the exact law of what is found.

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
    DELTA,
    Audit,
    Bug,
    Finding,
    around,
    audited,
    derived,
    replaced,
)
from subjects import Subject, beside, exact_law, price
from tiny import ADD, REPLACE, Unit, neighbours, promise, units

from beam_dp.domain.ordered import NumericAttribute
from beam_dp.interval_strategies.hierarchy import tree
from beam_dp.mechanisms.discovery import bins as bins_module
from beam_dp.mechanisms.discovery.bins import Bins, BinsPlan, plan_bins
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee

GRID = 5
TREE = tree((2, 4))
# Other units, with one record or two.
BASES: tuple[tuple[Unit, ...], ...] = ((), ((0,), (0, 1), (3,)))


def weight(num_records: int) -> int:
    """What a record of a unit adds to its leaf."""
    return GRID // num_records


def sums(held: Sequence[Unit], num_leaves: int) -> np.ndarray:
    counts = np.zeros(num_leaves, np.int64)
    for unit in held:
        np.add.at(counts, list(unit), weight(len(unit)) if unit else 0)
    return counts


def planned(num_leaves: int, promised: Guarantee) -> BinsPlan:
    leaves = NumericAttribute("a", tuple(range(num_leaves + 1)))
    loss: dict[str, Any] = {"epsilon": promised.epsilon}
    if promised.delta:
        loss = {"mu": discrete_gaussian_mu(promised.epsilon, promised.delta)}
    return plan_bins(leaves, 2, promised.neighboring, grid=GRID, **loss)


def release(plan: BinsPlan, held: Sequence[Unit], noise: Any) -> Bins:
    return plan.release(sums(held, plan.leaves.num_levels), noise)


def subject(guarantee: Guarantee, num_leaves: int, bases: Any = BASES) -> Subject:
    held = units(num_leaves, guarantee.max_records_per_unit)
    return Subject(
        guarantee,
        functools.partial(planned, num_leaves),
        release,
        lambda: beside(bases, neighbours(held, guarantee.neighboring.value)),
    )


def law(guarantee: Guarantee) -> Finding:
    """Of the bins and counts of two leaves."""
    two = subject(guarantee, 2, ((), ((0,),), ((0,), (1,))))
    return exact_law(two, lambda bins: (bins.cuts, bins.counts), least=0.6, ends=(-4, 14))


def with_tree(check: Any, guarantee: Guarantee) -> Finding:
    """Runs a check where four leaves have a tree, instead of their histogram."""
    four, original = subject(guarantee, TREE.num_leaves), bins_module.best_tree
    bins_module.best_tree = lambda leaves, power: (
        TREE if leaves == TREE.num_leaves else original(leaves, power)
    )
    try:
        return check(four)
    finally:
        bins_module.best_tree = original


def _without_empty_ends(release: Any, plan: BinsPlan, counts: Any, noise: Any) -> Bins:
    """Cuts off the ends that are empty, instead of those that seem to be empty."""
    bins = release(plan, counts, noise)
    used = np.flatnonzero(counts)
    ends = {int(used[0]), int(used[-1]) + 1} if len(used) else {0, len(counts)}
    return dataclasses.replace(bins, cuts=tuple(sorted(ends)))


def a_level_not_counted(delta: float) -> Bug:
    factor = 0.5**0.5 if delta else 0.5
    return around(
        sys.modules[__name__],
        "plan_bins",
        lambda plan, *given, **named: dataclasses.replace(
            found := plan(*given, **named), scale=found.scale * factor
        ),
    )


def audits() -> list[Audit]:
    found = []
    for delta, relation, most in itertools.product((0.0, DELTA), (ADD, REPLACE), (1, 2)):
        guarantee = promise(relation, delta, 2.0 if delta else 3.0, most)
        # Two records of a unit share what one has.
        bugs = {"price": derived(guarantee, draws=1, without=("k ignored",))}
        bugs["price"]["a level not counted"] = a_level_not_counted(delta)
        if most > 1:
            bugs["price"]["records counted instead of units"] = replaced(
                sys.modules[__name__], "weight", lambda _: GRID
            )
        checks = {"price": functools.partial(with_tree, price)}
        if not delta:
            checks["law"] = law
            bugs["law"] = {"exact ends": around(BinsPlan, "release", _without_empty_ends)}
        name = f"bins, {'delta' if delta else 'pure'}, k = {most}"
        found.append(audited(name, guarantee, checks, bugs, guarantee, dear=("law",)))
    return found

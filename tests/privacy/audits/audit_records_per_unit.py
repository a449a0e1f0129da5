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
from tiny import ADD, REPLACE, neighbours, promise, share_spent

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.discovery.records_per_unit import (
    RECORDS_SHARE,
    RecordsPlan,
    plan_records,
    records_of,
)
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.summaries import records_per_unit as counting
from beam_dp.testing import audit

HERE = sys.modules[__name__]
MOST = 4  # so there are four levels
EPSILON = 3.0  # of the choice
# The numbers of records of other units.
BASES: tuple[tuple[int, ...], ...] = ((), (1, 1, 3))
HELD = [(), (1,), (2,), (4,), (5,), (1000,)]
RUNS = 1500


def planned_for(guarantee: Guarantee) -> Guarantee:
    """The guarantee that noise is planned for: the promised one, but in some mutants."""
    return guarantee


def planned(guarantee: Guarantee, most: int = MOST) -> RecordsPlan:
    """The plan whose choice has the guarantee; the later release has the rest of the whole."""
    promised = planned_for(guarantee)
    epsilon = promised.epsilon / RECORDS_SHARE
    whole = dataclasses.replace(promised, epsilon=epsilon, max_records_per_unit=most)
    return plan_records(Domain(()), whole, 0.1)


def levels(held: Sequence[int], most: int = MOST) -> np.ndarray:
    """The number of units in each level, by the code that counts them."""
    rows = np.repeat(np.arange(len(held), dtype=np.uint64), 2)
    units = np.stack((rows, rows * np.uint64(7)))
    counts = np.array([part for n in held for part in (n - n // 2, n // 2)], np.int64)
    kept = counts > 0
    found = counting.levels_of_units(units[:, kept], counts[kept], most)
    return np.bincount(found, minlength=most).astype(np.int64)


def release(plan: RecordsPlan, held: Sequence[int], noise: Any) -> Any:
    return plan.release(levels(held, plan.most), noise)


def draws(plan: RecordsPlan, held: Sequence[int]) -> list[Draw]:
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


def exact_law(guarantee: Guarantee) -> Finding:
    """The law of the chosen number and the counts of two levels, over all neighbours."""
    plan = planned(guarantee, 2)
    low, high = -3, 7

    @functools.cache
    def law(held: tuple[int, ...]) -> dict[Any, float]:
        laws = [
            audit.discrete_laplace(plan.counts.scale, int(each), low, high)
            for each in levels(held, 2)
        ]
        found: dict[Any, float] = {}
        for noisy, probability in audit.product_law(laws).items():
            drawn = release(plan, held, Given(noisy))
            places = np.arange(2)
            counts = drawn.estimate.answer(places, places)
            outcome = (records_of(drawn).main.max_records_per_unit, *counts.tolist())
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
        logs = [-np.abs(noisy - each).sum() / plan.counts.scale for each in exact]
        return round(float(logs[0] - logs[1]), 3)

    observed = [repeated(functools.partial(ratio, each)) for each in sides]
    return told_apart(observed, guarantee, runs=RUNS, score=float)


def plan_with(**changed: Any) -> Bug:
    return replaced(HERE, "planned_for", lambda promised: dataclasses.replace(promised, **changed))


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


def _choose_exactly(original: Any, plan: RecordsPlan, counts: Any, noise: Any) -> Any:
    """The noise of the choice follows from the exact counts: empty levels at the end stay empty."""
    found = original(plan, counts, noise)
    exact = original(plan, counts, NoNoise())
    return found if counts[-1] else dataclasses.replace(found, estimate=exact.estimate)


def bugs_of(guarantee: Guarantee) -> dict[str, dict[str, Bug]]:
    found: dict[str, dict[str, Bug]] = {
        "price": {
            "epsilon doubled": plan_with(epsilon=2 * guarantee.epsilon),
            "records counted instead of units": around(counting, "levels_of_units", _count_records),
            "number of a unit's records without bound": around(
                counting, "levels_of_units", _without_bound
            ),
        },
        "law": {"exact counts without units": around(RecordsPlan, "release", _choose_exactly)},
        "black box": {"empty levels without noise": skip_empty_cells},
    }
    if guarantee.neighboring == REPLACE:
        found["price"]["replace-one run with add-remove noise"] = plan_with(neighboring=ADD)
    else:
        found["black box"]["noise scale halved in the sampler"] = halve_scales
    return found


def audits() -> list[Audit]:
    """The choice under both relations."""
    checks: dict[str, Any] = {"price": price, "law": exact_law, "black box": black_box}
    return [
        audited("records per unit", guarantee, checks, bugs_of(guarantee), guarantee)
        for guarantee in (promise(relation, 0.0, EPSILON, MOST) for relation in (ADD, REPLACE))
    ]

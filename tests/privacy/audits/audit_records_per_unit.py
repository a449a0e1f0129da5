"""The choice of the records per unit: its price over all neighbours, and its exact law.

A unit may have any number of records, also far more than can be chosen.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from auditing import Audit, Finding, around, audited, derived
from noise_sources import NoNoise
from subjects import Subject, exact_law, price
from tiny import ADD, REPLACE, neighbours, promise

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.discovery.records_per_unit import (
    RECORDS_SHARE,
    RecordsPlan,
    plan_records,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.intervals.choice import records_of
from beam_dp.summaries import records_per_unit as counting

MOST = 4  # so there are four levels
EPSILON = 3.0  # of the choice
# The numbers of records of other units.
BASES: tuple[tuple[int, ...], ...] = ((), (1, 1, 3))
HELD = [(), (1,), (2,), (4,), (5,), (1000,)]


def planned(most: int, promised: Guarantee) -> RecordsPlan:
    """The plan whose choice has the guarantee; the later release has the rest of the whole."""
    epsilon = promised.epsilon / RECORDS_SHARE
    whole = dataclasses.replace(promised, epsilon=epsilon, max_records_per_unit=most)
    return plan_records(Domain(()), whole, 0.1)


def levels(held: Sequence[int], most: int) -> np.ndarray:
    """The number of units in each level, by the code that counts them."""
    rows = np.repeat(np.arange(len(held), dtype=np.uint64), 2)
    units = np.stack((rows, rows * np.uint64(7)))
    counts = np.array([part for n in held for part in (n - n // 2, n // 2)], np.int64)
    kept = counts > 0
    found = counting.levels_of_units(units[:, kept], counts[kept], most)
    return np.bincount(found, minlength=most).astype(np.int64)


def release(plan: RecordsPlan, held: Sequence[int], noise: Any) -> Any:
    return plan.release(levels(held, plan.most), noise)


def subject(guarantee: Guarantee, most: int = MOST, bases: Any = BASES) -> Subject:
    relation = guarantee.neighboring.value
    return Subject(
        guarantee,
        functools.partial(planned, most),
        release,
        lambda: [
            ((*base, *one), (*base, *other))
            for base in bases
            for one, other in neighbours(HELD, relation)
        ],
    )


def law(guarantee: Guarantee) -> Finding:
    """Of the chosen number and the counts of two levels."""

    def seen(drawn: Any) -> Any:
        counts = drawn.estimate.answer(np.arange(2), np.arange(2))
        return (records_of(drawn).main.max_records_per_unit, *counts.tolist())

    two = subject(guarantee, 2, [(), (1,), (2,), (2, 3), (2, 2, 9)])
    return exact_law(two, seen, least=0.9, ends=(-3, 7))


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


BUGS = {
    name: around(counting, "levels_of_units", bug)
    for name, bug in (
        ("records counted instead of units", _count_records),
        ("number of a unit's records without bound", _without_bound),
    )
}


def audits() -> list[Audit]:
    """The choice under both relations; it counts units, of however many records."""
    checks: dict[str, Any] = {
        "price": lambda guarantee: price(subject(guarantee)),
        "law": law,
    }
    found = []
    for relation in (ADD, REPLACE):
        guarantee = promise(relation, 0.0, EPSILON, MOST)
        bugs = {
            "price": derived(guarantee, draws=1, without=("k ignored",)) | BUGS,
            "law": {"exact counts without units": around(RecordsPlan, "release", _choose_exactly)},
        }
        found.append(audited("records per unit", guarantee, checks, bugs, guarantee, dear=("law",)))
    return found

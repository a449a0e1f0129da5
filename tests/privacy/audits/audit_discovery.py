"""Audits of the thresholds by which texts are discovered, and the mutants that they must catch.

"law": the exact output law for two texts, over everything that one unit can have. "bound": what the
sums of a unit with few or very many texts spend of mu.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from auditing import (
    Audit,
    Bug,
    Finding,
    around,
    audited,
    derived,
    replaced,
)
from numpy.typing import NDArray
from sketch_laws import Shifted, promise
from subjects import Subject, price
from tiny import ADD, REPLACE

from beam_dp.encoding import open_values as open_module
from beam_dp.mechanisms.discovery import values as values_module
from beam_dp.mechanisms.discovery.values import ValuesPlan
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import gaussian_delta
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.testing.audit import (
    Law,
    discrete_gaussian,
    hockey_stick,
    neighbouring_units,
    product_law,
    unit_holdings,
)
from beam_dp.verification.steps import gaussian_epsilon

TEXTS = ("a", "b")
MOST = 2
# So large that laws of a few outcomes and a few thousand runs resolve them.
MU, SLACK, DELTA = 2.0, 0.01, 0.01
EPSILON = gaussian_epsilon(Fraction(MU) ** 2, Fraction(DELTA))
COARSE = 8  # steps of a unit, so that laws have few outcomes
ABOVE = 60  # larger noisy sums are clipped


def plan_for(guarantee: Guarantee, grid: int = COARSE) -> ValuesPlan:
    return values_module.plan_values("text", guarantee, MU, SLACK, 10**6, grid=grid)


def sums_of(held: Sequence[int], grid: int, most: int = MOST) -> dict[int, int]:
    """What the records of one unit add to the sum of each text."""
    names = [np.array(held, np.uint64) + np.uint64(5), np.zeros(len(held), np.uint64)]
    units = np.tile(np.array([[7], [9]], np.uint64), len(held))
    words, ones = [np.zeros(len(held), np.uint16), *names], np.ones(len(held), np.int64)
    with mock.patch.object(open_module, "GRID", grid):
        kept = open_module.kept_values(1, most, units, words, ones)
    assert kept.names is not None
    found: dict[int, int] = {}
    for name, weight in zip(
        (kept.names[0] - np.uint64(5)).tolist(), kept.weights.tolist(), strict=True
    ):
        found[name] = found.get(name, 0) + weight
    return found


def release_of(plan: ValuesPlan, sums: dict[str, int], noise: NoiseSource) -> dict[str, int]:
    """The released texts and sums, in steps; a text without weight is not in the data."""
    held = {text: weight for text, weight in sums.items() if weight}
    texts = pa.array([text.encode() for text in held], pa.large_binary())
    found = plan.release(texts, np.array(list(held.values()), np.int64), noise)
    return {text: round(units * plan.grid) for text, units in found}


def law_of(plan: ValuesPlan, sums: dict[str, int]) -> Law:
    """The exact law of what is released of each text; None is nothing."""
    far = math.ceil(9 * plan.scale)
    cap = plan.threshold + ABOVE
    laws: dict[str, dict[int | None, float]] = {text: {} for text in sums}
    for shift, probability in discrete_gaussian(plan.scale, 0, -far, far).items():
        found = release_of(plan, sums, Shifted(shift))
        for text, law in laws.items():
            outcome = min(found[text], cap) if text in found else None
            law[outcome] = law.get(outcome, 0.0) + probability
    return product_law(list(laws.values()))


def law(guarantee: Guarantee) -> Finding:
    plan = plan_for(guarantee)
    near, far = plan.threshold, plan.threshold + ABOVE // 2
    worst = 0.0
    for base in ((0, 0), (near, 0), (near, far), (far, far)):
        laws = {}
        for held in unit_holdings(range(len(TEXTS)), MOST):
            own = sums_of(held, COARSE)
            sums = {text: base[n] + own.get(n, 0) for n, text in enumerate(TEXTS)}
            laws[held] = law_of(plan, sums)
        for one, other in neighbouring_units(range(len(TEXTS)), guarantee.neighboring, MOST):
            for epsilon in (0.25, 1.0, 2.0, 4.0):
                allowed = gaussian_delta(MU, epsilon) + SLACK
                for pair in ((laws[one], laws[other]), (laws[other], laws[one])):
                    worst = max(worst, hockey_stick(*pair, epsilon) / allowed)
    # Not much more noise than is needed.
    return Finding(0.7 < worst <= 1 + 1e-9)


def subject(guarantee: Guarantee) -> Subject:
    """Sums of texts that all others have so often that they are released in any case."""
    sums = functools.cache(lambda held: sums_of(held, open_module.GRID))

    def release(plan: ValuesPlan, held: tuple[int, ...], noise: NoiseSource) -> None:
        many = 2 * plan.threshold
        release_of(plan, {text: many + sums(held).get(n, 0) for n, text in enumerate(TEXTS)}, noise)

    return Subject(
        promise(guarantee.neighboring.value, MOST, DELTA, EPSILON),
        lambda promised: plan_for(promised, open_module.GRID),
        release,
        lambda: neighbouring_units(range(len(TEXTS)), guarantee.neighboring, MOST),
    )


def bound(guarantee: Guarantee) -> Finding:
    """The share of mu^2 that neighbours spend on texts that all others have as well.

    A unit has at most k texts, for which the threshold's slack is planned.
    """
    shares = []
    is_limited = True
    grid = open_module.GRID
    for most in (1, 2, 3, 10):
        plan = plan_for(promise(guarantee.neighboring.value, most, DELTA + SLACK, EPSILON), grid)
        holdings = [range(size) for size in (1, 2, most, 2_000)] + [
            [0] * 500,
            [*range(9), *[1] * 90],
        ]
        sums = [sums_of(list(held), grid, most) for held in holdings]
        is_limited &= max(map(len, sums)) <= most
        others: list[dict[int, int]] = [{}]
        if guarantee.neighboring == REPLACE:
            others += [{text + 10**6: weight for text, weight in each.items()} for each in sums]
        spent = [_moved(one, other) for one in sums for other in others]
        shares.append(max(spent) / (plan.scale**2 - 4) / MU**2)
    return Finding(is_limited and min(shares) > 0.999 and max(shares) <= 1 + 1e-9)


def _moved(one: dict[int, int], other: dict[int, int]) -> int:
    return sum((one.get(text, 0) - other.get(text, 0)) ** 2 for text in one.keys() | other.keys())


def with_weights(weight: Callable[[NDArray[np.int64]], Any]) -> Bug:
    """The weight of a unit's text, from the number of its texts."""

    def weights(unit: NDArray[np.intp], *, is_text: bool) -> NDArray[np.int64]:
        return np.asarray(weight(np.bincount(unit)[unit]), np.int64)

    return replaced(open_module, "_weights", weights)


def with_threshold(threshold: Callable[..., int]) -> Bug:
    return around(values_module, "least_threshold", threshold)


def release_all_of_one(original: Any, self: ValuesPlan, texts: Any, sums: Any, noise: Any) -> Any:
    """A text that no other unit has is released as well, if its count is the largest."""
    found = original(self, texts, sums, noise)
    return found or [(text.decode(), 0.0) for text in texts.to_pylist()[:1]]


NOT_COUNTED = with_weights(lambda number: np.full(len(number), open_module.GRID))
ROUNDED_UP = with_weights(lambda number: np.ceil(open_module.GRID / np.sqrt(number)))
RECORDS_COUNTED = replaced(
    open_module, "distinct_records", lambda units, words: np.arange(len(words[0]))
)
TEXTS_NOT_LIMITED = around(
    open_module,
    "select_records",
    lambda original, units, words, counts, most, costs: np.repeat(np.arange(len(counts)), counts),
)
WITHOUT_DELTA = with_threshold(lambda original, scale, slack, k, grid: grid + 1)
LAW_BUGS = {
    "threshold without delta": WITHOUT_DELTA,
    "text of one unit released": around(ValuesPlan, "release", release_all_of_one),
    "records counted instead of units": RECORDS_COUNTED,
}
REPLACED_AS_ADDED = around(
    values_module,
    "discrete_parameter",
    lambda original, squared: original(Fraction(squared) / 2),
)


def audits() -> list[Audit]:
    """The discovery of texts under either relation, with two texts a unit."""
    found = []
    for relation in (ADD, REPLACE):
        guarantee = promise(relation, MOST, DELTA + SLACK, EPSILON)
        checks = {
            "price": lambda guarantee: price(subject(guarantee)),
            "law": law,
            "bound": bound,
        }
        # Its noise is planned for a mu of its own, and all texts are there already.
        without = "sensitivity halved", "k ignored", "empty cells skipped"
        bugs: dict[str, dict[str, Bug]] = {
            "price": derived(guarantee, draws=1, without=without),
            "law": dict(LAW_BUGS),
            "bound": {
                "weights not rounded down": ROUNDED_UP,
                "number of a unit's texts not counted, many texts": NOT_COUNTED,
                "texts of a unit not limited": TEXTS_NOT_LIMITED,
            },
        }
        if relation == ADD:
            bugs["law"]["number of a unit's texts not counted"] = NOT_COUNTED
        else:
            bugs["bound"]["replaced as if added"] = REPLACED_AS_ADDED
        found.append(audited("discovered texts", guarantee, checks, bugs, guarantee, dear=("law",)))
    return found

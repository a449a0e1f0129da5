"""Audits of the thresholds by which texts are discovered, and the mutants that they must catch.

"law": the exact output law for two texts, over everything that one unit can have. "bound": what the
sums of a unit with few or very many texts spend of mu.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import itertools
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
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
from noise_sources import NoNoise, Scripted
from numpy.typing import NDArray
from sketch_laws import Shifted, promise as large_promise
from subjects import Subject, beside, exact_law, price
from tiny import ADD, REPLACE, Unit, neighbours, promise, units

from beam_dp.domain import discover as discover_module
from beam_dp.domain.discover import OpenAttribute
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.domain.readings import READINGS, TEXT, WHOLE
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.discovery import bins as bins_module, plan as values_module
from beam_dp.mechanisms.discovery.bins import Bins, BinsPlan, plan_bins
from beam_dp.mechanisms.discovery.plan import ValuesPlan
from beam_dp.mechanisms.discovery.records_per_unit import (
    RECORDS_SHARE,
    RecordsPlan,
    plan_records,
)
from beam_dp.privacy.accounting import discrete_gaussian_mu, gaussian_delta
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.steps import gaussian_epsilon
from beam_dp.releases.domain.earlier import records_of
from beam_dp.secret.encoding import open_values as open_module
from beam_dp.secret.encoding.open_values import OpenColumns
from beam_dp.secret.summaries import sparse_counts as counting
from beam_dp.testing.audit import (
    Law,
    discrete_gaussian,
    hockey_stick,
    neighbouring_units,
    product_law,
    unit_holdings,
)

TEXTS = ("a", "b")
MOST = 2
# So large that laws of a few outcomes and a few thousand runs resolve them.
MU, SLACK, LARGE_DELTA = 2.0, 0.01, 0.01
EPSILON = gaussian_epsilon(Fraction(MU) ** 2, Fraction(LARGE_DELTA))
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
        large_promise(guarantee.neighboring.value, MOST, LARGE_DELTA, EPSILON),
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
        promised = large_promise(guarantee.neighboring.value, most, LARGE_DELTA + SLACK, EPSILON)
        plan = plan_for(promised, grid)
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
        guarantee = large_promise(relation, MOST, LARGE_DELTA + SLACK, EPSILON)
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


# Bins of a column: leaves are counted in two levels. The records of a unit share the steps of
# the grid, which two do not divide.

GRID = 5
NUM_LEAVES, NUM_CELLS = 8, 4
# Other units, with one record or two.
OTHERS: tuple[tuple[Unit, ...], ...] = ((), ((0,), (0, 1), (3,)))


def weight(num_records: int) -> int:
    """What a record of a unit adds to its leaf."""
    return GRID // num_records


def leaves_of(held: Sequence[Unit], num_leaves: int) -> np.ndarray:
    counts = np.zeros(num_leaves, np.int64)
    for unit in held:
        np.add.at(counts, list(unit), weight(len(unit)) if unit else 0)
    return counts


def plan_of_bins(num_leaves: int, promised: Guarantee) -> BinsPlan:
    leaves = NumericAttribute("a", tuple(range(num_leaves + 1)))
    loss: dict[str, Any] = {"epsilon": promised.epsilon}
    if promised.delta:
        loss = {"mu": discrete_gaussian_mu(promised.epsilon, promised.delta)}
    return plan_bins(leaves, 2, promised.neighboring, grid=GRID, **loss)


def found_bins(plan: BinsPlan, held: Sequence[Unit], noise: Any) -> Bins:
    return plan.release(leaves_of(held, plan.leaves.num_levels), noise)


def subject_of_bins(guarantee: Guarantee, num_leaves: int, bases: Any = OTHERS) -> Subject:
    held = units(num_leaves, guarantee.max_records_per_unit)
    return Subject(
        guarantee,
        functools.partial(plan_of_bins, num_leaves),
        found_bins,
        lambda: beside(bases, neighbours(held, guarantee.neighboring.value)),
    )


def law_of_bins(guarantee: Guarantee) -> Finding:
    """Of the bins and counts of two leaves."""
    two = subject_of_bins(guarantee, 2, ((), ((0,),), ((0,), (1,))))
    return exact_law(two, lambda bins: (bins.cuts, bins.counts), least=0.6, ends=(-4, 14))


def law_of_levels(guarantee: Guarantee) -> Finding:
    """Of the bins and counts of three leaves, which are counted twice."""
    with few_cells(2):
        three = subject_of_bins(guarantee, 3, ((), ((2,), (2,))))
        return exact_law(three, lambda bins: (bins.cuts, bins.counts), least=0.95, ends=(-2, 3))


@contextlib.contextmanager
def few_cells(number: int) -> Iterator[None]:
    with (
        mock.patch.object(bins_module, "NUM_CELLS", number),
        mock.patch.object(bins_module, "_NUM_AT_END", 1),
        mock.patch.object(discover_module, "NUM_CELLS", number),
    ):
        yield


def price_of_levels(guarantee: Guarantee) -> Finding:
    """Where eight leaves are counted twice, in few cells that follow from the same answers."""
    sources = [
        functools.partial(
            Scripted, answer=lambda _, shape, sign=sign: GRID * sign * np.arange(*shape)
        )
        for sign in (-1, 0, 1)
    ]
    with few_cells(NUM_CELLS):
        subject = subject_of_bins(guarantee, NUM_LEAVES)
        return price(dataclasses.replace(subject, sources=sources))


def _without_empty_ends(found_bins: Any, plan: BinsPlan, counts: Any, noise: Any) -> Bins:
    """Cuts off the ends that are empty, instead of those that seem to be empty."""
    bins = found_bins(plan, counts, noise)
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


def audits_of_bins() -> list[Audit]:
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
        checks = {"price": price_of_levels}
        if not delta:
            is_counted_twice = relation == ADD and most == 1
            checks["law"] = law_of_levels if is_counted_twice else law_of_bins
            bugs["law"] = {"exact ends": around(BinsPlan, "release", _without_empty_ends)}
        name = f"bins, {'delta' if delta else 'pure'}, k = {most}"
        found.append(
            audited(name, guarantee, checks, bugs, guarantee, dear=("law", "law of levels"))
        )
    return found


# Votes on the type of a column: whole numbers and texts, which others have, too, or do not.

VALUES = {"w": "7", "t": "x", "m": None}
COLUMN = OpenAttribute("a", "discover")


def sums_of_votes(held: Sequence[Sequence[str]], most: int, grid: int = COARSE) -> np.ndarray:
    """The sums of weights by reading, by the code that counts tables."""
    units = [place for place, values in enumerate(held) for _ in values]
    texts = pa.array([VALUES[value] for values in held for value in values], pa.string())
    batch = pa.record_batch({"person": pa.array(units, pa.int64()), "a": texts})
    unit = Guarantee(1.0, 0.0, ADD, "person", most)  # type: ignore[arg-type]
    with mock.patch.object(open_module, "GRID", grid):
        columns = OpenColumns(None, (), (COLUMN.leaves,))
        return counting.counted_values(columns, unit, [batch]).leaves["a"]


def plan_of_vote(promised: Guarantee, grid: int = COARSE) -> BinsPlan:
    mu = discrete_gaussian_mu(promised.epsilon, promised.delta)
    return plan_bins(COLUMN.leaves, len(READINGS), promised.neighboring, mu=mu, grid=grid)


def voted(plan: BinsPlan, held: Sequence[Sequence[str]], noise: Any, most: int = MOST) -> Any:
    return values_module.vote(plan, sums_of_votes(held, most, plan.grid), noise).counts * plan.grid


def law_of_votes(guarantee: Guarantee) -> Finding:
    """Of the sums that a unit moves, each with noise of its own; what one unit has, or none."""
    plan, worst, most = plan_of_vote(guarantee), 0.0, guarantee.max_records_per_unit
    far = math.ceil(9 * plan.scale)
    noise = discrete_gaussian(plan.scale, 0, -far, far)

    @functools.cache
    def law(held: Any) -> Law:
        laws: list[dict[int, float]] = [{} for _ in READINGS]
        for shift, chance in noise.items():
            noisy = voted(plan, held, Shifted(shift), most).round().astype(int).tolist()
            for each, value in zip(laws, noisy, strict=True):
                each[value] = each.get(value, 0.0) + chance
        return product_law([laws[WHOLE], laws[TEXT]])

    for base in ((), (("w",), ("w", "t"))):
        for one, other in neighbouring_units(tuple(VALUES), guarantee.neighboring, most):
            laws = [law((*base, *([held] if held else []))) for held in (one, other)]
            for epsilon in (0.25, 1.0, 2.0):
                allowed = gaussian_delta(plan_mu(guarantee), epsilon)
                for pair in (laws, laws[::-1]):
                    worst = max(worst, hockey_stick(*pair, epsilon) / allowed)
    return Finding(0.7 < worst <= 1 + 1e-9)


def plan_mu(guarantee: Guarantee) -> float:
    return discrete_gaussian_mu(guarantee.epsilon, guarantee.delta)


def _only_present(original: Any, plan: BinsPlan, counts: Any, noise: Any) -> Any:
    """A reading that no value has gets no noise."""
    found = original(plan, counts, noise)
    return found._replace(counts=np.where(counts > 0, found.counts, 0.0))


def audits_of_votes() -> list[Audit]:
    found = []
    for relation, most in itertools.product((ADD, REPLACE), (1, 2)):
        guarantee = large_promise(relation, most, LARGE_DELTA, EPSILON)
        subject = Subject(
            guarantee,
            functools.partial(plan_of_vote, grid=open_module.GRID),
            functools.partial(voted, most=most),
            lambda guarantee=guarantee: (
                ((one,), (other,))
                for one, other in neighbouring_units(
                    tuple(VALUES), guarantee.neighboring, guarantee.max_records_per_unit
                )
            ),
        )
        checks = {"price": lambda _, subject=subject: price(subject), "law": law_of_votes}
        # The votes of a unit add up to one, however many there are.
        bugs = {
            "price": derived(guarantee, draws=1, without=("k ignored",)),
            "law": {"empty readings skipped": around(values_module, "vote", _only_present)},
        }
        if most > 1:
            bugs["law"]["number of a unit's votes not counted"] = NOT_COUNTED
        found.append(
            audited(f"types, k = {most}", guarantee, checks, bugs, guarantee, dear=("law",))
        )
    return found


# The choice of the records per unit: a unit may have any number of records, also far more than
# can be chosen.

LEVELS = 4  # so there are four levels
CHOICE_EPSILON = 3.0  # of the choice
# The numbers of records of other units.
NUMBERS: tuple[tuple[int, ...], ...] = ((), (1, 1, 3))
HELD = [(), (1,), (2,), (4,), (5,), (1000,)]


def plan_of_choice(most: int, promised: Guarantee) -> RecordsPlan:
    """The plan whose choice has the guarantee; the later chosen has the rest of the whole."""
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


def chosen(plan: RecordsPlan, held: Sequence[int], noise: Any) -> Any:
    return plan.release(levels(held, plan.max_records), noise)


def subject_of_choice(guarantee: Guarantee, most: int = LEVELS, bases: Any = NUMBERS) -> Subject:
    relation = guarantee.neighboring.value
    return Subject(
        guarantee,
        functools.partial(plan_of_choice, most),
        chosen,
        lambda: [
            ((*base, *one), (*base, *other))
            for base in bases
            for one, other in neighbours(HELD, relation)
        ],
    )


def law_of_choice(guarantee: Guarantee) -> Finding:
    """Of the chosen number and the counts of two levels."""

    def seen(drawn: Any) -> Any:
        counts = drawn.estimate.answer(np.arange(2), np.arange(2))
        return (records_of(drawn).main.max_records_per_unit, *counts.tolist())

    two = subject_of_choice(guarantee, 2, [(), (1,), (2,), (2, 3), (2, 2, 9)])
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


COUNTING_BUGS = {
    name: around(counting, "levels_of_units", bug)
    for name, bug in (
        ("records counted instead of units", _count_records),
        ("number of a unit's records without bound", _without_bound),
    )
}


def audits_of_choices() -> list[Audit]:
    """The choice under both relations; it counts units, of however many records."""
    checks: dict[str, Any] = {
        "price": lambda guarantee: price(subject_of_choice(guarantee)),
        "law": law_of_choice,
    }
    found = []
    for relation in (ADD, REPLACE):
        guarantee = promise(relation, 0.0, CHOICE_EPSILON, LEVELS)
        bugs = {
            "price": derived(guarantee, draws=1, without=("k ignored",)) | COUNTING_BUGS,
            "law": {"exact counts without units": around(RecordsPlan, "release", _choose_exactly)},
        }
        found.append(audited("records per unit", guarantee, checks, bugs, guarantee, dear=("law",)))
    return found

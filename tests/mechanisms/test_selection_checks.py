"""The last checks of a selection, of pairs and of triples: what they choose and what they cost."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import selection_bugs
from noise_sources import NoNoise, Scripted, Seeded
from selection_bugs import EITHER_WAY, LOW_SCORES
from tiny import (
    ADD,
    APPROXIMATE,
    REPLACE,
    domain_of,
    largest_share,
    neighbours,
    on_trees,
    plan_of,
    promise,
    released_faces,
    scripted,
    selects_only,
    summary,
    units,
    with_unit,
    workload_of,
)

import beam_dp as dp
from beam_dp.mechanisms.marginals import scores, selection as selection_module
from beam_dp.mechanisms.marginals.measurements import Measurement, residual_measurements
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.marginals.scores import (
    CHECKS,
    added_mu,
    candidates,
    check_budget,
    choose_left_out,
    is_off,
    num_choices,
    score_grid,
)
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.budget import Budget
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.releases.synthetic_database.strategies import Check as PlannedCheck
from beam_dp.releases.synthetic_database.verify import verify
from beam_dp.secret.summaries.histogram import Histogram

Axes = tuple[int, ...]


def names_of(axes: Axes) -> tuple[str, ...]:
    return tuple(f"a{axis}" for axis in axes)


def pairs_far(exact: np.ndarray, answer: np.ndarray, *_: Any) -> float:
    """The distance of a pair from its answer: of its worst cell."""
    return float(np.abs(exact - answer).max())


def triples_far(exact: np.ndarray, answer: np.ndarray, measured: Measurement) -> float:
    """The distance of a triple from its answer: of all cells, without what noise would leave."""
    left = np.minimum(answer, math.sqrt(2 * measured.variance / 8 / math.pi)).sum()
    return float(np.abs(exact - answer).sum() - left)


@dataclasses.dataclass(frozen=True)
class Check:
    """A check of a selection.

    ``size``: the number of attributes in a set.
    ``moved``: by how much a record moves a score, under each relation.
    ``numbers``: how many choices there are among so many candidates.
    ``answers``: of a fit, some of which are above the records of ``base`` and some below.
    """

    size: int
    moved: Mapping[str, int]
    numbers: Mapping[int, int]
    least_gain: float
    domain: dp.Domain
    base: np.ndarray
    sets: list[Axes]
    answers: Mapping[Axes, np.ndarray]
    far: Callable[..., float]
    added: str

    def budget(self, promised: dp.Guarantee, squared_mu: Fraction) -> PlannedCheck:
        return check_budget(Budget(promised, "gaussian", squared_mu), self.size)

    def tables(self, counts: np.ndarray) -> Any:
        held = Histogram(self.domain, np.asarray(counts, np.int64))
        return held.marginals(map(names_of, self.sets))


PAIRS = Check(
    2,
    {ADD: 1, REPLACE: 1},
    {0: 0, 1: 0, 2: 1, 3: 1, 7: 3, 9: 4, 10: 5, 500: 5},
    0.02,
    domain_of(3, 2, 2),
    EITHER_WAY,
    [(0, 1), (0, 2), (1, 2)],
    {
        # The first pair has more records than its answer in a cell, the last one fewer.
        (0, 1): np.zeros((3, 2)),
        (0, 2): np.array([[2.5, 0.0], [9.0, 1.0], [0.25, 7.25]]),
        (1, 2): np.array([[50.0, 0.5], [5.0, 5.0]]),
    },
    pairs_far,
    "num_added_pairs",
)
# A record with a0 = 1 and a1 = 0, in place of a record with a0 = 0 and a1 = 1, makes the first
# distance larger by 2, and the last distance smaller by 2.
FEW = np.array([50.0, 0.0]).reshape(2, 1, 1) * np.ones((2, 2, 2))
TRIPLES = Check(
    3,
    {ADD: 1, REPLACE: 2},
    {0: 0, 1: 0, 2: 1, 3: 1, 23: 11, 25: 12, 500: 12},
    0.04,
    domain_of(2, 2, 2, 2),
    np.array([3, 0, 1, 4, 0, 2, 5, 0, 1, 0, 0, 2, 7, 0, 1, 0]),
    [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)],
    {(0, 1, 2): FEW, (0, 1, 3): np.arange(8.0).reshape(2, 2, 2) / 3, (1, 2, 3): FEW},
    triples_far,
    "num_added_triples",
)
each_check = pytest.mark.parametrize("check", [PAIRS, TRIPLES], ids=["pairs", "triples"])


@each_check
def test_check_chooses_at_most_half_and_none_if_noise_is_too_strong(check):
    budget = check.budget(promise(ADD, APPROXIMATE), Fraction(1))
    assert {each: num_choices(budget, each, 1e6) for each in check.numbers} == check.numbers
    least, most = budget.choice_scale * math.log(500) / check.least_gain, check.numbers[500]
    numbers = [num_choices(budget, 500, least * factor) for factor in (0.999, 1.001)]
    assert numbers == [budget.most_by_scores, most]


@each_check
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("most", [1, 2])
def test_log_ratios_of_a_choice_have_at_most_the_paid_range(check, neighboring, most):
    """By the scores that the noise is handed, for all neighbours, and reached by some of them."""
    guarantee = promise(neighboring, APPROXIMATE, 4.0, most)
    squared_mu = Fraction(discrete_gaussian_mu(4.0, APPROXIMATE)) ** 2
    budget = check.budget(guarantee, squared_mu)
    paid = math.sqrt(CHECKS[check.size].choice_share * squared_mu / (math.pi / 8))
    held, laws = units(check.domain.num_cells, most), {}
    mu = added_mu(budget, squared_mu)
    measurement = {
        axes: residual_measurements(
            dp.Workload(check.domain, (names_of(axes),)), [axes], guarantee, mu
        )[0]
        for axes in check.answers
    }
    grid = score_grid(budget.choice_scale)
    for unit in held:
        noise, tables = Scripted([0]), check.tables(with_unit(check.base, unit))
        chosen = choose_left_out(
            check.answers, tables, check.domain, budget, 1, noise, measurement.__getitem__
        )
        assert chosen == [next(iter(check.answers))]
        (draw,) = noise.draws
        assert draw.kind == "select" and draw.scale == budget.choice_scale * grid
        far = [
            check.far(tables.marginal(names_of(axes)), answer, measurement[axes])
            for axes, answer in check.answers.items()
        ]
        np.testing.assert_allclose(draw.exact / grid, far, atol=8 / grid)
        weights = np.exp((draw.exact - draw.exact.max()) / draw.scale)
        laws[unit] = np.log(weights / weights.sum())
    ranges = [np.ptp(laws[one] - laws[other]) for one, other in neighbours(held, neighboring)]
    assert 0.99 * paid < max(ranges) <= paid * (1 + 1e-9)


def test_each_choice_takes_the_worst_remaining_pair():
    domain = domain_of(2, 2, 2, 2, 2)
    pairs = list(itertools.combinations(range(5), 2))
    names = [tuple(f"a{axis}" for axis in pair) for pair in pairs]
    tables = Histogram(domain, np.zeros(32, np.int64)).marginals(names)
    answers = {pair: np.full((2, 2), float(number)) for number, pair in enumerate(pairs)}
    guarantee = promise(ADD, APPROXIMATE)
    budget = check_budget(Budget(guarantee, "gaussian", Fraction(1)), 2)
    noise = NoNoise()
    unused: dict[Axes, Any] = {}
    arguments = tables, domain, budget, 5
    chosen = choose_left_out(answers, *arguments, noise, unused.__getitem__)
    assert chosen == pairs[:-6:-1]
    grid = score_grid(budget.choice_scale)
    for number, draw in enumerate(noise.draws):
        assert draw.exact.tolist() == [grid * each for each in range(10 - number)]
    assert len(noise.draws) == CHECKS[2].most_choices
    # What a fit made of nothing must not raise, nor move a score.
    broken = {pair: np.full((2, 2), np.nan) for pair in pairs}
    assert choose_left_out(broken, *arguments, NoNoise(), unused.__getitem__) == pairs[:5]


def test_each_choice_takes_the_worst_remaining_triple():
    guarantee = promise(ADD, APPROXIMATE)
    squared_mu, sets = Fraction(10**6), TRIPLES.sets
    budget = TRIPLES.budget(guarantee, squared_mu)
    alone = workload_of(TRIPLES.domain, 3), sets[:1], guarantee, added_mu(budget, squared_mu)
    (measured,) = residual_measurements(*alone)  # triples of the same size have the same noise
    answers = {axes: np.full((2, 2, 2), 10.0 + place) for place, axes in enumerate(sets)}
    tables = TRIPLES.tables(np.zeros(16))
    noise = NoNoise()
    chosen = choose_left_out(
        answers, tables, TRIPLES.domain, budget, 2, noise, lambda axes: measured
    )
    assert chosen == sets[:1:-1]
    assert [len(draw.exact) for draw in noise.draws] == [4, 3]


# What a check adds to a selection.


def plan_of_check(check: Check, neighboring: str = ADD) -> MarginalsPlan:
    ways = len(check.sets[0])
    guarantee = promise(neighboring, APPROXIMATE)
    return plan_of(dp.MWEM(), workload_of(check.domain, ways), guarantee, 20)


@pytest.fixture
def on_a_tree(monkeypatch, check) -> Iterator[None]:
    """A tree on which the scores chose one pair, or none; of triples, a large share of budget."""
    chosen = check.sets[:1] if check is PAIRS else []  # without any pair, none is checked
    monkeypatch.setattr(selection_module, "choose_pairs", lambda *arguments: (chosen, []))
    large = dataclasses.replace(CHECKS[3], choice_share=0.1, added_share=0.1)
    monkeypatch.setitem(CHECKS, 3, large)
    by_noise = dataclasses.replace(CHECKS[2], most_by_scores=0)
    monkeypatch.setitem(CHECKS, 2, by_noise)
    with on_trees(10):
        yield


def share_of_triples(neighboring: str = ADD) -> float:
    plan = plan_of_check(TRIPLES, neighboring)
    scripts = [scripted(seed, 3, LOW_SCORES) for seed in range(2)]
    noise = scripts[0]()
    selects_only(plan, summary(plan, TRIPLES.base), noise)
    assert [draw.exact.size for draw in noise.draws if draw.is_selection] == [4, 3]
    return largest_share(plan, plan.guarantee, selects_only, [TRIPLES.base], scripts)


# Audits see the price of a check of pairs.
of_triples = pytest.mark.parametrize("check", [TRIPLES], ids=["triples"])


@pytest.mark.job
@of_triples
@pytest.mark.parametrize(("neighboring", "least"), [(ADD, 0.999), (REPLACE, 0.9)])
def test_checked_selection_spends_the_whole_budget(check, neighboring, least, on_a_tree):
    assert least < share_of_triples(neighboring) <= 1


@pytest.mark.part
@of_triples
@pytest.mark.parametrize("bug", selection_bugs.TRIPLES)
def test_audit_detects_each_known_bug(check, bug, on_a_tree, monkeypatch):
    is_of_choices = bug.startswith("sensitivity")
    correct = share_of_triples(REPLACE) if is_of_choices else 0.0
    selection_bugs.TRIPLES[bug](monkeypatch)
    assert share_of_triples() > 1.0003
    assert not is_of_choices or share_of_triples(REPLACE) > correct + 1e-3


def faces(check: Check) -> set[bytes]:
    """The releases of several data sets, if noise has the same outputs."""
    size = check.domain.num_cells
    codes = np.indices(check.domain.shape).reshape(len(check.domain.shape), -1)
    odd = [10**6 * (codes[list(axes)].sum(axis=0) % 2) for axes in check.sets]
    bases = (np.zeros(size), np.eye(size)[3], check.base, np.full(size, 10**9), *odd)
    return released_faces(plan_of_check(check), bases, scripted(7, 3, LOW_SCORES))


@pytest.mark.job
@each_check
def test_release_depends_on_data_only_through_noisy_values(check, on_a_tree):
    assert len(faces(check)) == 1
    plan = plan_of_check(check)
    release = plan.release(summary(plan, check.base), scripted(7, 3, LOW_SCORES)())
    assert release.fit[check.added] == {2: 1, 3: 2}[check.size]


# Pairs.


def tied() -> np.ndarray:
    """Records of six attributes, where the first two follow each other in one cell alone."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4, (6, 8000))
    codes[:2, :1500] = 3
    return np.bincount(np.ravel_multi_index(codes, (4,) * 6), minlength=4**6)


@pytest.mark.job
@pytest.mark.parametrize("selected_cells", [24, 2**12])
@pytest.mark.parametrize("most_by_scores", [0, 3, 5])
def test_last_check_measures_badly_fitted_pair(most_by_scores, selected_cells):
    """It joins where the tree has room; the others, where nothing is beyond noise, do not."""
    domain = domain_of(*[4] * 6)
    with on_trees(selected_cells), pytest.MonkeyPatch.context() as patch:
        # The scores left out all pairs but one.
        patch.setattr(selection_module, "choose_pairs", lambda *arguments: ([(4, 5)], []))
        patch.setitem(CHECKS, 2, dataclasses.replace(CHECKS[2], most_by_scores=most_by_scores))
        plan = plan_of(dp.MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE), 8000)
        noise = NoNoise()
        release = dp.MWEM().release(plan, summary(plan, tied()), noise)
    has_room, most = selected_cells > 24, CHECKS[2].most_choices
    assert sum(draw.is_selection for draw in noise.draws) == most - most_by_scores
    assert release.fit["num_added_pairs"] == most
    assert release.fit["num_joined_pairs"] == 1 + int(has_room)
    assert release.fit["num_other_pairs"] == most - has_room
    measured = [tuple(entry["attributes"]) for entry in release.noise]
    singles = [(f"a{axis}",) for axis in range(6)]
    assert measured[:6] == singles and len(measured) == 13 + most
    assert measured[13] == ("a0", "a1") and all(len(names) == 2 for names in measured[13:])
    assert release.record_tables == tuple(measured[13 + has_room :])
    exact = tied().reshape((4,) * 6).sum(axis=(2, 3, 4, 5))
    far = np.abs(release.record_marginal(("a0", "a1")) - exact).max()
    assert far < 200  # independent attributes are 1,000 off


@pytest.mark.job
def test_last_check_changes_measured_pairs_but_no_noise_scale():
    """Stated bounds rely on it: neither of what came before, nor of another pair that it adds."""
    domain = domain_of(2, 3, 4, 5, 2, 3)
    before, added = set(), dict[tuple[str, ...], set[MeasuredTable]]()
    with on_trees(40), pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection_module, "choose_pairs", lambda *arguments: ([(4, 5)], []))
        patch.setitem(CHECKS, 2, dataclasses.replace(CHECKS[2], most_by_scores=0))
        plan = plan_of(dp.MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE), "noisy")
        for part in (slice(0), slice(1), slice(4), slice(1, 5)):
            choose = partial(lambda part, fitted, *_: [*fitted][part], part)
            patch.setattr(selection_module, "choose_left_out", choose)
            release = plan.release(summary(plan, np.full(domain.num_cells, 2)), Seeded(1))
            assert release.measurements is not None
            described = release.measurements.described
            number = len(described) - release.fit["num_added_pairs"]
            before.add(described[:number])
            for each in described[number:]:
                added.setdefault(each.names, set()).add(each)
    assert len(before) == 1
    assert len(added) == 5 and all(len(each) == 1 for each in added.values())


@pytest.mark.parametrize(("moved", "is_seen"), [(0, False), (100, False), (400, True)])
def test_fit_error_is_detected_only_beyond_the_noise(moved, is_seen):
    (measured,) = residual_measurements(
        workload_of(domain_of(4, 4), 2), [(0, 1)], promise(ADD, APPROXIMATE), 0.02
    )
    # A cell has a deviation of 28 records, the largest of 16 some 66; of a record 9 / 16 are in it.
    answer = np.full((4, 4), 500.0)
    noisy = answer.copy()
    noisy[1, 2] += moved
    assert is_off(measured, noisy, answer) == is_seen


# Triples.


def test_candidates_are_at_most_so_many_of_the_smallest_triples(monkeypatch):
    four = dp.Workload(domain_of(2, 1, 3, 2, 4), (("a0", "a2", "a3", "a4"),))
    monkeypatch.setattr(scores, "MOST_TRIPLES", 3)
    assert candidates(four) == [(0, 2, 3), (0, 3, 4), (0, 2, 4)]


def exclusive_or(domain: dp.Domain) -> np.ndarray:
    """Records whose third attribute is the exclusive or of the first two, but for a few."""
    rng = np.random.default_rng(3)
    codes = np.array([rng.integers(0, size, 20_000) for size in domain.shape])
    codes[2, :18_000] = codes[0, :18_000] ^ codes[1, :18_000]
    return np.bincount(np.ravel_multi_index(codes, domain.shape), minlength=domain.num_cells)


@functools.cache
def released(selected_cells: int) -> dp.SyntheticDatabase:
    domain = domain_of(2, 2, 2, 3, 2, 2)
    with on_trees(selected_cells):
        plan = plan_of(dp.MWEM(), workload_of(domain, 3), promise(ADD, APPROXIMATE), 20_000)
        return plan.release(summary(plan, exclusive_or(domain)), Seeded(5))


@pytest.mark.job
@pytest.mark.parametrize(("selected_cells", "joins"), [(14, False), (64, True)])
def test_triple_with_independent_pairs_is_measured(selected_cells, joins):
    release = released(selected_cells)
    triple = ("a0", "a1", "a2")
    number = release.fit["num_added_triples"]
    measured = [tuple(entry["attributes"]) for entry in release.noise]
    assert number == 10 and measured[-number] == triple
    assert all(len(names) == 3 for names in measured[-number:])
    assert (triple in dict(release.potentials)) == joins
    assert (triple in release.record_tables) != joins
    true = exclusive_or(release.domain).reshape(release.domain.shape).sum(axis=(3, 4, 5))
    (answer,) = release.answer(dp.Workload(release.domain, (triple,)))
    for found in (release.record_marginal(triple), answer.values):
        assert np.abs(found - true).max() < 500  # 2,250 without the triple
    assert verify(release).holds


@pytest.mark.job
def test_pairs_of_a_measured_triple_keep_the_errors_of_their_scores(monkeypatch):
    monkeypatch.setattr(selection_module, "choose_pairs", lambda *arguments: ([], []))
    release = released.__wrapped__(64)
    unmeasured = [
        pair for pair in itertools.combinations(range(3), 2) if not release.estimates.covers(pair)
    ]
    assert unmeasured
    for axes in unmeasured:
        assert axes in release.estimates._scored


@pytest.mark.job
@pytest.mark.parametrize(
    ("where", "changes"),
    [
        ("fit", {"num_added_triples": 9}),
        ("parameters", {"most_triple_choices": 5}),
        ("parameters", {"triple_choice_scale": 1.0}),
        ("parameters", {"triple_added_share": 0.1}),
        ("parameters", {"num_triples": 5}),
        ("parameters", {"num_triple_cells": 1}),
    ],
)
def test_verify_detects_a_forged_check(where, changes):
    release = released(64)
    name = {"fit": "fit", "parameters": "plan"}[where]
    forged = dataclasses.replace(release, **{name: {**getattr(release, name), **changes}})
    assert not verify(forged).holds

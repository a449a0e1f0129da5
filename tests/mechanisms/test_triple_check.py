"""The check of triples at the end of a selection: what it chooses, and what it costs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
import selection_bugs
from noise_sources import NoNoise, Scripted, Seeded
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
    scripted,
    selects_only,
    summary,
    units,
    with_unit,
    workload_of,
)

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals import pair_scores, triple_scores
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.pair_scores import score_grid
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.marginals.triple_scores import (
    ADDED_SHARE,
    CHOICE_SHARE,
    MOST_CELLS,
    candidates,
    choose_triples,
    measurement,
    num_choices,
    triples_budget,
)
from beam_dp.privacy.accounting import discrete_gaussian_mu, range_mu
from beam_dp.queries.workload import Workload
from beam_dp.releases.kinds import release_to_bytes
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.verify import verify_synthetic_database
from beam_dp.summaries.histogram import Histogram

# Two of these four triples may be chosen.
DOMAIN = domain_of(2, 2, 2, 2)
TRIPLES = [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]
BASE = np.array([3, 0, 1, 4, 0, 2, 5, 0, 1, 0, 0, 2, 7, 0, 1, 0])


def names_of(axes: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(f"a{axis}" for axis in axes)


def test_candidates_are_the_smallest_triples_of_the_workload(monkeypatch):
    domain = domain_of(2, 1, 3, 2, 4, MOST_CELLS // 2)
    assert candidates(workload_of(domain, 2)) == []
    three = Workload(domain, (("a0", "a1", "a2"), ("a4", "a2", "a0"), ("a0", "a3", "a5")))
    # An attribute of one code says nothing; the last marginal has too many cells.
    assert candidates(three) == [(0, 2, 4)]
    four = Workload(domain, (("a0", "a2", "a3", "a4"),))
    assert candidates(four) == [(0, 2, 3), (0, 3, 4), (0, 2, 4), (2, 3, 4)]
    monkeypatch.setattr(triple_scores, "MOST_TRIPLES", 3)
    assert candidates(four) == [(0, 2, 3), (0, 3, 4), (0, 2, 4)]


def test_check_chooses_at_most_half_of_the_triples_and_none_if_noise_is_too_strong():
    budget = triples_budget(promise(ADD, APPROXIMATE), Fraction(1))
    numbers = [num_choices(budget, each, 1e6) for each in (0, 1, 2, 3, 23, 25, 500)]
    assert numbers == [0, 0, 1, 1, 11, 12, 12]
    least = budget.choice_scale * math.log(500) / 0.04
    assert [num_choices(budget, 500, least * factor) for factor in (0.999, 1.001)] == [0, 12]


@pytest.mark.parametrize(("neighboring", "moved"), [(ADD, 1), (REPLACE, 2)])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
def test_choice_and_added_triple_spend_their_shares(neighboring, moved, most, epsilon):
    squared_mu = Fraction(discrete_gaussian_mu(epsilon, APPROXIMATE)) ** 2
    budget = triples_budget(promise(neighboring, APPROXIMATE, epsilon, most), squared_mu)
    choice = range_mu(2 * moved * most / Fraction(budget.choice_scale)) ** 2
    assert choice <= Fraction(CHOICE_SHARE) * squared_mu
    assert choice == pytest.approx(float(CHOICE_SHARE * squared_mu), rel=1e-9)
    assert choice + Fraction(budget.added) ** 2 <= budget.squared_mu
    assert budget.added**2 == pytest.approx(float(ADDED_SHARE * squared_mu), rel=1e-9)


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("most", [1, 2])
def test_log_ratios_of_a_choice_have_at_most_the_paid_range(neighboring, most):
    """The exact law of a choice, for all neighbours; some of them reach the paid range."""
    guarantee = promise(neighboring, APPROXIMATE, 4.0, most)
    squared_mu = Fraction(discrete_gaussian_mu(4.0, APPROXIMATE)) ** 2
    budget = triples_budget(guarantee, squared_mu)
    paid = math.sqrt(CHOICE_SHARE * squared_mu / (math.pi / 8))
    # A record with a0 = 1 and a1 = 0, in place of a record with a0 = 0 and a1 = 1, makes the first
    # distance larger by 2, and the last distance smaller by 2.
    few = np.array([50.0, 0.0]).reshape(2, 1, 1) * np.ones((2, 2, 2))
    answers = {
        (0, 1, 2): few,
        (0, 1, 3): np.arange(8.0).reshape(2, 2, 2) / 3,
        (1, 2, 3): few,
    }
    held = units(DOMAIN.num_cells, most)
    laws = {}
    for unit in held:
        noise = Scripted([0])
        counts = with_unit(BASE, unit)
        tables = Histogram(DOMAIN, counts).marginals(map(names_of, TRIPLES))
        chosen = choose_triples(answers, tables, DOMAIN, guarantee, budget, 1, noise)
        assert chosen == [(0, 1, 2)]
        (draw,) = noise.draws
        grid = score_grid(budget.choice_scale)
        assert draw.kind == "select" and draw.scale == budget.choice_scale * grid
        far = []
        for axes, answer in answers.items():
            variance = measurement(DOMAIN, axes, guarantee, budget).variance / 8
            left = np.minimum(answer, math.sqrt(2 * variance / math.pi)).sum()
            far.append(np.abs(tables.marginal(names_of(axes)) - answer).sum() - left)
        np.testing.assert_allclose(draw.exact / grid, far, atol=8 / grid)
        weights = np.exp((draw.exact - draw.exact.max()) / draw.scale)
        laws[unit] = np.log(weights / weights.sum())
    ranges = [np.ptp(laws[one] - laws[other]) for one, other in neighbours(held, neighboring)]
    assert max(ranges) <= paid * (1 + 1e-9)
    assert max(ranges) > 0.99 * paid


def test_each_choice_takes_the_worst_remaining_triple():
    guarantee = promise(ADD, APPROXIMATE)
    budget = triples_budget(guarantee, Fraction(10**6))
    tables = Histogram(DOMAIN, np.zeros(16, np.int64)).marginals(map(names_of, TRIPLES))
    answers = {axes: np.full((2, 2, 2), 10.0 + place) for place, axes in enumerate(TRIPLES)}
    noise = NoNoise()
    chosen = choose_triples(answers, tables, DOMAIN, guarantee, budget, 2, noise)
    assert chosen == TRIPLES[:1:-1]
    assert [len(draw.exact) for draw in noise.draws] == [4, 3]


def plan_of_triples(neighboring: str = ADD) -> MarginalsPlan:
    return plan_of(MWEM(), workload_of(DOMAIN, 3), promise(neighboring, APPROXIMATE), 20)


@pytest.fixture
def on_a_tree(monkeypatch):
    # A large share of the budget makes bugs visible; no pair is chosen.
    monkeypatch.setattr(triple_scores, "CHOICE_SHARE", 0.1)
    monkeypatch.setattr(triple_scores, "ADDED_SHARE", 0.1)
    monkeypatch.setattr(pair_scores, "MOST_CHOICES", 0)
    with on_trees(10):
        yield


def share_of_a_check(neighboring: str = ADD) -> float:
    guarantee = promise(neighboring, APPROXIMATE)
    plan = plan_of_triples(neighboring)
    noise = scripted(0, 3, selection_bugs.LOW_SCORES)()
    selects_only(plan, summary(plan, BASE), noise)
    sizes = [draw.exact.size for draw in noise.draws if draw.is_selection]
    assert sizes == [4, 3]
    scripts = [scripted(seed, 3, selection_bugs.LOW_SCORES) for seed in range(2)]
    return largest_share(plan, guarantee, selects_only, [BASE], scripts)


@pytest.mark.parametrize(("neighboring", "least"), [(ADD, 0.999), (REPLACE, 0.9)])
def test_checked_selection_spends_the_whole_budget(neighboring, least, on_a_tree):
    assert least < share_of_a_check(neighboring) <= 1


@pytest.mark.parametrize("bug", selection_bugs.TRIPLES)
def test_audit_detects_each_known_bug(bug, on_a_tree, monkeypatch):
    selection_bugs.TRIPLES[bug](monkeypatch)
    assert share_of_a_check() > 1.0003


def test_detects_a_replacement_priced_as_one_record(on_a_tree, monkeypatch):
    correct = share_of_a_check(REPLACE)
    selection_bugs.replacement_moves_one(monkeypatch)
    assert share_of_a_check(REPLACE) > correct + 1e-3


def released_faces() -> set[bytes]:
    plan, faces = plan_of_triples(), set()
    codes = np.indices(DOMAIN.shape).reshape(4, -1)
    sums = [10**6 * (codes[list(axes)].sum(axis=0) % 2) for axes in TRIPLES]
    for counts in (np.zeros(16), np.eye(16)[3], BASE, *sums):
        script = scripted(7, 3, selection_bugs.LOW_SCORES)
        release = MWEM().release(plan, summary(plan, counts), script())
        assert release.fit["num_added_triples"] == 2
        faces.add(release_to_bytes(release))
    return faces


def test_release_depends_on_data_only_through_noisy_values(on_a_tree):
    assert len(released_faces()) == 1


def test_detects_choices_without_noise(on_a_tree, monkeypatch):
    selection_bugs.exact_triples(monkeypatch)
    assert len(released_faces()) > 1


def exclusive_or(domain: Domain) -> np.ndarray:
    """Records whose third attribute is the exclusive or of the first two, but for a few."""
    rng = np.random.default_rng(3)
    codes = np.array([rng.integers(0, size, 20_000) for size in domain.shape])
    codes[2, :18_000] = codes[0, :18_000] ^ codes[1, :18_000]
    return np.bincount(np.ravel_multi_index(codes, domain.shape), minlength=domain.num_cells)


@functools.cache
def released(selected_cells: int) -> SyntheticDatabase:
    domain = domain_of(2, 2, 2, 3, 2, 2)
    with on_trees(selected_cells):
        plan = plan_of(MWEM(), workload_of(domain, 3), promise(ADD, APPROXIMATE), 20_000)
        return plan.release(summary(plan, exclusive_or(domain)), Seeded(5))


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
    (answer,) = release.answer(Workload(release.domain, (triple,)))
    for found in (release.record_marginal(triple), answer.values):
        assert np.abs(found - true).max() < 500  # 2,250 without the triple
    assert verify_synthetic_database(release).holds


def test_pairs_of_a_measured_triple_keep_the_errors_of_their_scores():
    release = released(64)
    unmeasured = [
        pair for pair in itertools.combinations(range(3), 2) if not release.estimates.covers(pair)
    ]
    assert unmeasured
    for axes in unmeasured:
        assert axes in release.estimates._scored


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
    assert not verify_synthetic_database(forged).holds

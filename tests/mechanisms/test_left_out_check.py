"""The last check of a selection: what it chooses among the pairs left out, and what it costs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from functools import partial

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
    scripted,
    selects_only,
    summary,
    units,
    with_unit,
    workload_of,
)

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals import selection as selection_module
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.measurements import residual_measurements
from beam_dp.mechanisms.marginals.pair_scores import (
    ADDED_SHARE,
    CHOICE_SHARE,
    MOST_CHOICES,
    check_budget,
    choose_left_out,
    is_off,
    num_choices,
    score_grid,
)
from beam_dp.privacy.accounting import discrete_gaussian_mu, range_mu
from beam_dp.releases.kinds import release_to_bytes
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.summaries.histogram import Histogram, Marginals

DOMAIN = domain_of(3, 2, 2)
PAIRS = [(0, 1), (0, 2), (1, 2)]


def counted(domain: Domain, counts: np.ndarray) -> Marginals:
    names = [tuple(domain.names[axis] for axis in pair) for pair in PAIRS]
    return Histogram(domain, np.asarray(counts, np.int64)).marginals(names)


def test_check_chooses_at_most_half_of_the_pairs_and_none_if_noise_is_too_strong():
    budget = check_budget(promise(ADD, APPROXIMATE), Fraction(1))
    numbers = [num_choices(budget, each, 1e6) for each in (0, 1, 2, 3, 7, 9, 10, 500)]
    assert numbers == [0, 0, 1, 1, 3, 4, 5, 5]
    least = budget.choice_scale * math.log(500) / 0.02
    assert [num_choices(budget, 500, least * factor) for factor in (0.999, 1.001)] == [0, 5]
    assert num_choices(budget, 0, 0.0) == 0


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("most", [1, 3])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 100.0])
def test_choice_and_added_pair_spend_their_shares_of_the_budget(neighboring, most, epsilon):
    squared_mu = Fraction(discrete_gaussian_mu(epsilon, APPROXIMATE)) ** 2
    budget = check_budget(promise(neighboring, APPROXIMATE, epsilon, most), squared_mu)
    choice = range_mu(2 * most / Fraction(budget.choice_scale)) ** 2
    assert choice <= Fraction(CHOICE_SHARE) * squared_mu
    assert choice == pytest.approx(float(CHOICE_SHARE * squared_mu), rel=1e-9)
    assert choice + Fraction(budget.added) ** 2 <= budget.squared_mu
    assert budget.added**2 == pytest.approx(float(ADDED_SHARE * squared_mu), rel=1e-9)


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("most", [1, 2])
def test_log_ratios_of_a_choice_have_at_most_the_paid_range(neighboring, most):
    """By the scores that the noise is handed, for all neighbours, and reached by some of them."""
    squared_mu = Fraction(discrete_gaussian_mu(4.0, APPROXIMATE)) ** 2
    budget = check_budget(promise(neighboring, APPROXIMATE, 4.0, most), squared_mu)
    paid = math.sqrt(CHOICE_SHARE * squared_mu / (math.pi / 8))
    # The first pair has more records than its answer in a cell, the last one fewer.
    answers = {
        (0, 1): np.zeros((3, 2)),
        (0, 2): np.array([[2.5, 0.0], [9.0, 1.0], [0.25, 7.25]]),
        (1, 2): np.array([[50.0, 0.5], [5.0, 5.0]]),
    }
    held = units(DOMAIN.num_cells, most)
    laws = {}
    for unit in held:
        noise = Scripted([0])
        tables = counted(DOMAIN, with_unit(EITHER_WAY, unit))
        assert choose_left_out(answers, tables, DOMAIN, budget, 1, noise) == [(0, 1)]
        (draw,) = noise.draws
        far = [
            np.abs(tables.marginal(tuple(f"a{axis}" for axis in pair)) - answers[pair]).max()
            for pair in PAIRS
        ]
        grid = score_grid(budget.choice_scale)
        np.testing.assert_allclose(draw.exact / grid, far, atol=1 / grid)
        assert draw.kind == "select" and draw.scale == budget.choice_scale * grid
        weights = np.exp((draw.exact - draw.exact.max()) / draw.scale)
        laws[unit] = np.log(weights / weights.sum())
    ranges = [np.ptp(laws[one] - laws[other]) for one, other in neighbours(held, neighboring)]
    assert max(ranges) <= paid * (1 + 1e-9)
    assert max(ranges) > 0.99 * paid


def test_each_choice_takes_the_worst_remaining_pair():
    domain = domain_of(2, 2, 2, 2, 2)
    pairs = list(itertools.combinations(range(5), 2))
    names = [tuple(f"a{axis}" for axis in pair) for pair in pairs]
    tables = Histogram(domain, np.zeros(32, np.int64)).marginals(names)
    answers = {pair: np.full((2, 2), float(number)) for number, pair in enumerate(pairs)}
    budget = check_budget(promise(ADD, APPROXIMATE), Fraction(1))
    noise = NoNoise()
    assert choose_left_out(answers, tables, domain, budget, 5, noise) == pairs[:-6:-1]
    grid = score_grid(budget.choice_scale)
    for number, draw in enumerate(noise.draws):
        assert draw.exact.tolist() == [grid * each for each in range(10 - number)]
    assert len(noise.draws) == MOST_CHOICES
    # What a fit made of nothing must not raise, nor move a score.
    broken = {pair: np.full((2, 2), np.nan) for pair in pairs}
    assert choose_left_out(broken, tables, domain, budget, 5, NoNoise()) == pairs[:5]


# What the check adds to a selection.


def share_of_a_check(neighboring: str = ADD) -> float:
    guarantee = promise(neighboring, APPROXIMATE)
    with on_trees(10):
        plan = plan_of(MWEM(), workload_of(DOMAIN, 2), guarantee, 20)
        noise = scripted(0, 3, LOW_SCORES)()
        selects_only(plan, summary(plan, EITHER_WAY), noise)
        assert [draw.exact.shape for draw in noise.draws if draw.is_selection] == [(3,)]
        scripts = [scripted(seed, 3, LOW_SCORES) for seed in range(3)]
        return largest_share(plan, guarantee, selects_only, [EITHER_WAY], scripts)


@pytest.mark.parametrize(("neighboring", "least"), [(ADD, 1 - 1e-9), (REPLACE, 0.97)])
def test_checked_selection_spends_the_whole_budget(neighboring, least):
    assert least < share_of_a_check(neighboring) <= 1


@pytest.mark.parametrize("bug", selection_bugs.CHECK)
def test_audit_detects_each_known_bug(bug, monkeypatch):
    selection_bugs.CHECK[bug](monkeypatch)
    assert share_of_a_check() > 1.005


def test_detects_scores_summed_over_cells_under_replacement(monkeypatch):
    selection_bugs.sums_of_cells(monkeypatch)
    assert share_of_a_check(REPLACE) > 1.005


def released_faces() -> set[bytes]:
    faces = set()
    with on_trees(10):
        plan = plan_of(MWEM(), workload_of(DOMAIN, 2), promise(ADD, APPROXIMATE), 20)
        for counts in (np.zeros(12), np.eye(12)[3], EITHER_WAY, np.full(12, 10**9)):
            release = MWEM().release(plan, summary(plan, counts), scripted(7, 3, LOW_SCORES)())
            assert release.fit["num_added_pairs"] == 1
            faces.add(release_to_bytes(release))
    return faces


def test_release_depends_on_data_only_through_noisy_values():
    assert len(released_faces()) == 1


def test_detects_choices_without_noise(monkeypatch):
    selection_bugs.exact_choices(monkeypatch)
    assert len(released_faces()) > 1


def tied() -> np.ndarray:
    """Records of six attributes, where the first two follow each other in one cell alone."""
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 4, (6, 8000))
    codes[:2, :1500] = 3
    return np.bincount(np.ravel_multi_index(codes, (4,) * 6), minlength=4**6)


@pytest.mark.parametrize("selected_cells", [24, 2**12])
def test_last_check_measures_badly_fitted_pair(selected_cells):
    """It joins where the tree has room; the others, where nothing is beyond noise, do not."""
    domain = domain_of(*[4] * 6)
    with on_trees(selected_cells), pytest.MonkeyPatch.context() as patch:
        # The scores left all pairs out.
        patch.setattr(selection_module, "choose_pairs", lambda *arguments: ([], []))
        plan = plan_of(MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE), 8000)
        release = MWEM().release(plan, summary(plan, tied()), NoNoise())
    has_room = selected_cells > 24
    assert release.fit["num_added_pairs"] == MOST_CHOICES
    assert release.fit["num_joined_pairs"] == int(has_room)
    assert release.fit["num_other_pairs"] == MOST_CHOICES - has_room
    measured = [tuple(entry["attributes"]) for entry in release.noise]
    singles = [(f"a{axis}",) for axis in range(6)]
    assert measured[:12] == singles * 2 and len(measured) == 12 + MOST_CHOICES
    assert measured[12] == ("a0", "a1") and all(len(names) == 2 for names in measured[12:])
    assert release.record_tables == tuple(measured[12 + has_room :])
    exact = tied().reshape((4,) * 6).sum(axis=(2, 3, 4, 5))
    far = np.abs(release.record_marginal(("a0", "a1")) - exact).max()
    assert far < 200  # independent attributes are 1,000 off


def test_last_check_changes_measured_pairs_but_no_noise_scale():
    """Stated bounds rely on it: neither of what came before, nor of another pair that it adds."""
    domain = domain_of(2, 3, 4, 5, 2, 3)
    before, added = set(), dict[tuple[str, ...], set[MeasuredTable]]()
    with on_trees(40), pytest.MonkeyPatch.context() as patch:
        plan = plan_of(MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE), "noisy")
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

"""Plans for finding bins, and the bins that are found.

Statistical tests have fixed seeds: a mean over runs lies within 5 standard errors of its
expectation except with a probability of about 1e-6.
"""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
from noise_sources import NoNoise, Scripted, Seeded

from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.leaves import number_leaves
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.encoding.open_values import GRID
from beam_dp.mechanisms.discovery.bins import plan_bins
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.verification.bins import bins_step

ADD, REPLACE = Neighboring.ADD_OR_REMOVE_ONE, Neighboring.REPLACE_ONE
INCOME = NumericAttribute("income", tuple(number_leaves(0, 1e7)), clip=True)
MU = 0.033  # a third of a tenth of mu^2 at epsilon 1, delta 1e-9


def counts_of(leaves, values) -> np.ndarray:
    places = np.clip(np.searchsorted(leaves.edges, values, "right") - 1, 0, leaves.num_levels - 1)
    return GRID * np.bincount(places, minlength=leaves.num_levels).astype(np.int64)


@pytest.fixture(scope="module")
def incomes() -> np.ndarray:
    return np.random.default_rng(1).lognormal(10, 0.7, 50_000)


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_step_has_the_loss_that_was_asked_for(neighboring):
    gaussian = plan_bins(INCOME, 20, neighboring, mu=MU).step()
    assert gaussian.loss.epsilon is None
    assert MU**2 * (1 - 1e-9) <= float(gaussian.loss.mu_squared) <= MU**2
    pure = plan_bins(INCOME, 20, neighboring, epsilon=0.05).step()
    assert 0.05 * (1 - 1e-9) <= float(pure.loss.epsilon) <= 0.05


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.1}])
def test_card_states_the_noise_that_step_and_plan_use(loss):
    plan = plan_bins(INCOME, 20, REPLACE, **loss)
    assert bins_step(num_moved=2, **plan.to_json()) == plan.step()
    assert plan.to_json()["levels"][-1] == INCOME.num_levels
    assert pickle.loads(pickle.dumps(plan)).to_json() == plan.to_json()


def test_replacement_and_less_budget_need_more_noise():
    scale = plan_bins(INCOME, 20, ADD, mu=MU).scale
    assert plan_bins(INCOME, 20, REPLACE, mu=MU).scale == pytest.approx(math.sqrt(2) * scale)
    assert plan_bins(INCOME, 20, ADD, mu=MU / 3).scale == pytest.approx(3 * scale)


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.2}])
def test_bins_follow_the_values_and_not_the_range(incomes, loss):
    plan = plan_bins(INCOME, 20, ADD, **loss)
    bins = plan.release(counts_of(INCOME, incomes), Seeded(0))
    edges = np.array(INCOME.edges)[list(bins.cuts)]
    assert 12 <= len(bins.counts) <= 20
    # Of a range up to 10,000,000 in which nearly all values are below 150,000.
    assert edges[0] < 8_000 and 70_000 < edges[-1] < 1_000_000
    exact, _ = np.histogram(np.clip(incomes, edges[0], edges[-1]), edges)
    assert exact.max() < 12_000
    errors = (np.array(bins.counts)[1:-1] - exact[1:-1]) / np.array(bins.standard_errors)[1:-1]
    assert abs(errors).max() < 5


def test_drawn_values_are_close_to_the_true_values(incomes):
    plan = plan_bins(INCOME, 20, ADD, mu=MU)
    distances = []
    for seed in range(5):
        bins = plan.release(counts_of(INCOME, incomes), Seeded(seed))
        edges = np.array(INCOME.edges)[list(bins.cuts)]
        exact, _ = np.histogram(np.clip(incomes, edges[0], edges[-1]), edges)
        drawn = np.repeat(edges[:-1], exact)
        drawn += np.concatenate([np.arange(each) / max(each, 1) for each in exact]) * np.repeat(
            np.diff(edges), exact
        )
        distances.append(np.abs(np.sort(drawn) - np.sort(incomes)).mean())
    # 20 bins of equal counts to the end of the range, as quantiles would be, have 220,000.
    assert np.mean(distances) < 1_500


def test_bins_are_not_narrower_than_the_noise_allows(incomes):
    plan = plan_bins(INCOME, 1000, ADD, mu=MU)
    for seed in range(3):
        bins = plan.release(counts_of(INCOME, incomes), Seeded(seed))
        assert 20 < len(bins.counts) <= len(incomes) / plan.typical_error
        assert list(bins.cuts) == sorted(set(bins.cuts))


def test_values_that_many_units_share_have_a_bin_of_their_own():
    values = np.concatenate([np.zeros(8_000), np.linspace(1_000, 90_000, 40_000)])
    bins = plan_bins(INCOME, 10, ADD, mu=MU).release(counts_of(INCOME, values), Seeded(3))
    assert bins.cuts[0] == 0 and bins.counts[0] == pytest.approx(8_000, abs=1_000)
    assert INCOME.edges[bins.cuts[1]] <= 1_500


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.05}])
def test_without_records_there_are_valid_bins(loss):
    plan = plan_bins(INCOME, 20, ADD, **loss)
    nothing = np.zeros(INCOME.num_levels, np.int64)
    assert plan.release(nothing, NoNoise()).cuts == (0, INCOME.num_levels)
    for seed in range(20):
        cuts = plan.release(nothing, Seeded(seed)).cuts
        assert 0 <= cuts[0] < cuts[-1] <= INCOME.num_levels and len(cuts) <= 21


def test_bins_follow_from_the_noisy_sums_alone(incomes):
    plan = plan_bins(INCOME, 20, ADD, mu=MU)
    shared = np.random.default_rng(4)
    noisy = plan.strategy.measure(counts_of(INCOME, incomes[:3000]))
    noisy = noisy + shared.integers(-(10**7), 10**7, noisy.shape)
    found = {
        plan.release(counts_of(INCOME, values), Scripted(answer=lambda *_: noisy))
        for values in (incomes, incomes[:10], np.zeros(0))
    }
    assert len(found) == 1


def test_standard_errors_match_noisy_counts():
    """Where the bins do not depend on the noise."""
    plan = plan_bins(NumericAttribute("a", tuple(range(65))), 2, ADD, mu=0.5)
    counts = np.repeat([100 * GRID, 2000 * GRID], 32)
    found = [plan.release(counts, Seeded(seed)) for seed in range(300)]
    assert {each.cuts for each in found} == {(0, 32, 64)}
    ratios = [(each.counts[1] - 64_000) / each.standard_errors[1] for each in found]
    assert np.mean(np.square(ratios)) == pytest.approx(1, abs=5 * math.sqrt(2 / 300))


@pytest.mark.parametrize(
    "leaves",
    [
        DateAttribute("day", [f"20{year:02}-01-01" for year in range(60)]),
        DatetimeAttribute("at", [f"2020-01-{day:02}T00:00Z" for day in range(1, 31)]),
        NumericAttribute("stay", tuple(range(30)), whole=True),
    ],
)
def test_dates_times_and_whole_numbers_have_bins(leaves):
    rng = np.random.default_rng(2)
    places = np.minimum(rng.geometric(0.1, 20_000) + 4, leaves.num_levels - 1)
    counts = GRID * np.bincount(places, minlength=leaves.num_levels).astype(np.int64)
    bins = plan_bins(leaves, 6, ADD, mu=0.5).release(counts, Seeded(1))
    assert len(bins.counts) == 6 and bins.cuts[0] == 5
    assert sum(bins.counts) == pytest.approx(20_000, rel=0.02)


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.05}])
def test_sums_of_neighbours_differ_by_at_most_the_stated_sensitivities(loss):
    """A unit's weights add up to at most the grid, over any leaves."""
    rng = np.random.default_rng(7)
    plan = plan_bins(INCOME, 20, REPLACE, **loss)
    levels = len(plan.to_json()["levels"])

    def measured(num_records: int) -> np.ndarray:
        places = rng.integers(0, 8, num_records)  # often the same leaf, or one next to it
        weights = np.zeros(INCOME.num_levels, np.int64)
        np.add.at(weights, places, GRID // num_records)
        return plan.strategy.measure(weights) / GRID

    for num_records in (1, 1, 2, 3, 7):
        one, other = measured(num_records), measured(1)
        assert np.abs(one).sum() <= levels and (one**2).sum() <= levels
        assert np.abs(one - other).sum() <= 2 * levels and ((one - other) ** 2).sum() <= 2 * levels
    assert (measured(1) ** 2).sum() == levels


def test_a_single_leaf_is_a_single_bin():
    leaf = NumericAttribute("a", (0.0, 1.0))
    bins = plan_bins(leaf, 2, ADD, mu=0.5).release(np.array([9 * GRID]), Seeded(0))
    assert bins.cuts == (0, 1)

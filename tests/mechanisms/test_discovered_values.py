"""What is found of columns that are not declared: texts above a threshold, and bins."""

from __future__ import annotations

import math
import pickle
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from noise_sources import NoNoise, Seeded
from scipy import stats
from sketch_laws import Shifted

from beam_dp.domain.dates import DateAttribute, DatetimeAttribute
from beam_dp.domain.discover import GRID
from beam_dp.domain.leaves import number_leaves
from beam_dp.domain.ordered import NumericAttribute
from beam_dp.mechanisms.discovery.bins import BinsPlan, plan_bins
from beam_dp.mechanisms.discovery.values import ValuesPlan, plan_values
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.releases.domain.verify import domain_steps
from beam_dp.testing.audit import discrete_gaussian
from beam_dp.verification.steps import Step, normal_tail
from beam_dp.verification.thresholds import (
    alone_probability,
    least_threshold,
    text_weight,
    threshold_step,
)

ADD, REPLACE = "add_or_remove_one", "replace_one"


def plan(
    relation: str = ADD, k: int = 1, mu: float = 0.1, slack: float = 1e-10, most: int = 500
) -> ValuesPlan:
    unit = "person" if k > 1 else "record"
    guarantee = Guarantee(1.0, 1e-9, relation, unit, k)  # type: ignore[arg-type]
    return plan_values("city", guarantee, mu, slack, most)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("k", [1, 2, 17, 10**4, 2**40])
@pytest.mark.parametrize("mu", [1e-3, 0.1, 5.0])
def test_step_proves_the_planned_mu_and_slack_and_hardly_less(relation, k, mu):
    found = plan(relation, k, mu, 1e-10)
    noise = {name: getattr(found, name) for name in ("num_moved", "grid", "scale", "threshold")}
    loss = threshold_step("", max_texts=k, **noise).loss
    assert loss.mu_squared is not None and loss.epsilon is None
    assert (1 - 1e-6) * Fraction(mu) ** 2 <= loss.mu_squared <= Fraction(mu) ** 2
    assert Fraction(9, 10**11) < loss.slack <= Fraction(found.slack)


@pytest.mark.parametrize("grid", [4, 8, 64])
@pytest.mark.parametrize("most", [1, 2, 5, 40])
def test_alone_probability_bounds_the_exact_law_of_any_number_of_texts(grid, most):
    scale = 1.3 * grid
    threshold = least_threshold(scale, 0.01, most, grid)
    bound = float(alone_probability(scale, threshold, most, grid))
    assert 0.005 < bound <= 0.01
    far = math.ceil(12 * scale)
    worst = 0.0
    for number in range(1, most + 1):
        law = discrete_gaussian(scale, text_weight(number, grid), -far, threshold + far)
        tail = sum(p for value, p in law.items() if value >= threshold)
        worst = max(worst, -math.expm1(number * math.log1p(-tail)))
    assert 0.3 * bound < worst <= bound


def test_threshold_that_one_text_reaches_without_noise_has_slack_one():
    assert alone_probability(3.0, 8, 2, 8) == 1


def test_normal_tail_is_an_upper_bound():
    for value in (-3.0, 0.0, 0.5, 5.0, 12.5, 30.0):
        exact = math.exp(stats.norm.logsf(value))
        assert float(normal_tail(Fraction(value))) == pytest.approx(exact, rel=1e-12)
    assert 0 < normal_tail(Fraction(10**9)) <= normal_tail(Fraction(100))


def released(found: ValuesPlan, sums: dict[str, int], shift: int = 0) -> list[tuple[str, float]]:
    texts = pa.array([text.encode() for text in sums], pa.large_binary())
    return found.release(texts, np.array(list(sums.values()), np.int64), Shifted(shift))


def test_releases_texts_from_the_threshold_on_largest_first():
    found = plan()
    least = found.threshold
    sums = {"b": least, "a": least - 1, "c": least + GRID, "é": least}
    units = least / GRID
    assert released(found, sums) == [("c", units + 1), ("b", units), ("é", units)]
    assert [text for text, _ in released(found, sums, shift=1)] == ["c", "b", "é", "a"]
    assert released(found, sums, shift=-2 * GRID) == []


def test_keeps_the_largest_noisy_sums_and_breaks_ties_by_text():
    found = plan(most=3)
    sums = dict.fromkeys("fcaebd", found.threshold) | {"z": found.threshold + 1}
    expected = ["z", "a", "b"]
    assert [text for text, _ in released(found, sums)] == expected
    assert [text for text, _ in released(found, dict(reversed(sums.items())))] == expected


def test_releases_nothing_of_nothing():
    assert released(plan(), {}) == []


# Plans for finding bins, and the bins that are found.


ADDING, REPLACING = Neighboring
INCOME = NumericAttribute("income", tuple(number_leaves(0, 1e7)), clip=True)
MU = 0.033  # a third of a tenth of mu^2 at epsilon 1, delta 1e-9


def counts_of(leaves, values) -> np.ndarray:
    places = np.clip(np.searchsorted(leaves.edges, values, "right") - 1, 0, leaves.num_levels - 1)
    return GRID * np.bincount(places, minlength=leaves.num_levels).astype(np.int64)


@pytest.fixture(scope="module")
def incomes() -> np.ndarray:
    return np.random.default_rng(1).lognormal(10, 0.7, 50_000)


def step_of(plan: BinsPlan) -> Step:
    guarantee = Guarantee(1.0, 1e-9, plan.neighboring, "record", 1)
    return domain_steps([plan.to_json()], guarantee)[0]


@pytest.mark.parametrize("neighboring", [ADDING, REPLACING])
def test_step_has_the_loss_that_was_asked_for(neighboring):
    gaussian = step_of(plan_bins(INCOME, 20, neighboring, mu=MU))
    assert gaussian.loss.epsilon is None
    assert MU**2 * (1 - 1e-9) <= float(gaussian.loss.mu_squared) <= MU**2
    pure = step_of(plan_bins(INCOME, 20, neighboring, epsilon=0.05))
    assert 0.05 * (1 - 1e-9) <= float(pure.loss.epsilon) <= 0.05


def test_leaves_are_counted_until_cells_can_be_leaves():
    for num_leaves, levels in ((1, 1), (16, 1), (17, 2), (256, 2), (257, 3), (270_002, 5)):
        leaves = NumericAttribute("a", tuple(map(float, range(num_leaves + 1))))
        plan = plan_bins(leaves, 20, REPLACING, mu=MU)
        assert plan.to_json()["levels"] == [*[16] * (levels - 1), num_leaves]
        assert pickle.loads(pickle.dumps(plan)).to_json() == plan.to_json()


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.2}])
def test_bins_follow_the_values_and_not_the_range(incomes, loss):
    plan = plan_bins(INCOME, 20, ADDING, **loss)
    bins = plan.release(counts_of(INCOME, incomes), Seeded(0))
    edges = np.array(INCOME.edges)[list(bins.cuts)]
    assert 12 <= len(bins.counts) <= 20
    # Of a range up to 10,000,000 in which nearly all values are below 150,000.
    assert edges[0] < 8_000 and 70_000 < edges[-1] < 1_000_000
    exact, _ = np.histogram(np.clip(incomes, edges[0], edges[-1]), edges)
    assert exact.max() < 12_000
    errors = (np.array(bins.counts)[1:-1] - exact[1:-1]) / np.array(bins.standard_errors)[1:-1]
    assert abs(errors).max() < 5


def test_bins_are_not_narrower_than_the_noise_allows(incomes):
    plan = plan_bins(INCOME, 1000, ADDING, mu=MU)
    for seed in range(3):
        bins = plan.release(counts_of(INCOME, incomes), Seeded(seed))
        assert 20 < len(bins.counts) <= len(incomes) / plan.noise_deviation
        assert list(bins.cuts) == sorted(set(bins.cuts))


def test_values_that_many_units_share_have_a_bin_of_their_own():
    values = np.concatenate([np.zeros(8_000), np.linspace(1_000, 90_000, 40_000)])
    bins = plan_bins(INCOME, 10, ADDING, mu=MU).release(counts_of(INCOME, values), Seeded(3))
    assert bins.cuts[0] == 0 and bins.counts[0] == pytest.approx(8_000, abs=1_000)
    assert INCOME.edges[bins.cuts[1]] <= 1_500


@pytest.mark.parametrize("loss", [{"mu": MU}, {"epsilon": 0.05}])
def test_without_records_there_are_valid_bins(loss):
    plan = plan_bins(INCOME, 20, ADDING, **loss)
    nothing = np.zeros(INCOME.num_levels, np.int64)
    assert plan.release(nothing, NoNoise()).cuts == (0, INCOME.num_levels)
    for seed in range(20):
        cuts = plan.release(nothing, Seeded(seed)).cuts
        assert 0 <= cuts[0] < cuts[-1] <= INCOME.num_levels and len(cuts) <= 21


def test_standard_errors_match_noisy_counts():
    """Where the bins do not depend on the noise."""
    plan = plan_bins(NumericAttribute("a", tuple(range(65))), 2, ADDING, mu=0.5)
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
    bins = plan_bins(leaves, 6, ADDING, mu=0.5).release(counts, Seeded(1))
    assert len(bins.counts) == 6 and bins.cuts[0] == 5
    assert sum(bins.counts) == pytest.approx(20_000, rel=0.02)


def test_a_single_leaf_is_a_single_bin():
    leaf = NumericAttribute("a", (0.0, 1.0))
    bins = plan_bins(leaf, 2, ADDING, mu=0.5).release(np.array([9 * GRID]), Seeded(0))
    assert bins.cuts == (0, 1)

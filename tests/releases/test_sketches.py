"""Sketches and interval counts: files, bounds and cells; differences of releases of any kind."""

import dataclasses
import math

import numpy as np
import pytest
from kind_examples import intervals_of
from noise_sources import Seeded
from scipy import stats
from window_plans import HORIZON_ID, RECORD, marginals_of, plan_of

import beam_dp as dp
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.intervals import plan_intervals, release_intervals
from beam_dp.mechanisms.registry import plan_release
from beam_dp.mechanisms.sketches.plan import INDEPENDENCE
from beam_dp.releases.release import Release
from beam_dp.releases.sketches.estimates import selected_noise_bound
from beam_dp.releases.sketches.release import NoisyCounts
from beam_dp.secret.summaries.histogram import Histogram

_RUNS = 1000
_FAILURE = 0.05


@pytest.mark.parametrize("num_keys", [1, 5, 200])
@pytest.mark.parametrize("distance", [-5, 0, 30])
def test_noise_bound_fails_at_most_as_often_as_stated(num_keys, distance):
    # A false alarm has probability 1e-9: the binomial tail of 1,000 runs.
    scale, threshold = 3.0, 60
    generator = np.random.default_rng(7)
    weights = np.ones(num_keys)
    counts = np.where(np.arange(num_keys) % 2, threshold - 3, threshold + distance)
    failures = 0
    for _ in range(_RUNS):
        ratio = 1 - math.exp(-1 / scale)
        noise = generator.geometric(ratio, num_keys) - generator.geometric(ratio, num_keys)
        kept = counts + noise >= threshold
        error = float(np.where(kept, noise, -counts).sum())
        missing = threshold * int((~kept).sum())
        whole = selected_noise_bound(scale, weights, float(num_keys), _FAILURE) + missing
        held = selected_noise_bound(scale, weights, float(kept.sum()), _FAILURE)
        failures += abs(error) > whole or abs(float(noise[kept].sum())) > held
    assert failures <= stats.binom.isf(1e-9, _RUNS, _FAILURE)


@pytest.mark.parametrize("count", [30, 57, 60, 200])
def test_bounds_of_answers_fail_at_most_as_often_as_stated(count):
    # A false alarm has probability 1e-9, as above.
    scale, threshold, num_keys = 3.0, 60, 6
    generator = np.random.default_rng(8)
    elements = np.arange(num_keys, dtype=np.uint64)
    guarantee = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    key = HashKey.draw(INDEPENDENCE)
    counts = np.where(elements % 2, count, threshold - 1).astype(np.int64)
    failures = 0
    for _ in range(_RUNS):
        ratio = 1 - math.exp(-1 / scale)
        noisy = counts + generator.geometric(ratio, num_keys) - generator.geometric(ratio, num_keys)
        kept = noisy >= threshold
        histogram = NoisyCounts(elements[kept], noisy[kept], scale, threshold)
        release = dp.SparseRelease(
            "stability_histogram",
            key,
            num_keys,
            1,
            {},
            histogram=histogram,
            draw_id="0",
            guarantee=guarantee,
        )
        answer = release.answer(elements, np.ones(num_keys))
        failures += abs(answer.value - int(counts.sum())) > answer.bound
    assert answer.failure_probability == _FAILURE
    assert failures <= stats.binom.isf(1e-9, _RUNS, _FAILURE)


def test_cells_are_found_by_values_and_edges():
    release = intervals_of(("histogram", "discrete_laplace"))
    assert release.cells(-3, 19) == (0, 22) and release.cells(0, 0) == (3, 3)
    pay = dp.NumericAttribute("pay", (0, 10, 20.5, 30), nullable=True)
    release = dataclasses.replace(intervals_of(("histogram", "discrete_laplace"), 3), attribute=pay)
    assert release.cells(10, 30) == (1, 2) and release.cells(0, 30) == (0, 2)


DOMAIN = dp.read_domain('{"sex": 2, "class": 3}')
PAIRS = dp.marginals(DOMAIN, ways=2)
ONES = dp.marginals(DOMAIN, ways=1)
PROMISE = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "person_id", 1)
COUNTS = np.array([500, 400, 300, 200, 100, 50])
NOISE = Seeded(11)


def synthetic(counts: np.ndarray, workload: dp.Workload = PAIRS) -> dp.SyntheticDatabase:
    plan = plan_release(dp.Laplace(), DOMAIN, workload, PROMISE)
    return plan.release(Histogram(DOMAIN, counts).marginals(plan.summary_tables), NOISE)


def intervals(counts: np.ndarray, name: str = "age") -> dp.IntervalRelease:
    plan = plan_intervals(len(counts), PROMISE, "histogram")
    return release_intervals(plan, counts, NOISE, dp.IntegerAttribute(name, 0, 5))


def tables(counts: np.ndarray) -> Release:
    plan = plan_of(3, RECORD, PAIRS)
    return plan.draw(0, marginals_of(plan, counts), NOISE, HORIZON_ID)


def other_counts() -> np.ndarray:
    counts = COUNTS.copy()
    counts[4] += 1000
    return counts


@pytest.mark.parametrize("make", [synthetic, intervals, tables])
def test_orders_cells_by_their_z_scores(make):
    first, *rest = dp.compare_releases(make(COUNTS), make(other_counts()))
    label = (("age", "4"),) if make is intervals else (("sex", "1"), ("class", "1"))
    assert first.cell == label and first.difference == pytest.approx(1000, abs=60)
    assert first.z_score == pytest.approx(first.difference / first.standard_error)
    scores = [abs(each.z_score) for each in rest]
    assert len(rest) == 5 and scores == sorted(scores, reverse=True)


def test_differences_have_the_errors_of_both_releases():
    one, other = intervals(COUNTS), intervals(COUNTS)
    cells = np.arange(6)
    error = float(one.answer(cells, cells).standard_errors[0])
    for each in dp.compare_releases(one, other):
        assert each.standard_error == pytest.approx(math.sqrt(2) * error)
    asked = dp.marginals(DOMAIN, attributes=["sex", "class"])
    found = dp.compare_releases(synthetic(COUNTS), synthetic(COUNTS, ONES), asked)
    unknown = [each for each in found if each.standard_error is None]
    assert len(found) == 6
    for each in unknown:
        assert each.z_score is None and each.to_json()["z_score"] is None
    sizes = [abs(each.difference) for each in unknown]
    assert sizes == sorted(sizes, reverse=True)
    # About 600 squared normal variables; the seed is fixed.
    scores = [
        each.z_score
        for _ in range(100)
        for each in dp.compare_releases(intervals(COUNTS), intervals(COUNTS))
    ]
    assert 0.6 < np.mean(np.square(scores)) < 1.5


def test_only_marginals_of_two_draws_are_compared():
    both = dp.marginals(DOMAIN, attributes=[["sex"], ["sex", "class"]])
    found = dp.compare_releases(synthetic(COUNTS, both), synthetic(COUNTS, ONES))
    assert {each.cell for each in found} == {(("sex", "0"),), (("sex", "1"),)}

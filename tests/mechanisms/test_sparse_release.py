"""Sparse mechanisms: their noise, their answers and standard errors, what they refuse.

Statistical tests: seeded, so they do not flake; limits lie at six standard errors or more.
"""

import math

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from sketch_laws import Shifted, promise, seeded_key
from tiny import ADD, REPLACE

from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.mechanisms.sketches.mechanisms import (
    CountSketch,
    HybridSketch,
    SparseProject,
    StabilityHistogram,
    release_probability,
    stability_threshold,
)
from beam_dp.mechanisms.sketches.plan import SparseSummary, release_sparse
from beam_dp.noise.bound import noise_variance
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.sparse import SparseQuery
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.summaries.projection import Projection
from beam_dp.testing.audit import discrete_laplace

PROMISE = Guarantee(1.0, 1e-9, ADD, "record", 1)
SMALL = {
    "dense": SparseProject(256, "dense"),
    "blocks": SparseProject(240),
    "textbook": SparseProject(256, calibration="textbook"),
    "one row": CountSketch(250, 1),
    "three rows": CountSketch(300, 3),
    "mean of rows": CountSketch(300, 3, estimator="mean"),
    "median of rows": CountSketch(300, 3, estimator="median"),
    "gaussian rows": CountSketch(300, 3, noise="gaussian"),
    "histogram": StabilityHistogram(),
    "hybrid": HybridSketch(300, 3),
    "hybrid of one row": HybridSketch(250, 1),
}


def plan_of(mechanism, guarantee=PROMISE, seed=0, **named):
    named.setdefault("max_sparsity", 100)
    return mechanism.plan(guarantee, hash_key=seeded_key(seed), **named)


def summary_from(plan, elements, counts):
    sketch = plan.sketch
    sums = None if sketch is None else sketch.signs(plan.hash_key).project(elements, counts)
    return SparseSummary(
        None if sums is None else Projection(sums),
        ElementCounts(elements, counts) if plan.histogram is not None else None,
    )


def test_sketch_noise_matches_the_formulas():
    # Integer scales: for a sketch whose columns have norm 1 they are sqrt(T) times less.
    tight = plan_of(SparseProject(4096, "dense")).sketch
    deviation = math.sqrt((tight.scale * tight.grid) ** 2 - 4) / tight.grid
    assert deviation == pytest.approx(351.697, rel=1e-5)
    textbook = plan_of(SparseProject(4096, "dense", calibration="textbook")).sketch
    assert textbook.scale / 64 == pytest.approx(12.8758, rel=1e-5)
    assert plan_of(CountSketch()).sketch.scale == pytest.approx(3.0)
    assert plan_of(CountSketch(), max_weight=5).sketch.scale == pytest.approx(15.0)
    person = Guarantee(0.5, 0, REPLACE, "person", 4)
    assert plan_of(CountSketch(), person).sketch.scale == pytest.approx(2 * 4 * 3 / 0.5)
    assert plan_of(StabilityHistogram(), promise(REPLACE, 4, 1e-6)).histogram.scale == (
        pytest.approx(8.0)
    )


@pytest.mark.parametrize("family", ["dense", "blocks"])
def test_tight_noise_has_at_least_3_3_times_less_deviation_than_the_published_one(family):
    planned = [
        math.sqrt(noise_variance(plan.distribution, plan.scale))
        for plan in (
            plan_of(SparseProject(2**14, family, calibration=each)).sketch
            for each in ("textbook", "tight")
        )
    ]
    assert planned[0] / planned[1] >= 3.3


def test_unit_norm_limit_lowers_the_gaussian_noise():
    person = Guarantee(1.0, 1e-9, REPLACE, "person", 16)
    loose = plan_of(CountSketch(noise="gaussian"), person).sketch
    bounded = plan_of(CountSketch(noise="gaussian", unit_norm=4.0), person).sketch
    assert bounded.max_squared_norm == 48 and loose.max_squared_norm is None
    assert loose.scale / bounded.scale == pytest.approx(4.0, rel=1e-3)
    # A bound that no unit can reach costs nothing.
    wide = plan_of(CountSketch(noise="gaussian", unit_norm=99.0), person).sketch
    assert wide.scale == loose.scale


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5])
@pytest.mark.parametrize("most", [1, 2, 5])
@pytest.mark.parametrize("weight", [1, 3])
def test_threshold_is_the_smallest_that_keeps_delta(scale, most, weight):
    delta = 1e-4
    threshold = stability_threshold(scale, delta, most, weight)

    def largest(threshold):
        """The probability over every way to hand out records, from the law of the noise."""
        far = threshold + most * weight + math.ceil(60 * scale)
        law = discrete_laplace(scale, 0, -far, far)

        def tail(value):
            return sum(p for z, p in law.items() if value + z >= threshold)

        worst = 0.0
        for parts in partitions(most):
            none = math.prod(1 - tail(part * weight) for part in parts)
            worst = max(worst, 1 - none)
        return worst

    assert largest(threshold) <= delta < largest(threshold - 1)
    assert release_probability(scale, threshold, most, weight) == pytest.approx(
        largest(threshold), rel=1e-6
    )


def partitions(total, largest=None):
    if total == 0:
        yield ()
    for first in range(min(total, largest or total), 0, -1):
        yield from ((first, *rest) for rest in partitions(total - first, first))


def test_counts_at_or_above_the_threshold_are_released():
    plan = plan_of(StabilityHistogram())
    threshold = plan.histogram.threshold
    counts = np.array([5, 6, 7], np.int64)
    summary = summary_from(plan, np.array([3, 1, 2], np.uint64)[np.argsort([3, 1, 2])], counts)
    release = release_sparse(plan, summary, Shifted(threshold - 6))
    assert release.histogram.elements.tolist() == [2, 3]
    assert release.histogram.counts.tolist() == [threshold, threshold + 1]


@pytest.mark.parametrize("name", SMALL)
def test_answers_are_right_without_noise_or_collisions(name):
    plan = plan_of(SMALL[name])
    elements = universe_elements(["a", "b", 7], plan.hash_key)
    order = np.argsort(elements)
    counts = np.array([1000, 2000, 4000])
    summary = summary_from(plan, elements[order], counts[order])
    release = release_sparse(plan, summary, NoNoise())
    query = SparseQuery({"a": 1.0, "b": 0.5, 7: 0.25})
    answer = release.answer_query(query)
    if name in ("dense", "blocks", "textbook", "mean of rows"):
        # Three elements in a few hundred cells: what hashing adds is in the standard error.
        assert abs(answer.value - 3000) <= 5 * answer.standard_error + 1e-9
    else:
        assert answer.value == pytest.approx(3000)
    assert answer.bound >= answer.standard_error
    assert release.answer_query(SparseQuery({})).value == 0


SHAPES = {
    "skewed": np.maximum(1, 3000 // np.arange(1, 2001)),
    "distinct": np.ones(5000, int),
    "equal": np.full(200, 60),
}
MEASURED = {
    "dense": SparseProject(512, "dense"),
    "blocks": SparseProject(2000),
    "one row": CountSketch(2000, 1),
    "three rows": CountSketch(2**12 // 3 * 3, 3),
    "five rows": CountSketch(5000, 5),
    "median of rows": CountSketch(3000, 3, estimator="median"),
    "gaussian rows": CountSketch(3000, 3, noise="gaussian"),
    "hybrid": HybridSketch(2000, 1),
    "hybrid of three rows": HybridSketch(3000, 3, histogram_share=0.5),
}


@pytest.mark.part
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", MEASURED)
def test_standard_error_matches_the_errors_of_answers(name, shape):
    counts = SHAPES[shape].astype(np.int64)
    elements = np.arange(1, len(counts) + 1, dtype=np.uint64) << np.uint64(20)
    rng = np.random.default_rng(5)
    ratios = []
    exceeded = 0
    for seed in range(12):
        plan = plan_of(MEASURED[name], seed=seed)
        release = release_sparse(plan, summary_from(plan, elements, counts), Seeded(seed))
        for _ in range(25):
            chosen = rng.choice(len(counts), 60, replace=False)
            values = rng.uniform(0, 1, 60)
            answer = release.answer(elements[chosen], values)
            error = answer.value - float(values @ counts[chosen])
            ratios.append(error / answer.standard_error)
            exceeded += abs(error) > answer.bound
    # 300 errors that overlap in their hash: about 100 independent ones, with heavy tails.
    assert 0.72 < np.sqrt(np.mean(np.square(ratios))) < 1.3
    assert exceeded <= 0.05 * len(ratios)


def test_histogram_bound_covers_dropped_counts():
    counts = np.array([200] * 20 + [3] * 80)
    elements = np.arange(100, dtype=np.uint64)
    plan = plan_of(StabilityHistogram())
    exceeded = 0
    for seed in range(100):
        release = release_sparse(plan, summary_from(plan, elements, counts), Seeded(seed))
        answer = release.answer(elements, np.ones(100))
        exceeded += abs(answer.value - counts.sum()) > answer.bound
        assert answer.standard_error == pytest.approx(math.sqrt(20 * 1.8413), rel=1e-3)
    assert exceeded <= 5


def test_each_plan_draws_its_own_hash_key():
    first, second = (CountSketch(300, 3).plan(PROMISE, max_sparsity=1) for _ in range(2))
    assert first.hash_key != second.hash_key


def test_plan_states_epsilon_and_slack_of_its_mechanism():
    assert plan_of(CountSketch()).loss.epsilon == 1.0 and not plan_of(CountSketch()).loss.slack
    for mechanism in (StabilityHistogram(), HybridSketch()):
        loss = plan_of(mechanism).loss
        assert (loss.epsilon, loss.slack) == (1.0, 1e-9)
    assert plan_of(SparseProject()).loss.epsilon is None


@pytest.mark.parametrize("name", SMALL)
def test_answer_is_the_sum_of_the_estimates_of_its_elements(name):
    elements = np.arange(40, dtype=np.uint64) << np.uint64(20)
    # Some reach the threshold of a histogram, some do not.
    counts = np.arange(40, dtype=np.int64) * 4
    plan = plan_of(SMALL[name])
    release = release_sparse(plan, summary_from(plan, elements, counts), Seeded(1))
    values = np.random.default_rng(2).random(40)
    found = release.estimates(elements)
    assert values @ found == pytest.approx(release.answer(elements, values).value)
    alone = [release.answer(elements[i : i + 1], np.ones(1)).value for i in range(40)]
    assert found == pytest.approx(alone)
    assert len(set(found.tolist())) > 10


@pytest.mark.parametrize("name", ["dense", "blocks", "textbook", "one row", "mean of rows"])
def test_card_of_an_averaging_sketch_states_bounds_on_noise_and_hashing(name):
    plan = plan_of(SMALL[name])
    stated = plan.public["bound"]
    assert (stated["num_queries"], stated["failure_probability"]) == (1, 0.05)
    elements = np.arange(100, dtype=np.uint64)
    release = release_sparse(plan, summary_from(plan, elements, np.ones(100, np.int64)), NoNoise())
    assert release.bounds().to_json() == stated
    # Noise: at least what a query of 100 keys that never share a cell needs.
    deviation = math.sqrt(noise_variance(plan.sketch.distribution, plan.sketch.scale))
    assert stated["noise"] > 2.2 * deviation * math.sqrt(100 / plan.sketch.num_blocks)
    width = plan.sketch.projection_width
    assert stated["distortion_of_norm"] > 2.2 * math.sqrt(100 / width)
    more = release.bounds(1000, 1e-6)
    assert more.noise > stated["noise"]
    assert more.distortion_of_norm > stated["distortion_of_norm"]


@pytest.mark.parametrize("name", ["three rows", "median of rows", "histogram", "hybrid of one row"])
def test_plan_states_no_bound_for_medians_histograms_and_hybrids(name):
    plan = plan_of(SMALL[name])
    assert plan.bounds() is None and "bound" not in plan.public


def test_plan_states_no_bound_for_hashes_below_four_wise_independence():
    plan = SparseProject(240).plan(PROMISE, max_sparsity=5, hash_key=HashKey.draw(3))
    assert plan.bounds() is None
    fourwise = SparseProject(240).plan(PROMISE, max_sparsity=5, hash_key=HashKey.draw(4))
    assert fourwise.bounds().noise > SparseProject(240).plan(PROMISE, max_sparsity=5).bounds().noise

"""Sparse mechanisms: their noise, their answers and standard errors, predicted against measured."""

import itertools
import math

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from sketch_laws import seeded_key
from tiny import ADD, REPLACE

import beam_dp as dp
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.hashing.projections import cell_of, num_buckets
from beam_dp.mechanisms.sketches.errors import cell_law, element_law, held_keys, sparse_error
from beam_dp.mechanisms.sketches.mechanisms import release_probability, stability_threshold
from beam_dp.mechanisms.sketches.plan import SparseSummary
from beam_dp.planning.sketches import error_of_nothing, plan_sparse_release
from beam_dp.privacy.noise.bound import noise_variance
from beam_dp.releases.sketches import release as sketch_release
from beam_dp.releases.sketches.estimates import estimates_by_element, variance_of_median
from beam_dp.releases.sketches.release import HistogramNoise, SketchNoise
from beam_dp.secret.summaries.projection import Projection
from beam_dp.secret.summaries.sparse_counts import ElementCounts
from beam_dp.testing.audit import discrete_laplace

PROMISE = dp.Guarantee(1.0, 1e-9, ADD, "record", 1)
SMALL = {
    "dense": dp.SparseProject(256, "dense"),
    "blocks": dp.SparseProject(240),
    "textbook": dp.SparseProject(256, calibration="textbook"),
    "one row": dp.CountSketch(250, 1),
    "three rows": dp.CountSketch(300, 3),
    "mean of rows": dp.CountSketch(300, 3, estimator="mean"),
    "median of rows": dp.CountSketch(300, 3, estimator="median"),
    "gaussian rows": dp.CountSketch(300, 3, noise="gaussian"),
    "histogram": dp.StabilityHistogram(),
    "hybrid": dp.HybridSketch(300, 3),
    "hybrid of one row": dp.HybridSketch(250, 1),
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


def test_unit_norm_limit_lowers_the_gaussian_noise():
    person = dp.Guarantee(1.0, 1e-9, REPLACE, "person", 16)
    loose = plan_of(dp.CountSketch(noise="gaussian"), person).sketch
    bounded = plan_of(dp.CountSketch(noise="gaussian", unit_norm=4.0), person).sketch
    assert bounded.max_squared_norm == 48 and loose.max_squared_norm is None
    assert loose.scale / bounded.scale == pytest.approx(4.0, rel=1e-3)
    # A bound that no unit can reach costs nothing.
    wide = plan_of(dp.CountSketch(noise="gaussian", unit_norm=99.0), person).sketch
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


@pytest.mark.parametrize("name", SMALL)
def test_answers_are_right_without_noise_or_collisions(name):
    plan = plan_of(SMALL[name])
    elements = universe_elements(["a", "b", 7], plan.hash_key)
    order = np.argsort(elements)
    counts = np.array([1000, 2000, 4000])
    summary = summary_from(plan, elements[order], counts[order])
    release = dp.release_sparse(plan, summary, NoNoise())
    query = dp.SparseQuery({"a": 1.0, "b": 0.5, 7: 0.25})
    answer = release.answer_query(query)
    if name in ("dense", "blocks", "textbook", "mean of rows"):
        # Three elements in a few hundred cells: what hashing adds is in the standard error.
        assert abs(answer.value - 3000) <= 5 * answer.standard_error + 1e-9
    else:
        assert answer.value == pytest.approx(3000)
    assert answer.bound >= answer.standard_error
    assert release.answer_query(dp.SparseQuery({})).value == 0


SHAPES = {
    "skewed": np.maximum(1, 3000 // np.arange(1, 2001)),
    "distinct": np.ones(5000, int),
    "equal": np.full(200, 60),
}
MEASURED = {
    "dense": dp.SparseProject(512, "dense"),
    "blocks": dp.SparseProject(2000),
    "one row": dp.CountSketch(2000, 1),
    "three rows": dp.CountSketch(2**12 // 3 * 3, 3),
    "five rows": dp.CountSketch(5000, 5),
    "median of rows": dp.CountSketch(3000, 3, estimator="median"),
    "gaussian rows": dp.CountSketch(3000, 3, noise="gaussian"),
    "hybrid": dp.HybridSketch(2000, 1),
    "hybrid of three rows": dp.HybridSketch(3000, 3, histogram_share=0.5),
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
        release = dp.release_sparse(plan, summary_from(plan, elements, counts), Seeded(seed))
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
    plan = plan_of(dp.StabilityHistogram())
    exceeded = 0
    for seed in range(100):
        release = dp.release_sparse(plan, summary_from(plan, elements, counts), Seeded(seed))
        answer = release.answer(elements, np.ones(100))
        exceeded += abs(answer.value - counts.sum()) > answer.bound
        assert answer.standard_error == pytest.approx(math.sqrt(20 * 1.8413), rel=1e-3)
    assert exceeded <= 5


def test_each_plan_draws_its_own_hash_key():
    first, second = (dp.CountSketch(300, 3).plan(PROMISE, max_sparsity=1) for _ in range(2))
    assert first.hash_key != second.hash_key


@pytest.mark.parametrize("name", SMALL)
def test_answer_is_the_sum_of_the_estimates_of_its_elements(name):
    elements = np.arange(40, dtype=np.uint64) << np.uint64(20)
    # Some reach the threshold of a histogram, some do not.
    counts = np.arange(40, dtype=np.int64) * 4
    plan = plan_of(SMALL[name])
    release = dp.release_sparse(plan, summary_from(plan, elements, counts), Seeded(1))
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
    release = dp.release_sparse(
        plan, summary_from(plan, elements, np.ones(100, np.int64)), NoNoise()
    )
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
    plan = dp.SparseProject(240).plan(PROMISE, max_sparsity=5, hash_key=HashKey.draw(3))
    assert plan.bounds() is None
    fourwise = dp.SparseProject(240).plan(PROMISE, max_sparsity=5, hash_key=HashKey.draw(4))
    assert (
        fourwise.bounds().noise > dp.SparseProject(240).plan(PROMISE, max_sparsity=5).bounds().noise
    )


PROFILES = {
    "skewed": dp.KeyProfile(60_000, 10_000, 8_000),
    "distinct": dp.KeyProfile(20_000, 20_000, 1),
    "ten": dp.KeyProfile(20_000, 2_000, 10),
    "hundred": dp.KeyProfile(200_000, 2_000, 100),
}
MECHANISMS = {
    "one row": dp.CountSketch(2**12, 1),
    "three rows": dp.CountSketch(2**14 // 3 * 3, 3),
    "five rows": dp.CountSketch(2**14 // 5 * 5, 5),
    "median of rows": dp.CountSketch(2**14 // 3 * 3, 3, estimator="median"),
    "mean of rows": dp.CountSketch(2**12 // 3 * 3, 3, estimator="mean"),
    "gaussian rows": dp.CountSketch(2**13 // 3 * 3, 3, noise="gaussian"),
    "blocks": dp.SparseProject(2**12),
    "dense": dp.SparseProject(2**9, "dense"),
    "textbook": dp.SparseProject(2**12, calibration="textbook"),
    "histogram": dp.StabilityHistogram(),
    "hybrid": dp.HybridSketch(2**12, 1),
    "hybrid of three rows": dp.HybridSketch(2**13 // 3 * 3, 3),
    # Its threshold is near 100: keys are held because their noise is large.
    "hybrid of a small share": dp.HybridSketch(2**12, 1, histogram_share=0.2),
}


def counts_of(profile: dp.KeyProfile) -> np.ndarray:
    counts, keys = profile.groups
    return np.repeat(np.rint(counts).astype(np.int64), np.rint(keys).astype(int))


def measured_sums(mechanism, counts: np.ndarray, seed: int) -> tuple[float, float]:
    """The sum of the squared errors of all keys of a release, and that of products of two."""
    elements = np.arange(len(counts), dtype=np.uint64) << np.uint64(30)
    plan = mechanism.plan(PROMISE, max_sparsity=64, hash_key=seeded_key(seed))
    sums = None
    if plan.sketch is not None:
        sums = Projection(plan.sketch.signs(plan.hash_key).project(elements, counts))
    summary = SparseSummary(sums, ElementCounts(elements, counts))
    release = dp.release_sparse(plan, summary, Seeded(seed))
    errors = release.estimates(elements) - counts
    squares = float(errors @ errors)
    products = float(errors.sum()) ** 2 - squares
    if plan.histogram is None and plan.sketch.estimator != "mean":
        # Once in many releases a light key shares two rows with heavy ones, and decides the mean.
        # So the squares of medians give way to their mean over all places that a key can have.
        cells = release.sketch.cells / release.sketch.grid
        signs = release.sketch.signs(plan.hash_key)
        width = len(cells) // plan.sketch.num_blocks
        places = cell_of(np.arange(num_buckets(width)), width)
        placed = cells.reshape(-1, width)[:, places].ravel()
        medians = np.median(estimates_by_element(cells, signs, elements), axis=1) - counts
        squares += len(counts) * variance_of_median(placed, plan.sketch.num_blocks)
        squares -= float(medians @ medians)
    return squares, products


@pytest.mark.part
@pytest.mark.parametrize("shape", PROFILES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_predicted_errors_match_measured_errors(name, shape):
    """Over all sets of m keys: their mean squared error is a function of two sums of errors."""
    counts = counts_of(PROFILES[shape])
    number = len(counts)
    releases = 20 if name == "dense" else 40
    found = [measured_sums(MECHANISMS[name], counts, seed) for seed in range(releases)]
    squares, products = np.array(found).T
    law = sparse_error(MECHANISMS[name].plan(PROMISE, max_sparsity=64), PROFILES[shape])
    for m in (1, 32, 1000):
        squared = m / number * (squares + (m - 1) / (number - 1) * products)
        deviation = squared.std() / math.sqrt(releases)
        assert deviation < 0.15 * squared.mean() or m == 1000
        allowed = 5 * deviation + 0.02 * squared.mean()
        assert law.error(m) ** 2 == pytest.approx(squared.mean(), abs=allowed), m


@pytest.mark.part
def test_sparsity_above_the_number_of_keys_counts_as_all_keys():
    shape = PROFILES["ten"]
    law = sparse_error(dp.StabilityHistogram().plan(PROMISE, max_sparsity=4096), shape)
    assert law.error(4096) == law.error(2000) > law.error(1999)
    assert error_of_nothing(shape, 4096) == pytest.approx(20_000)
    choices = [choose(shape, sparsity=m)[0] for m in (2000, 4096)]
    assert choices[0] == choices[1]


def test_collisions_with_a_heavy_key_in_two_rows_dominate_the_error():
    """A sum over which rows hold the one heavy key, of noise that is small beside it."""
    counts, keys = np.array([100_000.0, 1.0]), np.array([1.0, 1.0])
    sketch = SketchNoise("blocks", 3 * 512, 3, "discrete_laplace", 3.0, "median")
    light = element_law(sketch, (counts[1:], keys[1:]))[0]
    share = -math.expm1(-1 / 512)
    # In two rows with equal signs or in three: with two of one sign, the median is heavy.
    heavy = 3 * share**2 * (1 - share) / 2 + share**3
    found = element_law(sketch, (counts, keys))[0]
    assert found == pytest.approx(light + heavy * 1e10, rel=0.01)


def test_effect_of_the_threshold_matches_summing_over_all_noise_values():
    histogram = HistogramNoise(2.0, 6)
    counts = np.array([1.0, 5.0, 6.0, 9.0])
    found = held_keys(histogram, counts)
    noise = {z: np.exp(-abs(z) / 2) * np.tanh(0.25) for z in range(-120, 121)}
    for power, values in enumerate((found.share, found.noise, found.squares)):
        expected = [sum(p * z**power for z, p in noise.items() if c + z >= 6) for c in counts]
        assert values == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("num_records", "num_keys", "largest"),
    [(10**6, 10**6, 1), (10**6, 10**4, 100), (10**6, 200_000, 115_000), (7, 1, 7), (10, 2, 9)],
)
def test_key_profile_has_the_declared_numbers_of_records_and_keys(num_records, num_keys, largest):
    counts, keys = dp.KeyProfile(num_records, num_keys, largest).groups
    assert keys.sum() == num_keys
    assert counts[0] == pytest.approx(largest)
    assert keys @ counts == pytest.approx(num_records)
    assert counts.min() >= 1 and (np.diff(counts) <= 1e-9).all()


def test_distribution_of_a_cell_is_that_of_noise_plus_poisson_keys():
    """Against a sum over how many keys of two counts there are, with every pattern of signs."""
    sketch = SketchNoise("blocks", 24, 3, "discrete_laplace", 2.0, "median")
    law = cell_law(sketch, (np.array([2.0, 5.0]), np.array([4.0, 1.0])))
    noise = {z: np.exp(-abs(z) / 2) * np.tanh(0.25) for z in range(-60, 61)}
    expected = np.zeros(40)
    for twos, fives in itertools.product(range(10), range(7)):
        chance = math.prod(
            math.exp(-rate) * rate**number / math.factorial(number)
            for rate, number in ((0.5, twos), (0.125, fives))
        )
        for up2, up5 in itertools.product(range(twos + 1), range(fives + 1)):
            ways = math.comb(twos, up2) * math.comb(fives, up5) / 2 ** (twos + fives)
            moved = 2 * (2 * up2 - twos) + 5 * (2 * up5 - fives)
            for cell in range(40):
                if cell - moved in noise:
                    expected[cell] += chance * ways * noise[cell - moved]
    assert law[:40] == pytest.approx(expected, abs=1e-7)


def choose(shape, size=2**16, **named):
    named.setdefault("max_sparsity", 4096)
    guarantee = named.pop("guarantee", PROMISE)
    return plan_sparse_release(guarantee, shape, max_size=size, **named)


@pytest.mark.part
def test_key_profile_predicts_the_rare_keys_of_a_real_table():
    """The planes that left New York in 2013: 943 of 4,043 had fewer than 22 flights."""
    counts, keys = dp.KeyProfile(334_264, 4_043, 575).groups
    assert keys[counts < 22].sum() == pytest.approx(943, rel=0.1)
    assert (keys * counts)[counts < 22].sum() == pytest.approx(7_364, rel=0.5)
    choices = choose(dp.KeyProfile(334_264, 4_043, 575), 2**20, sparsity=1630)
    assert not isinstance(choices[0].mechanism, dp.StabilityHistogram)


@pytest.mark.part
def test_planner_ranks_the_expected_mechanism_first():
    million = 10**6
    distinct = choose(dp.KeyProfile(million, million, 1), 2**20, sparsity=256)
    assert distinct[0].mechanism == dp.CountSketch(2**20, 1)
    assert distinct[0].error == pytest.approx(27, abs=1)
    frequent = choose(dp.KeyProfile(million, 10**4, 100), 2**20, sparsity=256)
    assert isinstance(frequent[0].mechanism, dp.StabilityHistogram)
    skewed = choose(dp.KeyProfile(million, 200_000, 115_000), 2**20)
    assert isinstance(skewed[0].mechanism, dp.HybridSketch)
    assert skewed[0].mechanism.num_rows == 3
    pure = dp.Guarantee(1.0, 0, ADD, "record", 1)
    skewed_pure = choose(dp.KeyProfile(million, 200_000, 115_000), 2**20, guarantee=pure)
    assert skewed_pure[0].mechanism == dp.CountSketch(2**20 // 3 * 3, 3)
    small = choose(dp.KeyProfile(million, 200_000, 115_000), 2**14)
    assert isinstance(small[0].mechanism, dp.HybridSketch)
    assert all(one.error <= other.error for one, other in itertools.pairwise(skewed))
    assert all(choice.size <= 2**20 for choice in skewed)


def test_without_delta_only_pure_releases_are_planned():
    pure = dp.Guarantee(1.0, 0, ADD, "record", 1)
    choices = choose(PROFILES["ten"], guarantee=pure)
    assert choices and all(choice.is_pure for choice in choices)
    assert {type(choice.mechanism) for choice in choices} == {dp.CountSketch}


@pytest.mark.part
def test_no_mechanism_is_better_than_zero_for_queries_of_one_rare_key():
    distinct = dp.KeyProfile(10**6, 10**6, 1)
    assert error_of_nothing(distinct, 1) == pytest.approx(1)
    assert min(choice.error for choice in choose(distinct, sparsity=1)) >= 0.999


def test_parts_of_the_bound_of_a_hybrid_share_its_failure_probability(monkeypatch):
    plan = plan_of(dp.HybridSketch(300, 3))
    elements = np.arange(40, dtype=np.uint64)
    release = dp.release_sparse(plan, summary_from(plan, elements, 4 * np.arange(40)), NoNoise())
    shares = []
    for name in ("_chebyshev", "selected_noise_bound"):
        original = getattr(sketch_release, name)

        def noting(*arguments, original=original):
            shares.append(arguments[-1])
            return original(*arguments)

        monkeypatch.setattr(sketch_release, name, noting)
    answer = release.answer(elements, np.ones(40))
    assert len(shares) == 2 and sum(shares) <= answer.failure_probability


@pytest.mark.parametrize("name", ["hybrid", "histogram"])
def test_noise_that_is_drawn_is_the_planned_noise(name):
    mechanism = {"hybrid": dp.HybridSketch(300, 3), "histogram": dp.StabilityHistogram()}[name]
    plan, noise = plan_of(mechanism), NoNoise()
    elements = np.arange(40, dtype=np.uint64)
    dp.release_sparse(plan, summary_from(plan, elements, 4 * np.arange(40)), noise)
    cells = [] if plan.sketch is None else [plan.sketch.scale * plan.sketch.grid]
    assert [draw.scale for draw in noise.draws] == [*cells, plan.histogram.scale]

"""Predicted errors against measured ones, and the planner's choices.

Statistical tests: seeded, so they do not flake. A mean of 1,200 squared errors has a standard error
of about 5 %; 20 % on the error is 40 % on its square.
"""

import itertools
import math

import numpy as np
import pytest
from noise_sources import Seeded
from sketch_laws import seeded_key
from tiny import ADD

from beam_dp.errors import InputError
from beam_dp.mechanisms import (
    CountSketch,
    HybridSketch,
    SparseProject,
    SparseSummary,
    StabilityHistogram,
    release_sparse,
)
from beam_dp.mechanisms.key_profile import KeyProfile
from beam_dp.mechanisms.sparse_error import cell_law, held_share, sparse_error
from beam_dp.mechanisms.sparse_plan import HistogramNoise, SketchNoise
from beam_dp.mechanisms.sparse_planner import error_of_nothing, plan_sparse_release
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.summaries import ElementCounts, Projection

PROMISE = Guarantee(1.0, 1e-9, ADD, "record", 1)
PROFILES = {
    "skewed": KeyProfile(60_000, 10_000, 8_000),
    "distinct": KeyProfile(20_000, 20_000, 1),
    "ten": KeyProfile(20_000, 2_000, 10),
    "hundred": KeyProfile(200_000, 2_000, 100),
}
MECHANISMS = {
    "one row": CountSketch(2**12, 1),
    "three rows": CountSketch(2**14 // 3 * 3, 3),
    "five rows": CountSketch(2**14 // 5 * 5, 5),
    "median of rows": CountSketch(2**14 // 3 * 3, 3, estimator="median"),
    "mean of rows": CountSketch(2**12 // 3 * 3, 3, estimator="mean"),
    "gaussian rows": CountSketch(2**13 // 3 * 3, 3, noise="gaussian"),
    "blocks": SparseProject(2**12),
    "dense": SparseProject(2**9, "dense"),
    "textbook": SparseProject(2**12, calibration="textbook"),
    "histogram": StabilityHistogram(),
    "hybrid": HybridSketch(2**12, 1),
    "hybrid of three rows": HybridSketch(2**13 // 3 * 3, 3),
}


def counts_of(profile: KeyProfile) -> np.ndarray:
    counts, keys = profile.groups
    return np.repeat(np.rint(counts).astype(np.int64), np.rint(keys).astype(int))


@pytest.mark.parametrize("shape", PROFILES)
@pytest.mark.parametrize("name", MECHANISMS)
def test_predicted_errors_are_measured(name, shape):
    sparsity = 32
    counts = counts_of(PROFILES[shape])
    elements = np.arange(len(counts), dtype=np.uint64) << np.uint64(30)
    rng = np.random.default_rng(3)
    squared = []
    predicted = 0.0
    dense = name == "dense"
    for seed in range(10):
        plan = MECHANISMS[name].plan(PROMISE, max_sparsity=64, hash_key=seeded_key(seed))
        sums = None
        if plan.sketch is not None:
            signs = plan.sketch.signs(plan.hash_key)
            sums = Projection(signs.project(elements, counts))
        summary = SparseSummary(sums, ElementCounts(elements, counts))
        release = release_sparse(plan, summary, Seeded(seed))
        for _ in range(20 if dense else 120):
            chosen = rng.choice(len(counts), sparsity, replace=False)
            answer = release.answer(elements[chosen], np.ones(sparsity))
            squared.append((answer.value - counts[chosen].sum()) ** 2)
        predicted = sparse_error(plan, PROFILES[shape], sparsity)
    # The mean over rows of skewed data hangs on where a few keys collide.
    tolerance = 0.35 if shape == "skewed" and name in HEAVY else 0.2
    assert math.sqrt(np.mean(squared)) == pytest.approx(predicted, rel=tolerance)


HEAVY = {"one row", "mean of rows", "blocks", "dense", "textbook"}


@pytest.mark.parametrize(
    ("num_records", "num_keys", "largest"),
    [(10**6, 10**6, 1), (10**6, 10**4, 100), (10**6, 200_000, 115_000), (7, 1, 7), (10, 2, 9)],
)
def test_a_profile_has_the_numbers_that_were_declared(num_records, num_keys, largest):
    counts, keys = KeyProfile(num_records, num_keys, largest).groups
    assert keys.sum() == num_keys
    assert counts[0] == pytest.approx(largest)
    assert keys @ counts == pytest.approx(num_records)
    assert counts.min() >= 1 and (np.diff(counts) <= 1e-9).all()


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ((10, 11, 1), "num_records: 10 is refused"),
        ((10, 2, 4), "num_records: 10 is refused"),
        ((10, 2, 10), "num_records: 10 is refused"),
        ((0, 1, 1), "num_records: 0 is refused"),
        ((1.5, 1, 1), "num_records: 1.5 is refused"),
    ],
)
def test_a_profile_that_no_table_has_is_refused(numbers, message):
    with pytest.raises(InputError, match=message):
        KeyProfile(*numbers)


def test_the_law_of_a_cell_is_that_of_noise_and_poisson_keys():
    """Against a sum over how many keys of two counts there are, with every pattern of signs."""
    sketch = SketchNoise("blocks", 30, 3, "discrete_laplace", 2.0, "median")
    law = cell_law(sketch, (np.array([2.0, 5.0]), np.array([4.0, 1.0])))
    noise = {z: np.exp(-abs(z) / 2) * np.tanh(0.25) for z in range(-60, 61)}
    expected = np.zeros(40)
    for twos, fives in itertools.product(range(9), range(6)):
        chance = math.prod(
            math.exp(-rate) * rate**number / math.factorial(number)
            for rate, number in ((0.4, twos), (0.1, fives))
        )
        for up2, up5 in itertools.product(range(twos + 1), range(fives + 1)):
            ways = math.comb(twos, up2) * math.comb(fives, up5) / 2 ** (twos + fives)
            moved = 2 * (2 * up2 - twos) + 5 * (2 * up5 - fives)
            for cell in range(40):
                if cell - moved in noise:
                    expected[cell] += chance * ways * noise[cell - moved]
    assert law[:40] == pytest.approx(expected, abs=1e-7)


def test_the_share_that_is_held_is_the_tail_of_the_noise():
    histogram = HistogramNoise(2.0, 6)
    found = held_share(histogram, np.array([1.0, 5.0, 6.0, 9.0]))
    noise = {z: np.exp(-abs(z) / 2) * np.tanh(0.25) for z in range(-90, 91)}
    expected = [sum(p for z, p in noise.items() if count + z >= 6) for count in (1, 5, 6, 9)]
    assert found == pytest.approx(expected, rel=1e-9)


def choose(shape, size=2**16, **named):
    named.setdefault("max_sparsity", 4096)
    guarantee = named.pop("guarantee", PROMISE)
    return plan_sparse_release(guarantee, shape, max_size=size, **named)


def test_the_planner_knows_which_wins_where():
    million = 10**6
    distinct = choose(KeyProfile(million, million, 1), 2**20, sparsity=256)
    assert distinct[0].mechanism == CountSketch(2**20, 1)
    assert distinct[0].error == pytest.approx(27, abs=1)
    frequent = choose(KeyProfile(million, 10**4, 100), 2**20, sparsity=256)
    assert isinstance(frequent[0].mechanism, StabilityHistogram)
    skewed = choose(KeyProfile(million, 200_000, 115_000), 2**20)
    assert skewed[0].mechanism == CountSketch(2**20 // 3 * 3, 3)
    small = choose(KeyProfile(million, 200_000, 115_000), 2**14)
    assert isinstance(small[0].mechanism, HybridSketch)
    assert all(one.error <= other.error for one, other in itertools.pairwise(skewed))
    assert all(choice.size <= 2**20 for choice in skewed)


def test_without_a_delta_only_pure_releases_are_planned():
    pure = Guarantee(1.0, 0, ADD, "record", 1)
    choices = choose(PROFILES["ten"], guarantee=pure)
    assert choices and all(choice.is_pure for choice in choices)
    assert {type(choice.mechanism) for choice in choices} == {CountSketch}


def test_a_few_light_elements_are_best_answered_by_nothing():
    distinct = KeyProfile(10**6, 10**6, 1)
    assert error_of_nothing(distinct, 1) == pytest.approx(1)
    assert min(choice.error for choice in choose(distinct, sparsity=1)) >= 0.999


@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"size": 63}, "max_size: 63 is refused"),
        ({"size": 2**27}, "projection_width: 134217728 is refused"),
        ({"sparsity": 0}, "sparsity: 0 is refused"),
        ({"sparsity": 5000}, "sparsity: 5000 is refused"),
    ],
)
def test_what_the_planner_cannot_do_is_refused(named, message):
    with pytest.raises(InputError, match=message):
        choose(PROFILES["ten"], **named)

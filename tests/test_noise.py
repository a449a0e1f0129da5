"""The sampler against closed forms.

Every statistical test compares frequencies with a law by chi-square at a false-alarm probability
of 2.1e-6 at most and shows, on the same draws, that a scale 30% off would have been rejected.
"""

from __future__ import annotations

import math
import os
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scipy import stats

from beam_dp.errors import InputError
from beam_dp.noise.source import NoiseSource
from beam_dp.testing.audit import exponential_mechanism, permute_and_flip

FALSE_ALARM = 1e-6
DRAWS = 30_000
CHOICES = 8000  # a law of a scale 1.3 times as large passes for the true one with 1e-13 at most


def rejects(counts: np.ndarray, law: np.ndarray) -> bool:
    """Whether chi-square at 1e-6 rejects the law of some outcomes.

    With 200 expected in each cell it rejects a true law with at most 2.1e-6.
    """
    expected = law / law.sum() * counts.sum()
    order = np.argsort(expected)[::-1]
    expected, counts = expected[order], counts[order]
    enough = int((expected >= 200).sum())  # rarer outcomes share one cell
    if enough < len(expected):
        expected = np.append(expected[: enough - 1], expected[enough - 1 :].sum())
        counts = np.append(counts[: enough - 1], counts[enough - 1 :].sum())
    statistic = ((counts - expected) ** 2 / expected).sum()
    return bool(statistic > stats.chi2.isf(FALSE_ALARM, len(expected) - 1))


def discrete_law(kind: str, z: np.ndarray, scale: float) -> np.ndarray:
    return np.exp(-np.abs(z) / scale) if kind == "laplace" else np.exp(-(z**2) / (2 * scale**2))


def frequencies(draws: np.ndarray, reach: int) -> np.ndarray:
    return np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)


def clipped_law(kind: str, scale: float, reach: int) -> np.ndarray:
    far = max(reach, math.ceil(50 * scale))
    z = np.arange(-far, far + 1)
    law = discrete_law(kind, z, scale)
    return np.bincount(np.clip(z, -reach, reach) + reach, weights=law)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [0.5, 1.0, 7.5])
def test_noise_has_the_stated_distribution_and_scale(kind, scale):
    draws = getattr(NoiseSource(), kind)(np.zeros(DRAWS, np.int64), scale)
    reach = max(2, math.ceil(4 * scale))
    counts = frequencies(draws, reach)
    assert not rejects(counts, clipped_law(kind, scale, reach))
    for wrong in (0.7, 1.3):
        assert rejects(counts, clipped_law(kind, wrong * scale, reach))


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_wide_noise_has_the_stated_variance(kind):
    """A sum of 4,000 squares is within 6 standard errors (kurtosis 3 or 6): P < 1e-6."""
    scale = 2.0**40
    draws = getattr(NoiseSource(), kind)(np.zeros(4000, np.int64), scale) / scale
    variance, kurtosis = (2.0, 6.0) if kind == "laplace" else (1.0, 3.0)
    error = 6 * variance * math.sqrt((kurtosis - 1) / 4000)
    assert abs((draws**2).mean() - variance) < error
    assert error < variance * (1.3**2 - 1)
    assert np.unique(draws).size > 3990  # no coarse grid


def test_low_bits_of_wide_noise_are_fair():
    """Low bits are fair: 64 outcomes by chi-square."""
    draws = NoiseSource().laplace(np.zeros(DRAWS, np.int64), 2.0**30)
    assert not rejects(np.bincount(draws & 63, minlength=64), np.ones(64))


CHOICE_LAWS = {"select": exponential_mechanism, "permute_and_flip": permute_and_flip}


@pytest.mark.parametrize("base", [0, 10**9, 2**60, -(2**62)])
@pytest.mark.parametrize("choice", CHOICE_LAWS)
def test_selection_has_the_stated_distribution_and_scale(choice, base):
    scores, draw = np.array([10, 9, 5, 0], np.int64), getattr(NoiseSource(), choice)
    counts = np.bincount([draw(base + scores, 2.0) for _ in range(CHOICES)], minlength=4)
    for name, law in CHOICE_LAWS.items():
        for factor in (1.0, 0.7, 1.3):
            stated = np.array([*law(scores.tolist(), 2.0 * factor).values()])
            if name == choice:
                assert rejects(counts, stated) == (factor != 1.0)
            elif factor == 1.0:
                assert rejects(counts, stated)


def test_selection_among_ties_is_fair():
    noise = NoiseSource()
    counts = np.bincount([noise.select(np.full(5, 10**9), 1.0) for _ in range(2500)], minlength=5)
    assert not rejects(counts, np.ones(5))
    assert rejects(counts, np.array([1.6, 1, 1, 1, 1]))


def test_selection_handles_extreme_scores_and_scales():
    ends = np.array([-(2**63), 2**63 - 1])
    for draw in (NoiseSource().select, NoiseSource().permute_and_flip):
        assert draw(np.array([-7]), 1.0) == 0
        assert {draw(ends, 1.0) for _ in range(20)} == {1}
        assert 0 <= draw(ends, 2.0**50) <= 1


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_rejects_scale_without_privacy_on_every_call(kind):
    for _ in range(2):
        with pytest.raises(InputError, match="too small to give any privacy"):
            getattr(NoiseSource(), kind)(np.zeros(3, np.int64), 5e-324)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_sums_wrap_instead_of_saturating(kind):
    largest = np.full(200, 2**63 - 1, np.int64)
    with np.errstate(over="raise"):
        noisy = getattr(NoiseSource(), kind)(largest, 1000.0)
    # A clipped sum would pile up at the end; a wrapped one has both signs (P < 2^-190).
    assert (noisy < 0).any() and (noisy > 0).any()
    assert np.unique(noisy).size > 100


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (), (1,), (2, 3, 4)])
def test_noisy_values_have_the_shape_and_type_of_the_input(kind, shape):
    values = np.zeros(shape, np.int64)
    noisy = getattr(NoiseSource(), kind)(values, 3.0)
    assert noisy.shape == shape and noisy.dtype == np.int64
    assert not values.any()


def test_earlier_scale_or_kind_does_not_affect_later_draws():
    noise, zeros, two = NoiseSource(), np.zeros(40, np.int64), np.array([1, 0])
    for scale in (2.0**-10, 2.0**40, 2.0**-10):
        assert (
            noise.laplace(zeros, scale).any() == noise.gaussian(zeros, scale).any() == (scale > 1)
        )
        assert any(noise.select(two, scale) for _ in range(40)) == (scale > 1)  # P < 2^-39
    # Of 30,000 draws at scale 1, one kind has values beyond 6 (P > 1 - 1e-16, and < 1e-6).
    far = [
        np.abs(draw(np.zeros(DRAWS, np.int64), 1.0)).max() > 6
        for draw in (noise.laplace, noise.gaussian)
    ]
    assert far == [True, False]


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_forked_processes_draw_independent_noise(kind):
    def draw() -> np.ndarray:
        return getattr(NoiseSource(), kind)(np.zeros(8, np.int64), 2.0**40)

    drawn = [draw()]
    for _ in range(2):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(writer, draw().tobytes())
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            drawn.append(np.frombuffer(pipe.read(), np.int64))
        os.waitpid(child, 0)
    assert np.unique([*drawn, draw()]).size == 32  # P(a repeat) < 1e-8


def test_threads_draw_independent_noise():
    noise, zeros = NoiseSource(), np.zeros(8, np.int64)
    with ThreadPoolExecutor(4) as threads:
        drawn = list(threads.map(lambda _: noise.laplace(zeros, 2.0**45), range(400)))
    assert np.unique(drawn).size == 3200  # P(a repeat) < 1e-6


def test_every_cell_gets_independent_noise():
    noisy = NoiseSource().laplace(np.zeros((40, 40), np.int64), 2.0**40)
    assert np.unique(noisy).size == 1600  # P(a repeat) < 1e-5


@pytest.mark.parametrize("scale", [0.3, 2.0, 9.0])
def test_geometric_noise_has_the_stated_distribution_and_scale(scale):
    drawn = NoiseSource().geometric(DRAWS, scale)
    assert drawn.shape == (DRAWS,) and drawn.dtype == np.int64 and drawn.min() >= 0
    reach = max(2, math.ceil(4 * scale))
    counts = np.bincount(np.minimum(drawn, reach), minlength=reach + 1)
    z = np.arange(math.ceil(60 * scale) + reach)
    for factor in (1.0, 0.7, 1.3):
        law = np.bincount(np.minimum(z, reach), weights=np.exp(-z / (factor * scale)))
        assert rejects(counts, law) == (factor != 1.0)


@pytest.mark.parametrize("bound", [1, 2, 3, 17, 64, 65])
def test_integers_below_a_bound_are_uniform(bound):
    noise = NoiseSource()
    counts = np.bincount([noise.below(bound) for _ in range(DRAWS)], minlength=bound)
    assert counts.size == bound
    assert bound == 1 or not rejects(counts, np.ones(bound))
    assert bound == 1 or rejects(counts, np.append(np.ones(bound - 1), 2.0))
    assert noise.below(2**200 + 1) <= 2**200


@pytest.mark.parametrize("numerator", [0, 1, 3, 7])
def test_probability_of_a_coin_is_between_its_bounds(numerator):
    """Sevenths, seen through bounds so wide at first that most tosses need more bits."""
    noise = NoiseSource()

    def bounds(bits: int) -> tuple[int, int]:
        middle, doubt = (numerator << bits) // 7, 1 << max(bits - 1 - bits // 40, 0)
        return max(middle - doubt, 0), min(middle + 1 + doubt, 1 << bits)

    heads = sum(noise.coin(bounds) for _ in range(5000))
    if numerator in (0, 7):
        assert heads == 5000 * (numerator == 7)
    else:
        assert not rejects(np.array([5000 - heads, heads]), np.array([7 - numerator, numerator]))
        assert rejects(np.array([5000 - heads, heads]), np.array([6 - numerator, numerator + 1]))


def test_signs_are_fair_and_draw_ids_differ():
    noise = NoiseSource()
    signs = noise.signs(DRAWS + 3)
    assert signs.shape == (DRAWS + 3,) and set(signs) == {-1.0, 1.0}
    assert not rejects(np.array([(signs < 0).sum(), (signs > 0).sum()]), np.ones(2))
    assert noise.signs(0).shape == (0,)
    ids = {noise.draw_id() for _ in range(100)}
    assert len(ids) == 100 and all(len(each) == 32 for each in ids)


def test_noise_source_has_no_state_to_clone():
    """A copy that travels through pickle draws noise of its own."""
    source = NoiseSource()
    assert not vars(source)
    values = np.zeros(8, np.int64)
    copy = pickle.loads(pickle.dumps(source))
    assert (copy.laplace(values, 2.0**40) != source.laplace(values, 2.0**40)).any()
    with pytest.raises(TypeError):
        NoiseSource(1)  # type: ignore[call-arg]

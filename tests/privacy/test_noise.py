"""The sampler against closed forms, and what it does exactly with scripted bits.

Noise of production has no seed. So each check of its law has a chance of a false alarm of at most
1e-12, by exact binomial tails, and rejects a scale 30 % off on the same draws, which fails with at
most 1e-12 as well: computed for the numbers of draws below.
"""

import itertools
import math
import os
import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from beam_dp.errors import InputError
from beam_dp.privacy.noise import bound as tails, source
from beam_dp.privacy.noise.source import NoiseSource

FALSE_ALARM = 1e-12
DRAWS = 15_000
LARGEST = 2.0**50
KINDS = ("laplace", "gaussian")


def rejects(counts: np.ndarray, law: np.ndarray) -> bool:
    """Whether the number of an outcome, or of it and all before, is too rare under a law."""
    total, law = int(counts.sum()), law / law.sum()
    seen = np.concatenate([counts, np.cumsum(counts)[:-1]])
    chances = np.minimum(np.concatenate([law, np.cumsum(law)[:-1]]), 1.0)
    below, above = stats.binom.cdf(seen, total, chances), stats.binom.sf(seen - 1, total, chances)
    return bool(2 * len(seen) * np.minimum(below, above).min() < FALSE_ALARM)


def discrete_law(kind: str, z: np.ndarray, scale: float) -> np.ndarray:
    """The law of noise up to a factor: geometric noise is Laplace noise from 0 on."""
    if kind == "gaussian":
        return np.exp(-(z**2) / (2 * scale**2))
    return np.exp(-np.abs(z) / scale) * ((z >= 0) | (kind == "laplace"))


def clipped_law(kind: str, scale: float, reach: int) -> np.ndarray:
    far = max(reach, math.ceil(80 * scale))
    z = np.arange(-far, far + 1)
    law = discrete_law(kind, z, scale)
    return np.bincount(np.clip(z, -reach, reach) + reach, weights=law)


def check_law(kind: str, scale: float) -> None:
    if kind == "geometric":
        draws = NoiseSource().geometric(DRAWS, scale)
    else:
        draws = getattr(NoiseSource(), kind)(np.zeros(DRAWS, np.int64), scale)
    assert draws.shape == (DRAWS,) and draws.dtype == np.int64
    reach = max(2, math.ceil(4 * scale))
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=2 * reach + 1)
    for factor in (1.0, 0.7, 1.3):
        assert rejects(counts, clipped_law(kind, factor * scale, reach)) == (factor != 1.0)


def test_noise_of_either_kind_has_the_stated_distribution_and_scale():
    """Of the same scale, so that no sampler that is kept is taken for that of another kind."""
    for kind in KINDS:
        check_law(kind, 1.0)


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5, 2.0**40, LARGEST])
def test_sampler_has_the_privacy_loss_of_its_scale(scale):
    for size in (1, 1000):
        laplace, gaussian = (source._sampler(kind, size, scale) for kind in KINDS)
        assert laplace is not None and laplace.map(1) == pytest.approx(1 / scale)
        assert gaussian is not None and gaussian.map(1.0) == pytest.approx(1 / scale**2 / 2)


def test_wide_noise_has_the_stated_scale_and_no_grid():
    """Of 16 ranges of sizes each has one sixteenth; the low bits are fair."""
    shares = np.arange(1, 16) / 16
    for kind, quantile in (("laplace", stats.expon.ppf), ("gaussian", stats.halfnorm.ppf)):
        draws = getattr(NoiseSource(), kind)(np.zeros(DRAWS, np.int64), 2.0**40)
        for factor in (1.0, 0.7, 1.3):
            ranges = np.searchsorted(factor * quantile(shares) * 2.0**40, np.abs(draws))
            assert rejects(np.bincount(ranges, minlength=16), np.ones(16)) == (factor != 1.0)
        assert not rejects(np.bincount(draws & 63, minlength=64), np.ones(64))


def test_selection_handles_extreme_scores_and_scales():
    ends = np.array([-(2**63), 2**63 - 1])
    for draw in (NoiseSource().select, NoiseSource().permute_and_flip):
        assert draw(np.array([-7]), 1.0) == 0
        assert {draw(ends, 1.0) for _ in range(20)} == {1}
        assert 0 <= draw(ends, LARGEST) <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_rejects_scale_without_privacy_on_every_call(kind):
    for _ in range(2):
        with pytest.raises(InputError, match=r"^scale: "):
            getattr(NoiseSource(), kind)(np.zeros(3, np.int64), 5e-324)


@pytest.mark.parametrize("kind", KINDS)
def test_sums_wrap_instead_of_saturating(kind):
    largest = np.full(200, 2**63 - 1, np.int64)
    with np.errstate(over="raise"):
        noisy = getattr(NoiseSource(), kind)(largest, 1000.0)
    # A clipped sum would pile up at the end; a wrapped one has both signs (P < 2^-190).
    assert (noisy < 0).any() and (noisy > 0).any()
    assert np.unique(noisy).size > 100


@pytest.mark.parametrize("kind", KINDS)
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
        assert any(noise.select(two, scale) for _ in range(50)) == (scale > 1)  # P < 2^-49


def differ(drawn: Sequence[np.ndarray]) -> bool:
    """Whether no two of up to 400 draws of 8 wide values are equal: else with P < 2^-350."""
    return len({each.tobytes() for each in drawn}) == len(drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_forked_processes_draw_independent_noise(kind):
    def draw() -> np.ndarray:
        return getattr(NoiseSource(), kind)(np.zeros(8, np.int64), LARGEST)

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
    assert differ([*drawn, draw()])


def test_threads_draw_independent_noise():
    noise, zeros = NoiseSource(), np.zeros(8, np.int64)
    with ThreadPoolExecutor(4) as threads:
        assert differ([*threads.map(lambda _: noise.laplace(zeros, LARGEST), range(400))])


def test_every_cell_gets_independent_noise():
    noisy = NoiseSource().laplace(np.zeros((40, 8), np.int64), LARGEST)
    assert differ(noisy) and differ(noisy.T)


def test_copy_of_a_noise_source_draws_noise_of_its_own():
    """There is no state to clone through pickle, and no seed."""
    noise = NoiseSource()
    assert not vars(noise)
    copy = pickle.loads(pickle.dumps(noise))
    assert differ([each.laplace(np.zeros(8, np.int64), LARGEST) for each in (noise, copy)])
    with pytest.raises(TypeError):
        NoiseSource(1)  # type: ignore[call-arg]


class ScriptedBits(NoiseSource):
    """Draws a binary fraction: the bits of some integer, then zeros."""

    def __init__(self, drawn: int, size: int) -> None:
        self._left, self._size = drawn, size

    def bits(self, number: int) -> int:
        taken = min(number, self._size)
        self._size -= taken
        found, self._left = divmod(self._left, 1 << self._size)
        return found << (number - taken)


@pytest.mark.parametrize("bound", [1, 2, 3, 17, 64, 65])
def test_integer_below_a_bound_is_the_first_draw_below_it(bound):
    """Each draw of that many bits is as likely, so the integer is uniform."""
    width = (bound - 1).bit_length()
    for first in range(2**width):
        found = ScriptedBits(first << width, 2 * width).below(bound)
        assert found == (first if first < bound else 0)
    assert NoiseSource().below(2**200 + 1) <= 2**200


@pytest.mark.parametrize("numerator", [0, 1, 3, 7])
def test_coin_shows_heads_exactly_below_its_probability(numerator):
    """Sevenths, seen through bounds so wide at first that most tosses need more bits."""

    def bounds(bits: int) -> tuple[int, int]:
        middle, doubt = (numerator << bits) // 7, 1 << max(bits - 1 - bits // 40, 0)
        return max(middle - doubt, 0), min(middle + 1 + doubt, 1 << bits)

    edge = (numerator << 100) // 7
    near = [edge + step for step in (-(2**60), -1, 0, 1, 2**60)]
    for drawn in (*near, 1, 2**99, 2**100 - 1):
        if not 0 < drawn < 2**100:  # all bits of 0 are those of a coin without heads
            continue
        heads = ScriptedBits(drawn, 100).coin(bounds)
        assert heads == (Fraction(drawn, 2**100) < Fraction(numerator, 7)), drawn - edge


def test_signs_are_fair_and_draw_ids_differ():
    noise = NoiseSource()
    signs = noise.signs(DRAWS + 3)
    assert signs.shape == (DRAWS + 3,) and set(signs) == {-1.0, 1.0}
    assert not rejects(np.array([(signs < 0).sum(), (signs > 0).sum()]), np.ones(2))
    assert noise.signs(0).shape == (0,)
    ids = {noise.draw_id() for _ in range(100)}
    assert len(ids) == 100 and all(len(each) == 32 for each in ids)


# Noise of which only large values are kept has the law of noise that is drawn for every value.


@pytest.mark.parametrize("kind", KINDS)
def test_noisy_value_at_the_threshold_is_kept(kind, monkeypatch):
    """Where all noise is drawn: one below the threshold, exactly there, one above."""
    scripted = np.array([-1, 0, 1], np.int64)
    monkeypatch.setattr(source, "_draw", lambda kind, values, scale: values + scripted)
    places, noisy = NoiseSource().reaching(kind, np.full(3, 7), 100.0, 7)
    assert (places.tolist(), noisy.tolist()) == ([1, 2], [7, 8])


class Rare(NoiseSource):
    """Every rare event happens, and exceeds its distance by nothing."""

    def coin(self, bounds) -> bool:
        return True

    def geometric(self, size: int, scale: float) -> np.ndarray:
        return np.zeros(size, np.int64)


@pytest.mark.parametrize("kind", KINDS)
def test_rare_noisy_value_at_the_threshold_is_kept(kind, monkeypatch):
    """Where one random number decides: below its limit, and above."""
    words = np.array([0, 2**64 - 1], np.uint64).tobytes()
    monkeypatch.setattr(
        "beam_dp.privacy.noise.source.secrets.token_bytes", lambda size: words[:size]
    )
    places, noisy = Rare().reaching(kind, np.zeros(2, np.int64), 10.0, 500)
    assert (places.tolist(), noisy.tolist()) == ([0], [500])


@pytest.mark.parametrize(
    ("kind", "scale", "distance"),
    [
        *(("laplace", *case) for case in ((0.5, 7), (3.0, 40), (2.0, 200), (1e6, 2 * 10**7))),
        *(("gaussian", *case) for case in ((8.0, 40), (12.5, 60), (300.0, 4000))),
    ],
)
def test_probability_of_each_kept_value_is_exact(kind, scale, distance):
    (limit,), (is_rare,) = tails.tail_limits(kind, np.array([distance]), scale)
    low, high = tails.limit_share(kind, distance, scale, int(limit), 128)
    assert is_rare and 0 <= high - low <= 2
    assert high <= 2**128  # it is a probability
    steps = tails.step_scale(kind, distance, scale)
    whole = 1 / math.tanh(1 / (2 * scale))  # the sum of a two-sided geometric series
    if kind == "gaussian":
        z = np.arange(-math.ceil(60 * scale), math.ceil(60 * scale) + 1)
        whole = math.fsum(discrete_law(kind, z, scale).tolist())
    for step in (0, 1, 2, 7, 30):
        exponent = tails.step_exponent(kind, distance, scale, step)
        assert exponent >= 0
        found = int(limit) / 2**64 * (low / 2**128) * -math.expm1(-1 / steps)
        found *= math.exp(-step / steps - exponent)
        expected = float(discrete_law(kind, np.array([distance + step]), scale)[0]) / whole
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("bits", [32, 64, 256, 1024])
def test_bounds_of_a_coin_contain_its_probability_and_close(bits):
    fine = tails.limit_share("gaussian", 50, 9.5, 2**40, 2048)
    low, high = tails.limit_share("gaussian", 50, 9.5, 2**40, bits)
    assert high - low <= 2
    assert Fraction(low, 2**bits) <= Fraction(fine[0], 2**2048)
    assert Fraction(fine[1], 2**2048) <= Fraction(high, 2**bits)


@pytest.mark.part
@pytest.mark.parametrize(("kind", "scale"), [("laplace", 3.0), ("gaussian", 8.0)])
@pytest.mark.parametrize("largest", [1.0, 0.0])
def test_kept_values_have_the_law_of_all_noise(kind, scale, largest, monkeypatch):
    """Where every value counts as rare, and where none does."""
    monkeypatch.setattr(tails, "_LARGEST", largest)
    values = np.tile(np.array([0, 3]), DRAWS)
    places, noisy = NoiseSource().reaching(kind, values, scale, 4)
    assert (np.diff(places) > 0).all() and (noisy >= 4).all()
    z = np.arange(-math.ceil(50 * scale), math.ceil(50 * scale) + 1)
    most = 4 + 2 * int(scale)
    for value, factor in itertools.product((0, 3), (1.0, 1.3)):
        found = noisy[values[places] == value]
        law = discrete_law(kind, z, factor * scale)
        kept = np.bincount(np.clip(z + value, 3, most), law)[3:]  # 3 stands for what is dropped
        counts = np.bincount(np.minimum(found, most), minlength=most + 1)[3:]
        counts[0] = DRAWS - len(found)
        assert rejects(counts, kept) == (factor > 1), (value, factor)


@pytest.mark.parametrize(("kind", "scale"), [("laplace", 40.0), ("gaussian", 100.0)])
def test_values_above_the_threshold_stay_and_those_far_below_are_dropped(kind, scale):
    values = np.zeros(2**20 + 10, np.int64)
    values[[5, 2**20 + 3]] = 20_000
    places, noisy = NoiseSource().reaching(kind, values, scale, 10_000)
    assert places.tolist() == [5, 2**20 + 3] and np.abs(noisy - 20_000).max() < 5_000
    places, noisy = NoiseSource().reaching(kind, values[:0], scale, 10_000)
    assert places.shape == noisy.shape == (0,) and noisy.dtype == np.int64

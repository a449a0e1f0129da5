"""Noise of which only large values are kept has the law of noise that is drawn for every value."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from beam_dp.noise import tails
from beam_dp.noise.source import NoiseSource

FALSE_ALARM = 1e-6


def law(kind: str, z: np.ndarray, scale: float) -> np.ndarray:
    return np.exp(-np.abs(z) / scale if kind == "laplace" else -((z / scale) ** 2) / 2)


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
        whole = math.fsum(law(kind, z, scale).tolist())
    for step in (0, 1, 2, 7, 30):
        exponent = tails.step_exponent(kind, distance, scale, step)
        assert exponent >= 0
        found = int(limit) / 2**64 * (low / 2**128) * -math.expm1(-1 / steps)
        found *= math.exp(-step / steps - exponent)
        expected = float(law(kind, np.array([distance + step]), scale)[0]) / whole
        assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("bits", [32, 64, 256, 1024])
def test_bounds_of_a_coin_contain_its_probability_and_close(bits):
    fine = tails.limit_share("gaussian", 50, 9.5, 2**40, 2048)
    low, high = tails.limit_share("gaussian", 50, 9.5, 2**40, bits)
    assert high - low <= 2
    assert Fraction(low, 2**bits) <= Fraction(fine[0], 2**2048)
    assert Fraction(fine[1], 2**2048) <= Fraction(high, 2**bits)


@pytest.mark.parametrize(("kind", "scale"), [("laplace", 3.0), ("gaussian", 8.0)])
def test_kept_values_have_the_law_of_all_noise(kind, scale, monkeypatch):
    monkeypatch.setattr(tails, "_LARGEST", 1.0)  # every value takes the path of rare ones
    values = np.tile(np.array([0, 3]), 4000)
    places, noisy = NoiseSource().reaching(kind, values, scale, 4)
    assert (np.diff(places) > 0).all() and (noisy >= 4).all()
    far = math.ceil(50 * scale)
    for value in (0, 3):
        found = noisy[values[places] == value]
        for factor in (1.0, 1.3):
            z = np.arange(-far, far + 1)
            chances = law(kind, z, factor * scale)
            kept = np.clip(z + value, 3, 4 + 2 * int(scale))  # 3 stands for what is dropped
            expected = np.bincount(kept, chances)[3:] / chances.sum() * 4000
            counts = np.bincount(np.clip(found, 3, len(expected) + 2), minlength=len(expected) + 3)
            counts = counts[3:]
            counts[0] = 4000 - len(found)
            chance = stats.chisquare(counts, expected * 4000 / expected.sum()).pvalue
            assert (chance < FALSE_ALARM) == (factor > 1), (value, factor, chance)


@pytest.mark.parametrize(("kind", "scale"), [("laplace", 40.0), ("gaussian", 100.0)])
def test_values_above_the_threshold_stay_and_those_far_below_are_dropped(kind, scale):
    values = np.zeros(2**20 + 10, np.int64)
    values[[5, 2**20 + 3]] = 20_000
    places, noisy = NoiseSource().reaching(kind, values, scale, 10_000)
    assert places.tolist() == [5, 2**20 + 3] and np.abs(noisy - 20_000).max() < 5_000
    places, noisy = NoiseSource().reaching(kind, values[:0], scale, 10_000)
    assert places.shape == noisy.shape == (0,) and noisy.dtype == np.int64

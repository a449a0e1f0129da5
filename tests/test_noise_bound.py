"""Bounds on weighted sums of noise, against the exact law of sums with small whole weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
from claim_rows.published import published_weighted_noise
from scipy.optimize import minimize_scalar

from beam_dp.noise.bound import Distribution, weighted_noise_bound

REACH = 400
WEIGHTS = ([1], [1, 1], [3, 1, 1], [1] * 12, [5, *[1] * 20])


def law(distribution: Distribution, scale: float, weight: int) -> np.ndarray:
    """Of one noise times its weight, from -12 REACH to 12 REACH."""
    places = np.arange(-REACH, REACH + 1)
    if distribution == "discrete_laplace":
        mass = np.exp(-np.abs(places) / scale)
    else:
        mass = np.exp(-(places**2) / (2 * scale**2))
    found = np.zeros(24 * REACH + 1)
    found[12 * REACH + weight * places] = mass / mass.sum()
    return found


def tail(distribution: Distribution, scale: float, weights: list[int], bound: float) -> float:
    """P(|sum of weight times noise| > bound): a product of transforms."""
    transform = 1.0
    for weight in weights:
        transform = transform * np.fft.fft(np.fft.ifftshift(law(distribution, scale, weight)))
    mass = np.fft.fftshift(np.fft.ifft(transform).real)
    places = np.arange(-12 * REACH, 12 * REACH + 1)
    return float(mass[np.abs(places) > bound].sum())


@pytest.mark.mostly_slow(one_in=4)
@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize("scale", [0.4, 2.0, 12.0])
@pytest.mark.parametrize("distribution", ["discrete_laplace", "discrete_gaussian"])
def test_bounds_are_exceeded_no_more_often_than_they_may(distribution, scale, weights):
    squares = sum(weight**2 for weight in weights)
    for probability in (0.5, 0.05, 1e-4):
        bound = weighted_noise_bound(distribution, scale, squares, max(weights), 1, probability)
        assert tail(distribution, scale, weights, bound) <= probability
        # A union bound over four sums is that of one with a quarter of the probability.
        several = weighted_noise_bound(
            distribution, scale, squares, max(weights), 4, 4 * probability
        )
        assert several == pytest.approx(bound)


@pytest.mark.parametrize("number", [1, 4, 64])
@pytest.mark.parametrize("probability", [0.5, 0.05, 1e-9])
def test_a_bound_of_equal_laplace_weights_is_chernoffs(number, probability):
    bound = weighted_noise_bound("discrete_laplace", 2.0, number * 9.0, 3.0, 1, probability)

    def exponent(t: float) -> float:
        return -number * math.log(1 - (6 * t) ** 2) - t * bound

    least = minimize_scalar(exponent, bounds=(0, 1 / 6), method="bounded").fun
    assert 2 * math.exp(least) == pytest.approx(probability, rel=1e-4)
    published = published_weighted_noise(number, 3.0, 2.0, probability)
    assert bound < published


def test_half_of_a_bound_is_exceeded_more_often_than_the_bound_may_be():
    for distribution in ("discrete_laplace", "discrete_gaussian"):
        bound = weighted_noise_bound(distribution, 12.0, 12.0, 1.0, 1, 0.05)
        assert tail(distribution, 12.0, [1] * 12, bound / 2) > 0.05

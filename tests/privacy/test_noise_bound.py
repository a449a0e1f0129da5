"""Bounds on sums of noise, the normal law and exponentials, against exact or precise values."""

import math
from fractions import Fraction

import flint
import mpmath
import numpy as np
import pytest
from claim_rows.published import published_weighted_noise
from scipy.optimize import minimize_scalar
from scipy.special import log_ndtr, ndtri_exp

from beam_dp.privacy.noise.bound import (
    Distribution,
    exp_above,
    exp_bounds,
    log_normal,
    normal_quantile,
    weighted_noise_bound,
)

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


@pytest.mark.parametrize("weights", WEIGHTS, ids=str)
@pytest.mark.parametrize("scale", [0.4, 2.0, 12.0])
@pytest.mark.parametrize("distribution", ["discrete_laplace", "discrete_gaussian"])
def test_bounds_are_exceeded_at_most_as_often_as_stated(distribution, scale, weights):
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
def test_bound_for_equal_laplace_weights_is_the_chernoff_bound(number, probability):
    bound = weighted_noise_bound("discrete_laplace", 2.0, number * 9.0, 3.0, 1, probability)

    def exponent(t: float) -> float:
        return -number * math.log(1 - (6 * t) ** 2) - t * bound

    least = minimize_scalar(exponent, bounds=(0, 1 / 6), method="bounded").fun
    assert 2 * math.exp(least) == pytest.approx(probability, rel=1e-4)
    published = published_weighted_noise(number, 3.0, 2.0, probability)
    assert bound < published


def test_half_of_a_bound_is_exceeded_too_often():
    for distribution in ("discrete_laplace", "discrete_gaussian"):
        bound = weighted_noise_bound(distribution, 12.0, 12.0, 1.0, 1, 0.05)
        assert tail(distribution, 12.0, [1] * 12, bound / 2) > 0.05


POINTS = [*np.linspace(-60, 8, 273), *-np.logspace(-8, 5, 60), *np.logspace(-8, 0, 20), -30, -30.1]


def relative_error(found: float, point: float) -> float:
    """Of the logarithm, by interval arithmetic of 300 bits."""
    bits, flint.ctx.prec = flint.ctx.prec, 300
    try:
        exact = (flint.arb(-point) / flint.arb(2).sqrt()).erfc().log() - flint.arb(2).log()
        return float(abs(flint.arb(found) / exact - 1).mid())
    finally:
        flint.ctx.prec = bits


@pytest.mark.parametrize("points", np.array_split(POINTS, 8))
def test_logarithm_is_accurate_to_the_last_digits(points):
    for point in map(float, points):
        error = relative_error(log_normal(point), point)
        # Far above the mean the logarithm is tiny, and the exponential of a square is in it.
        assert error < 8e-16 * max(1.0, point**2), point
        assert log_normal(point) == pytest.approx(float(log_ndtr(point)), rel=1e-13)


def test_logarithm_is_accurate_at_the_ends_of_doubles():
    assert log_normal(-math.inf) == log_normal(-1e200) == -math.inf
    assert log_normal(math.inf) == log_normal(40.0) == 0.0
    assert log_normal(-1e154) == pytest.approx(-5e307)


@pytest.mark.parametrize("log_probability", [-0.7, -1.0, -5.0, -50.0, -700.0, -5000.0, -1e6, -1e12])
def test_quantile_inverts_the_normal_distribution(log_probability):
    point = normal_quantile(log_probability)
    assert log_normal(point) == pytest.approx(log_probability, rel=1e-14)
    assert point == pytest.approx(float(ndtri_exp(log_probability)), rel=1e-11)


@pytest.mark.parametrize("log_probability", -np.logspace(14, 308, 99))
def test_quantile_is_accurate_far_in_the_tail(log_probability):
    # Never above what is right, so that no loss is stated too small by it.
    point, exact = normal_quantile(float(log_probability)), float(ndtri_exp(log_probability))
    assert exact * (1 + 1e-13) <= point <= exact * (1 - 1e-13)


@pytest.mark.parametrize("below", [0.0, 1e-16, 1e-12, 1e-6, 1e-3])
def test_quantile_is_accurate_near_one_half(below):
    point = normal_quantile(math.log(0.5) - below)
    assert point == pytest.approx(-below * math.sqrt(math.pi / 2), rel=1e-3, abs=5e-16)
    assert point <= 0


EXPONENTS = [
    Fraction(0),
    Fraction(1, 10**40),
    Fraction(1, 3),
    Fraction(1),
    Fraction(22, 7),
    Fraction(0.1) * 7,
    Fraction(100, 3),
    Fraction(699),
    Fraction(10**6, 7),
    Fraction(10**400),
]


@pytest.mark.parametrize("exponent", EXPONENTS, ids=str)
@pytest.mark.parametrize("bits", [1, 31, 32, 33, 64, 100, 2000])
def test_lower_bounds_are_valid_and_tight(exponent, bits):
    low, high = exp_bounds(exponent, bits)
    assert 0 <= low <= high <= low + 4
    with mpmath.workprec(bits + 200):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * 2**bits
        assert low <= exact <= high


@pytest.mark.parametrize("exponent", EXPONENTS[:-1], ids=str)
@pytest.mark.parametrize("bits", [0, 10, 60, 500, 1500, 3000])
def test_upper_bounds_are_valid_and_tight(exponent, bits):
    above = exp_above(float(exponent), bits)
    with mpmath.workprec(bits + 400):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * 2**bits
        assert exact <= above
        if exponent < 10**5:
            assert above <= exact * (1 + mpmath.mpf("2e-9")) + 2

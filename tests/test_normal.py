"""The normal distribution and its inverse, against numbers of many digits."""

from __future__ import annotations

import math

import flint
import numpy as np
import pytest
from scipy.special import log_ndtr, ndtri_exp

from beam_dp.noise.bound import log_normal, normal_quantile

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
def test_the_logarithm_is_right_to_the_last_digits(points: np.ndarray) -> None:
    for point in map(float, points):
        error = relative_error(log_normal(point), point)
        # Far above the mean the logarithm is tiny, and the exponential of a square is in it.
        assert error < 8e-16 * max(1.0, point**2), point
        assert log_normal(point) == pytest.approx(float(log_ndtr(point)), rel=1e-13)


def test_where_doubles_end() -> None:
    assert log_normal(-math.inf) == log_normal(-1e200) == -math.inf
    assert log_normal(math.inf) == log_normal(40.0) == 0.0
    assert log_normal(-1e154) == pytest.approx(-5e307)


@pytest.mark.parametrize("log_probability", [-0.7, -1.0, -5.0, -50.0, -700.0, -5000.0, -1e6, -1e12])
def test_the_quantile_is_the_inverse(log_probability: float) -> None:
    point = normal_quantile(log_probability)
    assert log_normal(point) == pytest.approx(log_probability, rel=1e-14)
    assert point == pytest.approx(float(ndtri_exp(log_probability)), rel=1e-11)


@pytest.mark.mostly_slow(one_in=7)
@pytest.mark.parametrize("log_probability", -np.logspace(14, 308, 99))
def test_the_quantile_of_what_no_noise_reaches(log_probability: float) -> None:
    # Never above what is right, so that no loss is stated too small by it.
    point, exact = normal_quantile(float(log_probability)), float(ndtri_exp(log_probability))
    assert exact * (1 + 1e-13) <= point <= exact * (1 - 1e-13)


@pytest.mark.parametrize("below", [0.0, 1e-16, 1e-12, 1e-6, 1e-3])
def test_the_quantile_of_nearly_a_half(below: float) -> None:
    point = normal_quantile(math.log(0.5) - below)
    assert point == pytest.approx(-below * math.sqrt(math.pi / 2), rel=1e-3, abs=5e-16)
    assert point <= 0

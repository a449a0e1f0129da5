"""Bounds on powers of e, against another library's arithmetic."""

from __future__ import annotations

from fractions import Fraction

import mpmath
import pytest

from beam_dp.noise.bound import exp_above, exp_bounds

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


@pytest.mark.mostly_slow(one_in=4)
@pytest.mark.parametrize("exponent", EXPONENTS, ids=str)
@pytest.mark.parametrize("bits", [1, 31, 32, 33, 64, 100, 2000])
def test_bounds_hold_and_are_close(exponent: Fraction, bits: int):
    low, high = exp_bounds(exponent, bits)
    assert 0 <= low <= high <= low + 4
    with mpmath.workprec(bits + 200):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * 2**bits
        assert low <= exact <= high


@pytest.mark.mostly_slow(one_in=4)
@pytest.mark.parametrize("exponent", EXPONENTS[:-1], ids=str)
@pytest.mark.parametrize("bits", [0, 10, 60, 500, 1500, 3000])
def test_upper_bounds_hold_and_are_close(exponent: Fraction, bits: int):
    above = exp_above(float(exponent), bits)
    with mpmath.workprec(bits + 400):
        exact = mpmath.exp(-mpmath.mpf(exponent.numerator) / exponent.denominator) * 2**bits
        assert exact <= above
        if exponent < 10**5:
            assert above <= exact * (1 + mpmath.mpf("2e-9")) + 2

"""Exact probabilities of the tails of discrete noise, for draws of which only large ones are kept.

``NoiseSource.reaching`` draws a value only if an event of probability limit / 2^64 happens. The
limit is slightly too large; a coin, whose probability is computed here, corrects it exactly.
"""

from __future__ import annotations

import decimal
import functools
import math
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["laplace", "gaussian"]

# Doubles compute limits with a relative error far below this margin.
_MARGIN = 1 + 1e-9
# Events of a smaller probability are worth a test of their own.
_LARGEST = 2.0**-10
# From here on, sigma sqrt(2 pi) is the sum of exp(-z^2 / (2 sigma^2)) over all integers z up to a
# factor between 1 and 1 + 2^-1800 (Poisson summation). No coin asks for so many bits.
_LEAST_SIGMA = 8.0
_MORE_DIGITS = 80  # of a coin's probability, besides those of the answer
_LOST_DIGITS = 40  # more than rounding may cost: exponents are below 10^37


def tail_limits(
    kind: Kind, distances: NDArray[np.int64], scale: float
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Returns a limit for each distance, and where a limit is small enough to be of use.

    If Z is the noise, P(Z >= distance) is at most limit / 2^64.
    """
    is_rare = (distances > 0) & (kind == "laplace" or scale >= _LEAST_SIGMA)
    away = np.where(is_rare, distances, 1).astype(np.float64)
    if kind == "laplace":
        chances = np.exp(-away / scale) / (1 + math.exp(-1 / scale))
    else:
        chances = np.exp(-0.5 * (away / scale) ** 2) / (scale * math.sqrt(2 * math.pi))
        chances /= -np.expm1(-away / scale**2)
    is_rare &= chances < _LARGEST
    limits = np.where(is_rare, chances, 0.0) * (_MARGIN * 2.0**64)
    return limits.astype(np.uint64) + np.uint64(1), is_rare


def step_scale(kind: Kind, distance: int, scale: float) -> float:
    """Returns the scale of geometric steps beyond a distance; their law is not below the noise's.

    Laplace noise beyond a distance is geometric. For Gaussian noise, P(Z = d + j) is
    P(Z = d) exp(-d j / sigma^2) exp(-j^2 / (2 sigma^2)); the second factor is at most the law of
    the steps, up to a constant.
    """
    if kind == "laplace":
        return scale
    return math.nextafter(float(Fraction(scale) ** 2 / distance), math.inf)


def step_exponent(kind: Kind, distance: int, scale: float, step: int) -> Fraction:
    """Returns x >= 0: a step is kept with probability exp(-x)."""
    if kind == "laplace":
        return Fraction(0)
    squared = Fraction(scale) ** 2
    more = Fraction(distance) / squared - 1 / Fraction(step_scale(kind, distance, scale))
    return step * more + step**2 / (2 * squared)


def limit_share(kind: Kind, distance: int, scale: float, limit: int, bits: int) -> tuple[int, int]:
    """Returns integers low <= p 2^bits <= high for the coin that corrects a limit.

    p is such that limit / 2^64 times p, times the law of a step, times ``exp(-step_exponent)`` is
    the probability of the noise d + step.
    """
    digits = bits * 30103 // 100000 + _MORE_DIGITS
    wide = decimal.Context(digits, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX)
    with decimal.localcontext(wide):
        width, away = decimal.Decimal(scale), decimal.Decimal(distance)
        if kind == "laplace":
            value = (-away / width).exp() / (1 + (-1 / width).exp())
        else:
            steps = decimal.Decimal(step_scale(kind, distance, scale))
            value = (-away * away / (2 * width * width)).exp()
            value /= width * (2 * _pi(digits)).sqrt() * (1 - (-1 / steps).exp())
        value *= decimal.Decimal(2) ** (64 + bits) / limit
        error = value * decimal.Decimal(10) ** (_LOST_DIGITS - digits)
        return max(math.floor(value - error), 0), math.ceil(value + error) + 1


@functools.lru_cache(maxsize=64)
def _pi(digits: int) -> decimal.Decimal:
    """Returns pi with an error of at most 10^-digits (Machin, 1706)."""
    one: int = 10 ** (digits + 10)

    def arctan_of_inverse(number: int) -> int:
        power = total = one // number
        divisor, sign = 1, 1
        while power:
            power //= number * number
            divisor, sign = divisor + 2, -sign
            total += sign * (power // divisor)
        return total

    found: int = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return decimal.Decimal(found) / one

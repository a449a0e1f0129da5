"""Directed rounding, so that a computed guarantee is never stronger than the true one.

The loss of a release and the noise that it needs are rounded up; a budget is rounded down.
Quotients and roots of exact numbers are computed as rational numbers and rounded once. Logarithms
and exponentials need floating point: ``raised`` and ``lowered`` then move the result by more than
the largest error of its operations.
"""

from __future__ import annotations

import math
import sys
from fractions import Fraction

Real = int | float | Fraction

# The relative error of one floating-point operation is at most UNIT / 2.
UNIT = sys.float_info.epsilon
_ROOT_BITS = 128


def up(value: Real) -> float:
    """Returns the smallest double >= a number; infinity if all finite doubles are smaller."""
    if isinstance(value, float):
        return value
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf if value > 0 else -sys.float_info.max
    return nearest if nearest >= value else math.nextafter(nearest, math.inf)


def down(value: Real) -> float:
    """Returns the largest double <= a number."""
    return -up(-value)


def down_to_digits(value: float, digits: int) -> float:
    """Returns a number >= 0 rounded down to some decimal digits; unchanged if it has no more."""
    if value <= 0:
        return 0.0
    rounded = float(f"{value:.{digits}g}")
    if rounded <= value:
        return rounded
    unit = 10.0 ** (math.floor(math.log10(value)) + 1 - digits)
    return float(f"{rounded - unit:.{digits}g}")


def rounded_up(value: Fraction) -> Fraction:
    """Rounds a number up to 160 binary digits, so that sums of many numbers stay short."""
    if value == 0:
        return value
    shift = 160 - value.numerator.bit_length() + value.denominator.bit_length()
    unit = Fraction(2) ** -shift
    return math.ceil(value / unit) * unit


def root_up(square: Real) -> float:
    """Returns the square root of a number >= 0, rounded up to a double."""
    floor, is_exact, unit = _root(square)
    return up((floor if is_exact else floor + 1) * unit)


def root_down(square: Real) -> float:
    """Returns the square root of a number >= 0, rounded down to a double."""
    floor, _, unit = _root(square)
    return down(floor * unit)


def raised(value: float, operations: int = 8) -> float:
    """Raises the result of a computation by more than its rounding error.

    ``value``: the computed result of sums, products, quotients and roots of numbers >= 0.
    ``operations``: the largest number of operations in the computation.
    """
    return math.nextafter(value * (1 + operations * UNIT), math.inf)


def lowered(value: float, operations: int = 8) -> float:
    """Lowers a result by more than its rounding error, but not below 0 (see ``raised``)."""
    return max(0.0, math.nextafter(value * (1 - operations * UNIT), -math.inf))


def _root(square: Real) -> tuple[int, bool, Fraction]:
    """Returns (floor, is_exact, unit): the root is ``floor * unit``, rounded down."""
    exact = Fraction(square)
    bits = exact.numerator.bit_length() - exact.denominator.bit_length()
    shift = (_ROOT_BITS - bits) // 2
    scaled = exact * Fraction(4) ** shift
    whole = scaled.numerator // scaled.denominator
    floor = math.isqrt(whole)
    return floor, floor * floor == scaled, Fraction(2) ** -shift

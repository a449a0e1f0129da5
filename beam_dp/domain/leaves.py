"""The leaves of a range of numbers: small public bins, which a private release joins to bins.

Equal leaves would be too wide: of a range from 0 to 10,000,000, most incomes lie in the first
hundredth. So leaves are narrow near 0, and nowhere wider than a thousandth of the range.
"""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

# Numbers with three digits, the last of them 0 or 5: 180 per power of 10.
_DIGITS = range(100, 1000, 5)
# So many powers of 10 below that of the largest number; smaller numbers share a leaf with 0.
_POWERS = 8
# The range has at least so many equal steps, of 1, 2 or 5 times a power of 10.
_EQUAL_STEPS = 1000
# Without a declared range: numbers up to this magnitude, and down to 10^-3.
LARGEST, _ALL_POWERS = 10.0**12, 15


def number_leaves(low: float | None, high: float | None, *, whole: bool = False) -> list[float]:
    """Returns the increasing edges of the leaves of a range of numbers, readable ones inside.

    The edges are both ends, all multiples in the range of a step of about a thousandth of it, and
    the numbers with three digits, the last 0 or 5, down to 10^-8 of the largest power of 10. So a
    leaf is at most 5 % as wide as its distance from 0, or lies next to 0. There are at most 6,000
    leaves.

    ``low, high``: finite numbers, low < high; None for both ends, to cover all numbers up to 10^12
    in magnitude, down to 10^-3 next to 0.
    ``whole``: whether to return whole numbers only; then ``low`` and ``high`` must be whole.

    Example:
        >>> edges = number_leaves(0, 10_000_000)
        >>> [edge for edge in edges if 30_000 <= edge < 32_000]
        [30000.0, 30500.0, 31000.0, 31500.0]
        >>> len(edges)
        2162
    """
    powers = _POWERS
    if low is None or high is None:
        low, high, powers = -LARGEST, LARGEST, _ALL_POWERS
    first, last = float(low), float(high)
    largest = decimal.Decimal(max(abs(first), abs(last))).adjusted()
    magnitudes = [
        float(f"{digits}e{power}")
        for power in range(largest - 2, largest - 3 - powers, -1)
        for digits in _DIGITS
    ]
    edges = {first, last, 0.0, *magnitudes, *(-each for each in magnitudes)}
    edges.update(_multiples(first, last) if powers == _POWERS else ())
    return sorted(
        edge + 0.0  # no negative zero
        for edge in edges
        if first <= edge <= last and (not whole or edge.is_integer())
    )


def _multiples(low: float, high: float) -> list[float]:
    """Returns the multiples in a range of the largest readable step that is small enough."""
    most = (Fraction(high) - Fraction(low)) / _EQUAL_STEPS
    power = (decimal.Decimal(most.numerator) / most.denominator).adjusted()
    while Fraction(10) ** power > most:
        power -= 1
    factor = next(each for each in (5, 2, 1) if each * Fraction(10) ** power <= most)
    step = factor * Fraction(10) ** power
    numbers = range(math.ceil(Fraction(low) / step), math.floor(Fraction(high) / step) + 1)
    return [float(f"{number * factor}e{power}") for number in numbers]

"""The leaves of a range of numbers: small public bins, which a private release joins to bins.

Equal leaves would be too wide: of a range from 0 to 10,000,000, most incomes lie in the first
hundredth. So leaves are narrow near 0, and nowhere wider than a thousandth of the range or of their
distance from 0: years and times far from 0 have leaves as fine as small numbers.
"""

from __future__ import annotations

import decimal
import functools
import math
from fractions import Fraction

# Numbers with four digits: 9,000 per power of 10.
_DIGITS = range(1_000, 10_000)
# So many powers of 10 below that of the largest number; smaller numbers share a leaf with 0.
_POWERS = 7
# The range has at least so many equal steps, of 1, 2 or 5 times a power of 10.
_EQUAL_STEPS = 1000
# Without a declared range: numbers up to this magnitude, and down to 10^-3.
LARGEST, _ALL_POWERS = 10.0**12, 15


@functools.lru_cache
def number_leaves(
    low: float | None, high: float | None, *, whole: bool = False
) -> tuple[float, ...]:
    """Returns the increasing edges of the leaves of a range of numbers, readable ones inside.

    The edges are both ends, all multiples in the range of a step of about a thousandth of it, and
    the numbers with four digits, down to 10^-7 of the largest power of 10. So a leaf is at most a
    thousandth as wide as its distance from 0, or lies next to 0. There are at most 271,000 leaves.

    ``low, high``: finite numbers, low < high; None for both ends, to cover all numbers up to 10^12
    in magnitude, down to 10^-3 next to 0.
    ``whole``: whether to return whole numbers only; then ``low`` and ``high`` must be whole.

    Example:
        >>> edges = number_leaves(0, 10_000_000)
        >>> [edge for edge in edges if 30_000 <= edge < 30_040]
        [30000.0, 30010.0, 30020.0, 30030.0]
        >>> len(edges)
        63002
    """
    powers = _POWERS
    if low is None or high is None:
        low, high, powers = -LARGEST, LARGEST, _ALL_POWERS
    first, last = float(low), float(high)
    largest = decimal.Decimal(max(abs(first), abs(last))).adjusted()
    magnitudes = [
        float(f"{digits}e{power}")
        for power in range(largest - 3, largest - 4 - powers, -1)
        for digits in _DIGITS
    ]
    edges = {first, last, 0.0, *magnitudes, *(-each for each in magnitudes)}
    edges.update(_multiples(first, last) if powers == _POWERS else ())
    kept = (edge for edge in edges if first <= edge <= last and (not whole or edge.is_integer()))
    return tuple(sorted(edge + 0.0 for edge in kept))  # no negative zero


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

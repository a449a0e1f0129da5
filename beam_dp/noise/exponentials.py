"""Integer bounds of powers of e, for coins with exactly such a probability."""

from __future__ import annotations

import decimal
import math
from fractions import Fraction

# Up to so many bits a double is good enough for bounds three units apart: its error is below 2^-40.
_DOUBLE_BITS = 32
# Upper bounds treat exponents beyond this one as if they were this one. A smaller one, with a
# relative error of 2^-50, is wrong by less than 1e-10, far less than the margin makes up for.
_FAR = 1e5
_MARGIN = 1 + 1e-9
_DIGITS = 53


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Returns integers around exp(-exponent) 2^bits, at most 4 apart.

    Reference: ``decimal`` rounds exponentials correctly; the bounds are one unit of its last digit
    to either side.

    Example:
        >>> exp_bounds(Fraction(0), 8)[0] <= 256 <= exp_bounds(Fraction(0), 8)[1]
        True
        >>> exp_bounds(Fraction(1), 64)
        (6786177901268885274, 6786177901268885275)
    """
    if exponent > bits + 1:  # exp(-x) < 2^-x
        return 0, 1
    if bits <= _DOUBLE_BITS:
        middle = int(math.ldexp(math.exp(-exponent), bits))
        return max(middle - 1, 0), middle + 2
    # Four digits more than an integer of so many bits has; the exponent itself may need some.
    digits = bits * 30103 // 100000 + 8 + len(str(bits))
    floor = _context(digits, decimal.ROUND_FLOOR)
    ceiling = _context(digits, decimal.ROUND_CEILING)
    numerator = decimal.Decimal(exponent.numerator)
    denominator = decimal.Decimal(exponent.denominator)
    power = decimal.Decimal(2**bits)
    # copy_negate, because a minus sign would round to the digits of the thread's own context.
    least = floor.next_minus(floor.exp(ceiling.divide(numerator, denominator).copy_negate()))
    most = ceiling.next_plus(ceiling.exp(floor.divide(numerator, denominator).copy_negate()))
    low = max(math.floor(floor.multiply(least, power)), 0)
    return low, math.ceil(ceiling.multiply(most, power))


def exp_above(exponent: float, bits: int) -> int:
    """Returns an integer >= exp(-exponent) 2^bits, quickly, and seldom more than 1e-9 above.

    Args:
        exponent: >= 0, with a relative error of at most 2^-50; may be infinite.
        bits: >= 0.

    Example:
        >>> exp_above(0.0, 10), exp_above(1e9, 10), exp_above(2.0, 10)
        (1025, 1, 139)
    """
    halvings = int(min(exponent, _FAR) / math.log(2))
    rest = max(min(exponent, _FAR) - halvings * math.log(2), 0.0)
    mantissa = int(math.ldexp(math.exp(-rest) * _MARGIN, _DIGITS))
    shift = bits - halvings - _DIGITS
    return (mantissa << shift if shift >= 0 else mantissa >> -shift) + 1


def as_exponent(exact: Fraction) -> float:
    """Returns a double for an exponent >= 0 of any size; one that leaves nothing is cut short."""
    return float(exact) if exact < 10**6 else 1e6


def _context(digits: int, rounding: str) -> decimal.Context:
    return decimal.Context(
        prec=digits, rounding=rounding, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[]
    )

"""Conversion of composed losses to epsilon at a delta. All arithmetic errs on the safe side.

Sums and quotients are rational numbers. Logarithms, exponentials and the normal distribution are
computed with at least 60 digits, and results are raised by far more than the largest error. The
code is independent of ``privacy.accounting``, which plans noise.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction

from beam_dp.privacy.rounding import root_up, up

_DIGITS = 110
_PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899")
# Assumed relative error of results with this number of digits; the true error is far smaller.
_ERROR = Decimal("1e-40")
# Discrete Gaussian noise on a grid: see ``gaussian_epsilon``.
DISCRETENESS = Fraction(1, 10**20)
# From this argument on, the continued fraction for Mills' ratio converges to 40 digits.
_LARGE = 12
_STEPS = 600
_NEWTON_STEPS = 60
_TINY = 1e-300
_LARGEST_MU = 1e5  # larger values imply no valid epsilon


@functools.lru_cache(maxsize=256)
def zcdp_epsilon(rho: Fraction, delta: Fraction) -> float:
    """Returns an epsilon that rho-zero-concentrated differential privacy implies at delta.

    For every alpha > 1: alpha rho + ln(1 / (alpha delta)) / (alpha - 1) + ln(1 - 1 / alpha). A good
    alpha is found in floating point, and the formula is then evaluated for this alpha.

    Reference: Canonne, Kamath and Steinke (2020), Proposition 7.
    """
    if rho == 0:
        return 0.0
    if rho > _LARGEST_MU**2:
        return math.inf
    # For a rho below the smallest double, any alpha is good enough.
    spent, log_delta = max(float(rho), _TINY), math.log(delta)

    def epsilon(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        loss = -(log_delta + math.log1p(excess)) / excess
        return spent * (1 + excess) + loss - math.log1p(1 / excess)

    centre = 0.5 * (math.log(-log_delta) - math.log(spent))
    excess = math.exp(_minimum(epsilon, centre - 12, centre + 12))
    with localcontext() as context:
        context.prec = _DIGITS
        more = Decimal(excess)
        terms = (
            _decimal(rho) * (1 + more),
            -(_decimal(delta).ln() + (1 + more).ln()) / more,
            -(1 + 1 / more).ln(),
        )
        return up(Fraction(max(sum(terms), Decimal(0)) + sum(map(abs, terms)) * _ERROR))


@functools.lru_cache(maxsize=256)
def gaussian_epsilon(mu_squared: Fraction, delta: Fraction) -> float:
    """Returns an epsilon that mu-Gaussian privacy implies at delta, also for noise on a grid.

    The vector of noisy integers may have up to 2^40 coordinates; mu^2 is the sum of d^2 / (s^2 - 4)
    over the coordinates. The probability of each outcome is then within a factor e^g, g < 1e-20, of
    its probability under a function of continuous noise (the proof is in
    ``privacy.accounting.discrete_gaussian_mu``). So delta is reduced, and epsilon raised,
    accordingly.

    Reference: Balle and Wang (2018), Theorem 5; Dong, Roth and Su (2022), Corollary 2.13.
    """
    if mu_squared == 0:
        return 0.0
    mu = root_up(mu_squared)
    if mu > _LARGEST_MU:
        return math.inf
    kept = delta * (1 - 2 * DISCRETENESS)
    near, margin = _near_epsilon(mu, kept), 2.0**-48
    # The epsilon was found in floating point; this loop proves that it is large enough.
    while math.isfinite(near) and gaussian_delta(mu, near) > kept:
        near, margin = near * (1 + margin) + margin * 2.0**-200, 2 * margin
    return up(Fraction(near) + 2 * DISCRETENESS) if math.isfinite(near) else near


def _near_epsilon(mu: float, delta: Fraction) -> float:
    """Returns approximately the epsilon of mu-Gaussian privacy at delta, by Newton's method."""
    with localcontext() as context:
        context.prec = _DIGITS
        step = Decimal(mu)
        epsilon = step * step / 2 + step * (-2 * _decimal(delta).ln()).sqrt()
        for _ in range(_NEWTON_STEPS):
            density, first, second = _parts(step, epsilon)
            found = density * (first - second)
            change = (found.ln() - _decimal(delta).ln()) * found / (density * second)
            # A step that is too long must not lead below 0.
            epsilon = max(epsilon + change, epsilon / 4)
            if abs(change) < epsilon * Decimal(2) ** -50:
                break
        return float(epsilon)


def gaussian_delta(mu: float, epsilon: float) -> Fraction:
    """Returns an upper bound on the delta of mu-Gaussian privacy at an epsilon.

    With a = epsilon / mu - mu / 2, b = epsilon / mu + mu / 2 and Mills' ratio R, the delta is
    phi(a) (R(a) - R(b)).
    """
    with localcontext() as context:
        context.prec = _DIGITS
        density, first, second = _parts(Decimal(mu), Decimal(epsilon))
        bound = density * (first - second + (first + second) * _ERROR)
        return min(Fraction(bound) * (1 + Fraction(_ERROR)), Fraction(1))


def _parts(mu: Decimal, epsilon: Decimal) -> tuple[Decimal, Decimal, Decimal]:
    """Returns phi(a), R(a) and R(b) as defined in ``gaussian_delta``."""
    shift, half = epsilon / mu, mu / 2
    lower, upper = shift - half, shift + half
    return _density(lower), _mills(lower), _mills(upper)


def _mills(value: Decimal) -> Decimal:
    """Returns Mills' ratio (1 - Phi(x)) / phi(x) to more than 40 digits."""
    size = abs(value)
    if size > _LARGE:
        # 1 / (x + 1 / (x + 2 / (x + ...))): convergents alternate between both sides.
        ratio = Decimal(0)
        for number in range(_STEPS, 0, -1):
            ratio = number / (size + ratio)
        ratio = 1 / (size + ratio)
        return ratio if value > 0 else 1 / _density(size) - ratio
    # Phi(x) = 1/2 + phi(x) (x + x^3 / 3 + x^5 / (3 5) + ...), all terms of one sign.
    term = total = size
    odd = 1
    while term > total * Decimal(f"1e-{_DIGITS}"):
        odd += 2
        term = term * size * size / odd
        total += term
    inside = 1 / (2 * _density(size))
    return inside - total if value > 0 else inside + total


def _density(value: Decimal) -> Decimal:
    return (-value * value / 2).exp() / (2 * _PI).sqrt()


def _minimum(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns the minimizer of a unimodal function, by golden-section search."""
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(80):
        first, second = high - ratio * (high - low), low + ratio * (high - low)
        low, high = (low, second) if function(first) <= function(second) else (first, high)
    return (low + high) / 2


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)

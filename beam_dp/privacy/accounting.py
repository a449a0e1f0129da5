"""Converts between epsilon and delta, mu, rho and noise; ``ledger.filters`` composes releases.

Every function rounds so that the stated guarantee stays true (see ``rounding``): losses are rounded
up. A bisection for a budget returns the end of its last bracket that meets the target.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

from beam_dp.errors import InputError
from beam_dp.privacy.noise.bound import log_normal
from beam_dp.privacy.rounding import UNIT, Real, raised, root_up

# The width t, in grid units, of the Gaussian that turns continuous noise into discrete noise in the
# proof of ``discrete_gaussian_mu``.
_SMOOTHING = 2
# sqrt(pi / 8) = 0.62665706865775..., rounded up.
_RANGE_MU = Fraction(62665706866, 10**11)
# Relative margin of every calibrated budget.
_SAFETY = 1e-12
# Largest relative error of a few elementary operations. Far above the mean, the logarithm of the
# normal CDF is nearly 0, so its absolute error is bounded instead.
_ROUNDING = 8 * UNIT
_LEAST_ERROR = 1e-18
_LEAST_STEP = 1e-8  # width of the last bracket; the error of the minimum is its square
_LEAST_DOUBLE = math.ulp(0.0)


def gaussian_delta(mu: float, epsilon: float) -> float:
    """Returns the delta of mu-Gaussian privacy at an epsilon, rounded up by more than its error.

    ``mu`` is the L2 sensitivity divided by the standard deviation of the noise.

    Reference: Balle and Wang (2018), Theorem 5; Dong, Roth and Su (2022), Corollary 2.13.
    """
    shift = epsilon / mu
    # If mu is small, delta is a small difference of large numbers: round the two numbers
    # separately.
    upper = log_normal(mu / 2 - shift + _ROUNDING * (mu / 2 + shift))
    lower = log_normal(-raised(mu / 2 + shift))
    if upper == -math.inf:
        return _LEAST_DOUBLE
    upper = min(upper - _ROUNDING * upper + _LEAST_ERROR, 0.0)
    difference = epsilon + lower - upper - _ROUNDING * (epsilon - lower - upper) - _LEAST_ERROR
    return min(raised(-math.expm1(min(difference, 0.0)) * math.exp(upper)), 1.0)


def gaussian_mu(epsilon: float, delta: float) -> float:
    """Returns the largest mu such that mu-Gaussian privacy implies (epsilon, delta).

    1 / mu is the standard deviation of continuous Gaussian noise for L2 sensitivity 1.

    Reference: Balle and Wang (2018), Algorithm 1.
    """
    return _largest(lambda mu: gaussian_delta(mu, epsilon) <= delta)


def discrete_gaussian_mu(epsilon: float, delta: float) -> float:
    """Returns a mu up to which a vector of discrete Gaussians is (epsilon, delta)-private.

    Claim: let every coordinate be an integer plus a discrete Gaussian of parameter s > 2, let the
    integer's change between neighbours be d, and let mu^2 = sum of d^2 / (s^2 - 4). If mu is at
    most the returned value, the vector is (epsilon, delta)-differentially private.

    Proof. Draw g from the continuous N(x, s^2 - t^2) with t = 2, and then an integer z with weight
    exp(-(z - g)^2 / 2t^2). By Poisson's summation formula, the normaliser of z is within a factor 1
    +- e of t sqrt(2 pi), e = 2 sum_k exp(-2 pi^2 t^2 k^2) < 1e-33. The convolution of the two
    Gaussians is N(z; x, s^2), so the probability of every z is within a factor (1 + e)/(1 - e) of
    that under the discrete Gaussian. The continuous mechanism is (epsilon0, delta0)-DP with mu as
    above and z is computed from it alone; m coordinates together change probabilities by at most
    exp(g), g = 3 m e, so the discrete vector is (epsilon0 + 2g, exp(g) delta0)-DP. For m < 2^40
    coordinates g is below 1e-20; the returned mu leaves a relative margin of 1e-12 in epsilon and
    delta.

    The margin does not cover rounding: noise parameters are rounded up separately.
    """
    return gaussian_mu(epsilon * (1 - _SAFETY), delta * (1 - _SAFETY))


def range_mu(epsilon: Real) -> Fraction:
    """Returns sqrt(pi / 8) epsilon, rounded up: a mu for all mechanisms of range epsilon.

    A mechanism has range epsilon if, for the laws P and Q of any two neighbours, ln(P / Q) is
    within an interval of length epsilon. The exponential mechanism with 2 (sensitivity) / scale =
    epsilon has range epsilon.

    Proof. Let a test reject with probability a under Q and b under P, and let r Q <= P <= R Q with
    R / r = e^epsilon. Then b <= R a and 1 - b >= r (1 - a), even for a randomised test: from a to b
    the log-odds grow by at most epsilon. Let x be the log-odds of Phi(z). Then dz/dx = Phi(z)
    Phi(-z) / phi(z), because dPhi/dx = Phi (1 - Phi). And 4 Phi(z) Phi(-z) is 1 - (Phi(z) -
    Phi(-z))^2, where the subtracted term is the mass that two independent normal variables give to
    the square |x|, |y| <= |z|. This square contains a disc of mass 1 - exp(-z^2 / 2). So Phi(z)
    Phi(-z) <= exp(-z^2 / 2) / 4 and dz/dx <= sqrt(2 pi) / 4 = sqrt(pi / 8), everywhere, and
    Phi^-1(b) <= Phi^-1(a) + sqrt(pi / 8) epsilon. The best test between two normal laws at that
    distance attains this bound, so this is mu-Gaussian privacy. The same argument applies with P
    and Q exchanged.

    At z = 0 the bound is an equality: for small epsilon, no smaller multiple of epsilon suffices.

    Reference: Dong, Durfee and Rogers (2020) for the range; Dong, Roth and Su (2022) for mu.
    """
    return _RANGE_MU * Fraction(epsilon)


def discrete_parameter(squared_deviation: Real) -> float:
    """Returns the parameter, rounded up, of discrete Gaussian noise as private as continuous noise.

    The parameter s satisfies s^2 - 4 >= the squared deviation (see ``discrete_gaussian_mu``).

    ``squared_deviation``: the exact squared deviation of continuous noise, in squared grid units, >
    0.
    """
    if squared_deviation == math.inf:
        return math.inf
    return root_up(Fraction(squared_deviation) + _SMOOTHING**2)


def squared_deviation(parameter: Real) -> Fraction:
    """Returns the squared deviation of continuous Gaussian noise as private as discrete noise."""
    return Fraction(parameter) ** 2 - _SMOOTHING**2


def zcdp_epsilon(rho: float, delta: float) -> float:
    """Returns the epsilon that rho-zCDP implies at delta, rounded up to cover the numerical error.

    Reference: Canonne, Kamath and Steinke (2020), Proposition 7.
    """
    if rho in (0, math.inf):
        return rho

    log_delta = math.log(delta)

    def epsilon(log_excess: float) -> float:
        excess = math.exp(log_excess)  # this is alpha - 1; the minimum is smooth on a log scale
        log_excess = math.log1p(excess)
        spent, share = rho * (1 + excess), (log_delta + log_excess) / excess
        tail = math.log1p(1 / excess)
        # The terms can be far larger than their sum, so the error is computed from the terms.
        error = _ROUNDING * (spent + (log_excess - log_delta) / excess + tail)
        return spent - share - tail + error

    # Any order gives a valid epsilon, so an inexact minimum only raises the result.
    centre = 0.5 * (math.log(-log_delta) - math.log(rho))
    return max(0.0, _least(epsilon, centre - 10, centre + 10))


# Planning compares hundreds of calibrations with the same epsilon and delta.
@functools.lru_cache(maxsize=256)
def zcdp_rho(epsilon: float, delta: float) -> float:
    """Returns the largest rho whose zero-concentrated privacy implies (epsilon, delta).

    Losses in zCDP add up even if parameters are chosen adaptively, so this rho is also the limit of
    a privacy filter.

    Reference: Canonne, Kamath and Steinke (2020); Feldman and Zrnic (2021) for the filter.
    """
    rho = _largest(lambda rho: zcdp_epsilon(rho, delta) <= epsilon * (1 - _SAFETY))
    if rho == 0:
        raise InputError(
            "epsilon", epsilon, f"is too small for a delta of {delta:g}: use a larger one"
        )
    return rho


def _largest(is_private: Callable[[float], bool]) -> float:
    """Returns the largest number, to double precision, up to which ``is_private`` is true, or 0."""
    low = 1.0
    while not is_private(low):
        low /= 2
        if low == 0:
            return low
    while is_private(2 * low):
        low *= 2
    high = 2 * low
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if is_private(middle) else (low, middle)
    return low


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Returns the approximate minimum, between two points, of a function that falls, then rises."""
    # Reference: Kiefer (1953), golden section.
    ratio = (math.sqrt(5) - 1) / 2
    first, second = high - ratio * (high - low), low + ratio * (high - low)
    at_first, at_second = function(first), function(second)
    while high - low > _LEAST_STEP:
        if at_first <= at_second:
            high, second, at_second = second, first, at_first
            first = high - ratio * (high - low)
            at_first = function(first)
        else:
            low, first, at_first = first, second, at_second
            second = low + ratio * (high - low)
            at_second = function(second)
    return min(at_first, at_second)

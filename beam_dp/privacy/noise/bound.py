"""Tail bounds for sums of discrete noise."""

from __future__ import annotations

import decimal
import functools
import math
import sys
from fractions import Fraction
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


# Below this point erfc is close to the smallest double, and six terms of the series suffice.
_FAR = -30.0
_SERIES = (1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
_ROOT_HALF = math.sqrt(0.5)
_LAST_STEP = 4 * sys.float_info.epsilon
_MOST_STEPS = 60
# Below this logarithm the first guess has an error of at most 2e-14, and rounding makes computed
# slopes useless.
_LEAST_LOG = -1e15
# The mean absolute value of standard Gaussian noise.
MEAN_ABSOLUTE = math.sqrt(2 / math.pi)


def log_normal(point: float) -> float:
    """Returns the logarithm of the probability that a standard normal variable is <= a point.

    The relative error is a few units in the last place.

    Reference: the asymptotic series of Abramowitz and Stegun (1964), 26.2.12, in the far tail.
    """
    if point > 0:
        return math.log1p(-0.5 * math.erfc(point * _ROOT_HALF))
    if point >= _FAR:
        return math.log(0.5 * math.erfc(-point * _ROOT_HALF))
    if math.isinf(point):
        return -math.inf
    inverse = 1 / point / point
    series = 0.0
    for term in reversed(_SERIES):
        series = series * inverse + term
    return -0.5 * point * point - _LOG_ROOT_TWO_PI - math.log(-point) + math.log(series)


def normal_quantile(log_probability: float) -> float:
    """Returns the quantile of the standard normal distribution at a probability of at most 1/2.

    The error is a few units of 2^-53: an absolute error near 0, and a relative error elsewhere.
    Below the logarithm -1e15 the result is too low, by a relative error of at most 2e-14.
    """
    # This point has at most half the given probability.
    point = -math.sqrt(2) * math.sqrt(-log_probability)
    if log_probability < _LEAST_LOG:
        return point
    for _ in range(_MOST_STEPS):
        reached = log_normal(point)
        log_slope = -0.5 * point * point - _LOG_ROOT_TWO_PI - reached
        step = (log_probability - reached) * math.exp(-log_slope)
        point = min(point + step, 0.0)
        if step <= _LAST_STEP * -point:
            break
    return point


# Up to this number of bits, doubles (error below 2^-40) are exact enough for bounds 3 apart.
_DOUBLE_BITS = 32
# Upper bounds cap exponents at this value. A smaller exponent with a relative error of 2^-50 is
# wrong by less than 1e-10, far less than the margin covers.
_LARGEST_EXPONENT = 1e5
_MARGIN = 1 + 1e-9
_DIGITS = 53


def exp_bounds(exponent: Fraction, bits: int) -> tuple[int, int]:
    """Returns integers low <= exp(-exponent) 2^bits <= high that are at most 4 apart.

    Reference: ``decimal`` rounds exponentials correctly; the bounds are one unit of the last digit
    below and above its result.
    """
    if exponent > bits + 1:  # exp(-x) < 2^-x
        return 0, 1
    if bits <= _DOUBLE_BITS:
        middle = int(math.ldexp(math.exp(-exponent), bits))
        return max(middle - 1, 0), middle + 2
    # This precision exceeds the number of digits of the integer and of the exponent together.
    digits = bits * 30103 // 100000 + 8 + len(str(bits))
    floor = _context(digits, decimal.ROUND_FLOOR)
    ceiling = _context(digits, decimal.ROUND_CEILING)
    numerator = decimal.Decimal(exponent.numerator)
    denominator = decimal.Decimal(exponent.denominator)
    power = decimal.Decimal(2**bits)
    # A minus sign would round the number to the precision of the thread's decimal context.
    least = floor.next_minus(floor.exp(ceiling.divide(numerator, denominator).copy_negate()))
    largest = ceiling.next_plus(ceiling.exp(floor.divide(numerator, denominator).copy_negate()))
    low = max(math.floor(floor.multiply(least, power)), 0)
    return low, math.ceil(ceiling.multiply(largest, power))


def exp_above(exponent: float, bits: int) -> int:
    """Returns an integer >= exp(-exponent) 2^bits, quickly; its excess is rarely above 1e-9."""
    # ``exponent``: a number >= 0 with a relative error of at most 2^-50; may be infinite.
    halvings = int(min(exponent, _LARGEST_EXPONENT) / math.log(2))
    rest = max(min(exponent, _LARGEST_EXPONENT) - halvings * math.log(2), 0.0)
    mantissa = int(math.ldexp(math.exp(-rest) * _MARGIN, _DIGITS))
    shift = bits - halvings - _DIGITS
    return (mantissa << shift if shift >= 0 else mantissa >> -shift) + 1


def as_exponent(exact: Fraction) -> float:
    """Returns an exponent >= 0 of any size as a double; huge exponents are capped."""
    return float(exact) if exact < 10**6 else 1e6


def _context(digits: int, rounding: str) -> decimal.Context:
    return decimal.Context(
        prec=digits, rounding=rounding, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, traps=[]
    )


Distribution = Literal["discrete_laplace", "discrete_gaussian"]
DISTRIBUTIONS: tuple[Distribution, ...] = ("discrete_laplace", "discrete_gaussian")

FAILURE_PROBABILITY = 0.05  # default probability that a stated bound is wrong
# A count is too noisy to use if its error bar exceeds this fraction of the count.
NOISY_SHARE = 0.5
LEAST_FAILURE_PROBABILITY = 1e-100

# Relative error of the floating-point operations from a scale to a bound.
_ROUNDING = 1e-12
_STEPS = 50  # steps of the solver for a bound; stopping early gives a slightly larger bound


def noise_variance(distribution: Distribution, scale: float) -> float:
    """Returns the variance of one noise value, in squared units of the scale."""
    if distribution == "discrete_gaussian":
        return scale**2
    # 2a / (1 - a)^2 with a = exp(-1 / scale), in a form that does not underflow. For noise rarer
    # than once in 1e17 cells, the variance is overstated so that its inverse does not overflow.
    half = math.sinh(min(0.5 / scale, 20.0))
    return 0.5 / half**2 if half > 1e-150 else math.inf


def laplace_bound(scale: float, num_values: int, failure_probability: float) -> float:
    """Returns a bound that no discrete Laplace noise exceeds, except with the given probability.

    P(|z| > t) = 2 a^(t + 1) / (1 + a) with a = exp(-1 / scale), and the union bound.
    """
    above = 2 * num_values / (failure_probability * (1 + math.exp(-1 / scale)))
    return float(max(0, math.ceil(scale * math.log(above) * (1 + _ROUNDING)) - 1))


def largest_noise(
    distribution: Distribution, scale: float, num_values: int, failure_probability: float
) -> float:
    """Returns a bound that no noise exceeds, except with the given probability (a union bound).

    For discrete Laplace noise see ``laplace_bound``; discrete Gaussian noise has P(Z >= m) <=
    P(N(0, sigma^2) >= m - 1) (Canonne, Kamath and Steinke, 2020, Proposition 25).
    """
    if distribution == "discrete_laplace":
        return laplace_bound(scale, num_values, failure_probability)
    log_share = math.log(failure_probability) - math.log(2 * num_values)
    return math.ceil(-normal_quantile(log_share) * scale * (1 + _ROUNDING))


def choice_margin(
    is_one_shot: bool, scale: float, number: int, num_candidates: int, failure_probability: float
) -> float:
    """Returns a bound, for every t, on how far the t-th chosen score is below the t-th largest.

    In one shot of geometric noise for R candidates, P(G > m) = exp(-(m + 1) / s): except with
    probability beta, every noise is at most the integer just below s ln(R / beta). The t-th largest
    noisy score is at least the t-th largest score. With c rounds, a round chooses a score at least
    s ln(R c / beta) below the best remaining score only with probability beta / c. The best score
    that remains in round t is at least the t-th largest.

    ``failure_probability``: the probability beta, in (0, 1).
    """
    log_terms = math.log(num_candidates) - math.log(failure_probability)
    if is_one_shot:
        return float(max(0, math.ceil(scale * log_terms * (1 + _ROUNDING)) - 1))
    return scale * (log_terms + math.log(number)) * (1 + _ROUNDING)


def noise_bound(
    variance: float, num_cells: int, laplace_variance: float | None, failure_probability: float
) -> float:
    """Returns a bound that no cell's noise exceeds, except with the failure probability.

    A sum of discrete Gaussians is subgaussian. For discrete Laplace noise of variance v, E exp(tX)
    = 1 / (1 - v (cosh t - 1)) <= exp(0.753 v t^2) if t <= 1 and v t^2 <= 0.92, because cosh t - 1
    <= 0.5431 t^2 and 1 / (1 - u) <= exp(2 ln(2) u) for u <= 1/2. In a weighted sum of variance V,
    weights are at most sqrt(V / v), so the same bound is true with V for all t sqrt(V) <=
    min(0.959, sqrt(v)). Chernoff's bound completes the proof.

    ``laplace_variance``: the smallest variance of one Laplace noise; None if all are Gaussian.
    """
    log_term = math.log(2 * num_cells / failure_probability)
    deviation = math.sqrt(variance)
    if laplace_variance is None:
        return deviation * math.sqrt(2 * log_term)
    limit = min(0.959, math.sqrt(laplace_variance))
    if math.sqrt(log_term / 0.753) <= limit:
        return deviation * math.sqrt(4 * 0.753 * log_term)
    return deviation * (log_term / limit + 0.753 * limit)


def weighted_noise_bound(
    distribution: Distribution,
    scale: float,
    squared_norm: float,
    largest_weight: float,
    num_sums: int,
    failure_probability: float,
) -> float:
    """Returns a bound that no weighted sum of noise exceeds, except with the failure probability.

    Gaussian noise is subgaussian, discrete or not: the bound is |w| s sqrt(2 ln(2k / beta)). For
    Laplace noise of scale b, E exp(t Z) <= 1 / (1 - b^2 t^2), with equality for continuous noise:
    for discrete noise it is 1 / (1 - sinh^2(t / 2) / sinh^2(1 / (2b))), and sinh(x) / x grows. ln(1
    / (1 - u)) / u grows, too, so the moments of a sum with weights of norm |w| and at most B are at
    most those of v = (|w| / B)^2 equal weights. By Chernoff's bound, the sum exceeds v b B y with
    probability at most exp(-v g(y)), where g(y) = max_s (s y + ln(1 - s^2)) with the maximum at s =
    (sqrt(1 + y^2) - 1) / y. The function solves for y.

    ``squared_norm``: the squared norm |w|^2 of the weights, or an upper bound.
    ``failure_probability``: the probability beta, in (0, 1).
    """
    log_term = math.log(2 * num_sums / failure_probability)
    if distribution == "discrete_gaussian":
        return scale * math.sqrt(2 * squared_norm * log_term)
    wanted = log_term * min(1.0, largest_weight**2 / squared_norm)
    # g(y) >= y^2 / 6 up to y = 1, and g(y) >= y / 6 above 1: bisection starts from these bounds.
    low, high = 0.0, max(math.sqrt(6 * wanted), 6 * wanted)
    for _ in range(_STEPS):
        middle = (low + high) / 2
        if _laplace_exponent(middle) < wanted:
            low = middle
        else:
            high = middle
    return scale * math.sqrt(squared_norm * log_term / wanted) * high


def _laplace_exponent(y: float) -> float:
    """Returns the maximum over s of s y + ln(1 - s^2)."""
    s = y / (math.sqrt(1 + y * y) + 1)
    return s * y + math.log1p(-s * s)


def chosen_noise_bound(
    variance: float,
    num_cells: int,
    laplace_variance: float | None,
    failure_probability: float,
    num_parts: int,
    *,
    num_together: int = 1,
    is_number_fixed: bool = True,
) -> float:
    """Returns a bound on the noise of all cells if earlier noise influenced later weights.

    The error is a sum of a_i g_i over parts. Given all earlier parts, g_i is subgaussian of
    variance 1: it is a weighted sum of fresh noise, with a direction chosen before the noise was
    drawn. The parts of one measurement have orthogonal directions, and are jointly subgaussian. The
    a_i may depend on everything, but V, the sum of a_i^2, is the stated variance. So (error)^2 <= V
    R^2 by the Cauchy-Schwarz inequality, where R^2, the sum of g_i^2, does not contain the weights:
    for any choice of weights, P(R^2 > t) <= (t / d)^(d/2) exp((d - t) / 2) for d parts and t >= d.
    This is Chernoff's bound for a chi-squared variable. It is true because E exp(s g_i^2 / 2 |
    earlier) is the mean of E exp(sqrt(s) h g_i) over normal h, at most (1 - s)^(-1/2), and these
    factors multiply. For Laplace noise this moment is infinite; there, R is at most the sum of
    |g_i|. For k parts of one measurement, E exp(s sum |g_i|) is at most the sum over the 2^k sign
    patterns of E exp(s sum +-g_i). Each term is at most exp(0.753 s^2 k) by ``noise_bound`` with V
    = k, with s sqrt(k) in place of t sqrt(V).

    ``laplace_variance``: the smallest variance of one Laplace noise; None if all are Gaussian.
    ``num_parts``: the number d >= 1 of parts in each cell.
    ``num_together``: the largest number of parts that share the noise of one measurement.
    ``is_number_fixed``: whether d is fixed in advance. Otherwise d may depend on noise, too, and
    each d gets the share 1 / (d (d + 1)) of the probability; the shares add up to 1.

    Reference: Scheffe (1959), The Analysis of Variance, section 3.5, for normal noise.
    """
    if num_parts == 1 and is_number_fixed:
        return noise_bound(variance, num_cells, laplace_variance, failure_probability)
    if not is_number_fixed:
        num_cells *= num_parts * (num_parts + 1)
    if laplace_variance is not None:
        sizes = math.log(num_cells / failure_probability) + num_parts * math.log(2)
        limit = min(0.959, math.sqrt(laplace_variance)) / math.sqrt(num_together)
        at = min(limit, math.sqrt(sizes / (0.753 * num_parts)))
        return math.sqrt(variance) * (sizes / at + 0.753 * num_parts * at)
    log_term = 2 * math.log(num_cells / failure_probability)
    # t = d + d ln(t / d) + log_term, approached from above: each step is a bound.
    square = 2 * (num_parts + log_term)
    for _ in range(_STEPS):
        square = num_parts * (1 + math.log(square / num_parts)) + log_term
    return math.sqrt(variance * square)


# Exact probabilities of the tails of discrete noise, for draws of which only large ones are kept.
#
# ``NoiseSource.reaching`` draws a value only if an event of probability limit / 2^64 happens. The
# limit is slightly too large; a coin, whose probability is computed here, corrects it exactly.


Kind = Literal["laplace", "gaussian"]

# Doubles compute limits with a relative error far below this margin.
_TAIL_MARGIN = 1 + 1e-9
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
    import numpy as np  # a ledger needs no numpy

    is_rare = (distances > 0) & (kind == "laplace" or scale >= _LEAST_SIGMA)
    away = np.where(is_rare, distances, 1).astype(np.float64)
    if kind == "laplace":
        chances = np.exp(-away / scale) / (1 + math.exp(-1 / scale))
    else:
        chances = np.exp(-0.5 * (away / scale) ** 2) / (scale * math.sqrt(2 * math.pi))
        chances /= -np.expm1(-away / scale**2)
    is_rare &= chances < _LARGEST
    limits = np.where(is_rare, chances, 0.0) * (_TAIL_MARGIN * 2.0**64)
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

    scaled: int = 4 * (4 * arctan_of_inverse(5) - arctan_of_inverse(239))
    return decimal.Decimal(scaled) / one

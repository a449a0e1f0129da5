"""The standard normal distribution and its inverse, far into the tail."""

from __future__ import annotations

import math
import sys

# Below this point erfc is near the least double, and six terms of the series are exact.
_FAR = -30.0
_SERIES = (1.0, -1.0, 3.0, -15.0, 105.0, -945.0, 10395.0)
_LOG_ROOT_TWO_PI = 0.5 * math.log(2 * math.pi)
_ROOT_HALF = math.sqrt(0.5)
_LAST_STEP = 4 * sys.float_info.epsilon
_MOST_STEPS = 60
# Below this logarithm the start is the root but for 2e-14, and slopes are lost to rounding.
_LEAST_LOG = -1e15


def log_normal(point: float) -> float:
    """Returns the logarithm of the probability that a standard normal is at most a point.

    The error is a few units of rounding, relative to the result.

    Reference: the asymptotic series of Abramowitz and Stegun (1964), 26.2.12, in the far tail.

    Example:
        >>> round(log_normal(0.0), 6), round(log_normal(-100.0), 4)
        (-0.693147, -5005.5242)
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
    """Returns the point that a standard normal stays below with a probability of at most 1/2.

    The error is a few units of rounding, absolute near 0 and relative elsewhere; below the
    logarithm -1e15 the result is too low, by 2e-14 of it at most.

    Cost: some steps of Newton's method. The logarithm of the distribution is concave, so that they
    rise to the root from a start below it, and stop where rounding makes them turn.

    Example:
        >>> round(normal_quantile(math.log(0.025)), 6)
        -1.959964
    """
    # A point of which the probability is at most half as large.
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

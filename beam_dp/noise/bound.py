"""Tail bounds for sums of discrete noise."""

from __future__ import annotations

import math
from typing import Literal

Distribution = Literal["discrete_laplace", "discrete_gaussian"]
DISTRIBUTIONS: tuple[Distribution, ...] = ("discrete_laplace", "discrete_gaussian")

FAILURE_PROBABILITY = 0.05  # of a stated bound being wrong, where nobody chose another

# Of the floating-point operations from a scale to a bound.
_ROUNDING = 1e-12


def noise_variance(distribution: Distribution, scale: float) -> float:
    """Returns the variance of one noise, in squared units of its scale.

    Example:
        >>> round(noise_variance("discrete_laplace", 3.0), 3)
        17.834
    """
    if distribution == "discrete_gaussian":
        return scale**2
    # 2a / (1 - a)^2 with a = exp(-1 / scale), in a form that does not underflow. Where noise
    # is rarer than once in 1e17 cells the variance is overstated, lest its inverse overflow.
    half = math.sinh(min(0.5 / scale, 20.0))
    return 0.5 / half**2 if half > 1e-150 else math.inf


def laplace_bound(scale: float, num_values: int, failure_probability: float) -> float:
    """Returns what no discrete Laplace noise of several exceeds, except with a probability.

    P(|z| > t) = 2 a^(t + 1) / (1 + a) with a = exp(-1 / scale), and the union bound.

    Args:
        scale: of each.
        num_values: how many there are.
        failure_probability: in (0, 1).
    """
    above = 2 * num_values / (failure_probability * (1 + math.exp(-1 / scale)))
    return float(max(0, math.ceil(scale * math.log(above) * (1 + _ROUNDING)) - 1))


def noise_bound(
    variance: float, num_cells: int, laplace_variance: float | None, failure_probability: float
) -> float:
    """Returns what no cell's noise exceeds, except with the failure probability.

    A sum of discrete Gaussians is subgaussian. For a discrete Laplace noise of variance v
    E exp(tX) = 1 / (1 - v (cosh t - 1)) <= exp(0.753 v t^2) while t <= 1 and v t^2 <= 0.92,
    because cosh t - 1 <= 0.5431 t^2 and 1 / (1 - u) <= exp(2 ln(2) u) for u <= 1/2. In a weighted
    sum of variance V no weight exceeds sqrt(V / v), so the same holds with V for all
    t sqrt(V) <= min(0.959, sqrt(v)); Chernoff's bound does the rest.

    Args:
        variance: of the noise of one cell.
        num_cells: that the bound holds for at once.
        laplace_variance: smallest variance of one Laplace noise; None where all are Gaussian.
        failure_probability: in (0, 1).
    """
    log_term = math.log(2 * num_cells / failure_probability)
    deviation = math.sqrt(variance)
    if laplace_variance is None:
        return deviation * math.sqrt(2 * log_term)
    limit = min(0.959, math.sqrt(laplace_variance))
    if math.sqrt(log_term / 0.753) <= limit:
        return deviation * math.sqrt(4 * 0.753 * log_term)
    return deviation * (log_term / limit + 0.753 * limit)

"""Tail bounds for sums of discrete noise."""

from __future__ import annotations

import math


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

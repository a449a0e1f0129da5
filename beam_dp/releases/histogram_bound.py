"""Error bounds of answers from a stability histogram."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from beam_dp.releases.sketch_estimates import noise_variance


def selected_noise_bound(
    scale: float,
    weights: NDArray[np.float64],
    selected_weight: float,
    failure_probability: float,
) -> float:
    """Returns what the weighted noise of any selection of a query's elements passes rarely.

    Which elements a histogram keeps depends on their noise Z, so that the noise of those that
    are kept is biased upwards. But whatever is selected, its weighted noise is at most the sum of
    w max(Z, 0) over all elements of the query, and at least minus that of w max(-Z, 0). These are
    sums of independent terms that know of no selection. Cantelli bounds each; the largest of all
    Z, and of all -Z, has a union bound. Each of the four fails with a quarter of the probability.
    Where none fails both bounds hold at once, so the smaller one does too.

    Args:
        scale: of the discrete Laplace noise, b; q = e^(-1 / b).
        weights: shape (m,), float64, at least 0, of all elements of the query.
        selected_weight: the sum of the weights of what is selected; may depend on the noise.
        failure_probability: in (0, 1).

    Source: P(Z >= k) = q^k / (1 + q) for k >= 1, so E max(Z, 0) = q / (1 - q^2); half of the
    second moment of Z is that of max(Z, 0).
    """
    each = failure_probability / 4
    ratio = math.exp(-1 / scale)
    mean = ratio / (1 - ratio**2)
    variance = noise_variance("discrete_laplace", scale) / 2 - mean**2
    norm = float((weights**2).sum())
    summed = mean * float(weights.sum()) + math.sqrt(variance * norm * (1 - each) / each)
    largest = scale * math.log(max(len(weights), 1) / (each * (1 + ratio)))
    return min(summed, largest * selected_weight)

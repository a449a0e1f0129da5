"""Stability histograms: noisy counts of the elements that have enough records."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.mechanisms.sketches.plan import (
    HistogramNoise,
    SparseMechanism,
    SparseNoise,
    checked_scale,
    unit_weight,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss

# What rounding may add to the probability of a threshold.
_MARGIN = 1e-9


@dataclasses.dataclass(frozen=True)
class StabilityHistogram(SparseMechanism):
    """Adds noise to the count of every element that has records; drops what is below a threshold.

    Let a unit move all counts together by at most w (``unit_weight``; twice as much under
    replace-one). Counts get discrete Laplace noise of scale w / epsilon.

    Privacy: (epsilon, delta) with delta > 0. On the elements that both neighbours hold the noisy
    counts are epsilon-private. An element that only one of them holds is all of one unit's: none
    is released but with probability delta (``stability_threshold``). Let O be a set of outcomes,
    q and q' the probabilities that a neighbour releases an element of its own, and p, p' those of
    O on the common ones, p <= e^epsilon p'. Then P(O) <= q + (1 - q) p, and P'(O) >= (1 - q') p',
    so P(O) - e^epsilon P'(O) <= q + (1 - q) p - (1 - q') p <= max(q, q') <= delta. With nothing in
    common this is reached: the threshold is the least possible for this noise.

    Accuracy: the count of an element that is held errs by the noise; one that is not is answered
    by 0, and its count was most probably below the threshold. Empty elements are never held.

    Reference: Korolova, Kenthapadi, Mishra and Ntoulas (2009); Bun, Nissim and Stemmer (2016).
    """

    name: ClassVar[str] = "stability_histogram"

    def _noise(self, guarantee: Guarantee, max_weight: int) -> SparseNoise:
        histogram = histogram_noise(guarantee, max_weight, guarantee.epsilon)
        loss = Loss.approximate(guarantee.epsilon, guarantee.delta)
        return SparseNoise(loss, histogram=histogram)


def histogram_noise(guarantee: Guarantee, max_weight: int, epsilon: float) -> HistogramNoise:
    """Returns the noise and the threshold for a part of epsilon and all of delta.

    Raises:
        InputError: if delta is 0, or the noise would not fit 64-bit integers.
    """
    if guarantee.delta == 0:
        condition = "must be > 0 for a stability histogram: it tells which elements have records"
        raise InputError("delta", 0.0, condition)
    scale = checked_scale(guarantee, unit_weight(guarantee, max_weight) / Fraction(epsilon))
    return HistogramNoise(
        scale,
        stability_threshold(scale, guarantee.delta, guarantee.max_records_per_unit, max_weight),
    )


def stability_threshold(
    scale: float, delta: float, max_records_per_unit: int, max_weight: int = 1
) -> int:
    """Returns the least threshold that elements of one unit alone reach with probability delta.

    A unit's k records of weight w go to j elements. The probability that none of these reaches
    the threshold is the product of 1 - p(weight), p(x) = P(x + noise >= threshold), and -ln(1 - p)
    is convex up to the threshold: for each j the worst is one element with k - j + 1 records and
    j - 1 with one each. All j are tried.

    Example:
        >>> stability_threshold(1.0, 1e-9, 1)
        22
        >>> stability_threshold(2.0, 1e-6, 2), release_probability(2.0, 30, 2) <= 1e-6
        (30, True)
    """
    # Below k w an element may be released for more than half, which no delta allows; and by the
    # union bound none of k elements of weight k w reaches what is this far above.
    least = max_records_per_unit * max_weight + 1
    most = least + math.ceil(scale * math.log(max_records_per_unit / delta))

    def is_enough(threshold: int) -> bool:
        return release_probability(scale, threshold, max_records_per_unit, max_weight) <= delta

    return least + bisect_left(range(least, most), True, key=is_enough)


def release_probability(
    scale: float, threshold: int, max_records_per_unit: int, max_weight: int = 1
) -> float:
    """Returns the largest probability that any element of one unit alone is released.

    Returns:
        The probability, rounded up.
    """
    elements = np.arange(1, max_records_per_unit + 1)
    largest = (max_records_per_unit - elements + 1) * max_weight
    none = (elements - 1) * np.log1p(-_tail(scale, np.float64(threshold - max_weight)))
    none = none + np.log1p(-_tail(scale, threshold - largest.astype(np.float64)))
    return float(-np.expm1(none.min())) * (1 + _MARGIN)


def _tail(scale: float, value: NDArray[np.float64] | np.float64) -> NDArray[np.float64]:
    """P(discrete Laplace >= value) for values > 0: e^(-value / scale) / (1 + e^(-1 / scale))."""
    return np.asarray(np.exp(-value / scale) / (1 + math.exp(-1 / scale)))

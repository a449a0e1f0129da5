"""Output distributions ("laws") in closed form, and distances between two laws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

# The probability of each outcome; the probabilities sum to 1, up to rounding.
Law = Mapping[Any, float]

# Noise beyond this many scales has a probability below 1e-20 and is ignored.
_REACH = 48.0
_LARGEST_EXPONENT = 700.0  # exp of this is a finite double


def largest_log_ratio(first: Law, second: Law) -> float:
    """Returns the least epsilon of pure differential privacy for two output laws.

    The result is max |ln(P(outcome) / Q(outcome))|, infinite if only one law has some outcome.

    Example:
        >>> round(largest_log_ratio({0: 0.75, 1: 0.25}, {0: 0.25, 1: 0.75}), 4)
        1.0986
    """
    largest = 0.0
    for outcome in {**first, **second}:
        one, other = first.get(outcome, 0.0), second.get(outcome, 0.0)
        if one == 0 and other == 0:
            continue
        if one == 0 or other == 0:
            return math.inf
        largest = max(largest, abs(math.log(one) - math.log(other)))
    return largest


def hockey_stick(first: Law, second: Law, epsilon: float) -> float:
    """Returns the least delta for two output laws and an epsilon, the larger of both directions.

    The result is the maximum over events of P(event) - exp(epsilon) Q(event), in [0, 1].

    Example:
        >>> hockey_stick({0: 0.75, 1: 0.25}, {0: 0.25, 1: 0.75}, 0.0)
        0.5
    """

    def scaled(probability: float) -> float:
        # exp(epsilon) alone may overflow; products above 1 can be replaced by 1.
        if epsilon < _LARGEST_EXPONENT:
            return math.exp(epsilon) * probability
        return math.exp(min(0.0, epsilon + math.log(probability))) if probability > 0 else 0.0

    forward = backward = 0.0
    for outcome in {**first, **second}:
        one, other = first.get(outcome, 0.0), second.get(outcome, 0.0)
        forward += max(0.0, one - scaled(other))
        backward += max(0.0, other - scaled(one))
    return max(forward, backward)


def discrete_laplace(scale: float, value: int, low: int, high: int) -> dict[int, float]:
    """Returns the law of an integer plus discrete Laplace noise, clipped to [low, high].

    Clipping is post-processing; both ends get the probability of the whole tail.

    ``scale``: the scale of the noise, > 0; P(z) is proportional to exp(-|z| / scale).
    ``high``: the upper end, >= low.

    Example:
        >>> [round(each, 4) for each in discrete_laplace(1.0, 0, -1, 1).values()]
        [0.2689, 0.4621, 0.2689]
    """
    return _clipped(lambda z: -np.abs(z) / scale, scale, value, low, high)


def discrete_gaussian(sigma: float, value: int, low: int, high: int) -> dict[int, float]:
    """Returns the law of an integer plus discrete Gaussian noise, clipped to [low, high].

    ``sigma``: the parameter of the noise, > 0; P(z) is proportional to exp(-z^2 / (2 sigma^2)).
    ``high``: the upper end, >= low.
    """
    return _clipped(lambda z: -(z**2) / (2 * sigma**2), sigma, value, low, high)


def exponential_mechanism(scores: Sequence[float], scale: float) -> dict[int, float]:
    """Returns the law of a selection with P(index) proportional to exp(score / scale).

    Example:
        >>> [round(each, 4) for each in exponential_mechanism([10, 9, 5, 0], 2.0).values()]
        [0.5898, 0.3578, 0.0484, 0.004]
    """
    logits = np.asarray(scores, np.float64) / scale
    weights = np.exp(logits - logits.max())
    return dict(enumerate((weights / weights.sum()).tolist()))


def permute_and_flip(scores: Sequence[float], scale: float) -> dict[int, float]:
    """Returns the law of permute-and-flip with coins exp(-gap / scale).

    P(r) = p(r) times the integral over t in [0, 1] of the product over s other than r of
    1 - t p(s), where p(s) are the coins' probabilities and t is the time at which r is visited.

    ``scores``: the exact scores, at most a few dozen.

    Example:
        >>> [round(each, 4) for each in permute_and_flip([10, 9, 5, 0], 2.0).values()]
        [0.6704, 0.2943, 0.0327, 0.0026]
    """
    coins = np.exp((np.asarray(scores, np.float64) - max(scores)) / scale)
    # Gauss-Legendre quadrature with this number of nodes is exact for the integrand's degree.
    nodes, weights = np.polynomial.legendre.leggauss(len(coins) // 2 + 1)
    at = (nodes + 1) / 2
    law = [
        float(coin)
        * 0.5
        * float(weights @ np.prod(1 - np.outer(at, np.delete(coins, index)), axis=1))
        for index, coin in enumerate(coins)
    ]
    return dict(enumerate(law))


def geometric_noisy_max(scores: Sequence[int], scale: float) -> dict[int, float]:
    """Returns the law of the argmax of integer scores with one-sided geometric noise.

    Of equal sums the first wins.

    ``scale``: the scale of the noise, > 0; P(z) is proportional to exp(-z / scale) for z >= 0.

    Example:
        >>> [round(each, 4) for each in geometric_noisy_max([1, 1], 1.0).values()]
        [0.7311, 0.2689]
    """
    exact = np.asarray(scores, np.int64)
    reach = math.ceil(_REACH * scale)
    values = np.arange(exact.max(), exact.max() + reach + 1)
    # P(score + noise <= value), or < value for earlier candidates, which win ties.
    at_most = -np.expm1(-np.maximum(values[:, None] - exact + 1, 0) / scale)
    below = -np.expm1(-np.maximum(values[:, None] - exact, 0) / scale)
    law = {}
    for index in range(len(exact)):
        others = np.concatenate([below[:, :index], at_most[:, index + 1 :]], axis=1)
        mass = -np.expm1(-1 / scale) * np.exp(-(values - exact[index]) / scale)
        law[index] = float(mass @ np.prod(others, axis=1))
    return law


def in_rounds(
    law: Callable[[Sequence[int], float], Law], scores: Sequence[int], number: int, scale: float
) -> dict[tuple[int, ...], float]:
    """Returns the law of several selections in a row, each from the remaining candidates.

    Example:
        >>> {k: round(p, 3) for k, p in in_rounds(exponential_mechanism, [1, 0], 2, 1.0).items()}
        {(0, 1): 0.731, (1, 0): 0.269}
    """
    found: dict[tuple[int, ...], float] = {(): 1.0}
    for _ in range(number):
        longer = {}
        for chosen, before in found.items():
            left = [index for index in range(len(scores)) if index not in chosen]
            for place, share in law([scores[index] for index in left], scale).items():
                longer[(*chosen, left[place])] = before * share
        found = longer
    return found


def geometric_noisy_top(
    scores: Sequence[int], number: int, scale: float
) -> dict[tuple[int, ...], float]:
    """Returns the law of the top integer scores with one-sided geometric noise, largest first.

    ``scores``: the exact integer scores, at most a handful.
    ``number``: the number of scores in the result, >= 1; of equal sums the first comes first.
    ``scale``: the scale of the noise, > 0; P(z) is proportional to exp(-z / scale) for z >= 0.

    Example:
        >>> {k: round(p, 4) for k, p in geometric_noisy_top([1, 1], 1, 1.0).items()}
        {(0,): 0.7311, (1,): 0.2689}
    """
    exact = np.asarray(scores, np.int64)
    values = np.arange(exact.min(), exact.max() + math.ceil(_REACH * scale) + 1)
    gaps = values - exact[:, None]
    mass = np.where(gaps >= 0, -np.expm1(-1 / scale) * np.exp(-np.maximum(gaps, 0) / scale), 0.0)

    def up_to(weights: NDArray[np.float64], includes: bool) -> NDArray[np.float64]:
        """Returns, per value, the total weight of smaller values, or of values up to this one."""
        sums = np.cumsum(weights)
        return sums if includes else sums - weights

    law = {}
    for chosen in itertools.permutations(range(len(exact)), number):
        last = chosen[-1]
        weights = mass[last].copy()
        for other in set(range(len(exact))) - set(chosen):
            weights *= up_to(mass[other], other > last)
        for earlier, later in itertools.pairwise(reversed(chosen)):
            weights = mass[later] * up_to(weights, earlier > later)
        law[chosen] = float(weights.sum())
    return law


def product_law(laws: Sequence[Law]) -> dict[tuple[Hashable, ...], float]:
    """Returns the joint law of independent outcomes, as tuples."""
    return {
        tuple(outcome for outcome, _ in parts): math.prod(share for _, share in parts)
        for parts in itertools.product(*(law.items() for law in laws))
    }


def _clipped(
    log_weight: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    scale: float,
    value: int,
    low: int,
    high: int,
) -> dict[int, float]:
    if not 0 < scale < math.inf or high < low:
        raise ValueError("the scale must be finite and > 0, and low at most high")
    far = max(math.ceil(_REACH * scale), abs(low - value), abs(high - value)) + 1
    noise = np.arange(-far, far + 1)
    weights = np.exp(log_weight(noise.astype(np.float64)))
    clipped = np.clip(noise + value, low, high) - low
    law = np.bincount(clipped, weights=weights, minlength=high - low + 1) / weights.sum()
    return dict(zip(range(low, high + 1), law.tolist(), strict=True))

"""The exact laws of choosing the largest of several scores."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.testing.audit import Law

_REACH = 48.0  # noise beyond this number of scales has a negligible probability


def in_rounds(
    law: Callable[[Sequence[int], float], Law], scores: Sequence[int], number: int, scale: float
) -> dict[tuple[int, ...], float]:
    """Returns the law of several selections in a row, each from the remaining candidates."""
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
    ``number``: the number of scores in the result, >= 1; equal sums keep their order.
    ``scale``: the scale of the noise, > 0; P(z) is proportional to exp(-z / scale) for z >= 0.
    """
    exact = np.asarray(scores, np.int64)
    values = np.arange(exact.min(), exact.max() + math.ceil(_REACH * scale) + 1)
    gaps = values - exact[:, None]
    mass = np.where(gaps >= 0, -np.expm1(-1 / scale) * np.exp(-np.maximum(gaps, 0) / scale), 0.0)

    def up_to(weights: NDArray[np.float64], includes: bool) -> NDArray[np.float64]:
        """Returns the total weight up to each value, with or without the value itself."""
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

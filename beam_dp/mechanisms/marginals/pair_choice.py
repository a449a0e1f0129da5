"""Which pairs of attributes are worth their noise: chosen from noisy scores, which are public."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import MAX_SELECTED_CELLS, growing_tree, tree_fits
from beam_dp.models.residual_basis import Support

# A fit leaves about this share of the noise of a measured table.
_REMAINING_NOISE = 0.6
# Numbers of pairs that are compared lie this factor apart.
_NUMBER_RATIO = 1.25


def choose_pairs(
    domain: Domain,
    scores: Mapping[Support, float],
    answers: Mapping[Support, NDArray[np.float64]],
    planned: Callable[[Sequence[Support]], Sequence[Measurement]],
) -> tuple[list[Support], list[Support]]:
    """Returns the pairs whose measurement promises to lower the error most, from public numbers.

    A pair that is not measured keeps its score as error, in L1. One that is measured keeps its
    noise, in no cell more than about its expected count; less of it where the hypothesis joins it.
    More pairs mean more noise for each, so several numbers of pairs are compared.

    Args:
        domain: the universe.
        scores: noisy distances of the pairs from independence, in records.
        answers: the tables of independent attributes, in records.
        planned: the measurements that a selection would get.

    Returns:
        Pairs that fit a junction tree of the largest size, the best first; and others that are
        worth their noise even so.
    """

    def remaining(axes: Support, deviation: float) -> float:
        # sqrt(2 / pi) is the mean size of Gaussian noise.
        return float(np.minimum(answers[axes], math.sqrt(2 / math.pi) * deviation).sum())

    best: tuple[list[Support], list[Support]] = ([], [])
    best_gain = 0.0
    number = len(scores)
    by_score = sorted(scores, key=lambda axes: -scores[axes])
    while number >= 1:
        # Deviations as if the highest scores were chosen.
        trial = planned(by_score[:number])
        deviations = {domain.axes(each.names): math.sqrt(each.variance) for each in trial}
        largest = max(deviations.values(), default=0.0)
        gains, loose_gains = {}, {}
        for axes, score in scores.items():
            deviation = deviations.get(axes, largest)
            gains[axes] = score - remaining(axes, _REMAINING_NOISE * deviation)
            loose_gains[axes] = score - remaining(axes, deviation)
        by_gain = sorted((axes for axes in gains if gains[axes] > 0), key=lambda axes: -gains[axes])
        # A number of pairs that would gain no more if all of them joined needs no tree.
        if sum(gains[axes] for axes in by_gain[:number]) > best_gain:
            joined, loose = _joined_and_loose(domain, by_gain, loose_gains, number)
            gain = sum(gains[axes] for axes in joined) + sum(loose_gains[axes] for axes in loose)
            if gain > best_gain:
                best, best_gain = (joined, loose), gain
        number = int(min(number - 1, number / _NUMBER_RATIO))
    return best


def _joined_and_loose(
    domain: Domain,
    by_gain: Sequence[Support],
    loose_gains: Mapping[Support, float],
    number: int,
) -> tuple[list[Support], list[Support]]:
    """Returns the first pairs that fit one tree, and others that gain something outside it."""
    tree = growing_tree(domain, MAX_SELECTED_CELLS)
    joined: list[Support] = []
    loose: list[Support] = []
    for axes in by_gain:
        if len(joined) + len(loose) == number:
            break
        if tree.join(axes):
            joined.append(axes)
        elif loose_gains[axes] > 0:
            loose.append(axes)

    def is_too_large(num_pairs: int) -> bool:
        return not tree_fits(domain, joined[:num_pairs], MAX_SELECTED_CELLS)

    # A hypothesis finds its tree from the pairs alone, and this one may be larger than the one
    # that grew. The last pairs leave it then.
    if is_too_large(len(joined)):
        num_pairs = bisect_left(range(1, len(joined)), True, key=is_too_large)
        loose += [axes for axes in joined[num_pairs:] if loose_gains[axes] > 0]
        del joined[num_pairs:]
    return joined, loose

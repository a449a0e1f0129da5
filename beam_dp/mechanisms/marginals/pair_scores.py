"""Integer scores of how far a distribution is from exact tables, and the pairs they choose."""

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
from beam_dp.releases.synthetic_database.noisy_measurements import MAX_SCORE

# Scores are compared on a grid of which this many units are the noise of the selection, or nearly;
# hypothetical answers are rounded to it before subtraction.
_SCORE_UNITS = 2**20
_MAX_SCORE_GRID = 2**16


def l1_score(exact: NDArray[np.int64], answer: NDArray[np.float64], grid: int) -> int:
    """Returns the L1 distance of a table and its hypothetical answer, in grid units.

    ``exact``: counts, >= 0; secret.
    ``answer``: same shape, in records.
    ``grid``: units that make one record, an integer >= 1.

    Privacy: one more record changes it by at most ``grid``, up or down; the answer must be public,
    and may be anything: what is no number counts as 0.

    Returns:
        From 0 to ``MAX_SCORE``.
    """
    # Clipped cell by cell, so that neither a difference nor their sum can wrap.
    largest = MAX_SCORE // exact.size
    difference = np.minimum(exact, largest // grid) * grid - answer_on_grid(answer, grid, largest)
    return int(np.minimum(np.abs(difference), largest).sum())


def largest_cell_score(exact: NDArray[np.int64], answer: NDArray[np.float64], grid: int) -> int:
    """Returns how far a cell of a table is from its hypothetical answer at most, in grid units.

    ``exact``: counts, >= 0, at least one cell; secret.
    ``answer``: same shape, in records.
    ``grid``: units that make one record, an integer >= 1.

    Privacy: one more record changes it by at most ``grid``, up or down, and so does a replacement,
    whose two cells move by one record each; the answer must be public, as in ``l1_score``.

    Returns:
        From 0 to ``MAX_SCORE``.
    """
    on_grid = np.minimum(exact, MAX_SCORE // grid) * grid
    difference = np.abs(on_grid - answer_on_grid(answer, grid, MAX_SCORE))
    return min(int(difference.max()), MAX_SCORE)


def answer_on_grid(answer: NDArray[np.float64], grid: int, largest: int) -> NDArray[np.int64]:
    """Returns a hypothetical answer in whole units of a grid, clipped, whatever a fit made of it.

    The integer that a processor makes of what is no number differs between them, and differences
    to it wrap: a record would then move a score by far more than its sensitivity.

    ``answer``: any shape, in records; public.
    ``grid``: units that make one record, an integer >= 1.
    ``largest``: that the result may be, up to 2^61.

    Returns:
        same shape, int64; 0 where the answer is no number.
    """
    with np.errstate(over="ignore"):
        on_grid = np.clip(answer * float(grid), -largest, largest)
    return np.rint(np.where(np.isnan(on_grid), 0.0, on_grid)).astype(np.int64)


def score_grid(selection_scale: float) -> int:
    """Returns the number of units of a score that make one record, a power of two.

    ``selection_scale``: of the noise of the selection, in records.
    """
    units = _SCORE_UNITS / selection_scale
    return 1 << max(0, min(math.frexp(units)[1] - 1, _MAX_SCORE_GRID.bit_length() - 1))


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

    ``scores``: noisy distances of the pairs from independence, in records.
    ``answers``: the tables of independent attributes, in records.
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

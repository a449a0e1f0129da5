"""Integer scores of how far a distribution is from exact tables, and the pairs they choose.

Pairs are chosen by sums over their cells, and a strong dependence of a few codes may weigh less
there than the noise of a whole table. So a last check follows: what was measured is fitted,
quickly, and the exponential mechanism chooses, one after the other, pairs that were left out, by
their cell that is furthest from the fit. These are measured, too. A pair that then has a cell
beyond its noise may join the fit; to join the others would add nothing but noise, and they are left
to the records.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals import plan as plans, synthesis
from beam_dp.mechanisms.marginals.measurements import Measurement, freedoms
from beam_dp.models.basis import Support, coefficients_table, table_coefficients
from beam_dp.models.candidates import beyond_noise
from beam_dp.models.maximum_entropy import refit
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import range_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.rounding import root_down, up
from beam_dp.releases.synthetic_database.measured_tables import MAX_SCORE
from beam_dp.summaries.histogram import Marginals

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
    and may be anything: what is no number counts as 0. It is from 0 to ``MAX_SCORE``.
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
    whose two cells move by one record each; the answer must be public, as in ``l1_score``. It is
    from 0 to ``MAX_SCORE``.
    """
    on_grid = np.minimum(exact, MAX_SCORE // grid) * grid
    difference = np.abs(on_grid - answer_on_grid(answer, grid, MAX_SCORE))
    return min(int(difference.max()), MAX_SCORE)


def answer_on_grid(answer: NDArray[np.float64], grid: int, largest: int) -> NDArray[np.int64]:
    """Returns a hypothetical answer in whole units of a grid, clipped; 0 where it is no number.

    The integer that a processor makes of what is no number differs between them, and differences
    to it wrap: a record would then move a score by far more than its sensitivity.

    ``answer``: any shape, in records; public.
    ``grid``: units that make one record, an integer >= 1.
    ``largest``: that the result may be, up to 2^61.
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
    tree = plans.growing_tree(domain, plans.MAX_SELECTED_CELLS)
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
        return not plans.tree_fits(domain, joined[:num_pairs], plans.MAX_SELECTED_CELLS)

    # A hypothesis finds its tree from the pairs alone, and this one may be larger than the one
    # that grew. The last pairs leave it then.
    if is_too_large(len(joined)):
        num_pairs = bisect_left(range(1, len(joined)), True, key=is_too_large)
        loose += [axes for axes in joined[num_pairs:] if loose_gains[axes] > 0]
        del joined[num_pairs:]
    return joined, loose


MOST_CHOICES = 5
# Of all records. The exponential mechanism misses the worst of m cells by about its scale times
# ln(m). On four tables of people such a miss was below a hundredth at epsilon 1, where checks paid;
# at epsilon 0.1, where it was seven times as large, they cost more than they found.
LARGEST_MISS = 0.02
# Of mu^2, for one choice and for the pair that it adds: this gets about what one of forty gets.
CHOICE_SHARE = 0.01
ADDED_SHARE = 0.016
# A fit that only compares pairs need be neither as fine nor as close as the last one.
_PENALTY = 0.03
_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class CheckBudget:
    """What one choice spends, and the measurement of the pair that it adds.

    ``choice_scale``: of the exponential mechanism, in records.
    """

    choice_scale: float
    added: float
    squared_mu: Fraction


def check_budget(guarantee: Guarantee, squared_mu: Fraction) -> CheckBudget:
    """Returns what a choice, and the measurement that follows it, may spend.

    Privacy: the score of a pair, the largest distance of a cell from its public answer, moves by
    at most 1 for one record more or less, either way; for a replacement as well, which moves two
    cells by 1 each. k records of a unit move it by k. So a choice has the range 2 k / scale, and
    the mu of that (``range_mu``); its square and that of the measurement's mu add up.
    """
    choice = Fraction(CHOICE_SHARE) * squared_mu
    added = Fraction(ADDED_SHARE) * squared_mu
    return CheckBudget(
        choice_scale=up(range_mu(2 * guarantee.max_records_per_unit) / Fraction(root_down(choice))),
        added=root_down(added),
        squared_mu=choice + added,
    )


def num_choices(budget: CheckBudget, num_left_out: int, num_records: float) -> int:
    """Returns how many of the pairs may be chosen: half of them at most.

    None where a choice would be all but blind, so that its budget is better spent on other pairs.
    """
    number = min(MOST_CHOICES, num_left_out // 2)
    if number and budget.choice_scale * math.log(num_left_out) > LARGEST_MISS * num_records:
        return 0
    return number


def fitted_answers(
    plan: plans.MarginalsPlan,
    joined: Sequence[Support],
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
    left_out: Sequence[Support],
) -> dict[Support, NDArray[np.float64]]:
    """Returns what a quick fit to noisy tables says of pairs that were left out, in records.

    ``left_out``: pairs, as ascending axes.
    """
    basis = synthesis.plan_basis(plan, joined)
    observed, total, start = synthesis.independent_start(plan, basis, measurements, tables)
    log_weights = refit(basis, observed, total, start, _PENALTY, _TOLERANCE)
    answers = basis.marginals(log_weights, left_out)
    return {axes: total * answer for axes, answer in zip(left_out, answers, strict=True)}


def choose_left_out(
    answers: Mapping[Support, NDArray[np.float64]],
    marginals: Marginals,
    domain: Domain,
    budget: CheckBudget,
    number: int,
    noise: NoiseSource,
) -> list[Support]:
    """Returns pairs with a cell that the fit gets wrong, chosen one after the other.

    ``answers``: of all pairs that were left out, in records.
    ``marginals``: exact tables that hold these pairs; secret.

    Privacy: each choice has the price of ``check_budget``. The answers must be public.
    """
    grid = score_grid(budget.choice_scale)
    scores = {
        axes: largest_cell_score(marginals.marginal(synthesis.names_of(domain, axes)), answer, grid)
        for axes, answer in answers.items()
    }
    chosen = []
    for _ in range(number):
        left = list(scores)
        exact = np.array([scores[axes] for axes in left], dtype=np.int64)
        chosen.append(left[noise.select(exact, budget.choice_scale * grid)])
        del scores[chosen[-1]]
    return chosen


def is_off(measured: Measurement, noisy: NDArray[np.float64], answer: NDArray[np.float64]) -> bool:
    """Returns whether a residual has a cell that is further from an answer than its noise explains.

    ``noisy``: as drawn, in records.
    ``answer``: of a fit, same shape, in records.
    """
    difference = coefficients_table(
        table_coefficients(noisy) - table_coefficients(answer), answer.shape
    )
    of_cell = measured.variance * freedoms(answer.shape) / answer.size
    return bool(beyond_noise(difference, of_cell).any())

"""Scores the distances between a distribution and exact tables, and chooses pairs by scores.

Pairs are first chosen by sums over cells, in which the noise of a whole table can hide a strong
dependence between a few codes. So a last check follows a quick fit to the measurements: the
exponential mechanism chooses left-out pairs, one after the other, by the cell that is furthest from
the fit. The chosen pairs are measured, too. A pair may join the fit if a cell is off by more than
noise explains. Other pairs would add only noise to the fit, so only the records are fitted to them.
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
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.bases import independent_start, names_of, plan_basis
from beam_dp.mechanisms.marginals.measurements import Measurement, freedoms
from beam_dp.models.basis import Support, coefficients_table, table_coefficients
from beam_dp.models.candidates import beyond_noise
from beam_dp.models.maximum_entropy import refit
from beam_dp.privacy.accounting import range_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import MEAN_ABSOLUTE
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import root_down, up
from beam_dp.releases.synthetic_database.measured_tables import MAX_SCORE
from beam_dp.secret.summaries.histogram import Marginals

# The noise of a selection is about this many units of the score grid. Hypothetical answers are
# rounded to the grid before subtraction.
_SCORE_UNITS = 2**20
_MAX_SCORE_GRID = 2**16


def l1_score(exact: NDArray[np.int64], answer: NDArray[np.float64], grid: int) -> int:
    """Returns the L1 distance between a table and its hypothetical answer, in grid units.

    ``exact``: counts, >= 0; secret.
    ``answer``: same shape, in records.
    ``grid``: the number of units per record, an integer >= 1.

    Privacy: one more record changes the score by at most ``grid``, up or down; the answer must be
    public, and may be anything: NaN counts as 0. The score is from 0 to ``MAX_SCORE``.
    """
    # Each cell is clipped, so that neither a difference nor the sum of differences can wrap.
    largest = MAX_SCORE // exact.size
    difference = np.minimum(exact, largest // grid) * grid - answer_on_grid(answer, grid, largest)
    return int(np.minimum(np.abs(difference), largest).sum())


def largest_cell_score(exact: NDArray[np.int64], answer: NDArray[np.float64], grid: int) -> int:
    """Returns the largest distance of a cell from its hypothetical answer, in grid units.

    ``exact``: counts, >= 0, at least one cell; secret.
    ``answer``: same shape, in records.
    ``grid``: the number of units per record, an integer >= 1.

    Privacy: one more record changes the score by at most ``grid``, up or down; so does a
    replacement, which changes two cells by one record each. The answer must be public, as in
    ``l1_score``. The score is from 0 to ``MAX_SCORE``.
    """
    on_grid = np.minimum(exact, MAX_SCORE // grid) * grid
    difference = np.abs(on_grid - answer_on_grid(answer, grid, MAX_SCORE))
    return min(int(difference.max()), MAX_SCORE)


def answer_on_grid(answer: NDArray[np.float64], grid: int, largest: int) -> NDArray[np.int64]:
    """Returns a hypothetical answer in whole units of a grid, clipped; NaN becomes 0.

    NaN, converted to an integer, would depend on the processor, and a difference from it could
    wrap: one record could change a score by far more than the score's sensitivity.

    ``answer``: any shape, in records; public.
    ``grid``: the number of units per record, an integer >= 1.
    ``largest``: the limit of the result's absolute value, up to 2^61.
    """
    with np.errstate(over="ignore"):
        on_grid = np.clip(answer * float(grid), -largest, largest)
    return np.rint(np.where(np.isnan(on_grid), 0.0, on_grid)).astype(np.int64)


def score_grid(selection_scale: float) -> int:
    """Returns the number of score units per record, a power of two; the scale is in records."""
    units = _SCORE_UNITS / selection_scale
    return 1 << max(0, min(math.frexp(units)[1] - 1, _MAX_SCORE_GRID.bit_length() - 1))


# A fit leaves about this fraction of the noise of a measured table.
REMAINING_NOISE = 0.6
# The ratio between successive numbers of pairs that ``choose_pairs`` compares.
_NUMBER_RATIO = 1.25


def choose_pairs(
    domain: Domain,
    scores: Mapping[Support, float],  # noisy distances of the pairs from independence, in records
    answers: Mapping[Support, NDArray[np.float64]],  # tables for independent attributes, in records
    planned: Callable[[Sequence[Support]], Sequence[Measurement]],
    weights: Mapping[Support, float],  # of the error of each pair, > 0
) -> tuple[list[Support], list[Support]]:
    """Returns the pairs whose measurement should lower the error most, from public numbers.

    The L1 error of a pair is its score if the pair is not measured. Otherwise the error is the
    noise, at most the expected count in each cell; it is smaller if the hypothesis joins the pair.
    The gain is the fall of the error, times the pair's weight. More pairs mean more noise per pair,
    so several numbers of pairs are compared.
    """

    def remaining(axes: Support, deviation: float) -> float:
        return float(np.minimum(answers[axes], MEAN_ABSOLUTE * deviation).sum())

    best: tuple[list[Support], list[Support]] = ([], [])
    best_gain = 0.0
    number = len(scores)
    by_score = sorted(scores, key=lambda axes: -weights[axes] * scores[axes])
    while number >= 1:
        # The standard deviations of the noise if the pairs with the highest scores are chosen.
        trial = planned(by_score[:number])
        deviations = {domain.axes(each.names): math.sqrt(each.variance) for each in trial}
        largest = max(deviations.values(), default=0.0)
        gains, loose_gains = {}, {}
        for axes, score in scores.items():
            deviation = deviations.get(axes, largest)
            of_fit = remaining(axes, REMAINING_NOISE * deviation)
            gains[axes] = weights[axes] * (score - of_fit)
            loose_gains[axes] = weights[axes] * (score - remaining(axes, deviation))
        by_gain = sorted((axes for axes in gains if gains[axes] > 0), key=lambda axes: -gains[axes])
        # Skip building the tree if this number of pairs is no better even if every pair joined it.
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
    """Returns the first pairs that fit one tree, and other pairs that still lower the error."""
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

    # A hypothesis builds its tree from the pairs alone, and that tree may be larger than the tree
    # that grew here. Then the last pairs are removed.
    if is_too_large(len(joined)):
        num_pairs = bisect_left(range(1, len(joined)), True, key=is_too_large)
        loose += [axes for axes in joined[num_pairs:] if loose_gains[axes] > 0]
        del joined[num_pairs:]
    return joined, loose


MOST_CHOICES = 5
# The largest acceptable miss of a choice, as a fraction of all records. The exponential mechanism
# misses the worst of m cells by about its scale times ln(m). On four tables of people, such a miss
# was below 0.01 at epsilon 1, and checks lowered the error; at epsilon 0.1, a miss was seven times
# as large, and the budget for checks raised the error more than the added pairs lowered it.
LARGEST_MISS = 0.02
# Fractions of mu^2 for a choice and for measuring the added pair. The second fraction is about one
# pair's share if forty pairs are measured.
CHOICE_SHARE = 0.01
ADDED_SHARE = 0.016
# The penalty and the tolerance of the quick fit, which only compares pairs and so can be coarse.
_PENALTY = 0.03
_TOLERANCE = 1e-4


@dataclasses.dataclass(frozen=True)
class CheckBudget:
    """The budget of one choice and of the measurement of the chosen pair."""

    choice_scale: float  # the scale of the exponential mechanism, in records
    added: float
    squared_mu: Fraction


def check_budget(guarantee: Guarantee, squared_mu: Fraction) -> CheckBudget:
    """Returns the budget of a choice and of the measurement that follows the choice.

    Privacy: the score of a pair is the largest distance of a cell from its public answer. Adding or
    removing a record changes the score by at most 1, up or down; so does a replacement, which
    changes two cells by 1 each. A unit with k records changes the score by at most k. So a choice
    has the range 2 k / scale, and the mu of that range (``range_mu``); the squares of this mu and
    of the measurement's mu add up.
    """
    shares = Fraction(CHOICE_SHARE), Fraction(ADDED_SHARE)
    return budget_of(guarantee.max_records_per_unit, squared_mu, *shares)


def budget_of(
    sensitivity: int, squared_mu: Fraction, choice_share: Fraction, added_share: Fraction
) -> CheckBudget:
    """Returns the budget of a choice by scores of some sensitivity, and of a measurement."""
    choice, added = choice_share * squared_mu, added_share * squared_mu
    return CheckBudget(
        choice_scale=up(range_mu(2 * sensitivity) / Fraction(root_down(choice))),
        added=root_down(added),
        squared_mu=choice + added,
    )


def num_choices(budget: CheckBudget, num_left_out: int, num_records: float) -> int:
    """Returns the number of left-out pairs that may be chosen, at most half of these pairs."""
    return number_worth_choosing(budget, num_left_out, MOST_CHOICES, LARGEST_MISS * num_records)


def number_worth_choosing(
    budget: CheckBudget, num_candidates: int, most: int, largest_miss: float
) -> int:
    """Returns the number of candidates that may be chosen, at most half of the candidates."""
    # Returns 0 if choices would be almost random: the budget is then better spent on the selected
    # pairs. ``largest_miss``: in units of the score.
    number = min(most, num_candidates // 2)
    if number and budget.choice_scale * math.log(num_candidates) > largest_miss:
        return 0
    return number


def fitted_answers(
    plan: plans.MarginalsPlan,
    joined: Sequence[Support],
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
    left_out: Sequence[Support],
) -> dict[Support, NDArray[np.float64]]:
    """Returns the tables of left-out pairs from a quick fit to noisy tables, in records."""
    basis = plan_basis(plan, joined)
    observed, total, start = independent_start(plan, basis, measurements, tables)
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
    """Chooses pairs, one at a time, with a cell in which the fit is far from the exact table.

    ``answers``: the fitted tables of all left-out pairs, in records.
    ``marginals``: the exact tables, which include these pairs; secret.

    Privacy: each choice costs the budget of ``check_budget``. The answers must be public.
    """
    grid = score_grid(budget.choice_scale)
    scores = {
        axes: largest_cell_score(marginals.marginal(names_of(domain, axes)), answer, grid)
        for axes, answer in answers.items()
    }
    return choose(scores, budget.choice_scale * grid, number, noise)


def choose(
    scores: dict[Support, int], scale: float, number: int, noise: NoiseSource
) -> list[Support]:
    """Chooses sets by the exponential mechanism, one at a time, and removes them from scores."""
    chosen = []
    for _ in range(number):
        left = list(scores)
        exact = np.array([scores[axes] for axes in left], dtype=np.int64)
        chosen.append(left[noise.select(exact, scale)])
        del scores[chosen[-1]]
    return chosen


def is_off(measured: Measurement, noisy: NDArray[np.float64], answer: NDArray[np.float64]) -> bool:
    """Returns whether a residual has a cell further from an answer than noise explains."""
    # ``noisy``: the measured table; ``answer``: the table of a fit, same shape. Both in records.
    difference = coefficients_table(
        table_coefficients(noisy) - table_coefficients(answer), answer.shape
    )
    of_cell = measured.variance * freedoms(answer.shape) / answer.size
    return bool(beyond_noise(difference, of_cell).any())

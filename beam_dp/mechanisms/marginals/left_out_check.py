"""A last check of a selection: which of the pairs that it left out does its fit get wrong?

Pairs are chosen by sums over their cells, and a strong dependence of a few codes may weigh less
there than the noise of a whole table. So what was measured is fitted, quickly, and the exponential
mechanism chooses, one after the other, pairs that were left out, by their cell that is furthest
from the fit. These are measured, too. A pair that then has a cell beyond its noise may join the
fit; to join the others would add nothing but noise, and they are left to the records.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measurements import Measurement, freedoms
from beam_dp.mechanisms.marginals.pair_scores import largest_cell_score, score_grid
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.marginals.released_records import beyond_noise
from beam_dp.mechanisms.marginals.synthesis import independent_start, names_of, plan_basis
from beam_dp.models.maximum_entropy import refit
from beam_dp.models.residual_basis import Support, coefficients_table, table_coefficients
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import range_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.rounding import root_down, up
from beam_dp.summaries.histogram import Marginals

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
    plan: MarginalsPlan,
    joined: Sequence[Support],
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
    left_out: Sequence[Support],
) -> dict[Support, NDArray[np.float64]]:
    """Returns what a quick fit to noisy tables says of pairs that were left out, in records.

    ``tables``: the noisy tables, in records.
    ``left_out``: pairs, as ascending axes.
    """
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
    """Returns pairs with a cell that the fit gets wrong, chosen one after the other.

    ``answers``: of all pairs that were left out, in records.
    ``marginals``: exact tables that hold these pairs; secret.
    ``noise``: where the noise comes from.

    Privacy: each choice has the price of ``check_budget``. The answers must be public.
    """
    grid = score_grid(budget.choice_scale)
    scores = {
        axes: largest_cell_score(marginals.marginal(names_of(domain, axes)), answer, grid)
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

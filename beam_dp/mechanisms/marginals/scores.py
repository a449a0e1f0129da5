"""Scores the distances between a distribution and exact tables, and chooses sets by scores.

Pairs are chosen by noisy scores. A check follows a quick fit to the measurements. The fit implies a
dependence of pairs that were left out: where this differs most from their scores, some are also
measured. These scores are public, so such a choice draws nothing. But sums over cells hide a cell
that is far off, so the exponential mechanism chooses others, one at a time, by their furthest cell.
A pair may join the fit if a cell is off by more than noise explains. Other pairs would add only
noise to the fit, so only the records are fitted to them.

Scores of pairs say nothing about triples: if one attribute is the exclusive or of two others, all
pairs may be independent. So if the workload has marginals of three or more attributes, a check of
triples follows, in the same way, but with records made from the fit. A triple is chosen by the
distance of its exact table from the table of these records, less the noise of a measurement.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.measurements import Measurement, closure_of, freedoms
from beam_dp.mechanisms.marginals.pair_errors import REMAINING_NOISE, ExpectedErrors
from beam_dp.mechanisms.marginals.released_records import (
    independent_start,
    loose_targets,
    names_of,
    outside,
    plan_basis,
    tree_release,
    workload_pairs,
)
from beam_dp.models.basis import (
    MarginalCoefficients,
    Support,
    coefficients_table,
    table_coefficients,
)
from beam_dp.models.candidates import beyond_noise
from beam_dp.models.maximum_entropy import refit
from beam_dp.models.tree_basis import TreeBasis
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.noise.bound import MEAN_ABSOLUTE
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import root_down
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import MAX_SCORE, Combination
from beam_dp.releases.synthetic_database.strategies import Check
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.histogram import Marginals, MarginalsAccumulator

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


# The ratio between successive numbers of pairs that ``choose_pairs`` compares.
_NUMBER_RATIO = 1.25
# No pair is measured if all together lower the expected error by less than this share.
_TIE = 0.01


def deviations_of(domain: Domain, measured: Iterable[Measurement]) -> dict[Support, float]:
    """Returns the standard deviation of the noise of each measured set, in records."""
    return {domain.axes(table.names): math.sqrt(table.variance) for table in measured}


def choose_pairs(
    domain: Domain,
    expected: ExpectedErrors,
    planned: Callable[[Sequence[Support]], Sequence[Measurement]],
    weights: Mapping[Support, float],  # of the error of each pair, > 0
) -> tuple[list[Support], list[Support]]:
    """Returns the pairs whose measurement should lower the error most, from public numbers.

    The gain of a pair is the expected fall of its L1 error, times the pair's weight. The fall is
    larger if the hypothesis joins the pair. More pairs mean more noise per pair, so several numbers
    of pairs are compared. If the noise that they add to attributes costs more, none are chosen.
    """
    distances = expected.distances
    best: tuple[list[Support], list[Support]] = ([], [])
    best_gain = 0.0
    number = len(distances)
    by_distance = sorted(distances, key=lambda axes: -weights[axes] * distances[axes])
    while number >= 1:
        # The standard deviations of the noise if the most dependent pairs are chosen.
        deviations = deviations_of(domain, planned(by_distance[:number]))
        largest = max(deviations.values(), default=0.0)
        gains, loose_gains = {}, {}
        for axes, distance in distances.items():
            deviation = deviations.get(axes, largest)
            of_fit = expected.left(axes, REMAINING_NOISE * deviation)
            gains[axes] = weights[axes] * (distance - of_fit)
            loose_gains[axes] = weights[axes] * (distance - expected.left(axes, deviation))
        by_gain = sorted((axes for axes in gains if gains[axes] > 0), key=lambda axes: -gains[axes])
        # Skip building the tree if this number of pairs is no better even if every pair joined it.
        if sum(gains[axes] for axes in by_gain[:number]) > best_gain:
            joined, loose = _joined_and_loose(domain, by_gain, loose_gains, number)
            gain = sum(gains[axes] for axes in joined) + sum(loose_gains[axes] for axes in loose)
            if gain > best_gain:
                best, best_gain = (joined, loose), gain
        number = int(min(number - 1, number / _NUMBER_RATIO))
    without, with_pairs = (
        expected.total(joined, loose, deviations_of(domain, planned([*joined, *loose])), weights)
        for joined, loose in (([], []), best)
    )
    return best if with_pairs < (1 - _TIE) * without else ([], [])


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


# What a check may choose and spend, by the number of attributes in a set. The largest acceptable
# miss of a choice by noise is a fraction of all records. The exponential mechanism misses the worst
# of m cells by about its scale times ln(m). On four tables of people, such a miss of pairs was
# below 0.01 at epsilon 1; at epsilon 0.1, it was seven times as large. Scores of triples are sums
# over cells, which are twice the total variation distance.
#
# The share of an added pair is about one pair's share if forty pairs are measured. Dependence that
# only triples show is rare in tables of people, so all choices together get only 3 % of the budget.
LARGEST_MISS = {2: 0.02, 3: 0.04}
# The scales of choices follow from a guarantee.
CHECKS = {
    2: Check(2, 5, choice_share=0.01, choice_scale=0.0, added_share=0.016, most_by_scores=3),
    3: Check(3, most_choices=12, choice_share=0.001, choice_scale=0.0, added_share=0.0015),
}
# Limits of the triples: Beam counts the exact table of each, at 2 ns per record and merged table
# (all triples of 24 columns of 2 to 10 codes: 71 merged tables, 4 microseconds per record). A cell
# of a larger table would contain few records and much noise.
MOST_TRIPLES = 2500
MOST_CELLS = 2**12
# The number of records, the penalty and the tolerance of the quick fit, which only compares sets
# and so can be coarse.
_NUM_RECORDS = 2**16
_PENALTY = 0.03
_TOLERANCE = 1e-4


def candidates(workload: Workload) -> list[Support]:
    """Returns the triples that may be chosen, as ascending axes: the smallest of the workload."""
    domain = workload.domain
    triples = {
        triple
        for names in workload
        for triple in combinations(
            (axis for axis in domain.axes(names) if domain.shape[axis] > 1), 3
        )
    }
    sized = sorted((math.prod(domain.shape[axis] for axis in axes), axes) for axes in triples)
    return [axes for cells, axes in sized[:MOST_TRIPLES] if cells <= MOST_CELLS]


def check_budget(budget: Budget, size: int) -> Check:
    """Returns the check of the sets of one size, given the mu^2 of the whole guarantee.

    Privacy: the score of a pair is the largest distance of a cell from its public answer. Adding or
    removing a record changes the score by at most 1, up or down; so does a replacement, which
    changes two cells by 1 each. The score of a triple is the L1 distance of its exact table from a
    public table, less a public number; a replacement changes it by at most 2. A unit with k records
    changes a score k times as much. So a choice has the range 2 k / scale, or 4 k / scale, and the
    mu of that range (``range_mu``); the squares of this mu and of the measurement's mu add up.
    """
    check, unit = CHECKS[size], budget.guarantee
    moved = 1 if size == 2 else unit.neighboring.num_moved
    choice = budget.part(check.choice_share)
    scale = choice.selection_scale(moved * unit.max_records_per_unit)
    return dataclasses.replace(check, choice_scale=scale)


def cost_of(check: Check, number: int, squared_mu: Fraction) -> Fraction:
    """Returns the mu^2 of some choices and of the measurements that follow them."""
    by_noise = check.num_by_noise(number) * Fraction(check.choice_share)
    return (by_noise + number * Fraction(check.added_share)) * squared_mu


def added_mu(check: Check, squared_mu: Fraction) -> float:
    """Returns the mu of the measurement of a chosen set."""
    return root_down(Fraction(check.added_share) * squared_mu)


def num_choices(check: Check, num_candidates: int, num_records: float) -> int:
    """Returns the number of candidates that may be chosen, at most half of the candidates."""
    # No noise chooses if its choices would be almost random: the budget is then better spent on the
    # selected pairs.
    number = min(check.most_choices, num_candidates // 2)
    miss = LARGEST_MISS[check.size] * num_records
    if check.num_by_noise(number) and check.choice_scale * math.log(num_candidates) > miss:
        return check.most_by_scores
    return number


def fitted_tables(
    plan: plans.MarginalsPlan,
    joined: Sequence[Support],
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
    sets: Sequence[Support],  # of one size, at least one
) -> dict[Support, NDArray[np.float64]]:
    """Returns the tables of pairs or triples from a quick fit to noisy tables, in records."""
    domain = plan.domain
    basis = plan_basis(plan, joined)
    observed, total, start = independent_start(plan, basis, measurements, tables)
    log_weights = refit(basis, observed, total, start, _PENALTY, _TOLERANCE)
    if len(sets[0]) == 2:
        answers = basis.marginals(log_weights, sets)
        return {axes: total * answer for axes, answer in zip(sets, answers, strict=True)}
    # Triples are counted in records of the fit: these also fit the pairs outside the tree, and are
    # counted faster than a tree is summed.
    assert isinstance(basis, TreeBasis)  # a selection is only for domains that fit no array
    loose = outside(basis.supports, domain, measurements)
    layout = MarginalCoefficients(domain.shape, closure_of([*joined, *loose]))
    coefficients = Combination(domain, layout, measurements, tables).estimate()
    targets = [
        dataclasses.replace(target, table=target.table * (_NUM_RECORDS / total))
        for target in loose_targets(basis, log_weights, total, layout, coefficients, loose)
    ]
    pairs = workload_pairs(plan.workload)
    codes, counts = tree_release(domain, basis, log_weights, _NUM_RECORDS, targets, pairs)
    names = [names_of(domain, axes) for axes in sets]
    accumulator = MarginalsAccumulator(domain, names)
    records = EncodedBatch(codes=[np.repeat(column, counts) for column in codes])
    state = accumulator.add_batch(accumulator.create(), records)
    counted = accumulator.from_shards(accumulator.to_shards(state)).tables
    scale = np.float64(total / _NUM_RECORDS)
    return {axes: counted[marginal] * scale for axes, marginal in zip(sets, names, strict=True)}


def choose_left_out(
    answers: Mapping[Support, NDArray[np.float64]],
    marginals: Marginals,
    domain: Domain,
    check: Check,
    number: int,
    noise: NoiseSource,
    measurement: Callable[[Support], Measurement],
) -> list[Support]:
    """Chooses sets, one at a time, in which the fit is far from the exact table.

    ``answers``: the fitted tables of all candidates, in records.
    ``marginals``: the exact tables, which include these sets; secret.
    ``measurement``: returns the measurement of a set if it is chosen.

    Privacy: each choice costs the budget of ``check_budget``. The answers must be public.
    """
    grid = score_grid(check.choice_scale)
    scores = {}
    for axes, answer in answers.items():
        exact = marginals.marginal(names_of(domain, axes))
        if check.size == 2:
            scores[axes] = largest_cell_score(exact, answer, grid)
            continue
        deviation = math.sqrt(measurement(axes).variance * freedoms(answer.shape) / answer.size)
        # The error after the measurement, from public numbers, as in ``choose_pairs``.
        left = float(np.minimum(answer, MEAN_ABSOLUTE * deviation).sum())
        scores[axes] = l1_score(exact, answer, grid) - round(left * grid)
    chosen = []
    for _ in range(number):
        remaining = list(scores)
        values = np.array([scores[axes] for axes in remaining], dtype=np.int64)
        chosen.append(remaining[noise.select(values, check.choice_scale * grid)])
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

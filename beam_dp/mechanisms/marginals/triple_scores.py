"""Chooses triples of attributes that depend on each other beyond their pairs.

Scores of pairs say nothing about such triples: if one attribute is the exclusive or of two others,
all pairs may be independent. So if the workload has marginals of three or more attributes, the last
step of a selection checks triples. Records are made from a quick fit to all measured tables. The
exponential mechanism then chooses triples, one after the other, by the distance of the exact table
from the table of these records, less the noise that a measurement would have. The chosen triples
are measured, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.bases import independent_start, names_of, outside, plan_basis
from beam_dp.mechanisms.marginals.measurements import (
    Measurement,
    closure_of,
    freedoms,
    residual_measurements,
)
from beam_dp.mechanisms.marginals.pair_scores import (
    CheckBudget,
    budget_of,
    choose,
    l1_score,
    number_worth_choosing,
    score_grid,
)
from beam_dp.mechanisms.marginals.released_records import (
    loose_targets,
    tree_release,
    workload_pairs,
)
from beam_dp.models.basis import MarginalCoefficients, Support
from beam_dp.models.maximum_entropy import refit
from beam_dp.models.tree_basis import TreeBasis
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import MEAN_ABSOLUTE
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import Combination
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.histogram import Marginals, MarginalsAccumulator

# Limits of the candidates: Beam counts the exact table of each, at 2 ns per record and merged table
# (all triples of 24 columns of 2 to 10 codes: 71 merged tables, 4 microseconds per record). A cell
# of a larger table would contain few records and much noise.
MOST_TRIPLES = 2500
MOST_CELLS = 2**12
MOST_CHOICES = 12
# Fractions of mu^2 for a choice and for measuring the chosen triple. Dependence that only triples
# show is rare in tables of people, so all choices together get only 3 % of the budget.
CHOICE_SHARE = 0.001
ADDED_SHARE = 0.0015
# As in ``pair_scores``: the largest acceptable miss of a choice, as a fraction of all records. The
# scores are sums over cells, which are twice the total variation distance.
LARGEST_MISS = 0.04
# The number of records, the penalty and the tolerance of the quick fit, which only compares
# triples and so can be coarse.
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


def triples_budget(guarantee: Guarantee, squared_mu: Fraction) -> CheckBudget:
    """Returns the budget of a choice and of the measurement that follows the choice.

    Privacy: the score of a triple is the L1 distance of its exact table from a public table, less a
    public number. Adding or removing a record changes the score by at most 1, up or down; a
    replacement changes it by at most 2. A unit with k records changes the score k times as much. So
    a choice has the range 2 k / scale, or 4 k / scale, and the mu of that range (``range_mu``); the
    squares of this mu and of the measurement's mu add up.
    """
    sensitivity = guarantee.neighboring.num_moved * guarantee.max_records_per_unit
    return budget_of(sensitivity, squared_mu, Fraction(CHOICE_SHARE), Fraction(ADDED_SHARE))


def num_choices(budget: CheckBudget, num_triples: int, num_records: float) -> int:
    """Returns the number of triples that may be chosen, at most half of the candidates."""
    return number_worth_choosing(budget, num_triples, MOST_CHOICES, LARGEST_MISS * num_records)


def stated(domain: Domain, triples: Iterable[Support], budget: CheckBudget) -> dict[str, Any]:
    """Returns the statements about the check of triples on a card."""
    cells = [math.prod(domain.shape[axis] for axis in axes) for axes in triples]
    return {
        "num_triples": len(cells),
        "num_triple_cells": sum(cells),
        "most_triple_choices": MOST_CHOICES,
        "triple_choice_share": CHOICE_SHARE,
        "triple_choice_scale": budget.choice_scale,
        "triple_added_share": ADDED_SHARE,
    }


def measurement(
    domain: Domain, axes: Support, guarantee: Guarantee, budget: CheckBudget
) -> Measurement:
    """Returns the measurement of a chosen triple, whose noise depends on no other triple."""
    alone = Workload(domain, (names_of(domain, axes),))
    (measured,) = residual_measurements(alone, [axes], guarantee, budget.added)
    return measured


def fitted_tables(
    plan: plans.MarginalsPlan,
    joined: Sequence[Support],
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
    triples: Sequence[Support],
) -> dict[Support, NDArray[np.float64]]:
    """Returns the tables of triples in the records of a quick fit to noisy tables, in records."""
    # Records also fit the pairs outside the tree, and are counted faster than a tree is summed.
    domain = plan.domain
    basis = plan_basis(plan, joined)
    assert isinstance(basis, TreeBasis)  # a selection is only for domains that fit no array
    observed, total, start = independent_start(plan, basis, measurements, tables)
    log_weights = refit(basis, observed, total, start, _PENALTY, _TOLERANCE)
    loose = outside(basis.supports, domain, measurements)
    layout = MarginalCoefficients(domain.shape, closure_of([*joined, *loose]))
    known = Combination(domain, layout, measurements, tables).estimate()
    targets = [
        dataclasses.replace(each, table=each.table * (_NUM_RECORDS / total))
        for each in loose_targets(basis, log_weights, total, layout, known, loose)
    ]
    pairs = workload_pairs(plan.workload)
    codes, counts = tree_release(domain, basis, log_weights, _NUM_RECORDS, targets, pairs)
    names = [names_of(domain, axes) for axes in triples]
    accumulator = MarginalsAccumulator(domain, names)
    records = EncodedBatch(codes=[np.repeat(column, counts) for column in codes])
    state = accumulator.add_batch(accumulator.create(), records)
    counted = accumulator.from_shards(accumulator.to_shards(state)).tables
    scale = np.float64(total / _NUM_RECORDS)
    return {axes: counted[each] * scale for axes, each in zip(triples, names, strict=True)}


def choose_triples(
    answers: Mapping[Support, NDArray[np.float64]],
    marginals: Marginals,
    domain: Domain,
    guarantee: Guarantee,
    budget: CheckBudget,
    number: int,
    noise: NoiseSource,
) -> list[Support]:
    """Chooses triples, one at a time, whose measurement should lower the error most.

    ``answers``: the fitted tables of all candidates, in records.
    ``marginals``: the exact tables, which include these triples; secret.

    Privacy: each choice costs the budget of ``triples_budget``. The answers must be public.
    """
    grid = score_grid(budget.choice_scale)
    scores = {}
    for axes, answer in answers.items():
        variance = measurement(domain, axes, guarantee, budget).variance
        deviation = math.sqrt(variance * freedoms(answer.shape) / answer.size)
        # The error after the measurement, from public numbers, as in ``pair_scores.choose_pairs``.
        left = float(np.minimum(answer, MEAN_ABSOLUTE * deviation).sum())
        exact = marginals.marginal(names_of(domain, axes))
        scores[axes] = l1_score(exact, answer, grid) - round(left * grid)
    return choose(scores, budget.choice_scale * grid, number, noise)

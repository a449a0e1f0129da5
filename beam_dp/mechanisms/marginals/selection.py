"""Select, measure, fit: MWEM for workloads that no one model can hold.

Three steps share the budget. All attributes are measured alone. Then every pair of attributes of
the workload gets a noisy score: how far it is from independent. The pairs that promise to lower
the error most, and fit one junction tree, are measured at last. Each step is a Gaussian mechanism,
so the steps together cost what one does, whatever the earlier ones said.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain import Domain
from beam_dp.errors import InputError
from beam_dp.hypotheses.basis import log_potentials
from beam_dp.hypotheses.denoised_attributes import denoised
from beam_dp.hypotheses.maximum_entropy import independent_log_weights
from beam_dp.hypotheses.residual_basis import Support
from beam_dp.hypotheses.threads import on_one_thread
from beam_dp.mechanisms.contract import NumRecords, Progress, check_noise
from beam_dp.mechanisms.marginals.measurements import Measurement, closure_of
from beam_dp.mechanisms.marginals.plan import (
    MAX_SELECTED_CELLS,
    MarginalsPlan,
    check_selects,
    check_sums,
    growing_tree,
    tree_fits,
)
from beam_dp.mechanisms.marginals.scores import l1_score
from beam_dp.mechanisms.marginals.strategies import residual_measurements
from beam_dp.mechanisms.marginals.synthesis import names_of, noisy_total, plan_basis, synthesise
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import discrete_gaussian_mu, discrete_parameter
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import down, root_down, root_up
from beam_dp.queries.workload import Workload
from beam_dp.releases import SyntheticDatabase
from beam_dp.releases.independent_tables import IndependentTables
from beam_dp.releases.pair_distances import PairDistances
from beam_dp.releases.unbiased_tables import Combination
from beam_dp.summaries import Marginals

# Of mu^2. The scores need little: each is one number of sensitivity 1. What the attributes alone
# get is not lost, because the last step measures them again and both are combined.
_ATTRIBUTES_SHARE = 0.1
_SCORES_SHARE = 0.05
_PAIRS_SHARE = down(1 - Fraction(_ATTRIBUTES_SHARE) - Fraction(_SCORES_SHARE))
# A fit leaves about this share of the noise of a measured table.
_REMAINING_NOISE = 0.6
# Numbers of pairs that are compared lie this factor apart.
_NUMBER_RATIO = 1.25
_GRID_DEVIATIONS = 4096


@dataclasses.dataclass(frozen=True)
class SelectionBudget:
    """What each step spends, as mu, and the noise of the scores.

    Args:
        attributes: mu of the first step.
        pairs: mu of the last step.
        score_grid: units of a score that make one record.
        score_scale: of the discrete Gaussian noise of a score, in these units.
    """

    attributes: float
    pairs: float
    score_grid: int
    score_scale: float

    @property
    def score_deviation(self) -> float:
        """Standard deviation of the noise of a score, in records."""
        return self.score_scale / self.score_grid


def selection_budget(guarantee: Guarantee, num_pairs: int) -> SelectionBudget:
    """Splits the mu of a guarantee.

    Privacy: the mu of Gaussian mechanisms add up in squares, also where a later one is chosen by
    what earlier ones said (Dong, Roth and Su, 2022, Corollary 2); ``discrete_gaussian_mu`` has room
    for the discreteness of all of them. One record moves every score by at most 1, 2 under
    replace-one, times the records of a unit: the L2 sensitivity of all scores is that times
    sqrt(num_pairs).
    """
    moved = guarantee.neighboring.num_moved
    squared_sensitivity = (moved * guarantee.max_records_per_unit) ** 2 * max(1, num_pairs)
    squared_mu = Fraction(discrete_gaussian_mu(guarantee.epsilon, guarantee.delta)) ** 2
    variance = squared_sensitivity / (Fraction(_SCORES_SHARE) * squared_mu)
    grid = max(1, math.ceil(_GRID_DEVIATIONS / root_up(variance)))
    return SelectionBudget(
        attributes=root_down(Fraction(_ATTRIBUTES_SHARE) * squared_mu),
        pairs=root_down(Fraction(_PAIRS_SHARE) * squared_mu),
        score_grid=grid,
        score_scale=discrete_parameter(variance * grid**2),
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionPlan(MarginalsPlan):
    """The plan of selecting pairs by noisy scores, and measuring them once.

    Args: as of ``MarginalsPlan``, and
        pairs: that are scored, as ascending axes.
        budget: what each step spends.
    """

    strategy: ClassVar[str] = "selection"

    mechanism: str = "mwem"
    pairs: tuple[Support, ...]
    budget: SelectionBudget

    @property
    def most_measured(self) -> tuple[Measurement, ...]:
        """What would be measured if every pair were chosen: no choice has more noise in a pair."""
        every = _pair_measurements(self.workload, self.guarantee, self.budget, self.pairs)
        return (*self.measurements, *every)

    def _stated(self) -> dict[str, Any]:
        return {
            "calibration": "tight",
            "strategy": self.strategy,
            "num_candidates": len(self.pairs),
            "max_tree_cells": MAX_SELECTED_CELLS,
            "attributes_share": _ATTRIBUTES_SHARE,
            "scores_share": _SCORES_SHARE,
            "score_deviation": self.budget.score_deviation,
            "score_grid": self.budget.score_grid,
            "score_scale": self.budget.score_scale,
            "attributes_mu": self.budget.attributes,
            "pairs_mu": self.budget.pairs,
        }

    @on_one_thread
    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Runs the three steps, and returns the release that fits all measurements."""
        domain, workload = self.domain, self.workload
        pairs, budget = self.pairs, self.budget
        measurements = list(self.measurements)
        tables: list[NDArray[np.float64]] = []

        def measure(number: int, more: Sequence[Measurement]) -> None:
            # Not measurement by measurement: how many there are may follow from noise.
            if progress is not None:
                progress("measure", number, 2)
            tables.extend(each.draw(marginals, noise) for each in more)

        measure(1, measurements)
        independent = _independent_tables(self, measurements, tables, budget)
        answers = independent.answers(domain, pairs)
        if progress is not None:
            progress("score pairs", 1, 1)
        scores = noisy_scores(pairs, answers, marginals, domain, budget, noise)

        def planned(sets: Sequence[Support]) -> tuple[Measurement, ...]:
            return _pair_measurements(workload, self.guarantee, budget, sets)

        chosen, loose = choose_pairs(domain, scores, answers, planned)
        chosen_measurements = planned([*chosen, *loose])
        measure(2, chosen_measurements)
        joined = set().union(*chosen)
        return synthesise(
            self,
            [*measurements, *chosen_measurements],
            tables,
            noise,
            progress,
            joined=[*chosen, *(each for each in _singles(domain) if not joined.issuperset(each))],
            num_bounded_cells=sum(_num_cells(domain, each) for each in [*pairs, *_singles(domain)]),
            distances=PairDistances(
                budget.score_deviation,
                {names_of(domain, axes): score for axes, score in scores.items()},
                independent,
            ),
            fit={"num_joined_pairs": len(chosen), "num_other_pairs": len(loose)},
        )


def plan_selection(
    workload: Workload, guarantee: Guarantee, num_records: NumRecords
) -> SelectionPlan:
    """Returns the plan of selecting pairs by noisy scores, and measuring them once.

    Privacy: (epsilon, delta), delta > 0, for the relation and unit of the guarantee; see
    ``selection_budget``. The loss is mu-Gaussian.

    Raises:
        InputError: if delta is 0, nothing could be joined, or noise would not fit.
    """
    if guarantee.delta == 0:
        raise InputError("delta", 0.0, "must be > 0 to select pairs by noisy scores")
    check_selects(workload.domain)
    pairs = _pairs(workload)
    budget = selection_budget(guarantee, len(pairs))
    attributes = _attribute_measurements(workload, guarantee, num_records, budget.attributes)
    # More pairs mean more noise: whatever is chosen has less than all of them would have.
    most = _pair_measurements(workload, guarantee, budget, pairs)
    check_noise(guarantee, [budget.score_scale, *(each.scale for each in (*attributes, *most))])
    check_sums(num_records, (*attributes, *_pair_measurements(workload, guarantee, budget, [])))
    covered = set().union(*pairs)
    alone = [each for each in _singles(workload.domain) if not covered.issuperset(each)]
    return SelectionPlan(
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=tuple(names_of(workload.domain, axes) for axes in (*pairs, *alone)),
        measurements=attributes,
        loss=Loss.gaussian(discrete_gaussian_mu(guarantee.epsilon, guarantee.delta)),
        pairs=tuple(pairs),
        budget=budget,
    )


def noisy_scores(
    pairs: Sequence[Support],
    answers: Mapping[Support, NDArray[np.float64]],
    marginals: Marginals,
    domain: Domain,
    budget: SelectionBudget,
    noise: NoiseSource,
) -> dict[Support, float]:
    """Returns the noisy L1 distance of each pair from its hypothetical answer, in records."""
    if not pairs:
        return {}
    exact = [
        l1_score(marginals.marginal(names_of(domain, axes)), answers[axes], budget.score_grid)
        for axes in pairs
    ]
    noisy = noise.gaussian(np.array(exact, dtype=np.int64), budget.score_scale)
    return dict(zip(pairs, (noisy / budget.score_grid).tolist(), strict=True))


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


def _independent_tables(
    plan: MarginalsPlan,
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
    budget: SelectionBudget,
) -> IndependentTables:
    """Returns the tables that pairs would have if attributes were independent."""
    singles = _singles(plan.domain)
    basis = plan_basis(plan, singles)
    observed = Combination(plan.domain, basis, measurements, tables).estimate()
    total = plan.num_records
    if total == "noisy":
        total = noisy_total(basis, observed)
    log_weights = independent_log_weights(
        basis, denoised(plan.domain, basis, observed, total), total
    )
    potentials = log_potentials(basis, log_weights, singles)
    names = (names_of(plan.domain, axes) for axes in singles)
    return IndependentTables(
        float(total), budget.score_grid, tuple(zip(names, potentials, strict=True))
    )


def _attribute_measurements(
    workload: Workload, guarantee: Guarantee, num_records: NumRecords, mu: float
) -> tuple[Measurement, ...]:
    """Returns the measurements of the first step: every attribute, and a private total."""
    supports = _singles(workload.domain)
    if num_records == "noisy":
        supports.append(())
    return residual_measurements(workload, supports, guarantee, mu)


def _pair_measurements(
    workload: Workload, guarantee: Guarantee, budget: SelectionBudget, pairs: Sequence[Support]
) -> tuple[Measurement, ...]:
    """Returns the measurements of the last step: some pairs, and every attribute once more."""
    supports = [each for each in closure_of([*pairs, *_singles(workload.domain)]) if each]
    return residual_measurements(workload, supports, guarantee, budget.pairs)


def _pairs(workload: Workload) -> list[Support]:
    """Returns the pairs of attributes that some marginal of the workload holds.

    A pair whose table alone is larger than a tree may be is never measured, and one with an
    attribute of one code says no more than the other attribute does.
    """
    domain = workload.domain
    pairs = {
        pair
        for names in workload
        for pair in combinations(
            sorted(axis for axis in domain.axes(names) if domain.shape[axis] > 1), 2
        )
    }
    return [each for each in sorted(pairs) if _num_cells(domain, each) <= MAX_SELECTED_CELLS]


def _singles(domain: Domain) -> list[Support]:
    return [(axis,) for axis in range(domain.num_attributes)]


def _num_cells(domain: Domain, axes: Support) -> int:
    return math.prod(domain.shape[axis] for axis in axes)

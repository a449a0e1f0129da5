"""MWEM for workloads that do not fit one model: selects pairs, measures the pairs and fits.

Five steps share the budget. The first step measures every attribute alone. The second step gives
every pair of attributes in the workload a noisy score, the pair's distance from independence. The
third step measures the pairs that promise to lower the error most and fit one junction tree. The
last check adds a few pairs for which a cell of the fit is far off. If the workload has marginals of
three or more attributes, a check of triples (``scores``) follows. Each step is a Gaussian
mechanism, or at least as private, so the steps together cost as much as one Gaussian mechanism, for
any results of earlier steps.

With public records, one more noisy number decides whether they take the place of independent
attributes; then all pairs are measured, without any checks (``public_prior``).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.files import determined_pairs
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import NumRecords, Progress, check_noise
from beam_dp.mechanisms.marginals import plan as plans, public_prior
from beam_dp.mechanisms.marginals.measurements import Measurement, closure_of, residual_measurements
from beam_dp.mechanisms.marginals.pair_errors import ExpectedErrors, NoisyAttribute
from beam_dp.mechanisms.marginals.released_records import independent_start, names_of, plan_basis
from beam_dp.mechanisms.marginals.scores import (
    added_mu,
    candidates,
    check_budget,
    choose_left_out,
    choose_pairs,
    cost_of,
    deviations_of,
    fitted_tables,
    is_off,
    l1_score,
    num_choices,
    score_grid,
)
from beam_dp.mechanisms.marginals.synthesis import synthesise
from beam_dp.models.basis import Support, log_potentials, on_one_thread
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import down, root_down
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import IndependentTables, PairDistances
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.strategies import Selection
from beam_dp.secret.summaries.histogram import Marginals

# Shares of mu^2. The scores need a small share: each score is one number of sensitivity 1. The
# share for single attributes is not wasted: attributes are measured again with the pairs, and both
# measurements are combined.
_ATTRIBUTES_SHARE = 0.1
_SCORES_SHARE = 0.05
_PAIRS_SHARE = down(1 - Fraction(_ATTRIBUTES_SHARE) - Fraction(_SCORES_SHARE))


def selection_budget(
    budget: Budget,
    num_pairs: int,
    triple_cells: Sequence[int],
    has_prior: bool = False,
) -> Selection:
    """Splits the mu of a guarantee among the steps.

    Privacy: the squares of the mu of Gaussian mechanisms add up, even if results of earlier
    mechanisms decide a later one (Dong, Roth and Su, 2022, Corollary 2); ``discrete_gaussian_mu``
    allows for the discreteness of all mechanisms. One record changes every score by at most 1 (2
    under replace-one), times the records of a unit; the L2 sensitivity of all scores is this change
    times sqrt(num_pairs). The scores, and the noisy number of records, decide the number of choices
    in both checks, and so the budget left for the chosen pairs. For any scores, the total mu of the
    later steps is the same.

    ``triple_cells``: the numbers of cells of the triples that may be chosen.
    ``has_prior``: the distance of public records costs ``PRIOR_SHARE`` of the pairs' share.
    """
    unit, scores = budget.guarantee, budget.part(_SCORES_SHARE)
    moved = unit.neighboring.num_moved * unit.max_records_per_unit
    squared_sensitivity = moved**2 * max(1, num_pairs)
    grid = scores.fine_grid(squared_sensitivity)
    score_scale = scores.scale(squared_sensitivity, grid)
    pairs, triples = (check_budget(budget, size) for size in (2, 3))
    parameters = Selection(
        num_candidates=num_pairs,
        max_tree_cells=plans.MAX_SELECTED_CELLS,
        attributes_share=_ATTRIBUTES_SHARE,
        scores_share=_SCORES_SHARE,
        score_deviation=score_scale / grid,
        score_grid=grid,
        score_scale=score_scale,
        attributes_mu=budget.part(_ATTRIBUTES_SHARE).level,
        pairs_mu=budget.part(_PAIRS_SHARE).level,
        most_choices=pairs.most_choices,
        choice_share=pairs.choice_share,
        choice_scale=pairs.choice_scale,
        added_share=pairs.added_share,
        most_by_scores=pairs.most_by_scores,
    )
    if triple_cells:
        parameters = dataclasses.replace(
            parameters,
            num_triples=len(triple_cells),
            num_triple_cells=sum(triple_cells),
            most_triple_choices=triples.most_choices,
            triple_choice_share=triples.choice_share,
            triple_choice_scale=triples.choice_scale,
            triple_added_share=triples.added_share,
        )
    if not has_prior:
        return parameters
    share = Fraction(_PAIRS_SHARE) - Fraction(public_prior.PRIOR_SHARE)
    prior_grid, prior_scale = public_prior.prior_budget(budget, num_pairs)
    return dataclasses.replace(
        parameters,
        pairs_mu=budget.part(share).level,
        prior_share=public_prior.PRIOR_SHARE,
        prior_grid=prior_grid,
        prior_scale=prior_scale,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SelectionPlan(plans.MarginalsPlan):
    """The plan for scoring and measuring pairs, then checking the other pairs and triples."""

    starts_fits: ClassVar[bool] = False

    mechanism: str = "mwem"
    parameters: Selection
    squared_mu: Fraction  # of the guarantee
    pairs: tuple[Support, ...]  # with a score, as ascending axes
    triples: tuple[Support, ...]  # that the check of triples may choose, as ascending axes
    with_all: plans.MarginalsPlan | None = None  # that measures all tables, from public records

    @cached_property
    def most_measured(self) -> tuple[Measurement, ...]:
        """The measurements if every pair is chosen, each with the most noise that it can get."""
        # The more pairs are chosen, and the more choices the last check makes, the smaller is the
        # share of the budget for each pair.
        chosen = self._pair_measurements(self.pairs, self._numbers(self.pairs[:1]))
        added = {pair.names: pair for pair in map(self._added_measurement, self.pairs)}
        noisier = (
            max(pair, added.get(pair.names, pair), key=lambda one: one.variance) for pair in chosen
        )
        return (*self.measurements, *noisier, *map(self._added_measurement, self.triples))

    def _numbers(self, chosen: Sequence[Support], num_records: float = math.inf) -> list[int]:
        """Returns each check's number of choices if the scores chose these pairs."""
        # Without any chosen pair, the scores have said all that they say about the fit.
        left_out = len(self.pairs) - len(chosen) if chosen else 0
        candidates = left_out, len(self.triples)
        return [
            num_choices(check, number, num_records)
            for check, number in zip(self.parameters.checks, candidates, strict=False)
        ]

    def _pair_measurements(
        self, pairs: Sequence[Support], numbers: Sequence[int] = ()
    ) -> tuple[Measurement, ...]:
        """Returns the measurements of the chosen pairs and, again, of every attribute.

        ``numbers``: each check's number of choices; by default, there are no checks.
        """
        checks = zip(numbers, self.parameters.checks, strict=False)
        spent = sum(cost_of(check, number, self.squared_mu) for number, check in checks)
        mu = root_down(Fraction(self.parameters.pairs_mu) ** 2 - spent)
        supports = [axes for axes in closure_of([*pairs, *_singles(self.domain)]) if axes]
        return residual_measurements(
            self.workload, supports, self.guarantee, mu, favours_large=True
        )

    def _added_measurement(self, axes: Support) -> Measurement:
        """Returns the measurement of a pair or triple that a check adds."""
        # With separate measurements, the noise of a set does not depend on the other added sets;
        # ``NoiseBounds`` relies on this.
        check, workload = self.parameters.checks[len(axes) - 2], self.workload
        if check.size > 2:
            workload = Workload(self.domain, (names_of(self.domain, axes),))
        mu = added_mu(check, self.squared_mu)
        (measured,) = residual_measurements(workload, [axes], self.guarantee, mu)
        return measured

    def _num_bounded_cells(self, axes: Support) -> int:
        """Returns the number of cells of all triples, or of all pairs and attributes."""
        is_triple = sum(self.domain.shape[axis] > 1 for axis in axes) > 2
        sets = self.triples if is_triple else [*self.pairs, *_singles(self.domain)]
        return sum(_num_cells(self.domain, support) for support in sets)

    def starting_from(self, records: plans.StartingRecords) -> plans.MarginalsPlan:
        """See ``MarginalsPlan``. A part of the budget decides whether the records are used."""
        if self.with_all is not None:
            return self.with_all.starting_from(records)
        plan = plan_selection(self.workload, self.guarantee, self.num_records, has_prior=True)
        return dataclasses.replace(plan, start_from=records, mechanism=self.mechanism)

    @on_one_thread
    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Runs all steps, and returns the release that fits all measurements."""
        domain, workload, parameters = self.domain, self.workload, self.parameters
        pairs, checks = self.pairs, self.parameters.checks
        measurements: list[Measurement] = []
        tables: list[NDArray[np.float64]] = []

        def measure(number: int, more: Sequence[Measurement]) -> None:
            # Measurements are not reported one by one: their number may depend on noise.
            if progress is not None:
                progress("measure", number, 2 + len(checks))
            measurements.extend(more)
            tables.extend(table.draw(marginals, noise) for table in more)

        measure(1, self.measurements)
        independent, attributes = _independent_tables(self, measurements, tables)
        answers = independent.answers(domain, pairs)
        if progress is not None:
            progress("score pairs", 1, 1)
        scores = noisy_scores(pairs, answers, marginals, domain, parameters, noise)

        def planned(sets: Sequence[Support]) -> tuple[Measurement, ...]:
            return self._pair_measurements(sets, self._numbers(sets, independent.num_records))

        weights = pair_weights(workload)
        expected = ExpectedErrors.of(answers, scores, parameters.score_deviation**2, attributes)
        joined, loose = choose_pairs(domain, expected, planned, weights)
        numbers = self._numbers([*joined, *loose], independent.num_records)
        chosen = planned([*joined, *loose])
        prior, of_prior = None, {}
        if self.start_from is not None and parameters.prior_scale:
            prior = public_prior.PublicPrior(domain, self.start_from)
            public = prior.answers(workload, measurements, tables, independent.num_records, pairs)
            distance = public_prior.noisy_distance(public, marginals, domain, parameters, noise)
            all_pairs = public_prior.affordable(domain, pairs)
            instead = self._pair_measurements(all_pairs)
            with_records = public_prior.error_with(
                public, answers, distance, deviations_of(domain, instead), weights
            )
            usual = expected.total(joined, loose, deviations_of(domain, chosen), weights)
            if with_records < public_prior.CLEARLY_LESS * usual:
                joined, loose, chosen = [], all_pairs, instead
                numbers = [0 for _ in checks]
            else:
                prior = None
            of_prior = {"start_distance": distance, "start_was_used": prior is not None}
        measure(2, chosen)
        num_added = {}
        for step, (check, number) in enumerate(zip(checks, numbers, strict=True), 3):
            # A check measures sets in which a quick fit is far off, and joins what it can.
            left_out: Sequence[Support] = self.triples
            if check.size == 2:
                left_out = sorted({*pairs}.difference(joined, loose))
            fitted: Mapping[Support, NDArray[np.float64]] = {}
            if number:
                sets = _with_singles(domain, joined)
                fitted = fitted_tables(self, sets, measurements, tables, left_out)
            added = expected.worst(fitted, min(number, check.most_by_scores))
            others = {axes: fitted[axes] for axes in fitted if axes not in added}
            added += choose_left_out(
                others,
                marginals,
                domain,
                check,
                number - len(added),
                noise,
                self._added_measurement,
            )
            measure(step, [self._added_measurement(axes) for axes in added])
            # The last measurements are of these sets. Other sets are left to the records.
            for place, axes in enumerate(added, len(tables) - len(added)):
                if is_off(measurements[place], tables[place], fitted[axes]) and plans.tree_fits(
                    domain, [*joined, axes], plans.MAX_SELECTED_CELLS
                ):
                    joined.append(axes)
            num_added[check.added] = len(added)
        return synthesise(
            self,
            measurements,
            tables,
            noise,
            progress,
            joined=_with_singles(domain, joined),
            num_bounded_cells=self._num_bounded_cells,
            distances=PairDistances(
                parameters.score_deviation,
                {names_of(domain, axes): score for axes, score in scores.items()},
                independent,
            ),
            fit={**num_added, **of_prior},
            prior=prior,
        )


def plan_selection(
    workload: Workload, guarantee: Guarantee, num_records: NumRecords, has_prior: bool = False
) -> SelectionPlan:
    """Returns the plan that selects pairs by noisy scores and checks the remaining pairs.

    ``has_prior``: whether a part of the budget decides if public records are used.

    Privacy: (epsilon, delta), delta > 0, for the relation and unit of the guarantee; see
    ``selection_budget``. The loss is mu-Gaussian.
    """
    if guarantee.delta == 0:
        raise InputError("delta", 0.0, "must be > 0 to select pairs by noisy scores")
    plans.check_selects(workload.domain)
    pairs = _pairs(workload)
    triples = candidates(workload)
    budget = Budget.of(guarantee, "gaussian")
    cells = [_num_cells(workload.domain, axes) for axes in triples]
    parameters = selection_budget(budget, len(pairs), cells, has_prior)
    attributes = _attribute_measurements(workload, guarantee, num_records, parameters.attributes_mu)
    counted = [*_with_singles(workload.domain, pairs), *triples]
    plan = SelectionPlan(
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=tuple(names_of(workload.domain, axes) for axes in counted),
        measurements=attributes,
        loss=budget.loss,
        parameters=parameters,
        squared_mu=budget.amount,
        pairs=tuple(pairs),
        triples=tuple(triples),
    )
    scales = [parameters.score_scale, parameters.prior_scale]
    for check in parameters.checks:
        scales.append(check.choice_scale * score_grid(check.choice_scale))
    check_noise(guarantee, [*scales, *(table.scale for table in plan.most_measured)])
    # The grid is finest if a single measurement gets the whole budget.
    plans.check_sums(num_records, (*attributes, *plan._pair_measurements([])))
    return plan


def noisy_scores(
    pairs: Sequence[Support],
    answers: Mapping[Support, NDArray[np.float64]],
    marginals: Marginals,
    domain: Domain,
    parameters: Selection,
    noise: NoiseSource,
) -> dict[Support, float]:
    """Returns, per pair, the noisy L1 distance between its table and a hypothesis, in records."""
    if not pairs:
        return {}
    exact = [
        l1_score(marginals.marginal(names_of(domain, axes)), answers[axes], parameters.score_grid)
        for axes in pairs
    ]
    noisy = noise.gaussian(np.array(exact, dtype=np.int64), parameters.score_scale)
    return dict(zip(pairs, (noisy / parameters.score_grid).tolist(), strict=True))


def _independent_tables(
    plan: SelectionPlan,
    measurements: Sequence[Measurement],
    tables: Sequence[NDArray[np.float64]],
) -> tuple[IndependentTables, list[NoisyAttribute]]:
    """Returns the tables of pairs under independent attributes, and the attributes' errors."""
    singles = _singles(plan.domain)
    basis = plan_basis(plan, singles)
    observed, total, log_weights = independent_start(plan, basis, measurements, tables)
    noise, attributes = deviations_of(plan.domain, measurements), []
    for axes, shares in zip(singles, basis.marginals(log_weights, singles), strict=True):
        variances = observed.variances[basis.slices[axes]] * basis.cells_summed(axes)
        deviation = math.sqrt(variances.sum() / shares.size)
        attributes.append(NoisyAttribute(total * shares, deviation, noise.get(axes, 0.0)))
    potentials = log_potentials(basis, log_weights, singles)
    names = (names_of(plan.domain, axes) for axes in singles)
    independent = IndependentTables(
        float(total), plan.parameters.score_grid, tuple(zip(names, potentials, strict=True))
    )
    return independent, attributes


def _attribute_measurements(
    workload: Workload, guarantee: Guarantee, num_records: NumRecords, mu: float
) -> tuple[Measurement, ...]:
    """Returns the measurements of the first step: all attributes and, if private, the total."""
    supports = _singles(workload.domain)
    if num_records == "noisy":
        supports.append(())
    return residual_measurements(workload, supports, guarantee, mu)


def _pairs(workload: Workload) -> list[Support]:
    """Returns the pairs of attributes in the marginals of the workload.

    Leaves out pairs with a table larger than the limit for a tree, and pairs that contain no more
    information than one of their attributes alone: the other has one code, or is determined by it.
    """
    domain = workload.domain
    pairs = {pair for pair in pair_weights(workload) if min(domain.shape[a] for a in pair) > 1}
    pairs = {pair for pair in pairs if _num_cells(domain, pair) <= plans.MAX_SELECTED_CELLS}
    combinations = (rule for rule in domain.impossible if rule.axes in pairs)
    return sorted(pairs.difference(determined_pairs(domain.shape, combinations)))


def pair_weights(workload: Workload) -> dict[Support, float]:
    """Returns, per pair of attributes, the weight of all marginals that contain the pair."""
    weights: dict[Support, float] = {}
    for names, weight in zip(workload.marginals, workload.weights, strict=True):
        for pair in combinations(workload.domain.axes(names), 2):
            weights[pair] = weights.get(pair, 0.0) + weight
    return weights


def _singles(domain: Domain) -> list[Support]:
    return [(axis,) for axis in range(domain.num_attributes)]


def _with_singles(domain: Domain, sets: Sequence[Support]) -> list[Support]:
    """Returns some attribute sets, and every attribute outside these sets."""
    covered = set().union(*sets)
    return [*sets, *(axes for axes in _singles(domain) if not covered.issuperset(axes))]


def _num_cells(domain: Domain, axes: Support) -> int:
    return math.prod(domain.shape[axis] for axis in axes)

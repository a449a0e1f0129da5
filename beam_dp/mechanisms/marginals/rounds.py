"""MWEM in rounds: each round selects a marginal, measures all of its cells and fits again.

The budget is cut into equal units. A fixed schedule spends one unit per round. An annealed schedule
starts with one unit per round, and halves the noise whenever a measurement moves its table by less
than the noise; the last round takes the rest (McKenna, Mullins, Sheldon and Miklau, 2022, AIM).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain, Names
from beam_dp.mechanisms.checks import NumRecords, Progress, check_noise
from beam_dp.mechanisms.marginals import plan as plans
from beam_dp.mechanisms.marginals.measurements import (
    TOTAL_SHARE,
    Measurement,
    closure_of,
)
from beam_dp.mechanisms.marginals.released_records import noisy_total, plan_basis
from beam_dp.mechanisms.marginals.scores import l1_score, score_grid
from beam_dp.mechanisms.marginals.synthesis import plan_candidates, synthesise
from beam_dp.models import basis as bases
from beam_dp.models.basis import Support, on_one_thread
from beam_dp.models.maximum_entropy import refit
from beam_dp.privacy.accounting import discrete_parameter, range_mu, squared_deviation
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import MEAN_ABSOLUTE
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import root_up, up
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import MAX_SCORE, Combination
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.strategies import Rounds
from beam_dp.secret.summaries.histogram import Marginals

# Selection gets little of the budget: a nearly worst marginal is nearly as good a choice.
_SELECTION_SHARE = 0.1
# An annealed schedule could afford this many rounds per attribute.
_UNITS_PER_ATTRIBUTE = 16
_WEIGHT_GRID = 2**8
# The fit between rounds can be more strongly regularised than the last fit.
_ROUND_PENALTY = 0.1
_ROUND_TOLERANCE = 1e-5


def scales_of_round(unit: Rounds, units: int) -> Rounds:
    """Returns the scales of a round that spends several units.

    A unit is a share of epsilon or of mu^2. Scales are inverse to epsilon; their squares (less 4,
    on a grid) are inverse to mu^2. Epsilons and mu^2 add up, even for adaptive choices.
    """
    if units == 1:
        return unit
    measured = Fraction(unit.measurement_scale)
    if unit.distribution == "discrete_laplace":
        selection_scale = up(Fraction(unit.selection_scale) / units)
        measurement_scale = up(measured / units)
    else:
        selection_scale = root_up(Fraction(unit.selection_scale) ** 2 / units)
        measurement_scale = discrete_parameter(squared_deviation(measured) / units)
    return dataclasses.replace(
        unit, selection_scale=selection_scale, measurement_scale=measurement_scale
    )


def measurement_of(unit: Rounds, names: Names, scale: float) -> Measurement:
    """Returns the measurement of a table or of the total with the given scale."""
    return Measurement(names, "table", unit.distribution, scale, unit.grid)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundsPlan(plans.MarginalsPlan):
    """The plan for a fixed number of rounds, or for an annealed schedule."""

    mechanism: str = "mwem"
    parameters: Rounds

    @property
    def measurements_of_total(self) -> Sequence[Measurement]:
        """See ``MarginalsPlan``."""
        unit = self.parameters
        return [measurement_of(unit, (), unit.total_scale)] if unit.total_scale else []

    @on_one_thread
    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Runs the rounds, and returns the release that fits all their measurements."""
        domain, workload = self.domain, self.workload
        unit = self.parameters
        is_annealed, units_left = unit.num_rounds == "annealed", unit.num_units
        joins_all = plans.joins_fit(workload)
        weights = dict(zip(workload.marginals, workload.weights, strict=True))
        candidates = weights if joins_all else inner_candidates(workload)
        joined: list[Support] = []
        over_candidates = joins_all and not plans.holds_all(workload)
        basis: bases.Basis = plan_basis(self, None if joins_all and not over_candidates else joined)
        layout: bases.Coefficients = basis
        if over_candidates:
            layout = bases.MarginalCoefficients(
                domain.shape, closure_of(map(domain.axes, workload.maximal()))
            )
        combination = Combination(domain, layout)
        measurements: list[Measurement] = []
        tables: list[NDArray[np.float64]] = []

        def measure(names: Names, scale: float) -> None:
            measurement = measurement_of(unit, names, scale)
            measurements.append(measurement)
            tables.append(measurement.draw(marginals, noise))
            combination.add(measurement, tables[-1])

        total = self.num_records
        if total == "noisy":
            measure((), unit.total_scale)
            total = noisy_total(layout, combination.estimate())
        log_weights, units = np.zeros(layout.num_coefficients), 1
        if is_annealed and progress is not None:
            # Rounds are not reported: their number depends on a draw that may never be released.
            progress("rounds", 1, 1)
        while units_left:
            if units_left < 2 * units and is_annealed:
                units = units_left
            units_left -= units
            if over_candidates and len(measurements).bit_count() <= 1:
                # Candidates from a distribution near the hypothesis represent it better.
                basis = plan_candidates(self, layout, combination.estimate(), total, noise)
            if not is_annealed and progress is not None:
                progress("round", unit.num_units - units_left, unit.num_units)
            budget = scales_of_round(unit, units)
            allowed = candidates if joins_all else _that_fit(domain, joined, candidates)
            expected = basis.marginals(log_weights, [domain.axes(names) for names in allowed])
            answers = [total * answer for answer in expected]
            selected = _select(allowed, answers, marginals, budget, noise)
            names = list(allowed)[selected]
            axes = domain.axes(names)
            measure(names, budget.measurement_scale)
            if not joins_all and axes not in joined:
                joined.append(axes)
                narrower, layout = layout, (basis := plan_basis(self, joined))
                log_weights = bases.carry_over(narrower.slices, log_weights, basis)
                combination = Combination(domain, basis, measurements, tables)
            observed = combination.estimate()
            log_weights = refit(
                basis, observed, total, log_weights, _ROUND_PENALTY, _ROUND_TOLERANCE
            )
            if is_annealed:
                (answer,) = basis.marginals(log_weights, [axes])
                units *= _growth(total * answer - answers[selected], budget)
        singles = [(axis,) for axis in range(domain.num_attributes)]
        return synthesise(
            self,
            measurements,
            tables,
            noise,
            progress,
            joined=None if joins_all else [*joined, *singles],
            num_bounded_cells=None if joins_all else lambda _: workload.num_cells(),
        )


def round_budget(
    guarantee: Guarantee,
    num_rounds: int | Literal["annealed"],
    num_units: int,
    total_is_public: bool,
) -> Rounds:
    """Splits a guarantee into units of budget.

    Privacy: the score of a marginal, the L1 distance between its exact and hypothetical tables, has
    sensitivity 1 (2 under replace-one). The table has the same sensitivity in L1, and 1 or sqrt(2)
    in L2. A unit with k records multiplies all of these by k. The scores are not monotone, so the
    scale of a selection is 2 x sensitivity / epsilon. With delta = 0, the epsilons of all steps add
    up to the guarantee's epsilon, and permute-and-flip selects. Otherwise squares of mu add up: for
    the range of the exponential mechanism (``range_mu``) and for measurements on a fine grid
    (``discrete_gaussian_mu``), fewer than 2^40 numbers together.
    """
    moved, k = guarantee.neighboring.num_moved, guarantee.max_records_per_unit
    budget = Budget.of(guarantee)
    total = budget.part(0 if total_is_public else TOTAL_SHARE)
    unit = (budget - total).part(Fraction(1, num_units))
    selection, power = unit.part(_SELECTION_SHARE), 1
    if budget.kind == "gaussian":
        # ``_SELECTION_SHARE`` is a share of rho. The rho of a selection is epsilon^2 / 8; its
        # mu^2 / 2 is pi / 2 times as large.
        selection, power = selection.part(4 * range_mu(1) ** 2), 2
    measurement, norm = unit - selection, moved * k**power
    # The grid is fine enough also for the noise of a round that spends all units.
    grid = measurement.part(num_units).fine_grid(norm)
    return Rounds(
        num_rounds=num_rounds,
        num_units=num_units,
        selection="permute_and_flip" if budget.kind == "pure" else "exponential_mechanism",
        selection_scale=selection.selection_scale(moved * k),
        distribution="discrete_laplace" if budget.kind == "pure" else "discrete_gaussian",
        grid=grid,
        measurement_scale=measurement.scale(norm, grid),
        total_scale=total.scale((moved * k) ** power, grid) if total.amount else 0.0,
    )


def plan_rounds(
    workload: Workload,
    guarantee: Guarantee,
    num_records: NumRecords,
    num_rounds: int | Literal["annealed"],
) -> RoundsPlan:
    """Returns the plan for a fixed number of rounds, or for an annealed schedule."""
    if not plans.joins_fit(workload):
        plans.check_selects(workload.domain)
    num_units = num_rounds
    if num_units == "annealed":
        num_units = _UNITS_PER_ATTRIBUTE * workload.domain.num_attributes
    budget = round_budget(guarantee, num_rounds, num_units, num_records != "noisy")
    plans.check_sums(num_records, [measurement_of(budget, (), budget.measurement_scale)])
    selection_scale = budget.selection_scale * score_grid(budget.selection_scale) * _WEIGHT_GRID
    check_noise(guarantee, [selection_scale, budget.measurement_scale, budget.total_scale])
    return RoundsPlan(
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=workload.maximal(),
        measurements=(),
        loss=Budget.of(guarantee).loss,
        parameters=budget,
    )


def inner_candidates(workload: Workload) -> dict[Names, float]:
    """Returns all attribute sets inside the workload's marginals, with weights.

    A hypothesis over a wide domain can join only some of the marginals, so a round may usefully
    measure a smaller marginal. A set's weight is the sum over marginals of the marginal's weight
    times the number of attributes shared with it (McKenna, Mullins, Sheldon and Miklau, 2022).
    """
    domain = workload.domain
    sets = {
        names: set(names)
        for names in workload.closure()
        if names and plans.tree_fits(domain, [domain.axes(names)], plans.MAX_SELECTED_CELLS)
    }
    return {
        names: sum(
            weight * len(attributes.intersection(marginal))
            for marginal, weight in zip(workload.marginals, workload.weights, strict=True)
        )
        for names, attributes in sets.items()
    }


def _that_fit(
    domain: Domain, joined: Sequence[Support], candidates: Mapping[Names, float]
) -> dict[Names, float]:
    """Returns the candidates that may join the tree, which depend only on earlier noisy choices."""
    return {
        names: weight
        for names, weight in candidates.items()
        if plans.tree_fits(domain, [*joined, domain.axes(names)], plans.MAX_SELECTED_CELLS)
    }


def _growth(moved: NDArray[np.float64], budget: Rounds) -> int:
    """Returns the factor by which an annealed schedule multiplies the units of a round."""
    # The factor is above 1 if a measurement moved its table by less than the expected noise.
    if np.abs(moved).sum() <= _expected_noise(moved.size, budget):
        return 2 if budget.distribution == "discrete_laplace" else 4
    return 1


def _expected_noise(num_cells: int, budget: Rounds) -> float:
    """Returns the approximate expected L1 norm of a measured table's noise, in records."""
    return num_cells * budget.measurement_scale / budget.grid * MEAN_ABSOLUTE


def _select(
    candidates: Mapping[Names, float],
    answers: Sequence[NDArray[np.float64]],
    marginals: Marginals,
    budget: Rounds,
    noise: NoiseSource,
) -> int:
    """Returns the index of a marginal that the hypothesis answers badly."""
    # The score is the L1 error less the error after a measurement (public), times the weight.
    heaviest = max(candidates.values())
    grid = score_grid(budget.selection_scale)
    scores = []
    for (names, weight), answer in zip(candidates.items(), answers, strict=True):
        error = l1_score(marginals.marginal(names), answer, grid)
        remaining = round(_expected_noise(answer.size, budget) * grid)
        score = (error - remaining) * max(1, round(weight / heaviest * _WEIGHT_GRID))
        scores.append(min(max(score, -MAX_SCORE), MAX_SCORE))
    scale = budget.selection_scale * grid * _WEIGHT_GRID
    draw = noise.permute_and_flip if budget.selection == "permute_and_flip" else noise.select
    return draw(np.array(scores, dtype=np.int64), scale)

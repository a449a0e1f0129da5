"""MWEM in rounds: select a marginal, measure it whole, refit everything measured so far."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from beam_dp.hypotheses.maximum_entropy import dense_weights, refit
from beam_dp.hypotheses.residual_basis import ResidualBasis
from beam_dp.mechanisms.measurements import Distribution, Measurement, Names, combine
from beam_dp.mechanisms.plan import NumRecords, Plan, Progress, check_noise
from beam_dp.mechanisms.synthesis import marginal_table, noisy_total, synthesise, workload_basis
from beam_dp.noise import NoiseSource
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.queries.workload import Workload
from beam_dp.releases import SyntheticDatabase
from beam_dp.summaries import Marginals

# Selection is cheap: a marginal that is nearly the worst is nearly as good.
_SELECTION_SHARE = 0.1
_TOTAL_SHARE = 0.02  # of the budget, for a noisy number of records
# Scores are compared on a grid of which this many units are the noise of the selection, or nearly;
# hypothetical answers are rounded to it before subtraction.
_SCORE_UNITS = 2**20
_MAX_SCORE_GRID = 2**16
_WEIGHT_GRID = 2**8
# Scores saturate here: a clipped score has the same sensitivity, one that wraps has none.
_MAX_SCORE = 2**61
# Between rounds the fit need not be regularised as finely as at the end.
_ROUND_PENALTY = 0.1


@dataclasses.dataclass(frozen=True)
class RoundBudget:
    """What each round may use; all rounds together keep the guarantee.

    Args:
        selection_scale: of the exponential mechanism's noise, in records.
        distribution: of the measurements.
        measurement_scale: of their noise, in records.
        total_scale: of the noise of the number of records; 0 where that is public.
    """

    selection_scale: float
    distribution: Distribution
    measurement_scale: float
    total_scale: float


def round_budget(guarantee: Guarantee, num_rounds: int, total_is_public: bool) -> RoundBudget:
    """Splits a guarantee over rounds.

    Privacy: the score of a marginal, the L1 distance of its exact and its hypothetical table, has
    sensitivity 1 (2 under replace-one), and so has the table in L1; in L2 the table has 1 or
    sqrt(2); k records of a unit multiply all of these. The scores are not monotone, so the
    exponential mechanism has scale 2 x sensitivity / epsilon. With delta = 0 the epsilons of all
    steps add up to the guarantee's; else their rhos add up to what implies it, epsilon^2 / 8 for a
    selection (bounded range) and (sensitivity / scale)^2 / 2 for a measurement.
    """
    moved = 1 if guarantee.neighboring is Neighboring.ADD_OR_REMOVE_ONE else 2
    l1_sensitivity = float(moved * guarantee.max_records_per_unit)
    l2_sensitivity = math.sqrt(moved) * guarantee.max_records_per_unit
    pure = guarantee.delta == 0
    budget = guarantee.epsilon if pure else zcdp_rho(guarantee.epsilon, guarantee.delta)
    budget *= 1 - 1e-12  # the shares are added in floating point
    total_budget = 0.0 if total_is_public else _TOTAL_SHARE * budget
    selection = _SELECTION_SHARE * (budget - total_budget) / num_rounds
    measurement = (1 - _SELECTION_SHARE) * (budget - total_budget) / num_rounds
    if pure:
        return RoundBudget(
            selection_scale=2 * l1_sensitivity / selection,
            distribution="discrete_laplace",
            measurement_scale=l1_sensitivity / measurement,
            total_scale=0.0 if total_is_public else l1_sensitivity / total_budget,
        )
    return RoundBudget(
        selection_scale=2 * l1_sensitivity / math.sqrt(8 * selection),
        distribution="discrete_gaussian",
        measurement_scale=l2_sensitivity / math.sqrt(2 * measurement),
        total_scale=0.0 if total_is_public else l1_sensitivity / math.sqrt(2 * total_budget),
    )


def score_grid(selection_scale: float) -> int:
    """Returns the number of units of a score that make one record, a power of two.

    Args:
        selection_scale: of the noise of the selection, in records.
    """
    units = _SCORE_UNITS / selection_scale
    return 1 << max(0, min(math.frexp(units)[1] - 1, _MAX_SCORE_GRID.bit_length() - 1))


def plan_rounds(
    workload: Workload, guarantee: Guarantee, num_records: NumRecords, num_rounds: int
) -> Plan:
    """Returns the plan of a fixed number of rounds with equal budgets."""
    budget = round_budget(guarantee, num_rounds, num_records != "noisy")
    selection_scale = budget.selection_scale * score_grid(budget.selection_scale) * _WEIGHT_GRID
    check_noise(guarantee, [selection_scale, budget.measurement_scale, budget.total_scale])
    return Plan(
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=workload.maximal(),
        measurements=(),
        public={
            "calibration": "tight",
            "strategy": "rounds",
            "num_rounds": num_rounds,
            **dataclasses.asdict(budget),
        },
    )


def release_rounds(
    name: str,
    plan: Plan,
    marginals: Marginals,
    noise: NoiseSource,
    progress: Progress | None,
) -> SyntheticDatabase:
    """Runs the rounds, and returns the release that fits all their measurements."""
    domain, workload = plan.domain, plan.workload
    num_rounds = int(plan.public["num_rounds"])
    budget = round_budget(plan.guarantee, num_rounds, plan.total_is_public)
    basis = workload_basis(plan)
    measurements: list[Measurement] = []
    tables: list[NDArray[np.float64]] = []

    def measure(names: Names, scale: float) -> None:
        measurement = Measurement(names, "table", budget.distribution, scale)
        measurements.append(measurement)
        tables.append(measurement.draw(marginals, noise))

    total = plan.num_records
    if total == "noisy":
        measure((), budget.total_scale)
        total = noisy_total(basis, combine(domain, basis, measurements, tables))
    log_weights = np.zeros(basis.num_coefficients)
    for number in range(num_rounds):
        if progress is not None:
            progress("round", number + 1, num_rounds)
        coefficients = basis.analyse(dense_weights(basis, log_weights)) * total
        selected = _select(plan, basis, coefficients, marginals, budget, noise)
        measure(workload.marginals[selected], budget.measurement_scale)
        observed = combine(domain, basis, measurements, tables)
        log_weights = refit(basis, observed, total, log_weights, _ROUND_PENALTY)
    return synthesise(name, plan, measurements, tables, noise, progress)


def _select(
    plan: Plan,
    basis: ResidualBasis,
    coefficients: NDArray[np.float64],
    marginals: Marginals,
    budget: RoundBudget,
    noise: NoiseSource,
) -> int:
    """Returns the number of a marginal that the hypothesis answers badly.

    The score is the L1 error less what measuring would leave (a public number), by weight.
    """
    workload = plan.workload
    heaviest = max(workload.weights)
    grid = score_grid(budget.selection_scale)
    scores = []
    for names, weight in zip(workload.marginals, workload.weights, strict=True):
        exact = marginals.marginal(names)
        answer = marginal_table(plan.domain, basis, coefficients, names)
        # Clipped cell by cell, so that neither a difference nor their sum can wrap.
        largest = _MAX_SCORE // exact.size
        on_grid = np.rint(np.clip(answer * grid, -largest, largest)).astype(np.int64)
        difference = np.minimum(exact, largest // grid) * grid - on_grid
        error = int(np.minimum(np.abs(difference), largest).sum())
        remaining = round(exact.size * budget.measurement_scale * math.sqrt(2 / math.pi) * grid)
        score = (error - remaining) * max(1, round(weight / heaviest * _WEIGHT_GRID))
        scores.append(min(max(score, -_MAX_SCORE), _MAX_SCORE))
    scale = budget.selection_scale * grid * _WEIGHT_GRID
    return noise.select(np.array(scores, dtype=np.int64), scale)

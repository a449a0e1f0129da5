"""MWEM in rounds: select a marginal, measure it whole, refit everything measured so far.

The budget is cut into equal units. A fixed schedule spends one unit a round. An annealed one starts
with as little, and halves the noise of its rounds whenever a measurement told less than its noise;
the last round takes what is left (McKenna, Mullins, Sheldon and Miklau, 2022, AIM).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain import Domain
from beam_dp.hypotheses.basis import carry_over
from beam_dp.hypotheses.maximum_entropy import refit
from beam_dp.hypotheses.residual_basis import Support
from beam_dp.hypotheses.threads import on_one_thread
from beam_dp.mechanisms.contract import NumRecords, Progress, check_noise
from beam_dp.mechanisms.marginals.measurements import Measurement, Names
from beam_dp.mechanisms.marginals.plan import (
    MAX_SELECTED_CELLS,
    MarginalsPlan,
    check_selects,
    joins_fit,
    tree_fits,
)
from beam_dp.mechanisms.marginals.scores import MAX_SCORE, l1_score
from beam_dp.mechanisms.marginals.strategies import TOTAL_SHARE
from beam_dp.mechanisms.marginals.synthesis import noisy_total, plan_basis, synthesise
from beam_dp.noise.bound import Distribution
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import raised
from beam_dp.queries.workload import Workload
from beam_dp.releases import SyntheticDatabase
from beam_dp.releases.unbiased_tables import Combination
from beam_dp.summaries import Marginals

Selection = Literal["permute_and_flip", "exponential_mechanism"]
# Selection is cheap: a marginal that is nearly the worst is nearly as good.
_SELECTION_SHARE = 0.1
# An annealed schedule could afford this many rounds an attribute.
_UNITS_PER_ATTRIBUTE = 16
# Scores are compared on a grid of which this many units are the noise of the selection, or nearly;
# hypothetical answers are rounded to it before subtraction.
_SCORE_UNITS = 2**20
_MAX_SCORE_GRID = 2**16
_WEIGHT_GRID = 2**8
# Between rounds the fit need not be regularised as finely as at the end.
_ROUND_PENALTY = 0.1
_ROUND_TOLERANCE = 1e-5


@dataclasses.dataclass(frozen=True)
class RoundBudget:
    """The scales of a round of one unit; all units together keep the guarantee.

    Args:
        selection: the mechanism that selects. Permute-and-flip never does worse than the
            exponential mechanism for the same epsilon, which costs less where rhos add up.
        selection_scale: of its coins, or of its noise, in records.
        distribution: of the measurements.
        measurement_scale: of their noise, in records.
        total_scale: of the noise of the number of records; 0 where that is public.
    """

    selection: Selection
    selection_scale: float
    distribution: Distribution
    measurement_scale: float
    total_scale: float

    def of_round(self, units: int) -> RoundBudget:
        """Returns the scales of a round that spends several units.

        A unit is a share of epsilon, inverse to the scales, or one of rho, inverse to their
        squares: both add up over rounds whose units are chosen adaptively.
        """
        if units == 1:
            return self
        factor = units if self.distribution == "discrete_laplace" else math.sqrt(units)
        return dataclasses.replace(
            self,
            selection_scale=raised(self.selection_scale / factor),
            measurement_scale=raised(self.measurement_scale / factor),
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class RoundsPlan(MarginalsPlan):
    """The plan of a fixed number of rounds, or of an annealed schedule.

    Args: as of ``MarginalsPlan``, and
        num_rounds: a number, or ``"annealed"``.
        num_units: of budget, all rounds together.
        unit: the scales of a round of one unit.
    """

    strategy: ClassVar[str] = "rounds"

    mechanism: str = "mwem"
    num_rounds: int | Literal["annealed"]
    num_units: int
    unit: RoundBudget

    def _stated(self) -> dict[str, Any]:
        return {
            "calibration": "tight",
            "strategy": self.strategy,
            "num_rounds": self.num_rounds,
            "num_units": self.num_units,
            **dataclasses.asdict(self.unit),
        }

    @on_one_thread
    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Runs the rounds, and returns the release that fits all their measurements."""
        domain, workload = self.domain, self.workload
        is_annealed = self.num_rounds == "annealed"
        units_left, unit = self.num_units, self.unit
        joins_all = joins_fit(workload)
        weights = dict(zip(workload.marginals, workload.weights, strict=True))
        candidates = weights if joins_all else inner_candidates(workload)
        joined: list[Support] = []
        basis = plan_basis(self, None if joins_all else joined)
        combination = Combination(domain, basis)
        measurements: list[Measurement] = []
        tables: list[NDArray[np.float64]] = []

        def measure(names: Names, scale: float) -> None:
            measurement = Measurement(names, "table", unit.distribution, scale)
            measurements.append(measurement)
            tables.append(measurement.draw(marginals, noise))
            combination.add(measurement, tables[-1])

        total = self.num_records
        if total == "noisy":
            measure((), unit.total_scale)
            total = noisy_total(basis, combination.estimate())
        log_weights, units = np.zeros(basis.num_coefficients), 1
        if is_annealed and progress is not None:
            # Not round by round: how many there are depends on a draw that may never be released.
            progress("rounds", 1, 1)
        while units_left:
            if units_left < 2 * units and is_annealed:
                units = units_left
            units_left -= units
            if not is_annealed and progress is not None:
                progress("round", self.num_units - units_left, self.num_units)
            budget = unit.of_round(units)
            allowed = candidates if joins_all else _that_fit(domain, joined, candidates)
            expected = basis.marginals(log_weights, [domain.axes(names) for names in allowed])
            answers = [total * answer for answer in expected]
            selected = _select(allowed, answers, marginals, budget, noise)
            names = list(allowed)[selected]
            axes = domain.axes(names)
            measure(names, budget.measurement_scale)
            if not joins_all and axes not in joined:
                joined.append(axes)
                narrower, basis = basis, plan_basis(self, joined)
                log_weights = carry_over(narrower.slices, log_weights, basis)
                combination = Combination(domain, basis, measurements, tables)
            observed, how = combination.estimate(), (_ROUND_PENALTY, _ROUND_TOLERANCE)
            log_weights = refit(basis, observed, total, log_weights, *how)
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
            num_bounded_cells=None if joins_all else workload.num_cells(),
        )


def round_budget(guarantee: Guarantee, num_units: int, total_is_public: bool) -> RoundBudget:
    """Splits a guarantee over units of budget.

    Privacy: the score of a marginal, the L1 distance of its exact and its hypothetical table, has
    sensitivity 1 (2 under replace-one), and so has the table in L1; in L2 the table has 1 or
    sqrt(2); k records of a unit multiply all of these. The scores are not monotone, so the
    scale of a selection is 2 x sensitivity / epsilon. With delta = 0 the epsilons of all steps add
    up to the guarantee's, and permute-and-flip selects; else their rhos add up to what implies it,
    epsilon^2 / 8 for the exponential mechanism (bounded range) and (sensitivity / scale)^2 / 2 for
    a measurement.
    """
    moved = guarantee.neighboring.num_moved
    l1_sensitivity = float(moved * guarantee.max_records_per_unit)
    l2_sensitivity = math.sqrt(moved) * guarantee.max_records_per_unit
    pure = guarantee.delta == 0
    budget = guarantee.epsilon if pure else zcdp_rho(guarantee.epsilon, guarantee.delta)
    total_budget = 0.0 if total_is_public else TOTAL_SHARE * budget
    selection = _SELECTION_SHARE * (budget - total_budget) / num_units
    measurement = (1 - _SELECTION_SHARE) * (budget - total_budget) / num_units

    def scale(sensitivity: float, share: float) -> float:
        return raised(sensitivity / (share if pure else math.sqrt(2 * share)))

    return RoundBudget(
        selection="permute_and_flip" if pure else "exponential_mechanism",
        selection_scale=raised(
            2 * l1_sensitivity / (selection if pure else math.sqrt(8 * selection))
        ),
        distribution="discrete_laplace" if pure else "discrete_gaussian",
        measurement_scale=scale(l1_sensitivity if pure else l2_sensitivity, measurement),
        total_scale=0.0 if total_is_public else scale(l1_sensitivity, total_budget),
    )


def adaptive_loss(guarantee: Guarantee) -> Loss:
    """Returns the loss of steps whose epsilons, or rhos where delta > 0, add up to the guarantee's.

    The exponential mechanism has a rho, but no mu is proved for it here.
    """
    if guarantee.delta == 0:
        return Loss.pure(guarantee.epsilon)
    return Loss.zcdp(zcdp_rho(guarantee.epsilon, guarantee.delta))


def score_grid(selection_scale: float) -> int:
    """Returns the number of units of a score that make one record, a power of two.

    Args:
        selection_scale: of the noise of the selection, in records.
    """
    units = _SCORE_UNITS / selection_scale
    return 1 << max(0, min(math.frexp(units)[1] - 1, _MAX_SCORE_GRID.bit_length() - 1))


def plan_rounds(
    workload: Workload,
    guarantee: Guarantee,
    num_records: NumRecords,
    num_rounds: int | Literal["annealed"],
) -> RoundsPlan:
    """Returns the plan of a fixed number of rounds, or of an annealed schedule.

    Raises:
        InputError: if nothing could be joined, or noise would not fit.
    """
    if not joins_fit(workload):
        check_selects(workload.domain)
    num_units = num_rounds
    if num_units == "annealed":
        num_units = _UNITS_PER_ATTRIBUTE * workload.domain.num_attributes
    budget = round_budget(guarantee, num_units, num_records != "noisy")
    selection_scale = budget.selection_scale * score_grid(budget.selection_scale) * _WEIGHT_GRID
    check_noise(guarantee, [selection_scale, budget.measurement_scale, budget.total_scale])
    return RoundsPlan(
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=workload.maximal(),
        measurements=(),
        loss=adaptive_loss(guarantee),
        num_rounds=num_rounds,
        num_units=num_units,
        unit=budget,
    )


def inner_candidates(workload: Workload) -> dict[Names, float]:
    """Returns everything inside the marginals of a workload, weighted by what it tells of them.

    Only some marginals of a wide domain can be joined, so that smaller ones are worth a round.

    Returns:
        For each set of attributes the sum over marginals of their weight times the number of
        attributes that they share with it (McKenna, Mullins, Sheldon and Miklau, 2022).
    """
    domain = workload.domain
    sets = {
        names: set(names)
        for names in workload.closure()
        if names and tree_fits(domain, [domain.axes(names)], MAX_SELECTED_CELLS)
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
    """Returns the candidates that may join the tree: a function of earlier, noisy choices."""
    return {
        names: weight
        for names, weight in candidates.items()
        if tree_fits(domain, [*joined, domain.axes(names)], MAX_SELECTED_CELLS)
    }


def _growth(moved: NDArray[np.float64], budget: RoundBudget) -> int:
    """Returns by what an annealed schedule multiplies the units of a round.

    It spends more once a measurement moves its table by less than its own noise is expected to.

    Args:
        moved: how far the answer went by the last round, in records, any shape.
        budget: of that round.
    """
    if np.abs(moved).sum() <= _expected_noise(moved.size, budget):
        return 2 if budget.distribution == "discrete_laplace" else 4
    return 1


def _expected_noise(num_cells: int, budget: RoundBudget) -> float:
    """Returns the expected L1 norm of the noise of a measured table, or nearly, in records."""
    return num_cells * budget.measurement_scale * math.sqrt(2 / math.pi)


def _select(
    candidates: Mapping[Names, float],
    answers: Sequence[NDArray[np.float64]],
    marginals: Marginals,
    budget: RoundBudget,
    noise: NoiseSource,
) -> int:
    """Returns the number of a marginal that the hypothesis answers badly.

    The score is the L1 error less what measuring would leave (a public number), by weight.
    """
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

"""Measuring a fixed set of tables at once, then fitting: shared by the baselines."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import NumRecords, Progress, check_noise
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, check_joins, check_sums
from beam_dp.mechanisms.marginals.strategies import predicted_variance, residual_strategy
from beam_dp.mechanisms.marginals.synthesis import synthesise
from beam_dp.mechanisms.marginals.unit_costs import UnitCost, check_unit_cost
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import discrete_gaussian_mu, zcdp_rho
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.unit_costs import chance_cost, unit_costs
from beam_dp.summaries.marginals import Marginals


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasureAllPlan(MarginalsPlan):
    """The plan of a mechanism that measures a fixed set of tables once.

    Args: as of ``MarginalsPlan``, and
        calibration: ``tight`` or ``textbook``.
        predicted_cell_error: root mean squared error of a cell before the fit, in records.
        max_unit_cost: C, where records of a unit are limited by what they cost (``unit_costs``).
    """

    strategy: ClassVar[str] = "measure_all"
    is_fixed: ClassVar[bool] = True

    calibration: str
    predicted_cell_error: float
    max_unit_cost: float | None = None

    @property
    def unit_costs(self) -> UnitCosts | None:
        """See ``Plan``."""
        if self.max_unit_cost is None:
            return None
        return unit_costs(self.domain, self.measurements, self.max_unit_cost)

    def _stated(self) -> dict[str, Any]:
        limits = {} if self.max_unit_cost is None else {"max_unit_cost": self.max_unit_cost}
        return {
            "calibration": self.calibration,
            "strategy": self.strategy,
            **limits,
            "num_measurements": len(self.measurements),
            "predicted_cell_error": self.predicted_cell_error,
        }

    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Draws all measurements once, and returns the release that fits them."""
        tables = []
        for position, measurement in enumerate(self.measurements):
            if progress is not None:
                progress("measure", position + 1, len(self.measurements))
            tables.append(measurement.draw(marginals, noise))
        return synthesise(self, self.measurements, tables, noise, progress)


def measure_all_plan(
    mechanism: str,
    workload: Workload,
    guarantee: Guarantee,
    num_records: NumRecords,
    measurements: tuple[Measurement, ...],
    calibration: str,
    max_unit_cost: float | None = None,
) -> MeasureAllPlan:
    """Returns the plan of a mechanism that measures a fixed set of tables once.

    Args:
        mechanism: its name.
        workload: what the release must answer.
        guarantee: what it keeps.
        num_records: the public number of records, or ``"noisy"``.
        measurements: of one kind, calibrated for the guarantee.
        calibration: ``tight`` or ``textbook``.
        max_unit_cost: C, where they are calibrated for it.

    Raises:
        InputError: if no hypothesis can join the marginals of the workload, or the noise or sums
            would not fit 64-bit integers.
    """
    check_joins(workload, "use fewer or smaller marginals, or mwem, which selects some of them")
    check_noise(guarantee, [each.scale for each in measurements])
    check_sums(num_records, measurements)
    variance = predicted_variance(workload, measurements, num_records != "noisy")
    names = {each.names for each in measurements}
    # With nothing to measure the release is a public constant; it has the same shape all the same.
    maximal = tuple(
        each for each in sorted(names) if not any(set(each) < set(other) for other in names)
    )
    return MeasureAllPlan(
        mechanism=mechanism,
        workload=workload,
        guarantee=guarantee,
        num_records=num_records,
        summary_tables=maximal or workload.maximal(),
        measurements=measurements,
        loss=_loss(guarantee, measurements),
        calibration=calibration,
        predicted_cell_error=math.sqrt(variance),
        max_unit_cost=max_unit_cost,
    )


def unit_cost_plan(
    mechanism: str,
    workload: Workload,
    guarantee: Guarantee,
    num_records: NumRecords,
    max_unit_cost: UnitCost,
) -> MeasureAllPlan:
    """Returns the plan that measures all residuals of records limited by what a unit costs.

    Raises:
        InputError: as ``check_unit_cost`` and ``measure_all_plan``.
    """
    check_unit_cost(workload, guarantee, num_records, max_unit_cost)
    if max_unit_cost == "planned":
        # What residuals share of the budget does not hang on C.
        any_scale = residual_strategy(workload, guarantee, False, 1.0)
        most = guarantee.max_records_per_unit
        max_unit_cost = chance_cost(workload.domain, any_scale, most)
    measurements = residual_strategy(workload, guarantee, False, max_unit_cost)
    return measure_all_plan(
        mechanism, workload, guarantee, num_records, measurements, "tight", max_unit_cost
    )


def _loss(guarantee: Guarantee, measurements: tuple[Measurement, ...]) -> Loss:
    """Returns what the measurements may reveal, as they are calibrated for the guarantee.

    Privacy: Laplace tables have epsilon, Gaussian residuals the mu of their calibration on a fine
    grid, Gaussian tables on the integers the rho of theirs.

    Raises:
        InputError: if Gaussian noise is to be pure, or noises of several kinds are to be one loss.
    """
    epsilon, delta = guarantee.epsilon, guarantee.delta
    kinds = {(each.kind, each.distribution) for each in measurements}
    if kinds <= {("table", "discrete_laplace")} and (kinds or delta == 0):
        return Loss.pure(epsilon)
    if delta == 0 and any(distribution == "discrete_gaussian" for _, distribution in kinds):
        raise InputError("delta", delta, "must be > 0 for discrete Gaussian noise")
    if kinds <= {("residual", "discrete_gaussian")}:
        return Loss.gaussian(discrete_gaussian_mu(epsilon, delta))
    if kinds == {("table", "discrete_gaussian")}:
        return Loss.zcdp(zcdp_rho(epsilon, delta))
    told = ", ".join(sorted(" with ".join(each) for each in kinds))
    condition = "must all be tables with one noise, or residuals with discrete Gaussian noise"
    raise InputError("measurements", told, condition)

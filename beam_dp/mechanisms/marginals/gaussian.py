"""The Gaussian baseline: noise on everything that the workload needs, then a fit."""

from __future__ import annotations

import dataclasses
from fractions import Fraction
from typing import ClassVar, Literal

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import CALIBRATION, Mechanism, NumRecords, check_calibration
from beam_dp.mechanisms.marginals.measure_all import measure_all_plan, unit_cost_plan
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, check_request
from beam_dp.mechanisms.marginals.strategies import residual_strategy
from beam_dp.mechanisms.marginals.unit_costs import MAX_UNIT_COST, UnitCost, check_max_unit_cost
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.rounding import root_up
from beam_dp.queries.workload import Workload


@dataclasses.dataclass(frozen=True)
class Gaussian(Mechanism):
    """Adds discrete Gaussian noise to the workload, then fits.

    Privacy: (epsilon, delta) with delta > 0, for the relation and unit of the guarantee.
    ``tight`` measures residuals with the best variances for the workload, calibrated exactly (see
    ``strategies.residual_strategy``). ``textbook`` measures every marginal with the same noise:
    L2 sensitivity sqrt(m) for m marginals (sqrt(2m) under replace-one), times the records of a
    unit, on the integers, calibrated through zero-concentrated privacy.

    Args:
        calibration: ``tight`` or ``textbook``.
        max_unit_cost: as of ``MWEM``.

    Reference: Canonne, Kamath and Steinke (2020) for the noise.
    """

    calibration: Literal["tight", "textbook"] = dataclasses.field(
        default="tight", metadata=CALIBRATION
    )
    max_unit_cost: UnitCost | None = dataclasses.field(default=None, metadata=MAX_UNIT_COST)
    name: ClassVar[str] = "gaussian"
    summary: ClassVar[str] = "measures all, with Gaussian noise"

    def __post_init__(self) -> None:
        check_calibration(self.calibration)
        check_max_unit_cost(self.max_unit_cost, self.calibration)

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> MarginalsPlan:
        """Returns the measurements; raises InputError where delta is 0 or the request too large."""
        check_request(domain, workload, guarantee, num_records)
        if guarantee.delta == 0:
            raise InputError("delta", 0.0, "must be > 0 for the Gaussian mechanism")
        if self.max_unit_cost is not None:
            return unit_cost_plan(self.name, workload, guarantee, num_records, self.max_unit_cost)
        total_is_public = num_records != "noisy"
        if self.calibration == "tight":
            measurements = residual_strategy(workload, guarantee, total_is_public)
        else:
            measurements = _textbook(workload, guarantee)
        return measure_all_plan(
            self.name, workload, guarantee, num_records, measurements, self.calibration
        )


def _textbook(workload: Workload, guarantee: Guarantee) -> tuple[Measurement, ...]:
    moved = guarantee.neighboring.num_moved
    squared_sensitivity = guarantee.max_records_per_unit**2 * moved * len(workload)
    rho = zcdp_rho(guarantee.epsilon, guarantee.delta)
    scale = root_up(Fraction(squared_sensitivity) / (2 * Fraction(rho)))
    return tuple(Measurement(names, "table", "discrete_gaussian", scale) for names in workload)

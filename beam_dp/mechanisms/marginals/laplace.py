"""The Laplace baseline: pure privacy from noise on whole tables, then a fit."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.contract import CALIBRATION, Mechanism, NumRecords, check_calibration
from beam_dp.mechanisms.marginals.measure_all import measure_all_plan
from beam_dp.mechanisms.marginals.plan import MAX_CELLS, MarginalsPlan, check_request
from beam_dp.mechanisms.marginals.strategies import best_table_strategy, table_strategy
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload


@dataclasses.dataclass(frozen=True)
class Laplace(Mechanism):
    """Adds discrete Laplace noise to tables, then fits.

    Privacy: epsilon, pure, for the relation and unit of the guarantee; a delta is left unspent.
    A record changes one cell of each of m tables by one: the scale is m / epsilon (2m under
    replace-one), times the records of a unit, where all tables get an equal share of epsilon.
    ``textbook`` measures the workload's marginals so; ``tight`` the unions of them that are
    predicted to be best, up to the joint table, with the shares that are.

    Args:
        calibration: ``tight`` or ``textbook``.

    Reference: Dwork and Roth (2014), Theorem 3.6; Ghosh, Roughgarden and Sundararajan (2009).
    """

    calibration: Literal["tight", "textbook"] = dataclasses.field(
        default="tight", metadata=CALIBRATION
    )
    name: ClassVar[str] = "laplace"
    summary: ClassVar[str] = "measures all, with Laplace noise"

    def __post_init__(self) -> None:
        check_calibration(self.calibration)

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> MarginalsPlan:
        """Returns the measurements; raises InputError where the request is too large."""
        check_request(domain, workload, guarantee, num_records)
        if self.calibration == "tight":
            measurements = best_table_strategy(
                workload, guarantee, num_records != "noisy", MAX_CELLS
            )
        else:
            measurements = table_strategy(workload.marginals, guarantee)
        return measure_all_plan(
            self.name, workload, guarantee, num_records, measurements, self.calibration
        )

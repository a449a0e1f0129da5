"""Laplace noise on the joint table of all attributes."""

from __future__ import annotations

import dataclasses
from typing import ClassVar, Literal

from beam_dp.domain import Domain
from beam_dp.flags.options import option
from beam_dp.mechanisms.contract import CALIBRATION, NumRecords, check_calibration
from beam_dp.mechanisms.marginals.measure_all import measure_all_plan
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism, check_array, check_request
from beam_dp.mechanisms.marginals.strategies import table_strategy
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload


@dataclasses.dataclass(frozen=True)
class JointTable(Mechanism):
    """Adds discrete Laplace noise to the joint table of all attributes, then fits.

    Privacy: epsilon, pure; a record changes one cell of the table by one: see ``table_strategy``.
    """

    calibration: Literal["tight", "textbook"] = dataclasses.field(
        default="tight", metadata=CALIBRATION
    )
    order: str = dataclasses.field(
        default="domain",
        metadata=option("joint_table: of the attributes", choices=("domain", "sorted")),
    )
    name: ClassVar[str] = "joint_table"
    summary: ClassVar[str] = "measures the joint table, with Laplace noise"

    def __post_init__(self) -> None:
        check_calibration(self.calibration)

    def plan(
        self, domain: Domain, workload: Workload, guarantee: Guarantee, num_records: NumRecords
    ) -> MarginalsPlan:
        """Returns the measurement; raises InputError where the request is too large."""
        check_request(domain, workload, guarantee, num_records)
        check_array(domain)
        measurements = table_strategy([domain.names], guarantee)
        return measure_all_plan(
            self.name, workload, guarantee, num_records, measurements, self.calibration
        )

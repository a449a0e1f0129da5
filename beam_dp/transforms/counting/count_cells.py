"""The transform from records to their exact histogram."""

from __future__ import annotations

from typing import Any

import apache_beam as beam

from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.limited_records import limited_records
from beam_dp.transforms.counting.summarise import Summarise


class CountCells(beam.PTransform):
    """Encodes records, limits what a unit contributes, and counts the cells.

    Args:
        domain: the universe; records outside it are left out, silently.
        guarantee: whose unit and limit are kept.
        unit_costs: the plan's, which limit a unit's records as well; None where only their number
            is limited.

    Raises:
        InputError: when applied, if the records are windowed or unbounded, or lack a column.

    Output: shards for ``HistogramAccumulator.from_shards``, as secret as the records.
    """

    def __init__(
        self, domain: Domain, guarantee: Guarantee, *, unit_costs: UnitCosts | None
    ) -> None:
        super().__init__()
        self.unit_costs = unit_costs
        self.domain = domain
        self.guarantee = guarantee

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[tuple[int, bytes]]:
        """Encodes, limits contributions, counts."""
        encoded, _ = limited_records(
            records, self.domain, self.guarantee, as_cells=True, unit_costs=self.unit_costs
        )
        return encoded | "Summarise" >> Summarise(HistogramAccumulator(self.domain))

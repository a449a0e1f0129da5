"""Limits of what a unit's records cost, of records that travel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.encoding.words import Columns, RecordWords
from beam_dp.privacy.unit_costs import UnitCosts


@dataclass(frozen=True, eq=False)
class CostLimit:
    """``UnitCosts`` of records that travel."""

    words: RecordWords
    costs: UnitCosts

    def keeps(self, unit: NDArray[np.intp], columns: Columns) -> NDArray[np.bool_]:
        """Returns which records stay: see ``UnitCosts.keeps``.

        Args:
            unit: shape (n,), ascending.
            columns: the records, of shape (n,) each.
        """
        return self.costs.keeps(unit, self.words.codes(columns))

"""How wrong a fit is about two attributes that were scored and, therefore, not measured together.

Their noisy L1 distance S from independence is known, in records, and so is what the fit makes of
them by way of other attributes: a table of its own, which is off by S where it invents a
dependence, and right where it found one. Neither tells which. The error of a sum over the cells is
expected to have two parts: 1.75 S, if it were spread over the table at random, each cell with
variance in proportion to its expected count; and 0.7 of what the fit moves this very sum from
independence. Both numbers were chosen on NLTCS and a half of it, on flights, and on eight
generated tables, at epsilon 0.01 to 1; ``benchmarks/error_bars.py`` measures how often such bars
hold elsewhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.queries.vector_query import Vector

Table = NDArray[np.float64]

_OF_DISTANCE = 1.75
_OF_FIT = 0.7


@dataclass(frozen=True, eq=False)
class UnmeasuredPair:
    """Two attributes that were scored and not measured together.

    Args:
        distance: noisy, from independence, in records.
        deviation: of its noise.
        table: as fitted, in records, shape (size of one, size of the other).
        expected: the same of independent attributes.
    """

    distance: float
    deviation: float
    table: Table
    expected: Table

    @property
    def size(self) -> float:
        """The interaction that is expected, in records, in units of Lancaster's expansion."""
        # Low scores are what is left out: the noise of one may have hidden as much.
        distance = math.hypot(max(self.distance, 0.0), self.deviation)
        total = float(self.expected.sum())
        spread = float(np.sqrt(self.expected).sum())
        return _OF_DISTANCE * distance * math.sqrt(total) / max(spread, 1.0)

    def invented(self, first: Table, second: Table) -> Vector:
        """Returns how wrong the fit's own dependence is expected to be.

        Returns:
            shape (rows,), records.
        """
        return _OF_FIT * np.abs(_sums(self.table - self.expected, first, second))

    def lift(self, first: Table, second: Table) -> Vector:
        """Returns how much more often two sets of codes meet than if they were independent."""
        expected = np.maximum(_sums(self.expected, first, second), 1e-9)
        return np.maximum(_sums(self.table, first, second) / expected, 1.0)


def _sums(table: Table, first: Table, second: Table) -> Vector:
    found: Vector = ((first @ table) * second).sum(axis=1)
    return found

"""Exact numbers of privacy units by their numbers of records."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.privacy.discovery import record_levels
from beam_dp.secret.encoding.batch import Columns
from beam_dp.secret.encoding.contributions import distinct_units
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.histogram import HistogramAccumulator


class UnitWords:
    """Records without any columns: only their units are of interest."""

    dtypes: Sequence[np.dtype[np.uint64]] = ()

    def from_batch(self, batch: EncodedBatch) -> Columns:
        """Returns no columns."""
        return []

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> EncodedBatch:
        """Returns records without columns and without units."""
        return EncodedBatch(codes=[])


def levels_counter(most: int) -> HistogramAccumulator:
    """Returns the accumulator that counts the units of each level."""
    levels = IntegerAttribute("level", 0, len(record_levels(most)) - 1)
    return HistogramAccumulator(Domain((levels,)))


def levels_of_units(
    units: NDArray[np.uint64], counts: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """Returns the level of each distinct unit, by its number of records; no order.

    ``units``: fingerprints, shape (2, n), which contain all records of each unit.
    ``counts``: the number of records of each row, shape (n,), >= 1.
    """
    distinct, places = distinct_units(units)
    sums = np.zeros(distinct.shape[1], np.int64)
    np.add.at(sums, places, counts)
    return np.searchsorted(record_levels(most), sums, side="right").astype(np.int64) - 1

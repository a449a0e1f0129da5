"""The dense histogram of a domain, and whether to count it or the tables of a workload."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import EncodedBatch
from beam_dp.errors import InputError
from beam_dp.queries.dense_tables import marginal_tables
from beam_dp.summaries.cell_counts import CellCounts
from beam_dp.summaries.marginals import Marginals, MarginalsAccumulator
from beam_dp.summaries.shards import read_shards

MAX_TOTAL = 2**61


def clipped_counts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the counts of all cells of one table, clipped to 0 to 2^61 over their number.

    The limit is public, and far above the counts of any table. It keeps sums within 64 bits: sums
    that wrap are only private as long as nothing but sums and noise follows.

    Privacy: sensitivities that are proved for the counts hold after clipping, for both relations.
    Clipping a number is monotone and brings no two numbers further apart. Where a unit's records
    are added, cell x gains c_x >= 0 and all cells at most k; after clipping it gains from 0 to
    c_x: as if only some of these records had been added. Where they are replaced, some cells
    gain and others lose, each at most k together; after clipping each moves the same way and no
    further: as if fewer records had come or gone, which every sensitivity allows for, since a
    record may always lie outside the domain. This needs that everything is computed from this one
    table: tables of several sets of attributes must not be clipped each by itself.
    """
    most = MAX_TOTAL // max(counts.size, 1)
    if counts.size and not (int(counts.min()) >= 0 and int(counts.max()) <= most):
        return np.clip(counts, 0, most)
    return counts


MAX_CELLS = 2**28


@dataclass(frozen=True, eq=False, repr=False)
class Histogram:
    """Exact counts of all cells of a domain. Secret: only a mechanism may read it.

    ``counts``: shape (num_cells,), int64, records; sums to the number of records, except for
    cells that are clipped at a limit that none reaches (``clipped_counts``).
    """

    domain: Domain
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        if self.counts.shape != (self.domain.num_cells,) or self.counts.dtype != np.int64:
            raise ValueError("counts must be one int64 a cell")
        object.__setattr__(self, "counts", clipped_counts(self.counts))

    def __repr__(self) -> str:
        return f"Histogram(num_cells={self.domain.num_cells})"

    def marginal(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Returns the table of some attributes, in the order given."""
        attributes = tuple(names)
        return self.marginals([attributes]).marginal(attributes)

    def marginals(self, tables: Iterable[Iterable[str]]) -> Marginals:
        """Returns the tables of many sets of attributes, in a few passes that all share."""
        wanted = [in_domain_order(self.domain, names) for names in tables]
        counts = self.counts.reshape(self.domain.shape)
        return Marginals(self.domain, marginal_tables(counts, self.domain.names, wanted))


def in_domain_order(domain: Domain, names: Iterable[str]) -> tuple[str, ...]:
    """Returns attributes in domain order."""
    return tuple(domain.names[axis] for axis in sorted(domain.axes(domain.restrict(names).names)))


class HistogramAccumulator:
    """Counts the cells of a domain of at most 2^28 cells (an ``Accumulator``)."""

    def __init__(self, domain: Domain) -> None:
        if domain.num_cells > MAX_CELLS:
            raise InputError(
                "domain", domain.num_cells, f"a histogram holds at most {MAX_CELLS} cells (2^28)"
            )
        self.domain = domain

    @property
    def num_cells(self) -> int:
        """Number of cells that are counted."""
        return self.domain.num_cells

    def create(self) -> CellCounts:
        """Returns the state of no records."""
        return CellCounts(self.domain.num_cells)

    def add_batch(self, state: CellCounts, batch: EncodedBatch) -> CellCounts:
        """Returns the state with the batch added."""
        state.add(batch.cell_index(self.domain))
        return state

    def to_shards(self, state: CellCounts) -> Iterator[tuple[int, bytes]]:
        """Yields (block, shard) for each block that has records."""
        return state.to_shards()

    def from_shards(self, shards: Iterable[tuple[int, bytes]]) -> Histogram:
        """Returns the histogram of all shards."""
        return Histogram(self.domain, read_shards(shards, self.domain.num_cells))


# Beyond this many merged tables a record is counted faster in one histogram of the domain,
# whose tables are then summed up once; up to 2^26 cells (512 MiB) of it.
_FEW_TABLES = 4
_HISTOGRAM_CELLS = 2**26


def choose_accumulator(
    domain: Domain, tables: Iterable[tuple[str, ...]]
) -> HistogramAccumulator | MarginalsAccumulator:
    """Returns what to count so that all tables follow from it, by public sizes alone."""
    try:
        marginals = MarginalsAccumulator(domain, tables)
    except InputError:
        if domain.num_cells > _HISTOGRAM_CELLS:
            raise
        return HistogramAccumulator(domain)
    if domain.num_cells <= _HISTOGRAM_CELLS and (
        marginals.num_merged_tables > _FEW_TABLES or marginals.num_cells >= domain.num_cells
    ):
        return HistogramAccumulator(domain)
    return marginals

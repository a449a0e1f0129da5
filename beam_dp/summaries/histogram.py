"""The dense histogram of a domain: how many records each cell holds."""

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
from beam_dp.summaries.clipped_counts import clipped_counts
from beam_dp.summaries.marginals import Marginals
from beam_dp.summaries.shards import read_shards

MAX_CELLS = 2**28


@dataclass(frozen=True, eq=False, repr=False)
class Histogram:
    """Exact counts of all cells of a domain. Secret: only a mechanism may read it.

    Args:
        domain: the universe.
        counts: shape (num_cells,), int64, records; sums to the number of records, but for cells
            that are clipped at a limit that none reaches (``clipped_counts``).
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
        """Returns the table of some attributes, in the order given, records.

        Raises:
            InputError: if a name is not in the domain, or is given twice.
        """
        attributes = tuple(names)
        return self.marginals([attributes]).marginal(attributes)

    def marginals(self, tables: Iterable[Iterable[str]]) -> Marginals:
        """Returns the tables of many sets of attributes.

        Raises:
            InputError: if a name is not in the domain, or is given twice in a set.

        Cost: a few passes over the counts, shared by all tables (``queries.dense_tables``).
        """
        wanted = [in_domain_order(self.domain, names) for names in tables]
        counts = self.counts.reshape(self.domain.shape)
        return Marginals(self.domain, marginal_tables(counts, self.domain.names, wanted))


def in_domain_order(domain: Domain, names: Iterable[str]) -> tuple[str, ...]:
    """Returns attributes in domain order.

    Raises:
        InputError: if a name is not in the domain, or is given twice.
    """
    return tuple(domain.names[axis] for axis in sorted(domain.axes(domain.restrict(names).names)))


class HistogramAccumulator:
    """Counts the cells of a domain (an ``Accumulator``).

    Args:
        domain: the universe, at most 2^28 cells.

    Raises:
        InputError: if the domain has more cells.

    Example:
        >>> from beam_dp.domain.listed import BooleanAttribute
        >>> accumulator = HistogramAccumulator(Domain((BooleanAttribute("member"),)))
        >>> state = accumulator.create()
        >>> state = accumulator.add_batch(state, EncodedBatch(cells=np.array([1, 0, 1])))
        >>> accumulator.from_shards(accumulator.to_shards(state)).counts
        array([1, 2])
    """

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

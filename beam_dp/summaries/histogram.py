"""Exact marginals and histograms of a domain, and the choice of tables to count for a workload."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.encoding.records import EncodedBatch
from beam_dp.errors import InputError, magnitude
from beam_dp.queries.dense_tables import marginal_tables
from beam_dp.summaries.shards import CellCounts, num_blocks, read_shards

MAX_CELLS = 2**28  # limit for all tables together: 2 GiB
# A merged table of this size (512 KiB) still fits in a core's L2 cache.
_MERGED_CELLS = 2**16
_CHUNK_RECORDS = 2**15  # the joint index of a chunk of this size stays in the cache, too


@dataclass(frozen=True, eq=False, repr=False)
class Marginals:
    """Exact tables for some sets of attributes. Secret: only a mechanism may read the tables.

    ``tables``: the counts for each set of attributes, listed in domain order; int64, records, one
    axis per attribute.
    """

    domain: Domain
    tables: Mapping[tuple[str, ...], NDArray[np.int64]]

    def __post_init__(self) -> None:
        for names, table in self.tables.items():
            axes = self.domain.axes(names)
            if list(axes) != sorted(set(axes)):
                raise ValueError("the attributes of a table must be in domain order")
            if table.shape != tuple(self.domain.shape[axis] for axis in axes):
                raise ValueError("a table must have one axis an attribute")

    def __repr__(self) -> str:
        return f"Marginals(tables={list(self.tables)})"

    def marginal(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Returns one table, its axes in the order given, from the smallest table containing it."""
        attributes = tuple(names)
        axes = self.domain.axes(attributes)
        ordered = tuple(self.domain.names[axis] for axis in sorted(set(axes)))
        if len(ordered) != len(attributes):
            raise InputError("attributes", attributes, "must be distinct")
        holders = [held for held in self.tables if set(held) >= set(ordered)]
        if not holders:
            raise InputError("attributes", attributes, "are not held by any table")
        held = min(holders, key=lambda each: self.tables[each].size)
        table = marginal_tables(self.tables[held], held, [ordered])[ordered]
        return table.transpose([ordered.index(name) for name in attributes])


def merge_tables(
    domain: Domain, tables: Iterable[tuple[str, ...]], max_cells: int = _MERGED_CELLS
) -> list[tuple[str, ...]]:
    """Returns fewer, larger tables that together contain every given table.

    Counting a record costs about the same in any table that fits in the cache, so tables are
    merged while the merged table has at most ``max_cells`` cells: each table is added to the
    merged table that it enlarges least. A table above the limit is merged only with tables that it
    contains. The result is in domain order, sorted so that neighbours share first attributes.
    """
    sizes = domain.shape
    # Products may pass every integer type; only those up to max_cells have to be exact.
    float_sizes = np.array(sizes, np.float64)
    sets = {tuple(sorted(set(domain.axes(names)))) for names in tables}
    # Sorted by size, largest first; tables of equal size by the bit mask of their attributes.
    ordered = sorted((-math.prod(sizes[axis] for axis in axes), axes[::-1], axes) for axes in sets)
    # The attributes (rows) of each merged table (columns), and the cells of each merged table.
    held = np.zeros((len(sizes), len(sets)), np.bool_)
    cells = np.empty(len(sets))
    num_unions = 0
    for negative_cells, _, axes in ordered:
        growth = np.ones(num_unions)
        for axis in axes:
            growth *= np.where(held[axis, :num_unions], 1.0, float_sizes[axis])
        fits = (growth == 1) | (cells[:num_unions] * growth <= max_cells)
        if fits.any():
            best = int(np.argmin(np.where(fits, growth, np.inf)))
            cells[best] *= growth[best]
        else:
            best, num_unions = num_unions, num_unions + 1
            cells[best] = min(-negative_cells, 2**1000)
        held[list(axes), best] = True
    found = sorted(tuple(np.flatnonzero(held[:, union]).tolist()) for union in range(num_unions))
    return [tuple(domain.names[axis] for axis in axes) for axes in found]


def _merged_tables(domain: Domain, tables: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Returns merged tables with at most 2^28 cells in total, chosen by public sizes alone.

    Merging very many small tables can increase the total number of cells; then the limit per
    merged table is lowered.
    """

    def num_cells(names: tuple[str, ...]) -> int:
        return math.prod(domain.shape[axis] for axis in domain.axes(names))

    for max_cells in (_MERGED_CELLS, _MERGED_CELLS // 2**6, 0):
        merged = merge_tables(domain, tables, max_cells)
        total = sum(map(num_cells, merged))
        if total <= MAX_CELLS:
            return merged
    largest = max(tables, key=num_cells)
    raise InputError(
        "workload",
        ",".join(largest),
        f"with {magnitude(num_cells(largest))} cells is the largest of tables of"
        f" {magnitude(total)} cells, and together they must have at most 2^28 = {MAX_CELLS:,}",
    )


class MarginalsAccumulator:
    """Counts many marginals in one pass over the code columns (an ``Accumulator``).

    Tables are merged into fewer, larger tables (``merge_tables``). Joint indices are built
    attribute by attribute and shared by tables with the same first attributes. All tables together
    have at most 2^28 cells.
    """

    def __init__(self, domain: Domain, tables: Iterable[Iterable[str]]) -> None:
        self.domain = domain
        self.tables = tuple(
            tuple(domain.names[axis] for axis in sorted(set(domain.axes(names))))
            for names in tables
        )
        self._merged = _merged_tables(domain, self.tables)
        self._axes = [domain.axes(names) for names in self._merged]
        self._sizes = [math.prod(domain.shape[axis] for axis in axes) for axes in self._axes]
        self._first_block = np.cumsum([0, *map(num_blocks, self._sizes)]).tolist()

    @property
    def num_cells(self) -> int:
        """Number of cells of all merged tables."""
        return sum(self._sizes)

    @property
    def num_merged_tables(self) -> int:
        """Number of merged tables, in which each record is counted."""
        return len(self._merged)

    def create(self) -> list[CellCounts]:
        """Returns the state before any record is added."""
        return [CellCounts(size) for size in self._sizes]

    def add_batch(self, state: list[CellCounts], batch: EncodedBatch) -> list[CellCounts]:
        """Returns the state with the batch added. Cost: a few ns per record and merged table."""
        codes = batch.code_columns(self.domain)
        num_records = len(codes[0]) if len(codes) else 0
        for start in range(0, num_records, _CHUNK_RECORDS):
            self._add_chunk(state, [column[start : start + _CHUNK_RECORDS] for column in codes])
        return state

    def to_shards(self, state: list[CellCounts]) -> Iterator[tuple[int, bytes]]:
        """Yields (block, shard) for each block that has records."""
        for first, counts in zip(self._first_block[:-1], state, strict=True):
            for block, shard in counts.to_shards():
                yield first + block, shard

    def from_shards(self, shards: Iterable[tuple[int, bytes]]) -> Marginals:
        """Returns the requested tables, summed over all shards."""
        of_table: list[list[tuple[int, bytes]]] = [[] for _ in self._sizes]
        for block, shard in shards:
            table = int(np.searchsorted(self._first_block, block, side="right")) - 1
            of_table[table].append((block - self._first_block[table], shard))
        return self._unmerge(
            [read_shards(mine, size) for mine, size in zip(of_table, self._sizes, strict=True)]
        )

    def _add_chunk(self, state: list[CellCounts], codes: Sequence[NDArray[Any]]) -> None:
        columns = [column.astype(np.intp) for column in codes]
        shape = self.domain.shape
        joint = [np.zeros(columns[0].size, np.intp)]  # joint[d]: index of the first d attributes
        known: tuple[int, ...] = ()
        for counts, axes in zip(state, self._axes, strict=True):
            shared = 0
            while shared < min(len(known), len(axes)) and known[shared] == axes[shared]:
                shared += 1
            del joint[shared + 1 :]
            for axis in axes[shared:]:
                index = joint[-1] * shape[axis]
                index += columns[axis]
                joint.append(index)
            known = axes
            counts.add(joint[-1])

    def _unmerge(self, merged: Sequence[NDArray[np.int64]]) -> Marginals:
        found: dict[tuple[str, ...], NDArray[np.int64]] = {}
        for names, axes, counts in zip(self._merged, self._axes, merged, strict=True):
            held = [each for each in self.tables if each not in found and set(each) <= set(names)]
            table = counts.reshape([self.domain.shape[axis] for axis in axes])
            found |= marginal_tables(table, names, held)
        return Marginals(self.domain, {names: found[names] for names in self.tables})


MAX_TOTAL = 2**61


def clipped_counts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the counts of one table, each clipped to [0, 2^61 / number of cells].

    The upper limit is public and far above the counts of any table. The limit keeps sums within 64
    bits: sums that wrap around are private only if they are used for nothing but sums and noise.

    Privacy: sensitivities that are proved for the counts are also valid after clipping, for both
    relations. Clipping is monotone and never increases the distance between two numbers. If a
    unit's records are added, cell x gains c_x >= 0 and all cells together at most k. After
    clipping, cell x gains from 0 to c_x, as if only some of the records had been added. If a unit's
    records are replaced, some cells gain and other cells lose, at most k in total either way. After
    clipping, each cell changes in the same direction and no further, as if fewer records had been
    added or removed. Every sensitivity allows for that, since a record may always be outside the
    domain. The argument requires that everything is computed from this one table: tables of several
    sets of attributes must not be clipped separately.
    """
    most = MAX_TOTAL // max(counts.size, 1)
    if counts.size and not (int(counts.min()) >= 0 and int(counts.max()) <= most):
        return np.clip(counts, 0, most)
    return counts


@dataclass(frozen=True, eq=False, repr=False)
class Histogram:
    """Exact counts of all cells of a domain. Secret: only a mechanism may read it.

    ``counts``: shape (num_cells,), int64, records; the sum is the number of records, unless a cell
    exceeds the limit of ``clipped_counts``, which does not happen in practice.
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
        """Returns the tables for many sets of attributes, computed in a few shared passes."""
        wanted = [in_domain_order(self.domain, names) for names in tables]
        counts = self.counts.reshape(self.domain.shape)
        return Marginals(self.domain, marginal_tables(counts, self.domain.names, wanted))


def in_domain_order(domain: Domain, names: Iterable[str]) -> tuple[str, ...]:
    """Returns the names of attributes, sorted in domain order."""
    return tuple(domain.names[axis] for axis in sorted(domain.axes(domain.restrict(names).names)))


class HistogramAccumulator:
    """Counts the cells of a domain of at most 2^28 cells (an ``Accumulator``)."""

    def __init__(self, domain: Domain) -> None:
        if domain.num_cells > MAX_CELLS:
            raise InputError(
                "domain", domain.num_cells, f"a histogram has at most {MAX_CELLS} cells (2^28)"
            )
        self.domain = domain

    @property
    def num_cells(self) -> int:
        """Number of cells of the histogram."""
        return self.domain.num_cells

    def create(self) -> CellCounts:
        """Returns the state before any record is added."""
        return CellCounts(self.domain.num_cells)

    def add_batch(self, state: CellCounts, batch: EncodedBatch) -> CellCounts:
        """Returns the state with the batch added."""
        state.add(batch.cell_index(self.domain))
        return state

    def to_shards(self, state: CellCounts) -> Iterator[tuple[int, bytes]]:
        """Yields (block, shard) for each block that has records."""
        return state.to_shards()

    def from_shards(self, shards: Iterable[tuple[int, bytes]]) -> Histogram:
        """Returns the histogram, summed over all shards."""
        return Histogram(self.domain, read_shards(shards, self.domain.num_cells))


# With more merged tables, counting each record in one histogram of the domain is faster; the tables
# are then computed from the histogram. The histogram may have up to 2^26 cells (512 MiB).
_FEW_TABLES = 4
_HISTOGRAM_CELLS = 2**26


def choose_accumulator(
    domain: Domain, tables: Iterable[tuple[str, ...]]
) -> HistogramAccumulator | MarginalsAccumulator:
    """Returns an accumulator that yields all tables, chosen by public sizes alone."""
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

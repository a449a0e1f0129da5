"""Exact marginals and histograms of a domain, and the choice of tables to count for a workload."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, magnitude
from beam_dp.queries.dense_tables import marginal_tables
from beam_dp.secret.encoding.levels import PlaceLevels
from beam_dp.secret.encoding.records import EncodedBatch, joint_index
from beam_dp.secret.summaries.shards import CellCounts, num_blocks, read_shards, write_shards

MAX_CELLS = 2**28  # limit for all tables together: 2 GiB
# The limit for merged tables: 512 KiB, which fit in a core's L2 cache.
_MERGED_CELLS = 2**16
# The joint indices of a chunk of this size stay in the cache, and are small enough for malloc to
# reuse their memory: arrays of 2^15 int64 were mapped again per chunk, at 70 ns per record.
_CHUNK_RECORDS = 2**16
_COUNTED_CELLS = 3 * 2**24  # 192 MiB; a worker without tables has 300 MiB
# Measured nanoseconds: to count a record in a table; the extra time in a table with far more cells
# than ``_FAR_CELLS``; to clear and sum a counted cell; to write, transfer and add a sent cell.
_TABLE_NS, _FAR_NS, _CELL_NS, _SENT_NS = 2.0, 10.0, 2.0, 10.0
_FAR_CELLS = 2**22
_BUNDLE_RECORDS = 2**22  # assumed records per bundle; a runner counts more than this in a second


@dataclass(frozen=True, eq=False, repr=False)
class Marginals:
    """Exact tables for some sets of attributes. Secret: only a mechanism may read the tables.

    ``tables``: the numbers of records, int64, one axis per attribute; names are in domain order.
    ``bin_sums``: for each bin of ``domain.placed``, one column after the other, the sum of its
    records' places less 2^19, int64; empty if records have no places.
    """

    domain: Domain
    tables: Mapping[tuple[str, ...], NDArray[np.int64]]
    bin_sums: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))

    def __post_init__(self) -> None:
        for names, table in self.tables.items():
            axes = self.domain.axes(names)
            if list(axes) != sorted(set(axes)):
                raise ValueError("the attributes of a table must be in domain order")
            if table.shape != tuple(self.domain.shape[axis] for axis in axes):
                raise ValueError("a table must have one axis per attribute")

    def __repr__(self) -> str:
        return f"Marginals(tables={list(self.tables)})"

    def marginal(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Returns one table, with axes in the given order, summed from a stored table."""
        attributes = tuple(names)
        axes = self.domain.axes(attributes)
        ordered = tuple(self.domain.names[axis] for axis in sorted(set(axes)))
        if len(ordered) != len(attributes):
            raise InputError("attributes", attributes, "must be distinct")
        source = ordered
        if source not in self.tables:  # often true, and there may be thousands of tables
            holders = [key for key in self.tables if set(key) >= set(ordered)]
            if not holders:
                raise InputError("attributes", attributes, "are not in any table")
            source = min(holders, key=lambda key: self.tables[key].size)
        table = marginal_tables(self.tables[source], source, [ordered])[ordered]
        return table.transpose([ordered.index(name) for name in attributes])

    def places(self, names: Iterable[str]) -> NDArray[np.int64]:
        """Returns the sums of places of all bins; 0 if records are known only by their cells."""
        size = sum(self.domain[name].num_levels for name in names)
        return self.bin_sums if len(self.bin_sums) else np.zeros(size, np.int64)


def merge_tables(
    domain: Domain, tables: Iterable[tuple[str, ...]], max_cells: int = _MERGED_CELLS
) -> list[tuple[str, ...]]:
    """Returns fewer, larger tables that together contain every given table.

    Counting a record costs about the same in any table that fits in the cache, so tables are
    merged while the merged table has at most ``max_cells`` cells. Each table is added to the
    merged table that it enlarges least. A table above the limit is merged only with tables that it
    contains. The result is sorted, so that neighbouring tables share their first attributes.
    """
    sizes = domain.shape
    # A product may exceed every integer type; only products up to max_cells must be exact.
    float_sizes = np.array(sizes, np.float64)
    sets = {tuple(sorted(set(domain.axes(names)))) for names in tables}
    # Sorted by size, largest first; tables of equal size by the bit mask of their attributes.
    ordered = sorted((-math.prod(sizes[axis] for axis in axes), axes[::-1], axes) for axes in sets)
    # The attributes (rows) of each merged table (columns), and the cells of each merged table.
    members = np.zeros((len(sizes), len(sets)), np.bool_)
    cells = np.empty(len(sets))
    num_unions = 0
    for negative_cells, _, axes in ordered:
        growth = np.ones(num_unions)
        for axis in axes:
            growth *= np.where(members[axis, :num_unions], 1.0, float_sizes[axis])
        fits = (growth == 1) | (cells[:num_unions] * growth <= max_cells)
        if fits.any():
            best = int(np.argmin(np.where(fits, growth, np.inf)))
            cells[best] *= growth[best]
        else:
            best, num_unions = num_unions, num_unions + 1
            cells[best] = min(-negative_cells, 2**1000)
        members[list(axes), best] = True
    unions = sorted(
        tuple(np.flatnonzero(members[:, union]).tolist()) for union in range(num_unions)
    )
    return [tuple(domain.names[axis] for axis in axes) for axes in unions]


def _num_cells(domain: Domain, tables: Iterable[tuple[str, ...]]) -> int:
    return sum(math.prod(domain.shape[axis] for axis in domain.axes(names)) for names in tables)


def _tables_to_count(domain: Domain, wanted: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Returns the tables that a bundle counts, from which every wanted table can be summed.

    The returned tables are merged tables, or one table of all cells of the domain, whichever costs
    less time. The tables take at most 192 MiB or half the memory of the wanted tables, whichever is
    more. Merging very many small tables can increase the total number of cells; then the limit per
    merged table is lowered. The choice depends only on sizes, which are public.
    """
    num_wanted = _num_cells(domain, wanted)
    limit = min(max(_COUNTED_CELLS, num_wanted), MAX_CELLS)
    choices = [[domain.names]] if domain.num_cells <= limit else []
    for max_cells in (_MERGED_CELLS, _MERGED_CELLS // 2**6, 0):
        merged = merge_tables(domain, wanted, max_cells)
        total = _num_cells(domain, merged)
        if total <= limit:
            choices.append(merged)
            break
    if not choices:
        largest = max(wanted, key=lambda names: _num_cells(domain, [names]))
        raise InputError(
            "workload",
            ",".join(largest),
            f"with {magnitude(_num_cells(domain, [largest]))} cells is the largest of tables of"
            f" {magnitude(total)} cells, and together they must have at most 2^28 = {MAX_CELLS:,}",
        )

    def nanoseconds(counted: list[tuple[str, ...]]) -> float:
        sizes = [_num_cells(domain, [names]) for names in counted]
        of_record = sum(_TABLE_NS + _FAR_NS * size / (size + _FAR_CELLS) for size in sizes)
        of_bundle = _CELL_NS * sum(sizes) + _SENT_NS * min(sum(sizes), num_wanted)
        return of_record * _BUNDLE_RECORDS + of_bundle

    return min(choices, key=nanoseconds)


Counted = tuple[list[CellCounts], NDArray[np.int64]]  # counts of each table, and sums of places


class MarginalsAccumulator:
    """Counts many marginals in one pass over the records (an ``Accumulator``).

    A bundle counts fewer, larger tables (``_tables_to_count``). The bundle sends these tables, or
    the wanted tables summed from these tables, whichever have fewer cells (``num_cells``). With
    ``as_cells``, records should be cell indices of the domain rather than codes.

    Sums of places are exact below 2^43 records, more than any input has and 8 times ``MAX_RECORDS``
    of plans. They are clipped to +-2^61, which moves no two sums further apart.
    """

    def __init__(self, domain: Domain, tables: Iterable[Iterable[str]]) -> None:
        self.domain = domain
        in_order = (sorted(set(domain.axes(names))) for names in tables)
        axes_of = dict.fromkeys(map(tuple, in_order))
        self.tables = tuple(tuple(domain.names[axis] for axis in axes) for axes in axes_of)
        self._counted = _tables_to_count(domain, self.tables)
        self._axes = [domain.axes(names) for names in self._counted]
        self._dtypes = [np.min_scalar_type(size - 1) for size in domain.shape]
        self.as_cells = self._counted == [domain.names] and not domain.placed
        masks = [sum(1 << axis for axis in axes) for axes in self._axes]
        # For each counted table, the wanted tables that are summed from the counted table.
        self._held: list[list[tuple[str, ...]]] = [[] for _ in masks]
        for names, axes in zip(self.tables, axes_of, strict=True):
            mask = sum(1 << axis for axis in axes)
            self._held[next(i for i, all_of in enumerate(masks) if not mask & ~all_of)] += [names]
        # The sizes of the sent arrays: each counted table, or one array with all wanted tables,
        # so that many small tables are few shards.
        self._sizes = [_num_cells(domain, [names]) for names in self._counted]
        num_wanted = _num_cells(domain, self.tables)
        self._sends_counted = sum(self._sizes) <= num_wanted
        if not self._sends_counted:
            self._sizes = [num_wanted]
        self._sizes.append(sum(column.num_levels for column in domain.placed))
        self._first_block = np.cumsum([0, *map(num_blocks, self._sizes)]).tolist()
        self.num_cells = sum(self._sizes)

    def create(self) -> Counted:
        """Returns the state before any record is added."""
        counts = [CellCounts(_num_cells(self.domain, [names])) for names in self._counted]
        return counts, np.zeros(self._sizes[-1], np.int64)

    def add_batch(self, counted: Counted, batch: EncodedBatch) -> Counted:
        """Returns the state with the batch added. Cost: 2 ns per record and counted table."""
        state, sums = counted
        if self.as_cells:
            state[0].add(batch.cell_index(self.domain))
            return counted
        codes, shape = batch.code_columns(self.domain), self.domain.shape
        for start in range(0, len(codes[0]), _CHUNK_RECORDS):
            stop = start + _CHUNK_RECORDS
            narrow = [
                column[start:stop].astype(dtype, copy=False)
                for column, dtype in zip(codes, self._dtypes, strict=True)
            ]
            only_cell = np.zeros(len(narrow[0]), np.uint8)  # index in a table without attributes
            for counts, axes in zip(state, self._axes, strict=True):
                columns = [only_cell, *(narrow[axis] for axis in axes)]
                counts.add(joint_index(columns, [1, *(shape[axis] for axis in axes)]))
        for column, places in zip(self.domain.placed, batch.places, strict=True):
            bins = codes[self.domain.axes([column.name])[0]]
            rows = np.flatnonzero(bins < column.num_levels)  # null and other add nothing
            added = places[rows].astype(np.int64) - PlaceLevels.PLACES // 2
            np.add.at(sums, bins[rows], added)
            sums = sums[column.num_levels :]  # a view of the rest
        return counted

    def to_shards(self, counted: Counted) -> Iterator[tuple[int, bytes]]:
        """Yields (block, shard) for each block that has records."""
        state, sums = counted
        if not self._sends_counted:
            yield from write_shards(np.concatenate(list(self._wanted_counts(state))))
            state = []
        for first, counts in zip(self._first_block, state, strict=False):
            for block, shard in counts.to_shards():
                yield first + block, shard
        for block, shard in write_shards(sums):
            yield self._first_block[-2] + block, shard

    def from_shards(self, shards: Iterable[tuple[int, bytes]]) -> Marginals:
        """Returns the wanted tables, summed over all shards."""
        of_array: list[list[tuple[int, bytes]]] = [[] for _ in self._sizes]
        for block, shard in shards:
            array = int(np.searchsorted(self._first_block, block, side="right")) - 1
            of_array[array].append((block - self._first_block[array], shard))
        *arrays, sums = map(read_shards, of_array, self._sizes)
        tables: dict[tuple[str, ...], NDArray[np.int64]] = {}
        if self._sends_counted:
            for names, counts, wanted in zip(self._counted, arrays, self._held, strict=True):
                tables |= marginal_tables(counts.reshape(self._shape(names)), names, wanted)
        else:
            start = 0
            for names in itertools.chain(*self._held):
                stop = start + _num_cells(self.domain, [names])
                tables[names] = arrays[0][start:stop].reshape(self._shape(names))
                start = stop
        sums = np.clip(sums, -MAX_TOTAL, MAX_TOTAL)
        return Marginals(self.domain, {names: tables[names] for names in self.tables}, sums)

    def _wanted_counts(self, state: list[CellCounts]) -> Iterator[NDArray[np.int64]]:
        for counts, names, wanted in zip(state, self._counted, self._held, strict=True):
            tables = marginal_tables(counts.array().reshape(self._shape(names)), names, wanted)
            yield from (tables[key].ravel().astype(np.int64) for key in wanted)

    def _shape(self, names: tuple[str, ...]) -> list[int]:
        return [self.domain.shape[axis] for axis in self.domain.axes(names)]


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
    limit = MAX_TOTAL // max(counts.size, 1)
    if counts.size and not (int(counts.min()) >= 0 and int(counts.max()) <= limit):
        return np.clip(counts, 0, limit)
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
            raise ValueError("counts must be one int64 per cell")
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

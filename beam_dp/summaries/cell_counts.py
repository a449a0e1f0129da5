"""Counts of cells while records stream by: sparse while few are known, dense afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.summaries.shards import BLOCK_CELLS, write_shards, write_sparse_shard

# Up to here the dense array (32 MiB) costs a bundle less than sorting its records would.
_DENSE_CELLS = 2**22
_PENDING_RECORDS = 2**21
_MAX_RECENT = 2**32 - 1


class CellCounts:
    """Exact counts of integer cells.

    Small tables are one dense array from the first record on. Large ones hold the distinct
    cells met so far, sorted, so that a bundle of few records over 2^28 cells stays small,
    and turn dense when the distinct cells would take half the memory of the dense array.
    """

    def __init__(self, num_cells: int) -> None:
        self.num_cells = num_cells
        # Half the size of the final counts: more of them stay in the cache.
        self._recent = np.zeros(num_cells, np.uint32) if num_cells <= _DENSE_CELLS else None
        self._num_recent = 0
        self._dense: NDArray[np.int64] | None = None
        self._cells = np.empty(0, np.int64)
        self._counts = np.empty(0, np.int64)
        self._pending: list[NDArray[Any]] = []
        self._num_pending = 0

    def __repr__(self) -> str:
        return f"CellCounts(num_cells={self.num_cells})"

    def add(self, cells: NDArray[Any]) -> None:
        """Counts one record in each of ``cells``, shape (n,). Cost: 1 to 10 ns a record."""
        if self._recent is not None:
            # numpy's add.at is faster than its bincount, which allocates a table a call; but only
            # with a number of the table's own type.
            if self._num_recent + cells.size > _MAX_RECENT:
                self._count_pending()
            np.add.at(self._recent, cells, np.uint32(1))
            self._num_recent += cells.size
            return
        if self._dense is not None:
            np.add.at(self._dense, cells, np.int64(1))
            return
        self._pending.append(cells)
        self._num_pending += cells.size
        # What is known is sorted again each time: not more often than it doubles.
        if self._num_pending >= max(_PENDING_RECORDS, self._cells.size):
            self._count_pending()

    def to_shards(self) -> Iterator[tuple[int, bytes]]:
        """Yields (block, shard) for each block that has records."""
        return (shard for _, shard in self.to_shards_of_tables(self.num_cells))

    def to_shards_of_tables(self, size: int) -> Iterator[tuple[int, tuple[int, bytes]]]:
        """Yields (table, shard) of many tables: cells of table t begin at ``t * size``."""
        self._count_pending()
        if self._dense is not None:
            for start in range(0, self.num_cells, size):
                for shard in write_shards(self._dense[start : start + size]):
                    yield start // size, shard
            return
        tables, cells = np.divmod(self._cells, size)
        blocks = cells // BLOCK_CELLS
        starts = np.flatnonzero(np.diff(tables, prepend=-1) | np.diff(blocks, prepend=-1)).tolist()
        for start, stop in itertools.pairwise([*starts, blocks.size]):
            block = int(blocks[start])
            offsets = cells[start:stop] - block * BLOCK_CELLS
            yield int(tables[start]), (block, write_sparse_shard(offsets, self._counts[start:stop]))

    def _count_pending(self) -> None:
        if self._recent is not None and self._num_recent:
            if self._dense is None:
                self._dense = np.zeros(self.num_cells, np.int64)
            self._dense += self._recent
            self._recent.fill(0)
            self._num_recent = 0
        if not self._pending:
            return
        pending = np.concatenate(self._pending).astype(np.int64, copy=False)
        self._pending, self._num_pending = [], 0
        cells, counts = np.unique(pending, return_counts=True)
        both = np.concatenate((self._cells, cells))
        order = np.argsort(both, kind="stable")
        both = both[order]
        first = np.flatnonzero(np.diff(both, prepend=-1))
        summed = np.concatenate((self._counts, counts))[order]
        self._cells = both[first]
        self._counts = np.add.reduceat(summed, first) if first.size else summed
        if 4 * self._cells.size >= self.num_cells:
            self._dense = np.zeros(self.num_cells, np.int64)
            self._dense[self._cells] = self._counts
            self._cells, self._counts = np.empty(0, np.int64), np.empty(0, np.int64)

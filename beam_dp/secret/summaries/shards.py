"""Accumulators, counts of cells, and the blocks of counts that workers exchange as bytes.

A shard contains one block of at most ``BLOCK_CELLS`` counts, so that no element exceeds 1 MiB.
Counts are written in the narrowest sufficient type, unsigned if no count is negative. A shard
contains either all counts or only the nonzero counts, whichever is shorter. Adding shards is exact,
associative and commutative.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Batch = TypeVar("Batch", contravariant=True)
State = TypeVar("State")
Summary = TypeVar("Summary", covariant=True)


class Accumulator(Protocol[Batch, State, Summary]):
    """Reduces batches of records to a summary of exact integers.

    Every implementation obeys these laws, which ``tests/secret/test_histogram.py`` checks:
    the summary depends only on the multiset of records, not on batches, order or shards; and the
    summary of zero batches has the same shape as every other summary.

    Workers send a state as shards: pairs of a block number and bytes, which are added block by
    block, in any order. The maximum number of blocks is public. A state that was passed to
    ``add_batch`` must not be used again.
    """

    def create(self) -> State:
        """Returns the state before any record is added."""

    def add_batch(self, state: State, batch: Batch) -> State:
        """Returns the state with the batch added."""

    def to_shards(self, state: State) -> Iterator[tuple[int, bytes]]:
        """Yields the state block by block; blocks without records may be left out."""

    def from_shards(self, shards: Iterable[tuple[int, bytes]]) -> Summary:
        """Returns the summary of all shards; a block may occur any number of times, or never."""


BLOCK_CELLS = 2**17

# The first byte of a shard; the sums of a projection are signed.
_DENSE, _SPARSE, _DENSE_SIGNED, _SPARSE_SIGNED = range(4)
_HEADER_BYTES = 8  # keeps the arrays after the header aligned


def num_blocks(num_cells: int) -> int:
    """Returns the number of blocks needed for ``num_cells`` counts."""
    return -(-num_cells // BLOCK_CELLS)


def write_shards(counts: NDArray[Any]) -> Iterator[tuple[int, bytes]]:
    """Yields (block, shard) for each block of an array that is not all zero."""
    for block in range(num_blocks(counts.size)):
        part = counts[block * BLOCK_CELLS : (block + 1) * BLOCK_CELLS]
        if part.any():
            yield block, write_shard(part)


def write_shard(counts: NDArray[Any]) -> bytes:
    """Returns one block of counts, shape (block length,), as bytes."""
    present = np.flatnonzero(counts)
    kind, width = _narrowest(counts)
    if present.size * (4 + width) < counts.size * width:
        return write_sparse_shard(present, counts[present])
    layout = _DENSE if kind == "u" else _DENSE_SIGNED
    return _header(layout, width) + counts.astype(f"<{kind}{width}").tobytes()


def write_sparse_shard(offsets: NDArray[np.int64], counts: NDArray[Any]) -> bytes:
    """Returns a block that is zero except at distinct ``offsets``, as bytes."""
    kind, width = _narrowest(counts)
    # Counts precede offsets, so that both arrays are aligned.
    return (
        _header(_SPARSE if kind == "u" else _SPARSE_SIGNED, width)
        + counts.astype(f"<{kind}{width}").tobytes()
        + offsets.astype("<u4").tobytes()
    )


def add_shard(into: NDArray[np.int64], shard: bytes) -> None:
    """Adds a shard to its block of counts, in place; a shard may omit trailing zeros."""
    layout, width = shard[0], shard[1]
    body = memoryview(shard)[_HEADER_BYTES:]
    kind = "i" if layout in (_DENSE_SIGNED, _SPARSE_SIGNED) else "u"
    if layout in (_DENSE, _DENSE_SIGNED):
        counts = np.frombuffer(body, f"<{kind}{width}")
        into[: counts.size] += counts.astype(np.int64)
        return
    present = len(body) // (4 + width)
    offsets = np.frombuffer(body, np.uint8, 4 * present, present * width).view("<u4")
    into[offsets] += np.frombuffer(body, f"<{kind}{width}", present).astype(np.int64)


def shard_length(shard: bytes) -> int:
    """Returns the number of counts in a shard's block, without omitted trailing zeros."""
    layout, width = shard[0], shard[1]
    num_bytes = len(shard) - _HEADER_BYTES
    if layout in (_DENSE, _DENSE_SIGNED):
        return num_bytes // width
    present = num_bytes // (4 + width)
    start = _HEADER_BYTES + present * width
    offsets = np.frombuffer(shard, np.uint8, 4 * present, start).view("<u4")
    return int(offsets.max()) + 1 if present else 0


def sum_shards(shards: Iterable[bytes]) -> NDArray[np.int64]:
    """Returns the sum of shards of one block, as an array as long as the longest shard."""
    parts = list(shards)
    total = np.zeros(max(map(shard_length, parts), default=0), np.int64)
    for shard in parts:
        add_shard(total, shard)
    return total


def merge_shards(shards: Iterable[bytes]) -> bytes:
    """Returns the sum of shards of one block, as a shard."""
    parts = list(shards)
    return parts[0] if len(parts) == 1 else write_shard(sum_shards(parts))


def read_shards(shards: Iterable[tuple[int, bytes]], num_cells: int) -> NDArray[np.int64]:
    """Returns the sum of all shards as one array, shape (num_cells,)."""
    total = np.zeros(num_cells, np.int64)
    for block, shard in shards:
        add_shard(total[block * BLOCK_CELLS : (block + 1) * BLOCK_CELLS], shard)
    return total


def _header(layout: int, width: int) -> bytes:
    return bytes((layout, width)).ljust(_HEADER_BYTES, b"\0")


def _narrowest(counts: NDArray[Any]) -> tuple[str, int]:
    """Returns the kind and width in bytes of the narrowest integer type that fits all counts."""
    least, largest = int(counts.min(initial=0)), int(counts.max(initial=0))
    if least < 0:
        reach = 2 * max(largest, -least - 1)
        return "i", next(width for width in (1, 2, 4, 8) if reach < 256**width)
    return "u", next(width for width in (1, 2, 4, 8) if largest < 256**width)


# Up to this size (16 MiB), an array of all cells costs a bundle less time than sorting its records.
_SMALL_CELLS = 2**22
# Up to this size (256 MiB), an array is created once a bundle has a record for every 32 cells: from
# then on, reading all cells (1.5 ns per cell) is faster than sorting records (50 ns per record).
_ARRAY_CELLS = 2**26
_CELLS_A_RECORD = 32
_PENDING_RECORDS = 2**21
_MAX_NARROW = 2**32 - 1
_NONE = np.empty(0, np.int64)


class CellCounts:
    """Exact counts of integer cells.

    Small tables are one array from the first record on. Large tables store the cells of new
    records, and the sorted distinct cells of earlier records, so that a bundle of few records over
    2^28 cells stays small. A large table becomes an array once an array costs less time or takes no
    more memory.
    """

    def __init__(self, num_cells: int) -> None:
        self.num_cells = num_cells
        # 32-bit counts, half as wide as the final counts: more counts fit in the cache.
        self._array: NDArray[Any] | None = None
        if num_cells <= _SMALL_CELLS:
            self._array = np.zeros(num_cells, np.uint32)
        self._num_records = 0
        self._cells = self._counts = _NONE
        self._pending: list[NDArray[Any]] = []
        self._num_pending = 0

    def __repr__(self) -> str:
        return f"CellCounts(num_cells={self.num_cells})"

    def add(self, cells: NDArray[Any]) -> None:
        """Counts one record in each of ``cells``, shape (n,). Cost: 1 to 10 ns per record."""
        self._num_records += cells.size
        if self._array is not None:
            if self._num_records > _MAX_NARROW:
                self._array = self._array.astype(np.int64, copy=False)
            # np.add.at is faster than np.bincount, which allocates a table per call, but only if
            # the increment has the table's own type.
            np.add.at(self._array, cells, self._array.dtype.type(1))
            return
        self._pending.append(cells)
        self._num_pending += cells.size
        if self.num_cells <= min(_ARRAY_CELLS, _CELLS_A_RECORD * self._num_records):
            self.array()
        # Every flush sorts the known cells again, so wait until the number of cells may double.
        elif self._num_pending >= max(_PENDING_RECORDS, self._cells.size):
            self._count_pending()
            if 4 * self._cells.size >= self.num_cells:
                self.array()

    def array(self) -> NDArray[Any]:
        """Stores all counts in one array, shape (num_cells,), uint32 or int64, and returns it."""
        if self._array is None:
            kind = np.uint32 if self._num_records <= _MAX_NARROW else np.int64
            self._array = np.zeros(self.num_cells, kind)
            self._array[self._cells] = self._counts
            for cells in self._pending:
                np.add.at(self._array, cells, kind(1))
            self._pending, self._cells, self._counts = [], _NONE, _NONE
        return self._array

    def to_shards(self) -> Iterator[tuple[int, bytes]]:
        """Yields (block, shard) for each block that has records."""
        return (shard for _, shard in self.to_shards_of_tables(self.num_cells))

    def to_shards_of_tables(self, size: int) -> Iterator[tuple[int, tuple[int, bytes]]]:
        """Yields (table, shard) for many tables; the cells of table t begin at ``t * size``."""
        if self._array is not None:
            for start in range(0, self.num_cells, size):
                for shard in write_shards(self._array[start : start + size]):
                    yield start // size, shard
            return
        self._count_pending()
        tables, cells = np.divmod(self._cells, size)
        blocks = cells // BLOCK_CELLS
        starts = np.flatnonzero(np.diff(tables, prepend=-1) | np.diff(blocks, prepend=-1)).tolist()
        for start, stop in itertools.pairwise([*starts, blocks.size]):
            block = int(blocks[start])
            offsets = cells[start:stop] - block * BLOCK_CELLS
            yield int(tables[start]), (block, write_sparse_shard(offsets, self._counts[start:stop]))

    def _count_pending(self) -> None:
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

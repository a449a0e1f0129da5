"""Blocks of counts as bytes: sums of any of them are the sums of their counts."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from beam_dp.summaries.shards import (
    BLOCK_CELLS,
    CellCounts,
    add_shard,
    merge_shards,
    read_shards,
    shard_length,
    sum_shards,
    write_shard,
    write_sparse_shard,
)

BLOCKS = st.lists(st.integers(-300, 70_000), max_size=30).map(lambda each: np.array(each, np.int64))


@given(st.lists(BLOCKS, max_size=4))
def test_adds_up_shards_of_any_length(blocks):
    expected = np.zeros(30, np.int64)
    shards = [write_shard(each) for each in blocks]
    for each in blocks:
        expected[: each.size] += each
    total = sum_shards(shards)
    assert total.size == max(map(shard_length, shards), default=0) <= 30
    assert np.array_equal(np.pad(total, (0, 30 - total.size)), expected)
    merged = np.zeros(30, np.int64)
    add_shard(merged, merge_shards(shards))
    assert np.array_equal(merged, expected)


def test_length_of_sparse_shard_ends_at_its_last_count():
    assert shard_length(write_sparse_shard(np.array([3, 1]), np.array([7, 9]))) == 4
    assert shard_length(write_sparse_shard(np.zeros(0, np.int64), np.zeros(0, np.int64))) == 0


@given(st.integers(1, 7), st.lists(st.integers(0, 20), max_size=50))
def test_counts_many_tables_in_one_array(size, cells):
    for num_cells in (21 * size, 2**23):  # dense, and sparse
        counts = CellCounts(num_cells)
        counts.add(np.array(cells, np.int64))
        found: dict[int, np.ndarray] = {}
        for table, (block, shard) in counts.to_shards_of_tables(size):
            assert block == 0 and table not in found
            found[table] = read_shards([(block, shard)], size)
        expected = np.bincount(cells, minlength=21 * size)[: 21 * size].reshape(-1, size)
        assert {table: each.tolist() for table, each in found.items()} == {
            table: each.tolist() for table, each in enumerate(expected) if each.any()
        }


def test_splits_tables_of_several_blocks_into_shards():
    size = BLOCK_CELLS + 2
    counts = CellCounts(64 * size)
    counts.add(np.array([0, BLOCK_CELLS, size, 2 * size - 1, 63 * size + 5]))
    found = [(table, block) for table, (block, _) in counts.to_shards_of_tables(size)]
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1), (63, 0)]


@pytest.mark.parametrize("num_cells", [2, 2**23], ids=["array", "array_later"])
def test_counts_may_exceed_2_to_the_32(num_cells):
    counts = CellCounts(num_cells)
    counts.add(np.zeros(3, np.int64))
    counts.array()[0] += 2**32 - 5
    counts._num_records += 2**32 - 5
    counts.add(np.array([0, 0, 0, 1]))
    assert counts.array()[:2].tolist() == [2**32 + 1, 1]
    assert read_shards(counts.to_shards(), num_cells)[:2].tolist() == [2**32 + 1, 1]

"""Exact sums of projections and of elements, also beyond 64 bits."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from sketch_laws import seeded_key

from beam_dp.encoding.batch import KeyBatch
from beam_dp.hashing.projections import BlockSigns, DenseSigns, fold, num_buckets
from beam_dp.summaries import projection as projection_module
from beam_dp.summaries.element_counts import MOST, ElementCounts
from beam_dp.summaries.projection import ProjectionAccumulator, within_squared_norm
from beam_dp.summaries.shards import BLOCK_CELLS, add_shard, merge_shards, write_shard

SIGNS = {
    "dense": DenseSigns(seeded_key(1), 128),
    "blocks": BlockSigns(seeded_key(1), 4 * 64, 4),
    "shards": BlockSigns(seeded_key(1), 2 * BLOCK_CELLS, 1),
}


def batch(rng, size, largest=1):
    keys = rng.integers(0, 50, size, np.uint64)
    return KeyBatch(keys, rng.integers(0, largest + 1, size))


@pytest.mark.parametrize("name", SIGNS)
@pytest.mark.parametrize("pending", [1, 2**14])
@settings(max_examples=15)
@given(
    sizes=st.lists(st.integers(0, 20), max_size=5),
    largest=st.sampled_from([1, 2**40]),
    seed=st.integers(0, 2**32),
)
def test_split_order_and_shards_do_not_change_sums(name, pending, sizes, largest, seed):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projection_module, "_PENDING_KEYS", pending)
        accumulator = ProjectionAccumulator(SIGNS[name])
        rng = np.random.default_rng(seed)
        parts = [batch(rng, size, largest) for size in sizes]
        keys = np.concatenate([np.zeros(0, np.uint64), *(part.keys for part in parts)])
        weights = np.concatenate([np.zeros(0, np.int64), *(part.weights for part in parts)])
        expected = SIGNS[name].project(keys, weights)

        states = [accumulator.add_batch(accumulator.create(), part) for part in parts]
        shards = [shard for state in states for shard in accumulator.to_shards(state)]
        one = accumulator.create()
        for part in parts:
            one = accumulator.add_batch(one, part)
        by_block = {}
        for block, shard in shards:
            by_block.setdefault(block, []).append(shard)
        merged = [(block, merge_shards(each)) for block, each in by_block.items()]
        for summary in (
            accumulator.from_shards(accumulator.to_shards(one)),
            accumulator.from_shards(shards),
            accumulator.from_shards(merged),
        ):
            assert summary.sums.dtype == np.int64
            assert (summary.sums == expected).all()


def test_shards_have_at_most_a_mebibyte():
    assert len(write_shard(np.full(BLOCK_CELLS, -(2**63), np.int64))) <= 2**20 + 8


@given(st.lists(st.sampled_from([0, 1, -1, 127, 128, -128, -129, 2**63 - 1, -(2**63)])))
def test_signed_shards_store_every_integer_exactly(values):
    expected = np.array(values, np.int64)
    total = np.zeros(len(values), np.int64)
    add_shard(total, write_shard(expected))
    assert (total == expected).all()


def test_pickled_accumulator_gives_the_same_sums():
    accumulator = ProjectionAccumulator(SIGNS["blocks"])
    copy = pickle.loads(pickle.dumps(accumulator))
    data = batch(np.random.default_rng(0), 30)
    shards = [
        list(each.to_shards(each.add_batch(each.create(), data))) for each in (accumulator, copy)
    ]
    assert shards[0] == shards[1] != []


def test_repr_shows_no_secrets():
    data = KeyBatch(np.array([77], np.uint64), np.array([88]))
    accumulator = ProjectionAccumulator(SIGNS["dense"])
    state = accumulator.add_batch(accumulator.create(), data)
    summary = accumulator.from_shards(accumulator.to_shards(state))
    for secret in (data, state, summary, ElementCounts.of([data])):
        assert "77" not in repr(secret) and "88" not in repr(secret)


@settings(max_examples=60)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 2, 4, 5]),
    st.sampled_from([1, 3]),
    st.integers(0, 60),
)
def test_sketch_of_each_unit_is_bounded_independently(seed, row_width, rows, bound):
    rng = np.random.default_rng(seed)
    signs = BlockSigns(seeded_key(seed), rows * num_buckets(row_width), rows)
    data = KeyBatch(rng.integers(0, 6, 40, np.uint64), rng.integers(0, 4, 40))
    units = np.sort(rng.integers(0, 6, 40))
    together = within_squared_norm(data, units, signs, row_width, bound)
    apart = []
    for unit in np.unique(units):
        own = units == unit
        alone = KeyBatch(data.keys[own], data.weights[own])
        kept = within_squared_norm(alone, units[own], signs, row_width, bound)
        cells = fold(signs.project(kept.keys, kept.weights), rows, row_width)
        assert (cells**2).sum() <= bound
        apart += list(zip(kept.keys.tolist(), kept.weights.tolist(), strict=True))
    assert list(zip(together.keys.tolist(), together.weights.tolist(), strict=True)) == apart


def batch_of(*pairs: tuple[int, int]) -> KeyBatch:
    keys, weights = zip(*pairs, strict=True)
    return KeyBatch(np.array(keys, np.uint64), np.array(weights, np.int64))


def test_sums_are_exact_for_any_split_into_batches():
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 50, 1000).astype(np.uint64)
    weights = rng.integers(0, 2**40, 1000)
    batches = [KeyBatch(keys[part], weights[part]) for part in np.array_split(np.arange(1000), 7)]
    counted = ElementCounts.of(batches)
    expected = {int(key): int(weights[keys == key].sum()) for key in np.unique(keys)}
    assert dict(zip(counted.elements.tolist(), counted.counts.tolist(), strict=True)) == expected


def test_elements_of_weight_zero_are_dropped():
    assert ElementCounts.of([batch_of((3, 0), (4, 1))]).elements.tolist() == [4]
    empty = ElementCounts.of([])
    assert len(empty.counts) == 0 and empty.elements.dtype == np.uint64


@pytest.mark.parametrize("partial", [MOST - 2, MOST - 1, MOST])
def test_adding_a_record_raises_a_count_by_at_most_one(partial):
    """A sum that wraps around would: its element would be gone, for one record more."""
    others = [batch_of((7, partial)), batch_of((7, partial)), batch_of((7, partial))]
    for parts in (others[:1], others):
        before = ElementCounts.of(parts).counts[0]
        after = ElementCounts.of([*parts, batch_of((7, 1))]).counts[0]
        assert 0 <= after - before <= 1
        assert after <= MOST


def test_partial_sums_add_up_in_any_order():
    parts = [
        batch_of((1, MOST - 5)),
        batch_of((1, 3)),
        batch_of((1, 4), (2, 9)),
        batch_of((1, MOST)),
    ]
    forms = {
        tuple(ElementCounts.of(order).counts.tolist())
        for order in (parts, parts[::-1], [parts[1], parts[2], parts[0], parts[3]])
    }
    first = ElementCounts.of(parts[:2])
    merged = ElementCounts.of([KeyBatch(first.elements, first.counts), *parts[2:]])
    assert forms == {(MOST, 9)} == {tuple(merged.counts.tolist())}

"""Blocks of counts as bytes: sums of any of them are the sums of their counts."""

import collections
import pickle

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st
from sketch_laws import seeded_key

from beam_dp.hashing.projections import BlockSigns, DenseSigns, fold, num_buckets
from beam_dp.secret.encoding.batch import KeyBatch
from beam_dp.secret.encoding.units import unit_fingerprints
from beam_dp.secret.summaries import projection as projection_module
from beam_dp.secret.summaries.projection import ProjectionAccumulator, within_squared_norm
from beam_dp.secret.summaries.shards import (
    BLOCK_CELLS,
    CellCounts,
    add_shard,
    merge_shards,
    read_shards,
    shard_length,
    sum_shards,
    write_shard,
)
from beam_dp.secret.summaries.sparse_counts import (
    MOST,
    ElementCounts,
    merged_by_name,
    merged_by_text,
    split_by_text,
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


TEXTS = [
    b"",
    b"a",
    b"aa",
    b"a" * 8,
    b"a" * 9,
    b"a" * 300,
    b"b" * 300,
    b"abcdefgh" * 3,
    b"\xff\0",
    b"\0",
]
TEXTS += [b"a" * 20 + bytes((n,)) + b"a" * 30 for n in range(20)]  # their hashes are equal


def batch(texts: list[bytes], weights: list[int] | None = None) -> KeyBatch:
    ones = weights or [1] * len(texts)
    keys = np.array([len(text) for text in texts], np.uint64)
    return KeyBatch(keys, np.array(ones, np.int64), texts=pa.array(texts, pa.large_binary()))


def sums(merged: KeyBatch) -> dict[bytes, int]:
    assert merged.texts is not None
    texts = merged.texts.to_pylist()
    assert len(set(texts)) == len(texts)
    assert merged.keys.tolist() == [len(text) for text in texts]
    return dict(zip(texts, merged.weights.tolist(), strict=True))


def random_texts(seed: int, size: int) -> list[bytes]:
    generator = np.random.default_rng(seed)
    return [TEXTS[n] for n in generator.integers(0, len(TEXTS), size)] + [
        generator.bytes(n) for n in generator.integers(0, 4, size)
    ]


def test_texts_are_summed_over_batches():
    parts = [random_texts(seed, 200) for seed in range(3)]
    expected = collections.Counter(text for part in parts for text in part)
    assert sums(merged_by_text([batch(part) for part in parts])) == expected
    assert sums(merged_by_text([])) == {}


@pytest.mark.parametrize("start", [0, 3])
def test_equal_texts_are_in_the_same_partition_whatever_is_around_them(start):
    found = collections.defaultdict(set)
    rows = collections.Counter[bytes]()
    for seed in range(3):
        texts = random_texts(seed, 400)[start:]
        whole = batch([b"x"] * start + texts)
        assert whole.texts is not None
        sliced = KeyBatch(whole.keys[start:], whole.weights[start:], texts=whole.texts.slice(start))
        for number, part in split_by_text(sliced):
            assert 0 <= number < 256 and part.texts is not None
            for text in part.texts.to_pylist():
                found[text].add(number)
            rows.update(part.texts.to_pylist())
            assert part.keys.tolist() == [len(text) for text in part.texts.to_pylist()]
        rows.subtract(texts)
    assert {len(numbers) for numbers in found.values()} == {1}
    assert not any(rows.values())
    assert len(set.union(*found.values())) > 50


def test_empty_batch_has_no_partitions():
    assert list(split_by_text(batch([]))) == []


def named(texts: list[bytes], weights: list[int], *, with_texts: bool) -> KeyBatch:
    made = batch(texts, weights)
    names, _ = unit_fingerprints(pa.array(texts, pa.binary()))
    return KeyBatch(made.keys, made.weights, names=names, texts=made.texts if with_texts else None)


def test_weights_meet_their_texts_and_names_without_weight_are_kept():
    weights = named([b"a", b"bb", b"a"], [3, 4, 5], with_texts=False)
    texts = named([b"ccc", b"a", b"bb", b"a"], [0, 0, 0, 0], with_texts=True)
    for batches in ([weights, texts], [texts, weights]):
        assert sums(merged_by_name(batches)) == {b"a": 8, b"bb": 4, b"ccc": 0}
    alone = merged_by_name([weights])
    assert alone.texts is None and sorted(alone.weights.tolist()) == [4, 8]
    assert merged_by_name([]).num_rows == 0


def test_sums_are_capped_instead_of_wrapping():
    large = batch([b"a", b"a", b"a", b"b"], [MOST - 1, MOST - 1, MOST - 1, 2])
    assert sums(merged_by_text([large])) == {b"a": MOST, b"b": 2}


SIGNS = {
    "dense": DenseSigns(seeded_key(1), 128),
    "blocks": BlockSigns(seeded_key(1), 4 * 64, 4),
    "shards": BlockSigns(seeded_key(1), 2 * BLOCK_CELLS, 1),
}


def random_batch(rng, size, largest=1):
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
        parts = [random_batch(rng, size, largest) for size in sizes]
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


@given(st.lists(st.sampled_from([0, 1, -1, 127, 128, -128, -129, 2**63 - 1, -(2**63)])))
def test_signed_shards_store_every_integer_exactly(values):
    expected = np.array(values, np.int64)
    total = np.zeros(len(values), np.int64)
    add_shard(total, write_shard(expected))
    assert (total == expected).all()


def test_pickled_accumulator_gives_the_same_sums():
    accumulator = ProjectionAccumulator(SIGNS["blocks"])
    copy = pickle.loads(pickle.dumps(accumulator))
    data = random_batch(np.random.default_rng(0), 30)
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

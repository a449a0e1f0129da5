"""Which records stay, against the definition written out one record at a time."""

from __future__ import annotations

import collections

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings, strategies as st

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import EncodedBatch, RecordWords, from_bytes, record_bytes, to_bytes
from beam_dp.encoding.contributions import (
    add_identical,
    distinct_units,
    select_records,
    split_by_unit,
)
from beam_dp.encoding.units import unit_fingerprints

Records = list[tuple[int, int]]  # unit, cell


def survivors(records: Records, k: int, order: list[int] | None = None) -> collections.Counter:
    if order is not None:
        records = [records[i] for i in order]
    units, _ = unit_fingerprints(pa.array([unit for unit, _ in records], pa.int64()))
    cells = np.array([cell for _, cell in records], np.uint32)
    kept = select_records(units, [cells], np.ones(len(records), np.int64), k, None)
    return collections.Counter(records[i] for i in kept)


RECORDS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), max_size=30)


@pytest.mark.slow
@settings(max_examples=200)
@given(RECORDS, st.integers(1, 5), st.randoms())
def test_a_unit_keeps_at_most_k_of_its_own_records_in_any_order(
    records: Records, k: int, random: object
) -> None:
    order = list(range(len(records)))
    random.shuffle(order)  # type: ignore[attr-defined]
    kept = survivors(records, k)
    assert kept == survivors(records, k, order)
    assert not kept - collections.Counter(records)
    sizes = collections.Counter(unit for unit, _ in records)
    assert collections.Counter(unit for unit, _ in kept.elements()) == {
        unit: min(k, size) for unit, size in sizes.items()
    }


@settings(max_examples=100)
@given(RECORDS, st.integers(1, 5), st.integers(0, 4))
def test_a_unit_more_or_less_changes_no_other_unit(records: Records, k: int, gone: int) -> None:
    rest = [record for record in records if record[0] != gone]
    with_it = survivors(records, k)
    assert survivors(rest, k) == collections.Counter(
        {record: count for record, count in with_it.items() if record[0] != gone}
    )


def test_of_a_unit_a_uniform_sample_stays() -> None:
    """A unit with 3 records in one cell and 1 in another keeps the latter in a quarter of cases.

    20,000 units: the standard error is 0.0031; a false alarm has probability below 1e-8.
    """
    num_units = 20_000
    records = [(unit, cell) for unit in range(num_units) for cell in (5, 5, 5, 9)]
    kept = survivors(records, 1)
    share = sum(count for (_, cell), count in kept.items() if cell == 9) / num_units
    assert abs(share - 0.25) < 0.018


def test_as_many_units_as_there_may_be_stay_apart() -> None:
    """More than 65,536 units, at which their numbers outgrow the sort's 16 bits."""
    units, _ = unit_fingerprints(pa.array(np.arange(140_000) % 70_000))
    words = [np.arange(140_000, dtype=np.uint32)]
    ones = np.ones(140_000, np.int64)
    kept = select_records(units, words, ones, 1, None)
    assert np.unique(kept % 70_000).size == kept.size == 70_000
    few = np.flatnonzero(np.arange(140_000) % 70_000 < 5)
    alone = few[select_records(units[:, few], [words[0][few]], ones[few], 1, None)]
    assert set(alone.tolist()) == {each for each in kept.tolist() if each % 70_000 < 5}


def test_units_that_agree_in_half_of_their_fingerprints_stay_apart() -> None:
    units = np.array([[1, 1, 1, 1], [2, 3, 2, 3]], np.uint64)
    words = [np.array([0, 0, 1, 1], np.uint32)]
    kept = select_records(units, words, np.ones(4, np.int64), 1, None)
    assert sorted(units[1, kept].tolist()) == [2, 3]


def test_no_records_are_no_records() -> None:
    none = np.empty((2, 0), np.uint64), [np.empty(0, np.uint32)], np.empty(0, np.int64)
    assert select_records(*none, 3, None).size == 0
    assert add_identical(*none)[2].size == 0


@pytest.mark.parametrize("num_partitions", [1, 2, 256, 2**16])
def test_each_unit_is_in_one_partition(num_partitions: int) -> None:
    units, _ = unit_fingerprints(pa.array(np.arange(3000) % 500))
    cells = np.arange(3000, dtype=np.uint32)
    seen: dict[int, int] = {}
    found = []
    for partition, units_here, (cells_here,) in split_by_unit(units, [cells], num_partitions):
        assert 0 <= partition < num_partitions
        for low, cell in zip(units_here[1].tolist(), cells_here.tolist(), strict=True):
            assert seen.setdefault(low, partition) == partition
            assert low == int(units[1, cell])
            found.append(cell)
    assert sorted(found) == list(range(3000))
    assert len(set(seen.values())) > min(num_partitions, 256) * 0.7


@pytest.mark.parametrize(
    "sizes", [(3, 4), (1,), (2**31, 2), (2**40, 2**22), (2**40, 3, 2**40, 2**62, 5, 7)], ids=str
)
def test_records_survive_the_journey_as_bytes(sizes: tuple[int, ...]) -> None:
    domain = Domain(tuple(IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(sizes)))
    words = RecordWords(domain)
    rng = np.random.default_rng(0)
    codes = [rng.integers(0, size, 50) for size in sizes]
    units = rng.integers(0, 2**63, (2, 50)).astype(np.uint64)
    packed = words.from_batch(EncodedBatch(codes=codes))
    counts = rng.integers(1, 3, 50)
    counts[30:40], counts[40:] = 1, [1, 255, 256, 2**16, 2**32 - 1, 2**32, 2**62, 2**63 - 1, 7, 1]
    chunks = [
        to_bytes(words, units[:, s], [word[s] for word in packed], counts[s])
        for s in (slice(20), slice(20, 20), slice(20, 30), slice(30, 40), slice(40, 50))
    ]
    units_back, words_back, counts_back = from_bytes(words, chunks)
    np.testing.assert_array_equal(units_back, units)
    np.testing.assert_array_equal(counts_back, counts)
    for column, back in zip(
        codes, words.to_batch(words_back, units_back).code_columns(domain), strict=True
    ):
        np.testing.assert_array_equal(back, column)
    # Counts of one cost one byte in all.
    assert len(chunks[3]) == 1 + 10 * record_bytes(words)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=40))
def test_distinct_units_are_in_order_and_each_record_has_its_own(pairs: list[tuple[int, int]]):
    """Also where units share their first word."""
    units = np.array(pairs, np.uint64).reshape(-1, 2).T
    distinct, places = distinct_units(units)
    assert [tuple(each) for each in distinct.T.tolist()] == sorted(set(pairs))
    np.testing.assert_array_equal(distinct[:, places], units)

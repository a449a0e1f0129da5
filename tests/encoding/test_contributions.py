"""Which records stay, against the definition written out one record at a time."""

import collections
import itertools

import numpy as np
import pyarrow as pa
import pytest
from collisions import survivors
from hypothesis import given, settings, strategies as st

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding import contributions
from beam_dp.encoding.batch import CostLimit, RecordWords, from_bytes, record_bytes, to_bytes
from beam_dp.encoding.contributions import (
    add_identical,
    distinct_units,
    select_records,
    split_by,
    split_by_unit,
)
from beam_dp.encoding.records import EncodedBatch
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.privacy import unit_costs as module
from beam_dp.privacy.unit_costs import PARTS, UnitCosts

# A unit, and the only word of a record: its cell.
RECORDS = st.lists(st.tuples(st.integers(0, 4), st.tuples(st.integers(0, 3))), max_size=30)


@settings(max_examples=100)
@given(RECORDS, st.integers(1, 5), st.integers(0, 4))
def test_adding_a_unit_changes_no_kept_records_of_other_units(records, k, gone):
    rest = [record for record in records if record[0] != gone]
    with_it = survivors(records, k)
    assert survivors(rest, k) == collections.Counter(
        {record: count for record, count in with_it.items() if record[0] != gone}
    )


def test_kept_records_are_a_uniform_sample():
    """A unit with 3 records in one cell and 1 in another keeps the latter in a quarter of cases.

    20,000 units: the standard error is 0.0031; a false alarm has probability below 1e-8.
    """
    num_units = 20_000
    records = [(unit, (cell,)) for unit in range(num_units) for cell in (5, 5, 5, 9)]
    kept = survivors(records, 1)
    share = sum(count for (_, cell), count in kept.items() if cell == (9,)) / num_units
    assert abs(share - 0.25) < 0.018


def test_keeps_records_of_each_of_more_than_65536_units():
    """More than 65,536 units, at which their numbers outgrow the sort's 16 bits."""
    units, _ = unit_fingerprints(pa.array(np.arange(140_000) % 70_000))
    words = [np.arange(140_000, dtype=np.uint32)]
    ones = np.ones(140_000, np.int64)
    kept = select_records(units, words, ones, 1, None)
    assert np.unique(kept % 70_000).size == kept.size == 70_000
    few = np.flatnonzero(np.arange(140_000) % 70_000 < 5)
    alone = few[select_records(units[:, few], [words[0][few]], ones[few], 1, None)]
    assert set(alone.tolist()) == {each for each in kept.tolist() if each % 70_000 < 5}


def test_selection_from_no_records_is_empty():
    none = np.empty((2, 0), np.uint64), [np.empty(0, np.uint32)], np.empty(0, np.int64)
    assert select_records(*none, 3, None).size == 0
    assert add_identical(*none)[2].size == 0


@pytest.mark.parametrize("num_partitions", [1, 2, 256, 2**16])
def test_each_unit_is_in_one_partition(num_partitions):
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
def test_records_round_trip_through_bytes(sizes):
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
def test_distinct_units_are_sorted_and_indexed(pairs):
    """Also where units share their first word."""
    units = np.array(pairs, np.uint64).reshape(-1, 2).T
    distinct, places = distinct_units(units)
    assert [tuple(each) for each in distinct.T.tolist()] == sorted(set(pairs))
    np.testing.assert_array_equal(distinct[:, places], units)


@given(
    numbers=st.lists(st.integers(0, 70_000), max_size=60),
    most=st.sampled_from([70_001, 2**32]),
    few=st.booleans(),
)
def test_split_keeps_the_order_of_rows_with_equal_numbers(numbers, most, few):
    if few:
        numbers, most = [number % 3 for number in numbers], 3
    rows = np.arange(len(numbers))
    found = {}
    for number, (pairs, same) in split_by(
        np.array(numbers, np.int64), most, [np.stack([rows, -rows]), rows]
    ):
        assert (pairs == [same, -same]).all()
        found[number] = same.tolist()
    expected: dict[int, list[int]] = {}
    for row, number in enumerate(numbers):
        expected.setdefault(number, []).append(row)
    assert found == expected
    assert list(found) == sorted(found)


@pytest.mark.parametrize("largest", [2**16 - 1, 2**16, 2**32 - 1])
def test_splits_by_numbers_of_16_and_32_bits(largest):
    numbers = np.array([largest, 0, largest])
    found = {number: kept.tolist() for number, (kept,) in split_by(numbers, largest + 1, [numbers])}
    assert found == {0: [0], largest: [largest, largest]}


COUNTS = st.sampled_from([1, 1, 1, 2, 3, 40])
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), COUNTS), min_size=1, max_size=60)


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, k=st.integers(1, 6))
def test_unit_with_many_colliding_rows_keeps_the_same_records(rows, k):
    """Every hash is one of three: rows of equal hashes are of several kinds."""
    unit, word, counts = map(np.array, zip(*rows, strict=True))
    units = np.stack((unit // 2, unit)).astype(np.uint64)  # some with equal halves
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            contributions, "_hashes", lambda units, words: words[0].astype(np.uint64) % np.uint64(3)
        )
        expected = select_records(units, [word], counts, k, None)
        patch.setattr(contributions, "_MANY_ROWS", 1)
        kept = select_records(units, [word], counts, k, None)
    as_rows = [sorted((int(unit[i]), int(word[i])) for i in each) for each in (kept, expected)]
    assert as_rows[0] == as_rows[1]


def test_sorts_only_few_rows_of_a_unit_with_many_rows(monkeypatch):
    found = []
    select = contributions._select
    monkeypatch.setattr(
        contributions, "_select", lambda units, *rest: found.append(units) or select(units, *rest)
    )
    rng = np.random.default_rng(0)
    units = np.repeat(rng.integers(0, 2**64, (2, 1), np.uint64), 2**17, axis=1)
    words = [rng.integers(0, 2**40, 2**17).astype(np.uint64)]
    assert select_records(units, words, np.ones(2**17, np.int64), 3, None).size == 3
    assert found[0].shape[1] < 10


DOMAIN = Domain(tuple(IntegerAttribute(name, 0, 2) for name in "abc"))
OF_UNITS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 26)), max_size=80)


def limit(seed: int, most: float, axes: tuple[int, ...] = (0, 1, 2)) -> UnitCosts:
    """Random costs of pairs, some below nothing."""
    pairs = np.random.default_rng(seed).integers(-PARTS // 4, PARTS // 2, 2 ** len(axes))
    pairs[-1] = PARTS
    return UnitCosts(axes, pairs, int(most**2 * PARTS))


def kept_one_by_one(costs: UnitCosts, codes: list[np.ndarray]) -> int:
    """How many records of one unit stay, in their order."""
    total = 0
    for place in range(len(codes[0])):
        total += PARTS
        for other in range(place):
            pattern = sum(
                int(codes[axis][place] == codes[axis][other]) << bit
                for bit, axis in enumerate(costs.axes)
            )
            total += 2 * int(costs.pairs[pattern])
        if total > costs.limit:
            return place
    return len(codes[0])


@settings(max_examples=150, deadline=None)
@given(OF_UNITS, st.integers(0, 99), st.floats(1, 6), st.sampled_from([(0, 1, 2), (0, 2), ()]))
def test_keeps_first_records_until_one_costs_too_much(records, seed, most, axes):
    costs = limit(seed, most, axes)
    records = sorted(records, key=lambda each: each[0])
    unit = np.array([each for each, _ in records], np.intp)
    codes = list(DOMAIN.codes(np.array([cell for _, cell in records], np.int64)))
    kept = costs.keeps(unit, codes)
    expected = []
    for _, group in itertools.groupby(range(len(records)), lambda place: records[place][0]):
        places = list(group)
        number = kept_one_by_one(costs, [code[places] for code in codes])
        expected += [place < number for place in range(len(places))]
    assert kept.tolist() == expected


@pytest.mark.parametrize("step_pairs", [1, 200, 2**20])
def test_step_size_does_not_change_the_selection(step_pairs, monkeypatch):
    rng = np.random.default_rng(3)
    unit = np.sort(rng.integers(0, 40, 900)).astype(np.intp)
    codes = [rng.integers(0, 3, 900) for _ in range(3)]
    costs = limit(1, 4.5)
    whole = costs.keeps(unit, codes)
    monkeypatch.setattr(module, "_STEP_PAIRS", step_pairs)
    assert (costs.keeps(unit, codes) == whole).all()
    assert 0 < whole.sum() < unit.size


@pytest.mark.parametrize("most", [1.0, 1.5, 2.0, 2.9999999, 3.0, 1000.0])
def test_num_free_is_number_of_records_that_always_fit(most):
    costs = UnitCosts((), np.array([PARTS]), int(most**2 * PARTS))
    assert costs.num_free == int(most)


def selected(
    cells: list[int], most: int, costs: UnitCosts, order: np.ndarray, other: int = 0
) -> collections.Counter[int]:
    """The kept records of unit 7, which arrive in some order, among those of another."""
    held = np.array(cells, np.int64)[order]
    units = np.array([[3] * (len(held) + other), [7] * len(held) + [8] * other], np.uint64)
    words = RecordWords(DOMAIN)
    columns = [np.concatenate((held, np.arange(other) % 27)).astype(words.dtypes[0])]
    counts = np.ones(columns[0].size, np.int64)
    kept = select_records(units, columns, counts, most, CostLimit(words, costs))
    return collections.Counter(columns[0][kept][units[1, kept] == 7].tolist())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 26), max_size=60), st.integers(0, 9), st.integers(0, 40))
def test_selection_depends_only_on_records_of_the_unit(cells, seed, other):
    costs = limit(seed, 3.3)
    plain = selected(cells, 20, costs, np.arange(len(cells)))
    shuffled = np.random.default_rng(seed).permutation(len(cells))
    assert selected(cells, 20, costs, shuffled, other) == plain
    assert plain.total() <= 20 and not plain - collections.Counter(cells)
    assert plain.total() >= min(3, len(cells))


def test_row_with_count_n_is_selected_like_n_rows():
    costs = limit(4, 5.0)
    words = RecordWords(DOMAIN)
    counts = np.array([9, 30, 1, 14], np.int64)
    cells = np.array([5, 11, 0, 26]).astype(words.dtypes[0])
    units = np.full((2, 4), 7, np.uint64)
    kept = select_records(units, [cells], counts, 40, CostLimit(words, costs))
    one_each = np.repeat(cells, counts)
    single = select_records(
        np.full((2, one_each.size), 7, np.uint64),
        [one_each],
        np.ones(one_each.size, np.int64),
        40,
        CostLimit(words, costs),
    )
    assert sorted(cells[kept]) == sorted(one_each[single])
    assert 5 <= kept.size <= 40


def test_number_of_records_is_limited_even_if_costs_cancel():
    pairs = np.full(8, -PARTS // 10, np.int64)
    pairs[-1] = PARTS
    costs = UnitCosts((0, 1, 2), pairs, 4 * PARTS)
    cells = list(range(27))
    assert selected(cells, 27, costs, np.arange(27)).total() == 27
    assert selected(cells, 10, costs, np.arange(27)).total() == 10


def test_cost_limit_keeps_every_kind_of_record_equally_often():
    """Of equal kinds each stays as often: over many units the mean code is that of all."""
    pairs = np.full(8, PARTS // 8, np.int64)
    pairs[-1] = PARTS
    costs = UnitCosts((0, 1, 2), pairs, 9 * PARTS)
    words = RecordWords(DOMAIN)
    num_units = 2000
    columns = [np.tile(np.arange(27), num_units).astype(words.dtypes[0])]
    units = np.stack([np.repeat(np.arange(num_units), 27)] * 2).astype(np.uint64)
    kept = select_records(
        units, columns, np.ones(27 * num_units, np.int64), 27, CostLimit(words, costs)
    )
    each = np.bincount(columns[0][kept].astype(np.int64), minlength=27)
    expected = kept.size / 27
    assert kept.size < 27 * num_units
    # Each count is binomial: 27 of them are within 6 deviations but for one case in 10^7.
    assert np.abs(each - expected).max() < 6 * np.sqrt(expected)

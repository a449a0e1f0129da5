"""Which records stay, against the definition written out one record at a time.

Some records are made to have equal hashes: these cases fail where ties fall to the order of
arrival, or to a sort that is not stable.
"""

import collections
import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from collisions import (
    colliding_cells,
    colliding_weights,
    kept_by_definition,
    mix,
    record_hash,
    survivors,
    unit_hash,
    unmix,
    with_hash,
)
from hypothesis import example, given, settings, strategies as st
from numpy.typing import NDArray

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.privacy import unit_costs as module
from beam_dp.privacy.unit_costs import PARTS, UnitCosts
from beam_dp.secret.encoding import contributions, units as units_module
from beam_dp.secret.encoding.batch import (
    CostLimit,
    KeyBatch,
    RecordWords,
    from_bytes,
    merged_keys,
    record_bytes,
    to_bytes,
)
from beam_dp.secret.encoding.contributions import (
    add_identical,
    distinct_units,
    select_records,
    split_by,
    split_by_unit,
)
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.encoding.units import unit_fingerprints

Held = list[tuple[int, tuple[int, int]]]  # unit, words


def twins(unit: int) -> Held:
    """Different records, all with one hash."""
    return [(unit, words) for words in itertools.islice(colliding_cells(unit), 5)]


def weighted_twins(unit: int) -> Held:
    return [(unit, record) for record in colliding_weights(unit, 7 + unit, (2**32, 1, 2, 3))]


def late_twins(unit: int) -> Held:
    """Three of a record, and others with the hashes of the second and the third."""
    records = [(unit, (1, 2))] * 3
    for number in (1, 2):
        wanted = record_hash(unit, (1, 2), number)
        records += [(unit, (first, with_hash(unit, first, wanted))) for first in (5, 6)]
    return records


def interleaved_twins(unit: int) -> Held:
    """Identical ones between twins, so that they are no neighbours in the order of arrival."""
    first, second, *_ = twins(unit)
    return [first, second, first, second, first, first]


CASES: list[Callable[[int], Held]] = [twins, weighted_twins, late_twins, interleaved_twins]


def test_unmix_inverts_the_hash_and_cases_collide():
    for word in (0, 1, 2**63, 2**64 - 1, 0x0123456789ABCDEF):
        assert mix(unmix(word)) == unmix(mix(word)) == word
        assert mix(word) == int(units_module.mix(np.array([word], np.uint64))[0])
    for case in (twins, weighted_twins):
        assert len({record_hash(unit, words) for unit, words in case(3)}) == 1
        assert len(set(case(3))) == len(case(3))
    assert (
        len({record_hash(3, words, int(words == (1, 2))) for _, words in late_twins(3)[2:5]}) == 1
    )


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("many", [1, contributions._MANY_ROWS])
def test_selects_same_colliding_records_in_any_order(monkeypatch, case, k, many):
    monkeypatch.setattr(contributions, "_MANY_ROWS", many)
    shuffled = random.Random(1)
    held = case(3)
    expected = kept_by_definition(held, k)
    assert expected.total() == k
    for _ in range(20):
        assert survivors(held, k) == expected
        shuffled.shuffle(held)


@pytest.mark.parametrize("case", CASES)
def test_other_units_do_not_affect_choice_of_colliding_records(case):
    """Crafted units among many of one record, which once moved a sum by 8 times the bound."""
    crafted = [record for unit in range(12) for record in case(unit)]
    others = [(unit, (unit, 0)) for unit in range(100, 700)]
    everything = survivors(crafted + others, 1)
    for gone in (0, 11, 100, 400, 699):
        left = [record for record in crafted + others if record[0] != gone]
        for order in (left, left[::-1], others[gone % 50 :] + others[: gone % 50] + crafted):
            kept = survivors([record for record in order if record[0] != gone], 1)
            changed = (everything - kept) + (kept - everything)
            assert {unit for unit, _ in changed} == {gone}, "another unit keeps another record"
            assert changed.total() == 1


def alike() -> NDArray[np.uint64]:
    """Two units that differ in both halves, and whose records have hashes of one start."""
    units = np.array([[1, mix(2) ^ 1 ^ mix(5)], [2, 5]], np.uint64)
    starts = [mix(int(high) ^ mix(int(low))) for high, low in units.T]
    assert starts[0] == starts[1] and starts[0] != unit_hash(0)
    return units


@pytest.mark.parametrize("hashed", [1, 2, contributions._HASHED_RECORDS])
def test_separates_units_whose_hashes_share_a_prefix(monkeypatch, hashed):
    """The hash of a record says nothing about its unit, also where parts of them are hashed."""
    monkeypatch.setattr(contributions, "_HASHED_RECORDS", hashed)
    both = alike()[:, [0, 1, 0, 1, 0, 1]]
    words = [np.array([1, 1, 2, 2, 3, 3], np.uint64)]
    for counts in ([1] * 6, [2] * 6, [1, 3, 1, 1, 2, 1]):
        kept = select_records(both, words, np.array(counts), 2, None)
        assert sorted(both[1, kept].tolist()) == [2, 2, 5, 5]
    ones = np.ones(12, np.int64)
    twice = both.repeat(2, axis=1), [words[0].repeat(2)]
    assert contributions.add_identical(*twice, ones)[2].tolist() == [2] * 6
    assert contributions.distinct_records(*twice).size == 6


@pytest.mark.parametrize("units", [[[1, 1], [2, 3]], [[2, 3], [1, 1]]], ids=["high", "low"])
def test_separates_units_with_many_rows_that_have_equal_halves(monkeypatch, units):
    monkeypatch.setattr(contributions, "_MANY_ROWS", 1)
    halves = np.array(units, np.uint64)
    assert select_records(halves, [np.array([1, 2])], np.ones(2, np.int64), 1, None).size == 2


def test_repeats_that_continue_in_the_next_part_keep_their_numbers(monkeypatch):
    monkeypatch.setattr(contributions, "_MANY_ROWS", 1)
    monkeypatch.setattr(contributions, "_HASHED_RECORDS", 4)
    for unit in range(50):
        held = [(unit, (max(0, word),)) for word in range(-7, 40)]  # eight of the first
        assert survivors(held, 3) == kept_by_definition(held, 3)


COUNTS = st.sampled_from([1, 1, 1, 1, 2, 3, 40])
ROWS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 1), COUNTS),
    min_size=1,
    max_size=60,
)


@settings(max_examples=100)
@given(
    rows=ROWS,
    k=st.integers(1, 12),
    first=st.integers(0, 2**32),
    hashed=st.integers(1, 9),
    many=st.sampled_from([1, contributions._MANY_ROWS]),
)
def test_selection_is_the_definition_however_records_are_counted(rows, k, first, hashed, many):
    """With few records hashed at a time, and with units of many rows taken apart."""
    units, left, right, counts = (np.array(column) for column in zip(*rows, strict=True))
    units += first
    fingerprints, _ = unit_fingerprints(pa.array(units))
    words = [left.astype(np.uint32), right.astype(np.int64)]
    held = [(unit + first, (a, b)) for unit, a, b, count in rows for _ in range(count)]
    expected = kept_by_definition(held, k)
    sizes = collections.Counter(unit for unit, _ in held)
    kept = collections.Counter(unit for unit, _ in expected.elements())
    assert kept == {unit: min(k, size) for unit, size in sizes.items()}
    assert not expected - collections.Counter(held)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributions, "_HASHED_RECORDS", hashed)
        patch.setattr(contributions, "_MANY_ROWS", many)
        merged, merged_words, sums = contributions.add_identical(fingerprints, words, counts)
        assert sums.sum() == len(held) and len(sums) == len({row[:3] for row in rows})
        assert kept_of(merged, merged_words, sums, k) == without_units(expected)
        assert kept_of(fingerprints, words, counts, k) == without_units(expected)


def kept_of(
    units: NDArray[np.uint64], words: list[NDArray[Any]], counts: NDArray[np.int64], k: int
) -> collections.Counter:
    kept = select_records(units, words, counts, k, None)
    columns = [units[1, kept], *(word[kept] for word in words)]
    return collections.Counter(zip(*(column.tolist() for column in columns), strict=True))


def without_units(kept: collections.Counter) -> collections.Counter:
    lows = {unit: unit_fingerprints(pa.array([unit]))[0][1, 0].item() for unit, _ in kept}
    return collections.Counter({(lows[unit], *words): n for (unit, words), n in kept.items()})


def test_counts_of_identical_records_add_up_exactly():
    units, _ = unit_fingerprints(pa.array([1, 2, 1, 1]))
    counts = np.array([2**61 + 1, 5, 2**61, 2**62 - 2])
    _, _, sums = contributions.add_identical(units, [np.zeros(4, np.uint32)], counts)
    assert sorted(sums.tolist()) == [5, 2**63 - 1]


def test_records_with_equal_hashes_are_not_added_up():
    held = [*twins(3), *twins(3)]
    units, _ = unit_fingerprints(pa.array([unit for unit, _ in held]))
    words = [np.array(each, np.uint64) for each in zip(*(words for _, words in held), strict=True)]
    _, (left, right), sums = contributions.add_identical(units, words, np.ones(len(held), np.int64))
    assert sums.tolist() == [2] * 5
    assert set(zip(left.tolist(), right.tolist(), strict=True)) == {words for _, words in held}


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


@example(numbers=[2**16 - 1, 0, 2**16 - 1], most=2**16, few=False)
@example(numbers=[2**16, 0, 2**16], most=2**16 + 1, few=False)
@example(numbers=[2**32 - 1, 0, 2**32 - 1], most=2**32, few=False)
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


def test_sorts_only_few_rows_of_a_unit_with_many_rows(monkeypatch):
    found = []
    group = contributions._group
    monkeypatch.setattr(contributions, "_group", lambda units: found.append(units) or group(units))
    rng = np.random.default_rng(0)
    units = np.repeat(rng.integers(0, 2**64, (2, 1), np.uint64), 2**17, axis=1)
    words = [rng.integers(0, 2**40, 2**17).astype(np.uint64)]
    assert select_records(units, words, np.ones(2**17, np.int64), 3, None).size == 3
    assert found[-1].shape[1] < 10


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
@given(
    OF_UNITS,
    st.integers(0, 99),
    st.floats(1, 6),
    st.sampled_from([(0, 1, 2), (0, 2), ()]),
    st.sampled_from([1, 20, 200, 2**20]),
)
def test_keeps_first_records_until_one_costs_too_much(records, seed, most, axes, step_pairs):
    costs = limit(seed, most, axes)
    records = sorted(records, key=lambda each: each[0])
    unit = np.array([each for each, _ in records], np.intp)
    codes = list(DOMAIN.codes(np.array([cell for _, cell in records], np.int64)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_STEP_PAIRS", step_pairs)
        kept = costs.keeps(unit, codes)
    expected = []
    for _, group in itertools.groupby(range(len(records)), lambda place: records[place][0]):
        places = list(group)
        number = kept_one_by_one(costs, [code[places] for code in codes])
        expected += [place < number for place in range(len(places))]
    assert kept.tolist() == expected


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


@pytest.mark.parametrize("distinct", [1, 40, 90, 10**6])
@pytest.mark.parametrize("heaviest", [1, 9])
def test_merging_keeps_the_sum_of_each_key(distinct, heaviest):
    rng = np.random.default_rng(distinct)
    keys = rng.integers(0, distinct, 100).astype(np.uint64)
    batch = KeyBatch(keys, rng.integers(1, heaviest + 1, 100))
    merged = merged_keys(batch)
    assert sums(merged) == sums(batch)
    assert len(merged.keys) == (len(set(keys.tolist())) if distinct <= 40 else 100)
    assert not sums(merged_keys(KeyBatch(keys[:0], batch.weights[:0])))


def sums(batch: KeyBatch) -> dict[int, int]:
    found: dict[int, int] = {}
    for key, weight in zip(batch.keys.tolist(), batch.weights.tolist(), strict=True):
        found[key] = found.get(key, 0) + weight
    return found

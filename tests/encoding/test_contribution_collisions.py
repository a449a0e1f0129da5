"""Records made to have equal hashes are distinguished, and other units never decide between them.

Each case fails where ties fall to the order of arrival, or to a sort that is not stable.
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
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from beam_dp.encoding import contributions, units as units_module
from beam_dp.encoding.contributions import select_records
from beam_dp.encoding.units import unit_fingerprints

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


def test_many_identical_records_are_ranked_like_single_records():
    """300,000 records of a unit in 3 rows or one by one, more than are hashed at a time."""
    counts = np.array([200_000, 99_999, 1])
    units, _ = unit_fingerprints(pa.array([4, 4, 4]))
    words = [np.array([0, 1, 2], np.uint32)]
    singly = np.repeat(np.arange(3), counts)[::-1]
    ones = np.ones(singly.size, np.int64)
    for k in (1, 1000, 100_000):
        kept = kept_of(units, words, counts, k)
        assert kept.total() == k
        assert kept == kept_of(units[:, singly], [words[0][singly]], ones, k)


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

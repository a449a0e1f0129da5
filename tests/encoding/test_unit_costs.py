"""Which records a limit of costs keeps, against the definition written out one record at a time."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import CostLimit, RecordWords
from beam_dp.encoding.contributions import select_records
from beam_dp.privacy import unit_costs as module
from beam_dp.privacy.unit_costs import PARTS, UnitCosts

DOMAIN = Domain(tuple(IntegerAttribute(name, 0, 2) for name in "abc"))
RECORDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 26)), max_size=80)


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
@given(RECORDS, st.integers(0, 99), st.floats(1, 6), st.sampled_from([(0, 1, 2), (0, 2), ()]))
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

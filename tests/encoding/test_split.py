"""Columns cut by a number: every row once, with its own, in order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from beam_dp.encoding.contributions import split_by


@given(
    numbers=st.lists(st.integers(0, 70_000), max_size=60),
    most=st.sampled_from([70_001, 2**32]),
    few=st.booleans(),
)
def test_rows_are_cut_by_their_number_and_keep_their_order(
    numbers: list[int], most: int, few: bool
):
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
def test_no_number_is_cut_short(largest: int):
    numbers = np.array([largest, 0, largest])
    found = {number: kept.tolist() for number, (kept,) in split_by(numbers, largest + 1, [numbers])}
    assert found == {0: [0], largest: [largest, largest]}

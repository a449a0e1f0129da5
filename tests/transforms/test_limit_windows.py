"""Counts of limited units: in any order of panes, and how far one unit moves them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings, strategies as st
from limited_panes import HORIZON, IN_ORDER, Rows, counted

from beam_dp.windows.unit import WindowUnit

# Also of the future, too late, beyond the horizon, and outside the domain.
EVENTS = st.integers(-5, 65)
ROWS = st.lists(
    st.builds(
        lambda person, cell, event, delay: (person, cell, event, event + delay),
        st.integers(0, 4),
        st.integers(-1, 3),
        EVENTS,
        st.integers(-2, 18),
    ),
    max_size=40,
)
LIMITS = st.integers(1, 6).flatmap(
    lambda protected: st.builds(
        lambda k, c: WindowUnit("person", k, c, protected),
        st.integers(1, 3),
        st.integers(1, protected),
    )
)


@settings(max_examples=40)
@given(rows=ROWS, unit=LIMITS, order=st.permutations(IN_ORDER), bundles=st.integers(1, 3))
def test_tables_are_the_same_in_any_order_of_panes_and_records(
    rows: Rows, unit: WindowUnit, order: list[int], bundles: int
):
    expected = counted(rows, unit, IN_ORDER)
    np.testing.assert_array_equal(counted(rows[::-1], unit, order, bundles), expected)


@settings(max_examples=60)
@given(rows=ROWS, unit=LIMITS, person=st.integers(0, 4))
def test_a_unit_moves_few_windows_by_few_records(rows: Rows, unit: WindowUnit, person: int):
    others = [row for row in rows if row[0] != person]
    moved = counted(rows, unit, IN_ORDER) - counted(others, unit, IN_ORDER)
    assert (moved >= 0).all()
    by_window = moved.sum(axis=1)
    assert by_window.max() <= unit.max_records_per_unit
    for start in range(HORIZON.num_windows):
        span = by_window[start : start + unit.protected_windows]
        assert np.count_nonzero(span) <= unit.max_windows_per_unit


def test_the_limits_are_attained():
    unit = WindowUnit("person", 2, 2, 3)
    rows = [(1, 0, 10 * number, 10 * number) for number in range(6) for _ in range(5)]
    assert counted(rows, unit, IN_ORDER).sum(axis=1).tolist() == [2, 2, 0, 2, 2, 0]

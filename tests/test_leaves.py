"""The leaves of a range of numbers: which edges they have, and how wide they are."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from beam_dp.domain.leaves import LARGEST, number_leaves

ENDS = st.floats(-1e15, 1e15) | st.integers(-1000, 1000).map(float)


def check_widths(edges: list[float], low: float, high: float) -> None:
    assert edges[0] == low and edges[-1] == high
    below, above = np.array(edges[:-1]), np.array(edges[1:])
    assert (below < above).all()
    near = max(abs(low), abs(high)) * 1.05e-8
    widths, distance = above - below, np.maximum(np.minimum(abs(below), abs(above)), near)
    assert (widths <= 0.0500001 * distance).sum() >= len(widths) - 2  # but for those next to 0
    assert widths.max() <= (high - low) / 1000 * (1 + 1e-9)


@given(ENDS, ENDS)
def test_leaves_are_narrow_relative_to_the_range_and_to_their_distance_from_zero(one, other):
    low, high = min(one, other), max(one, other)
    if high - low > 1e-9 * max(abs(low), abs(high)):
        edges = number_leaves(low, high)
        check_widths(edges, low, high)
        assert len(edges) <= 6_000


@given(st.integers(-(2**52), 2**52), st.integers(1, 2**52))
def test_leaves_of_whole_numbers_have_whole_edges(low, length):
    edges = number_leaves(low, low + length, whole=True)
    assert edges[0] == low and edges[-1] == low + length
    assert all(each.is_integer() for each in edges) and edges == sorted(set(edges))
    if length <= 1000:
        assert edges == list(range(low, low + length + 1))


def test_edges_can_be_read():
    edges = number_leaves(0, 10_000_000)
    assert edges[:4] == [0, 0.1, 0.105, 0.11]
    assert [each for each in edges if 1e6 <= each <= 1.02e6] == [1e6, 1.01e6, 1.02e6]
    assert edges[-3:] == [9_980_000, 9_990_000, 10_000_000]
    assert number_leaves(-2.5, 2.5)[1] == -2.495
    assert 17.0 in number_leaves(17, 91.5) and 0.0 in number_leaves(-3, 1e9)


def test_range_without_ends_reaches_far_on_both_sides_of_zero():
    edges = number_leaves(None, None)
    assert edges[0] == -LARGEST and edges[-1] == LARGEST
    assert edges == sorted(-each for each in edges)
    assert min(each for each in edges if each > 0) == 0.001
    assert (
        number_leaves(None, None, whole=True)[-5000:]
        == [each for each in edges if each.is_integer()][-5000:]
    )


@pytest.mark.parametrize(
    ("low", "high"),
    [(0.0, 2.0**1022), (-(2.0**1022), 2.0**1022), (0.0, 5e-324), (1.0, math.nextafter(1.0, 2.0))],
)
def test_extreme_ranges_have_leaves(low, high):
    edges = number_leaves(low, high)
    assert edges[0] == low and edges[-1] == high and edges == sorted(set(edges))

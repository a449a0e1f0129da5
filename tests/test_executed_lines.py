"""The counter of executed lines, which holds code to an order of growth."""

from __future__ import annotations

import contextlib

import pytest
from executed_lines import lines_below


def loop(times: int) -> int:
    return sum(number for number in range(times))


def test_line_limit_accepts_fewer_lines_and_stops_a_long_loop():
    with lines_below(100):
        assert loop(10) == 45
    with pytest.raises(AssertionError, match="1,000 lines of Python or more"), lines_below(1000):
        loop(10**12)


def test_line_limit_fails_even_if_the_block_swallows_the_error():
    with pytest.raises(AssertionError), lines_below(1000), contextlib.suppress(AssertionError):
        loop(10**12)

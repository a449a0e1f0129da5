"""The counter of executed lines, which holds code to an order of growth."""

from __future__ import annotations

import contextlib

import pytest
from executed_lines import lines_below


def loop(times: int) -> int:
    total = 0
    for number in range(times):
        total += number
    return total


def test_line_limit_accepts_fewer_lines():
    with lines_below(100):
        assert loop(10) == 45


def test_line_limit_stops_a_long_loop():
    with pytest.raises(AssertionError, match="1,000 lines of Python or more"), lines_below(1000):
        loop(10**12)


def test_line_limit_fails_even_if_the_block_swallows_the_error():
    def careless() -> None:
        with contextlib.suppress(AssertionError):
            loop(10**12)

    with pytest.raises(AssertionError), lines_below(1000):
        careless()

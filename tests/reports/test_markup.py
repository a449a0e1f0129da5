"""Pieces of HTML."""

from __future__ import annotations

import pytest
from pages import Parsed

from beam_dp.reports.markup import MAX_ROWS, table, text
from beam_dp.reports.terminal import short


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0"),
        (-0.0, "0"),
        (1e-9, "1e-09"),
        (-0.05001, "-0.05"),
        (99.94, "99.9"),
        (99.96, "100"),
        (-1234.5, "-1,234"),
        (999_999.4, "999,999"),
        (999_999.6, "1.00 M"),
        (999_999_999.9, "1.00 G"),
        (2.5e9, "2.50 G"),
        (3e18, "3.00e+18"),
        (float("inf"), "none"),
    ],
)
def test_shortens_numbers(value: float, told: str) -> None:
    assert short(value) == told


def test_texts_are_cut_before_they_are_escaped() -> None:
    assert text("<" * 10, 3) == "&lt;&lt;…"
    assert text("a\x00b\n") == "a\ufffdb\ufffd"


def test_long_tables_are_cut_and_say_so() -> None:
    parsed = Parsed(table("t", ("a", "b"), (("x", "y") for _ in range(MAX_ROWS + 7)), (1,)))
    assert parsed.faults == []
    assert "and 7 more" in parsed.texts["td"]
    assert sum(tag == "tr" for tag, _ in parsed.elements) == MAX_ROWS + 2

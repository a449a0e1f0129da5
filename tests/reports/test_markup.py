"""Pieces of HTML."""

from __future__ import annotations

import pytest
from pages import Parsed

from beam_dp.reports.markup import MAX_ROWS, number, table, text


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0"),
        (-0.04, "0"),
        (-0.05001, "-0.1"),
        (99.94, "99.9"),
        (99.96, "100"),
        (-1234.5, "-1,234"),
        (999_999.4, "1.00 M"),
        (2.5e9, "2.50 G"),
        (3e18, "3.00e+18"),
        (float("inf"), "none"),
    ],
)
def test_numbers_are_short(value: float, told: str) -> None:
    assert number(value) == told


def test_texts_are_cut_before_they_are_escaped() -> None:
    assert text("<" * 10, 3) == "&lt;&lt;…"
    assert text("a\x00b\n") == "a\ufffdb\ufffd"


def test_long_tables_are_cut_and_say_so() -> None:
    parsed = Parsed(table("t", ("a", "b"), (("x", "y") for _ in range(MAX_ROWS + 7)), (1,)))
    assert parsed.faults == []
    assert "and 7 more" in parsed.texts["td"]
    assert sum(tag == "tr" for tag, _ in parsed.elements) == MAX_ROWS + 2

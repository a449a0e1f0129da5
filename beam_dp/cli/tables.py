"""Printing of tables for the `beam-dp` command."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.table import Table

    from beam_dp.privacy.guarantee import Guarantee


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Sequence[Sequence[str]],
    numbers: Container[int] | None = None,
) -> None:
    """Prints a table.

    Args:
        title: above it.
        columns: their names.
        rows: a text for each column.
        numbers: the places of columns that hold numbers; by default the last one.
    """
    from rich.console import Console

    from beam_dp.cli.describe import plain_text

    table = _table_without_lines(title=plain_text(title), title_justify="left")
    on_the_right = (len(columns) - 1,) if numbers is None else numbers
    for place, name in enumerate(columns):
        justify: Literal["left", "right"] = "right" if place in on_the_right else "left"
        table.add_column(plain_text(name), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(plain_text, row))
    Console().print(table)


def numbers_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """Returns a table without lines, of names on the left and numbers right of them."""
    from beam_dp.cli.describe import plain_text

    table = _table_without_lines()
    for place, name in enumerate(columns):
        justify: Literal["left", "right"] = "right" if place else "left"
        table.add_column(plain_text(name), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(plain_text, row))
    return table


def _table_without_lines(**settings: Any) -> Table:
    from rich.table import Table

    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", **settings)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Returns how many there are of something.

    Example:
        >>> counted(1, "marginal"), counted(2000, "marginal"), counted(2, "query", "queries")
        ('1 marginal', '2,000 marginals', '2 queries')
    """
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def short(number: float) -> str:
    """Returns a number in at most seven characters."""
    if not math.isfinite(number):
        return "none"
    if number >= 999_999.5:
        return f"{number:.1e}"
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def guarantee_text(guarantee: Guarantee) -> str:
    """Returns a promise in a few words."""
    relation = guarantee.neighboring.value.replace("_", " ")
    return f"epsilon {guarantee.epsilon:g}, delta {guarantee.delta:g}, {relation}"


def unit_text(guarantee: Guarantee) -> str:
    """Returns what a promise protects, in a few words."""
    if guarantee.privacy_unit == "record":
        return "a record"
    most = guarantee.max_records_per_unit
    used = "1 record is used" if most == 1 else f"{most:,} records are used"
    return f"one {guarantee.privacy_unit}, of which at most {used}"

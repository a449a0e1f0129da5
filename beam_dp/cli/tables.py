"""Printing of tables for the `beam-dp` command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints a table whose last column holds numbers."""
    from rich.console import Console
    from rich.table import Table

    from beam_dp.cli.describe import plain_text

    table = Table(title=plain_text(title), title_justify="left")
    for place, name in enumerate(columns, start=1):
        justify: Literal["left", "right"] = "right" if place == len(columns) else "left"
        table.add_column(plain_text(name), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*map(plain_text, row))
    Console().print(table)

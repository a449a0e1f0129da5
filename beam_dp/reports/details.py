"""What `beam-dp describe` prints, as HTML: its tables and lines, whatever they hold."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from beam_dp.reports.markup import paragraph, table, text

if TYPE_CHECKING:
    from rich.console import RenderableType


def details(shown: RenderableType) -> str:
    """Returns tables and texts of ``rich`` as HTML, in their order."""
    return "".join(_parts(shown))


def _parts(shown: RenderableType) -> Iterator[str]:
    if isinstance(shown, Group):
        for each in shown.renderables:
            yield from _parts(each)
    elif isinstance(shown, Table):
        header = [str(column.header) for column in shown.columns]
        cells = [map(str, column.cells) for column in shown.columns]
        rows = list(itertools.zip_longest(*cells, fillvalue=""))
        yield table(header[0], ["" if not each.strip() else each for each in header], rows)
    elif isinstance(shown, Text) and shown.plain.strip():
        yield paragraph(text(shown.plain, 1_000))

"""The table and the picture of ``error_by_queries.py``."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.pictures import Axis, Line, lines
from benchmarks.recorded import Row
from benchmarks.tables import markdown, told

# The order of the table, the colours of the lines and how they are dashed.
_LINES = {
    "uniform": ("uniform, no data", 0, "dotted"),
    "laplace": ("Laplace, pure", 1, ""),
    "gaussian": ("Gaussian", 2, ""),
    "mwem": ("MWEM", 3, ""),
    "mwem_textbook": ("MWEM, textbook", 4, "dashed"),
    "private_mw": ("PrivateMW", 5, ""),
    "small_db": ("SmallDB, pure", 6, ""),
}
PANELS = {
    "conjunctions": "65,536 cells, random conjunctions",
    "subsets": "16 cells, random sets of cells",
}
# Growth in |Q|, drawn from the least number of queries on.
_GUIDES = {"laplace": (1.0, "|Q|"), "gaussian": (0.5, "sqrt |Q|")}
_Found = dict[int, Row]  # by the number of queries


def _of(rows: Sequence[Row], panel: str) -> dict[str, _Found]:
    """Returns the rows of a panel, by mechanism."""
    found: dict[str, _Found] = {name: {} for name in _LINES}
    for row in rows:
        where, mechanism = row.what.split(", ")
        if where == panel:
            found[mechanism][round(row.figures["queries"].value)] = row
    return {name: each for name, each in found.items() if each}


def table(rows: Sequence[Row], panel: str, figure: str) -> str:
    """Returns the table of one figure: a row a mechanism, a column a number of queries."""
    found = _of(rows, panel)
    numbers = sorted({number for each in found.values() for number in each})
    written = [
        [_LINES[name][0], *(_cell(each.get(number), figure) for number in numbers)]
        for name, each in found.items()
    ]
    return markdown(["queries", *(f"{number:,}" for number in numbers)], written)


def _cell(row: Row | None, figure: str) -> str:
    if row is None:
        return ""
    found = row.figures[figure]
    return f"{found.value:.2g}" + ("" if found.error is None else f" ± {found.error:.1g}")


def ratios(rows: Sequence[Row], panel: str, to: str) -> str:
    """Returns the table of the largest error over that of one mechanism."""
    found = _of(rows, panel)
    numbers = sorted(found[to])
    written = []
    for name, each in found.items():
        pairs = [(each.get(number), found[to][number]) for number in numbers]
        cells = [
            told(row.figures["largest error"].over(other.figures["largest error"])) if row else ""
            for row, other in pairs
        ]
        if name != to:
            written.append([_LINES[name][0], *cells])
    return markdown(["queries", *(f"{number:,}" for number in numbers)], written)


def picture(rows: Sequence[Row]) -> str:
    """Returns the picture of the largest errors of both panels."""
    panels = {}
    for panel, heading in PANELS.items():
        drawn = []
        for name, each in _of(rows, panel).items():
            label, colour, dash = _LINES[name]
            points = [
                (
                    number,
                    row.figures["largest error"].value,
                    row.figures["largest error"].error or 0.0,
                )
                for number, row in each.items()
            ]
            drawn.append(Line(label, points, colour, dash))
            if name in _GUIDES:
                power, note = _GUIDES[name]
                last, error, _ = points[-1]
                guide = [(x, error * (x / last) ** power, 0.0) for x, _, _ in points]
                drawn.append(Line("", guide, colour, "dotted", note))
        panels[heading] = drawn
    up = Axis("largest error, share of the records")
    title = "Largest error against the number of queries"
    return lines(title, panels, Axis("number of queries |Q|"), up)

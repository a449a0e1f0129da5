"""Recorded rows as a table of Markdown, each figure in its unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchmarks.recorded import Figure, Row

# How numbers of a unit are written.
_FORMATS = {
    "GiB": "{:,.1f} GiB",
    "MiB": "{:,.0f} MiB",
    "a second": "{:,.0f} a second",
    "microseconds": "{:,.2f} us",
    "milliseconds": "{:,.0f} ms",
    "billion a second": "{:,.2f} billion a second",
    "nanoseconds": "{:,.0f} ns",
    "number": "{:,.0f}",
    "points": "{:.1f}",
    "parts of all": "{:.0%}",
    "percent": "{:.1f} %",
    "seconds": "{:,.2f} s",
    "share": "{:.4f}",
    "small MiB": "{:,.3g} MiB",
    "small share": "{:.2e}",
}

# Heads of the columns that say more about a row.
_MORE = {"beside": "compared with", "wanted": "target"}


def told(figure: Figure | None) -> str:
    """Returns a figure as it is read; nothing where there is none."""
    if figure is None:
        return ""
    if figure.unit == "times":
        return _times(figure)
    form = _FORMATS[figure.unit]
    spread = "" if figure.error is None else f" ± {form.format(figure.error)}"
    return form.format(figure.value) + spread


def _times(figure: Figure) -> str:
    """A ratio with three digits, or one over a number where it is small."""
    value, error = figure.value, figure.error
    if value < 0.1:
        return f"1/{1 / value:,.0f}" if error is None else f"{value:.2g} ± {error:.1g}"
    digits = 2 if value < 10 else 1 if value < 100 else 0
    spread = "" if error is None else f" ± {error:,.{digits}f}"
    return f"{value:,.{digits}f}{spread}"


def table(rows: Sequence[Row], first: str = "what", names: Sequence[str] = ()) -> str:
    """Returns a table with a column for each figure, and with what rows are compared with.

    Args:
        rows: what was measured.
        first: the head of the first column.
        names: of the figures that are shown, in their order; by default all, as rows have them.
    """
    names = names or list(dict.fromkeys(name for row in rows for name in row.figures))
    more = [each for each in _MORE if any(getattr(row, each) for row in rows)]
    heads = [first, *names[:1], *(_MORE[each] for each in more), *names[1:], "runs"]
    lines = []
    for row in rows:
        figures = [told(row.figures.get(name)) for name in names]
        besides = [getattr(row, each) for each in more]
        lines.append([row.what, *figures[:1], *besides, *figures[1:], str(row.runs)])
    return markdown(heads, lines)


def markdown(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Returns a table of texts."""
    written = [heads, ["---"] * len(heads), *lines]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in written) + "\n"

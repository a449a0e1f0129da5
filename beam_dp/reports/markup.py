"""Small pieces of HTML. Every text that a release may have chosen goes through ``text``."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence

from beam_dp.errors import shown

MAX_LETTERS = 200
MAX_ROWS = 300


def text(value: object, most: int = MAX_LETTERS) -> str:
    """Returns a value as text of a page: escaped, of bounded length, without control characters.

    Example:
        >>> text('<b> & "c"'), text("abcdef", 4)
        ('&lt;b&gt; &amp; &quot;c&quot;', 'abc…')
    """
    whole = value if isinstance(value, str) else shown(value)
    cut = whole if len(whole) <= most else f"{whole[: most - 1]}…"
    # Format characters would turn the text around that stands beside them.
    return html.escape(
        "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in cut)
    )


def number(value: float) -> str:
    """Returns a number of records in at most nine characters.

    Example:
        >>> number(1094.06), number(-3.26), number(2_345_678), number(0.0)
        ('1,094', '-3.3', '2.35 M', '0')
    """
    if not math.isfinite(value):
        return "none"
    if abs(value) >= 1e15:
        return f"{value:.2e}"
    for size, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= 0.99999 * size:
            return f"{value / size:,.2f} {letter}"
    rounded = f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}".removesuffix(".0")
    return "0" if rounded == "-0" else rounded


def paragraph(markup: str, kind: str = "") -> str:
    """Returns a paragraph of markup."""
    return f"<p{_class(kind)}>{markup}</p>"


def section(title: str, *parts: str, kind: str = "") -> str:
    """Returns a section with a heading, of the parts that are not empty; empty if none is."""
    inside = "".join(parts)
    return f"<section{_class(kind)}><h2>{text(title)}</h2>{inside}</section>" if inside else ""


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Iterable[int] = (),
) -> str:
    """Returns a table whose first column heads its rows.

    Args:
        caption: what it holds, for those who don't see where it stands, too.
        header: a text for each column.
        rows: texts, or values, of which the first ``MAX_ROWS`` are shown.
        numbers: positions of the columns that hold numbers.
    """
    right = set(numbers)
    classes = [_class("number") if place in right else "" for place in range(len(header))]
    head = "".join(
        f'<th scope="col"{kind}>{text(name)}</th>' if name else f"<td{kind}></td>"
        for name, kind in zip(header, classes, strict=True)
    )
    body, num_rows = [], 0
    for row in rows:
        num_rows += 1
        if num_rows > MAX_ROWS:
            continue
        first, *others = (text(each) for each in row)
        cells = "".join(
            f"<td{kind}>{each}</td>" for kind, each in zip(classes[1:], others, strict=True)
        )
        body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    if num_rows > MAX_ROWS:
        more = f"and {num_rows - MAX_ROWS:,} more"
        body.append(f'<tr><td colspan="{len(header)}">{more}</td></tr>')
    # A table that is wider than the screen is scrolled, which a keyboard must reach.
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def facts(entries: Mapping[str, object]) -> str:
    """Returns names with their values."""
    rows = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in entries.items())
    return f'<dl class="facts">{rows}</dl>'


def folded(summary: str, inside: str) -> str:
    """Returns markup that is shown when it is asked for."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""

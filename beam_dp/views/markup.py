"""Builds HTML elements. ``text`` escapes every string that may come from a release."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Mapping, Sequence

from beam_dp.errors import shown

MAX_LETTERS = 200
MAX_ROWS = 300
# Browsers break lines after the dashes of a flag.
_FLAG = re.compile(r"(?<![\w-])--\w{1,30}")


class Markup(str):
    """A string of a table that is markup already, with every text in it escaped."""


def text(value: object, limit: int = MAX_LETTERS) -> str:
    """Returns a value as HTML text: escaped, with limited length, without control characters.

    Example:
        >>> text('<b> & "c"'), text("abcdef", 4)
        ('&lt;b&gt; &amp; &quot;c&quot;', 'abc…')
    """
    whole = value if isinstance(value, str) else shown(value)
    cut = whole if len(whole) <= limit else f"{whole[: limit - 1]}…"
    # Format characters could reverse the text next to them.
    return html.escape(
        "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in cut)
    )


def paragraph(markup: str, kind: str = "") -> str:
    """Returns a paragraph of markup, with each flag in one line."""
    return _FLAG.sub(r'<span class="flag">\g<0></span>', f"<p{_class(kind)}>{markup}</p>")


def part(title: str, *parts: str) -> str:
    """Returns a heading and its contents; empty if all contents are empty."""
    inside = "".join(parts)
    return f"<h3>{text(title)}</h3>{inside}" if inside else ""


def table(
    caption: str,
    header: Sequence[str],
    rows: Iterable[Sequence[object]],
    numbers: Iterable[int] = (),
) -> str:
    """Returns a table of at most ``MAX_ROWS`` rows; the first column contains the row headers."""
    right = set(numbers)
    classes = [_class("number") if place in right else "" for place in range(len(header))]
    head = "".join(
        f'<th scope="col"{kind}>{text(name)}</th>' if name else f"<td{kind}></td>"
        for name, kind in zip(header, classes, strict=True)
    )
    body, every = [], list(rows)
    for row in every[:MAX_ROWS]:
        first, *others = (cell if isinstance(cell, Markup) else text(cell) for cell in row)
        cells = "".join(
            f"<td{kind}>{other}</td>" for kind, other in zip(classes[1:], others, strict=True)
        )
        body.append(f'<tr><th scope="row">{first}</th>{cells}</tr>')
    if len(every) > MAX_ROWS:
        more = f"and {len(every) - MAX_ROWS:,} more"
        body.append(f'<tr><td colspan="{len(header)}">{more}</td></tr>')
    # A table that is wider than the screen scrolls, so it must be reachable with the keyboard.
    return (
        f'<div class="scroll" role="group" tabindex="0" aria-label="{text(caption)}"><table>'
        f"<caption>{text(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def facts(entries: Mapping[str, object]) -> str:
    """Returns a list of names and values."""
    rows = "".join(f"<div><dt>{text(k)}</dt><dd>{text(v)}</dd></div>" for k, v in entries.items())
    return f'<dl class="facts">{rows}</dl>'


def folded(summary: str, inside: str, kind: str = "") -> str:
    """Returns markup that is hidden until the reader opens it; empty if there is none."""
    opened = f"<details{_class(kind)}><summary>{text(summary)}</summary>"
    return f"{opened}{inside}</details>" if inside else ""


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""

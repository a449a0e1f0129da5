"""Builds HTML elements, and pictures of cells as inline SVG that is as wide as a phone.

Every string that a release may have chosen goes through ``text``. Colours are classes of the style
sheet, which has a light and a dark theme.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from beam_dp.errors import shown
from beam_dp.reports.cells import Cell
from beam_dp.reports.terminal import short

MAX_LETTERS = 200
MAX_ROWS = 300
WIDTH = 360
# Up to MAX_LYING bars are horizontal and labelled; more bars are vertical, with a few labels.
MAX_LYING = 12
MAX_STANDING = 48

_ROW, _LABEL, _NUMBER = 22, 110, 92
_LETTER = 6.3  # in a font of 11 pixels, the mean width of a label's letters is rarely larger
_LABEL_LETTERS = int(_LABEL / _LETTER)
_SHADES = 10


def text(value: object, most: int = MAX_LETTERS) -> str:
    """Returns a value as HTML text: escaped, with limited length, without control characters.

    Example:
        >>> text('<b> & "c"'), text("abcdef", 4)
        ('&lt;b&gt; &amp; &quot;c&quot;', 'abc…')
    """
    whole = value if isinstance(value, str) else shown(value)
    cut = whole if len(whole) <= most else f"{whole[: most - 1]}…"
    # Format characters could reverse the text next to them.
    return html.escape(
        "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in cut)
    )


def paragraph(markup: str, kind: str = "") -> str:
    """Returns a paragraph of markup."""
    return f"<p{_class(kind)}>{markup}</p>"


def section(title: str, *parts: str, kind: str = "") -> str:
    """Returns a section with a heading and the non-empty parts; empty if all parts are empty."""
    inside = "".join(parts)
    return f"<section{_class(kind)}><h2>{text(title)}</h2>{inside}</section>" if inside else ""


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


def folded(summary: str, inside: str) -> str:
    """Returns markup that is hidden until the reader opens it."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def _class(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def bars(title: str, cells: Sequence[Cell]) -> str:
    """Returns one bar per cell with an error bar, and a mark at the exact count if known."""
    return _lying(title, cells) if len(cells) <= MAX_LYING else standing(title, cells)


def _lying(title: str, cells: Sequence[Cell]) -> str:
    low, high = _ends(cells)
    label_width = _label_width(cell.labels[0] for cell in cells)
    left, right = label_width + 6, WIDTH - _NUMBER

    def place(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    parts = []
    for row, cell in enumerate(cells):
        top, middle = row * _ROW + 4, row * _ROW + 12
        value, margin = cell.answer.value, cell.answer.margin
        first, last = sorted((place(0), place(value)))
        label = text(cell.labels[0], _LABEL_LETTERS)
        told = short(value) + ("" if margin is None else f" ± {short(margin)}")
        parts += [
            f"<g><title>{_told(cell)}</title>",
            f'<text class="label" x="{label_width:.1f}" y="{middle + 4}">{label}</text>',
            _rectangle(_bar_kind(cell), first, top, last - first, 16),
        ]
        if margin is not None:
            ends = place(value - margin), place(value + margin)
            parts.append(_whisker(cell, (max(ends[0], left - 4), ends[1]), middle, is_lying=True))
        if cell.truth is not None:
            parts.append(_diamond(place(cell.truth), middle))
        parts.append(f'<text class="told" x="{WIDTH}" y="{middle + 4}">{text(told)}</text></g>')
    height = len(cells) * _ROW + 4
    parts.append(_line("axis", place(0), 0, place(0), height))
    return _picture(title, height, parts)


def standing(title: str, cells: Sequence[Cell], *, is_line: bool = False) -> str:
    """Returns cells from left to right, as bars or as points joined by a line."""
    low, high = _ends(cells)
    left, right, top, bottom = 46, WIDTH - 4, 8, 168
    step = (right - left) / len(cells)

    def height(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / (high - low)

    parts = []
    for tick in _ticks(low, high):
        y = height(tick)
        parts.append(_line("grid" if tick else "axis", left, y, right, y))
        parts.append(f'<text class="label" x="{left - 4}" y="{y + 4:.1f}">{short(tick)}</text>')
    points = []
    for place, cell in enumerate(cells):
        middle = left + (place + 0.5) * step
        value, margin = cell.answer.value, cell.answer.margin
        parts.append(f"<g><title>{_told(cell)}</title>")
        if not is_line:
            first, last = sorted((height(0), height(value)))
            width = max(step * 0.76, 0.6)
            kind = _bar_kind(cell)
            parts.append(_rectangle(kind, middle - width / 2, first, width, last - first))
        if margin is not None:
            ends = height(value + margin), height(value - margin)
            parts.append(_whisker(cell, ends, middle, is_lying=False))
        if is_line:
            y = height(value)
            points.append(f"{middle:.1f},{y:.1f}")
            parts.append(f'<circle class="point" cx="{middle:.1f}" cy="{y:.1f}" r="2"/>')
        if cell.truth is not None:
            parts.append(_diamond(middle, height(cell.truth), 3.2))
        parts.append("</g>")
    if is_line:
        parts.append(f'<polyline class="line" points="{" ".join(points)}"/>')
    parts += _few_labels([cell.labels[0] for cell in cells], left, step, bottom + 15)
    return _picture(title, bottom + 20, parts)


def heat_map(title: str, cells: Sequence[Cell], num_columns: int, names: tuple[str, str]) -> str:
    """Returns a table of two attributes in which a stronger colour means more records."""
    labels = [cell.labels[1] for cell in cells[:num_columns]]
    most = max((cell.answer.value for cell in cells), default=0.0)
    header = 26.0 + int(min(max(map(len, labels)), 12) * 4.9)
    label_width = max(_label_width(cell.labels[0] for cell in cells), _LETTER * 12)
    left, size = label_width + 4, (WIDTH - label_width - 44) / num_columns
    tall = min(max(size, 20), 26)
    row_name = text(names[0], int(label_width / 7) - 2)
    parts = [
        f'<text class="name" x="{label_width:.1f}" y="{header - 6}">{row_name} ↓</text>',
        f'<text class="name start" x="{left:.1f}" y="10">{text(names[1], 40)} →</text>',
    ]
    for column, label in enumerate(labels):
        x, y = left + (column + 0.45) * size, header - 5
        turned = f'transform="translate({x:.1f} {y}) rotate(-42)"'
        parts.append(f'<text class="label start" {turned}>{text(label, 12)}</text>')
    for index, cell in enumerate(cells):
        row, column = divmod(index, num_columns)
        x, y = left + column * size, header + row * tall
        if not column:
            end = f'x="{label_width:.1f}" y="{y + tall / 2 + 4:.1f}"'
            parts.append(f'<text class="label" {end}>{text(cell.labels[0], _LABEL_LETTERS)}</text>')
        parts.append(f'<g class="shade{_shade(cell.answer.value, most)}">')
        parts.append(f"<title>{_told(cell)}</title>")
        parts.append(_rectangle("cell", x + 0.5, y + 0.5, size - 1, tall - 1))
        if cell.is_noisy:
            parts.append(_line("strike", x + 2, y + tall - 2, x + size - 2, y + 2))
        told = short(cell.answer.value)
        if len(told) * _LETTER <= size - 5 and not cell.is_noisy:
            middle = f'x="{x + size / 2:.1f}" y="{y + tall / 2 + 4:.1f}"'
            parts.append(f'<text class="inside" {middle}>{told}</text>')
        if cell.is_missed:
            parts.append(_diamond(x + size - 6, y + 6, 3.2))
        parts.append("</g>")
    height = header + tall * (len(cells) // num_columns) + 2
    return _picture(title, height, parts)


def legend(*, has_truth: bool, is_map: bool) -> str:
    """Returns the legend of the marks in pictures."""
    drawn = {
        '<svg class="key" viewBox="0 0 24 12" aria-hidden="true">' + mark + "</svg>": meaning
        for mark, meaning in _marks(has_truth, is_map)
    }
    items = "".join(f"<li>{mark} {text(meaning)}</li>" for mark, meaning in drawn.items())
    return f'<ul class="legend">{items}</ul>'


def _marks(has_truth: bool, is_map: bool) -> Iterator[tuple[str, str]]:
    if is_map:
        yield (
            "".join(
                f'<g class="shade{shade}">{_rectangle("cell", 8 * place, 1, 8, 10)}</g>'
                for place, shade in enumerate((1, 5, 9))
            ),
            "more records, a stronger colour",
        )
        strike = _rectangle("cell", 4, 0.5, 16, 11) + _line("strike", 5, 11, 19, 1)
        yield f'<g class="shade1">{strike}</g>', "too noisy: error bar longer than half the value"
    else:
        whisker = _line("whisker", 3, 6, 21, 6) + _line("whisker", 3, 2, 3, 10)
        whisker += _line("whisker", 21, 2, 21, 10)
        yield whisker, "the truth is inside in 95 % of cases"
        dashed = _line("whisker predicted", 1, 6, 23, 6)
        yield dashed, "the same, by a prediction of the model"
        yield _rectangle("bar noisy", 1, 1, 22, 10), "too noisy: longer than half the value"
    if has_truth:
        what = "the truth is outside the error bar" if is_map else "the truth"
        yield _diamond(12, 6), what


def _told(cell: Cell) -> str:
    answer = cell.answer
    told = f"{', '.join(each[:60] for each in cell.labels)}: {answer.value:,.1f} records"
    told += f", ± {answer.margin:,.1f}" if answer.margin is not None else ", no error bar"
    return text(told if cell.truth is None else f"{told}; truth {cell.truth:,}")


def _picture(title: str, height: float, parts: Sequence[str]) -> str:
    box = f'viewBox="0 0 {WIDTH} {math.ceil(height)}"'
    return (
        f'<svg class="picture" {box} role="img" aria-label="{text(title)}">{"".join(parts)}</svg>'
    )


def _ends(cells: Sequence[Cell]) -> tuple[float, float]:
    """Returns the smallest and the largest number in a picture, which always includes 0."""
    drawn = [0.0]
    for cell in cells:
        margin = cell.answer.margin or 0.0
        drawn += [cell.answer.value - margin, cell.answer.value + margin]
        drawn += [] if cell.truth is None else [float(cell.truth)]
    # Below 0, a picture shows answers but no error bars.
    low = min(0.0, *(cell.answer.value for cell in cells))
    low = min(drawn) if low < 0 else max(min(drawn), -0.04 * max(drawn))
    high = max(drawn)
    return low, high if high > low else low + 1.0


def _ticks(low: float, high: float) -> list[float]:
    """Returns a few round numbers between ``low`` and ``high``, including 0."""
    size = 10.0 ** math.floor(math.log10(high - low))
    step = next(size * each for each in (0.2, 0.5, 1, 2) if (high - low) / (size * each) <= 5)
    return [place * step for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _few_labels(labels: Sequence[str], left: float, step: float, y: float) -> Iterator[str]:
    """Yields the first and the last label, and the middle label if it fits."""
    last = len(labels) - 1
    places = {0: "start", last: "end"}
    if last >= 2 and all(len(each) <= 14 for each in labels):
        places[last // 2] = "middle"
    for place, kind in places.items():
        x = left + (place + {"start": 0, "middle": 0.5, "end": 1}[kind]) * step
        label = text(labels[place], 20)
        yield f'<text class="label {kind}" x="{x:.1f}" y="{y}">{label}</text>'


def _label_width(labels: Iterable[str]) -> float:
    return min(max(map(len, labels)), _LABEL_LETTERS) * _LETTER + 8


def _shade(value: float, most: float) -> int:
    """Returns the strength of a colour, from 0; a square root keeps small numbers visible."""
    if not (most > 0 and value > 0):
        return 0
    return max(1, min(_SHADES - 1, math.ceil(math.sqrt(value / most) * (_SHADES - 1))))


def _bar_kind(cell: Cell) -> str:
    return "bar noisy" if cell.is_noisy else "bar"


def _whisker(cell: Cell, ends: tuple[float, float], middle: float, *, is_lying: bool) -> str:
    kind = "whisker predicted" if cell.answer.kind == "model_based" else "whisker"
    first, last = ends
    if not is_lying:
        return _line(kind, middle, first, middle, last)
    caps = [_line("whisker", x, middle - 4, x, middle + 4) for x in (first, last)]
    return _line(kind, first, middle, last, middle) + "".join(caps)


def _line(kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line class="{kind}" {ends}/>'


def _rectangle(kind: str, x: float, y: float, width: float, height: float) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}/>'


def _diamond(x: float, y: float, size: float = 4.5) -> str:
    path = f"M{x:.1f} {y - size:.1f}l{size} {size}l-{size} {size}l-{size}-{size}z"
    return f'<path class="truth" d="{path}"/>'

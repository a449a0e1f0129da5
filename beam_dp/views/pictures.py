"""Pictures of counts as inline SVG that is as wide as a phone.

Colours are classes of the style sheet, which has a light and a dark theme.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from beam_dp.views.cells import Cell
from beam_dp.views.markup import text
from beam_dp.views.terminal import short

WIDTH = 360
# Up to MAX_ROWS bars are horizontal and labelled; more bars are vertical, with a few labels.
MAX_ROWS = 12
MAX_COLUMNS = 48

_NUMBER = 92  # the width of a number with its error
_LETTER = 6.3  # in a font of 11 pixels, the mean width of a label's letters is rarely larger
_ROW_LETTERS, _COLUMN_LETTERS, _AXIS_LETTERS = 22, 12, 16
_MAX_TURNED = 16  # the number of columns of a map that all have labels
_NARROW = 12  # the width of a tile that has a fainter colour instead of a stroke
_SHADES = 9
_BIN = re.compile(r"[\[(]([^,]+), (.*)[\])]")
_SECONDS = re.compile(r"T(\d\d:\d\d)(:00)?(\+00:00)?$")


class Tile(NamedTuple):
    """A cell of a map of colours."""

    value: float
    words: str  # the cell in words
    is_struck: bool = False


def in_words(cell: Cell) -> str:
    """Returns a cell in words."""
    answer = cell.answer
    words = f"{cell.label}: {answer.value:,.1f} records"
    words += f", ± {answer.margin:,.1f}" if answer.margin is not None else ", no error bar"
    return words if cell.truth is None else f"{words}; truth {cell.truth:,}"


def bars(title: str, cells: Sequence[Cell]) -> str:
    """Returns a picture of cells: bars with error bars, next to bars of exact counts if known."""
    return _horizontal_bars(title, cells) if len(cells) <= MAX_ROWS else vertical_bars(title, cells)


def _horizontal_bars(title: str, cells: Sequence[Cell]) -> str:
    low, high = _ends(cells)
    labels = short_labels([cell.labels[0] for cell in cells], _ROW_LETTERS)
    label_width = max(map(len, labels)) * _LETTER + 8
    left, right = label_width + 6, WIDTH - _NUMBER
    tall = 16 if cells[0].truth is None else 11

    def place(value: float) -> float:
        return left + (right - left) * (value - low) / (high - low)

    parts, top = [], 4.0
    for label, cell in zip(labels, cells, strict=True):
        value, margin, middle = cell.answer.value, cell.answer.margin, top + tall / 2
        first, last = sorted((place(0), place(value)))
        number = short(value) + ("" if margin is None else f" ± {short(margin)}")
        parts += [
            f"<g><title>{text(in_words(cell))}</title>",
            f'<text class="label start" x="0" y="{middle + 4}">{text(label)}</text>',
            _rectangle("bar noisy" if cell.is_noisy else "bar", first, top, last - first, tall),
        ]
        if margin is not None:
            ends = max(place(value - margin), left - 4), place(value + margin)
            parts.append(_whisker(cell, ends, middle, is_horizontal=True))
        parts.append(f'<text class="told" x="{WIDTH}" y="{middle + 4}">{text(number)}</text>')
        if cell.truth is not None:
            top += tall
            parts.append(_rectangle("truth", place(0), top, place(cell.truth) - place(0), 8))
        parts.append("</g>")
        top += 22 if cell.truth is None else 15
    parts.append(_line("axis", place(0), 0, place(0), top))
    return _picture(title, top, parts, _values(cells))


def vertical_bars(title: str, cells: Sequence[Cell], *, is_line: bool = False) -> str:
    """Returns a picture of cells from left to right, as bars or as points joined by a line."""
    low, high = _ends(cells)
    left, right, top, bottom = 46, WIDTH - 4, 8, 168
    step = (right - left) / len(cells)
    has_truth = cells[0].truth is not None

    def height(value: float) -> float:
        return bottom - (bottom - top) * (value - low) / (high - low)

    def bar(kind: str, x: float, value: float, width: float) -> str:
        first, last = sorted((height(0), height(value)))
        return _rectangle(kind, x, first, max(width, 0.6), last - first)

    parts = []
    for tick in _ticks(low, high):
        y = height(tick)
        parts.append(_line("grid" if tick else "axis", left, y, right, y))
        parts.append(f'<text class="label" x="{left - 4}" y="{y + 4:.1f}">{short(tick)}</text>')
    points: dict[str, list[str]] = {"line": [], "line true": []}
    for place, cell in enumerate(cells):
        middle = left + (place + 0.5) * step
        value, margin, truth = cell.answer.value, cell.answer.margin, cell.truth
        width = step * (0.4 if has_truth else 0.76)
        at = middle if is_line or truth is None else middle - width / 2
        parts.append(f"<g><title>{text(in_words(cell))}</title>")
        if is_line:
            points["line"].append(f"{middle:.1f},{height(value):.1f}")
            dot = f'cx="{middle:.1f}" cy="{height(value):.1f}" r="2"'
            parts.append(f'<circle class="point" {dot}/>')
        else:
            kind = "bar noisy" if cell.is_noisy else "bar"
            parts.append(bar(kind, at - width / 2, value, width))
        if truth is not None and is_line:
            points["line true"].append(f"{middle:.1f},{height(truth):.1f}")
        elif truth is not None:
            parts.append(bar("truth", middle, truth, width))
        if margin is not None:
            ends = height(value + margin), min(height(value - margin), bottom)
            parts.append(_whisker(cell, ends, at, is_horizontal=False))
        parts.append("</g>")
    for kind, drawn in points.items():
        parts += [f'<polyline class="{kind}" points="{" ".join(drawn)}"/>'] if drawn else []
    parts += _few_labels([cell.labels[0] for cell in cells], left, step, bottom + 15)
    return _picture(title, bottom + 20, parts, _values(cells))


def heat_map(
    title: str,
    names: tuple[str, str],
    labels: tuple[Sequence[str], Sequence[str]],
    tiles: Sequence[Tile],
) -> str:
    """Returns a map of colours by row and column, with its scale.

    A stronger colour means a larger value.
    """
    rows = short_labels(labels[0], _ROW_LETTERS)
    columns, num_columns = short_labels(labels[1], _COLUMN_LETTERS), len(labels[1])
    limit = max(0.0, *(tile.value for tile in tiles))
    label_width = max(max(map(len, rows)) * _LETTER, min(len(names[0]), 14) * 7 + 12, 68) + 8
    left, longest = label_width + 4, max(map(len, columns))
    size = min((WIDTH - label_width - 8) / num_columns, 90)
    is_turned = longest * _LETTER > size - 2
    is_turned &= num_columns <= _MAX_TURNED
    if is_turned:
        size = min(size, (WIDTH - label_width - 8 - longest * 3.2) / num_columns)
    header = 26.0 + (longest * 5.5 if is_turned else 6)
    tall = min(max(size, 20), 26)
    numbers = [short(tile.value) for tile in tiles]
    is_told = max(map(len, numbers)) * _LETTER <= size - 4
    num_letters = int(label_width / 7) - 2
    parts = [
        f'<text class="name" x="0" y="{header - 6:.1f}">{text(names[0], num_letters)} ↓</text>',
        f'<text class="name" x="{left:.1f}" y="10">{text(names[1], 40)} →</text>',
    ]
    if num_columns > _MAX_TURNED:
        parts += _few_labels(labels[1], left, size, header - 6)
    for column, label in enumerate(columns if num_columns <= _MAX_TURNED else ()):
        x, y = left + (column + 0.5) * size, header - 5
        kind, end = "label middle", f'x="{x:.1f}" y="{y:.1f}"'
        if is_turned:
            kind, end = "label start", f'transform="translate({x:.1f} {y:.1f}) rotate(-60)"'
        parts.append(f'<text class="{kind}" {end}>{text(label)}</text>')
    for index, tile in enumerate(tiles):
        row, column = divmod(index, num_columns)
        x, y = left + column * size, header + row * tall
        if not column:
            end = f'x="0" y="{y + tall / 2 + 4:.1f}"'
            parts.append(f'<text class="label start" {end}>{text(rows[row])}</text>')
        shade = _shade(tile.value, limit)
        shade += " faint" if tile.is_struck and size < _NARROW else ""
        parts.append(f'<g class="{shade}"><title>{text(tile.words)}</title>')
        gap = min(1, size / 8)
        parts.append(_rectangle("cell", x + gap / 2, y + 0.5, size - gap, tall - 1))
        if tile.is_struck and size >= _NARROW:
            parts.append(_line("strike", x + 1, y + tall - 2, x + size - 1, y + 2))
        elif is_told:
            middle = f'x="{x + size / 2:.1f}" y="{y + tall / 2 + 4:.1f}"'
            parts.append(f'<text class="inside" {middle}>{numbers[index]}</text>')
        parts.append("</g>")
    below = header + tall * (len(tiles) // num_columns) + 8
    parts += _scale(left, below, limit)
    return _picture(title, below + 14, parts, [tile[:2] for tile in tiles])


def _scale(left: float, top: float, limit: float) -> Iterator[str]:
    """Yields the colour scale of a map."""
    for shade in range(_SHADES + 1):
        tile = _rectangle("cell", left + 7 * shade, top, 7, 9)
        yield f'<g class="shade{shade}">{tile}</g>'
    yield f'<text class="label" x="{left - 4:.1f}" y="{top + 9:.1f}">0</text>'
    end = f'x="{left + 7 * (_SHADES + 1) + 4:.1f}" y="{top + 9:.1f}"'
    yield f'<text class="label start" {end}>{short(limit)} records</text>'


def legend(*, has_truth: bool = False, is_map: bool = False, is_predicted: bool = False) -> str:
    """Returns the legend of the marks in pictures; ``is_predicted``: with bars of a model."""
    struck = _rectangle("cell", 4, 0.5, 16, 11) + _line("strike", 5, 11, 19, 1)
    ends = ((3, 6, 21), (3, 2, 3), (21, 2, 21))
    whisker = "".join(_line("whisker", x, y, to_x, 12 - y) for x, y, to_x in ends)
    marks = {whisker: "the truth is inside in 95 % of cases"}
    if is_predicted:
        marks[_line("whisker predicted", 1, 6, 23, 6)] = "the same, but predicted by the model"
    marks[_rectangle("bar noisy", 1, 1, 22, 10)] = "too noisy: error bar above half the value"
    if is_map:
        marks = {f'<g class="shade1">{struck}</g>': "a count that is too noisy"}
    elif has_truth:
        marks[_rectangle("truth", 1, 2, 22, 8)] = "the truth"
    items = (
        f'<li><svg class="key" viewBox="0 0 24 12" aria-hidden="true">{mark}</svg> {meaning}</li>'
        for mark, meaning in marks.items()
    )
    return f'<ul class="legend">{"".join(items)}</ul>'


def short_labels(labels: Sequence[str], limit: int) -> list[str]:
    """Shortens labels to at most ``limit`` characters."""
    # If a label is too long, bins are written as their lower edges. Labels then lose their ends or,
    # if two would be the same, their middle.
    if max(map(len, labels)) > limit:
        labels = [_SECONDS.sub(r" \1", _BIN.sub(r"\1", label)) for label in labels]
    cut = [label if len(label) <= limit else f"{label[: limit - 1]}…" for label in labels]
    if len(set(cut)) == len(cut):
        return cut
    end = limit - limit // 2
    return [
        label if len(label) <= limit else f"{label[: limit - end - 1]}…{label[-end:]}"
        for label in labels
    ]


def _picture(
    title: str, height: float, parts: Sequence[str], values: Sequence[tuple[float, str]]
) -> str:
    """Returns a picture, with its largest values in words for readers who can't see it."""
    largest = sorted(values, key=lambda value: -value[0])[:3]
    label = text(f"{title}. Largest: {'; '.join(words[:120] for _, words in largest)}", 600)
    box = f'viewBox="0 0 {WIDTH} {math.ceil(height)}"'
    return f'<svg class="picture" {box} role="img" aria-label="{label}">{"".join(parts)}</svg>'


def _values(cells: Sequence[Cell]) -> list[tuple[float, str]]:
    return [(cell.answer.value, in_words(cell)) for cell in cells]


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
    step = next(size * factor for factor in (0.2, 0.5, 1, 2) if (high - low) / (size * factor) <= 5)
    return [place * step for place in range(math.ceil(low / step), math.floor(high / step) + 1)]


def _few_labels(labels: Sequence[str], left: float, step: float, y: float) -> Iterator[str]:
    """Yields the first and the last label and, at equal distances, labels between that fit."""
    last = len(labels) - 1
    shown = short_labels(labels, _AXIS_LETTERS)
    if last and shown[last] != labels[last] and _BIN.fullmatch(labels[last]):
        shown[last] = _SECONDS.sub(r" \1", _BIN.sub(r"to \2", labels[last]))
    widths = [len(name) * _LETTER + 4 for name in shown]
    apart = math.ceil(max(widths[:last] or widths) / step)
    places = {0: "start", last: "end"}
    for place in range(apart, last, apart):
        middle, half = (place + 0.5) * step, widths[place] / 2
        if widths[0] + half <= middle <= len(labels) * step - widths[last] - half:
            places[place] = "middle"
    for place, kind in places.items():
        x = left + (place + {"start": 0, "middle": 0.5, "end": 1}[kind]) * step
        label = text(shown[place])
        yield f'<text class="label {kind}" x="{x:.1f}" y="{y:.1f}">{label}</text>'


def _shade(value: float, top: float) -> str:
    """Returns the class of a colour; a square root keeps small numbers visible."""
    if not (top > 0 and value > 0):
        return "shade0"
    strength = max(1, min(_SHADES, math.ceil(math.sqrt(value / top) * _SHADES)))
    return f"shade{strength}"


def _whisker(cell: Cell, ends: tuple[float, float], middle: float, *, is_horizontal: bool) -> str:
    kind = "whisker predicted" if cell.answer.kind == "model_based" else "whisker"
    first, last = ends
    if not is_horizontal:
        return _line(kind, middle, first, middle, last)
    caps = [_line("whisker", x, middle - 4, x, middle + 4) for x in (first, last)]
    return _line(kind, first, middle, last, middle) + "".join(caps)


def _line(kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line class="{kind}" {ends} vector-effect="non-scaling-stroke"/>'


def _rectangle(kind: str, x: float, y: float, width: float, height: float) -> str:
    size = f'width="{width:.1f}" height="{height:.1f}"'
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" {size}/>'

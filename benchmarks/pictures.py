"""Pictures of figures as SVG files: both axes logarithmic, narrow enough for a phone.

A file is read as an image, so that it brings its own colours, for light and for dark screens, and
tells in words what it shows. The same figures give the same bytes.
"""

from __future__ import annotations

import dataclasses
import html
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

WIDTH = 380
_EDGE = 12
_LETTER = 7.2  # in the mean, at 12 pixels, of a word with capitals
# Of light and of dark screens: told apart without red and green, three to one from the panel.
_COLOURS = (
    ("#6b6b6b", "#a3a3a3"),
    ("#b87400", "#e69f00"),
    ("#d55e00", "#f2823a"),
    ("#0072b2", "#56a8e0"),
    ("#2f8fc4", "#8fcdf5"),
    ("#00805c", "#2fbd93"),
    ("#b0568c", "#dd94bd"),
)
_STYLE = """\
.panel{fill:#fff}text{fill:#24292f;font:12px system-ui,sans-serif}.strong{font-weight:600}
.quiet{fill:#57606a}.end{text-anchor:end}.middle{text-anchor:middle}
line,polyline{fill:none;stroke-width:1.5}.grid{stroke:#d8dee4;stroke-width:1}
.one{stroke:#57606a;stroke-width:1}.thin{stroke-width:1}.ring{stroke-width:2}
.dashed{stroke-dasharray:5 3}.dotted{stroke-dasharray:1.5 3}"""
_DARK = """\
.panel{fill:#1e2129}text{fill:#e6e8ec}.quiet{fill:#a5acb8}.grid{stroke:#3a3f4b}.one{stroke:#a5acb8}"""


@dataclasses.dataclass(frozen=True)
class Axis:
    """One axis of a picture.

    Args:
        label: what it shows.
        ticks: numbers that are written; by default round ones.
    """

    label: str
    ticks: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Line:
    """Points that are joined.

    Args:
        label: in the legend; none: it has no entry there, and no marks.
        points: along, up, and the error up and down, 0 for none.
        colour: which one.
        dash: "", "dashed" or "dotted".
        note: written at its end.
    """

    label: str
    points: Sequence[tuple[float, float, float]]
    colour: int
    dash: str = ""
    note: str = ""


@dataclasses.dataclass(frozen=True)
class Mark:
    """A dot on a row.

    Args:
        value: where it is.
        error: to both sides, 0 for none.
        kind: which of the kinds of the picture.
    """

    value: float
    error: float = 0.0
    kind: int = 0


@dataclasses.dataclass(frozen=True)
class Track:
    """A row of dots.

    Args:
        label: what they are of.
        told: the figures, as written beside it.
        marks: the dots.
    """

    label: str
    told: str
    marks: Sequence[Mark]


def lines(title: str, panels: Mapping[str, Sequence[Line]], across: Axis, up: Axis) -> str:
    """Returns panels of lines, one below the other, with the same axes.

    Args:
        title: what the picture shows.
        panels: lines by what is written above them, "" for nothing.
        across: the axis from left to right.
        up: the axis from below.
    """
    every = [line for each in panels.values() for line in each]
    points = [point for line in every for point in line.points]
    wide = _scale([x for x, _, _ in points], _EDGE + 46, WIDTH - _EDGE - 8)
    ends = [end for _, y, error in points for end in (y - error, y + error) if end > 0]
    parts, top = [], float(_EDGE)
    for heading, drawn in panels.items():
        if heading:
            parts.append(_text(_EDGE, top + 10, heading, "strong"))
            top += 20
        parts.append(_text(_EDGE, top + 10, up.label, "quiet"))
        top, bottom = top + 20, top + 230
        high = _scale(ends, bottom, top)
        for tick in up.ticks or _ticks(ends):
            parts.append(_line("grid", _EDGE + 46, high(tick), WIDTH - _EDGE, high(tick)))
            parts.append(_text(_EDGE + 42, high(tick) + 4, _number(tick), "quiet end"))
        for tick in across.ticks or _ticks([x for x, _, _ in points]):
            parts.append(_line("grid", wide(tick), top, wide(tick), bottom))
            parts.append(_text(wide(tick), bottom + 15, _number(tick), "quiet middle"))
        for line in drawn:
            parts.append(_drawn(line, wide, high))
        parts.append(_text(WIDTH - _EDGE, bottom + 31, across.label, "quiet end"))
        top = bottom + 46
    entries = {line.label: line for line in every if line.label}
    legend, top = _legend(list(entries.items()), top)
    told = [
        f"{heading}{': ' if heading else ''}{line.label}: "
        + ", ".join(f"{x:,.6g}: {y:.2g}" for x, y, _ in line.points)
        for heading, drawn in panels.items()
        for line in drawn
        if line.label
    ]
    return _picture(title, told, [*parts, *legend], top)


def tracks(
    title: str, groups: Mapping[str, Sequence[Track]], axis: Axis, kinds: Sequence[str]
) -> str:
    """Returns rows of dots with a line at 1, for ratios.

    Args:
        title: what the picture shows.
        groups: rows by what is written above them.
        axis: below all.
        kinds: what the kinds of dots are; a single one is not explained.
    """
    values = [
        mark.value + side * mark.error
        for each in groups.values()
        for track in each
        for mark in track.marks
        for side in (-1, 1)
    ]
    left, right = _EDGE + 6, WIDTH - _EDGE - 10
    place = _scale([*values, 1.0, *axis.ticks], left, right)
    parts, top = [], float(_EDGE)
    for heading, rows in groups.items():
        parts.append(_text(_EDGE, top + 10, heading, "strong"))
        top += 20
        for row in rows:
            parts.append(_text(_EDGE, top + 10, row.label))
            parts.append(_text(WIDTH - _EDGE, top + 10, row.told, "end"))
            parts.append(_line("grid", _EDGE, top + 23, WIDTH - _EDGE, top + 23))
            parts.append(_line("one", place(1), top + 17, place(1), top + 29))
            parts += [_dot(mark, place, top + 23) for mark in row.marks]
            top += 38
        top += 8
    for tick in axis.ticks or _ticks([*values, 1.0]):
        parts.append(_text(place(tick), top + 6, _number(tick), "quiet middle"))
    parts.append(_text(_EDGE, top + 24, axis.label, "quiet"))
    top += 38
    if len(kinds) > 1:
        for kind, meaning in enumerate(kinds):
            parts.append(_dot(Mark(1.0, kind=kind), lambda _: _EDGE + 6, top + 6))
            parts.append(_text(_EDGE + 18, top + 10, meaning))
            top += 18
    told = [
        f"{heading}: " + "; ".join(f"{row.label}: {row.told}" for row in rows)
        for heading, rows in groups.items()
    ]
    return _picture(title, told, parts, top)


def _scale(values: Iterable[float], first: float, last: float) -> Callable[[float], float]:
    """Returns where a number is between two places, logarithmically."""
    found = [math.log10(value) for value in values if value > 0]
    low, high = min(found), max(found)
    length = (high - low) or 1.0

    def place(value: float) -> float:
        share = (math.log10(max(value, 10**low)) - low) / length
        return first + (last - first) * share

    return place


def _ticks(values: Iterable[float]) -> list[float]:
    """Returns powers of ten between the ends, and steps between them where those are few."""
    found = [value for value in values if value > 0]
    low, high = min(found), max(found)
    steps = (1,) if high / low > 1000 else (1, 3) if high / low > 30 else (1, 2, 5)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = (step * 10.0**power for power, step in itertools.product(powers, steps))
    return [tick for tick in every if low * 0.999 <= tick <= high * 1.001]


def _number(value: float) -> str:
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if value >= size:
            return f"{value / size:g}{letter}"
    return f"{value:.6g}"


def _drawn(line: Line, wide: Callable[[float], float], high: Callable[[float], float]) -> str:
    colour = f"c{line.colour}"
    path = " ".join(f"{wide(x):.1f},{high(y):.1f}" for x, y, _ in line.points)
    parts = [f'<polyline class="{colour} {line.dash or "solid"}" points="{path}"/>']
    for x, y, error in line.points:
        if line.label:
            parts.append(
                f'<circle class="f{line.colour}" cx="{wide(x):.1f}" cy="{high(y):.1f}" r="2.5"/>'
            )
        if error:
            ends = high(y - error), high(y + error)
            parts.append(_line(f"{colour} thin", wide(x), ends[0], wide(x), ends[1]))
    if line.note:
        x, y, _ = line.points[-1]
        parts.append(_text(wide(x) - 4, high(y) + 22, line.note, "end"))
    return "".join(parts)


def _dot(mark: Mark, place: Callable[[float], float], y: float) -> str:
    """A dot with its error bar; a ring for the second kind."""
    colour = (3, 2)[mark.kind]
    fill = f"f{colour}" if mark.kind == 0 else f"panel c{colour}"
    x = place(mark.value)
    dot = f'<circle class="{fill} ring" cx="{x:.1f}" cy="{y:.1f}" r="{4 - mark.kind / 2}"/>'
    if not mark.error:
        return dot
    low, high = place(mark.value - mark.error), place(mark.value + mark.error)
    caps = [_line(f"c{colour}", end, y - 6, end, y + 6) for end in (low, high)]
    return _line(f"c{colour}", low, y, high, y) + "".join(caps) + dot


def _legend(entries: Sequence[tuple[str, Line]], top: float) -> tuple[list[str], float]:
    """Returns the entries in rows, and where they end."""
    parts, left = [], float(_EDGE)
    for label, line in entries:
        width = 30 + len(label) * _LETTER + 12
        if left > _EDGE and left + width > WIDTH - _EDGE:
            left, top = float(_EDGE), top + 18
        kind = f"c{line.colour} {line.dash or 'solid'}"
        parts.append(_line(kind, left, top + 6, left + 24, top + 6))
        parts.append(_text(left + 30, top + 10, label))
        left += width
    return parts, top + 18


def _text(x: float, y: float, text: str, kind: str = "") -> str:
    given = f' class="{kind}"' if kind else ""
    return f'<text{given} x="{x:.1f}" y="{y:.1f}">{html.escape(text, quote=False)}</text>'


def _line(kind: str, x: float, y: float, to_x: float, to_y: float) -> str:
    return f'<line class="{kind}" x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"/>'


def _picture(title: str, told: Sequence[str], parts: Sequence[str], height: float) -> str:
    """Returns the file; what it tells in words ends each group with a full stop."""
    tall = math.ceil(height + _EDGE / 2)
    light, dark = (
        "".join(
            f".c{i}{{stroke:{pair[which]}}}.f{i}{{fill:{pair[which]}}}"
            for i, pair in enumerate(_COLOURS)
        )
        for which in (0, 1)
    )
    style = f"{_STYLE}\n{light}\n@media(prefers-color-scheme:dark){{{_DARK}\n{dark}}}"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{tall}"'
        f' viewBox="0 0 {WIDTH} {tall}" role="img" aria-labelledby="title words">'
    )
    words = html.escape(". ".join(told), quote=False)
    return "\n".join(
        [
            head,
            f'<title id="title">{html.escape(title, quote=False)}</title>',
            f'<desc id="words">{words}.</desc>',
            f"<style>{style}</style>",
            f'<rect class="panel" width="{WIDTH}" height="{tall}" rx="6"/>',
            *parts,
            "</svg>\n",
        ]
    )

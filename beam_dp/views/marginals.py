"""The sections about marginals: attributes, pairs, noisy cells, and errors."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Axes
from beam_dp.privacy.noise.bound import NOISY_SHARE
from beam_dp.views.cells import (
    Answers,
    Asked,
    Cell,
    Groups,
    Truth,
    cells_of,
    groups_of,
    single_levels,
)
from beam_dp.views.markup import folded, paragraph, table, text
from beam_dp.views.pictures import MAX_COLUMNS, MAX_ROWS, Tile, bars, heat_map, in_words, legend
from beam_dp.views.terminal import counted, short

# The largest total size of the pictures; with this limit, a report stays under 2 MB.
_PICTURE_BYTES = 900_000
MAX_PAIRS = 400  # the number of pairs among which the strongest pairs are searched
_OPEN_PICTURES = 24  # further attributes are folded
_SHOWN_PAIRS = 6
_SHOWN_LARGER = 12  # the number of tables of three or more attributes, and of rows per table
_LARGER_CELLS = 2**15  # tables with more cells are not shown
_GROUPED_CELLS = 2**10  # in tables with more cells, levels are grouped
_MAX_CELLS = 50_000
_PAIR_CELLS = 2**14
_SHOWN_CELLS = 40
_LISTED = 3  # the number of names in a sentence
_WAYS = "single attributes", "pairs", "larger tables"
_MATRIX = range(3, 17)  # the numbers of attributes for which all pairs are drawn as one map
_MOST_THRESHOLDS = 0.95  # the share of cells for which the headline's count is large enough
_BAR_KINDS = (
    "Error bars from the noise alone are true for any data. Approximate error bars are"
    " predicted, for attributes that were measured together. Model-based error bars are predicted,"
    " for attributes that were not measured together. All of them are about the noise. If the"
    " records are a sample of a larger population, the error of sampling comes on top."
)
RULE = (
    "A cell is one level of an attribute, or one combination of levels of two attributes. A cell is"
    " good if its 95 % error bar is at most half of its count."
)
_ADVICE = "Leave these cells out of conclusions, or sum them with their neighbours."


@dataclasses.dataclass(frozen=True, eq=False)
class Marginals:
    """The sections about the marginals of one release."""

    answers: Answers
    singles: Sequence[int]  # positions of the attributes that the release can be asked about
    pairs: Sequence[Axes]  # ascending positions of the pairs to look through
    truth: Truth | None = None
    sets: Sequence[Axes] = ()  # ascending positions of the attributes of the released tables
    # The counts of the released records in a table, if the release has records.
    of_records: Callable[[Axes, Groups], NDArray[np.float64]] | None = None
    about_counts: str = "Numbers of records, with error bars."
    about_pairs: str = "Noise makes weak pairs look stronger than they are."

    def headline(self) -> str:
        """Returns a sentence that says for which counts the release is good."""
        return headline([cell for cells in self._tables.values() for cell in cells])

    def sections(self) -> dict[str, str]:
        """Returns the sections by title; the first one needs exact counts."""
        title = "Each attribute" if len(self.singles) > 1 else "The attribute"
        return {
            "Compared with the truth": "" if self.truth is None else self._error_section(),
            title: self._single_section(),
            "Pairs": self._pair_section(),
            "Three or more attributes": self._larger_section(),
            "What is too noisy": self._noisy_section(),
        }

    def _names(self, axes: Axes) -> tuple[str, ...]:
        return tuple(self.answers.domain.names[axis] for axis in axes)

    def _single_section(self) -> str:
        asked = [self._grouped(axis) for axis in self.singles]
        tables = cells_of(self.answers, asked, self.truth)
        figures = list(map(self._single, self.singles, tables))
        sizes = itertools.accumulate(map(len, figures))
        drawn = figures[: sum(size <= _PICTURE_BYTES for size in sizes)]
        rest, closed = len(figures) - len(drawn), drawn[_OPEN_PICTURES:]
        more = f"{rest:,} more attributes are not shown: run beam-dp answer DIR --marginal NAME"
        parts = [
            paragraph(text(self.about_counts, 400), "muted"),
            legend(has_truth=self.truth is not None, is_map=False),
            pictures(drawn[:_OPEN_PICTURES]),
            folded(counted(len(closed), "more attribute"), pictures(closed)),
            paragraph(text(more)) if rest else "",
            folded("What kinds of error bars mean", paragraph(_BAR_KINDS)),
        ]
        return "".join(parts)

    def _grouped(self, axis: int) -> Asked:
        """Returns the table to ask for: one attribute, with one group of levels per drawn bar."""
        is_named = self.answers.domain.attributes[axis].kind == "categorical"
        limit = MAX_ROWS if is_named else MAX_COLUMNS
        return (axis,), (groups_of(self.answers, axis, limit),)

    def _single(self, axis: int, cells: Sequence[Cell]) -> str:
        attribute = self.answers.domain.attributes[axis]
        note = "" if len(cells) == attribute.size else f"{attribute.size:,} levels, grouped. "
        drawn = [bars(f"Records by {attribute.name[:80]}", cells)]
        kind = "wide" if len(self.singles) == 1 else ""
        return figure(attribute.name, note + bar_words(cells), drawn, cells, kind)

    def _pair_section(self) -> str:
        shape = self.answers.domain.shape
        sized = [(axes, [shape[axis] for axis in axes]) for axes in self.pairs]
        pairs = [axes for axes, size in sized if min(size) > 1 and math.prod(size) <= _PAIR_CELLS]
        strengths = map(cramers_v, self.answers.values(pairs))
        ranked = sorted(zip(strengths, pairs, strict=True), key=lambda pair: -pair[0])
        if not ranked:
            return ""
        shown = ranked[:_SHOWN_PAIRS]
        asked = [
            (axes, [groups_of(self.answers, axis, MAX_ROWS) for axis in axes]) for _, axes in shown
        ]
        tables = cells_of(self.answers, asked, self.truth)
        figures = [
            self._pair(strength, axes, groups, cells)
            for (strength, axes), (_, groups), cells in zip(shown, asked, tables, strict=True)
        ]
        which = f"The {len(figures)} strongest of {len(ranked):,} pairs"
        if len(ranked) == len(figures):
            which = "The only pair" if len(ranked) == 1 else f"All {len(ranked)} pairs"
        words = (
            f"{which}, by Cramer's V: 0 if two attributes are independent, 1 if one determines the"
            f" other. {self.about_pairs} Colours follow the square root of the number."
        )
        return (
            paragraph(text(words, 600), "muted")
            + legend(has_truth=self.truth is not None, is_map=True)
            + pictures([self._matrix({axes: value for value, axes in ranked}), *figures])
        )

    def _matrix(self, strengths: dict[Axes, float]) -> str:
        """Returns the strengths of all pairs as one map; empty for few or many attributes."""
        axes = sorted({axis for pair in strengths for axis in pair})
        if len(axes) not in _MATRIX:
            return ""
        names = self._names(tuple(axes))
        tiles = []
        for pair in itertools.product(axes, repeat=2):
            value = round(strengths.get((min(pair), max(pair)), math.nan), 2)
            tiles.append(Tile(value, f"{' and '.join(self._names(pair))}: {short(value)}"))
        drawn = heat_map(
            "Cramer's V of each pair", ("", ""), (names, names), tiles, limit=1.0, unit="Cramer's V"
        )
        return figure("All pairs", "How strongly two attributes go together.", [drawn])

    def _pair(self, strength: float, axes: Axes, groups: Groups, cells: Sequence[Cell]) -> str:
        # The attribute with fewer groups becomes the columns, because phones are narrow.
        step = -1 if len(groups[1]) > len(groups[0]) else 1
        order = np.arange(len(cells)).reshape([len(group) for group in groups])
        places = (order.T if step < 0 else order).ravel().tolist()
        cells = [
            dataclasses.replace(cells[place], labels=cells[place].labels[::step])
            for place in places
        ]
        first, second = self._names(axes[::step])
        rows, columns = ([level.label for level in group] for group in groups[::step])
        by = f"{first[:60]} and {second[:60]}"
        drawn = map_figures(by, (first, second), (rows, columns), cells)
        words = f"Cramer's V {strength:.2f}. {bar_words(cells)}"
        kind = "" if self.truth is None else "side"
        return figure(f"{first} and {second}", words, drawn, cells, kind)

    @cached_property
    def _larger(self) -> dict[Axes, list[Cell]]:
        """The cells of ``_asked_larger``."""
        return self._cells(self._asked_larger)

    @cached_property
    def _asked_larger(self) -> list[Asked]:
        """The first tables of three or more attributes, in groups of levels."""
        asked: list[Asked] = []
        for axes in self._larger_sets:
            sizes = [self.answers.domain.shape[axis] for axis in axes]
            fitting = (
                limit
                for limit in range(max(*sizes, 3), 2, -1)
                if math.prod(min(size, limit) for size in sizes) <= _GROUPED_CELLS
            )
            if len(asked) < _SHOWN_LARGER and math.prod(sizes) <= _LARGER_CELLS:
                for limit in itertools.islice(fitting, 1):
                    asked.append((axes, [groups_of(self.answers, axis, limit) for axis in axes]))
        return asked

    def _cells(self, asked: Sequence[Asked]) -> dict[Axes, list[Cell]]:
        tables = cells_of(self.answers, asked, self.truth)
        return {axes: cells for (axes, _), cells in zip(asked, tables, strict=True)}

    @property
    def _larger_sets(self) -> list[Axes]:
        return [axes for axes in dict.fromkeys(self.sets) if len(axes) > 2]

    def _larger_section(self) -> str:
        if not self._larger_sets:
            return ""
        words = "The largest cells of tables that were asked for or measured."
        if len(self._larger) < len(self._larger_sets):
            words += f" {len(self._larger):,} of {len(self._larger_sets):,} tables are shown:"
            words += " to see another one, run beam-dp answer DIR --marginal a,b,c"
        shown = itertools.starmap(self._large, self._larger.items())
        return paragraph(text(words), "muted") + "".join(shown)

    def _large(self, axes: Axes, cells: Sequence[Cell]) -> str:
        """Returns the largest cells of a table of three or more attributes, folded."""
        *others, last = (name[:40] for name in self._names(axes))
        names = f"{', '.join(others)} and {last}"
        size = math.prod(self.answers.domain.shape[axis] for axis in axes)
        note = "" if len(cells) == size else f"{size:,} cells, grouped. "
        largest = sorted(cells, key=lambda cell: -cell.answer.value)[:_SHOWN_LARGER]
        shown = paragraph(text(note + bar_words(cells), 400), "muted") + _numbers(names, largest)
        return folded(f"{names}: {headline(cells)}", shown)

    @cached_property
    def _tables(self) -> dict[Axes, list[Cell]]:
        """The cells of ``_asked``."""
        return self._cells(self._asked)

    @cached_property
    def _asked(self) -> list[Asked]:
        """The marginals, level by level, to search for noisy cells."""
        domain = self.answers.domain
        asked: list[Asked] = []
        left = _MAX_CELLS
        for axes in (*((axis,) for axis in self.singles), *self.pairs):
            size = math.prod(domain.shape[axis] for axis in axes)
            if size <= left:
                left -= size
                asked.append((axes, [single_levels(domain.attributes[axis]) for axis in axes]))
            elif len(axes) == 1:
                asked.append(self._grouped(*axes))
        return asked

    def _noisy_section(self) -> str:
        rows = []
        for axis in self.singles:
            cells = self._tables[axis,]
            bad = [cell.labels[0][:40] for cell in cells if not cell.is_good]
            pairs = [table for axes, table in self._tables.items() if axis in axes and axes[1:]]
            inside = list(itertools.chain.from_iterable(pairs))
            few = sum(not cell.is_good for cell in inside)
            share = few / len(inside) if inside else len(bad) / len(cells)
            of_pairs = f"{few:,} of {len(inside):,} ({_percent(share)})" if inside else "none"
            levels = f"{len(bad):,} of {len(cells):,}" + (f": {words_of(bad)}" if bad else "")
            rows.append((share, self._names((axis,))[0], levels, of_pairs))
        rows.sort(key=lambda row: -row[0])
        header = ("attribute", "its levels", "cells of its pairs")
        shown = table("Too noisy, or without error bar", header, [row[1:] for row in rows])
        every = ((self._names(axes), cell) for axes in self._tables for cell in self._tables[axes])
        noisy = [pair for pair in every if pair[1].is_noisy]
        noisy.sort(key=lambda pair: -pair[1].answer.value)
        largest = [
            (_cell_name(names, cell), f"{cell.answer.value:,.1f}", f"{cell.answer.margin:,.1f}")
            for names, cell in noisy[:_SHOWN_CELLS]
        ]
        caption = f"The {len(largest)} largest of {len(noisy):,} cells that are too noisy"
        largest_table = table(caption, ("cell", "records", "± (95 %)"), largest, (1, 2))
        return paragraph(_ADVICE) + shown + (folded(caption, largest_table) if noisy else "")

    def _error_section(self) -> str:
        """Returns the private section about the differences between answers and exact counts."""
        rows, shares = [], dict[str, list[list[float]]]()
        asked = [*self._asked, *self._asked_larger]
        tables = [*self._tables.values(), *self._larger.values()]
        every = itertools.chain.from_iterable(tables)
        barred = [cell for cell in every if cell.answer.margin is not None]
        right = sum(not cell.is_missed for cell in barred)
        for (axes, groups), cells in zip(asked, tables, strict=True):
            true = np.array([cell.truth or 0 for cell in cells])
            answers = [np.array([cell.answer.value for cell in cells])]
            answers += [] if self.of_records is None else [self.of_records(axes, groups)]
            errors = [np.abs(values - true) for values in answers]
            wrong = [float(error.sum()) / (2 * max(true.sum(), 1)) for error in errors]
            shares.setdefault(_WAYS[min(len(axes), 3) - 1], []).append(wrong)
            hits = [not cell.is_missed for cell in cells if cell.answer.margin is not None]
            sizes = f"{len(cells):,}", short(errors[0].mean()), short(errors[0].max())
            inside = _percent(sum(hits) / len(hits)) if hits else ""
            row = words_of(self._names(axes)), *sizes, *map(_percent, wrong), inside
            rows.append((wrong[0], row))
        rows.sort(key=lambda row: -row[0])
        means = [
            ", ".join(
                f"{_percent(mean)} for {what}" for what, mean in zip(shares, part, strict=True)
            )
            for part in zip(
                *(np.mean(share, axis=0).tolist() for share in shares.values()), strict=True
            )
        ]
        words = (
            f"Of {len(barred):,} cells with an error bar, the truth is inside it for {right:,}"
            f" ({_percent(right / max(len(barred), 1))}). In the answers, the mean share of records"
            f" in the wrong cell is {'. In the released records, it is '.join(means)}."
        )
        kinds = ("wrong cell", "in released records")[: len(means)]
        header = ("marginal", "cells", "mean error", "largest error", *kinds, "in error bar")
        caption = "Errors of the answers by marginal: absolute differences, in records"
        errors_table = table(caption, header, [row for _, row in rows], range(1, len(header)))
        return paragraph(text(words, 700)) + folded(caption, errors_table)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def headline(cells: Sequence[Cell]) -> str:
    """Returns a sentence that says for which counts some cells are good enough to use."""
    barred = [cell.answer.margin for cell in cells if cell.answer.margin is not None]
    good = sum(cell.is_good for cell in cells)
    if not barred:
        return "No error bars: the accuracy of the counts is unknown"
    if not good:
        return f"Too noisy to use cell by cell: 0 of {len(cells):,} cells"
    threshold = max(float(np.quantile(barred, _MOST_THRESHOLDS)) / NOISY_SHARE, 2.0)
    about = short(float(f"{threshold:.2g}"))
    which = f"all {good:,}" if good == len(cells) else f"{good:,} of {len(cells):,}"
    return f"Good for counts above about {about} records: {which} cells"


def tiles(cells: Sequence[Cell], is_true: bool) -> list[Tile]:
    """Returns the tiles of a map of answers or of exact counts."""
    return [
        Tile(
            float(cell.truth or 0) if is_true else cell.answer.value,
            in_words(cell),
            is_struck=cell.is_noisy and not is_true,
        )
        for cell in cells
    ]


def map_figures(
    by: str,
    names: tuple[str, str],
    labels: tuple[Sequence[str], Sequence[str]],
    cells: Sequence[Cell],
) -> list[str]:
    """Returns a map of counts, next to that of the truth if known."""
    drawn = []
    for is_true in (False, True):
        if is_true and cells[0].truth is None:
            continue
        what = "Records in the truth" if is_true else "Records"
        shades = heat_map(f"{what} by {by}", names, labels, tiles(cells, is_true))
        drawn.append(f"<div>{paragraph(what)}{shades}</div>")
    return drawn


def pictures(figures: Iterable[str]) -> str:
    """Returns figures next to each other, as many as fit; empty if there are none."""
    inside = "".join(figures)
    return f'<div class="pictures">{inside}</div>' if inside else ""


def figure(
    title: str, words: str, drawn: Sequence[str], cells: Sequence[Cell] = (), kind: str = ""
) -> str:
    """Returns pictures with a title, a line of words, and a folded table of their numbers."""
    caption = (
        f"<figcaption><h3>{text(title)}</h3>{paragraph(text(words, 400), 'muted')}</figcaption>"
    )
    maps = f'<div class="maps">{"".join(drawn)}</div>'
    inside = maps + folded("Numbers", _numbers(title, cells))
    return f'<figure class="{kind}">{caption}{inside}</figure>'


def _numbers(title: str, cells: Sequence[Cell]) -> str:
    rows = [_row(cell) for cell in cells]
    header = "level", "records", "± (95 %)", "error bar", "truth", "difference"
    what = f"{title[:80]}, in records"
    return table(what, header[: len(rows[0])], rows, (1, 2, 4, 5)) if rows else ""


def _row(cell: Cell) -> list[str]:
    answer = cell.answer
    margin = "none" if answer.margin is None else f"{answer.margin:,.1f}"
    kind = answer.reason or (answer.kind or "").replace("_", " ")
    row = [", ".join(cell.labels), f"{answer.value:,.1f}", margin, kind]
    if cell.truth is not None:
        row += [f"{cell.truth:,}", f"{answer.value - cell.truth:+,.1f}"]
    return row


def bar_words(cells: Sequence[Cell]) -> str:
    """Returns a sentence about the lengths and kinds of the error bars of some cells."""
    margins = [cell.answer.margin for cell in cells if cell.answer.margin is not None]
    kinds = dict.fromkeys(str(cell.answer.kind) for cell in cells if cell.answer.margin is not None)
    without = [cell.answer.reason for cell in cells if cell.answer.margin is None]
    words = ""
    if margins:
        ends = dict.fromkeys(short(margin) for margin in (min(margins), max(margins)))
        words = f"Error bars ± {' to '.join(ends)} records"
        words += f" ({' and '.join(kinds).replace('_', '-')})."
    if without:
        words += f" No error bar for {len(without)} of {len(cells)} cells: {without[0]}."
    return words.strip()


def cramers_v(values: np.ndarray) -> float:
    """Returns Cramer's V for a table of counts, with negative counts set to 0."""
    counts = np.maximum(values, 0.0)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    if min(counts.shape) < 2:
        return 0.0
    shares = counts / counts.sum()
    expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    squares = float(((shares - expected) ** 2 / expected).sum())
    return math.sqrt(squares / (min(shares.shape) - 1))


def _cell_name(names: Sequence[str], cell: Cell) -> str:
    return ", ".join(
        f"{name[:60]} {label[:60]}" for name, label in zip(names, cell.labels, strict=True)
    )


def words_of(values: Sequence[str]) -> str:
    """Returns the first few strings, and how many more strings there are."""
    shown, num_more = ", ".join(values[:_LISTED]), len(values) - _LISTED
    return shown if num_more <= 0 else f"{shown} and {num_more:,} more"


def pairs_of(sets: Iterable[Axes], num_attributes: int, limit: int) -> list[Axes]:
    """Returns all pairs of attributes if there are few, else the pairs inside the given sets."""
    if math.comb(num_attributes, 2) <= limit:
        return list(itertools.combinations(range(num_attributes), 2))
    inside = (pair for axes in sets for pair in itertools.combinations(axes, 2))
    return list(itertools.islice(dict.fromkeys(inside), limit))

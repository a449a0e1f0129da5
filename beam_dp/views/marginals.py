"""The sections about marginals: columns, pairs, larger tables, and errors."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Axes
from beam_dp.privacy.noise.bound import NOISY_SHARE
from beam_dp.views.cells import (
    Answers,
    Asked,
    Cell,
    Group,
    Groups,
    Truth,
    cells_of,
    groups_of,
    single_levels,
)
from beam_dp.views.columns import UNUSABLE, ColumnState, column_state, column_table, counted_states
from beam_dp.views.markup import folded, paragraph, table, text
from beam_dp.views.pictures import MAX_COLUMNS, MAX_ROWS, Tile, bars, heat_map, in_words, legend
from beam_dp.views.terminal import NAMED, short, words_of

# The largest total size of the pictures; with this limit, a report stays under 2 MB.
_PICTURE_BYTES = 900_000
MAX_PAIRS = 400  # the number of pairs that are examined
_SHOWN_PAIRS = 6
# A pair is shown if noise alone would give as much with a chance of about 1 in 30,000 (standard
# deviations), and if its Cramer's V is not tiny.
_CLEAR, _TINY = 4.0, 0.05
_STRENGTHS = {0.3: "Weak", 0.5: "Medium", math.inf: "Strong"}  # of a Cramer's V below a number
_MARGIN = 1.96  # standard errors in an error bar
_SHOWN_LARGER = 12  # the number of tables of three or more attributes, and of rows per table
_LARGER_CELLS = 2**15  # tables with more cells are not shown
_GROUPED_CELLS = 2**10  # in tables with more cells, levels are grouped
_MAX_CELLS = 50_000
_WAYS = "single attributes", "pairs", "larger tables"
_MOST_THRESHOLDS = 0.95  # the share of cells for which the headline's count is large enough
COLUMNS = "Columns"
_RULE = "A count is good if its error bar (95 %) is at most half of it."
_BAR_KINDS = (
    "Error bars from the noise alone are true for any data. Approximate error bars are"
    " predicted, for attributes that were measured together. Model-based error bars are predicted,"
    " for attributes that were not measured together. All of them are about the noise. If the"
    " records are a sample of a larger population, the error of sampling comes on top."
)


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
    about_pairs: str = ""
    # Of each column with found bins: the share of the records that an end may hide, and whether
    # far values may be cut.
    ends: Mapping[str, tuple[float, bool]] = dataclasses.field(default_factory=dict)

    def headlines(self) -> tuple[str, str]:
        """Returns which columns are good, and for which counts they are."""
        counts = headline([cell for cells in self._tables.values() for cell in cells])
        if len(self.states) == 1:
            return counts, _RULE
        states, names = counted_states(self.states.values())
        lines = names, f"{counts.partition(':')[0]}.", self._pair_words
        return states, "\n".join(filter(None, lines))

    def sections(self) -> dict[str, str]:
        """Returns the sections by title; that of the truth needs exact counts."""
        return {
            COLUMNS: self._state_section(),
            "Compared with the truth": "" if self.truth is None else self._error_section(),
            "Pictures": self._single_section(),
            "Pairs": self._pair_section(),
            "Three or more columns": self._larger_section(),
        }

    @cached_property
    def states(self) -> dict[int, ColumnState]:
        """What each column is good for."""
        attributes, none = self.answers.domain.attributes, (0.0, False)
        named = [(axis, attributes[axis]) for axis in self.singles]
        return {
            axis: column_state(column, self._tables[axis,], *self.ends.get(column.name, none))
            for axis, column in named
        }

    def _state_section(self) -> str:
        names, related = self.answers.domain.names, self._related
        rows = [
            (axis, state, [names[sum(axes) - axis] for axes in related if axis in axes])
            for axis, state in self.states.items()
        ]
        return column_table(rows, len(self._figures))

    def _names(self, axes: Axes) -> tuple[str, ...]:
        return tuple(self.answers.domain.names[axis] for axis in axes)

    @cached_property
    def _figures(self) -> list[str]:
        """The pictures of the first columns, as many as fit in a page."""
        asked = [((axis,), (self._groups(axis, MAX_COLUMNS),)) for axis in self.singles]
        tables = cells_of(self.answers, asked, self.truth)
        figures = list(map(self._single, self.singles, tables))
        sizes = itertools.accumulate(map(len, figures))
        return figures[: sum(size <= _PICTURE_BYTES for size in sizes)]

    def _single_section(self) -> str:
        rest, drawn = len(self.singles) - len(self._figures), pictures(self._figures)
        more = f"{rest:,} more columns are not shown: run beam-dp answer DIR --marginal NAME"
        words, asked = self.about_counts, self._asked[: len(self.singles)]
        if self.of_records is not None:
            counts = np.concatenate(list(itertools.starmap(self.of_records, asked)))
            values = [cell.answer.value for axes, _ in asked for cell in self._tables[axes]]
            far = short(float(np.abs(counts - values).max()))
            words += f" Counts of the copy's rows differ from these by up to {far} records."
        parts = [
            paragraph(text(words, 600), "muted"),
            legend(has_truth=self.truth is not None, is_predicted="predicted" in drawn),
            drawn,
            paragraph(text(more)) if rest else "",
            folded("What kinds of error bars mean", paragraph(_BAR_KINDS)),
        ]
        return "".join(parts)

    def _groups(self, axis: int, limit: int) -> list[Group]:
        """Returns groups of levels, without null and other where noise explains their counts."""
        attribute, cells = self.answers.domain.attributes[axis], self._tables[axis,]
        quiet = [
            [code]
            for code in (attribute.other_code, attribute.null_code)
            if code is not None and len(cells) == attribute.size and cells[code].is_absent
        ]
        is_text = attribute.kind == "categorical"
        groups = groups_of(self.answers, axis, MAX_ROWS if is_text else limit)
        return [group for group in groups if group.codes.tolist() not in quiet] or groups

    def _single(self, axis: int, cells: Sequence[Cell]) -> str:
        attribute = self.answers.domain.attributes[axis]
        is_grouped = len(cells) < attribute.num_levels
        state = self.states[axis]
        words = f"{state.word.capitalize()}: {state.levels}. {bar_words(cells)}"
        words += f" {attribute.size:,} levels, grouped." * is_grouped
        # After the last of many bars, null would look like the largest value.
        apart = [cell for cell in cells[MAX_ROWS:] if cell.labels[0] in ("other", "null")]
        words += "".join(f" Not drawn: {in_words(cell)}." for cell in apart)
        drawn = [bars(f"Records by {attribute.name[:80]}", cells[: len(cells) - len(apart)])]
        kind = "wide" if len(self.singles) == 1 else ""
        inside = figure(attribute.name, words, drawn, cells, kind)
        return inside.replace("<figure", f'<figure id="column-{axis}"', 1)

    @cached_property
    def _related(self) -> dict[Axes, float]:
        """Cramer's V of the pairs that show more than noise, the largest first."""
        shape, strengths = self.answers.domain.shape, {}
        unusable = {axis for axis, state in self.states.items() if state.word == UNUSABLE}
        for axes, cells in self._tables.items():
            if len(axes) == 2 and not unusable & {*axes}:
                strength, excess = relation(cells, [shape[axis] for axis in axes])
                if strength > _TINY and excess > _CLEAR:
                    strengths[axes] = strength
        return dict(sorted(strengths.items(), key=lambda pair: -pair[1]))

    @cached_property
    def _pair_words(self) -> str:
        """How many pairs show more than noise; empty if there are none."""
        pairs = [cells for axes, cells in self._tables.items() if len(axes) == 2]
        if pairs and all(cell.answer.margin is None for cells in pairs for cell in cells):
            return "Relations: no errors of pairs are stated, so noise may cause what you see."
        total = math.comb(len(self.singles), 2)
        words = f"Relations: the copy shows {len(self._related):,} of {total:,} pairs of columns"
        words += f" ({len(pairs):,} were examined)" * (len(pairs) < total)
        return f"{words}; believe no other comparison of columns." if pairs else ""

    def _pair_section(self) -> str:
        if not self._pair_words:
            return ""
        shown, others = [*self._related][:_SHOWN_PAIRS], [*self._related][_SHOWN_PAIRS:]
        asked = [(axes, [self._groups(axis, MAX_ROWS) for axis in axes]) for axes in shown]
        tables = cells_of(self.answers, asked, self.truth)
        figures = [
            self._pair(self._related[axes], axes, groups, cells)
            for (axes, groups), cells in zip(asked, tables, strict=True)
        ]
        words = f"{self._pair_words} "
        for what, part in (("Drawn, strongest first", shown), ("Not drawn", others)):
            names = words_of([" and ".join(self._names(axes)) for axes in part], NAMED)
            words += f"{what}: {names}. " if part else ""
        words += "Of other pairs, the release does not tell whether they are related. "
        marks = legend(has_truth=self.truth is not None, is_map=True) if figures else ""
        return paragraph(text(words + self.about_pairs, 2_000)) + marks + pictures(figures)

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
        scale = next(word for limit, word in _STRENGTHS.items() if strength < limit)
        words = f"{scale} relation: Cramer's V {strength:.2f} of 1. {bar_words(cells)}"
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
                asked.append((axes, [groups_of(self.answers, *axes, MAX_COLUMNS)]))
        return asked

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
    return f"Nearly all counts above about {about} records are good: {which} cells"


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
        drawn.append(f"<div>{paragraph(what if cells[0].truth is not None else '')}{shades}</div>")
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


def relation(cells: Sequence[Cell], shape: Sequence[int]) -> tuple[float, float]:
    """Returns Cramer's V of a pair, and by how many standard deviations it exceeds noise.

    Squared differences from independence, in standard errors, have a chi-squared distribution if
    noise causes them; its cube root is normal (Wilson and Hilferty, 1931).
    """
    values = np.array([cell.answer.value for cell in cells]).reshape(shape)
    errors = np.array([cell.answer.margin for cell in cells], np.float64).reshape(shape) / _MARGIN
    strength, freedom = cramers_v(values), (shape[0] - 1) * (shape[1] - 1)
    if not freedom or np.isnan(errors).all():
        return strength, math.inf
    with np.errstate(divide="ignore", invalid="ignore"):
        expected = np.outer(values.sum(axis=1), values.sum(axis=0)) / values.sum()
        squares = float(np.nansum(((values - expected) / errors) ** 2)) / freedom
    spread = 2 / (9 * freedom)
    return strength, (math.cbrt(squares) - 1 + spread) / math.sqrt(spread)


def pairs_of(sets: Iterable[Axes], num_attributes: int, limit: int) -> list[Axes]:
    """Returns all pairs of attributes if there are few, else the pairs inside the given sets."""
    if math.comb(num_attributes, 2) <= limit:
        return list(itertools.combinations(range(num_attributes), 2))
    inside = (pair for axes in sets for pair in itertools.combinations(axes, 2))
    return list(itertools.islice(dict.fromkeys(inside), limit))

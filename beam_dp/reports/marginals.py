"""Pictures and tables of marginals: single attributes, the strongest pairs and noisy cells."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from beam_dp.domain.attributes import Attribute
from beam_dp.reports.cells import (
    Answers,
    Asked,
    Cell,
    Counts,
    Groups,
    cells_of,
    groups_of,
    single_levels,
)
from beam_dp.reports.markup import (
    MAX_LYING,
    MAX_STANDING,
    bars,
    folded,
    heat_map,
    legend,
    paragraph,
    section,
    table,
    text,
)
from beam_dp.reports.page import words_of
from beam_dp.reports.terminal import short

Axes = tuple[int, ...]

# The largest total size of the pictures; with this limit, a report stays under 2 MB.
_PICTURE_BYTES = 900_000
MAX_PAIRS = 400  # the number of pairs among which the strongest pairs are searched
_SHOWN_PAIRS = 6
_MAX_CELLS = 50_000
_PAIR_CELLS = 2**14
_SHOWN_CELLS = 40
_BAR_KINDS = (
    "Numbers of records. Exact error bars follow from the noise alone, for any data. Approximate"
    " error bars are predicted, for attributes that were measured together. Model-based error bars"
    " are predicted, for interactions that were not measured."
)


@dataclasses.dataclass(frozen=True, eq=False)
class Marginals:
    """The sections about the marginals of one release."""

    answers: Answers
    singles: Sequence[int]  # positions of the attributes that the release answers for
    pairs: Sequence[Axes]  # ascending positions of the pairs to look through
    truth: Counts | None = None

    def sections(self) -> list[str]:
        """Returns the sections about attributes, pairs, noise and, given exact counts, errors."""
        tables = self._whole_tables()
        return [
            self._single_section(),
            self._pair_section(),
            _noisy_section(tables),
            "" if self.truth is None else _error_section(tables),
        ]

    def _names(self, axes: Axes) -> tuple[str, ...]:
        return tuple(self.answers.domain.names[axis] for axis in axes)

    def _single_section(self) -> str:
        attributes = [self.answers.domain.attributes[axis] for axis in self.singles]
        asked = [self._grouped(axis) for axis in self.singles]
        tables = cells_of(self.answers, asked, self.truth)
        figures: list[str] = []
        size = 0
        for attribute, cells in zip(attributes, tables, strict=True):
            drawn = _single(attribute, cells)
            size += len(drawn)
            if size > _PICTURE_BYTES:
                break
            figures.append(drawn)
        rest = len(attributes) - len(figures)
        more = f"{rest:,} more attributes are not drawn: ask beam-dp answer DIR --marginal NAME"
        return section(
            "Each attribute",
            paragraph(_BAR_KINDS, "muted"),
            legend(has_truth=self.truth is not None, is_map=False),
            f'<div class="pictures">{"".join(figures)}</div>',
            paragraph(text(more)) if rest else "",
        )

    def _grouped(self, axis: int) -> Asked:
        """Returns an attribute with one group per bar of its picture."""
        is_ordered = self.answers.domain.attributes[axis].kind != "categorical"
        most = MAX_STANDING if is_ordered else MAX_LYING
        return (axis,), (groups_of(self.answers, axis, most),)

    def _pair_section(self) -> str:
        shape = self.answers.domain.shape
        sized = [(axes, [shape[axis] for axis in axes]) for axes in self.pairs]
        pairs = [axes for axes, own in sized if min(own) > 1 and math.prod(own) <= _PAIR_CELLS]
        strengths = map(cramers_v, self.answers.values(pairs))
        known = sorted(zip(strengths, pairs, strict=True), key=lambda each: -each[0])
        if not known:
            return ""
        shown = known[:_SHOWN_PAIRS]
        grouped = [
            (axes, [groups_of(self.answers, axis, MAX_LYING) for axis in axes]) for _, axes in shown
        ]
        figures = [
            self._pair(strength, *asked, cells)
            for (strength, _), asked, cells in zip(
                shown, grouped, cells_of(self.answers, grouped, self.truth), strict=True
            )
        ]
        which = f"The {len(figures)} strongest of {len(known):,} pairs"
        if len(known) == 1:
            which = "The only pair"
        words = (
            f"{which}, by Cramer's V of the release's answers: 0 if two attributes are independent,"
            " 1 if one determines the other. Noise makes weak pairs look stronger than they are."
        )
        return section(
            "The strongest pairs",
            paragraph(text(words, 400), "muted"),
            legend(has_truth=self.truth is not None, is_map=True),
            f'<div class="pictures">{"".join(figures)}</div>',
        )

    def _pair(self, strength: float, axes: Axes, groups: Groups, cells: Sequence[Cell]) -> str:
        names, num_columns = self._names(axes), len(groups[1])
        # The attribute with fewer groups becomes the columns, because phones are narrow.
        if num_columns > len(groups[0]):
            turned = np.arange(len(cells)).reshape(-1, num_columns).T.ravel()
            found = (cells[place] for place in turned.tolist())
            cells = [dataclasses.replace(each, labels=each.labels[::-1]) for each in found]
            names, num_columns = names[::-1], len(groups[0])
        first, second = names
        told = f"Records by {first[:60]} and {second[:60]}: {_in_words(cells)}"
        picture = heat_map(told, cells, num_columns, (first, second))
        words = f"Cramer's V {strength:.2f}. {bar_words(cells)}"
        return figure(f"{first} and {second}", words, picture, cells)

    def _whole_tables(self) -> dict[tuple[str, ...], list[Cell]]:
        """Returns the cells, level by level, of the marginals to search for noisy cells."""
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
        tables = cells_of(self.answers, asked, self.truth)
        names = (self._names(axes) for axes, _ in asked)
        return dict(zip(names, tables, strict=True))


def _single(attribute: Attribute, cells: Sequence[Cell]) -> str:
    told = f"Records by {attribute.name[:80]}: {_in_words(cells)}"
    note = "" if len(cells) == attribute.size else f"{attribute.size:,} levels, grouped. "
    return figure(attribute.name, note + bar_words(cells), bars(told, cells), cells)


def figure(title: str, words: str, picture: str, cells: Sequence[Cell]) -> str:
    """Returns a picture with its title, a line of words, and a folded table of its numbers."""
    header = [*_columns(cells)]
    rows = [_row(cell) for cell in cells]
    numbers = folded("Numbers", table(f"{title[:80]}, in records", header, rows, (1, 2, 4, 5)))
    caption = (
        f"<figcaption><h3>{text(title)}</h3>{paragraph(text(words, 400), 'muted')}</figcaption>"
    )
    return f"<figure>{caption}{picture}{numbers}</figure>"


def _columns(cells: Sequence[Cell]) -> Iterator[str]:
    yield from ("level", "records", "± (95 %)", "error bar")
    if cells and cells[0].truth is not None:
        yield from ("truth", "difference")


def _row(cell: Cell) -> list[str]:
    answer = cell.answer
    margin = "none" if answer.margin is None else f"{answer.margin:,.1f}"
    kind = answer.reason or (answer.kind or "").replace("_", " ")
    row = [", ".join(cell.labels), f"{answer.value:,.1f}", margin, kind]
    if cell.truth is not None:
        row += [f"{cell.truth:,}", f"{answer.value - cell.truth:+,.1f}"]
    return row


def bar_words(cells: Iterable[Cell]) -> str:
    """Returns a sentence about the kinds of error bars of some cells."""
    cells = list(cells)
    kinds = dict.fromkeys(cell.answer.kind for cell in cells if cell.answer.margin is not None)
    names = [str(kind).replace("_", "-") for kind in kinds]
    without = [cell.answer.reason for cell in cells if cell.answer.margin is None]
    told = f"Error bars: {' and '.join(names)}." if names else ""
    if without:
        told += f" No error bar for {len(without)} of {len(cells)} cells: {without[0]}."
    return told.strip()


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


def _noisy_section(tables: dict[tuple[str, ...], list[Cell]]) -> str:
    rows, noisy = [], []
    for names, cells in tables.items():
        found = [cell for cell in cells if cell.is_noisy]
        without = sum(cell.answer.margin is None for cell in cells)
        if found or without:
            share = len(found) / len(cells)
            rows.append((share, words_of(names), len(cells), len(found), without))
            noisy += [(cell, names) for cell in found]
    rule = (
        "A cell counts as too noisy where its error bar, for 95 % of cases, is longer than half of"
        " its value: leave it out of conclusions, or sum it with its neighbours."
    )
    if not rows:
        return section("Cells that are too noisy to use", paragraph(text(f"None. {rule}", 400)))
    rows.sort(key=lambda row: -row[0])
    shown = [
        (names, f"{size:,}", f"{few:,}", f"{share:.0%}", f"{without:,}")
        for share, names, size, few, without in rows
    ]
    noisy.sort(key=lambda each: -each[0].answer.value)
    header = ("marginal", "cells", "too noisy", "share", "no error bar")
    cells_shown = [
        (_cell_name(names, cell), f"{cell.answer.value:,.1f}", f"{cell.answer.margin:,.1f}")
        for cell, names in noisy[:_SHOWN_CELLS]
    ]
    caption = f"The {len(cells_shown)} largest of {len(noisy):,} cells that are too noisy"
    return section(
        "Cells that are too noisy to use",
        paragraph(text(rule, 400)),
        table(caption, ("cell", "records", "± (95 %)"), cells_shown, (1, 2)) if noisy else "",
        folded("By marginal", table("Cells by marginal", header, shown, (1, 2, 3, 4))),
    )


def _error_section(tables: dict[tuple[str, ...], list[Cell]]) -> str:
    """Returns the private section about the differences between answers and exact counts."""
    rows = []
    held = barred = 0
    for names, cells in tables.items():
        errors = [abs(cell.answer.value - (cell.truth or 0)) for cell in cells]
        total = sum(cell.truth or 0 for cell in cells)
        with_bar = [cell for cell in cells if cell.answer.margin is not None]
        inside = sum(not cell.is_missed for cell in with_bar)
        held, barred = held + inside, barred + len(with_bar)
        rows.append(
            (
                words_of(names),
                f"{len(cells):,}",
                short(sum(errors) / len(errors)),
                short(max(errors)),
                f"{sum(errors) / (2 * total):.4f}" if total else "",
                f"{inside / len(with_bar):.0%}" if with_bar else "",
            )
        )
    header = ("marginal", "cells", "mean error", "largest error", "total variation", "in error bar")
    words = (
        f"Of {barred:,} cells with an error bar, the truth is inside it for {held:,}"
        f" ({held / max(barred, 1):.1%}). Errors are absolute differences, in records."
    )
    return section(
        "Compared with the truth",
        paragraph(text(words, 500)),
        table("Errors by marginal, in records", header, rows, (1, 2, 3, 4, 5)),
    )


def _cell_name(names: Sequence[str], cell: Cell) -> str:
    return ", ".join(
        f"{name[:60]} {label[:60]}" for name, label in zip(names, cell.labels, strict=True)
    )


def _in_words(cells: Sequence[Cell]) -> str:
    """Returns the largest cells in words, for readers who can't see the picture."""
    largest = sorted(cells, key=lambda cell: -cell.answer.value)[:3]
    told = [f"{', '.join(cell.labels)[:60]} {short(cell.answer.value)}" for cell in largest]
    return f"most are {'; '.join(told)}"


def pairs_of(sets: Iterable[Axes], num_attributes: int, most: int) -> list[Axes]:
    """Returns all pairs of attributes if there are few, else the pairs inside the given sets."""
    if math.comb(num_attributes, 2) <= most:
        return list(itertools.combinations(range(num_attributes), 2))
    inside = (pair for axes in sets for pair in itertools.combinations(axes, 2))
    return list(itertools.islice(dict.fromkeys(inside), most))

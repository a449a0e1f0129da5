"""What each column of a release is good for, and how it compares with the exact records.

The state of a column follows from public numbers alone. The comparison is private.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.ordered import BinnedAttribute, OrderedAttribute
from beam_dp.domain.texts import DAY
from beam_dp.releases.synthetic_database.shards import bin_positions, random_words, values_within
from beam_dp.views.cells import numbers_of
from beam_dp.views.markup import Markup, folded, paragraph, table, text
from beam_dp.views.terminal import NAMED, counted, short, words_of

if TYPE_CHECKING:
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase
    from beam_dp.views.cells import Cell, Truth

# From the best state to the worst, each with its sign, so that no reader needs colours.
GOOD, LIMITED, UNUSABLE, UNKNOWN = "good", "limited", "not usable", "of unknown accuracy"
_SIGNS = {GOOD: "\N{BLACK CIRCLE}", LIMITED: "\N{CIRCLE WITH LEFT HALF BLACK}"}
_SIGNS |= {UNUSABLE: "\N{WHITE CIRCLE}", UNKNOWN: "?"}
_TYPES = {"categorical": "text", "numeric": "number", "integer": "whole number"}
# What the words of the table mean; a page explains those that it shows.
_MEANINGS = {
    "good": "on its own, the column is close to the records for the uses named, except for counts"
    " that are marked as too noisy. This says nothing about comparisons with other columns.",
    "not usable": "half of the records may be in other, in noisy levels or beyond the ends, or"
    " there is only one bin. Declare values or edges in the domain file.",
    "related to": "the two go together more than noise explains, the strongest first. Compare no"
    " others: the copy does not tell whether they are related.",
    "shares": "the part of the records that has a value or lies in a range.",
    "medians": "half of the records lie below; a median is only as exact as the bin it is in.",
    "averages, spread": "of amounts: averages of identifiers, such as customer numbers or"
    " postcodes, mean nothing. No column is good for extremes: the ends shown are ends of bins.",
    "moved into each end": "at most about this share of the records lies below the lowest value"
    " shown, and at most as much above the highest. They count in the first and last level, so"
    " averages, spread and totals may be wrong. If these are the ends of your table, nothing was"
    " moved; otherwise declare the ends in the domain file, if they are public.",
    "far values": "so far beyond the ends that even a small share of them may change averages.",
    "other numbers, if any": "such as 9 for unknown: counted as the nearer value, so averages may"
    " differ. If you know that the column has only the two values shown, nothing was changed.",
    "unequal bins": "a tall bar may only be a wide range.",
    "null": "the field is empty, or has a code that you declared for it.",
    "noisy levels": "levels with an error bar (95 %) above half of their count. Add up several.",
    "levels": "the values of a column, or ranges of them (bins). The release found them with noise,"
    " or you declared them. Good levels have an error bar (95 %) of at most half of their count;"
    " other and null are not among them.",
}
# Shares of the records: that each end of a good column may hide; in other or in noisy levels, at
# most, of a good column, and of one that can be used.
_MOST_CUT, _MOST_LOST, _MOST_USED = 0.025, 0.1, 0.5
# A column agrees with the records if its largest error (``_distances``) is at most the first of
# these, and in its middle if the first two of its errors are at most the second.
_NEAR, _MIDDLE = 0.1, 0.2
_VERDICTS = "As in the records", "Right for medians and shares only", "Different"
_FIGURES = "mean", "standard deviation", "5 %", "median", "95 %"
_SHARES = "beyond the edges", "in other", "without a level", "in other of the release"
_ABOUT = (
    "All rows of the records, and all rows of the release. Their bins are the records with each"
    " value drawn anew within its bin: where they differ from the records, that is what the bins"
    " alone cost. All other differences are due to noise, or to records that were left out."
)


class ColumnState(NamedTuple):
    """What a column is good for, in words."""

    name: str
    word: str
    uses: str
    notes: str
    levels: str
    num_good: str


def column_state(
    attribute: Attribute, cells: Sequence[Cell], cut_share: float, has_far_values: bool
) -> ColumnState:
    """Returns what a column is good for, from the counts of its levels, perhaps grouped.

    ``cut_share``: the share of the records that each end of found bins may hide.
    ``has_far_values``: whether far values may be among them (``may_be_cut``).
    """
    is_grouped = len(cells) < attribute.size
    regular = cells if is_grouped else cells[: attribute.num_levels]
    values = np.maximum([cell.answer.value for cell in cells], 0.0)
    shares = (values / (values.sum() or 1.0)).tolist()
    noisy = sum(share for share, cell in zip(shares, regular, strict=False) if not cell.is_good)
    other, empty = (
        0.0 if code is None or is_grouped or cells[code].is_absent else shares[code]
        for code in (attribute.other_code, attribute.null_code)
    )
    labels = attribute.label(0), attribute.label(attribute.num_levels - 1)
    low, high = labels[0].strip("[").partition(", ")[0], labels[1].rpartition(", ")[2].strip("]")
    ends = low if low == high else f"{low} to {high}"
    is_ordered, are_bins = (isinstance(attribute, of) for of in (OrderedAttribute, BinnedAttribute))
    is_found = bool(
        getattr(attribute, "edges_from", None) or getattr(attribute, "values_from", None)
    )
    whole = getattr(attribute, "whole_ends", None)
    is_one = are_bins and attribute.num_levels == 1
    are_bins &= whole is None or not np.array_equal(*whole)
    is_pair = is_ordered and not are_bins and attribute.num_levels == 2  # such as 0 and 1
    is_cut = has_far_values or (cut_share > _MOST_CUT and not is_pair)
    is_known = any(cell.answer.margin is not None for cell in cells)
    far = " far values" * has_far_values
    beyond = "in other" if attribute.other_code is not None else "left out"
    beyond = "counted there" if getattr(attribute, "clip", False) else beyond
    notes = {
        f"{_percent(other)} in other": other > 0,
        f"{_percent(empty)} null": empty > 0,
        "only one bin: declare its edges": is_one,
        f"at most {_percent(min(2 * cut_share, 1.0))} other numbers, if any": is_pair and is_found,
        f"at most {_percent(cut_share)}{far} moved into each end": is_cut and not is_one,
        f"ends declared; records beyond are {beyond}": is_ordered and not is_found,
        f"{_percent(noisy)} in noisy levels": noisy > _MOST_LOST and is_known,
    }
    uses = "medians, shares" if is_ordered and not is_pair else "shares"
    word, uses = GOOD, "averages, spread, " * is_ordered + uses
    if not is_known:
        word, uses = UNKNOWN, "its errors are not stated"
    elif is_one or max(other, noisy, 2 * is_cut * cut_share) > _MOST_USED:
        word, uses = UNUSABLE, "nothing"
    elif is_cut or max(other, noisy) > _MOST_LOST:
        word, uses = LIMITED, uses.replace("averages, spread, ", "") + "; not averages" * is_cut
    kind = _TYPES.get(attribute.kind, attribute.kind)
    kind = f"whole {kind}" if getattr(attribute, "whole", False) else kind
    widths = np.diff(getattr(attribute, "places", ()))
    noun = "unequal " * bool(are_bins and np.ptp(widths) > 1e-6 * widths.max())
    noun += "bin" if are_bins else "value" if is_ordered or not is_found else "common value"
    levels = f"{kind}, {counted(attribute.num_levels, noun)}"
    levels += f" {'found' if is_found else 'declared'}" + f": {ends}" * is_ordered
    levels += f"; rarer ones {beyond}" * (noun == "common value")
    num_good = f"{sum(cell.is_good for cell in regular):,} of {len(regular):,}"
    shown = "; ".join(note for note, is_so in notes.items() if is_so)
    return ColumnState(attribute.name, word, uses, shown, levels, num_good)


def _percent(share: float) -> str:
    return f"{100 * round(share, 3):.3g} %"


def counted_states(states: Collection[ColumnState]) -> tuple[str, str]:
    """Returns how many columns are in each state, and the names of those that are not good."""
    names = {word: [state.name for state in states if state.word == word] for word in _SIGNS}
    bad = [word for word in _SIGNS if word != GOOD and names[word]]
    numbers = [f"{len(names[GOOD]):,} of {len(states):,} columns are good"]
    numbers += [f"{len(names[word]):,} {word}" for word in bad]
    named = [f"{word.capitalize()}: {words_of(names[word], NAMED)}." for word in bad]
    return ", ".join(numbers), " ".join(named)


def column_table(rows: Iterable[tuple[int, ColumnState, list[str]]], num_drawn: int) -> str:
    """Returns the table of the states of columns, which links to their pictures.

    ``rows``: the position of a column, its state, and the columns to which it is related.
    """
    shown = []
    for place, (axis, (name, word, *others), related) in enumerate(rows):
        link = Markup(f'<a href="#column-{axis}">{text(name)}</a>') if place < num_drawn else name
        sign = Markup(f'<strong class="state {word.split()[0]}">{_SIGNS[word]} {word}</strong>')
        shown.append((link, sign, *others, words_of(related, NAMED) or "compare with none"))
    header = "column", "state", "use it for", "note", "type and levels", "good levels", "related to"
    inside = table("What each column is good for", header, shown)
    for word, meaning in _MEANINGS.items():
        if word in inside:
            inside += paragraph(f"<strong>{word}:</strong> {text(meaning, 600)}")
    return inside


@np.errstate(all="ignore")
def compare_columns(release: SyntheticDatabase, truth: Truth) -> str:
    """Returns a verdict in words, and tables of columns."""
    import pandas as pd

    tables = list(release.arrow_tables())
    alike: dict[str, list[str]] = {word: [] for word in _VERDICTS}
    numbers: dict[str, dict[str, Any]] = {"records": {}, "their bins": {}, "release": {}}
    columns, shares = list[tuple[str, ...]](), list[tuple[str, ...]]()
    for attribute, (codes, exact) in zip(release.domain, truth.columns, strict=True):
        name = attribute.name
        parts = [np.zeros(len(codes), np.bool_), codes == attribute.other_code, codes < 0]
        if isinstance(attribute, OrderedAttribute):
            low, high = (
                end * getattr(attribute, "resolution", DAY) / DAY for end in attribute.ends
            )
            parts[0] = (exact < low) | (exact > high)
            copies = [numbers_of(attribute, each.column(name)) for each in tables]
            copied = np.concatenate(copies)
            kinds = exact, _in_bins(release, attribute, codes), copied
            for (of, frame), each in zip(numbers.items(), kinds, strict=True):
                frame[name] = each
                columns.append((f"{name}: {of}", *_figures(attribute, pd.Series(each))))
            errors = _distances(exact, copied)
        else:
            levels = np.bincount(codes[codes >= 0], minlength=attribute.size) / len(codes)
            counts = release.record_marginal((name,))
            lost = parts[1].mean() + parts[2].mean()
            errors = [lost + np.abs(levels - counts / counts.sum()).sum() / 2]
        is_middle = len(errors) > 1 and max(errors[:2]) <= _MIDDLE
        alike[_VERDICTS[0 if max(errors) <= _NEAR else 2 - is_middle]].append(name)
        means = *(part.mean() for part in parts), release.other_shares.get(name, 0.0)
        shares.append((name, *(f"{mean:.1%}" for mean in means)))
    exact, *_, copy = matrices = [pd.DataFrame(number).corr() for number in numbers.values()]
    pairs = sorted(
        itertools.combinations(exact, 2), key=lambda pair: -abs(exact.at[pair] - copy.at[pair])
    )
    correlations = [
        (", ".join(pair), *(short(matrix.at[pair]) for matrix in matrices)) for pair in pairs
    ]
    shown = {
        "Columns": (("column", *_FIGURES), columns),
        "Shares of the rows": (("column", *_SHARES), shares),
        "Correlations, largest difference first": (("pair", *numbers), correlations),
    }
    pages = [folded(each, table(each, *rows, range(1, 6))) for each, rows in shown.items()]
    total = release.domain.num_attributes
    words = [
        f"{word}, {len(names):,} of {total:,}: {words_of(names, NAMED) or 'none'}"
        for word, names in alike.items()
    ]
    if pairs:
        near = sum(abs(exact.at[pair] - copy.at[pair]) <= _NEAR for pair in pairs)
        found = (short(matrix.at[pairs[0]]) for matrix in (copy, exact))
        words.append(
            f"{near:,} of {counted(len(pairs), 'correlation')} are within 0.1 of those of the"
            f" records; furthest off: {' and '.join(pairs[0])}, {' instead of '.join(found)}"
        )
    verdict = text(f"{'. '.join(words)}.", 2_000)
    return paragraph(verdict, "verdict") + paragraph(_ABOUT) + "".join(pages)


def _distances(exact: NDArray[np.float64], copy: NDArray[np.float64]) -> list[float]:
    """Returns the distance of Kolmogorov and Smirnov, and the errors of the mean and the spread."""
    both = [np.sort(numbers[~np.isnan(numbers)]) for numbers in (exact, copy)]
    if not all(map(len, both)):
        return [float(len(both[0]) != len(both[1]))]
    places = np.concatenate(both)
    below = [np.searchsorted(numbers, places, "right") / len(numbers) for numbers in both]
    spread = both[0].std() or 1.0
    shift = abs(both[1].mean() - both[0].mean()) / spread
    return [np.abs(below[0] - below[1]).max(), shift, abs(both[1].std() / spread - 1)]


def _in_bins(
    release: SyntheticDatabase, attribute: OrderedAttribute, codes: NDArray[Any]
) -> NDArray[np.float64]:
    """Returns a number of the level of each row, as the release draws numbers within bins."""
    words = np.full(len(codes), 2**63, np.uint64)  # the middles of bins
    if release.positions:
        words = random_words(f"bins of {attribute.name}", len(codes), "<u8")
    values: NDArray[Any] = codes + np.int64(getattr(attribute, "minimum", 0))
    if isinstance(attribute, BinnedAttribute):
        uniform = bin_positions(attribute, codes, "uniform")
        positions = release.positions.get(attribute.name, uniform)
        values = values_within(attribute, codes, words, positions)
    if isinstance(attribute, TimeAttribute):
        values = values * (attribute.resolution * attribute.released_units / DAY)
    return np.where((codes >= 0) & (codes < attribute.num_levels), values, np.nan)


def _figures(attribute: Attribute, column: Any) -> list[str]:
    """Returns the mean, the standard deviation and the quantiles of a column, for a table."""
    import pandas as pd

    figures = [column.mean(), column.std(), *column.quantile([0.05, 0.5, 0.95])]
    if not isinstance(attribute, TimeAttribute):
        return list(map(short, figures))
    width = 10 if attribute.kind == "date" else 16
    texts = [str(figure)[:width] for figure in pd.to_datetime(figures, unit="D", errors="coerce")]
    return [texts[0], f"{short(figures[1])} days", *texts[2:]]

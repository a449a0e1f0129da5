"""Compares the columns of a release with those of the exact records. Private."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.ordered import BinnedAttribute, OrderedAttribute
from beam_dp.domain.texts import DAY
from beam_dp.releases.synthetic_database.shards import random_words
from beam_dp.releases.synthetic_database.within_bins import bin_positions, values_within
from beam_dp.views.markup import paragraph, table, text
from beam_dp.views.terminal import short, some

if TYPE_CHECKING:
    from beam_dp.releases.synthetic_database.release import SyntheticDatabase
    from beam_dp.views.cells import Truth

_FIGURES = "mean", "standard deviation", "5 %", "median", "95 %"
_SHARES = "beyond the edges", "in other", "without a level", "in other of the release"
_ABOUT = (
    "All rows of the records, and all rows of the release. Their bins are the records with each"
    " value drawn anew within its bin: where they differ from the records, that is what the bins"
    " alone cost. All other differences are due to noise, or to records that were left out."
)


def numbers_of(attribute: OrderedAttribute, column: Any) -> Any:
    """Returns the numbers in a column, or the days since 1970; NaN for all other values."""
    import pandas as pd

    if not isinstance(attribute, TimeAttribute):
        numbers = pd.to_numeric(column.to_pandas(), errors="coerce").to_numpy(np.float64)
        return np.where(np.isfinite(numbers), numbers, np.nan)
    times = pd.to_datetime(column.to_pandas(), errors="coerce", utc=True, format="ISO8601")
    return (times.to_numpy("M8[us]") - np.datetime64(0, "us")) / np.timedelta64(1, "D")


@np.errstate(all="ignore")
def compare_columns(
    release: SyntheticDatabase, truth: Truth, in_other: Mapping[str, float]
) -> tuple[list[str], str]:
    """Returns a warning of columns that the release does not describe, and tables of columns."""
    import pandas as pd

    tables, lost = list(release.arrow_tables()), list[str]()
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
            own = exact, _in_bins(release, attribute, codes), np.concatenate(copies)
            for (of, frame), each in zip(numbers.items(), own, strict=True):
                frame[name] = each
                columns.append((f"{name}: {of}", *_figures(attribute, pd.Series(each))))
        lost += [name] if np.logical_or.reduce(parts).mean() > 0.5 else []
        means = *(part.mean() for part in parts), in_other.get(name, 0.0)
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
    pages = [table(each, *told, range(1, 6)) for each, told in shown.items() if told[1]]
    what = "More than half of the records are beyond the edges, in other or without a level"
    return [f"{what}: {some(lost)}"] if lost else [], paragraph(text(_ABOUT, 400)) + "".join(pages)


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

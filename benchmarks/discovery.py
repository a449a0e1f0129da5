"""Measures how far the bins that a release finds change its values, next to other bins.

    python benchmarks/discovery.py --record benchmarks/results/discovery.json

Every draw makes the three tables of ``raw_tables.py`` anew, finds the bins of two columns of each,
and releases these columns and a declared one by the default mechanism, at epsilon 1 and delta 1e-9,
with all pairs as the workload. Bins that are found privately get 30 % of mu^2, in equal parts for
three columns; declared bins leave all of it to the release. Errors are those of the released
values, which are drawn within their bins as a release does by default.

- *distance, mean, quantiles*: the Wasserstein distance between released and true values, the
  difference between the means, and the mean difference between eight quantiles (5 to 99 %), each
  divided by the interquartile range of the true values;
- *intervals*: the mean error of the shares of 500 intervals;
- *pairs*: the total variation between released and true tables of the declared column and of 21
  intervals of values, whose ends lie between those of the declared quantiles.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import beam_dp as dp
from beam_dp.domain.discover import GRID, DiscoverBins, OpenAttribute, OpenDomain
from beam_dp.domain.files import read_open_domain
from beam_dp.domain.ordered import BinnedAttribute
from beam_dp.mechanisms.discovery.bins import plan_bins, segments
from beam_dp.models.intervals.hierarchy import best_tree
from beam_dp.models.rounding import nearest_increasing
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.source import NoiseSource
from benchmarks.raw_tables import DOMAINS, raw_table
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

EPSILON, DELTA = 1.0, 1e-9
SHARE, NUM_OPEN = 0.3, 3
# For each table, the declared column and the columns whose bins are found.
COLUMNS = {
    "people": ("category", ("income", "age")),
    "payments": ("rating", ("amount", "duration")),
    "visits": ("ward", ("date", "stay")),
}
CHOSEN, EXACT = "cells", "exact counts"
ERRORS = ("distance", "mean", "quantiles", "intervals", "pairs")
_QUANTILES = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
_EQUAL_LEAVES = 4096

Values = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Column:
    """A column whose bins are found, its values as numbers, and what may be spent on its bins."""

    attribute: OpenAttribute
    values: Values
    mu: float

    @property
    def num_bins(self) -> int:
        """The largest number of bins."""
        discover: Any = self.attribute.discover
        return int(discover.bins)

    def counts(self, leaves: BinnedAttribute) -> NDArray[np.int64]:
        """Returns the exact number of records in each leaf."""
        first = leaves.bin_ends[0]
        places = np.clip(np.searchsorted(first, self.values, "right") - 1, 0, len(first) - 1)
        return np.bincount(places, minlength=len(first)).astype(np.int64)

    def edges(self, leaves: BinnedAttribute, cuts: list[int]) -> BinnedAttribute:
        """Returns bins whose edges are edges of leaves."""
        return dataclasses.replace(leaves, edges=tuple(leaves.edges[cut] for cut in cuts))


def tree(column: Column, leaves: BinnedAttribute | None = None) -> BinnedAttribute:
    """Returns the bins that a release finds."""
    leaves = column.attribute.leaves if leaves is None else leaves
    plan = plan_bins(leaves, column.num_bins, Neighboring.ADD_OR_REMOVE_ONE, mu=column.mu)
    found = plan.release(column.counts(leaves) * GRID, NoiseSource())
    return column.edges(leaves, list(found.cuts))


def tree_without_range(column: Column) -> BinnedAttribute:
    """Returns the bins that a release finds if no range of numbers is declared."""
    if column.attribute.kind != "numeric":
        return tree(column)
    anywhere = dataclasses.replace(column.attribute, discover=DiscoverBins(column.num_bins))
    return tree(column, anywhere.leaves)


def tree_over_equal_leaves(column: Column) -> BinnedAttribute:
    """Returns the bins that would be found from 4,096 equal leaves."""
    return tree(column, _equal(column, _EQUAL_LEAVES))


def tree_quantiles(column: Column) -> BinnedAttribute:
    """Returns bins of about equal counts, from noisy sums over a tree that is fixed beforehand."""
    leaves = column.attribute.leaves
    strategy = best_tree(leaves.num_levels, 2)
    deviation = math.sqrt(len(strategy.sizes) - 1) / column.mu
    exact = strategy.measure(column.counts(leaves) * GRID)
    estimate = strategy.estimate(NoiseSource().gaussian(exact, deviation * GRID) / GRID)
    found = _increasing(estimate.values[1:])
    error = deviation * math.sqrt(strategy.errors.mean())
    start, stop = _ends(found, error)
    cuts = [start]
    for share in np.linspace(found[start], found[stop], column.num_bins + 1)[1:-1]:
        cut = int(np.searchsorted(found, share))
        if cut < stop and min(found[cut] - found[cuts[-1]], found[stop] - found[cut]) >= error:
            cuts.append(cut)
    return column.edges(leaves, [*cuts, stop])


def noisy_leaves(column: Column) -> BinnedAttribute:
    """Returns segments from leaves that each have noise of their own."""
    counts = column.counts(column.attribute.leaves)
    noisy = NoiseSource().gaussian(counts * GRID, GRID / column.mu) / GRID
    return _segments(column, np.cumsum(noisy), _error_of_sums(len(counts), column.mu))


def private_tree(column: Column) -> BinnedAttribute:
    """Returns segments from a tree that grows where noisy counts are large.

    Half of mu^2 decides where the tree grows, the other half counts the nodes at its ends.

    Reference: Zhang, Xiao and Xie (2016), PrivTree, with two children of a node.
    """
    counts = column.counts(column.attribute.leaves)
    sums, noise = np.append(0, np.cumsum(counts)), NoiseSource()
    mu = column.mu / math.sqrt(2)
    scale = 3 / _pure_epsilon(mu)
    bias = scale * math.log(2)
    ends, pending = [], [(0, len(counts), 0)]
    while pending:
        low, high, depth = pending.pop()
        biased = max(sums[high] - sums[low] - depth * bias, -bias)
        exact = np.array([round(biased * GRID)], np.int64)
        if high - low > 1 and noise.laplace(exact, scale * GRID)[0] > 0:
            middle = (low + high) // 2
            pending += [(low, middle, depth + 1), (middle, high, depth + 1)]
        else:
            ends.append(high)
    places = np.array([0, *sorted(ends)])
    noisy = noise.gaussian(np.diff(sums[places]) * GRID, GRID / mu) / GRID
    # The leaves in an end of the tree are taken to have equal counts.
    prefixes = np.interp(np.arange(1, len(sums)), places, np.append(0.0, np.cumsum(noisy)))
    return _segments(column, prefixes, _error_of_sums(len(ends), mu))


def equal_width(column: Column) -> BinnedAttribute:
    """Returns bins of equal width over the declared range."""
    return _equal(column, column.num_bins)


def declared_quantiles(column: Column) -> BinnedAttribute:
    """Returns the declared range, cut at the true quantiles."""
    leaves = column.attribute.leaves
    exact = np.quantile(
        column.values, np.linspace(0, 1, column.num_bins + 1)[1:-1], method="inverted_cdf"
    )
    first, last = (float(ends[place]) for ends, place in zip(leaves.bin_ends, (0, -1), strict=True))
    inner = np.unique(exact[(exact > first) & (exact < last)])
    return _with_numbers(leaves, [first, *inner, last])


def exact_segments(column: Column) -> BinnedAttribute:
    """Returns the bins that the same rule finds in exact counts, as nobody could declare them."""
    leaves = column.attribute.leaves
    plan = plan_bins(leaves, column.num_bins, Neighboring.ADD_OR_REMOVE_ONE, mu=column.mu)
    return _segments(column, np.cumsum(column.counts(leaves)), plan.noise_deviation)


METHODS: dict[str, Callable[[Column], BinnedAttribute]] = {
    CHOSEN: tree,
    "cells, no range declared": tree_without_range,
    "cells of equal leaves": tree_over_equal_leaves,
    "PrivTree": private_tree,
    "noisy leaves": noisy_leaves,
    "a fixed tree, cut at quantiles": tree_quantiles,
    "equal width": equal_width,
    "declared quantiles": declared_quantiles,
    EXACT: exact_segments,
}
PUBLIC = ("equal width", "declared quantiles", EXACT)


def _equal(column: Column, number: int) -> BinnedAttribute:
    leaves = column.attribute.leaves
    first, last = float(leaves.bin_ends[0][0]), float(leaves.bin_ends[1][-1])
    edges = np.linspace(first, last, number + 1)
    if leaves.whole_ends is not None:
        edges = np.unique(np.floor(edges))
    return _with_numbers(leaves, edges.tolist())


def _with_numbers(leaves: BinnedAttribute, edges: list[float]) -> BinnedAttribute:
    """Returns bins with edges that are given as numbers, or as days."""
    released = edges if leaves.kind == "numeric" else list(map(leaves.released, edges))
    return dataclasses.replace(leaves, edges=tuple(released))


def _increasing(sums: NDArray[Any]) -> Values:
    return np.append(0.0, np.maximum(nearest_increasing(sums), 0.0))


def _ends(prefixes: Values, error: float) -> tuple[int, int]:
    """Returns the positions between which there seem to be records."""
    start = int(np.searchsorted(prefixes, 2 * error, "right")) - 1
    stop = int(np.searchsorted(prefixes, prefixes[-1] - 2 * error))
    return (start, stop) if start < stop else (0, len(prefixes) - 1)


def _segments(column: Column, sums: NDArray[Any], error: float) -> BinnedAttribute:
    """Returns the bins of the package's rule, from cumulative counts with a typical error."""
    leaves = column.attribute.leaves
    found = _increasing(sums)
    cuts = segments(found, leaves.places, _ends(found, error), column.num_bins, error)
    return column.edges(leaves, cuts)


def _error_of_sums(number: int, mu: float) -> float:
    """Returns the root of the mean squared error of the sums of neighbouring noisy counts."""
    return math.sqrt((number + 2) / 3) / mu


@functools.cache
def _pure_epsilon(mu: float) -> float:
    """Returns the epsilon whose pure privacy implies mu-Gaussian privacy."""
    low, high = 0.0, 10.0
    for _ in range(60):
        middle = (low + high) / 2
        square = Loss.pure(middle).mu_squared if middle else 0
        low, high = (middle, high) if square is not None and square <= mu**2 else (low, middle)
    return low


@functools.cache
def _epsilon_of(mu: float) -> float:
    """Returns the epsilon of mu-Gaussian privacy at ``DELTA``."""
    low, high = 0.0, EPSILON
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if discrete_gaussian_mu(middle, DELTA) <= mu else (low, middle)
    return low


def numbers(values: Any) -> Values:
    """Returns a column of an Arrow table as numbers; dates as days."""
    if pa.types.is_string(values.type):
        values = values.cast(pa.date32())
    if pa.types.is_date(values.type):
        values = values.cast(pa.int32())
    return np.asarray(values.to_numpy(), np.float64)


def measure(name: str, num_records: int, seed: int, method: str) -> dict[str, dict[str, float]]:
    """Returns the errors of each column of one release of one table."""
    records = raw_table(name, num_records, seed)
    domain = read_open_domain(DOMAINS[name])
    assert isinstance(domain, OpenDomain) and domain.declared is not None
    declared, names = COLUMNS[name]
    whole = discrete_gaussian_mu(EPSILON, DELTA)
    share = 0.0 if method in PUBLIC else SHARE
    opened = {each.name: each for each in domain.open}
    mu = whole * math.sqrt(SHARE / NUM_OPEN)
    columns = [Column(opened[each], numbers(records[each]), mu) for each in names]
    attributes = [METHODS[method](column) for column in columns]
    closed = dp.Domain((domain.declared[declared], *attributes))
    epsilon = _epsilon_of(whole * math.sqrt(1 - share)) if share else EPSILON
    guarantee = dp.Guarantee(epsilon, DELTA, "add_or_remove_one", "record", 1)
    released = dp.release(records, closed, dp.marginals(closed, ways=2), guarantee).to_arrow()
    labels = [np.asarray(each[declared].to_pylist()) for each in (records, released)]
    found = {}
    for column, attribute in zip(columns, attributes, strict=True):
        drawn = numbers(released[column.attribute.name])
        rng = np.random.default_rng(seed)
        found[column.attribute.name] = {
            **errors_of_values(column.values, drawn, rng),
            "pairs": error_of_pairs(column.values, drawn, *labels, column.num_bins),
            "bins": attribute.num_levels,
        }
    return found


def errors_of_values(true: Values, drawn: Values, rng: np.random.Generator) -> dict[str, float]:
    """Returns the errors of released values, as the docstring of the module explains them."""
    unit = float(np.subtract(*np.quantile(true, [0.75, 0.25])))
    places = (np.arange(5000) + 0.5) / 5000
    apart = np.abs(np.quantile(true, places) - np.quantile(drawn, places))
    quantiles = np.abs(np.quantile(true, _QUANTILES) - np.quantile(drawn, _QUANTILES))
    low, high = np.sort(np.quantile(true, rng.random((2, 500)), method="inverted_cdf"), axis=0)
    shares = [
        (np.searchsorted(each, high, "right") - np.searchsorted(each, low)) / len(each)
        for each in (np.sort(true), np.sort(drawn))
    ]
    return {
        "distance": float(apart.mean()) / unit,
        "mean": abs(float(true.mean() - drawn.mean())) / unit,
        "quantiles": float(quantiles.mean()) / unit,
        "intervals": float(np.abs(shares[0] - shares[1]).mean()),
    }


def error_of_pairs(
    true: Values, drawn: Values, true_labels: Any, drawn_labels: Any, num_bins: int
) -> float:
    """Returns the total variation between two tables of labels and intervals of values."""
    edges = np.unique(np.quantile(true, (np.arange(num_bins) + 0.5) / num_bins))
    labels = np.unique(true_labels)
    tables = [
        np.histogram2d(
            np.searchsorted(edges, values, "right"),
            np.searchsorted(labels, named),
            [np.arange(len(edges) + 2), np.arange(len(labels) + 1)],
        )[0]
        / len(values)
        for values, named in ((true, true_labels), (drawn, drawn_labels))
    ]
    return float(np.abs(tables[0] - tables[1]).sum()) / 2


def main() -> None:
    """Measures all methods."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="50000,5000", help="numbers of records")
    parser.add_argument("--draws", type=int, default=10, help="tables and releases of each")
    add_flag(parser)
    options = parser.parse_args()
    rows = []
    for num_records in map(int, options.sizes.split(",")):
        for method in METHODS:
            for name in COLUMNS:
                runs = [measure(name, num_records, seed, method) for seed in range(options.draws)]
                for column in COLUMNS[name][1]:
                    figures = {
                        each: Figure.mean([run[column][each] for run in runs], "share")
                        for each in ERRORS
                    }
                    numbers_of_bins = [run[column]["bins"] for run in runs]
                    figures["bins"] = Figure.mean(numbers_of_bins, "number")
                    what = f"{column}, {num_records:,} records: {method}"
                    rows.append(Row(what, figures, options.draws))
                    print(table(rows[-1:]).splitlines()[-1], flush=True)
    keep(options.record, rows)


if __name__ == "__main__":
    main()

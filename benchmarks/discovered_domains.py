"""Measures releases whose domain is found privately, next to the same with a declared domain.

    python benchmarks/discovered_domains.py --record benchmarks/results/discovered_domains.json

Every draw makes a table of ``raw_tables.py`` anew and releases it twice, with all pairs as the
workload and delta 1e-9: with the domain of ``DOMAINS``, in which no value of a wide column is
listed, and with a domain that somebody would declare who has seen the records: the 50 most frequent
texts and ``other``, and quantiles as edges. Both releases have the same epsilon in total.

- *pairs*: the mean total variation between the true and the released table of two columns, over
  all pairs: the 50 most frequent texts and the rest, deciles of numbers and dates. *declared* is
  the same with the declared domain, *times* the ratio;
- *in other*: the share of records whose text was not found, over the columns of texts;
  *all of it*: the same if all of epsilon and delta were spent on finding these texts.
"""

from __future__ import annotations

import argparse
import itertools
import math
import pathlib
import sys
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import beam_dp as dp
from beam_dp.domain.discover import GRID, DiscoverValues, OpenAttribute, OpenDomain
from beam_dp.mechanisms.discovery.plan import plan_values
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.noise.source import NoiseSource
from benchmarks.discovery import numbers
from benchmarks.raw_tables import DOMAINS, TABLES, raw_table
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

DELTA = 1e-9
_TEXTS = 50
_DECILES = np.arange(1, 10) / 10

Codes = NDArray[np.int64]


def texts_of(records: pa.Table, name: str) -> NDArray[np.str_]:
    """Returns a column as texts."""
    return np.array([str(value) for value in records[name].to_pylist()])


def by_frequency(texts: NDArray[np.str_]) -> tuple[list[str], NDArray[np.int64]]:
    """Returns the different texts and their numbers, most frequent first."""
    values, counts = np.unique(texts, return_counts=True)
    order = np.argsort(-counts, kind="stable")
    return values[order].tolist(), counts[order]


def declared(domain: OpenDomain, records: pa.Table) -> dp.Domain:
    """Returns the domain that somebody would declare who has seen the records."""
    closed = []
    for each in domain.attributes:
        if not isinstance(each, OpenAttribute):
            closed.append(each)
        elif isinstance(each.discover, DiscoverValues):
            frequent, _ = by_frequency(texts_of(records, each.name))
            closed.append(each.closed(frequent[:_TEXTS]))
        else:
            closed.append(_quantile_bins(each, numbers(records[each.name])))
    return dp.Domain(tuple(closed))


def _quantile_bins(attribute: OpenAttribute, values: NDArray[np.float64]) -> Any:
    """Returns bins of about equal counts: leaves joined at the true quantiles."""
    leaves, bins = attribute.leaves, attribute.discover.bins  # type: ignore[union-attr]
    first = leaves.bin_ends[0].astype(np.float64)
    inner = np.quantile(values, np.arange(1, bins) / bins, method="inverted_cdf")
    cuts = {0, leaves.num_levels, *np.searchsorted(first, inner, "left").tolist()}
    return attribute.closed(attribute.edges_at(sorted(cuts)))


class Tables:
    """The tables of all pairs of columns, in levels that do not depend on a domain."""

    def __init__(self, domain: OpenDomain, records: pa.Table) -> None:
        self._columns: dict[str, Any] = {}
        for each in domain.attributes:
            if each.kind in ("categorical", "boolean"):
                frequent, _ = by_frequency(texts_of(records, each.name))
                self._columns[each.name] = {text: n for n, text in enumerate(frequent[:_TEXTS])}
            else:
                self._columns[each.name] = np.unique(
                    np.quantile(numbers(records[each.name]), _DECILES, method="inverted_cdf")
                )
        self._true = self._of(records)

    def _codes(self, records: pa.Table, name: str) -> Codes:
        levels = self._columns[name]
        if isinstance(levels, dict):
            return np.array([levels.get(text, _TEXTS) for text in texts_of(records, name)])
        return np.searchsorted(levels, numbers(records[name]), "left")

    def _of(self, records: pa.Table) -> list[NDArray[np.float64]]:
        codes = [self._codes(records, name) for name in self._columns]
        found = []
        for first, second in itertools.combinations(codes, 2):
            counts = np.zeros((_TEXTS + 1, _TEXTS + 1))
            np.add.at(counts, (first, second), 1.0)
            found.append(counts / max(len(first), 1))
        return found

    def error(self, released: pa.Table) -> float:
        """Returns the mean total variation of a released table from the true one."""
        apart = [
            np.abs(a - b).sum() / 2 for a, b in zip(self._true, self._of(released), strict=True)
        ]
        return float(np.mean(apart))


def shares_in_other(
    domain: OpenDomain, records: pa.Table, closed: dp.Domain, guarantee: dp.Guarantee
) -> tuple[float, float]:
    """Returns the share of records in other, and the share if all of the budget found texts."""
    mu, shares = discrete_gaussian_mu(guarantee.epsilon, guarantee.delta / 2), []
    for each in domain.open:
        if not isinstance(each.discover, DiscoverValues):
            continue
        texts = texts_of(records, each.name)
        found = set(closed[each.name].labels())
        values, counts = by_frequency(texts)
        plan = plan_values(each.name, guarantee, mu, guarantee.delta / 2, each.discover.max_values)
        listed = pa.array([value.encode() for value in values], pa.large_binary())
        best = {text for text, _ in plan.release(listed, counts * GRID, NoiseSource())}
        shares.append(
            [float(np.mean([text not in kept for text in texts])) for kept in (found, best)]
        )
    own, least = np.mean(shares, axis=0) if shares else (math.nan, math.nan)
    return float(own), float(least)


def measure(name: str, num_records: int, epsilon: float, seed: int) -> dict[str, float]:
    """Returns the errors of both releases of one table."""
    records = raw_table(name, num_records, seed)
    domain = dp.read_open_domain(DOMAINS[name])
    assert isinstance(domain, OpenDomain)
    guarantee = dp.Guarantee(epsilon, DELTA, "add_or_remove_one", "record", 1)
    tables, known = Tables(domain, records), declared(domain, records)
    best = dp.release(records, known, dp.marginals(known, ways=2), guarantee)
    found = dp.release(records, domain, dp.marginals(domain, ways=2), guarantee)
    errors = [tables.error(each.to_arrow()) for each in (found, best)]
    own, least = shares_in_other(domain, records, found.domain, guarantee)
    return {"pairs": errors[0], "declared": errors[1], "in other": own, "all of it": least}


def main() -> None:
    """Measures all tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="50000", help="numbers of records")
    parser.add_argument("--epsilons", default="1", help="epsilons")
    parser.add_argument("--draws", type=int, default=10, help="tables and releases of each")
    add_flag(parser)
    options = parser.parse_args()
    rows = []
    for size, text, name in itertools.product(
        options.sizes.split(","), options.epsilons.split(","), TABLES
    ):
        runs = [measure(name, int(size), float(text), seed) for seed in range(options.draws)]
        means = {each: Figure.mean([run[each] for run in runs], "share") for each in runs[0]}
        figures = {"pairs": means["pairs"], "declared": means["declared"]}
        figures["times"] = means["pairs"].over(means["declared"])
        if not math.isnan(means["in other"].value):
            figures |= {each: means[each] for each in ("in other", "all of it")}
        rows.append(Row(f"{name}, {int(size):,} records, epsilon {text}", figures, options.draws))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    keep(options.record, rows)


if __name__ == "__main__":
    main()

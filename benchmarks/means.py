"""Measures the means of a column of numbers, of all records and by groups of one and two columns.

    BEAM_DP_DATA=DIR python benchmarks/means.py --record benchmarks/results/means.json

Three tables are released: incomes and ratios of poverty of NIST's excerpt, and generated claims,
with all pairs at epsilon 1 and delta 1e-9, once with public edges and once with edges that the
release finds. Asked are means of numbers clipped to the edges, in groups of 30 records and more:

- *error*: the root mean square of answers less true means, here and below where there is a bar;
- *exact bins*: the same if the numbers of records by group and bin were exact, and so was the mean
  of each bin over all records: what bins alone do, as only a bin's overall mean is measured;
- *noise*: the root mean square of the standard errors of answers;
- *at most*: 1.25 times the exact bins and twice the noise;
- *held*: the share of true means within the 95 % margin; *no bar*: the share of means without one.

``--without`` releases no sums within bins.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import pathlib
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import beam_dp as dp
from benchmarks.accuracy_tables import NIST
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

SEED, NUM_CLAIMS, BINS, LEAST_RECORDS = 56, 50_000, 16, 30
PROMISE = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
_INCOMES = -10, 0, 1e-3, *range(5, 50, 5), *range(50, 100, 10), 100, 125, 150, 200, 250, 500
EDGES = {
    "income": [1e3 * edge for edge in (*_INCOMES, 1000, 1500)],
    "poverty": [0, 50, 100, 150, 200, 300, 400, 502],
    "claim": [0, 0.01, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6],
}


def tables() -> Iterator[pd.DataFrame]:
    """Yields tables whose first column has the numbers; the others are texts."""
    read = pd.read_csv(pathlib.Path(os.environ["BEAM_DP_DATA"], NIST[0]), dtype=str)
    for source, name, groups in (
        ("PINCP", "income", ["EDU", "SEX", "MSP", "OWN_RENT"]),
        ("POVPIP", "poverty", ["EDU", "RAC1P", "NPF"]),
    ):
        columns = read[[source, *groups]].rename(columns={source: name})
        columns = columns[(columns != "N").all(axis=1)].dropna()
        yield columns.astype({name: float})
    generator = np.random.default_rng(SEED)
    region = generator.integers(0, 10, NUM_CLAIMS)
    kind = generator.choice(5, NUM_CLAIMS, p=[0.5, 0.2, 0.15, 0.1, 0.05])
    claim = np.exp(generator.normal(6 + 0.15 * region + 0.3 * kind, 1 + 0.05 * kind))
    claim[generator.random(NUM_CLAIMS) < 0.2] = 0
    sex = np.where(generator.random(NUM_CLAIMS) < 0.5, "f", "m")
    made = {"claim": claim.round(2), "region": region.astype(str), "kind": kind.astype(str)}
    yield pd.DataFrame({**made, "sex": sex})


def released(columns: pd.DataFrame, is_found: bool, has_sums: bool) -> dp.SyntheticDatabase:
    """Returns a release of all pairs."""
    name, *groups = columns.columns
    bins = {"discover": {"bins": BINS}} if is_found else {"edges": EDGES[name], "clip": True}
    fields: list[dict[str, Any]] = [{"name": name, "type": "numeric", **bins}]
    for group in groups:
        values = sorted(columns[group].unique())
        fields.append({"name": group, "type": "categorical", "values": values})
    read: Any = dp.read_open_domain if is_found else dp.parse_domain
    records = pa.Table.from_pandas(columns, preserve_index=False)
    wanted = None if has_sums else False
    return dp.release(records, read({"attributes": fields}), None, PROMISE, bin_sums=wanted)


def answers(release: dp.SyntheticDatabase, columns: pd.DataFrame) -> Iterator[tuple[int, Any]]:
    """Yields the number of columns of each group, and its error, those of exact bins, and its bar.

    The bar is the standard error and whether the margin has the true mean; None without a margin.
    """
    name, *groups = columns.columns
    attribute: Any = release.domain[name]
    edges = np.array(attribute.edges)
    numbers = columns[name].clip(edges[0], edges[-1])
    bins = pd.Series(np.searchsorted(edges[1:-1], numbers, "right"), columns.index)
    exact = columns.assign(true=numbers, usual=numbers.groupby(bins).transform("mean"))
    for asked in itertools.chain.from_iterable(
        itertools.combinations(groups, size) for size in range(3)
    ):
        keys = [*asked] or np.zeros(len(exact))
        means = exact.groupby(keys)[["true", "usual"]].mean()
        sizes = exact.groupby(keys).size()
        question = release.query().group_by(*asked) if asked else release.query()
        for row in question.mean(name).rows():
            key: Any = tuple(row[group] for group in asked) or (0.0,)
            key = key if len(key) > 1 else key[0]
            if sizes.get(key, 0) < LEAST_RECORDS:
                continue
            true, usual = means.loc[key]
            error, margin = row[f"mean_{name}"] - true, row["margin"]
            bar = None if margin is None else (row["standard_error"], abs(error) <= margin)
            yield len(asked), (error, usual - true, bar)


def _rms(values: list[float]) -> float:
    return math.sqrt(math.fsum(value**2 for value in values) / max(len(values), 1))


def row_of(what: str, found: list[Any], draws: int) -> Row:
    """Returns what was found of all groups of a kind."""
    known = [each for each in found if each[2] is not None]
    error, exact = (_rms([each[place] for each in known]) for place in range(2))
    noise = _rms([bar[0] for _, _, bar in known])
    held = 100 * float(np.mean([bar[1] for _, _, bar in known]))
    figures = {
        "error": Figure(error, "number"),
        "exact bins": Figure(exact, "number"),
        "noise": Figure(noise, "number"),
        "at most": Figure(1.25 * exact + 2 * noise, "number"),
        "held": Figure(held, "percent"),
        "no bar": Figure(100 * (1 - len(known) / len(found)), "percent"),
    }
    return Row(what, figures, runs=draws)


def main() -> int:
    """Measures all tables, prints them, and keeps the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--without", action="store_true", help="measure no sums within bins")
    add_flag(parser)
    given = parser.parse_args()
    rows = []
    for columns in tables():
        for is_found in (False, True):
            kinds = defaultdict(list)
            for _ in range(given.draws):
                release = released(columns, is_found, not given.without)
                for size, measured in answers(release, columns):
                    kinds[size].append(measured)
            edges = "found edges" if is_found else "public edges"
            without = ", no sums" if given.without else ""
            for size, found in kinds.items():
                of = "all records" if size == 0 else f"by {size} column{'s' * (size > 1)}"
                what = f"{columns.columns[0]}, {edges}, {of}{without}"
                rows.append(row_of(what, found, given.draws))
                print(table(rows[-1:]).splitlines()[-1], flush=True)
    print(table(rows))
    keep(given.record, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())

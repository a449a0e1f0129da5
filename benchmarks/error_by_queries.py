"""Measures the error of every mechanism against the number of queries.

    BEAM_DP_DATA=DIR python benchmarks/error_by_queries.py --record FILE

``make generated`` makes tables and a picture of ``results/error_by_queries.json``.
Epsilon is 1 and delta 1e-9 (0 for what is pure: Laplace and SmallDB), a record is added or removed,
the number of records is public. Queries are the same in all runs; errors are shares of the records.

Two panels, both of NLTCS, 21,574 records of 16 yes/no columns:

* ``conjunctions``: columns taken in pairs as 8 attributes of 4 values, 65,536 cells. A query takes
  4 attributes, and of each a random set of its values.
* ``subsets``: the first 4 columns, 16 cells, which is a universe small enough for SmallDB. A query
  is a random set of cells.

``laplace`` and ``gaussian`` add noise to every answer, for the exact sensitivity of the workload.
``mwem`` is the package's default, ``mwem_textbook`` the published algorithm; both answer whole
marginals, of which the queries are sums. ``uniform`` adds nothing: it answers as if all cells were
equally frequent.
"""

from __future__ import annotations

import argparse
import functools
import json
import math
import pathlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import accuracy_tables
import numpy as np
from conjunction_sets import ConjunctionSet
from numpy.typing import NDArray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.domain.files import parse_domain
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.online.private_mw import PrivateMW, plan_private_mw
from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear import Explicit, LinearQuery
from beam_dp.queries.workload import Workload, marginals
from beam_dp.secret.summaries.histogram import Histogram
from benchmarks import tables
from benchmarks.recorded import Figure, Row, add_flag, keep

Shares = NDArray[np.float64]

EPSILON, DELTA = 1.0, 1e-9
PAIRS = 8
WAYS = 4
SMALL_COLUMNS = 4
SMALL_SIZE = 50  # of SmallDB's multisets: 2e14 of 16 cells
_MAX_SECONDS = 10.0  # no more runs once they took so long
_GRID_DEVIATIONS = 4096


class Conjunctions:
    """Random conjunctions over pairs of columns."""

    mechanisms = ("uniform", "laplace", "gaussian", "mwem", "mwem_textbook", "private_mw")

    def __init__(self, codes: accuracy_tables.Codes, number: int) -> None:
        self.domain = four_valued(PAIRS)
        self.histogram = histogram(self.domain, codes)
        self.asked = ConjunctionSet.draw(PAIRS, 4, WAYS, number, seed=number)
        names = [tuple(self.domain.names[axis] for axis in axes) for axes in self.asked.axes]
        self.workload = Workload(self.domain, tuple(names))

    def sums(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the sum of a table over each query."""
        return self.asked.sums(table)

    def sensitivity(self) -> int:
        """Returns how many queries a record moves at most."""
        return int(self.asked.asked_of_cells().max())

    def queries(self) -> Iterator[LinearQuery]:
        """Yields the queries in their order."""
        return map(self.asked.query, self.asked.indices.tolist())


class Subsets:
    """Random sets of the cells of a few columns."""

    mechanisms = (*Conjunctions.mechanisms, "small_db")

    def __init__(self, codes: accuracy_tables.Codes, number: int) -> None:
        self.domain = four_valued(SMALL_COLUMNS // 2)
        self.histogram = histogram(self.domain, codes[:SMALL_COLUMNS])
        cells = self.domain.num_cells
        generator = np.random.default_rng(number)
        sets = np.sort(1 + generator.choice(2**cells - 2, size=number, replace=False))
        self.matrix = (sets[:, None] >> np.arange(cells) & 1).astype(np.int64)
        self.workload = marginals(self.domain, ways=self.domain.num_attributes)

    def sums(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the sum of a table over each query."""
        found: NDArray[np.float64] = self.matrix @ table
        return found

    def sensitivity(self) -> int:
        """Returns how many queries a record moves at most."""
        return int(self.matrix.sum(axis=0).max())

    def queries(self) -> Iterator[LinearQuery]:
        """Yields the queries in their order."""
        return (Explicit.of(self.domain.shape, row) for row in self.matrix)


Panel = Conjunctions | Subsets
PANELS: dict[str, type[Panel]] = {"conjunctions": Conjunctions, "subsets": Subsets}


def four_valued(num_attributes: int) -> Domain:
    """Returns a domain whose attributes are pairs of yes/no columns."""
    return parse_domain(json.dumps({f"pair{place}": 4 for place in range(num_attributes)}))


def histogram(domain: Domain, codes: accuracy_tables.Codes) -> Histogram:
    """Returns the counts of yes/no columns, whose cells are numbered as those of their pairs."""
    cells = np.ravel_multi_index(codes, [2] * len(codes))
    return Histogram(domain, np.bincount(cells, minlength=domain.num_cells).astype(np.int64))


def uniform(panel: Panel) -> Shares:
    """Answers with no data."""
    return panel.sums(np.full(panel.domain.num_cells, 1 / panel.domain.num_cells))


def laplace(panel: Panel) -> Shares:
    """Adds Laplace noise to every answer."""
    counts = panel.histogram.counts
    exact = panel.sums(counts.astype(np.float64)).astype(np.int64)
    return NoiseSource().laplace(exact, panel.sensitivity() / EPSILON) / counts.sum()


def gaussian(panel: Panel) -> Shares:
    """Adds Gaussian noise to every answer."""
    counts = panel.histogram.counts
    exact = panel.sums(counts.astype(np.float64)).astype(np.int64)
    deviation = math.sqrt(panel.sensitivity()) / discrete_gaussian_mu(EPSILON, DELTA)
    grid = math.ceil(_GRID_DEVIATIONS / deviation)
    scale = math.hypot(deviation * grid, 2.0) * (1 + 1e-12)
    return NoiseSource().gaussian(exact * grid, scale) / grid / counts.sum()


def mwem(panel: Panel, calibration: Any = "tight") -> Shares:
    """Releases a distribution for the marginals that hold the queries."""
    counts = panel.histogram.counts
    mechanism = MWEM(calibration=calibration)
    plan = mechanism.plan(panel.domain, panel.workload, promise(), int(counts.sum()))
    tables = panel.histogram.marginals(plan.summary_tables)
    release = mechanism.release(plan, tables, NoiseSource())
    (joint,) = release.answer(marginals(panel.domain, attributes=panel.domain.names))
    return panel.sums(joint.values.ravel() / counts.sum())


def private_mw(panel: Panel) -> Shares:
    """Asks one query after the other, in random order."""
    queries = list(panel.queries())
    total = int(panel.histogram.counts.sum())
    plan = plan_private_mw(panel.domain, promise(), total, num_questions=len(queries))
    run = PrivateMW(plan, panel.histogram, NoiseSource())
    answers = np.empty(len(queries))
    for place in np.random.default_rng().permutation(len(queries)).tolist():
        answers[place] = run.answer(queries[place]).value / total
    return answers


def small_db(panel: Panel) -> Shares:
    """Draws a multiset of cells."""
    assert isinstance(panel, Subsets)
    counts = panel.histogram.counts
    mechanism = MultisetChoice(
        panel.matrix, EPSILON, int(counts.sum()), SMALL_SIZE, sampler="search"
    )
    cells = mechanism.draw(counts, NoiseSource())
    return panel.sums(np.bincount(cells, minlength=len(counts)) / SMALL_SIZE)


MECHANISMS: dict[str, Callable[[Any], Shares]] = {
    "uniform": uniform,
    "laplace": laplace,
    "gaussian": gaussian,
    "mwem": mwem,
    "mwem_textbook": functools.partial(mwem, calibration="textbook"),
    "private_mw": private_mw,
    "small_db": small_db,
}


def promise() -> Guarantee:
    """Returns what every release promises, but for those that are pure."""
    return Guarantee(EPSILON, DELTA, "add_or_remove_one", "record", 1)


def measure(panel: Panel, name: str, runs: int) -> tuple[dict[str, Figure], int]:
    """Returns means of the largest and of the mean error with standard errors, and how many runs.

    Args:
        panel: data and queries.
        name: of the mechanism.
        runs: at most; none is begun once they took 10 CPU seconds.
    """
    counts = panel.histogram.counts
    exact = panel.sums(counts / counts.sum())
    start, found = time.process_time(), []
    while len(found) < runs and time.process_time() - start < _MAX_SECONDS:
        errors = np.abs(MECHANISMS[name](panel) - exact)
        found.append((float(errors.max()), float(errors.mean())))
    largest, mean = (Figure.mean(errors, "share") for errors in zip(*found, strict=True))
    seconds = (time.process_time() - start) / len(found)
    figures = {
        "queries": Figure(len(exact), "number"),
        "largest error": largest,
        "mean error": mean,
        "CPU time": Figure(seconds, "seconds"),
    }
    return figures, len(found)


def rows(codes: accuracy_tables.Codes, limits: dict[str, int], runs: int) -> Iterator[Row]:
    """Yields a row for each panel, number of queries and mechanism.

    Args:
        codes: the yes/no columns.
        limits: the most queries of each panel.
        runs: of each row, at most; see ``measure``.
    """
    for name, most in limits.items():
        for power in range(1, math.floor(math.log10(most)) + 1):
            panel = PANELS[name](codes, 10**power)
            for mechanism in panel.mechanisms:
                # Without noise, one run tells all.
                times = 1 if mechanism == "uniform" else runs
                row = Row(f"{name}, {mechanism}", *measure(panel, mechanism, times))
                errors = (tables.told(each) for each in row.figures.values())
                print(row.what, *errors, flush=True)
                yield row


def main() -> None:
    """Measures, and keeps what was found where asked to."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--max_queries", type=int, default=10**6)
    add_flag(parser)
    flags = parser.parse_args()
    # A universe of 16 cells has 65,534 queries.
    limits = {"conjunctions": flags.max_queries, "subsets": min(flags.max_queries, 10**4)}
    found = list(rows(accuracy_tables.load("nltcs")[1], limits, flags.runs))
    keep(flags.record, found)


if __name__ == "__main__":
    main()

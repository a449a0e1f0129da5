"""Measures what two combined releases are worth, next to one release of the whole budget.

    BEAM_DP_DATA=DIR python benchmarks/combine.py adult7 --ways 2 --epsilon 1 --runs 10

draws two releases of one table with the same epsilon, and a third whose mu is sqrt(2) times as
large, which costs as much as the two together. It prints the errors of ``accuracy.py`` for the
first release alone, for both combined, and for the one of the whole budget: of the fitted
distribution, then of the records. ``--second_ways`` gives the second release other marginals; the
errors are then those of the marginals of ``--ways`` and, in a second line, of ``--second_ways``.
"""

from __future__ import annotations

import argparse
import time
from fractions import Fraction

import accuracy
import accuracy_tables
import numpy as np

from beam_dp.mechanisms.marginals.combined import combine_releases
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import Marginals
from beam_dp.verification.steps import gaussian_epsilon


def draw(tables: Marginals, workload: Workload, epsilon: float, delta: float) -> SyntheticDatabase:
    """Returns a release of a workload, from tables that contain all of its marginals."""
    guarantee = Guarantee(epsilon, delta, "add_or_remove_one", "record", 1)
    mechanism = MWEM()
    plan = mechanism.plan(workload.domain, workload, guarantee, "noisy")
    return mechanism.release(plan, tables, NoiseSource())


def errors(release: SyntheticDatabase, asked: Workload, exact: Marginals) -> list[float]:
    """Returns total variation and largest cell error, of the distribution, then of records."""
    number = release.num_records
    found = (
        (each.values / number, release.record_marginal(each.attributes) / number)
        for each in release.answer(asked)
    )
    return accuracy.errors(found, asked, exact)


def main() -> None:
    """Prints the errors of one release, of two combined, and of one of the whole budget."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("table")
    parser.add_argument("--ways", type=int, default=2)
    parser.add_argument("--second_ways", type=int)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--runs", type=int, default=5)
    given = parser.parse_args()
    domain, codes = accuracy_tables.load(given.table)
    ways = [given.ways, given.second_ways or given.ways]
    workloads = [marginals(domain, ways=each) for each in ways]
    exact = accuracy_tables.count(domain, codes, marginals(domain, ways=max(ways)))
    mu_squared = 2 * Fraction(discrete_gaussian_mu(given.epsilon, given.delta)) ** 2
    whole = gaussian_epsilon(mu_squared, Fraction(given.delta))
    print(f"{given.table}: the whole budget is epsilon {whole:.4f} at delta {given.delta:g}")
    rows: dict[tuple[str, int], list[list[float]]] = {}
    for _ in range(given.runs):
        drawn = [draw(exact, each, given.epsilon, given.delta) for each in workloads]
        start = time.process_time()
        drawn.append(combine_releases(*drawn))
        seconds = time.process_time() - start
        drawn.append(draw(exact, workloads[1], whole, given.delta))
        labels = ["first", "second", "combined", "whole budget"]
        for label, release in zip(labels, drawn, strict=True):
            for way, asked in dict(zip(ways, workloads, strict=True)).items():
                found = errors(release, asked, exact)
                rows.setdefault((label, way), []).append(found)
    print(f"the last combination took {seconds:.1f} CPU s")
    for (label, way), each in rows.items():
        table = np.array(each)
        spread = table.std(axis=0, ddof=1) / np.sqrt(given.runs)
        told = [f"{m:.5f} ± {d:.5f}" for m, d in zip(table.mean(axis=0), spread, strict=True)]
        print(f"{way}-way, {label}: {' / '.join(told[:2])}, records {' / '.join(told[2:])}")


if __name__ == "__main__":
    main()

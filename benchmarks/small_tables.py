"""Measures whether a release of all pairs is worse on pairs than one of attributes alone.

    BEAM_DP_DATA=DIR python -m benchmarks.small_tables --draws 30 [--tables adult --rows 300]

cuts tables to a few random rows, other rows for every draw, and releases them twice with the same
guarantee: for the workload of all pairs, and for that of single attributes. It prints the total
variation of the released records, averaged over all pairs, each as a mean over the draws with its
standard error. The number of records is public unless ``--noisy_num_records`` is given. ``--label
before`` marks the rows, so that one file can hold the figures of two versions of the package.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.summaries.histogram import Marginals
from benchmarks import accuracy_tables
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

TABLES = ("adult", "nltcs", "nist", "people2", "yesno2")
ROWS = (300, 1000, 3000)
EPSILONS = (0.1, 0.3, 1.0)
DELTA = 1e-9
_SEED = 20_261_130


def cut(codes: accuracy_tables.Codes, num_rows: int, draw: int) -> accuracy_tables.Codes:
    """Returns random rows of a table, without repetition, by a public seed."""
    generator = np.random.default_rng((_SEED, num_rows, draw))
    chosen = generator.choice(len(codes[0]), num_rows, replace=False)
    return [column[chosen] for column in codes]


def released(
    domain: Domain,
    codes: accuracy_tables.Codes,
    workload: Workload,
    guarantee: Guarantee,
    is_noisy: bool,
) -> SyntheticDatabase:
    """Returns a release of a workload."""
    mechanism = MWEM()
    plan = mechanism.plan(domain, workload, guarantee, "noisy" if is_noisy else len(codes[0]))
    exact = accuracy_tables.count(domain, codes, plan.summary_tables)
    return mechanism.release(plan, exact, NoiseSource())


def error(release: SyntheticDatabase, workload: Workload, exact: Marginals) -> float:
    """Returns the total variation of released records, averaged over the workload."""

    def share(counts: NDArray[np.int64]) -> NDArray[np.float64]:
        shares: NDArray[np.float64] = counts / counts.sum()
        return shares

    differences = [
        np.abs(share(release.record_marginal(names)) - share(exact.marginal(names))).sum() / 2
        for names in workload
    ]
    return float(np.mean(differences))


def main() -> None:
    """Prints a row for each table, number of rows and epsilon, and keeps them where asked to."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tables", nargs="+", default=TABLES, choices=accuracy_tables.NAMES)
    parser.add_argument("--rows", nargs="+", type=int, default=ROWS)
    parser.add_argument("--epsilons", nargs="+", type=float, default=EPSILONS)
    parser.add_argument("--ways", type=int, default=2)
    parser.add_argument("--draws", type=int, default=6)
    parser.add_argument("--noisy_num_records", action="store_true")
    parser.add_argument("--label", default="")
    add_flag(parser)
    options = parser.parse_args()
    rows = []
    for name in options.tables:
        domain, codes = accuracy_tables.load(name)
        workloads = {ways: marginals(domain, ways=ways) for ways in (1, 2, options.ways)}
        names = {1: "attributes alone", options.ways: f"all {options.ways}-way marginals"}
        for num_rows in options.rows:
            for epsilon in options.epsilons:
                guarantee = Guarantee(epsilon, DELTA, "add_or_remove_one", "record", 1)
                errors: dict[int, list[float]] = {ways: [] for ways in names}
                measured: list[float] = []
                start = time.process_time()
                for draw in range(options.draws):
                    kept = cut(codes, num_rows, draw)
                    exact = accuracy_tables.count(domain, kept, workloads[2])
                    for ways in names:
                        release = released(
                            domain, kept, workloads[ways], guarantee, options.noisy_num_records
                        )
                        errors[ways].append(error(release, workloads[2], exact))
                    sets = {tuple(each["attributes"]) for each in release.noise}
                    measured.append(sum(len(names) == 2 for names in sets))
                seconds = (time.process_time() - start) / options.draws
                figures = {names[ways]: Figure.mean(errors[ways], "share") for ways in names}
                figures["measured pairs"] = Figure.mean(measured, "number")
                figures["CPU time"] = Figure(seconds, "seconds")
                what = f"{name}, {num_rows:,} rows, {epsilon:g}"
                rows.append(Row(what, figures, options.draws, options.label))
                print(table(rows[-1:], "table, rows, epsilon").splitlines()[-1], flush=True)
    print(table(rows, "table, rows, epsilon"))
    keep(options.record, rows)


if __name__ == "__main__":
    main()

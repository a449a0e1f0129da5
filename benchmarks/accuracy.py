"""Measures what a mechanism's answers and records are worth on real tables.

    BEAM_DP_DATA=DIR python benchmarks/accuracy.py nltcs --ways 3 --epsilon 1 --delta 1e-9 --runs 20

prints, for the fitted distribution and for the released records, the total variation averaged over
the workload's marginals and the largest error of any cell (both of normalised marginals), each as
a mean over the runs with its standard error, and the CPU seconds and peak memory of the step that
turns exact marginals into a release.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import resource
import sys
import time

import numpy as np
import pyarrow.csv

from beam_dp.domain_json import read_domain
from beam_dp.encoding.columns import encode_cells
from beam_dp.mechanisms import MWEM, Gaussian, Laplace, Mechanism
from beam_dp.noise import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases import SyntheticDatabase
from beam_dp.summaries import Histogram

ADULT7 = [
    "workclass",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "income>50K",
]
DATA = {"nltcs": ("nltcs", None), "adult7": ("adult", ADULT7)}


def load(name: str) -> Histogram:
    """Returns the exact histogram of one of the tables under BEAM_DP_DATA."""
    directory = os.environ.get("BEAM_DP_DATA")
    if not directory:
        sys.exit("BEAM_DP_DATA must name the folder that holds nltcs.csv and adult.csv")
    stem, names = DATA[name]
    table = pyarrow.csv.read_csv(pathlib.Path(directory, f"{stem}.csv"))
    full = read_domain(str(pathlib.Path(directory, f"{stem}-domain.json")))
    domain = full if names is None else full.restrict(names)
    batch = table.combine_chunks().to_batches()[0]
    cells = encode_cells(domain, batch)
    return Histogram(domain, np.bincount(cells, minlength=domain.num_cells).astype(np.int64))


def errors(
    release: SyntheticDatabase, workload: Workload, exact: Histogram
) -> tuple[float, float, float, float]:
    """Returns total variation and largest cell error, of the distribution and of the records."""
    num_records = int(exact.counts.sum())
    answers = release.answer(workload)
    rows = []
    for answer in answers:
        true = exact.marginal(answer.attributes) / num_records
        released = release.record_marginal(answer.attributes) / release.num_records
        for estimate in (answer.values / release.num_records, released):
            difference = np.abs(estimate - true)
            rows.append((difference.sum() / 2, difference.max()))
    table = np.array(rows).reshape(-1, 2, 2)
    variation, largest = table[:, :, 0].mean(axis=0), table[:, :, 1].max(axis=0)
    return variation[0], largest[0], variation[1], largest[1]


def mechanism_of(name: str, calibration: str, num_rounds: int | None) -> Mechanism:
    """Returns the mechanism of that name."""
    if name == "mwem":
        return MWEM(num_rounds=num_rounds, calibration=calibration)
    return {"gaussian": Gaussian, "laplace": Laplace}[name](calibration=calibration)


def main() -> None:
    """Runs one row of the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", choices=sorted(DATA))
    parser.add_argument("--ways", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--mechanism", choices=["mwem", "gaussian", "laplace"], default="mwem")
    parser.add_argument("--calibration", choices=["tight", "textbook"], default="tight")
    parser.add_argument("--num_rounds", type=lambda text: text if text == "annealed" else int(text))
    parser.add_argument("--noisy_num_records", action="store_true")
    options = parser.parse_args()
    exact = load(options.data)
    workload = marginals(exact.domain, ways=options.ways)
    guarantee = Guarantee(options.epsilon, options.delta, "add_or_remove_one", "record", 1)
    mechanism = mechanism_of(options.mechanism, options.calibration, options.num_rounds)
    num_records = "noisy" if options.noisy_num_records else int(exact.counts.sum())
    measured, seconds = [], []
    for _ in range(options.runs):
        start = time.process_time()
        plan = mechanism.plan(exact.domain, workload, guarantee, num_records)
        tables = exact.marginals(plan.summary_tables)
        release = mechanism.release(plan, tables, NoiseSource())
        seconds.append(time.process_time() - start)
        measured.append(errors(release, workload, exact))
    mean = np.mean(measured, axis=0)
    spread = np.std(measured, axis=0, ddof=1) / np.sqrt(options.runs) if options.runs > 1 else mean
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    label = f"{options.data} {options.ways}-way ({options.epsilon}, {options.delta})"
    print(f"{label} {options.mechanism} {options.calibration}, {options.runs} runs")
    for name, first in (("distribution", 0), ("records", 2)):
        variation, largest = mean[first : first + 2]
        print(
            f"  {name}: total variation {variation:.5f} +- {spread[first]:.5f},"
            f" largest cell {largest:.5f} +- {spread[first + 1]:.5f}"
        )
    print(f"  CPU {np.mean(seconds):.1f} s, peak memory {peak:.0f} MB, strategy {plan.public}")


if __name__ == "__main__":
    main()

"""What every strategy for intervals errs, predicted and measured.

    python benchmarks/intervals.py sizes
    BEAM_DP_DATA=DIR python benchmarks/intervals.py histograms

``sizes`` prints the mean squared error over all intervals at epsilon 1 (delta 0 and 1e-9), for
64 to 65,536 cells, with the ratio of the textbook tree's to it; up to ``--measured`` cells also as
measured on releases with the production noise. ``histograms`` releases the five histograms of 4,096
cells that DPBench uses, at three epsilons, and prints the scaled error: the root of the mean
squared error over all intervals, as a share of the number of records. The default's choice is
marked.
"""

from __future__ import annotations

import argparse
import math
import os
import pathlib
import time

import numpy as np
from numpy.typing import NDArray

from beam_dp.mechanisms.intervals import (
    GAUSSIAN,
    PURE,
    Choice,
    IntervalPlan,
    plan_intervals,
    planned,
    release_intervals,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource

HISTOGRAMS = ("HEPTH", "ADULTFRANK", "INCOME", "PATENT", "MEDCOST")
EPSILONS = (0.01, 0.1, 1.0)


def promise(epsilon: float, delta: float) -> Guarantee:
    """Returns what is promised: one record is added or removed."""
    return Guarantee(epsilon, delta, "add_or_remove_one", "record", 1)


def squared_error(plan: IntervalPlan, counts: NDArray[np.int64], noise: NoiseSource) -> float:
    """Returns the mean squared error over all intervals of one release.

    Answers that are differences of prefixes: by sums over these. The textbook tree's: of 100,000
    intervals at random.
    """
    release = release_intervals(plan, counts, noise)
    exact = np.append(0, np.cumsum(counts))
    num_leaves = plan.num_leaves
    if plan.choice[0] == "textbook_tree":
        ends = np.random.default_rng().integers(0, num_leaves + 1, (2, 100_000))
        low, stop = np.sort(ends[:, ends[0] != ends[1]], axis=0)
        difference = release.answer(low, stop - 1).values - (exact[stop] - exact[low])
        return float(difference @ difference) / len(difference)
    errors = release.prefixes() - exact
    total = (num_leaves + 1) * float(errors @ errors) - float(errors.sum()) ** 2
    return total / (num_leaves * (num_leaves + 1) / 2)


def measured(plan: IntervalPlan, counts: NDArray[np.int64], runs: int) -> tuple[float, float]:
    """Returns the mean of a few releases, and its standard error."""
    noise = NoiseSource()
    errors = np.array([squared_error(plan, counts, noise) for _ in range(runs)])
    return float(errors.mean()), float(errors.std(ddof=1)) / math.sqrt(runs)


def sizes(largest_measured: int, runs: int) -> None:
    """Prints the table over numbers of cells."""
    print("| cells | strategy | noise | predicted | measured | textbook / predicted | plan, s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for num_leaves in (64, 1024, 4096, 65536):
        for delta, choices in ((0.0, PURE), (1e-9, GAUSSIAN)):
            guarantee = promise(1.0, delta)
            rows: list[tuple[Choice, IntervalPlan, float]] = []
            for choice in choices:
                start = time.perf_counter()
                plan = planned(num_leaves, guarantee, choice)
                plan.strategy.errors.mean()
                rows.append((choice, plan, time.perf_counter() - start))
            best = min(plan.mean_squared_error for _, plan, _ in rows)
            textbook = rows[1][1].mean_squared_error
            for (name, distribution), plan, seconds in rows:
                predicted = plan.mean_squared_error
                found = "-"
                if num_leaves <= largest_measured:
                    mean, error = measured(plan, np.full(num_leaves, 10, np.int64), runs)
                    found = f"{mean:,.1f} ± {error:,.1f}"
                mark = "**" if predicted == best else ""
                print(
                    f"| {num_leaves:,} | {mark}{name}{mark} | {distribution} | {predicted:,.1f}"
                    f" | {found} | {textbook / predicted:.2f} | {seconds:.1f} |",
                    flush=True,
                )


def histograms(folder: pathlib.Path, runs: int) -> None:
    """Prints the table over data sets."""
    print(f"| data | records | epsilon | {' | '.join(name for name, _ in PURE)} | default / best |")
    print("| --- " * (len(PURE) + 4) + "|")
    for data in HISTOGRAMS:
        counts = np.load(folder / f"{data}.n4096.npy").astype(np.int64)
        total = int(counts.sum())
        for epsilon in EPSILONS:
            guarantee = promise(epsilon, 0.0)
            chosen = plan_intervals(len(counts), guarantee).choice
            errors = {}
            for choice in PURE:
                mean, _ = measured(planned(len(counts), guarantee, choice), counts, runs)
                errors[choice] = math.sqrt(mean) / total
            cells = (
                f"**{error:.3g}**" if choice == chosen else f"{error:.3g}"
                for choice, error in errors.items()
            )
            print(
                f"| {data} | {total:,} | {epsilon:g} | {' | '.join(cells)}"
                f" | {errors[chosen] / min(errors.values()):.2f} |",
                flush=True,
            )


def main() -> None:
    """Prints one table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("table", choices=("sizes", "histograms"))
    parser.add_argument("--measured", type=int, default=1024, metavar="CELLS")
    parser.add_argument("--runs", type=int, default=20)
    arguments = parser.parse_args()
    if arguments.table == "sizes":
        sizes(arguments.measured, arguments.runs)
        return
    folder = os.environ.get("BEAM_DP_DATA")
    if folder is None:
        parser.error("BEAM_DP_DATA: must name the folder of the histograms")
    histograms(pathlib.Path(folder), arguments.runs)


if __name__ == "__main__":
    main()

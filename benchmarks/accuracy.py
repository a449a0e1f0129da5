"""Measures what a mechanism's answers and records are worth on real tables.

    BEAM_DP_DATA=DIR python benchmarks/accuracy.py nltcs --ways 3 --epsilon 1 --delta 1e-9 --runs 20

prints, for the fitted distribution and for the released records, the total variation averaged over
the workload's marginals and the largest error of any cell (both of normalised marginals), each as
a mean over the runs with its standard error, and the CPU seconds and peak memory of the step that
turns exact marginals into a release; of a selection of pairs also those from its scores to its last
measurement. ``wide`` (35 columns), ``wide60``, ``wide100``, ``binary23``, ``yesno1`` to ``3``,
``tall9``, ``parity``, ``mixture``, ``codes35``, ``blocks35`` and ``people1`` to ``3`` are generated
and need no data.

``--weights education:10`` lets each marginal that contains education weigh ten times as much; a
file of JSON lines, as for the workload of a program, gives any marginals and weights instead of
``--ways``. The total variation is then also averaged with these weights. A workload lists each
marginal once, so a marginal that is wanted k times has k times the weight. ``--mechanism
unweighted`` is the default mechanism with equal weights.

Two baselines stand beside the mechanisms. ``independent`` releases all attributes alone, with the
whole budget, as if they were independent. ``raw_gaussian`` adds Gaussian noise, calibrated exactly,
to every cell of every marginal of the workload, sets negative counts to 0 and divides by the sum:
no distribution joins its answers, and it has no records.
"""

from __future__ import annotations

import argparse
import math
import pathlib
import resource
import sys
import time
from collections.abc import Iterable, Sequence

import accuracy_tables
import numpy as np
from accuracy_tables import Codes
from numpy.typing import NDArray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.plan import Mechanism
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.workload import Workload, marginals, parse_workload
from beam_dp.secret.summaries.histogram import Marginals
from benchmarks.recorded import Figure, Row, add_flag, keep
from benchmarks.tables import table

# Normalised tables of one marginal: the distribution's, and the records' where there are any.
Estimates = tuple[NDArray[np.float64], ...]
# Of normalised marginals: averaged over them, and of any cell.
ERRORS = ("total variation", "largest cell")
# Of a workload with weights, after these.
WEIGHTED = "weighted total variation"
# On a grid this fine the discreteness of noise costs nothing.
_GRID_DEVIATIONS = 4096


class Synthesis:
    """A mechanism of the package.

    Args:
        mechanism: what is measured.
        ways: of the marginals that it is asked for; by default those of the workload.
        is_weighted: whether it is told the weights of the workload.
    """

    def __init__(
        self, mechanism: Mechanism, ways: int | None = None, is_weighted: bool = True
    ) -> None:
        self.mechanism = mechanism
        self.ways = ways
        self.is_weighted = is_weighted
        self.tables: Marginals | None = None
        self.public: dict[str, object] = {}

    def run(
        self,
        domain: Domain,
        codes: Codes,
        workload: Workload,
        guarantee: Guarantee,
        noisy: bool,
    ) -> tuple[Iterable[Estimates], float]:
        """Returns estimates of the workload's marginals, in its order, and CPU seconds."""
        asked = workload if self.ways is None else marginals(domain, ways=self.ways)
        if not self.is_weighted:
            asked = Workload(domain, asked.marginals)
        start = time.process_time()
        plan = self.mechanism.plan(domain, asked, guarantee, "noisy" if noisy else len(codes[0]))
        seconds = time.process_time() - start
        if self.tables is None:  # the same in every run: a pipeline counts in its workers
            self.tables = accuracy_tables.count(domain, codes, plan.summary_tables)
        reached: dict[str, float] = {}

        def note(step: str, done: int, of: int) -> None:
            reached[step] = time.process_time()

        start = time.process_time()
        release = self.mechanism.release(plan, self.tables, NoiseSource(), note)
        seconds += time.process_time() - start
        self.public = {**plan.public, **release.fit}
        if "score pairs" in reached:
            self.public["choosing_seconds"] = reached["measure"] - reached["score pairs"]
        estimates = (
            (
                answer.values / release.num_records,
                release.record_marginal(answer.attributes) / release.num_records,
            )
            for answer in release.answer(workload)
        )
        return estimates, seconds


class RawGaussian:
    """Every marginal of the workload with noise of its own, and nothing else."""

    def __init__(self) -> None:
        self.tables: Marginals | None = None
        self.public: dict[str, object] = {}

    def run(
        self,
        domain: Domain,
        codes: Codes,
        workload: Workload,
        guarantee: Guarantee,
        noisy: bool,
    ) -> tuple[Iterable[Estimates], float]:
        """Returns estimates of the workload's marginals, in its order, and CPU seconds."""
        if self.tables is None:
            self.tables = accuracy_tables.count(domain, codes, workload)
        start = time.process_time()
        # One record moves one cell of each marginal by 1; a replacement moves two.
        mu = discrete_gaussian_mu(guarantee.epsilon, guarantee.delta)
        deviation = math.sqrt(len(workload) * guarantee.neighboring.num_moved) / mu
        grid = math.ceil(_GRID_DEVIATIONS / deviation)
        scale = math.hypot(deviation * grid, 2.0) * (1 + 1e-12)
        self.public = {"deviation": deviation}
        noise, estimates = NoiseSource(), []
        for names in workload:
            drawn = noise.gaussian(self.tables.marginal(names) * grid, scale)
            clipped = np.maximum(drawn, 0.0)
            total = clipped.sum()
            uniform = np.full(clipped.shape, 1 / clipped.size)
            estimates.append((clipped / total if total else uniform,))
        return estimates, time.process_time() - start


def errors(estimates: Iterable[Estimates], workload: Workload, exact: Marginals) -> list[float]:
    """Returns total variation and largest cell error, of the distribution, then of records.

    With weights, both are followed by the total variation that is averaged with these.
    """
    weights = np.array(workload.weights)
    rows = []
    for names, tables in zip(workload, estimates, strict=True):
        true = exact.marginal(names)
        true = true / true.sum()
        differences = [np.abs(table - true) for table in tables]
        rows.append([(each.sum() / 2, each.max()) for each in differences])
    table = np.array(rows)
    columns = [table[:, :, 0].mean(axis=0), table[:, :, 1].max(axis=0)]
    if has_weights(workload):
        columns.append(np.average(table[:, :, 0], axis=0, weights=weights))
    return [float(each) for kind in zip(*columns, strict=True) for each in kind]


def has_weights(workload: Workload) -> bool:
    """Returns whether marginals of a workload have different weights."""
    return len(set(workload.weights)) > 1


def weighted(domain: Domain, ways: int, told: str) -> Workload:
    """Returns the workload that ``--weights`` asks for: a file, or a name and its weight."""
    name, _, weight = told.rpartition(":")
    if name not in domain:
        return parse_workload(told, domain)
    plain = marginals(domain, ways=ways)
    weights = (float(weight) if name in names else 1.0 for names in plain)
    return Workload(domain, plain.marginals, tuple(weights))


def contender(name: str, calibration: str, num_rounds: int | None) -> Synthesis | RawGaussian:
    """Returns what ``--mechanism`` names."""
    if name == "raw_gaussian":
        return RawGaussian()
    if name == "independent":
        return Synthesis(MWEM(), ways=1)
    if name == "unweighted":
        return Synthesis(MWEM(), is_weighted=False)
    if name == "mwem":
        return Synthesis(MWEM(num_rounds=num_rounds, calibration=calibration))
    return Synthesis({"gaussian": Gaussian, "laplace": Laplace}[name](calibration=calibration))


def main() -> None:
    """Runs one row of the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", choices=accuracy_tables.NAMES)
    parser.add_argument("--ways", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--delta", type=float, default=1e-9)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument(
        "--mechanism",
        choices=["mwem", "gaussian", "laplace", "independent", "raw_gaussian", "unweighted"],
        default="mwem",
    )
    parser.add_argument("--calibration", choices=["tight", "textbook"], default="tight")
    parser.add_argument("--num_rounds", type=lambda text: text if text == "annealed" else int(text))
    parser.add_argument("--noisy_num_records", action="store_true")
    parser.add_argument("--neighboring", choices=[*Neighboring], default="add_or_remove_one")
    parser.add_argument("--weights", help="NAME:WEIGHT, or a file of JSON lines")
    add_flag(parser)
    options = parser.parse_args()
    if options.mechanism == "raw_gaussian" and not options.delta > 0:
        parser.error("--mechanism raw_gaussian needs --delta > 0")
    domain, codes = accuracy_tables.load(options.data)
    workload = marginals(domain, ways=options.ways)
    if options.weights:
        try:
            workload = weighted(domain, options.ways, options.weights)
        except ValueError as error:
            parser.error(f"--weights: {options.weights!r} is refused: {error}")
    exact = accuracy_tables.count(domain, codes, workload)
    guarantee = Guarantee(options.epsilon, options.delta, options.neighboring, "record", 1)
    measured, seconds = [], []
    running = contender(options.mechanism, options.calibration, options.num_rounds)
    # Only what is unusual is told, so that other rows keep their names.
    unusual = [] if options.neighboring == "add_or_remove_one" else [options.neighboring]
    if options.weights:
        unusual.append(f"weights {pathlib.Path(options.weights).name}")
    what = f" ({'; '.join(unusual)})" if unusual else ""
    label = f"{options.data}{what}, {options.ways}-way, {options.epsilon:g}, {options.delta:g}"
    label += f", {options.mechanism}"
    print(f"{label}, {options.calibration}, {options.runs} runs")
    for run in range(options.runs):
        estimates, spent = running.run(
            domain, codes, workload, guarantee, options.noisy_num_records
        )
        measured.append(errors(estimates, workload, exact))
        seconds.append(spent)
        found = " / ".join(f"{each:.5f}" for each in measured[-1])
        print(f"  run {run + 1}: {found}, CPU {spent:.1f} s", flush=True)
    names = [*ERRORS, WEIGHTED] if has_weights(workload) else ERRORS
    found = row(label, measured, seconds, names)
    print(table([found], "table, ways, epsilon, delta, mechanism"), running.public)
    keep(options.record, [found])


def row(
    label: str, measured: list[list[float]], seconds: list[float], names: Sequence[str] = ERRORS
) -> Row:
    """Returns means of the errors, with standard errors where runs tell of them, and the cost."""
    of_both = (f"{kind}, {error}" for kind in ("distribution", "records") for error in names)
    columns = zip(*measured, strict=True)
    figures = {
        name: Figure.mean(values, "share") for name, values in zip(of_both, columns, strict=False)
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    figures |= {
        "CPU time": Figure.mean(seconds, "seconds"),
        "peak memory": Figure(peak, "MiB"),
    }
    return Row(label, figures, len(measured))


if __name__ == "__main__":
    main()

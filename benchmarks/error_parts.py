"""Measures what the error of a release is made of, beside errors that know the exact tables.

    BEAM_DP_DATA=DIR python benchmarks/error_parts.py adult --ways 2 --epsilon 1 --runs 10
    python benchmarks/error_parts.py --all --record benchmarks/results/error_parts.json

All of these are computed from the exact tables, so they are private: never publish those of secret
records. Errors are those of ``accuracy.py``: the total variation averaged over the marginals of the
workload, and the largest error of any cell. A public number of records, add-or-remove-one.

* ``unbiased``: the best unbiased Gaussian strategy for the workload (ResidualPlanner, for the mean
  variance of a cell), with the whole budget. No fit, no clipping. The total variation is the
  expected one, in closed form; the largest cell is drawn.
* ``linear``: every residual of that strategy, multiplied by t / (v + t), where v is the variance of
  its noise and t the mean square of its true coefficients. No estimate that multiplies each noisy
  residual of this strategy by a number of its own has a smaller expected squared error. This bounds
  neither total variation, which is drawn, nor other strategies, nor estimates that know that counts
  are at least 0, or that use one residual for another, as a fit does.
* ``free selection``: the mechanism with exact scores and exact choices of the last check. Neither
  costs anything: the scores' budget goes to the measurements of the chosen pairs.
* ``structure``: the tables that the release measured, measured with a hundredth of the noise, and
  fitted by the distribution. What is left is what these tables do not tell. ``rounded structure``
  is the error of its records.
* ``1 % of the rows``: the shares in a random sample of the records, without any noise.
  ``rows of equal error`` is the size of a sample whose total variation is that of the released
  records.

The parts of the records' error add up: *structure* (of a free selection), *noise* (what the noise
of a free selection adds), *paid selection* (what the noise and the cost of the choice add) and
*rounding* (from the distribution to the records). Where nothing is selected, the structure is that
of the release. ``not measured`` is the part of the records' error in marginals with a pair of
attributes that no measurement holds.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import math
import pathlib
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations

import accuracy_tables
import numpy as np
from accuracy_tables import Codes
from numpy.typing import NDArray

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals import synthesis
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.measurements import Measurement, freedoms, residual_measurements
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.marginals.selection import SelectionPlan
from beam_dp.models.basis import MarginalCoefficients, marginal_of, table_coefficients
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import root_down
from beam_dp.queries.workload import Workload, marginals
from beam_dp.releases.synthetic_database.measured_tables import cell_variance
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.summaries.histogram import Marginals
from benchmarks.accuracy import ERRORS, errors
from benchmarks.recorded import Figure, Row, add_flag, keep

# Table, ways, epsilon and runs of the rows that are recorded.
RUNS = 10
ROWS = (
    ("nltcs", 3, 1.0, RUNS),
    ("adult7", 3, 1.0, RUNS),
    ("adult", 2, 1.0, RUNS),
    ("adult", 2, 0.1, RUNS),
    ("adult", 3, 1.0, RUNS),
    ("nist", 2, 1.0, RUNS),
    ("people1", 2, 1.0, RUNS),
    ("wide", 2, 1.0, 5),
)
DELTA = 1e-9
SAMPLES = (1, 5, 10, 20, 40)  # percent of the rows
PARTS = ("structure", "noise", "paid selection", "rounding", "not measured")
_LESS_NOISE = 100  # by which noise is divided where only the structure is looked at
_NUM_SAMPLES, _NUM_HALVINGS = 5, 12


class NoNoise(NoiseSource):
    """Adds no Gaussian noise."""

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """Returns a copy of the values."""
        return values.copy()


class FreeSelection(NoiseSource):
    """Draws the noise of measurements, but none of scores, and chooses the largest score."""

    def __init__(self, score_scale: float) -> None:
        self.score_scale = score_scale

    def gaussian(self, values: NDArray[np.int64], sigma: float) -> NDArray[np.int64]:
        """Returns the values, with noise unless its scale is that of scores."""
        return values.copy() if sigma == self.score_scale else super().gaussian(values, sigma)

    def select(self, scores: NDArray[np.int64], scale: float) -> int:
        """Returns the place of the largest score."""
        return int(np.argmax(scores))


@dataclasses.dataclass(frozen=True)
class Task:
    """Records, and what is asked about them.

    Args:
        exact: the tables of the workload.
        tables: those that the plan reads.
        num_records: of the records.
    """

    domain: Domain
    codes: Codes
    workload: Workload
    guarantee: Guarantee
    exact: Marginals
    plan: MarginalsPlan
    tables: Marginals
    num_records: int

    @classmethod
    def of(cls, domain: Domain, codes: Codes, workload: Workload, epsilon: float) -> Task:
        """Returns the task of a default release."""
        guarantee, total = (
            Guarantee(epsilon, DELTA, "add_or_remove_one", "record", 1),
            len(codes[0]),
        )
        plan = MWEM().plan(domain, workload, guarantee, total)
        exact = accuracy_tables.count(domain, codes, workload)
        tables = accuracy_tables.count(domain, codes, plan.summary_tables)
        return cls(domain, codes, workload, guarantee, exact, plan, tables, total)

    @functools.cached_property
    def squared_mu(self) -> Fraction:
        """The whole budget."""
        return Fraction(discrete_gaussian_mu(self.guarantee.epsilon, self.guarantee.delta)) ** 2

    def errors(self, release: SyntheticDatabase) -> list[float]:
        """Returns the errors of the distribution, then of the records."""
        total = release.num_records
        estimates = (
            (answer.values / total, release.record_marginal(answer.attributes) / total)
            for answer in release.answer(self.workload)
        )
        return errors(estimates, self.workload, self.exact)

    def structure(self, release: SyntheticDatabase) -> SyntheticDatabase:
        """Returns a release of the same tables, measured with hardly any noise."""
        held = release.measurements
        assert held is not None
        measured = [
            dataclasses.replace(each, scale=each.scale / _LESS_NOISE)
            for each in held.described
            if isinstance(each, Measurement)
        ]
        drawn = [each.draw(self.tables, NoNoise()) for each in measured]
        joined = None
        if isinstance(self.plan, SelectionPlan):
            joined = [self.domain.axes(names) for names, _ in release.potentials]
        return synthesis.synthesise(self.plan, measured, drawn, NoiseSource(), None, joined=joined)

    def free_selection(self) -> SyntheticDatabase:
        """Returns a release of pairs that exact scores chose at no cost."""
        plan = self.plan
        assert isinstance(plan, SelectionPlan)
        parameters = plan.parameters
        left = self.squared_mu - Fraction(parameters.attributes_mu) ** 2
        parameters = dataclasses.replace(parameters, pairs_mu=root_down(left), choice_share=0.0)
        free = dataclasses.replace(plan, parameters=parameters)
        return free.release(self.tables, FreeSelection(parameters.score_scale))

    def not_measured(self, release: SyntheticDatabase) -> float:
        """Returns the part of the records' total variation in marginals with unmeasured pairs."""
        held = {
            pair for each in release.noise for pair in combinations(sorted(each["attributes"]), 2)
        }
        found = 0.0
        for names in self.workload:
            if not held.issuperset(combinations(sorted(names), 2)):
                true = self.exact.marginal(names) / self.num_records
                off = release.record_marginal(names) / release.num_records - true
                found += float(np.abs(off).sum()) / 2
        return found / len(self.workload)


class Residuals:
    """The unbiased strategy: true coefficients of all residuals, and the variance of their noise.

    Args:
        task: what is asked.
    """

    def __init__(self, task: Task) -> None:
        self._task, domain = task, task.domain
        supports = [domain.axes(names) for names in task.workload.closure()]
        mu = root_down(task.squared_mu)
        measured = residual_measurements(
            task.workload, [each for each in supports if each], task.guarantee, mu, is_fitted=False
        )
        self._variances = {domain.axes(each.names): each.variance for each in measured}
        self._layout = MarginalCoefficients(domain.shape, supports)
        self._true = np.zeros(self._layout.num_coefficients)
        self._factors = np.ones(self._layout.num_coefficients)
        self._true[self._layout.slices[()]] = task.num_records
        for axes, variance in self._variances.items():
            where, shape = self._layout.slices[axes], [domain.shape[axis] for axis in axes]
            names = tuple(domain.names[axis] for axis in axes)
            found = table_coefficients(task.exact.marginal(names).astype(np.float64))
            energy = float(found @ found) / freedoms(shape)
            self._true[where] = found
            self._factors[where] = energy / (variance + energy)

    def expected(self) -> float:
        """Returns the expected total variation of the unbiased tables, averaged over marginals."""
        domain, found = self._task.domain, []
        variances = dict.fromkeys(self._layout.supports, 0.0) | self._variances
        for names in self._task.workload:
            axes = domain.axes(names)
            cells = math.prod(domain.shape[axis] for axis in axes)
            deviation = math.sqrt(cell_variance(domain, variances, axes))
            found.append(cells * deviation * math.sqrt(2 / math.pi) / 2)
        return math.fsum(found) / len(found) / self._task.num_records

    def draw(self, generator: np.random.Generator) -> list[float]:
        """Returns errors of the unbiased tables, then of the linear oracle's, for one noise."""
        noisy = self._true.copy()
        for axes, variance in self._variances.items():
            shape = [self._task.domain.shape[axis] for axis in axes]
            noise = math.sqrt(variance) * generator.normal(size=shape)
            noisy[self._layout.slices[axes]] += table_coefficients(noise)
        total = self._task.num_records
        tables = (
            tuple(
                marginal_of(self._layout, each, self._task.domain.axes(names)) / total
                for each in (noisy, self._factors * noisy)
            )
            for names in self._task.workload
        )
        return errors(tables, self._task.workload, self._task.exact)


def sampled(task: Task, order: NDArray[np.int64], share: float) -> list[float]:
    """Returns the errors of a sample: the first records of a random order."""
    kept = order[: max(1, round(share * task.num_records))]
    counts = accuracy_tables.count(task.domain, [each[kept] for each in task.codes], task.workload)
    tables = ((counts.marginal(names) / len(kept),) for names in task.workload)
    return errors(tables, task.workload, task.exact)


def equal_share(task: Task, order: NDArray[np.int64], error: float) -> float:
    """Returns the share of the records whose sample has this total variation."""
    # Between one record and all; halved on the scale of logarithms.
    low, high = 1 / task.num_records, 1.0
    for _ in range(_NUM_HALVINGS):
        middle = math.sqrt(low * high)
        is_worse = sampled(task, order, middle)[0] > error
        low, high = (middle, high) if is_worse else (low, middle)
    return math.sqrt(low * high)


def measure(label: str, task: Task, runs: int, generator: np.random.Generator) -> Row:
    """Returns the parts of the error of a task, and other errors beside it."""
    found: dict[str, list[float]] = {}

    def put(name: str, measured: Sequence[float]) -> None:
        for error, value in zip(ERRORS, measured, strict=True):
            found.setdefault(f"{name}, {error}", []).append(value)

    residuals = Residuals(task)
    for run in range(runs):
        release = task.plan.release(task.tables, NoiseSource())
        own, structure = task.errors(release), task.errors(task.structure(release))
        put("records", own[2:])
        put("distribution", own[:2])
        put("structure", structure[:2])
        put("rounded structure", structure[2:])
        free, of_free = own, structure
        if isinstance(task.plan, SelectionPlan):
            chosen = task.free_selection()
            free, of_free = task.errors(chosen), task.errors(task.structure(chosen))
            put("free selection", free[2:])
        drawn = residuals.draw(generator)
        put("unbiased", drawn[:2])
        put("linear", drawn[2:])
        parts = [of_free[0], free[0] - of_free[0], own[0] - free[0], own[2] - own[0]]
        for name, value in zip(PARTS, [*parts, task.not_measured(release)], strict=True):
            found.setdefault(f"part: {name}", []).append(value)
        print(f"  run {run + 1}: records {own[2]:.5f} / {own[3]:.5f}", flush=True)
    orders = [generator.permutation(task.num_records) for _ in range(_NUM_SAMPLES)]
    for order in orders:
        for percent in SAMPLES:
            put(f"{percent} % of the rows", sampled(task, order, percent / 100))
    figures = {name: Figure.mean(values, "share") for name, values in found.items()}
    figures["unbiased, total variation"] = Figure(residuals.expected(), "share")
    error = figures["records, total variation"].value
    shares = [equal_share(task, order, error) for order in orders]
    figures["rows of equal error"] = Figure.mean([100 * each for each in shares], "percent")
    return Row(label, figures, runs)


def main() -> None:
    """Prints one row, or all that are recorded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", nargs="?", choices=accuracy_tables.NAMES)
    parser.add_argument("--ways", type=int, default=2)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--runs", type=int, help="by default 10; 5 of the widest table")
    parser.add_argument("--all", action="store_true", help="the rows that are recorded")
    add_flag(parser)
    options = parser.parse_args()
    if (options.data is None) == (not options.all):
        parser.error("one of a table and --all must be given")
    asked = ROWS if options.all else [(options.data, options.ways, options.epsilon, RUNS)]
    rows: list[Row] = []
    for name, ways, epsilon, usual in asked:
        runs = options.runs or usual
        lacking = accuracy_tables.lacking(name)
        if lacking:
            print(f"{name}: skipped: {lacking}")
            continue
        domain, codes = accuracy_tables.load(name)
        task = Task.of(domain, codes, marginals(domain, ways=ways), epsilon)
        label = f"{name}, {ways}-way, {epsilon:g}"
        print(f"{label}, {runs} runs", flush=True)
        rows.append(measure(label, task, runs, np.random.default_rng()))
        for figure, value in rows[-1].figures.items():
            print(f"  {figure}: {value.value:.5g} {value.unit}, error {value.error or 0:.2g}")
        keep(options.record, rows)


if __name__ == "__main__":
    main()

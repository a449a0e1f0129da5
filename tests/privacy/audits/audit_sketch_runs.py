"""Audits of whole sparse releases with the production noise, and the mutants that they must catch.

"black box": releases with the production noise on two neighbours. "delta": how often an element
that one unit alone holds is released. "form": what a release says besides noise, on very different
data.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Sequence

import numpy as np
from audit_sketches import plan_for, with_threshold
from auditing import (
    DOUBLED,
    FALSE_ALARM,
    HALVED,
    Audit,
    Bug,
    Finding,
    Patch,
    around,
    audited,
    told_apart,
)
from noise_sources import Draw, DrawsAll
from numpy.typing import NDArray
from scipy import stats
from sketch_laws import LARGE_DELTA, Record, batch_of, draws_of, promise, seeded_key, summary_of
from tiny import ADD, REPLACE

from beam_dp.encoding.batch import KeyBatch
from beam_dp.mechanisms.sketches import plan as plan_module
from beam_dp.mechanisms.sketches.mechanisms import (
    CountSketch,
    HybridSketch,
    SparseProject,
    StabilityHistogram,
)
from beam_dp.mechanisms.sketches.plan import SparseMechanism, SparsePlan, SparseSummary
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.summaries.projection import Projection
from beam_dp.testing.audit import discrete_gaussian, discrete_laplace

Data = Sequence[Record]

ROWS, WEIGHT, MOST = 3, 2, 2
# Log-likelihood ratios are rounded to this.
_BIN = 1e-2
ELEMENTS = (0, 1)
REPLICAS = 2048


@dataclasses.dataclass(frozen=True)
class Coordinate:
    """One number of a release: its log-likelihood ratio in bins, and its two laws, by value."""

    low: int
    bins: NDArray[np.int64]
    laws: tuple[NDArray[np.float64], NDArray[np.float64]]

    @classmethod
    def of(cls, kind: str, scale: float, ends: tuple[int, int], least: int | None) -> Coordinate:
        """Of an exact value at either end; values below ``least`` are seen as it."""
        law, reach = discrete_laplace, 0  # beyond both ends nothing more is told
        if kind == "gaussian":
            law, reach = discrete_gaussian, math.ceil(9 * scale)
        low, high = min(ends) - reach, max(ends) + reach
        if least is not None:
            low, high = max(low, least), max(high, least)
        one, other = (np.array(list(law(scale, end, low, high).values())) for end in ends)
        return cls(low, np.rint(np.log(one / other) / _BIN).astype(np.int64), (one, other))

    def bins_of(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        return self.bins[np.clip(values - self.low, 0, len(self.bins) - 1)]


@dataclasses.dataclass(frozen=True)
class View:
    """Two neighbours, and what tells releases of them apart.

    A release is of many replicas: each has cells of its own in every row of a wide sketch, and
    elements of its own in the histogram, with the same exact numbers and independent noise.
    """

    plan: SparsePlan
    exact: tuple[list[Draw], list[Draw]]
    coordinates: list[Coordinate]

    @classmethod
    def of(cls, plan: SparsePlan, pair: tuple[Data, Data]) -> View:
        leasts: list[int | None] = []
        if plan.sketch is not None:
            leasts.append(None)
        if plan.histogram is not None:
            leasts.append(plan.histogram.threshold - 1)
        exact = draws_of(plan, pair[0]), draws_of(plan, pair[1])
        return cls(
            plan,
            exact,
            [
                Coordinate.of(one.kind, one.scale, ends, least)
                for one, other, least in zip(*exact, leasts, strict=True)
                for ends in zip(one.exact.tolist(), other.exact.tolist(), strict=True)
            ],
        )

    def run(self, side: int, runs: int) -> list[int]:
        """The log-likelihood ratios, in bins, of so many replicas."""
        noise = NoiseSource()
        parts = []
        for _ in range(0, runs, REPLICAS):
            release = plan_module.release_sparse(*self.wide(side), noise)
            values = zip(self.coordinates, seen(release), strict=True)
            parts.append(sum(coordinate.bins_of(each) for coordinate, each in values))
        return np.concatenate(parts)[:runs].tolist()

    def wide(self, side: int) -> tuple[SparsePlan, SparseSummary]:
        plan, draws = self.plan, list(self.exact[side])
        projection = counts = None
        if plan.sketch is not None:
            sketch = dataclasses.replace(plan.sketch, projection_width=ROWS * REPLICAS)
            plan = dataclasses.replace(plan, sketch=sketch)
            # A power of two of cells: the sums are the cells, but for the grid.
            projection = Projection(np.repeat(draws.pop(0).exact // sketch.grid, REPLICAS))
        if plan.histogram is not None:
            exact = np.repeat(draws.pop(0).exact, REPLICAS)
            counts = ElementCounts(np.arange(len(exact), dtype=np.uint64), exact)
        return plan, SparseSummary(projection, counts)

    def law(self, side: int) -> dict[int, float]:
        low, law = 0, np.ones(1)
        for coordinate in self.coordinates:
            least = int(coordinate.bins.min())
            law = np.convolve(law, np.bincount(coordinate.bins - least, coordinate.laws[side]))
            low += least
        return {low + place: float(p) for place, p in enumerate(law) if p > 0}


def seen(release: SparseRelease) -> list[NDArray[np.int64]]:
    """The cells of each row, and each element's counts, or what is just below the threshold."""
    values: list[NDArray[np.int64]] = []
    if release.sketch is not None:
        values += list(release.sketch.cells.reshape(ROWS, REPLICAS))
    if release.histogram is not None:
        elements = np.arange(len(ELEMENTS) * REPLICAS, dtype=np.uint64)
        counts, found = release.histogram.look_up(elements)
        values += list(
            np.where(found, counts, release.histogram.threshold - 1).reshape(-1, REPLICAS)
        )
    return values


def neighbours(plan: SparsePlan) -> tuple[Data, Data]:
    """A unit's records with equal signs, or opposite ones after replacement.

    Of a histogram the two elements have as many other records as make the threshold lie between.
    """
    others: list[Record] = []
    if plan.histogram is not None:
        near = plan.histogram.threshold - MOST
        others = [(element, near) for element in ELEMENTS]
    held = [(0, WEIGHT)] * MOST
    replaced = [] if plan.guarantee.neighboring == ADD else [(1, WEIGHT)] * MOST
    return [*others, *held], [*others, *replaced]


def black_box(mechanism: SparseMechanism, guarantee: Guarantee) -> Finding:
    plan = plan_for(mechanism, guarantee)
    view = View.of(plan, neighbours(plan))
    laws = view.law(0), view.law(1)
    sides = [functools.partial(view.run, side) for side in range(2)]
    return told_apart(sides, guarantee, runs=RUNS, score=float, laws=laws)


def delta_of_one(mechanism: SparseMechanism, guarantee: Guarantee) -> Finding:
    """How often anything that one unit alone holds is released; it may be delta at most."""
    plan = plan_for(mechanism, guarantee)
    replicas = np.arange(RUNS, dtype=np.uint64)
    summary = summary_of(plan, KeyBatch(replicas, np.full(RUNS, WEIGHT * MOST)))
    if plan.sketch is not None:
        plan = dataclasses.replace(plan, sketch=None)
    release = plan_module.release_sparse(plan, summary, NoiseSource())
    assert release.histogram is not None
    hits = len(release.histogram.elements)
    low = stats.beta.ppf(FALSE_ALARM, max(hits, 1), RUNS - hits + 1)
    # None at all has a probability of e^-40 where the threshold is not higher than it needs be.
    return Finding(hits > 0 and low <= guarantee.delta)


def form(mechanism: SparseMechanism, guarantee: Guarantee) -> Finding:
    """What is not noise is the same for no records, one unit's and many, and is the plan's."""
    plan = plan_for(mechanism, guarantee)
    many = [(element, WEIGHT) for element in range(2000)]
    forms = {form_of(plan, data) for data in ([], [(0, WEIGHT)], [(1, WEIGHT)] * MOST, many)}
    (first, *others) = forms
    is_of_plan = str(plan.hash_key.to_bytes()) in first
    return Finding(not others and is_of_plan and "float64" not in first)


def form_of(plan: SparsePlan, data: Data) -> str:
    release = plan_module.release_sparse(plan, summary_of(plan, batch_of(data)), NoiseSource())
    card = release.card
    arrays = []
    if release.sketch is not None:
        arrays.append((release.sketch.cells.dtype, release.sketch.cells.shape))
    if release.histogram is not None:
        arrays.append((release.histogram.counts.dtype, release.histogram.elements.dtype))
        # How many elements are named is what delta pays for.
        del card["histogram"]["num_elements"]
    return f"{json.dumps(card)} {release.hash_key.to_bytes()!r} {arrays}"


def released_with(change: Callable[[SparseSummary, SparseRelease], SparseRelease]) -> Bug:
    """A release that is changed after the noise."""
    return around(
        plan_module,
        "release_sparse",
        lambda original, plan, summary, noise: change(summary, original(plan, summary, noise)),
    )


def weight_in(summary: SparseSummary) -> int:
    if summary.counts is not None:
        return int(summary.counts.counts.sum())
    assert summary.projection is not None
    return int(np.abs(summary.projection.sums).sum())


def rows_of_the_data(summary: SparseSummary, release: SparseRelease) -> SparseRelease:
    assert release.sketch is not None
    cells = np.resize(release.sketch.cells, ROWS * max(1, weight_in(summary)))
    sketch = dataclasses.replace(release.sketch, cells=cells, projection_width=len(cells))
    return dataclasses.replace(release, sketch=sketch)


def key_of_the_data(summary: SparseSummary, release: SparseRelease) -> SparseRelease:
    return dataclasses.replace(release, hash_key=seeded_key(weight_in(summary)))


def key_after_the_data(_: SparseSummary, release: SparseRelease) -> SparseRelease:
    return dataclasses.replace(release, hash_key=seeded_key(99))


def named_keys(summary: SparseSummary, release: SparseRelease) -> SparseRelease:
    """The cells that hold anything, which tell the elements to who knows the hash key."""
    assert summary.projection is not None
    held = np.flatnonzero(summary.projection.sums).tolist()
    return dataclasses.replace(release, plan={**release.plan, "held": held})


def exact_counts(summary: SparseSummary, release: SparseRelease) -> SparseRelease:
    assert summary.counts is not None and release.histogram is not None
    kept = np.isin(summary.counts.elements, release.histogram.elements)
    histogram = dataclasses.replace(release.histogram, counts=summary.counts.counts[kept])
    return dataclasses.replace(release, histogram=histogram)


def float_noise(patch: Patch) -> None:
    rng = np.random.default_rng(1)

    def noisy(_: NoiseSource, values: NDArray[np.int64], scale: float) -> NDArray[np.float64]:
        return values + rng.normal(0, scale, len(values))

    for name in ("laplace", "gaussian"):
        patch.setattr(NoiseSource, name, noisy)
    patch.setattr(NoiseSource, "reaching", DrawsAll.reaching)


ANY_FORM = {
    "float noise": float_noise,
    "hash key drawn from the data": released_with(key_of_the_data),
    "hash key drawn after the data": released_with(key_after_the_data),
}
SKETCH_FORM = {
    "rows that depend on the number of records": released_with(rows_of_the_data),
    "keys of the sketch in the artifact": released_with(named_keys),
}
HALF_THRESHOLD = with_threshold(lambda original, *given: original(*given) // 2 + 1)
RUNS = 10 * REPLICAS
GAUSSIAN = CountSketch(ROWS, ROWS, noise="gaussian")
PROJECT = SparseProject(ROWS, num_blocks=ROWS)
HISTOGRAM = StabilityHistogram()
HYBRID = HybridSketch(ROWS, ROWS)
# Mechanism and epsilon.
CASES: dict[str, tuple[SparseMechanism, float]] = {
    "count sketch, gaussian, runs": (GAUSSIAN, 4.0),
    "sparse project, runs": (PROJECT, 4.0),
    "stability histogram, runs": (HISTOGRAM, 3.0),
    "hybrid sketch, runs": (HYBRID, 3.0),
}


def audits() -> list[Audit]:
    """Sparse mechanisms that need a delta, with their production noise, under either relation."""
    found = []
    for name, (mechanism, epsilon) in CASES.items():
        checks = {"black box": black_box, "form": form}
        runs = dict(HALVED)
        bugs = {"black box": runs, "form": ANY_FORM}
        if mechanism is not HISTOGRAM:
            bugs["form"] = {**ANY_FORM, **SKETCH_FORM}
        if mechanism in (HISTOGRAM, HYBRID):
            checks["delta"] = delta_of_one
            bugs["delta"] = {"threshold at half": HALF_THRESHOLD}
            runs["no noise on counts that are kept"] = released_with(exact_counts)
        blinding = DOUBLED
        for relation in (ADD, REPLACE):
            case = mechanism, promise(relation, MOST, LARGE_DELTA, epsilon)
            found.append(audited(name, case[1], checks, bugs, *case, blinding=blinding))
    return found

"""Plans of releases for sparse queries, decided before any record is read.

All four mechanisms, ``SparseProject``, ``CountSketch``, ``StabilityHistogram`` and
``HybridSketch``, make one kind of plan, which ``release_sparse`` carries out.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_is, checked_integer
from beam_dp.errors import InputError
from beam_dp.flags.flag import Flag, integer, option, option_of
from beam_dp.hashing.keys import HashKey
from beam_dp.hashing.projections import BlockSigns, DenseSigns
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.resources import sketch_bytes
from beam_dp.noise.bound import FAILURE_PROBABILITY
from beam_dp.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.accounting import discrete_gaussian_mu, discrete_parameter
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import Real, root_up, up
from beam_dp.releases.sketches.estimates import ProjectionBounds, bounds_of
from beam_dp.releases.sketches.release import (
    Distribution,
    Estimator,
    Family,
    NoisyCounts,
    NoisySketch,
    SparseRelease,
    folded,
    signs_of,
)
from beam_dp.releases.sketches.verify import sketch_steps
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.summaries.projection import MAX_PROJECTION_WIDTH, Projection
from beam_dp.verification.steps import Step


def _width(name: str, text: str) -> int:
    """Reads a number of cells."""
    width = integer(name, text)
    check_width(width, name)
    return width


DEFAULT_SIZE = 2**20
# Programs are given the number of cells, which sets the width of the projection.
_SIZE_FLAG = Flag(
    "size", "the most numbers that the artifact holds; by default 2^20", "N", form="integer"
)
SIZE = option_of(_SIZE_FLAG, _width)
NUM_ROWS = option("count_sketch and hybrid: rows of the sketch, odd", "S", integer)
# The variance needs pairwise independent buckets and four-wise independent signs.
INDEPENDENCE = 8
MAX_WEIGHT = 2**32
MAX_SPARSITY = 2**24
_MAX_RECORDS_PER_UNIT = 2**20
_LEAST_GRID_SCALE = 64.0


@dataclasses.dataclass(frozen=True)
class SketchNoise:
    """A projection and the noise of its cells.

    ``num_blocks``: of blocks; T where the family is dense.
    ``max_squared_norm``: each unit's records were kept only while the sum of squares of its own
    sketch is at most this (``summaries.projection``); None where they need not be.
    ``grid``: units of a cell that make a weight of one, an integer >= 1. Finer than one where
    Gaussian noise would otherwise pay for whole numbers.
    """

    family: Family
    projection_width: int
    num_blocks: int
    distribution: Distribution
    scale: float
    estimator: Estimator = "mean"
    max_squared_norm: int | None = None
    grid: int = 1

    def signs(self, key: HashKey) -> DenseSigns | BlockSigns:
        """Returns the projection that is summed up; ``fold`` makes the cells of its sums."""
        return signs_of(self.family, key, self.projection_width, self.num_blocks)

    def fold(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the cells, in units of the grid, exactly, modulo 2^64."""
        cells = folded(self.family, sums, self.projection_width, self.num_blocks)
        return cells if self.grid == 1 else cells * np.int64(self.grid)


@dataclasses.dataclass(frozen=True)
class HistogramNoise:
    """A stability histogram."""

    scale: float
    threshold: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparsePlan(Plan):
    """A sparse mechanism's public parameters for one release.

    ``max_sparsity``: the most elements that a query may have.
    ``max_weight``: the most that one record weighs; weights are integers from 0 to it.
    ``hash_key``: of the projection, and of the fingerprints of text; drawn with the plan.
    ``options``: of the mechanism that the noise does not show, by name.
    ``key``: which columns of the records are the key, and how they are read, as JSON values.
    """

    max_sparsity: int
    max_weight: int
    hash_key: HashKey
    sketch: SketchNoise | None = None
    histogram: HistogramNoise | None = None
    options: tuple[tuple[str, str | float], ...] = ()
    key: Mapping[str, Any] | None = None

    @property
    def num_cells(self) -> int:
        """Number of cells of the projection, all blocks together; 0 if nothing is projected."""
        return 0 if self.sketch is None else self.sketch.projection_width

    def bounds(
        self, num_queries: int = 1, failure_probability: float = FAILURE_PROBABILITY
    ) -> ProjectionBounds | None:
        """Returns the proved bounds of errors; None if nothing is proved."""
        if self.sketch is None or self.histogram is not None:
            return None
        return bounds_of(
            self.sketch,
            self.sketch.projection_width,
            self.hash_key,
            self.max_sparsity,
            num_queries,
            failure_probability,
        )

    @property
    def steps(self) -> Sequence[Step]:
        """The noise that is drawn, as `verify` checks it."""
        return sketch_steps(self.guarantee, self.max_weight, self.public)

    @property
    def memory_bytes(self) -> float:
        """Memory of the worker that draws, without the exact sums and counts."""
        return sketch_bytes(self.num_cells)

    def _stated(self) -> dict[str, Any]:
        public: dict[str, Any] = dict(self.options)
        if self.key is not None:
            public["key"] = dict(self.key)
        for name, noise in (("sketch", self.sketch), ("histogram", self.histogram)):
            if noise is not None:
                public[name] = dataclasses.asdict(noise)
        if (bounds := self.bounds()) is not None:
            public["bound"] = bounds.to_json()
        return public

    def identity(self) -> dict[str, Any]:
        """Returns the card and the hash key, which each job draws for itself."""
        return {**self.card(), "hash_key": self.hash_key.to_bytes().hex()}

    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known, without the hash key."""
        return {
            **super().identity(),
            "max_sparsity": self.max_sparsity,
            "max_weight": self.max_weight,
            "parameters": self.public,
        }


@dataclasses.dataclass(frozen=True)
class SparseNoise:
    """What a mechanism measures, and with how much noise."""

    loss: Loss
    sketch: SketchNoise | None = None
    histogram: HistogramNoise | None = None
    options: tuple[tuple[str, str | float], ...] = ()


@dataclasses.dataclass(frozen=True)
class SparseMechanism(ABC):
    """A mechanism for sparse queries, as its public parameters."""

    name: ClassVar[str]  # on the card
    independence: ClassVar[int] = INDEPENDENCE  # of the hash that is drawn

    @property
    def width_step(self) -> int:
        """The width of the projection is a multiple of it; 0 if nothing is projected."""
        return 0

    def within(self, size: int) -> Self:
        """Returns the same mechanism with the widest projection of at most ``size`` numbers."""
        step = self.width_step
        if step == 0:
            return self
        if size < step:
            raise InputError("size", size, f"must be at least {step}, for its rows")
        width: dict[str, Any] = {"projection_width": size // step * step}
        return dataclasses.replace(self, **width)

    def plan(
        self,
        guarantee: Guarantee,
        *,
        max_sparsity: int,
        max_weight: int = 1,
        hash_key: HashKey | None = None,
    ) -> SparsePlan:
        """Returns what would be done: from public numbers alone.

        ``hash_key``: drawn before any record was read; drawn here if not given.
        """
        check_is("guarantee", guarantee, Guarantee)
        for name, value, most in (
            ("max_sparsity", max_sparsity, MAX_SPARSITY),
            ("max_weight", max_weight, MAX_WEIGHT),
            ("max_records_per_unit", guarantee.max_records_per_unit, _MAX_RECORDS_PER_UNIT),
        ):
            checked_integer(name, value, 1, most)
        noise = self._noise(guarantee, max_weight)
        hash_key = hash_key or HashKey.draw(self.independence)
        if noise.sketch is not None:
            check_width(noise.sketch.signs(hash_key).projection_width)
        return SparsePlan(
            mechanism=self.name,
            guarantee=guarantee,
            max_sparsity=max_sparsity,
            max_weight=max_weight,
            hash_key=hash_key,
            **vars(noise),
        )

    @abstractmethod
    def _noise(self, guarantee: Guarantee, max_weight: int) -> SparseNoise:
        """Returns what gets how much noise; raises InputError where a number is out of range."""


def unit_weight(guarantee: Guarantee, max_weight: int) -> int:
    """Returns how far one unit moves all counts together, at most: the L1 sensitivity.

    A unit holds at most k records of weight at most w, so it adds a vector of L1 norm k w or less;
    replacing it takes one such vector away and adds another one.
    """
    return guarantee.neighboring.num_moved * guarantee.max_records_per_unit * max_weight


def check_width(projection_width: int, name: str = "projection_width") -> None:
    """Refuses a projection that is too wide for a worker."""
    checked_integer(name, projection_width, 1, MAX_PROJECTION_WIDTH)


def checked_scale(guarantee: Guarantee, exact: Real) -> float:
    """Returns a scale of noise, rounded up."""
    scale = up(exact)
    if not 0 < scale <= MAX_SCALE:
        condition = "is out of range for these weights: noise must have a scale of at most 2^50"
        raise InputError("epsilon", guarantee.epsilon, condition)
    return scale


def gaussian_noise(guarantee: Guarantee, squared_sensitivity: int) -> tuple[float, int, Loss]:
    """Returns the discrete Gaussian scale for an L2 sensitivity of integers, its grid and its loss.

    Privacy: (epsilon, delta), exactly calibrated: see ``accounting.discrete_gaussian_mu``. On the
    grid chosen here the noise is that of a continuous Gaussian to within 0.05 %.
    """
    if guarantee.delta == 0:
        raise InputError("delta", 0.0, "must be > 0 for Gaussian noise")
    mu = discrete_gaussian_mu(guarantee.epsilon, guarantee.delta)
    variance = Fraction(squared_sensitivity) / Fraction(mu) ** 2
    grid = 2 ** max(0, math.ceil(math.log2(_LEAST_GRID_SCALE) - math.log2(root_up(variance))))
    on_grid = checked_scale(guarantee, discrete_parameter(variance * grid**2))
    return on_grid / grid, grid, Loss.gaussian(mu)


@dataclasses.dataclass(frozen=True)
class SparseSummary:
    """The exact sums that a sparse plan reads for its sketch and its histogram. Secret."""

    projection: Projection | None = None
    counts: ElementCounts | None = None


def release_sparse(plan: SparsePlan, summary: SparseSummary, noise: NoiseSource) -> SparseRelease:
    """Returns a release that keeps ``plan.guarantee``.

    Privacy: every cell and every count that is there gets independent noise of the plan's scale;
    of the counts, those below the plan's threshold are dropped. Both summaries must be of records
    limited as the plan says: k records a unit, weights from 0 to the largest, and, where
    ``max_squared_norm`` is given, each unit's sketch below it.

    ``summary``: exact sums; that of the sketch under the plan's hash key.

    Cost: one draw of noise a cell and a counted element, about 1e-5 s each.
    """
    check_is("plan", plan, SparsePlan)
    sketch = histogram = None
    if plan.sketch is not None:
        assert summary.projection is not None
        draw = noise.laplace if plan.sketch.distribution == "discrete_laplace" else noise.gaussian
        scale = plan.sketch.scale * plan.sketch.grid  # exact: a grid is a power of two
        sketch = NoisySketch(
            family=plan.sketch.family,
            num_blocks=plan.sketch.num_blocks,
            cells=draw(plan.sketch.fold(summary.projection.sums), scale),
            distribution=plan.sketch.distribution,
            scale=plan.sketch.scale,
            estimator=plan.sketch.estimator,
            grid=plan.sketch.grid,
        )
    if plan.histogram is not None:
        assert summary.counts is not None
        noisy = noise.laplace(summary.counts.counts, plan.histogram.scale)
        kept = noisy >= plan.histogram.threshold
        histogram = NoisyCounts(
            elements=summary.counts.elements[kept],
            counts=noisy[kept],
            scale=plan.histogram.scale,
            threshold=plan.histogram.threshold,
        )
    return SparseRelease(
        draw_id=noise.draw_id(),
        mechanism=plan.mechanism,
        guarantee=plan.guarantee,
        hash_key=plan.hash_key,
        max_sparsity=plan.max_sparsity,
        max_weight=plan.max_weight,
        plan=plan.public,
        sketch=sketch,
        histogram=histogram,
    )

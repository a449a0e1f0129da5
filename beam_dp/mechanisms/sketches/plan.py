"""Plans of releases for sparse queries, decided before any record is read.

``SparseProject``, ``CountSketch``, ``StabilityHistogram`` and ``HybridSketch`` all return a
``SparsePlan``, which ``release_sparse`` carries out.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import numpy as np

from beam_dp.checks import check_is, checked_integer
from beam_dp.errors import InputError
from beam_dp.flags.flag import integer, option
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.contract import Plan
from beam_dp.mechanisms.resources import sketch_bytes
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY
from beam_dp.privacy.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.rounding import Real, root_up, up
from beam_dp.privacy.steps import Step
from beam_dp.releases.sketches.estimates import ProjectionBounds
from beam_dp.releases.sketches.release import (
    HistogramNoise,
    NoisyCounts,
    NoisySketch,
    Sketch,
    SketchNoise,
    SparseRelease,
)
from beam_dp.releases.sketches.verify import sketch_steps
from beam_dp.secret.summaries.projection import MAX_PROJECTION_WIDTH, Projection
from beam_dp.secret.summaries.sparse_counts import ElementCounts

DEFAULT_SIZE = 2**20
# The flag gives the number of cells, which determines the width of the projection.
SIZE = option(
    "the largest number of values in the release; by default 2^20",
    "N",
    integer,
    name="size",
    limits={"least": 1, "most": MAX_PROJECTION_WIDTH},
)
NUM_ROWS = option(
    "count_sketch and hybrid: the number of rows of the sketch, an odd number",
    "S",
    integer,
    limits={"least": 1, "most": 63, "note": ", and odd"},
)
# The variance needs pairwise independent buckets and four-wise independent signs.
INDEPENDENCE = 8
MAX_WEIGHT = 2**32
MAX_SPARSITY = 2**24
_MAX_RECORDS_PER_UNIT = 2**20
_LEAST_GRID_SCALE = 64.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparsePlan(Plan):
    """A sparse mechanism's public parameters for one release.

    ``max_sparsity``: the largest number of elements in a query.
    ``max_weight``: the largest weight of one record; weights are integers >= 0.
    ``hash_key``: the key of the projection and of the fingerprints of text, drawn with the plan.
    ``options``: names and values of the options that ``sketch`` and ``histogram`` do not include.
    ``key``: the columns of the records that form the key, and their types, as JSON values.
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
        """The number of cells of the projection, in all blocks; 0 without a projection."""
        return 0 if self.sketch is None else self.sketch.projection_width

    @property
    def lists_keys(self) -> bool:
        """Whether the release lists the keys, as text or bytes, whose counts it contains."""
        return self.key is not None and bool(self.key.get("list_keys"))

    def bounds(
        self, num_queries: int = 1, failure_probability: float = FAILURE_PROBABILITY
    ) -> ProjectionBounds | None:
        """Returns the proved error bounds; None if no bound is proved."""
        if self.sketch is None or self.histogram is not None:
            return None
        return self.sketch.bounds(
            self.hash_key, self.max_sparsity, num_queries, failure_probability
        )

    @property
    def steps(self) -> Sequence[Step]:
        """The noisy draws of this plan, as `beam-dp verify` checks them."""
        return sketch_steps(self.guarantee, self.max_weight, self.sketch, self.histogram)

    @property
    def memory_bytes(self) -> float:
        """The worker's memory for a draw, without the exact sums and counts."""
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
        """Returns the card and the hash key; every job draws another hash key."""
        return {**self.card(), "hash_key": self.hash_key.to_bytes().hex()}

    def card(self) -> dict[str, Any]:
        """Returns the part of the card that is known in advance, without the hash key."""
        return {
            **super().identity(),
            "max_sparsity": self.max_sparsity,
            "max_weight": self.max_weight,
            "parameters": self.public,
        }


@dataclasses.dataclass(frozen=True)
class SparseNoise:
    """The measurements of a mechanism, with the noise of each measurement."""

    loss: Loss
    sketch: SketchNoise | None = None
    histogram: HistogramNoise | None = None
    options: tuple[tuple[str, str | float], ...] = ()


@dataclasses.dataclass(frozen=True)
class SparseMechanism(ABC):
    """The public parameters of a mechanism for sparse queries."""

    name: ClassVar[str]  # the name on the card
    independence: ClassVar[int] = INDEPENDENCE  # the independence of the drawn hash function

    @property
    def width_step(self) -> int:
        """The widths of the projection are multiples of this number; 0 without a projection."""
        return 0

    def within(self, size: int) -> Self:
        """Returns this mechanism with the widest projection of at most ``size`` numbers."""
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
        """Returns a plan from public numbers; draw ``hash_key`` before any record is read."""
        check_is("guarantee", guarantee, Guarantee)
        for name, value, limit in (
            ("max_sparsity", max_sparsity, MAX_SPARSITY),
            ("max_weight", max_weight, MAX_WEIGHT),
            ("max_records_per_unit", guarantee.max_records_per_unit, _MAX_RECORDS_PER_UNIT),
        ):
            checked_integer(name, value, 1, limit)
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
        """Returns the measurements and their noise; raises InputError if the noise is too large."""


def unit_weight(guarantee: Guarantee, max_weight: int) -> int:
    """Returns the L1 sensitivity: the largest change of all counts together by one unit.

    A unit has at most k records of weight at most w, so adding a unit adds a vector of L1 norm k w
    or less. Replacing a unit subtracts one such vector and adds another such vector.
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
    """Returns the scale, the grid and the loss of discrete Gaussian noise for an L2 sensitivity.

    Privacy: (epsilon, delta), exactly calibrated: see ``accounting.discrete_gaussian_mu``. On the
    grid chosen here the noise matches that of a continuous Gaussian to within 0.05 %.
    """
    if guarantee.delta == 0:
        raise InputError("delta", 0.0, "must be > 0 for Gaussian noise")
    budget = Budget.of(guarantee, "gaussian")
    deviation = root_up(squared_sensitivity / budget.amount)
    grid = 2 ** max(0, math.ceil(math.log2(_LEAST_GRID_SCALE) - math.log2(deviation)))
    on_grid = checked_scale(guarantee, budget.scale(squared_sensitivity, grid))
    return on_grid / grid, grid, budget.loss


@dataclasses.dataclass(frozen=True)
class SparseSummary:
    """The exact sums for the sketch and the exact counts for the histogram of a plan; secret."""

    projection: Projection | None = None
    counts: ElementCounts | None = None


def release_sparse(plan: SparsePlan, summary: SparseSummary, noise: NoiseSource) -> SparseRelease:
    """Returns a release that keeps ``plan.guarantee``.

    Privacy: every cell and every existing count gets independent noise of the plan's scale; noisy
    counts below the plan's threshold are dropped. Both summaries must come from records limited as
    the plan says: at most k records per unit, weights from 0 to ``max_weight``, and, if
    ``max_squared_norm`` is given, at most this squared norm of each unit's sketch.

    ``summary``: exact sums and counts; the sums use the plan's hash key.

    Cost: one draw of noise per cell, about 1e-5 s each, and ``NoiseSource.reaching`` for elements.
    """
    check_is("plan", plan, SparsePlan)
    sketch = histogram = None
    if plan.sketch is not None:
        assert summary.projection is not None
        draw = noise.laplace if plan.sketch.distribution == "discrete_laplace" else noise.gaussian
        scale = plan.sketch.scale * plan.sketch.grid  # exact: a grid is a power of two
        fields = {each.name: getattr(plan.sketch, each.name) for each in dataclasses.fields(Sketch)}
        cells = draw(plan.sketch.fold(summary.projection.sums), scale)
        sketch = NoisySketch(**fields, cells=cells)
    if plan.histogram is not None:
        assert summary.counts is not None
        histogram = _noisy_counts(plan, plan.histogram, summary.counts, noise)
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


def _noisy_counts(
    plan: SparsePlan, planned: HistogramNoise, exact: ElementCounts, noise: NoiseSource
) -> NoisyCounts:
    """Returns the noisy counts that reach the threshold.

    Privacy: with texts, each text has its own count, as an element has without. What follows the
    threshold is post-processing: two released texts with the same element get one count, and one of
    them is listed.
    """
    kept, noisy = noise.reaching("laplace", exact.counts, planned.scale, planned.threshold)
    elements, places = np.unique(exact.elements[kept], return_inverse=True)
    counts, keys = np.zeros(len(elements), noisy.dtype), None
    np.add.at(counts, places, noisy)
    if exact.texts is not None:
        texts = exact.texts.take(kept).to_pylist()
        keys = np.empty(len(elements), object)
        keys[places] = (
            list(map(_as_text, texts)) if (plan.key or {}).get("key_type") == "text" else texts
        )
    return NoisyCounts(elements, counts, planned.scale, planned.threshold, keys)


def _as_text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None

"""Releases for sparse queries: a sketch, a histogram, or both.

A sketch does not list elements; the public hash key maps each element to its cells. A histogram
lists its elements; revealing that these elements exist costs delta.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice
from beam_dp.domain.texts import KEY_TYPES, Element, KeyType
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.hashing.projections import BlockSigns, DenseSigns, collisions, fold, num_buckets
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY, noise_variance
from beam_dp.queries.sparse import KEY_RULE, SparseQuery, with_plain_keys
from beam_dp.releases.release import Release, library_versions
from beam_dp.releases.sketches.estimates import (
    ProjectionBounds,
    clipped_mean,
    dense_estimate,
    estimates_by_element,
    selected_noise_bound,
    squared_norm,
    variance_of_clipped_mean,
    variance_of_mean,
    variance_of_median,
)

Family = Literal["dense", "blocks"]
Distribution = Literal["discrete_laplace", "discrete_gaussian"]
Estimator = Literal["mean", "median", "clipped_mean"]

# The hash functions that map elements to cells; another family maps a key to other cells.
HASH_FAMILY = "bivariate polynomials over GF(2^64), 1"


@dataclasses.dataclass(frozen=True)
class SparseAnswer:
    """The answer to a sparse query.

    ``value``: the answer in weight, or in records if every record weighs 1.
    ``bound``: a bound that the error exceeds with at most the failure probability.
    """

    value: float
    standard_error: float
    bound: float
    failure_probability: float


@dataclasses.dataclass(frozen=True, eq=False)
class Sketch:
    """A projection and the noise of its cells.

    ``num_blocks``: the number of blocks; T for the dense family.
    ``grid``: the number of grid steps per unit of weight, an integer >= 1. The number is above 1 if
    Gaussian noise is so small that rounding the noise to whole numbers would cost privacy.
    """

    family: Family
    projection_width: int
    num_blocks: int
    distribution: Distribution
    scale: float
    estimator: Estimator = "mean"
    grid: int = 1

    def signs(self, key: HashKey) -> DenseSigns | BlockSigns:
        """Returns the projection from elements to cells; for blocks, to cells before ``fold``."""
        width, rows = self.projection_width, self.num_blocks
        if self.family == "dense":
            return DenseSigns(key, width)
        if rows < 1 or width < rows or width % rows:
            condition = f"must be a multiple of the number of rows, {rows}"
            raise InputError("projection_width", width, condition)
        return BlockSigns(key, rows * num_buckets(width // rows), rows)

    def fold(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the cells, computed from the sums of ``signs``, exact modulo 2^64."""
        return sums if self.family == "dense" else fold(sums, self.num_blocks, self.row_width)

    @property
    def row_width(self) -> int:
        """The number of cells per row."""
        return self.projection_width // self.num_blocks

    @property
    def effective_width(self) -> float:
        """The width of a projection with uniform cells and the same number of collisions."""
        width = float(self.projection_width)
        return width if self.family == "dense" else width / collisions(self.row_width)

    def bounds(
        self, hash_key: HashKey, sparsity: int, num_queries: int, failure_probability: float
    ) -> ProjectionBounds | None:
        """Returns proved error bounds; None for medians, or without a 4-wise independent hash."""
        if self.estimator != "mean" or hash_key.independence < 4:
            return None
        return ProjectionBounds(
            self.projection_width,
            self.num_blocks,
            self.distribution,
            self.scale,
            hash_key.independence,
            sparsity,
            num_queries,
            failure_probability,
        )


@dataclasses.dataclass(frozen=True)
class SketchNoise(Sketch):
    """A planned sketch.

    ``max_squared_norm``: the largest sum of squares of the sketch of one unit's records; further
    records of the unit are left out (``summaries.projection``). None if there is no limit.
    """

    max_squared_norm: int | None = None

    def fold(self, sums: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns the cells in steps of the grid, exact modulo 2^64."""
        return super().fold(sums) * np.int64(self.grid)


@dataclasses.dataclass(frozen=True)
class HistogramNoise:
    """A stability histogram."""

    scale: float
    threshold: int


@dataclasses.dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class NoisySketch(Sketch):
    """The noisy sums of a projection."""

    cells: NDArray[np.int64]  # shape (projection_width,), int64, in grid steps

    def __post_init__(self) -> None:
        if self.cells.shape != (self.projection_width,):
            raise InputError("cells", self.cells.shape, f"must be ({self.projection_width},)")


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class NoisyCounts:
    """The noisy counts that reached a threshold, and the elements of these counts, ascending.

    ``keys``: the keys, text or bytes, None for those that cannot be listed; None if the release
    lists no keys.
    """

    elements: NDArray[np.uint64]
    counts: NDArray[np.int64]
    scale: float
    threshold: int
    keys: NDArray[np.object_] | None = None

    def look_up(self, support: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Returns the counts of elements (0 if not released) and a mask of released elements."""
        if not len(self.elements):
            return np.zeros(len(support), np.int64), np.zeros(len(support), np.bool_)
        where = np.minimum(np.searchsorted(self.elements, support), len(self.elements) - 1)
        listed = self.elements[where] == support
        return np.where(listed, self.counts[where], 0), listed


def key_type_of(plan: Mapping[str, Any]) -> KeyType | None:
    """Returns the type of a release's keys; None if records were not read as keys.

    ``KEY_RULE`` describes how records and queries are read as keys: for example, an integer that
    was written as a float is read as the integer.
    """
    columns = plan.get("key")
    if columns is None:
        return None
    if not isinstance(columns, dict):
        raise InputError("key", str(columns), "must be a JSON object")
    if columns.get("rule") != KEY_RULE:
        raise InputError("the rule of keys", columns.get("rule"), f"must be {KEY_RULE}")
    key_type: Any = columns.get("key_type")
    check_choice("key_type", key_type, KEY_TYPES)
    return cast(KeyType, key_type)


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class SparseRelease(Release):
    """A public release of a sparse mechanism.

    Args:
        draw_id: the id of the draw of noise.
        mechanism: the name of the mechanism.
        guarantee: the privacy guarantee for the people in the data.
        hash_key: the public hash key, drawn before any record was read.
        max_sparsity: the largest number of elements of a query.
        max_weight: the largest weight of a record.
        plan: the other public parameters, as JSON values.
        sketch: noisy sums, or None.
        histogram: noisy counts of some elements, or None. If the release also has a sketch, answers
            also use an estimate from the sketch minus these counts.
    """

    KIND: ClassVar[str] = "sparse_release"

    mechanism: str
    hash_key: HashKey
    max_sparsity: int
    max_weight: int
    plan: Mapping[str, Any]
    sketch: NoisySketch | None = None
    histogram: NoisyCounts | None = None

    def __repr__(self) -> str:
        return f"SparseRelease(mechanism={self.mechanism!r})"

    @cached_property
    def card(self) -> dict[str, Any]:
        """The content of the card, as JSON values."""
        sketch, histogram = self.sketch, self.histogram
        return {
            "mechanism": self.mechanism,
            "guarantee": self.guarantee.to_json(),
            "max_sparsity": self.max_sparsity,
            "max_weight": self.max_weight,
            "parameters": dict(self.plan),
            "hash_family": HASH_FAMILY,
            "sketch": None if sketch is None else _without_arrays(sketch),
            "histogram": None
            if histogram is None
            else {**_without_arrays(histogram), "num_elements": len(histogram.elements)},
            "versions": library_versions(),
        }

    @property
    def noise(self) -> list[dict[str, Any]]:
        """The noise of a cell of the sketch, and of a count of the histogram."""
        entries: list[dict[str, Any]] = []
        if self.sketch is not None:
            measured = f"sketch of {len(self.sketch.cells):,} cells"
            entries.append({"measured": measured, **_noise(self.sketch.distribution, self.sketch)})
        if self.histogram is not None:
            measured = f"counts of keys, released from {self.histogram.threshold:,}"
            entries.append({"measured": measured, **_noise("discrete_laplace", self.histogram)})
        return entries

    def public_keys(self) -> dict[str, str]:
        """Returns the hash key."""
        return {"hash_key": self.hash_key.to_bytes().hex()}

    def answer_query(self, query: SparseQuery) -> SparseAnswer:
        """Returns the answer to a query; see ``answer``.

        Raises:
            InputError: if the query has more than ``max_sparsity`` elements, or has two elements
                that are the same key of this release (``7.0`` and ``7``, if records were read as
                keys).
        """
        if self.plan.get("key") is not None:
            query = with_plain_keys(query)
        values = np.asarray(query.numerators, np.float64) / 2**16
        return self.answer(universe_elements(query.elements, self.hash_key), values)

    def answer(self, support: NDArray[np.uint64], values: NDArray[np.float64]) -> SparseAnswer:
        """Returns the sum of values times weights over all records of some elements.

        Accuracy: the value from a sketch is unbiased over hash and noise (for a median, because the
        errors of the rows are symmetric). The bound is Chebyshev's, with a standard error that
        estimates from the released cells how much other elements add. With medians and clipped
        means, this estimate ignores that elements of the query in the same cells have the same
        error, which matters if the query contains a large part of all records. A histogram alone
        answers 0 for elements that it does not contain: the standard error is the error of the
        noise, and only the bound covers missing elements. The bound of a histogram alone is a
        theorem: a missing element has a count below the threshold minus its noise, so the error is
        at most ``selected_noise_bound`` over the whole query plus the threshold for each missing
        element. If the release also has a sketch, each part has half of the failure probability.
        A bound with a sketch is not a theorem, because no bound on hashing with a fixed key is true
        for all data; see docs/sparse_queries.md.

        Args:
            support: the m distinct elements, shape (m,), uint64; m is at most ``max_sparsity``.
            values: the values of the elements, shape (m,), float64, in [0, 1].

        Raises:
            InputError: if the query is too large, repeats an element, or has values out of range.

        Cost: one evaluation of the hash per element, or per element and row if the hash is dense.
        """
        _check(support, values, self.max_sparsity)
        weights = np.asarray(values, np.float64)
        if self.histogram is None:
            value, variance = self._from_sketch(support, weights)
            return _answer(value, variance)
        counts, listed = self.histogram.look_up(support)
        value = float(weights @ counts)
        noise = noise_variance("discrete_laplace", self.histogram.scale)
        if self.sketch is None:
            variance = noise * float((weights[listed] ** 2).sum())
            # A missing element has a count below the threshold minus its noise.
            bound = self.histogram.threshold * float(weights[~listed].sum()) + selected_noise_bound(
                self.histogram.scale, weights, float(weights.sum()), FAILURE_PROBABILITY
            )
            return SparseAnswer(value, math.sqrt(variance), bound, FAILURE_PROBABILITY)
        share = self._residual_share(listed)
        rest, variance = self._from_sketch(support, weights * share)
        kept = weights[listed] * (1 - share[listed])
        # All elements of the histogram have the same share.
        counted = 1 - noise / (noise + self._element_variance)
        bound = _chebyshev(variance, FAILURE_PROBABILITY / 2) + counted * selected_noise_bound(
            self.histogram.scale, weights, float(weights[listed].sum()), FAILURE_PROBABILITY / 2
        )
        error = math.sqrt(variance + noise * float((kept**2).sum()))
        return SparseAnswer(value + rest, error, bound, FAILURE_PROBABILITY)

    def bounds(
        self, num_queries: int = 1, failure_probability: float = FAILURE_PROBABILITY
    ) -> ProjectionBounds | None:
        """Returns proved bounds on the errors of ``num_queries`` queries; None without a proof."""
        if self.sketch is None or self.histogram is not None:
            return None
        return self.sketch.bounds(
            self.hash_key, self.max_sparsity, num_queries, failure_probability
        )

    def estimates(self, support: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Returns the estimate of each element, shape (n,), float64, in weight.

        An answer is the sum of the estimates times the values of a query. ``support`` has shape
        (n,), uint64, for any n. Costs as much as one ``answer`` to a query with all these elements.
        """
        if self.histogram is None:
            return self._sketched(support)
        counts, listed = self.histogram.look_up(support)
        if self.sketch is None:
            return counts.astype(np.float64)
        return np.asarray(counts + self._residual_share(listed) * self._sketched(support))

    def listed_keys(self) -> list[tuple[Element, int]]:
        """Returns the keys whose counts are released, with their noisy counts, largest first.

        Integer keys are always listed; text and bytes only in a release with ``list_keys``, and
        only up to 256 bytes. The error of a count is that of its noise.
        """
        if self.histogram is None:
            return []
        keys: Any = self.histogram.keys
        if key_type_of(self.plan) == "integer":
            keys = self.histogram.elements.tolist()
        counts = self.histogram.counts.tolist()
        pairs = [] if keys is None else zip(keys, counts, strict=True)
        return sorted((pair for pair in pairs if pair[0] is not None), key=lambda pair: -pair[1])

    @cached_property
    def _signs(self) -> DenseSigns | BlockSigns:
        assert self.sketch is not None
        return self.sketch.signs(self.hash_key)

    @cached_property
    def _cells(self) -> NDArray[np.float64]:
        """The cells of the sketch minus the histogram's counts, in weight."""
        assert self.sketch is not None
        cells = self.sketch.cells / self.sketch.grid
        if self.histogram is None:
            return cells
        listed = self._signs.project(self.histogram.elements, self.histogram.counts)
        return np.asarray(cells - self.sketch.fold(listed))

    @cached_property
    def _squared_norm(self) -> float:
        assert self.sketch is not None
        noise = noise_variance(self.sketch.distribution, self.sketch.scale)
        return squared_norm(self._cells, self.sketch.num_blocks, noise)

    @cached_property
    def _element_variance(self) -> float:
        """The variance of the estimate for one light element."""
        assert self.sketch is not None
        if self.sketch.estimator == "median":
            return variance_of_median(self._cells, self.sketch.num_blocks)
        if self.sketch.estimator == "clipped_mean":
            return variance_of_clipped_mean(self._cells, self.sketch.num_blocks, self.sketch.scale)
        noise = noise_variance(self.sketch.distribution, self.sketch.scale)
        return noise / self.sketch.num_blocks + self._squared_norm / self.sketch.effective_width

    def _residual_share(self, listed: NDArray[np.bool_]) -> NDArray[np.float64]:
        """Returns, per element, the weight of the estimate from the sketch, from 0 to 1."""
        # An element of the histogram has two estimates: the element's count, and this count plus
        # the estimate from the remaining sketch. The weight of the second minimises the variance.
        assert self.histogram is not None
        noise = noise_variance("discrete_laplace", self.histogram.scale)
        return np.where(listed, noise / (noise + self._element_variance), 1.0)

    def _sketched(self, support: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Returns the estimate of each element from the sketch."""
        assert self.sketch is not None
        signs = self._signs
        if isinstance(signs, DenseSigns):
            answers = np.empty(len(support))
            for part, entries in signs.sign_tiles(support):
                answers[part] = entries.astype(np.float64) @ self._cells / signs.projection_width
            return answers
        rows = estimates_by_element(self._cells, signs, support)
        if self.sketch.estimator == "mean":
            return np.asarray(rows.mean(axis=1))
        clip = self.sketch.scale if self.sketch.estimator == "clipped_mean" else 0.0
        return clipped_mean(rows, clip)

    def _from_sketch(
        self, support: NDArray[np.uint64], weights: NDArray[np.float64]
    ) -> tuple[float, float]:
        """Returns the value of a query and the variance of the value, from the sketch."""
        assert self.sketch is not None
        signs = self._signs
        norm = float((weights**2).sum())
        noise = noise_variance(self.sketch.distribution, self.sketch.scale)
        if isinstance(signs, DenseSigns):
            value, squares, products = dense_estimate(self._cells, signs, support, weights)
            noise_of_value = noise * squares
        else:
            answers = self._sketched(support)
            value = float(weights @ answers)
            if self.sketch.estimator != "mean":
                return value, norm * self._element_variance
            products = float((weights * answers) @ (weights * answers))
            noise_of_value = noise * norm / self.sketch.num_blocks
        width = self.sketch.effective_width
        hashing = variance_of_mean(norm, self._squared_norm, value, products, width)
        return value, noise_of_value + hashing


def _without_arrays(part: NoisySketch | NoisyCounts) -> dict[str, Any]:
    fields = {field.name: getattr(part, field.name) for field in dataclasses.fields(part)}
    arrays = np.ndarray, type(None)
    return {name: value for name, value in fields.items() if not isinstance(value, arrays)}


def _noise(distribution: str, part: NoisySketch | NoisyCounts) -> dict[str, Any]:
    return {"distribution": distribution, "scale": part.scale}


def _answer(value: float, variance: float) -> SparseAnswer:
    bound = _chebyshev(variance, FAILURE_PROBABILITY)
    return SparseAnswer(value, math.sqrt(variance), bound, FAILURE_PROBABILITY)


def _chebyshev(variance: float, failure_probability: float) -> float:
    return math.sqrt(variance / failure_probability)


def _check(support: NDArray[np.uint64], values: NDArray[np.float64], max_sparsity: int) -> None:
    if support.dtype != np.uint64 or support.ndim != 1:
        given = f"{support.dtype} {support.shape}"
        raise InputError("support", given, "must be uint64 of shape (m,)")
    if len(support) > max_sparsity:
        condition = f"must have at most max_sparsity = {max_sparsity:,}"
        raise InputError("support", f"{len(support):,} elements", condition)
    if values.shape != support.shape:
        raise InputError("values", values.shape, f"must be of shape {support.shape}")
    if len(np.unique(support)) < len(support):
        raise InputError("support", len(support), "must name each element once")
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError("values", values, "must be from 0 to 1")

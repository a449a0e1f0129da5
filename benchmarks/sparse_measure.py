"""The errors of releases for sparse queries, measured over all queries of a release at once.

A sparse release answers a query of value 1 by the sum of what it says of each key, so that the mean
squared error over all sets of m of N keys needs no sample of them: for errors e_i of single keys it
is m / N sum e_i^2 + m (m - 1) / (N (N - 1)) ((sum e_i)^2 - sum e_i^2).

Noise has the laws of the mechanisms but comes from a seeded generator of numpy, which is faster.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from beam_dp.hashing.projections import DenseSigns, cell_of, collisions, num_buckets
from beam_dp.mechanisms.sketches.errors import KeyProfile
from beam_dp.mechanisms.sketches.mechanisms import CountSketch, HybridSketch, SparseProject
from beam_dp.mechanisms.sketches.plan import (
    SparseMechanism,
    SparsePlan,
    SparseSummary,
    release_sparse,
)
from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.sketches.estimates import estimates_by_element, variance_of_median
from beam_dp.releases.sketches.release import SparseRelease
from beam_dp.secret.summaries.projection import Projection
from beam_dp.secret.summaries.sparse_counts import ElementCounts

GUARANTEE = Guarantee(1.0, 1e-9, Neighboring.ADD_OR_REMOVE_ONE, "record", 1)
MAX_SPARSITY = 4096
ZIPF_KEYS = 2**24
_EVEN = 1.001

Counts = NDArray[np.int64]
Elements = NDArray[np.uint64]


class SeededNoise(NoiseSource):
    """The laws of the noise, from a seeded generator: not for private data."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def laplace(self, values: Counts, scale: float) -> Counts:
        """Returns the values plus discrete Laplace noise."""
        # The whole part of an exponential number is geometric.
        noise = np.floor(self._generator.standard_exponential(values.shape) * scale)
        noise -= np.floor(self._generator.standard_exponential(values.shape) * scale)
        return values + noise.astype(np.int64)

    def gaussian(self, values: Counts, sigma: float) -> Counts:
        """Returns the values plus rounded Gaussian noise, on a fine grid as good as discrete."""
        noise = self._generator.normal(0, sigma, values.shape)
        return values + np.rint(noise).astype(np.int64)


@dataclasses.dataclass(frozen=True)
class Data:
    """A table of keys.

    Args:
        draw: makes the counts of the keys that have records.
        profile: what is declared of it.
    """

    draw: Callable[[np.random.Generator], Counts]
    profile: KeyProfile


def zipf(exponent: float, num_records: int) -> Callable[[np.random.Generator], Counts]:
    """Returns what draws records by Zipf's law over 2^24 keys."""
    below = np.cumsum(np.arange(1, ZIPF_KEYS + 1, dtype=np.float64) ** -exponent)

    def draw(generator: np.random.Generator) -> Counts:
        keys = np.searchsorted(below, np.sort(generator.random(num_records)) * below[-1])
        counts = np.bincount(keys)
        return counts[counts > 0]

    return draw


def equal(rows: int, num_records: int) -> Data:
    """Returns data where every key has so many records."""
    counts = np.full(num_records // rows, rows)
    return Data(lambda _: counts, KeyProfile(num_records, num_records // rows, rows))


def drawn_release(
    mechanism: SparseMechanism, counts: Counts, generator: np.random.Generator
) -> tuple[SparseRelease, Elements, Counts]:
    """Returns a release of the counts of random keys, the keys, and their counts."""
    elements = np.sort(generator.integers(0, 2**64, len(counts), np.uint64))
    counts = generator.permutation(counts)
    plan = mechanism.plan(GUARANTEE, max_sparsity=MAX_SPARSITY)
    summary = _summary(plan, elements, counts)
    return release_sparse(plan, summary, SeededNoise(generator)), elements, counts


def _summary(plan: SparsePlan, elements: Elements, counts: Counts) -> SparseSummary:
    projection = None
    if plan.sketch is not None:
        signs = plan.sketch.signs(plan.hash_key)
        projection = Projection(signs.project(elements, counts))
    return SparseSummary(projection, ElementCounts(elements, counts))


def keyed_errors(release: SparseRelease, elements: Elements, counts: Counts) -> NDArray[np.float64]:
    """Returns what a release errs by, for every key alone."""
    return release.estimates(elements) - counts


def over_supports(errors: NDArray[np.float64], more: float, sparsity: int) -> float:
    """Returns the mean squared error of all queries of one sparsity, at most that of all keys.

    Args:
        errors: of every key.
        more: to be added to the sum of their squares.
        sparsity: m.
    """
    number, squares = len(errors), float(errors @ errors)
    m = min(sparsity, number)
    pairs = (m - 1) / (number - 1) * (float(errors.sum()) ** 2 - squares) if m > 1 else 0.0
    return m / number * (squares + more + pairs)


def of_other_places(release: SparseRelease, elements: Elements, counts: Counts) -> float:
    """Returns what to add to a sum of squared errors, 0 in the mean, for less spread.

    Once in many releases a light key shares two of three rows with heavy ones and decides the mean
    over all keys. In place of the squared error of each key's median this has the mean over all
    places that the key could have in each row of the release, with either sign.
    """
    sketch = release.sketch
    if release.histogram is not None:
        return 0.0
    assert sketch is not None
    signs = sketch.signs(release.hash_key)
    if sketch.estimator == "mean" or isinstance(signs, DenseSigns):
        return 0.0
    cells = sketch.cells / sketch.grid
    medians = np.median(estimates_by_element(cells, signs, elements), axis=1) - counts
    places = cells.reshape(sketch.num_blocks, -1)
    if collisions(sketch.row_width) > _EVEN:
        # Cells of more buckets are the places of more keys.
        places = places[:, cell_of(np.arange(num_buckets(sketch.row_width)), sketch.row_width)]
    spread = variance_of_median(places.ravel(), sketch.num_blocks)
    return len(counts) * spread - float(medians @ medians)


def with_standard_error(squared: NDArray[np.float64]) -> tuple[float, float]:
    """Returns a root mean square over releases and its relative standard error."""
    mean = float(squared.mean())
    if len(squared) == 1:
        return math.sqrt(mean), math.inf
    spread = float(squared.std(ddof=1)) / math.sqrt(len(squared))
    return math.sqrt(mean), spread / mean / 2


def shown(mechanism: SparseMechanism) -> str:
    """Returns a short name."""
    match mechanism:
        case CountSketch():
            rows = "row" if mechanism.num_rows == 1 else "rows"
            return f"{mechanism.noise} sketch, {mechanism.num_rows} {rows}"
        case HybridSketch():
            rows = "row" if mechanism.num_rows == 1 else "rows"
            return f"hybrid {mechanism.histogram_share:g}, {mechanism.num_rows} {rows}"
        case SparseProject():
            return "SparseProject"
        case _:
            return "stability histogram"

"""Estimates from the cells of a sketch, with variances and error bounds.

An element without records has a random cell, with a random sign, in each row; the cell contains
noise and the counts of other elements. So the errors of estimates have the same distribution as
the released cells. ``ProjectionBounds`` states proved bounds, which are known before any record is
read.
"""

from __future__ import annotations

import dataclasses
import math
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.hashing.projections import BlockSigns, DenseSigns, Distortion, cell_of
from beam_dp.privacy.noise import bound

# The clipping distance, in scales of the noise. It is nearly optimal for 3 to 5 rows with Laplace
# noise, with or without collisions.
_CLIP = 1.5
_MAX_QUERIES = 2**40


def squared_norm(cells: NDArray[np.float64], num_blocks: int, noise: float) -> float:
    """Returns an estimate of the sum of all squared counts, at least 0."""
    # In expectation over signs and noise, the sum of squares of a block's cells is ``||x||^2`` plus
    # the variances of its noise.
    total = float(cells @ cells)
    return max(0.0, (total - len(cells) * noise) / num_blocks)


def variance_of_mean(
    norm: float, squared_norm: float, value: float, products: float, projection_width: float
) -> float:
    """Returns the variance that hashing adds to a mean over rows.

    The variance is (|q|^2 |x|^2 + <q, x>^2 - 2 sum q^2 x^2) / T for dense signs and for blocks.
    ``norm`` is |q|^2; ``products``: the sum of squared values times squared estimates.
    """
    return max(0.0, norm * squared_norm + value**2 - 2 * products) / projection_width


def variance_of_median(cells: NDArray[np.float64], num_blocks: int) -> float:
    """Returns the variance of the median of one random cell of each block, with random signs.

    The median exceeds t if most rows do: P(|median| > t) = 2 P(Binomial(s, p) > s / 2) for
    p = P(|cell| > t) / 2, and E median^2 is the integral of 2 t P(|median| > t).
    """
    sizes = np.sort(np.abs(cells))
    beyond = np.arange(len(sizes), 0, -1) / len(sizes)  # shares of cells at least this large
    passing = 2 * _more_than_half(num_blocks, beyond / 2)
    steps = np.diff(sizes**2, prepend=0.0)
    return float(steps @ passing)


def _more_than_half(number: int, probability: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the probabilities that more than half of ``number`` independent events happen."""
    result = np.zeros_like(probability)
    some = probability > 0
    log_yes, log_no = np.log(probability[some]), np.log1p(-probability[some])
    for happened in range(number // 2 + 1, number + 1):
        log_ways = math.log(math.comb(number, happened))
        result[some] += np.exp(log_ways + happened * log_yes + (number - happened) * log_no)
    return result


def clipped_mean(rows: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    """Returns, for each element, the mean over rows after clipping each row near the median.

    A row with a heavy element counts as if it were 1.5 scales from the median. The estimator is odd
    and equivariant, so it is unbiased if the errors of rows are symmetric.

    ``scale``: the scale of the noise of a row; 0 gives the median.
    """
    middle = np.median(rows, axis=1)
    away = np.clip(rows - middle[:, None], -_CLIP * scale, _CLIP * scale)
    return np.asarray(middle + away.mean(axis=1))


def variance_of_clipped_mean(cells: NDArray[np.float64], num_blocks: int, scale: float) -> float:
    """Returns the variance of the clipped mean of one random cell of each block, with random signs.

    For each place j, one estimate uses cell j of every row, with signs that alternate between rows.
    The variance is the mean of the squares of these estimates. Cells of different rows are nearly
    independent, because the hashes of different rows are.
    """
    rows = cells.reshape(num_blocks, -1).T
    total = 0.0
    # Changing the sign of a row gives another sample from the same distribution.
    for turned in range(num_blocks):
        signs = np.where(np.arange(num_blocks) == turned, -1.0, 1.0)
        total += float((clipped_mean(rows * signs, scale) ** 2).mean())
    return total / num_blocks


def estimates_by_element(
    cells: NDArray[np.float64], signs: BlockSigns, support: NDArray[np.uint64]
) -> NDArray[np.float64]:
    """Returns the estimate of each element from each row, shape (m, num_blocks)."""
    buckets, entries = signs.buckets_and_signs(support)
    row_width = len(cells) // signs.num_blocks
    where = cell_of(buckets, row_width) + np.arange(signs.num_blocks) * row_width
    answers: NDArray[np.float64] = entries * cells[where]
    return answers


def dense_estimate(
    cells: NDArray[np.float64],
    signs: DenseSigns,
    support: NDArray[np.uint64],
    weights: NDArray[np.float64],
) -> tuple[float, float, float]:
    """Returns the estimate of a query from a dense sketch, and two sums for its variance."""
    # The sums are of the squared coefficients of cells, a factor of the noise's variance, and of
    # q^2 x^2, estimated.
    width = signs.projection_width
    coefficients = np.zeros(width)
    noise = 0.0
    for part, entries in signs.sign_tiles(support):
        columns = entries.astype(np.float64)
        coefficients += weights[part] @ columns
        noise += float((weights[part] ** 2) @ (columns @ cells / width) ** 2)
    coefficients /= width
    return float(coefficients @ cells), float(coefficients @ coefficients), noise


def selected_noise_bound(
    scale: float, weights: NDArray[np.float64], selected_weight: float, failure_probability: float
) -> float:
    """Returns a bound on the weighted noise of any selection of a query's elements.

    The noise Z of an element decides whether a histogram keeps it, so the noise of the kept
    elements is biased upwards. For any selection, however, the weighted noise is at most the sum of
    w max(Z, 0) over all elements of the query, and at least minus the sum of w max(-Z, 0). Both are
    sums of independent terms that do not depend on the selection, so Cantelli's inequality bounds
    each sum; a union bound limits the largest Z and the largest -Z. Each of these four bounds fails
    with a quarter of the probability. If all four are true, so is the smaller of both results.

    ``scale``: b, the scale of the discrete Laplace noise; q = e^(-1 / b).
    ``weights``: the weights of all elements of the query, shape (m,), float64, at least 0.
    ``failure_probability``: the probability that the bound fails, in (0, 1).

    Source: P(Z >= k) = q^k / (1 + q) for k >= 1, so E max(Z, 0) = q / (1 - q^2); half of the
    second moment of Z is that of max(Z, 0).
    """
    share = failure_probability / 4
    ratio = math.exp(-1 / scale)
    mean = ratio / (1 - ratio**2)
    variance = bound.noise_variance("discrete_laplace", scale) / 2 - mean**2
    norm = float((weights**2).sum())
    summed = mean * float(weights.sum()) + math.sqrt(variance * norm * (1 - share) / share)
    largest = scale * math.log(max(len(weights), 1) / (share * (1 + ratio)))
    return min(summed, largest * selected_weight)


@dataclasses.dataclass(frozen=True)
class ProjectionBounds:
    """Bounds on the errors of k queries of at most m keys, with a mean over a projection's rows.

    ``num_blocks``: R, the number of entries of a column; T if the family is dense.
    ``independence``: the independence of the hash, at least 4.
    ``sparsity``: m, the maximum number of keys of a query; values of a query are from 0 to 1.
    ``failure_probability``: beta, from 1e-100 to below 1.

    Accuracy: the error of an answer <Aq, Ax + Z> / R is the sum of the noise <Aq, Z> / R and the
    distortion <Aq, Ax> / R - <q, x>. With probability 1 - beta, over hash and noise, neither part
    of any of the k answers exceeds its bound. The distortion exceeds its bound with probability at
    most beta / 2. So do the norm of Aq and, for Laplace noise, its largest entry, together with
    probability beta / 4, and the noise for such Aq with beta / 4. Queries must not depend on the
    hash key or on earlier answers, and different texts must have different fingerprints.

    Reference: Blum and Roth (2011), Lemma 4.8 and Theorem 4.9. Their proofs are replaced by moments
    of the hash and by Chernoff's bound on the noise.

    Example:
        >>> bounds = ProjectionBounds(2**16, 8, "discrete_gaussian", 15.5, 48, 100)
        >>> round(bounds.noise, 1), round(bounds.error(10**6, 1), 1)
        (176.2, 288.7)
    """

    projection_width: int
    num_blocks: int
    distribution: bound.Distribution
    scale: float
    independence: int
    sparsity: int
    num_queries: int = 1
    failure_probability: float = bound.FAILURE_PROBABILITY

    def __post_init__(self) -> None:
        checked_integer("num_queries", self.num_queries, 1, _MAX_QUERIES)
        beta = self.failure_probability
        checked_number("failure_probability", beta, least=bound.LEAST_FAILURE_PROBABILITY, below=1)

    @cached_property
    def noise(self) -> float:
        """The bound on the noise, in weight, with half of the failure probability."""
        weights = self.failure_probability / 4
        largest = self._tails.largest_entry(weights / 2) / self.num_blocks
        if self.distribution == "discrete_laplace":
            weights /= 2
        return bound.weighted_noise_bound(
            self.distribution,
            self.scale,
            self._tails.squared_norm(weights) / self.num_blocks,
            largest,
            self.num_queries,
            self.failure_probability / 4,
        )

    def error(self, num_records: float, largest_count: float) -> float:
        """Returns the bound of an answer, if no key has more than ``largest_count`` records."""
        # The norm of the counts is at most the root of the total weight times the largest count.
        checked_number("num_records", num_records, above=0)
        checked_number("largest_count", largest_count, above=0)
        norm = (num_records * largest_count) ** 0.5
        return self.noise + self._tails.bound(norm, largest_count, self.failure_probability / 2)

    @cached_property
    def distortion_of_norm(self) -> float:
        """A bound on the distortion per unit of the counts' L2 norm; may fail with beta / 2."""
        return self._tails.coefficient(self.failure_probability / 2)

    def to_json(self) -> dict[str, Any]:
        """Returns the bounds, which do not depend on data, as JSON values for a card."""
        return {
            "num_queries": self.num_queries,
            "failure_probability": self.failure_probability,
            "noise": self.noise,
            "distortion_of_norm": self.distortion_of_norm,
        }

    @property
    def _tails(self) -> Distortion:
        return Distortion(
            self.projection_width,
            self.num_blocks,
            self.independence,
            self.sparsity,
            self.num_queries,
        )

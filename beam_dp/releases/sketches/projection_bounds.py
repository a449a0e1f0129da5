"""What no answer of a projection is wrong by, except with a probability: noise and distortion.

Unlike the estimate that comes with an answer this is a theorem, known before any record is read.
"""

from __future__ import annotations

import dataclasses
from functools import cached_property
from typing import Any, Protocol

from beam_dp.checks import checked_integer, checked_number
from beam_dp.hashing.distortion import Distortion
from beam_dp.hashing.keys import HashKey
from beam_dp.noise.bound import (
    FAILURE_PROBABILITY,
    LEAST_FAILURE_PROBABILITY,
    Distribution,
    weighted_noise_bound,
)

_MAX_QUERIES = 2**40


@dataclasses.dataclass(frozen=True)
class ProjectionBounds:
    """Bounds on the errors of k queries of at most m keys, by a mean over the rows of a projection.

    Accuracy: an answer <Aq, Ax + Z> / R is wrong by the noise <Aq, Z> / R and by the distortion
    <Aq, Ax> / R - <q, x>. With probability 1 - beta, over hash and noise, neither part of any of
    the k answers exceeds its bound: the distortion has beta / 2; the norm of Aq and, of Laplace
    noise, its largest entry have beta / 4; noise of such weights has beta / 4. Queries must not be
    chosen by the hash key or by earlier answers, and two texts must not have one fingerprint.

    Args:
        projection_width: T.
        num_blocks: R: entries of a column; T where the family is dense.
        distribution: of the noise of each cell.
        scale: of that, in weight.
        independence: of the hash, at least 4.
        sparsity: m; values of a query are from 0 to 1.
        num_queries: k.
        failure_probability: beta, from 1e-100 to below 1.

    Raises:
        InputError: if the number of queries or the probability is out of range.

    Reference: Blum and Roth (2011), Lemma 4.8 and Theorem 4.9, with moments of the hash and
    Chernoff's bound of the noise in place of theirs.

    Example:
        >>> bounds = ProjectionBounds(2**16, 8, "discrete_gaussian", 15.5, 48, 100)
        >>> round(bounds.noise, 1), round(bounds.error(10**6, 1), 1)
        (176.2, 288.7)
    """

    projection_width: int
    num_blocks: int
    distribution: Distribution
    scale: float
    independence: int
    sparsity: int
    num_queries: int = 1
    failure_probability: float = FAILURE_PROBABILITY

    def __post_init__(self) -> None:
        checked_integer("num_queries", self.num_queries, 1, _MAX_QUERIES)
        beta = self.failure_probability
        checked_number("failure_probability", beta, least=LEAST_FAILURE_PROBABILITY, below=1)

    @cached_property
    def noise(self) -> float:
        """Of the noise, in weight, with half of the failure probability."""
        weights = self.failure_probability / 4
        largest = self._tails.largest_entry(weights / 2) / self.num_blocks
        if self.distribution == "discrete_laplace":
            weights /= 2
        return weighted_noise_bound(
            self.distribution,
            self.scale,
            self._tails.squared_norm(weights) / self.num_blocks,
            largest,
            self.num_queries,
            self.failure_probability / 4,
        )

    def error(self, num_records: float, largest_count: float) -> float:
        """Returns the bound of an answer, if no key has more than ``largest_count`` records.

        Args:
            num_records: N, or their weight; the norm of the counts is at most the root of N times
                the largest one.
            largest_count: or the largest weight of a key.

        Raises:
            InputError: unless both are > 0.
        """
        checked_number("num_records", num_records, above=0)
        checked_number("largest_count", largest_count, above=0)
        norm = (num_records * largest_count) ** 0.5
        return self.noise + self._tails.bound(norm, largest_count, self.failure_probability / 2)

    @cached_property
    def distortion_of_norm(self) -> float:
        """What times the L2 norm of all counts bounds the distortion, with half of the failures."""
        return self._tails.coefficient(self.failure_probability / 2)

    def to_json(self) -> dict[str, Any]:
        """Returns what a card says: nothing of it depends on data."""
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


class _Sketch(Protocol):
    """What a sketch is of, before or after its noise is drawn."""

    @property
    def num_blocks(self) -> int: ...
    @property
    def distribution(self) -> Distribution: ...
    @property
    def scale(self) -> float: ...
    @property
    def estimator(self) -> str: ...


def bounds_of(
    sketch: _Sketch,
    projection_width: int,
    hash_key: HashKey,
    sparsity: int,
    num_queries: int = 1,
    failure_probability: float = FAILURE_PROBABILITY,
) -> ProjectionBounds | None:
    """Returns what is proved of a sketch; None of medians, and of a hash that is less than 4-wise.

    Args:
        sketch: a projection and its noise.
        projection_width: of it.
        hash_key: of it.
        sparsity: as of ``ProjectionBounds``, and so the others.
        num_queries: as there.
        failure_probability: as there.

    Raises:
        InputError: as there.
    """
    if sketch.estimator != "mean" or hash_key.independence < 4:
        return None
    return ProjectionBounds(
        projection_width,
        sketch.num_blocks,
        sketch.distribution,
        sketch.scale,
        hash_key.independence,
        sparsity,
        num_queries,
        failure_probability,
    )

"""What plans of noisy answers to a workload share."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.contract import (
    FAILURE_PROBABILITY,
    AnswersPlan,
    check_failure_probability,
)
from beam_dp.mechanisms.resources import answers_resources
from beam_dp.noise.bound import Distribution, largest_noise, noise_variance
from beam_dp.noise.source import NoiseSource
from beam_dp.queries.linear import VALUE_BITS
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.summaries.histogram import clipped_counts

DEFAULT_FAILURE_PROBABILITY = 0.05


@dataclasses.dataclass(frozen=True, kw_only=True)
class LinearAnswersPlan(AnswersPlan):
    """How a workload is answered, all at once, with noise on each answer that is given.

    Args: as of ``AnswersPlan``, where ``num_records`` is stated and not used, and
        workload: the queries.
        distribution: of the noise.
        grid: steps of one record: 1 where the noise is on whole records, else 2^16.
        scale: of the noise, in grid steps.
        failure_probability: of the bounds that are stated, in (0, 1).
    """

    workload: LinearWorkload
    distribution: Distribution
    grid: int
    scale: float
    failure_probability: float = dataclasses.field(
        default=DEFAULT_FAILURE_PROBABILITY, metadata=FAILURE_PROBABILITY
    )

    @property
    def universe(self) -> Domain:
        """The domain of the queries."""
        return self.workload.domain

    @property
    def memory_bytes(self) -> float:
        """Memory of the worker that draws, without the histogram."""
        return answers_resources(self.workload.domain.num_cells, len(self.workload)).memory_bytes

    @property
    def is_vacuous(self) -> bool:
        """Whether it is known before that the bound says nothing."""
        return self.num_records != "noisy" and self.bound() >= self.num_records

    @property
    def standard_error(self) -> float:
        """Standard deviation of every answer, in records."""
        return math.sqrt(noise_variance(self.distribution, self.scale)) / self.grid

    @abstractmethod
    def bound(self) -> float:
        """Returns what no answer's error exceeds, in records."""

    @abstractmethod
    def answered(self, counts: NDArray[np.int64], noise: NoiseSource) -> dict[int, float]:
        """Returns noisy answers by their queries' places in the workload, in the order to tell.

        Privacy: that of the plan. Draw once.

        Args:
            counts: shape (num_cells,), int64, records; secret.
            noise: of this draw.
        """

    def largest_error(self, num_answers: int, failure_probability: float) -> float:
        """Returns what no error of so many answers exceeds, in records; see ``largest_noise``.

        Raises:
            InputError: if the probability is out of range.
        """
        check_failure_probability(failure_probability)
        noise = largest_noise(self.distribution, self.scale, num_answers, failure_probability)
        return noise / self.grid

    def exact(self, counts: NDArray[np.int64], grid: int) -> NDArray[np.int64]:
        """Returns the exact answers, in steps of a record; secret.

        Args:
            counts: shape (num_cells,), int64, records; secret.
            grid: steps of one record: 2^16, or 1 where all queries are 0 or 1.

        Raises:
            InputError: if the counts have another shape or type.
        """
        expected = (self.workload.domain.num_cells,)
        if counts.shape != expected or counts.dtype != np.int64:
            condition = f"must be int64 of shape {expected}"
            raise InputError("counts", f"{counts.dtype} {counts.shape}", condition)
        # Numerators over 2^16, which are whole records where the grid is.
        return self.workload.counts(clipped_counts(counts)) // ((1 << VALUE_BITS) // grid)

    def noisy(self, exact: NDArray[np.int64], noise: NoiseSource) -> NDArray[np.float64]:
        """Returns answers in steps of ``grid`` with noise, in records."""
        draw = noise.laplace if self.distribution == "discrete_laplace" else noise.gaussian
        return draw(exact, self.scale) / self.grid

    def _stated_number(self, num_records: int | None) -> dict[str, int | None] | None:
        return None if num_records is None else {"public": num_records}

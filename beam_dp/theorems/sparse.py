"""What is published of SparseProject, for queries with at most m non-zero values."""

from __future__ import annotations

import dataclasses
import math

from beam_dp.theorems.theorem import checked_parameters


@dataclasses.dataclass(frozen=True)
class PublishedProjection:
    """The parameters of SparseProject as published: calculators, too large to run.

    Args:
        tau: the failure probability of one projection.
        printed_width: T as printed.
        width: T from the definition it stands for, smaller by 2 sqrt(m).
        independence: r, of the hash family: an even integer.
    """

    tau: float
    printed_width: float
    width: float
    independence: int


def published_projection(
    num_records: int, sparsity: int, num_queries: int, failure_probability: float
) -> PublishedProjection:
    """Returns the published parameters of SparseProject.

    tau = beta / (4k); T = 4 * 64^2 ln(1 / tau) (m + n^2)^2 / (4m); r = 2 lg(kT / (2 beta)).

    Raises:
        InputError: if an argument is out of range.

    Reference: Blum and Roth (2011), Algorithm 2.

    Example:
        >>> published_projection(10, 4, 16, 0.05).independence
        72
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_records": num_records, "sparsity": sparsity, "num_queries": num_queries},
        reals={},
    )
    tau = failure_probability / (4 * num_queries)
    width = 4 * 64**2 * math.log(1 / tau) * (sparsity + num_records**2) ** 2 / (4 * sparsity)
    printed = width * 2 * math.sqrt(sparsity)
    degree = 2 * math.log2(num_queries * printed / (2 * failure_probability))
    return PublishedProjection(tau, printed, width, 2 * math.ceil(degree / 2))

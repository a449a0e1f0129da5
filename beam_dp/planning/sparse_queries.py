"""Theorems on queries with few non-zero values over a universe of any size.

Sparse multiplicative weights (SMW) and SparseProject, in records. Queries have at most m non-zeros.
"""

from __future__ import annotations

import dataclasses
import math

from beam_dp.mechanisms.sparse_vector.noise import published_accuracy
from beam_dp.planning.bound import (
    Calibration,
    Theorem,
    checked_fraction,
    checked_parameters,
    constant,
    least_integer,
)
from beam_dp.planning.noise_theorems import gaussian_deviation
from beam_dp.privacy.guarantee import Guarantee

_MAX_SLOTS = 2**80


@dataclasses.dataclass(frozen=True)
class SparseMWSize:
    """How large the hypothesis of sparse multiplicative weights is.

    Args:
        num_slots: s, the cells of the hypothesis, none of which stands for a universe element yet.
        max_updates: B, the updates that are enough.
    """

    num_slots: int
    max_updates: int


def sparse_mw_size(
    sparsity: int, max_error_fraction: float, calibration: Calibration = "tight"
) -> SparseMWSize:
    """Returns the least hypothesis that learns queries of m non-zeros within a share a.

    ``textbook``: s / (ln s + 1) >= 4m / a^2 and B = floor(4 (ln s + 1) / a^2), with steps of a / 2.
    ``tight``: B = floor(ln s / (2 a^2)) with steps of 4a, and s >= m (B + 1) + 1: one slot stays
    for all elements that were never asked for, and one more update than there can be has room.

    Raises:
        InputError: if an argument is out of range.

    Reference: Blum and Roth (2011), Algorithm 1 and Lemma 3.7, with a slot that is never assigned.

    Example:
        >>> sparse_mw_size(10, 0.1)
        SparseMWSize(num_slots=4171, max_updates=416)
        >>> sparse_mw_size(10, 0.1, "textbook")
        SparseMWSize(num_slots=47035, max_updates=4703)
    """
    checked_parameters(counts={"sparsity": sparsity}, reals={})
    a = checked_fraction(max_error_fraction)

    def updates(slots: int) -> int:
        if calibration == "textbook":
            return math.floor(4 * (math.log(slots) + 1) / a**2)
        return math.floor(math.log(slots) / (2 * a**2))

    def is_enough(slots: int) -> bool:
        if slots < 2:
            return False
        if calibration == "textbook":
            return slots / (math.log(slots) + 1) >= 4 * sparsity / a**2
        return slots >= sparsity * (updates(slots) + 1) + 1

    slots = least_integer(is_enough, _MAX_SLOTS)
    assert slots is not None
    return SparseMWSize(slots, updates(slots))


def sparse_mw_theorem(
    sparsity: int,
    num_questions: int,
    guarantee: Guarantee,
    failure_probability: float,
    calibration: Calibration = "tight",
) -> Theorem:
    """Returns how wrong the answers of sparse multiplicative weights can be.

    Accuracy: within 3 alpha N for all K queries with probability 1 - beta, where alpha is the least
    share for which NumericSparse with c = max(1, B(alpha)) and 2K questions is accurate within
    alpha N. ``tight`` has the tight size and updates; the noise is as published in both.

    Raises:
        InputError: if an argument is out of range.

    Reference: Blum and Roth (2011), Theorem 3.9; Dwork and Roth (2014), Theorems 3.28 and 4.14.
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"sparsity": sparsity, "num_questions": num_questions},
        reals={},
    )

    def noise_error(alpha: float) -> float:
        updates = max(1, sparse_mw_size(sparsity, alpha, calibration).max_updates)
        return published_accuracy(
            guarantee, updates, 2 * num_questions, failure_probability, answers=True
        )

    def error(num_records: int) -> float:
        if noise_error(1.0) > num_records:
            return 3 * noise_error(1.0)
        low, high = 1e-9, 1.0
        for _ in range(60):
            alpha = math.sqrt(low * high)
            if noise_error(alpha) > alpha * num_records:
                low = alpha
            else:
                high = alpha
        return 3 * high * num_records

    return Theorem(
        "SMW: Blum and Roth (2011), Theorem 3.9, with NumericSparse's accuracy",
        constant(failure_probability),
        error,
    )


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


def projection_deviation(guarantee: Guarantee, calibration: Calibration = "tight") -> float:
    """Returns the standard deviation of the noise of a coordinate of norm-1 columns, in records.

    ``tight``: analytic Gaussian noise; a record changes the projection by 1 in L2, a replacement
    by 2, for any width. ``textbook``: Laplace noise of scale sqrt(8 ln(1 / delta)) / epsilon.

    Raises:
        InputError: if delta is 0.

    Reference: Blum and Roth (2011), Algorithm 2.
    """
    records = guarantee.neighboring.num_moved * guarantee.max_records_per_unit
    sigma = gaussian_deviation(guarantee.epsilon, guarantee.delta)
    if calibration == "textbook":
        sigma = math.sqrt(2 * 8 * math.log(1 / guarantee.delta)) / guarantee.epsilon
    return records * sigma


def expected_projection_error(
    projection_width: int,
    query_norm: float,
    data_norm: float,
    guarantee: Guarantee,
    calibration: Calibration = "tight",
) -> float:
    """Returns at most the root mean squared error of an answer of SparseProject, in records.

    Of a fully independent hash: variance 2 |Q|^2 |D|^2 / T of the projection, and of the noise,
    times |A Q|^2, which is |Q|^2 on average.

    Args:
        projection_width: T >= 1.
        query_norm: L2 norm of the query's values, at most the root of its non-zeros.
        data_norm: a public guess of the L2 norm of the counts; at most the root of the number of
            records times the most copies of one.
        guarantee: with delta > 0.
        calibration: see ``projection_deviation``.

    Raises:
        InputError: if an argument is out of range.
    """
    checked_parameters(
        counts={"projection_width": projection_width},
        reals={"query_norm": query_norm, "data_norm": data_norm},
    )
    deviation = projection_deviation(guarantee, calibration)
    return query_norm * math.sqrt(2 * data_norm**2 / projection_width + deviation**2)


def balanced_projection_width(data_norm: float, guarantee: Guarantee) -> int:
    """Returns the width at which projection and noise are of one order: (|D| / sigma)^2.

    Example:
        >>> promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
        >>> balanced_projection_width(1000.0, promise)
        33115
    """
    checked_parameters(counts={}, reals={"data_norm": data_norm})
    return max(1, round((data_norm / projection_deviation(guarantee)) ** 2))

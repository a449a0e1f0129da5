"""Theorems on queries with few non-zero values over a universe of any size.

Sparse multiplicative weights (SMW) and SparseProject. Queries have at most m non-zeros.
"""

from __future__ import annotations

import dataclasses
import math

from beam_dp.mechanisms.online.sparse_mw_plan import num_slots, plan_sparse_mw
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.theorems.synthesis import published_online_theorem, run_theorem
from beam_dp.theorems.theorem import Calibration, Theorem, checked_parameters

SPARSE_MW_BOUND = "SMW: Blum and Roth (2011), corrected, with the run's own noise"


def sparse_mw_theorem(
    sparsity: int,
    num_questions: int,
    guarantee: Guarantee,
    failure_probability: float,
    calibration: Calibration = "tight",
    *,
    num_records_is_public: bool = True,
) -> Theorem:
    """Returns how wrong the answers of sparse multiplicative weights can be.

    Accuracy: of all answers to the first K different queries, with probability 1 - beta.
    ``textbook`` is 3 alpha N for the least alpha of the published theorem, for continuous noise
    and ln s + 1 for ln|X|; ``tight`` the largest bound of any answer of a run as
    ``plan_sparse_mw`` plans it.

    Args:
        sparsity: m >= 1.
        num_questions: K >= 1.
        guarantee: of all answers together.
        failure_probability: beta, in (0, 1).
        calibration: ``tight`` or ``textbook``.
        num_records_is_public: else ``tight`` also pays for a noisy one, and allows for its error.

    Raises:
        InputError: if an argument is out of range.

    Reference: Blum and Roth (2011), Theorem 3.9; Dwork and Roth (2014), Theorems 3.28 and 4.14.
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"sparsity": sparsity, "num_questions": num_questions},
        reals={},
    )
    if calibration == "textbook":

        def divergence(alpha: float) -> float:
            return math.log(num_slots(sparsity, alpha, "textbook")) + 1

        name = "SMW: Blum and Roth (2011), Theorem 3.9, with NumericSparse's accuracy"
        return published_online_theorem(
            name, guarantee, divergence, num_questions, failure_probability
        )
    plan = plan_sparse_mw(
        guarantee,
        1 if num_records_is_public else "noisy",
        max_sparsity=sparsity,
        num_questions=num_questions,
        failure_probability=failure_probability,
    )
    return run_theorem(SPARSE_MW_BOUND, plan)


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

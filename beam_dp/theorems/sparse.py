"""SparseProject, for queries with at most m values that are not zero: as published, and as run."""

from __future__ import annotations

import dataclasses
import math

from beam_dp.checks import checked_number
from beam_dp.mechanisms.sketches.plan import SparsePlan
from beam_dp.theorems.theorem import Theorem, checked_parameters, constant


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


def published_largest_entry(
    projection_width: int, sparsity: int, num_queries: int, failure_probability: float
) -> float:
    """Returns what no entry of any projected query exceeds, as published, corrected.

    Accuracy: (2kT / beta)^(1/r) 2 sqrt(m r / T), but with probability beta, for columns of norm 1
    and an even r; with r = lg(2kT / beta), which is rounded up, about 4 sqrt(m lg(2kT / beta) / T).
    The r-th moment of an entry, a sum of m signs over sqrt(T), is at most (r - 1)!! (m / T)^(r/2),
    and (r - 1)!! < sqrt(2) (r / e)^(r/2); so 1 / sqrt(e) would do for the factor 2.
    ``Distortion.largest_entry`` is sharper.

    Raises:
        InputError: if an argument is out of range.

    Reference: Blum and Roth (2011), Lemma 4.6 and Corollary 4.7, which print (kT / (2 beta))^(1/r).

    Example:
        >>> round(published_largest_entry(4096, 100, 1000, 0.05), 3)
        3.249
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={
            "projection_width": projection_width,
            "sparsity": sparsity,
            "num_queries": num_queries,
        },
        reals={},
    )
    order = 2 * math.ceil(math.log2(2 * num_queries * projection_width / failure_probability) / 2)
    chances = 2 * num_queries * projection_width / failure_probability
    return math.pow(chances, 1 / order) * 2 * math.sqrt(sparsity * order / projection_width)


def published_weighted_noise(
    num_terms: int, largest_weight: float, scale: float, failure_probability: float
) -> float:
    """Returns what a weighted sum of Laplace noise exceeds, in absolute value, only rarely.

    Accuracy: for T terms with weights in [-B, B], P(sum >= B a) <= exp(-a^2 / (6 T b^2)) for
    a <= T b, and exp(-a / (6 b)) beyond; twice that for the absolute value.
    ``weighted_noise_bound`` is the sharpest of Chernoff's kind, and knows the norm of the weights.

    Args:
        num_terms: T.
        largest_weight: B.
        scale: b, of the noise, discrete or not.
        failure_probability: beta.

    Raises:
        InputError: if an argument is out of range.

    Reference: Blum and Roth (2011), Lemma 4.8.

    Example:
        >>> round(published_weighted_noise(1024, 0.05, 2.0, 0.05), 3)
        15.055
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_terms": num_terms},
        reals={"largest_weight": largest_weight, "scale": scale},
    )
    log_term = math.log(2 / failure_probability)
    near = scale * math.sqrt(6 * num_terms * log_term)
    return largest_weight * (near if near <= num_terms * scale else 6 * scale * log_term)


def published_projection_noise(
    projection_width: int,
    sparsity: int,
    num_queries: int,
    epsilon: float,
    delta: float,
    failure_probability: float,
) -> float:
    """Returns what noise adds to any of k answers of SparseProject, as published, corrected.

    Accuracy: but with probability beta at most B a, with a quarter of beta for the largest entry B
    and a quarter for the noise: 16 sqrt(3) / epsilon sqrt(m ln(1 / delta) ln(8k / beta)
    lg(8kT / beta)), before r is rounded up. The other half of beta is the distortion's.

    Raises:
        InputError: if an argument is out of range.

    Reference: Blum and Roth (2011), Theorem 4.9, which prints (16 sqrt(3) / epsilon) sqrt(m
    ln(4k / beta) ln(1 / delta) (ln(2k / beta) + ln T)).

    Example:
        >>> round(published_projection_noise(2**16, 100, 1000, 1.0, 1e-9, 0.05))
        25097
    """
    checked_number("delta", delta, above=0, below=1, note=" for this noise")
    checked_parameters(counts={}, reals={"epsilon": epsilon})
    entry = published_largest_entry(
        projection_width, sparsity, num_queries, failure_probability / 4
    )
    scale = math.sqrt(8 * math.log(1 / delta)) / epsilon
    each = failure_probability / 4 / num_queries
    return published_weighted_noise(projection_width, entry, scale, each)


def projection_theorem(
    plan: SparsePlan, largest_count: float, num_queries: int, failure_probability: float
) -> Theorem | None:
    """Returns how wrong the answers of a sketch can be, if no key has too many records.

    Accuracy: of k queries of at most ``plan.max_sparsity`` keys at once: see ``ProjectionBounds``.

    Args:
        plan: of ``SparseProject``, or of another mean over rows.
        largest_count: that no key exceeds; a public number, or a guess.
        num_queries: k.
        failure_probability: beta, in (0, 1).

    Returns:
        The theorem; None where nothing is proved: of medians, and beside a histogram.

    Raises:
        InputError: if an argument is out of range.

    Reference: Blum and Roth (2011), Theorem 4.9, for any width.

    Example:
        >>> from beam_dp.mechanisms.sketches.mechanisms import SparseProject
        >>> from beam_dp.privacy.guarantee import Guarantee
        >>> promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
        >>> plan = SparseProject(2**16).plan(promise, max_sparsity=100)
        >>> theorem = projection_theorem(plan, 1, 1000, 0.05)
        >>> round(theorem.bound(10**6).max_error)
        459
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_queries": num_queries},
        reals={"largest_count": largest_count},
    )
    bounds = plan.bounds(num_queries, failure_probability)
    if bounds is None:
        return None
    return Theorem(
        f"{plan.mechanism}: Blum and Roth (2011), with moments of the hash",
        constant(failure_probability),
        lambda num_records: bounds.error(num_records, largest_count),
    )

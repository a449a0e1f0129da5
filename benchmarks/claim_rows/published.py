"""Theorems that no plan uses: calculators of published bounds, which claims and tests compare."""

from __future__ import annotations

import dataclasses
import math

from beam_dp.checks import checked_number
from beam_dp.errors import InputError
from beam_dp.mechanisms.choosing import selection_scale
from beam_dp.mechanisms.sparse_vector import (
    SparseVectorNoise,
    check_accuracy,
    published_accuracy,
)
from beam_dp.planning.theorems.theorem import Calibration, Theorem, checked_parameters, constant
from beam_dp.privacy.accounting import gaussian_mu, zcdp_rho


def gaussian_deviation(epsilon: float, delta: float, calibration: Calibration = "tight") -> float:
    """Returns the standard deviation of Gaussian noise for L2 sensitivity 1.

    ``tight`` is the analytic calibration of continuous noise, exact; ``textbook`` goes through
    zero-concentrated privacy, which also admits any discrete Gaussian.

    Raises:
        InputError: if an argument is out of range.

    Reference: Balle and Wang (2018); Canonne, Kamath and Steinke (2020).

    Example:
        >>> round(gaussian_deviation(1.0, 1e-9), 5)
        5.49527
    """
    checked_parameters(counts={}, reals={"epsilon": epsilon})
    checked_number("delta", delta, above=0, below=1, note=" for Gaussian noise")
    if calibration == "tight":
        return 1 / gaussian_mu(epsilon, delta)
    return 1 / math.sqrt(2 * zcdp_rho(epsilon, delta))


def gaussian_error(
    num_queries: int,
    l2_sensitivity: float,
    epsilon: float,
    delta: float,
    failure_probability: float,
    calibration: Calibration = "tight",
) -> float:
    """Returns the error, in records, that Gaussian noise exceeds only rarely.

    Accuracy: each of k answers gets noise of deviation s = D2 sigma(epsilon, delta); with
    probability at least 1 - beta none is wrong by more than s sqrt(2 ln(2k / beta)). Discrete
    Gaussians are subgaussian with the same deviation, so this holds for them, too.

    Raises:
        InputError: if an argument is out of range.

    Reference: union bound; Canonne, Kamath and Steinke (2020), Corollary 17.

    Example:
        >>> round(gaussian_error(100, 10.0, 1.0, 1e-9, 0.05), 3)
        223.814
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_queries": num_queries},
        reals={"sensitivity": l2_sensitivity, "epsilon": epsilon},
    )
    deviation = l2_sensitivity * gaussian_deviation(epsilon, delta, calibration)
    return deviation * math.sqrt(2 * math.log(2 * num_queries / failure_probability))


def selection_shortfall(
    num_candidates: int,
    sensitivity: int,
    epsilon: float,
    failure_probability: float,
    *,
    monotone: bool = False,
) -> float:
    """Returns how far a selected score may be below the best one, in the units of the score.

    Accuracy: (2D / epsilon) (ln R + ln(1 / beta)) with probability 1 - beta, for R candidates: the
    exponential mechanism, and permute and flip. Add one for geometric noisy maximum.

    Raises:
        InputError: if an argument is out of range.

    Reference: Dwork and Roth (2014), Theorem 3.11.

    Example:
        >>> round(selection_shortfall(1000, 1, 1.0, 0.05), 4)
        19.807
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_candidates": num_candidates},
        reals={},
    )
    log_terms = math.log(num_candidates) - math.log(failure_probability)
    return selection_scale(sensitivity, epsilon, monotone) * log_terms


def sparse_vector_theorem(
    noise: SparseVectorNoise, num_questions: int, failure_probability: float
) -> Theorem:
    """Returns the accuracy of AboveThreshold, Sparse or NumericSparse.

    Accuracy: no question is misjudged by more, and no numeric answer wrong by more, while at most
    c questions are so close to the threshold or above it. As published for the textbook's noise,
    on integers: each of its two noises may add one; else ``SparseVectorNoise.margin`` and
    ``answer_bound``. Published numeric answers with delta > 0 have more noise than the published
    accuracy allows for; they get their share of beta, which is half of it, by themselves.

    Args:
        noise: the calibration.
        num_questions: k, asked in the run, at most 2^31.
        failure_probability: beta, in (0, 1).

    Raises:
        InputError: if an argument is out of range.

    Reference: Dwork and Roth (2014), Theorems 3.24, 3.26 and 3.28; Lyu, Su and Li (2017).
    """
    check_accuracy(noise.max_above, num_questions, failure_probability)
    has_answers = noise.answer_scale is not None
    error = noise.margin(num_questions, failure_probability)
    if has_answers:
        error = max(error, noise.answer_bound(failure_probability))
    name = "sparse vector: union bound over its noises"
    if noise.method == "textbook":
        published = published_accuracy(
            noise.guarantee,
            noise.max_above,
            num_questions,
            failure_probability,
            answers=has_answers,
        )
        published += 2
        if noise.answer_scale is not None:
            log_term = math.log(2 * noise.max_above / failure_probability)
            published = max(published, math.ceil(noise.answer_scale * log_term))
        if published < error:
            error = published
            name = "sparse vector: Dwork and Roth (2014), Theorems 3.26 and 3.28"
    return Theorem(name, constant(failure_probability), constant(error))


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

    Accuracy: (2kT / beta)^(1/r) 2 sqrt(m r / T), except with probability beta, for columns of norm
    1 and an even r; with r = lg(2kT / beta), rounded up, about 4 sqrt(m lg(2kT / beta) / T).
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

    Accuracy: at most B a, except with probability beta: a quarter of beta for the largest entry B
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


def sharper_small_db_theorem(
    num_cells: int,
    num_queries: int,
    epsilon: float,
    failure_probability: float,
    max_records_per_unit: int = 1,
) -> Theorem:
    """Returns the published theorem of small databases with all that its proof gives.

    Accuracy: with probability 1 - beta every answer is within a N records once N is at least
    (16 ln U ln|Q| + 4 a^2 ln(1 / beta)) / (epsilon a^3); the theorem as it is printed loses the
    a^2. Like that one it treats the size 4 ln|Q| / a^2 as a real number and counts sequences, so
    it is what ``published_small_db_error`` says of half of a.

    Args:
        num_cells: U >= 1, of the universe.
        num_queries: |Q| >= 3, distinct ones.
        epsilon: finite, > 0.
        failure_probability: beta, in (0, 1).
        max_records_per_unit: k; the same as an epsilon of epsilon / k.

    Raises:
        InputError: if an argument is out of range.

    Reference: Dwork and Roth (2014), the proof of Theorem 4.5; Blum, Ligett and Roth (2013).

    Example:
        >>> sharper_small_db_theorem(1024, 1024, 1.0, 0.05).records_needed(0.1)
        768845
    """
    from scipy.optimize import brentq  # imported here because it loads slowly

    _check_published(num_cells, num_queries, epsilon, failure_probability)
    checked_parameters(counts={"max_records_per_unit": max_records_per_unit}, reals={})
    of_record = epsilon / max_records_per_unit

    def error(num_records: int) -> float:
        # Half of the share is the size's; the rest of the error falls as the share grows.
        def left(share: float) -> float:
            half = published_small_db_error(
                num_cells, num_queries, of_record, num_records, share / 2, failure_probability
            )
            return share * num_records - half

        high = 1.0
        while left(high) < 0:
            high *= 2
        return float(brentq(left, 1e-9, high, xtol=1e-15, rtol=1e-14)) * num_records

    name = "SmallDB: Dwork and Roth (2014), proof of Theorem 4.5"
    return Theorem(name, constant(failure_probability), error)


def published_small_db_error(
    num_cells: int,
    num_queries: int,
    epsilon: float,
    num_records: int,
    max_error_fraction: float,
    failure_probability: float,
) -> float:
    """Returns what no query's error exceeds, in records, with probability 1 - beta.

    a N + (2 / epsilon) (m ln U + ln(1 / beta)) for the real size m = ln|Q| / a^2; an integer size
    adds less than (2 / epsilon) ln U.

    Args:
        num_cells: U >= 1, of the universe.
        num_queries: |Q| >= 3, distinct ones.
        epsilon: finite, > 0.
        num_records: N >= 1.
        max_error_fraction: a > 0, of the size.
        failure_probability: beta, in (0, 1).

    Raises:
        InputError: if an argument is out of range.

    Reference: Dwork and Roth (2014), Proposition 4.4.

    Example:
        >>> round(published_small_db_error(1024, 1024, 1.0, 10**6, 0.1, 0.05), 1)
        109615.1
    """
    _check_published(num_cells, num_queries, epsilon, failure_probability)
    checked_parameters(
        counts={"num_records": num_records}, reals={"max_error_fraction": max_error_fraction}
    )
    size = math.log(num_queries) / max_error_fraction**2
    log_terms = size * math.log(num_cells) - math.log(failure_probability)
    return max_error_fraction * num_records + 2 / epsilon * log_terms


def _check_published(
    num_cells: int, num_queries: int, epsilon: float, failure_probability: float
) -> None:
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_cells": num_cells, "num_queries": num_queries},
        reals={"epsilon": epsilon},
    )
    if num_queries < 3:
        raise InputError("num_queries", num_queries, "must be at least 3 for the published size")

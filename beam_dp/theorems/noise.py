"""Theorems on Laplace and Gaussian noise, selection and the sparse vector mechanisms.

Errors are in records, and do not depend on the number of records.
"""

from __future__ import annotations

import math

from beam_dp.checks import checked_number
from beam_dp.mechanisms.choosing import selection_scale
from beam_dp.mechanisms.sparse_vector.noise import (
    SparseVectorNoise,
    check_accuracy,
    published_accuracy,
)
from beam_dp.privacy.accounting import gaussian_mu, zcdp_rho
from beam_dp.theorems.theorem import Calibration, Theorem, checked_parameters, constant


def laplace_error(
    num_queries: int,
    l1_sensitivity: float,
    epsilon: float,
    failure_probability: float,
    *,
    grid: int | None = 1,
) -> float:
    """Returns the error, in records, that discrete Laplace noise exceeds only rarely.

    Accuracy: each of k answers gets noise of scale b = D / epsilon; with probability at least
    1 - beta none is wrong by more than b ln(k / beta), rounded up to a unit of the noise's grid:
    P(|DLap(s)| > ceil(t)) <= exp(-t / s).

    Args:
        num_queries: k >= 1.
        l1_sensitivity: D, the most that one privacy unit changes all answers together, > 0.
        epsilon: spent on all answers together, finite and > 0.
        failure_probability: beta, in (0, 1).
        grid: units of the noise that make one record; None for continuous noise.

    Raises:
        InputError: if an argument is out of range.

    Reference: Dwork and Roth (2014), Theorem 3.8.

    Example:
        >>> round(laplace_error(100, 100.0, 1.0, 0.05, grid=None), 3)
        760.09
    """
    _check_noise(num_queries, l1_sensitivity, epsilon, failure_probability)
    error = l1_sensitivity / epsilon * math.log(num_queries / failure_probability)
    return error if grid is None else math.ceil(error * grid) / grid


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
    _check_noise(num_queries, l2_sensitivity, epsilon, failure_probability)
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


def laplace_theorem(
    num_queries: int, l1_sensitivity: float, epsilon: float, failure_probability: float
) -> Theorem:
    """Returns ``laplace_error`` as a theorem."""
    error = laplace_error(num_queries, l1_sensitivity, epsilon, failure_probability)
    name = "Laplace: Dwork and Roth (2014), Theorem 3.8"
    return Theorem(name, constant(failure_probability), constant(error))


def gaussian_theorem(
    num_queries: int,
    l2_sensitivity: float,
    epsilon: float,
    delta: float,
    failure_probability: float,
    calibration: Calibration = "tight",
) -> Theorem:
    """Returns ``gaussian_error`` as a theorem."""
    error = gaussian_error(
        num_queries, l2_sensitivity, epsilon, delta, failure_probability, calibration
    )
    source = {"tight": "Balle and Wang (2018)", "textbook": "Canonne and others (2020)"}
    name = f"Gaussian: {source[calibration]}, union bound"
    return Theorem(name, constant(failure_probability), constant(error))


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


def _check_noise(
    num_queries: int, sensitivity: float, epsilon: float, failure_probability: float
) -> None:
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_queries": num_queries},
        reals={"sensitivity": sensitivity, "epsilon": epsilon},
    )

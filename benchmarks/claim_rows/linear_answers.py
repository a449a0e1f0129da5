"""What is published of noisy answers: Laplace, Gaussian, histograms."""

from __future__ import annotations

import numpy as np
from claim_rows.claim import Claim, Failures, failures

from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import gaussian_mu
from beam_dp.theorems.noise import gaussian_error, laplace_error

_BETA, _QUERIES = 0.05, 100


def _laplace(trials: int) -> Failures:
    noise, bound = NoiseSource(), laplace_error(_QUERIES, _QUERIES, 1.0, _BETA)
    zeros = np.zeros(_QUERIES, np.int64)
    errors = [float(np.abs(noise.laplace(zeros, _QUERIES)).max()) / bound for _ in range(trials)]
    return failures(errors, _BETA)


def _gaussian(trials: int) -> Failures:
    noise, bound = NoiseSource(), gaussian_error(_QUERIES, 10.0, 1.0, 1e-9, _BETA)
    sigma, zeros = 10 / gaussian_mu(1.0, 1e-9), np.zeros(_QUERIES, np.int64)
    errors = [float(np.abs(noise.gaussian(zeros, sigma)).max()) / bound for _ in range(trials)]
    return failures(errors, _BETA)


CLAIMS = [
    Claim(
        key="linear_answers.laplace",
        source="Dwork and Roth 2014, Theorem 3.8",
        statement="Laplace noise of scale D/epsilon on k answers: no error above "
        "(D/epsilon) ln(k/beta) but with probability beta",
        here="`theorems.noise.laplace_error`: for integer noise the bound is rounded up",
        measure=_laplace,
    ),
    Claim(
        key="linear_answers.gaussian",
        source="lecture on linear queries",
        statement="Gaussian noise with sigma^2 = 2 ln(2/delta)/epsilon^2 is (epsilon, delta)-"
        "private, and no error exceeds sigma sqrt(2 ln(2k/beta)) but with probability beta",
        printed="private for epsilon up to 1 only; violated from epsilon 9.8 on at delta 1e-6",
        here="`theorems.noise.gaussian_error`, with the exact calibration of Balle and Wang (2018)",
        measure=_gaussian,
    ),
]

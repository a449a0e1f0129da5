"""What is published of noisy answers: Laplace, Gaussian, histograms."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from claim_rows.claim import Claim, Failures, Slack, failures
from claim_rows.published import gaussian_error

from beam_dp.planning.theorems.theorem import laplace_theorem
from beam_dp.privacy.accounting import discrete_gaussian_mu, discrete_parameter, gaussian_mu
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.testing.audit import discrete_gaussian, hockey_stick

_BETA, _QUERIES = 0.05, 100
_GRID = 64


def _laplace(trials: int) -> Failures:
    noise = NoiseSource()
    bound = laplace_theorem(_QUERIES, _QUERIES, 1.0, _BETA).bound(1).max_error
    zeros = np.zeros(_QUERIES, np.int64)
    errors = [float(np.abs(noise.laplace(zeros, _QUERIES)).max()) / bound for _ in range(trials)]
    return failures(errors, _BETA)


def _gaussian(trials: int) -> Failures:
    noise, bound = NoiseSource(), gaussian_error(_QUERIES, 10.0, 1.0, 1e-9, _BETA)
    sigma, zeros = 10 / gaussian_mu(1.0, 1e-9), np.zeros(_QUERIES, np.int64)
    errors = [float(np.abs(noise.gaussian(zeros, sigma)).max()) / bound for _ in range(trials)]
    return failures(errors, _BETA)


def _gaussian_privacy(trials: int) -> list[Slack]:
    del trials
    found = []
    for epsilon, delta in ((0.1, 1e-6), (1.0, 1e-9), (1.0, 1e-6), (4.0, 1e-9), (10.0, 1e-6)):
        scale = discrete_parameter(Fraction(_GRID / discrete_gaussian_mu(epsilon, delta)) ** 2)
        reach = math.ceil(12 * scale)
        first = discrete_gaussian(scale, 0, -reach, reach)
        second = discrete_gaussian(scale, _GRID, -reach, reach)
        reached = hockey_stick(first, second, epsilon)
        found.append(Slack(reached, delta, 1, f"(delta at epsilon {epsilon:g})"))
    return found


CLAIMS = [
    Claim(
        key="linear_answers.laplace",
        source="Dwork and Roth 2014, Theorem 3.8",
        statement="Laplace noise of scale D/epsilon on k answers: no error above "
        "(D/epsilon) ln(k/beta) except with probability beta",
        here="`theorems.theorem.laplace_theorem`: for integer noise the bound is rounded up",
        measure=_laplace,
    ),
    Claim(
        key="linear_answers.gaussian_privacy",
        source="Balle and Wang 2018; lecture on linear queries",
        statement="Gaussian noise with sigma^2 = 2 ln(2/delta) / epsilon^2 is (epsilon, delta)-"
        "private",
        printed="proved for epsilon up to 1, and false from epsilon 9.8 on at delta 1e-6; with "
        "1.25 for 2 from 8.8 on",
        here="`privacy.accounting.discrete_gaussian_mu`: exact, except that the noise is discrete; "
        "the true delta of integer noise on a grid of 64",
        measure=_gaussian_privacy,
    ),
    Claim(
        key="linear_answers.gaussian",
        source="lecture on linear queries",
        statement="Gaussian noise of deviation sigma on k answers: no error above "
        "sigma sqrt(2 ln(2k/beta)) except with probability beta",
        here="`claim_rows.published.gaussian_error`; integer noise is subgaussian, too",
        measure=_gaussian,
    ),
]

"""Fits a distribution to noisy coefficients, given a prior whose precision is learned.

The records of a prior distribution, such as public records, are about the people of a table, but
not exactly: coefficient j of the table is expected around N c_j, with a variance of a s_j. Here s_j
is the variance of N independent draws from the prior. The factor a is 1 + N / n if the n records of
the prior are a sample from the same distribution; it is larger for other people. The factor is
learned from the noisy coefficients by their likelihood (empirical Bayes), for each order of
interactions, and then for each set of attributes, so that a prior may be right for some sets and
wrong for others. The most likely table then minimises

    sum_j (N c_j(p) - y_j)^2 / (2 v_j)  +  (N / a) KL(p || prior),

because N KL(p || prior) is about half of the sum of squares over s_j.

Everything here is a function of noisy tables and public records.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import Basis, Support, on_one_thread, squared_scale
from beam_dp.models.maximum_entropy import Fit, NoisyCoefficients, independent_variances, refit

# The factors a that are compared, as logarithms.
_LOG_FACTORS = np.linspace(-4.0, 18.0, 89)
# A factor that differs from that of a sample needs evidence: the weight of a prior for log a.
_SAMPLE_WEIGHT = 2.0
# A set of attributes counts with at most this much evidence for the common factor: sets for which a
# prior is wrong must not decide for all other sets.
_MOST_EVIDENCE = 8.0
# The common factor counts as this many coefficients of each set.
_COMMON_WEIGHT = 4.0
# The numbers of records that are compared, in standard deviations from the noisy number.
_DEVIATIONS = np.linspace(-4.0, 4.0, 65)


@dataclasses.dataclass(frozen=True)
class Learned:
    """What noisy coefficients say about a prior.

    ``variances``: of the difference between the table and the prior, a s, shape (num_coefficients,)
    ``total``: the number of records that explains the noisy coefficients best.
    ``misfit``: -2 times the log-likelihood, up to a constant; smaller for a better prior.
    """

    factors: NDArray[np.float64]
    variances: NDArray[np.float64]
    total: float
    misfit: float


def learned(
    basis: Basis,
    observed: NoisyCoefficients,  # in records
    total: float,
    prior: NDArray[np.float64],  # log-weights, shape (num_coefficients,)
    num_records: float,  # of the prior
) -> Learned:
    """Returns the variances that explain best how noisy coefficients differ from a prior."""
    expected = basis.log_moments(prior, math.log(basis.num_cells))[1]
    of_draws = independent_variances(basis, prior)
    singles = [support for support in basis.slices if len(support) == 1]
    place, scale = basis.slices[()], math.sqrt(squared_scale(basis, (), ()))
    deviation = scale * math.sqrt(observed.variances[place][0])
    number = float(total)
    if 0 < deviation < math.inf:
        # A noisy number of records scales all expected counts, so the counts of attributes tell
        # something about the number, too. Without this, good records would seem to be wrong.
        numbers = np.maximum(scale * observed.values[place][0] + _DEVIATIONS * deviation, 1.0)
        misfits = [
            _factors(basis, singles, observed, guess, expected, of_draws, num_records)[1]
            for guess in numbers
        ]
        number = float(numbers[int(np.argmin(misfits + _DEVIATIONS**2))])
    factors, misfit = _factors(
        basis, basis.supports, observed, number, expected, of_draws, num_records
    )
    return Learned(factors, factors * number * of_draws, number, misfit)


def _factors(
    basis: Basis,
    supports: Iterable[Support],
    observed: NoisyCoefficients,
    total: float,
    expected: NDArray[np.float64],
    of_draws: NDArray[np.float64],
    num_records: float,
) -> tuple[NDArray[np.float64], float]:
    """Returns the factor of every coefficient, and -2 times the log-likelihood."""
    squares = (observed.values - total * expected) ** 2
    of_sample = math.log1p(total / num_records)
    by_order: dict[int, list[tuple[slice, NDArray[np.float64]]]] = {}
    for support in supports:
        where = basis.slices[support]
        if support and where.start < where.stop and np.isfinite(observed.variances[where]).all():
            curve = _misfits(squares[where], observed.variances[where], total * of_draws[where])
            by_order.setdefault(len(support), []).append((where, curve))
    factors, misfit = np.ones(basis.num_coefficients), 0.0
    for curves in by_order.values():
        common = _common([curve for _, curve in curves], of_sample)
        away = _LOG_FACTORS - common
        for where, curve in curves:
            # The penalty is the -2 log-likelihood of ``_COMMON_WEIGHT`` usual coefficients.
            place = int(np.argmin(curve + _COMMON_WEIGHT * (np.exp(-away) + away)))
            factors[where] = math.exp(_LOG_FACTORS[place])
            misfit += float(curve[place])
    return factors, misfit


def _misfits(
    squares: NDArray[np.float64], of_noise: NDArray[np.float64], of_draws: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Returns -2 times the log-likelihood of each factor, shape (number of factors,)."""
    result = np.empty(len(_LOG_FACTORS))
    for place, factor in enumerate(np.exp(_LOG_FACTORS)):
        variances = of_noise + factor * of_draws
        result[place] = (np.log(variances) + squares / variances).sum()
    return result


def _common(curves: Sequence[NDArray[np.float64]], of_sample: float) -> float:
    """Returns the logarithm of the factor that explains most sets of attributes."""
    penalty: NDArray[np.float64] = _SAMPLE_WEIGHT * np.log1p((_LOG_FACTORS - of_sample) ** 2)
    for curve in curves:
        penalty = penalty + np.minimum(curve - curve.min(), _MOST_EVIDENCE)
    return float(_LOG_FACTORS[int(np.argmin(penalty))])


@on_one_thread
def fit_from_prior(
    basis: Basis,
    observed: NoisyCoefficients,
    total: float,
    importance: NDArray[np.float64],
    prior: NDArray[np.float64],
    posterior: Learned,
    tolerance: float,
) -> Fit:
    """Returns the most likely hypothesis, given noisy coefficients and a prior.

    ``total``: the number of records of the hypothesis, > 0.
    ``importance``: the weight of each coefficient's squared error, shape (num_coefficients,), >= 0.
    ``prior``: its log-weights, shape (num_coefficients,).
    ``posterior``: what ``learned`` returns for the same arguments.

    Accuracy: the estimated error is that of the best linear estimate: v a s / (v + a s).
    """
    chosen = observed.fitted(basis)
    # One penalty for all coefficients, and variances that differ from those of the noise by the
    # ratio of the factors, are the same as a penalty of each coefficient's own.
    usual = math.exp(float(np.median(np.log(posterior.factors[chosen])))) if len(chosen) else 1.0
    relative = NoisyCoefficients(observed.values, observed.variances * (usual / posterior.factors))
    log_weights = refit(basis, relative, posterior.total, prior, 1 / usual, tolerance)
    fitted = total * basis.log_moments(log_weights, math.log(basis.num_cells))[1][chosen]
    of_noise, of_prior = observed.variances[chosen], posterior.variances[chosen]
    left = importance[chosen] @ (of_noise * of_prior / (of_noise + of_prior))
    away = (fitted - observed.values[chosen]) ** 2 / of_noise
    return Fit(
        log_weights=log_weights,
        steps=1,
        estimated_error=math.sqrt(left),
        mismatch=float(np.mean(away)) if len(chosen) else 0.0,
        is_from_start=True,
    )

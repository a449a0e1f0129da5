"""Reduces the noise in the counts of single attributes, by post-processing.

The counts of one attribute have structure: counts are not negative, most counts of a long attribute
are small, and counts of adjacent ordered codes are similar or jump. The model is a hidden Markov
chain: a code's count is 0, or follows a distribution that all codes share, or, for ordered codes,
resembles the count of the preceding code. The share of small counts and the similarity of adjacent
counts are learned from the noisy counts, too, so a meaningless order has little effect. The
posterior means replace the noisy counts only in the fit of a hypothesis: published measurements and
stated errors do not change.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.ordered import OrderedAttribute
from beam_dp.domain.universe import Domain
from beam_dp.models.basis import (
    Coefficients,
    coefficients_table,
    contrast_matrix,
    table_coefficients,
)
from beam_dp.models.maximum_entropy import NoisyCoefficients

# Shorter attributes have too few counts to learn from; longer attributes would take too long.
_MIN_CODES, _MAX_CODES = 8, 4096
# Counts are sorted into bins of equal width on the scale of asinh(count / noise deviation), which
# is linear for counts below the noise and logarithmic above it. Within a bin, counts are uniform.
_BINS = 64
_ZERO_SHARE = 0.25  # the prior probability of a count of 0
# The weight of the prior on the shared distribution, as a number of codes.
_SUPPOSED_CODES = 20.0
# The width of the blur of the shared distribution, on the scale of the bins: a few codes cannot
# determine finer detail.
_BLUR = 0.3
_INDEPENDENT_PASSES, _CHAIN_PASSES = 8, 3
# The parameters of the chains: the probability that a count resembles the preceding count, and the
# width of the resemblance on the scale of the bins. Results are averaged, weighted by likelihood.
_CHAINS = ((0.6, 0.2), (0.6, 0.5), (0.95, 0.1), (0.95, 0.2), (0.95, 0.4), (0.95, 0.8))
# The variance of an estimate is at least this share of the noise's variance.
_LEAST_VARIANCE = 0.05
# Noisy counts more than this number of noise deviations below 0 are raised to that point.
_FAR = 8.0


def denoised(
    domain: Domain, basis: Coefficients, observed: NoisyCoefficients, total: float
) -> NoisyCoefficients:
    """Returns noisy coefficients, with better estimates for single attributes.

    Coefficients of attributes with fewer than 8 codes, and of several attributes, do not change.
    The variances describe the remaining errors, which are neither unbiased nor independent: use the
    variances for a fit, not for stated errors.
    """
    values, variances = observed.values.copy(), observed.variances.copy()
    for axis, attribute in enumerate(domain.attributes):
        where = basis.slices.get((axis,))
        if where is None or not _MIN_CODES <= attribute.size <= _MAX_CODES:
            continue
        if not np.isfinite(variances[where]).all():
            continue
        # The attribute's own table has the basis's coefficients times ``scale``.
        scale = math.sqrt(basis.cells_summed((axis,)))
        deviation = math.sqrt(variances[where][0]) * scale
        noisy = coefficients_table(values[where] * scale, (attribute.size,))
        counts = denoised_counts(
            noisy + total / attribute.size, deviation, total, follows_before(attribute)
        )
        values[where] = table_coefficients(counts.means) / scale
        left = contrast_matrix(attribute.size) ** 2 @ counts.variances / scale**2
        # A posterior with two modes can have more variance than the noise: limit the variance.
        variances[where] = np.clip(left, _LEAST_VARIANCE * variances[where], variances[where])
    return NoisyCoefficients(values, variances)


def follows_before(attribute: Attribute) -> NDArray[np.bool_]:
    """Returns a mask of the codes that come directly after a code in the attribute's order."""
    is_ordered = isinstance(attribute, OrderedAttribute)
    codes = np.arange(attribute.size)
    return (codes > 0) & (codes < attribute.num_levels) & is_ordered


@dataclasses.dataclass(frozen=True)
class CountEstimates:
    """Posterior means, which sum to the number of records, and variances of counts."""

    means: NDArray[np.float64]
    variances: NDArray[np.float64]


def denoised_counts(
    noisy: NDArray[np.float64], deviation: float, total: float, follows: NDArray[np.bool_]
) -> CountEstimates:
    """Returns the posterior means and variances of counts.

    ``noisy``: the counts with Gaussian noise, shape (num_codes,), records.
    ``deviation``: the standard deviation of the noise of every count, > 0.
    ``follows``: True for codes that may resemble the preceding code, shape (num_codes,).

    Reference: Rabiner (1989) for the passes along a chain; Efron (2014) for a prior learned from
    the same data.
    """
    bins = _Bins.of(noisy, deviation, total)
    shared = np.tile(bins.supposed, (len(noisy), 1))
    for _ in range(_INDEPENDENT_PASSES):
        shared = _shared(_normalised(shared * bins.likelihoods), bins)
    fits = [_independent(shared, bins)]
    if follows.any():
        fits += [_along(chain, shared, bins, follows) for chain in _CHAINS]
    evidences = np.array([evidence for evidence, _ in fits])
    shares = np.exp(evidences - evidences.max())
    posterior = np.tensordot(shares / shares.sum(), [counts for _, counts in fits], 1)
    means = (posterior * bins.means).sum(axis=1)
    variances = (posterior * (bins.variances + bins.means**2)).sum(axis=1) - means**2
    variances = np.maximum(variances, _LEAST_VARIANCE**2 * deviation**2)
    # Distribute the difference to the total like a Gaussian posterior conditioned on the total.
    means += variances * (total - means.sum()) / variances.sum()
    return CountEstimates(means, variances)


@dataclasses.dataclass(frozen=True)
class _Bins:
    """Bins of counts, the first exactly 0, with the likelihoods of the noisy counts."""

    middles: NDArray[np.float64]  # midpoints of asinh(count / deviation), shape (num_bins,)
    supposed: NDArray[np.float64]  # the prior distribution of a code's bin, shape (num_bins,)
    likelihoods: NDArray[np.float64]  # of noisy counts, scaled per code, (num_codes, num_bins)
    means: NDArray[np.float64]  # of a code's count given its bin, shape (num_codes, num_bins)
    variances: NDArray[np.float64]

    @classmethod
    def of(cls, noisy: NDArray[np.float64], deviation: float, total: float) -> _Bins:
        """Returns the bins of the noisy counts (see ``denoised_counts``)."""
        from scipy.special import ndtr  # readers of releases need no scipy

        scaled = np.maximum(noisy / deviation, -_FAR)[:, None]
        edges = np.linspace(0, math.asinh(max(total / deviation, scaled.max() + _FAR)), _BINS + 1)
        low, high = np.sinh(edges[:-1]), np.sinh(edges[1:])
        left, right = low - scaled, high - scaled
        # Use the tail in which the distribution function is small and therefore precise.
        side = np.where(left > 0, -1.0, 1.0)
        chances = np.abs(ndtr(side * right) - ndtr(side * left))
        is_possible = chances > np.finfo(float).tiny
        divisor = np.where(is_possible, chances, 1.0)
        # The mean of the normal distribution truncated to the bin.
        shift = (_density(left) - _density(right)) / divisor
        spread = 1 + (left * _density(left) - right * _density(right)) / divisor - shift**2
        means = np.where(is_possible, np.clip(scaled + shift, low, high), (low + high) / 2)
        variances = np.clip(np.where(is_possible, spread, 0), 0, np.minimum((high - low) ** 2, 1))
        likelihoods = np.hstack([_density(scaled), chances / (high - low)])
        nothing = np.zeros_like(scaled)
        return cls(
            middles=np.append(0.0, (edges[:-1] + edges[1:]) / 2),
            supposed=np.append(_ZERO_SHARE, np.full(_BINS, (1 - _ZERO_SHARE) / _BINS)),
            likelihoods=likelihoods / likelihoods.max(axis=1, keepdims=True),
            means=deviation * np.hstack([nothing, means]),
            variances=deviation**2 * np.hstack([nothing, variances]),
        )

    def alike(self, closeness: float) -> NDArray[np.float64]:
        """Returns, for each bin of a count (a row), the distribution of a similar count's bin."""
        distances = (self.middles[:, None] - self.middles) / closeness
        return _normalised(np.exp(-0.5 * distances**2) * self.supposed)


def _independent(shared: NDArray[np.float64], bins: _Bins) -> tuple[float, NDArray[np.float64]]:
    """Returns the log-likelihood and the posterior for independent codes."""
    joint = shared * bins.likelihoods
    return float(np.log(joint.sum(axis=1)).sum()), _normalised(joint)


def _along(
    chain: tuple[float, float],
    shared: NDArray[np.float64],  # initial distributions, one row per code
    bins: _Bins,
    follows: NDArray[np.bool_],
) -> tuple[float, NDArray[np.float64]]:
    """Returns the log-likelihood and the posterior of codes in a chain."""
    chance, closeness = chain
    alike = bins.alike(closeness)
    chances = np.where(follows, chance, 0.0)
    for _ in range(_CHAIN_PASSES):
        evidence, posterior, afresh = _passes(chances, shared, alike, bins.likelihoods)
        shared = _shared(afresh, bins)
    return evidence, posterior


def _passes(
    chances: NDArray[np.float64],  # that a code resembles the preceding one, shape (num_codes,)
    shared: NDArray[np.float64],  # of a code that starts a run, shape (num_codes, num_bins)
    alike: NDArray[np.float64],
    likelihoods: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Returns the log-likelihood, the posterior, and the posterior of codes that start a run."""
    posterior, sums = np.empty_like(likelihoods), np.empty(len(likelihoods))
    before = shared[0]
    for code, chance in enumerate(chances):
        expected = (1 - chance) * shared[code] + chance * (before @ alike)
        posterior[code] = expected * likelihoods[code]
        sums[code] = posterior[code].sum()
        posterior[code] /= sums[code]
        before = posterior[code]
    afresh = np.empty_like(likelihoods)
    behind = np.ones_like(before)
    for code in range(len(chances) - 1, -1, -1):
        posterior[code] *= behind
        shares = likelihoods[code] * behind / sums[code]
        afresh[code] = (1 - chances[code]) * shared[code] * shares
        behind = afresh[code].sum() + chances[code] * (alike @ shares)
    return float(np.log(sums).sum()), posterior, afresh


def _shared(codes: NDArray[np.float64], bins: _Bins) -> NDArray[np.float64]:
    """Returns, for each code, the shared distribution learned from all other codes.

    A code's own noisy count is left out, because it would otherwise keep more of its noise.

    ``codes``: per code, the joint probability of each bin and of starting a new run, shape
    (num_codes, num_bins).
    """
    others = codes.sum(axis=0) - codes
    return _normalised(others @ bins.alike(_BLUR) + _SUPPOSED_CODES * bins.supposed)


def _normalised(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    normalised: NDArray[np.float64] = rows / rows.sum(axis=1, keepdims=True)
    return normalised


def _density(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    density: NDArray[np.float64] = np.exp(-0.5 * scaled**2) / math.sqrt(2 * math.pi)
    return density

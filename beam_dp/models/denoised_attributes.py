"""Single attributes with less noise than was measured: post-processing of their noisy counts.

The counts of one attribute say more together than each says alone: they are not negative, most
counts of a long attribute are small, and neighbours on an order are alike, or jump. This is a
hidden Markov chain: a code's count is 0, or follows a distribution that all codes share, or, on an
order, resembles the count of the code before it. How many counts are small and how much neighbours
are alike is learned from the same noisy counts, so a meaningless order gains and loses little. The
posterior means replace the noisy counts only in the fit of a hypothesis: published measurements
and stated errors stay as they were.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

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

# Shorter attributes have too few counts to learn from. Longer ones would take too long.
_MIN_CODES, _MAX_CODES = 8, 4096
# Counts are sorted into bins, even on the scale of asinh(count / standard deviation of the noise):
# linear where noise hides a count, logarithmic above. Within a bin any count is as likely.
_BINS = 64
_ZERO_SHARE = 0.25  # of what is supposed beforehand: counts that are 0
# What is supposed beforehand of the distribution that codes share weighs as much as so many codes.
_SUPPOSED_CODES = 20.0
# It is blurred so much, on the scale of the bins: a few codes tell no finer.
_BLUR = 0.3
_INDEPENDENT_PASSES, _CHAIN_PASSES = 8, 3
# Chains that are compared: how often a count resembles the one before it, and how closely, on
# the scale of the bins. What they say is averaged by how well each explains the noisy counts.
_CHAINS = ((0.6, 0.2), (0.6, 0.5), (0.95, 0.1), (0.95, 0.2), (0.95, 0.4), (0.95, 0.8))
# An estimate is never trusted beyond this share of the noise's variance.
_LEAST_VARIANCE = 0.05
# Standard deviations of the noise below 0 at which a count is as surely 0 as below them.
_FAR = 8.0


def denoised(
    domain: Domain, basis: Coefficients, observed: NoisyCoefficients, total: float
) -> NoisyCoefficients:
    """Returns noisy coefficients, those of single attributes estimated from all of their counts.

    Attributes of fewer than 8 codes, and all coefficients of several attributes, are as observed.
    Variances are of the remaining errors, which are neither unbiased nor independent: they serve
    a fit, not a statement of errors.
    """
    values, variances = observed.values.copy(), observed.variances.copy()
    for axis, attribute in enumerate(domain.attributes):
        where = basis.slices.get((axis,))
        if where is None or not _MIN_CODES <= attribute.size <= _MAX_CODES:
            continue
        if not np.isfinite(variances[where]).all():
            continue
        # The coefficients of the attribute's own table are the basis's times this.
        scale = math.sqrt(basis.cells_summed((axis,)))
        deviation = math.sqrt(variances[where][0]) * scale
        noisy = coefficients_table(values[where] * scale, (attribute.size,))
        counts = denoised_counts(
            noisy + total / attribute.size, deviation, total, follows_before(attribute)
        )
        values[where] = table_coefficients(counts.means) / scale
        left = contrast_matrix(attribute.size) ** 2 @ counts.variances / scale**2
        # A count that may be one of two can look worse than measured: it is not.
        variances[where] = np.clip(left, _LEAST_VARIANCE * variances[where], variances[where])
    return NoisyCoefficients(values, variances)


def follows_before(attribute: Attribute) -> NDArray[np.bool_]:
    """Returns which codes follow the code before them on an order; codes of categories do not."""
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
    ``deviation``: of the noise of each, > 0.
    ``follows``: which codes may resemble the one before them, shape (num_codes,).

    Reference: Rabiner (1989) for the passes along a chain; Efron (2014) for a prior that is
    learned from what it is used on.
    """
    bins = _Bins.of(noisy, deviation, total)
    shared = np.tile(bins.supposed, (len(noisy), 1))
    for _ in range(_INDEPENDENT_PASSES):
        shared = _shared(_normalised(shared * bins.likelihoods), bins)
    found = [_independent(shared, bins)]
    if follows.any():
        found += [_along(chain, shared, bins, follows) for chain in _CHAINS]
    evidences = np.array([evidence for evidence, _ in found])
    shares = np.exp(evidences - evidences.max())
    posterior = np.tensordot(shares / shares.sum(), [each for _, each in found], 1)
    means = (posterior * bins.means).sum(axis=1)
    variances = (posterior * (bins.variances + bins.means**2)).sum(axis=1) - means**2
    variances = np.maximum(variances, _LEAST_VARIANCE**2 * deviation**2)
    # What is missing of the total is shared out as a Gaussian posterior would, given the total.
    means += variances * (total - means.sum()) / variances.sum()
    return CountEstimates(means, variances)


@dataclasses.dataclass(frozen=True)
class _Bins:
    """Bins of counts, the first of which is exactly 0, and what noisy counts say of them.

    ``middles``: on the scale of asinh(count / deviation), shape (num_bins,).
    ``supposed``: what is supposed beforehand of a code, same shape, sums to 1.
    ``likelihoods``: of each code's noisy count, shape (num_codes, num_bins); scaled by code.
    ``means``: of the code's count, were it in the bin, same shape.
    """

    middles: NDArray[np.float64]
    supposed: NDArray[np.float64]
    likelihoods: NDArray[np.float64]
    means: NDArray[np.float64]
    variances: NDArray[np.float64]

    @classmethod
    def of(cls, noisy: NDArray[np.float64], deviation: float, total: float) -> _Bins:
        """Returns the bins of noisy counts, as of ``denoised_counts``."""
        scaled = np.maximum(noisy / deviation, -_FAR)[:, None]
        edges = np.linspace(0, math.asinh(max(total / deviation, scaled.max() + _FAR)), _BINS + 1)
        low, high = np.sinh(edges[:-1]), np.sinh(edges[1:])
        left, right = low - scaled, high - scaled
        # Both ends on the side where the distribution function is small, and so exact.
        side = np.where(left > 0, -1.0, 1.0)
        chances = np.abs(ndtr(side * right) - ndtr(side * left))
        is_possible = chances > np.finfo(float).tiny
        divisor = np.where(is_possible, chances, 1.0)
        # A normal distribution that is cut off at both ends of a bin.
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
        """Returns the distribution of a count that resembles another, a row for each bin of it."""
        distances = (self.middles[:, None] - self.middles) / closeness
        return _normalised(np.exp(-0.5 * distances**2) * self.supposed)


def _independent(shared: NDArray[np.float64], bins: _Bins) -> tuple[float, NDArray[np.float64]]:
    """Returns the log-likelihood and the posterior of codes that resemble no other."""
    joint = shared * bins.likelihoods
    return float(np.log(joint.sum(axis=1)).sum()), _normalised(joint)


def _along(
    chain: tuple[float, float],
    shared: NDArray[np.float64],
    bins: _Bins,
    follows: NDArray[np.bool_],
) -> tuple[float, NDArray[np.float64]]:
    """Returns the log-likelihood and the posterior of codes along a chain.

    ``shared``: distributions of codes that resemble none, to start from, a row for each code.
    """
    chance, closeness = chain
    alike = bins.alike(closeness)
    chances = np.where(follows, chance, 0.0)
    for _ in range(_CHAIN_PASSES):
        evidence, posterior, afresh = _passes(chances, shared, alike, bins.likelihoods)
        shared = _shared(afresh, bins)
    return evidence, posterior


def _passes(
    chances: NDArray[np.float64],
    shared: NDArray[np.float64],
    alike: NDArray[np.float64],
    likelihoods: NDArray[np.float64],
) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """Returns the log-likelihood, the posterior, and that of being in a bin and resembling no code.

    ``chances``: that a code resembles the one before it, shape (num_codes,).
    ``shared``: distribution of a code that does not, shape (num_codes, num_bins), as posteriors.
    """
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
        told = likelihoods[code] * behind / sums[code]
        afresh[code] = (1 - chances[code]) * shared[code] * told
        behind = afresh[code].sum() + chances[code] * (alike @ told)
    return float(np.log(sums).sum()), posterior, afresh


def _shared(codes: NDArray[np.float64], bins: _Bins) -> NDArray[np.float64]:
    """Returns, for each code, the distribution that it shares with the others.

    Learned from the others alone: a noisy count that had a say in it would keep more of its noise.

    ``codes``: how likely each is in a bin and resembles none, shape (num_codes, num_bins).
    """
    others = codes.sum(axis=0) - codes
    return _normalised(others @ bins.alike(_BLUR) + _SUPPOSED_CODES * bins.supposed)


def _normalised(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    normalised: NDArray[np.float64] = rows / rows.sum(axis=1, keepdims=True)
    return normalised


def _density(scaled: NDArray[np.float64]) -> NDArray[np.float64]:
    density: NDArray[np.float64] = np.exp(-0.5 * scaled**2) / math.sqrt(2 * math.pi)
    return density

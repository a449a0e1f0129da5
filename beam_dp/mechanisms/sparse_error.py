"""How wrong answers of sparse mechanisms will be, in closed form, from public numbers alone.

All errors are root mean squares over noise, hash and random queries of value 1 on m keys that are
chosen uniformly among those of the profile.

The cell of a row of w cells that an absent key looks at holds the noise and, with random signs, a
Poisson number of keys of each count c, keys(c) / w in the mean. Its characteristic function is that
of the noise times exp(sum of keys(c) / w (cos(c t) - 1)); Fourier's transform gives its law on the
integers, from which the variances of medians and clipped means follow.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from beam_dp.hashing.folding import collisions
from beam_dp.mechanisms.key_profile import KeyProfile
from beam_dp.mechanisms.sparse_plan import HistogramNoise, SketchNoise, SparsePlan
from beam_dp.releases.sketch_estimates import clipped_mean, noise_variance

Groups = tuple[NDArray[np.float64], NDArray[np.float64]]

_LEAST_GRID, _MOST_GRID = 2**12, 2**17
_GRID_SCALES = 64
_SAMPLES = 2**15


def sparse_error(plan: SparsePlan, profile: KeyProfile, sparsity: int) -> float:
    """Returns the root mean squared error of a plan's answers to queries of one sparsity.

    Args:
        plan: of any sparse mechanism.
        profile: the keys.
        sparsity: m.

    Returns:
        The error, in weight, where every record weighs one.

    * One mean over rows: sqrt(m (v / R + |x|^2 / T)) for a noise of variance v, R rows and T cells.
    * Medians and clipped means of rows: sqrt(m V), V from the law of a cell.
    * A histogram: sqrt(m p v) for the share p of keys that reach the threshold, and the sum of the
      counts that do not.
    * A hybrid: a sketch of the residual; a key that is held has both its count and the residual.

    Cost: a few Fourier transforms of up to 2^17 numbers.
    """
    groups = profile.groups
    if plan.histogram is None:
        assert plan.sketch is not None
        alone = element_variance(plan.sketch, groups)
        noise = element_variance(plan.sketch, (np.zeros(1), np.zeros(1)))
        return math.sqrt(sparsity * (noise + _pairs(groups, sparsity) * (alone - noise)))
    if plan.sketch is None:
        return _histogram_error(plan.histogram, groups, sparsity)
    return _hybrid_error(plan.sketch, plan.histogram, groups, sparsity)


def _pairs(groups: Groups, sparsity: int) -> float:
    """Returns how much more hashing adds to a query than to its elements alone.

    Two elements of one query that share a cell err alike: (m |x|^2 + <q, x>^2 - 2 sum q^2 x^2) / T
    against m |x|^2 / T. It is 1 for queries of a small part of all keys.
    """
    counts, keys = groups
    number = float(keys.sum())
    mean, square = float(keys @ counts) / number, float(keys @ counts**2) / number
    return max(0.0, 1 + ((sparsity - 1) * mean**2 - square) / (number * square))


def element_variance(
    sketch: SketchNoise, groups: Groups, residual_noise: tuple[float, float] = (0.0, 1.0)
) -> float:
    """Returns the variance of the estimate of one element.

    Args:
        sketch: the projection and its noise.
        groups: counts, and how many keys have each.
        residual_noise: how many keys have left Laplace noise in the sketch, and its scale.
    """
    counts, keys = groups
    noise = noise_variance(sketch.distribution, sketch.scale)
    if sketch.estimator == "mean":
        held, scale = residual_noise
        squared = float(keys @ counts**2) + held * noise_variance("discrete_laplace", scale)
        width = float(sketch.projection_width)
        if sketch.family == "blocks":
            width /= collisions(sketch.projection_width // sketch.num_blocks)
        return noise / sketch.num_blocks + squared / width
    law = cell_law(sketch, groups, residual_noise)
    if sketch.estimator == "median":
        return _median_variance(law, sketch.num_blocks)
    return _clipped_variance(law, sketch.num_blocks, sketch.scale)


def cell_law(
    sketch: SketchNoise, groups: Groups, residual_noise: tuple[float, float] = (0.0, 1.0)
) -> NDArray[np.float64]:
    """Returns the law of a cell of a row: P(cell = z) for z from 0 up; it is symmetric.

    Counts of more than half the grid are taken as half of it: an estimator that clips does not
    care how large such a cell is.
    """
    counts, keys = groups
    width = sketch.projection_width // sketch.num_blocks
    typical = math.sqrt(float(keys @ np.minimum(counts, 1024.0) ** 2) / width)
    wanted = _GRID_SCALES * (sketch.scale + typical)
    size = int(min(max(2.0 ** math.ceil(math.log2(wanted)), _LEAST_GRID), _MOST_GRID))
    angles = np.linspace(0, np.pi, size // 2 + 1)
    whole = np.minimum(counts, size // 4)
    # Neighbouring whole counts share what lies between them.
    below = np.floor(whole)
    expected = np.bincount(below.astype(int), keys * (1 - (whole - below)), size // 4 + 2)
    expected += np.bincount(below.astype(int) + 1, keys * (whole - below), size // 4 + 2)
    # The sum of expected(c) cos(c t) over all angles is one transform.
    spread = np.zeros(size)
    spread[: len(expected)] = expected
    log_value: NDArray[np.float64] = (np.fft.rfft(spread).real - expected.sum()) / width
    held, scale = residual_noise
    log_value = log_value + held / width * (_laplace_transform(angles, scale) - 1)
    if sketch.distribution == "discrete_laplace":
        transform = _laplace_transform(angles, sketch.scale)
    else:
        transform = np.exp(-0.5 * (sketch.scale * angles) ** 2)
    law = np.fft.irfft(transform * np.exp(log_value), size)[: size // 2]
    law = np.maximum(law, 0.0)
    return np.asarray(law / (2 * law.sum() - law[0]))


def _laplace_transform(angles: NDArray[np.float64], scale: float) -> NDArray[np.float64]:
    ratio = math.exp(-1 / scale)
    return (1 - ratio) ** 2 / (1 - 2 * ratio * np.cos(angles) + ratio**2)


def _median_variance(law: NDArray[np.float64], num_rows: int) -> float:
    """E median^2 = the sum of (2 t + 1) P(|median| > t), and P(median > t) is a binomial tail."""
    above = np.append(np.cumsum(law[::-1])[::-1], 0.0)[1:]  # P(cell > t)
    passing = 2 * binom.sf(num_rows // 2, num_rows, above)
    return float((2 * np.arange(len(law)) + 1) @ passing)


def _clipped_variance(law: NDArray[np.float64], num_rows: int, scale: float) -> float:
    """The median's variance, exactly, times the ratio of the two on fixed quantiles."""
    below = np.cumsum(np.concatenate([law[:0:-1], law]))
    # Points that fill the cube evenly (Roberts, 2018): no randomness, and the same each time.
    golden = 2.0
    for _ in range(60):
        golden = (1 + golden) ** (1 / (num_rows + 1))
    steps = golden ** -np.arange(1, num_rows + 1)
    points = (0.5 + np.arange(1, _SAMPLES + 1)[:, None] * steps) % 1.0
    rows = np.searchsorted(below, points * below[-1]).astype(np.float64) - (len(law) - 1)
    medians = float((np.median(rows, axis=1) ** 2).mean())
    if medians == 0:
        return 0.0
    clipped = float((clipped_mean(rows, scale) ** 2).mean())
    return _median_variance(law, num_rows) + clipped - medians


def held_share(histogram: HistogramNoise, counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the probability that a key of each count reaches the threshold."""
    ratio = math.exp(-1 / histogram.scale)
    short = histogram.threshold - counts
    above = np.exp(-np.maximum(short, 0.0) / histogram.scale) / (1 + ratio)
    below = 1 - np.exp((np.minimum(short, 0.0) - 1) / histogram.scale) / (1 + ratio)
    return np.where(short > 0, above, below)


def _histogram_error(histogram: HistogramNoise, groups: Groups, sparsity: int) -> float:
    counts, keys = groups
    share = keys / keys.sum()
    held = held_share(histogram, counts)
    noise = noise_variance("discrete_laplace", histogram.scale)
    missed = float(share @ (counts * (1 - held)))
    spread = float(share @ (counts**2 * (1 - held))) - missed**2
    kept = float(share @ held) * noise
    return math.sqrt(sparsity * (kept + max(0.0, spread)) + (sparsity * missed) ** 2)


def _hybrid_error(
    sketch: SketchNoise, histogram: HistogramNoise, groups: Groups, sparsity: int
) -> float:
    counts, keys = groups
    held = held_share(histogram, counts)
    residual = (counts, keys * (1 - held))
    num_held = float(keys @ held)
    variance = element_variance(sketch, residual, (num_held, histogram.scale))
    noise = noise_variance("discrete_laplace", histogram.scale)
    both = noise * variance / (noise + variance)
    share = num_held / float(keys.sum())
    return math.sqrt(sparsity * (share * both + (1 - share) * variance))

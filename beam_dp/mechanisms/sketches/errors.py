"""Predicted errors of mechanisms for sparse queries, in closed form.

All errors are root mean squares over noise, hash and random queries of value 1 on m keys that are
chosen uniformly from the keys of the profile.

Let keys(c) be the number of keys with count c. In a row of w cells, a cell contains noise plus, for
each count c, a Poisson number of keys (mean keys(c) / w), each with a random sign. The cell's
characteristic function is the noise's times exp(sum of keys(c) / w (cos(c t) - 1)). A Fourier
transform gives the cell's distribution on the integers, and so the variances of medians and clipped
means.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer
from beam_dp.errors import InputError, magnitude
from beam_dp.flags.flag import integer, option
from beam_dp.mechanisms.sketches.plan import SparsePlan
from beam_dp.privacy.noise.bound import noise_variance
from beam_dp.releases.sketches.estimates import clipped_mean
from beam_dp.releases.sketches.release import HistogramNoise, SketchNoise

_EXACT_RANKS = 1024
_RANKS_A_GROUP = 1.01
_LEAST_SHAPE, _MOST_SHAPE = 1e-9, 1e6


@dataclasses.dataclass(frozen=True)
class KeyProfile:
    """A model of the counts of keys: counts fall with the rank as in a generalised Pareto law.

    The key of rank r out of N has f (((N + 1) / r)^s - 1) / s records, but at least one. The three
    arguments determine the factor f and the shape s. The shape is minus infinity for equal counts,
    -1 for uniform counts, 0 for geometric counts and positive for power laws: about 1.1 for words
    and web pages. For any data, excesses over a high threshold approach this law (Pickands, 1975).
    Unless all counts are similar, the model has keys with few records, as real tables do; a power
    law from the largest to the smallest count does not have such keys.

    Privacy does not depend on the profile. With a wrong profile, predictions are wrong, so the
    chosen plan may not be the best.

    Args:
        num_records: the sum of all counts; public, or a public guess.
        num_keys: the number of distinct keys; public, or a public guess.
        largest_count: the largest count of one key; public, or a public guess.

    Raises:
        InputError: if num_records exceeds num_keys * largest_count, or if less than one record per
            key remains for the other keys if one has ``largest_count``.

    Example:
        >>> counts, keys = KeyProfile(10**6, 10**6, 1).groups
        >>> float(keys @ counts**2)
        1000000.0
    """

    num_records: int = dataclasses.field(
        metadata=option("auto: a public guess of the number of records", "N", integer)
    )
    num_keys: int = dataclasses.field(
        metadata=option("auto: a public guess of the number of distinct keys", "N", integer)
    )
    largest_count: int = dataclasses.field(
        metadata=option(
            "auto: a public guess of the number of records of the most frequent key", "N", integer
        )
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            checked_integer(field.name, getattr(self, field.name), 1, 2**50)
        least = self.largest_count + self.num_keys - 1
        largest = self.num_keys * self.largest_count
        if not least <= self.num_records <= largest:
            condition = (
                f"must be from largest_count + num_keys - 1 = {magnitude(least)}"
                f" to num_keys * largest_count = {magnitude(largest)}"
            )
            raise InputError("num_records", self.num_records, condition)

    @cached_property
    def groups(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Groups of adjacent ranks: per group, the count of each key and the number of keys."""
        from scipy.optimize import brentq  # imported here because it loads slowly

        num_keys, largest = self.num_keys, self.largest_count
        edges = [*range(1, min(_EXACT_RANKS, num_keys) + 1)]
        while edges[-1] < num_keys:
            edges.append(min(num_keys, math.ceil(edges[-1] * _RANKS_A_GROUP)))
        ends = np.array(edges, np.float64)
        keys = np.diff(ends, prepend=0.0)
        ranks = ends - (keys - 1) / 2
        logs = np.log(ranks / (num_keys + 1))

        def counts(shape: float) -> NDArray[np.float64]:
            # This formula starts from the largest count, so that powers don't overflow.
            if abs(shape) < _LEAST_SHAPE:
                falling = logs / logs[0]
            else:
                falling = np.expm1(abs(shape) * logs) / np.expm1(abs(shape) * logs[0])
                falling *= ranks ** -max(shape, 0.0)
            # Every counted key has at least one record.
            return np.asarray(np.maximum(largest * falling, 1.0))

        # The sum falls as the shape grows. The shape is unbounded, so the search is over the angle
        # whose tangent is the shape.
        def excess(turned: float) -> float:
            return float(keys @ counts(math.tan(turned))) - self.num_records

        if num_keys == 1:
            return np.array([float(largest)]), keys
        low, high = math.atan(-_MOST_SHAPE), math.atan(_MOST_SHAPE)
        if excess(low) <= 0:
            return np.full(len(keys), self.num_records / num_keys), keys
        if excess(high) >= 0:
            return counts(_MOST_SHAPE), keys
        return counts(math.tan(float(brentq(excess, low, high)))), keys


Groups = tuple[NDArray[np.float64], NDArray[np.float64]]

_LEAST_GRID, _MOST_GRID = 2**12, 2**17
_GRID_SCALES = 64
_SAMPLES, _FEW_SAMPLES = 2**15, 2**11
_SHIFTS = 16


@dataclasses.dataclass(frozen=True)
class ErrorLaw:
    """The predicted errors of a plan's answers, for queries of all sparsities."""

    variance: float  # the mean squared error of the estimate for one key
    covariance: float  # the mean product of the errors of the estimates for two keys
    num_keys: int

    def error(self, sparsity: int) -> float:
        """Returns the root mean squared error for queries of m elements, in weight."""
        # sqrt(m variance + m (m - 1) covariance); m >= 1 is limited to the number of keys.
        m = min(sparsity, self.num_keys)
        return math.sqrt(max(0.0, m * self.variance + m * (m - 1) * self.covariance))


def sparse_error(plan: SparsePlan, profile: KeyProfile) -> ErrorLaw:
    """Returns the predicted errors of a plan's answers.

    Estimates of a sketch are unbiased over the signs, so the errors of two keys are correlated only
    if the keys share a cell. The correlation matters for queries about a large part of all keys.

    * One mean over rows: noise of variance v, R rows, T cells and counts x give v / R + |x|^2 / T.
    * Medians and clipped means of rows: computed from the distribution of a cell.
    * A histogram: v for keys that reach the threshold, the squared count for the remaining keys.
    * A hybrid: a sketch of the residual; for a released key, the noisy count plus the residual.
    """
    groups = profile.groups
    counts, keys = groups
    if plan.histogram is None:
        assert plan.sketch is not None
        variance, moved = element_law(plan.sketch, groups)
        return ErrorLaw(variance, _pairs(plan.sketch, groups, moved), profile.num_keys)
    held = held_keys(plan.histogram, counts)
    if plan.sketch is None:
        squared = float(keys @ (held.squares + counts**2 * (1 - held.share)))
        bias = held.noise - counts * (1 - held.share)
        return ErrorLaw(squared / profile.num_keys, mean_product(keys, bias), profile.num_keys)
    residual = (counts, keys * (1 - held.share))
    num_held = float(keys @ held.share)
    variance, moved = element_law(plan.sketch, residual, (num_held, plan.histogram.scale))
    noise = noise_variance("discrete_laplace", plan.histogram.scale)
    # The release's weights for the count of a released key, and for the count plus the residual.
    counted, sketched = variance / (noise + variance), noise / (noise + variance)
    squared = float(
        keys @ (counted**2 * held.squares + (sketched**2 * held.share + 1 - held.share) * variance)
    )
    covariance = _pairs(plan.sketch, groups, moved * (1 - held.share))
    covariance += mean_product(keys, counted * held.noise)
    return ErrorLaw(squared / profile.num_keys, covariance, profile.num_keys)


def mean_product(keys: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    """Returns the mean product of the values of two different keys."""
    number = float(keys.sum())
    if number < 2:
        return 0.0
    squares = float(keys @ values**2)
    return max(0.0, float(keys @ values) ** 2 - squares) / (number * (number - 1))


def _pairs(sketch: SketchNoise, groups: Groups, moved: NDArray[np.float64]) -> float:
    """Returns the mean product of the errors of two keys.

    Two keys share a cell of some row with probability R / w for R rows of w cells. Then each key
    moves the other key's estimate, with the same sign: a mean over rows moves by 1 / R of the
    count, so the mean product of the errors is the mean product of the counts over T = R w.
    """
    return mean_product(groups[1], moved) / sketch.effective_width


def element_law(
    sketch: SketchNoise, groups: Groups, residual_noise: tuple[float, float] = (0.0, 1.0)
) -> tuple[float, NDArray[np.float64]]:
    """Returns the variance of a key's estimate, and how far a colliding key moves the estimate."""
    counts, keys = groups
    if sketch.estimator == "mean":
        noise = noise_variance(sketch.distribution, sketch.scale)
        number, scale = residual_noise
        squared = float(keys @ counts**2) + number * noise_variance("discrete_laplace", scale)
        # A key doesn't collide with itself.
        squared *= 1 - 1 / max(1.0, float(keys.sum()) + number)
        return noise / sketch.num_blocks + squared / sketch.effective_width, counts
    law = cell_law(sketch, groups, residual_noise)
    variance = _median_variance(law, sketch, groups)
    clip = sketch.scale if sketch.estimator == "clipped_mean" else 0.0
    if clip:
        # The clipped mean is within 1.5 scales of the median, so few samples are enough.
        rows = _rows(law, sketch.num_blocks, _SAMPLES)
        clipped, medians = clipped_mean(rows, clip), clipped_mean(rows, 0.0)
        variance += float((clipped**2 - medians**2).mean())
    moved = _moved_estimate(lambda rows: clipped_mean(rows, clip), law, sketch, counts)
    return variance, moved


def cell_law(
    sketch: SketchNoise, groups: Groups, residual_noise: tuple[float, float] = (0.0, 1.0)
) -> NDArray[np.float64]:
    """Returns the distribution of a cell, P(cell = z) for z >= 0; the distribution is symmetric.

    Counts above half the length of the result are replaced by half the length;
    ``_median_variance`` corrects for larger counts.
    """
    counts, keys = groups
    width = sketch.effective_width / sketch.num_blocks
    typical = math.sqrt(float(keys @ np.minimum(counts, 1024.0) ** 2) / width)
    wanted = _GRID_SCALES * (sketch.scale + typical)
    size = int(min(max(2.0 ** math.ceil(math.log2(wanted)), _LEAST_GRID), _MOST_GRID))
    angles = np.linspace(0, np.pi, size // 2 + 1)
    whole = np.minimum(counts, size // 4)
    # A fractional count is split between the two nearest integers.
    below = np.floor(whole)
    expected = np.bincount(below.astype(int), keys * (1 - (whole - below)), size // 4 + 2)
    expected += np.bincount(below.astype(int) + 1, keys * (whole - below), size // 4 + 2)
    # One Fourier transform gives the sum of expected(c) cos(c t) for all angles t.
    spread = np.zeros(size)
    spread[: len(expected)] = expected
    log_value: NDArray[np.float64] = (np.fft.rfft(spread).real - expected.sum()) / width
    number, scale = residual_noise
    log_value = log_value + number / width * (_laplace_transform(angles, scale) - 1)
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


def _median_variance(law: NDArray[np.float64], sketch: SketchNoise, groups: Groups) -> float:
    """Returns E median^2 = sum of (2 t + 1) P(|median| > t); P(median > t) is a binomial tail.

    A cell above half the length of ``law`` is taken to equal the one heavy key in it. Few keys
    share cells with heavy keys in two rows, but their large errors may dominate the mean.
    """
    from scipy.stats import binom  # imported here because it loads slowly

    num_rows = sketch.num_blocks
    half = len(law) // 2
    above = np.append(np.cumsum(law[::-1])[::-1], 0.0)[1:]  # P(cell > t)
    passing = 2 * binom.sf(num_rows // 2, num_rows, above[:half])
    variance = float((2 * np.arange(half) + 1) @ passing)
    counts, keys = groups
    order = np.argsort(-counts)
    falling = np.maximum(counts[order], half)
    rates = np.cumsum(keys[order]) * num_rows / sketch.effective_width
    beyond = 2 * binom.sf(num_rows // 2, num_rows, -0.5 * np.expm1(-rates))
    return variance - float(np.diff(falling**2, append=half**2) @ beyond)


def _moved_estimate(
    estimate: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    law: NDArray[np.float64],
    sketch: SketchNoise,
    counts: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Returns the number of rows times the estimate's mean change if a row grows by each count."""
    rows = _rows(law, sketch.num_blocks, _FEW_SAMPLES)
    still = estimate(rows)
    shifts = np.concatenate([[0.0], np.geomspace(sketch.scale / 4, len(law), _SHIFTS)])
    grown = []
    for shift in shifts:
        shifted = rows.copy()
        shifted[:, 0] += shift
        grown.append(float((estimate(shifted) - still).mean()))
    return np.asarray(sketch.num_blocks * np.interp(counts, shifts, grown))


def _rows(law: NDArray[np.float64], num_rows: int, number: int) -> NDArray[np.float64]:
    """Returns quantiles of a cell's distribution, at points that fill a cube (Roberts, 2018)."""
    below = np.cumsum(np.concatenate([law[:0:-1], law]))
    golden = 2.0
    for _ in range(60):
        golden = (1 + golden) ** (1 / (num_rows + 1))
    steps = golden ** -np.arange(1, num_rows + 1)
    points = (0.5 + np.arange(1, number + 1)[:, None] * steps) % 1.0
    return np.asarray(np.searchsorted(below, points * below[-1]) - (len(law) - 1.0))


@dataclasses.dataclass(frozen=True)
class _Held:
    """The effect of a histogram's threshold on a key, for each count."""

    share: NDArray[np.float64]  # the probability that a key is released
    noise: NDArray[np.float64]  # the mean of the noise if the key is released and 0 otherwise
    squares: NDArray[np.float64]  # the mean of the squared noise, 0 if the key is not released


def held_keys(histogram: HistogramNoise, counts: NDArray[np.float64]) -> _Held:
    """Returns the effect of a histogram's threshold on a key, for each count.

    For a = exp(-1 / scale), noise is >= s > 0 with probability a^s / (1 + a). The noise is then s
    plus a geometric variable of mean a / (1 - a) and variance a / (1 - a)^2. Noise is symmetric.
    """
    ratio = math.exp(-1 / histogram.scale)
    excess = ratio / -math.expm1(-1 / histogram.scale)
    spread = excess / -math.expm1(-1 / histogram.scale)
    short = histogram.threshold - counts
    is_short = short > 0
    least = np.where(is_short, short, 1 - short)
    tail = np.exp(-least / histogram.scale) / (1 + ratio)
    mean = tail * (least + excess)
    squares = tail * ((least + excess) ** 2 + spread)
    every = noise_variance("discrete_laplace", histogram.scale)
    return _Held(
        np.where(is_short, tail, 1 - tail), mean, np.where(is_short, squares, every - squares)
    )

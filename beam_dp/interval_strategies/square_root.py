"""The square-root factorisation of prefix sums: a lower triangular Toeplitz matrix."""

from __future__ import annotations

import dataclasses
import functools
from typing import Self

import numpy as np
import scipy.fft

from beam_dp.interval_strategies.convolution import (
    Integers,
    convolve_integers,
)
from beam_dp.interval_strategies.strategy import (
    Indices,
    Prefixes,
    Values,
    mean_of_intervals,
)

_BITS = 20


@dataclasses.dataclass(frozen=True, eq=False)
class SquareRootStrategy:
    """A[i, j] = coefficients[i - j] for i >= j, the power series of (1 - x)^(-1/2), in integers.

    Before rounding, A^2 sums prefixes. Answers are unbiased for the rounded strategy.

    Args:
        coefficients: shape (d,), int64, >= 0, the first >= 1.

    Cost: O(d log d) to measure and to answer.
    Reference: Henzinger, Upadhyay and Upadhyay (2023), Theorem 1, for prefix sums.
    """

    coefficients: Integers

    @classmethod
    def build(cls, num_leaves: int) -> Self:
        """Returns the strategy for so many cells."""
        places = np.arange(1, num_leaves)
        series = np.cumprod(np.append(1.0, (2 * places - 1) / (2 * places)))
        return cls(np.rint(series * 2.0**_BITS).astype(np.int64))

    @property
    def num_leaves(self) -> int:
        """The number of cells."""
        return len(self.coefficients)

    @property
    def l1_sensitivity(self) -> int:
        """The largest L1 norm of a column: of the first one."""
        return int(self.coefficients.sum())

    @property
    def l2_sensitivity_squared(self) -> int:
        """The largest squared L2 norm of a column: of the first one."""
        return int((self.coefficients**2).sum())

    def measure(self, counts: Integers) -> Integers:
        """Returns A x exactly."""
        return convolve_integers(self.coefficients, counts)[: self.num_leaves]

    def estimate(self, noisy: Values) -> Prefixes:
        """Returns the answers by A's inverse."""
        return Prefixes(np.append(0.0, _product(self._prefix_series, noisy)))

    @functools.cached_property
    def errors(self) -> SquareRootErrors:
        """The variances of all answers, for noise of variance 1: computed once."""
        return SquareRootErrors(self._prefix_series)

    @functools.cached_property
    def _prefix_series(self) -> Values:
        """The power series that turns what is measured into prefixes."""
        return np.cumsum(_reciprocal(self.coefficients.astype(np.float64)))


class SquareRootErrors:
    """The variances of all answers of a ``SquareRootStrategy``, for noise of variance 1.

    The mean is exact. For an interval the variance of the last interval of its length is stated:
    it is exact there, and an upper bound elsewhere, because variances increase with the place.

    Args:
        series: that turns what is measured into prefixes.
    """

    def __init__(self, series: Values) -> None:
        self._series = series

    def mean(self) -> float:
        """Returns the mean of the variances of all intervals."""
        variances = np.cumsum(self._series**2)
        return mean_of_intervals(variances, float((np.cumsum(self._series) ** 2).sum()))

    def variances(self, low: Indices, high: Indices) -> Values:
        """Returns an upper bound on the variance of each interval low..high, both included."""
        result: Values = self._by_length[high - low]
        return result

    @functools.cached_property
    def _by_length(self) -> Values:
        num_leaves = len(self._series)
        squares = np.cumsum(self._series**2)
        lags = _correlation(self._series)
        shorter = np.append(squares[-2::-1], 0.0)
        result: Values = squares[-1] + shorter - 2 * np.append(lags[1:num_leaves], 0.0)
        return result


def _product(first: Values, second: Values) -> Values:
    """Returns the product of two power series, as long as the first."""
    padded = scipy.fft.next_fast_len(len(first) + len(second), real=True)
    product = scipy.fft.irfft(
        scipy.fft.rfft(first, padded) * scipy.fft.rfft(second, padded), padded
    )
    result: Values = product[: len(first)]
    return result


def _correlation(series: Values) -> Values:
    """Returns for each lag the sum of series[m] series[m + lag]."""
    padded = scipy.fft.next_fast_len(2 * len(series), real=True)
    result: Values = scipy.fft.irfft(np.abs(scipy.fft.rfft(series, padded)) ** 2, padded)
    return result[: len(series)]


def _reciprocal(series: Values) -> Values:
    """Returns the inverse of a power series: Newton's method doubles the known terms."""
    known = np.array([1 / series[0]])
    while len(known) < len(series):
        length = min(2 * len(known), len(series))
        known = np.append(known, np.zeros(length - len(known)))
        rest = -_product(series[:length], known)
        rest[0] += 2
        known = _product(known, rest)
    return known

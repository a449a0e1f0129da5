"""Noisy counts of every interval: public, and free to query."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import isotonic_regression

from beam_dp.errors import InputError
from beam_dp.mechanisms.bounds import noise_bound
from beam_dp.mechanisms.intervals.strategy import ErrorLaw, Estimate, Indices, Values
from beam_dp.mechanisms.measurements import Distribution, noise_variance
from beam_dp.privacy.guarantee import Guarantee


@dataclasses.dataclass(frozen=True, eq=False)
class IntervalAnswers:
    """Estimated counts of intervals.

    Args:
        values: number of records in each interval, float64, unbiased.
        standard_errors: of each, from the noise alone.
        bounds: each error is within its bound, except with ``failure_probability``.
        failure_probability: of one answer, or of all of the release's at once where asked for.
    """

    values: Values
    standard_errors: Values
    bounds: Values
    failure_probability: float


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class IntervalRelease:
    """Counts of all intervals of one ordered attribute: everything here is public.

    Answers of intervals that share an end add up, but those of the textbook tree.

    Args:
        num_leaves: the number d of cells.
        guarantee: what was promised.
        choice: names of the strategy and of the noise.
        scale: of the noise of each measurement, in grid units.
        grid: grid units that make one unit of the strategy.
        estimate: of the counts.
        errors: of the estimate.
        draw_id: names this one draw of noise.
    """

    num_leaves: int
    guarantee: Guarantee
    choice: tuple[str, Distribution]
    scale: float
    grid: int
    estimate: Estimate
    errors: ErrorLaw
    draw_id: str

    def answer(
        self,
        low: ArrayLike,
        high: ArrayLike,
        *,
        failure_probability: float = 0.05,
        all_at_once: bool = False,
    ) -> IntervalAnswers:
        """Returns the number of records in the cells low..high, both included.

        Standard errors are exact, but for ``square_root``, where they are those of the last
        interval of the same length, the largest; and for ``sine`` above 1,024 cells, where they
        are interpolated (to 0.1 % at 4,096 cells).

        Args:
            low: integers, any shape.
            high: integers >= low and < d, same shape.
            failure_probability: of a bound, in (0, 1).
            all_at_once: whether all bounds of all intervals are to hold at once.

        Returns:
            Arrays of the same shape.

        Raises:
            InputError: if an end is out of range or no integer.

        Cost: O(1) an interval, O(log d) for trees; about a quarter of a second for 1e6. The first
        call prepares the variances: for ``sine`` 2 s with 65,536 cells and 20 s with 2^20, for
        the others up to a second.
        """
        first, last = self._checked(low, high)
        if not 0 < failure_probability < 1:
            condition = "must be > 0 and < 1"
            raise InputError("failure_probability", failure_probability, condition)
        shape = first.shape
        first, last = first.ravel(), last.ravel()
        unit = noise_variance(self.choice[1], self.scale)
        deviation = math.sqrt(unit) / self.grid
        # Rounding may leave a variance of 0 a little below.
        errors = deviation * np.sqrt(np.maximum(self.errors.variances(first, last), 0.0))
        num_bounds = self.num_leaves * (self.num_leaves + 1) // 2 if all_at_once else 1
        laplace_variance = unit if self.choice[1] == "discrete_laplace" else None
        factor = noise_bound(1.0, num_bounds, laplace_variance, failure_probability)
        return IntervalAnswers(
            self.estimate.answer(first, last).reshape(shape),
            errors.reshape(shape),
            (factor * errors).reshape(shape),
            failure_probability,
        )

    def prefixes(self) -> Values:
        """Returns the unbiased counts of the first 0, 1, ..., d cells, shape (d + 1,)."""
        ends = np.arange(self.num_leaves)
        return np.append(0.0, self.estimate.answer(np.zeros_like(ends), ends))

    def histogram(self) -> Values:
        """Returns the unbiased counts of the cells, shape (d,); some may be negative."""
        cells = np.arange(self.num_leaves)
        return self.estimate.answer(cells, cells)

    def increasing_prefixes(self) -> Values:
        """Returns the nearest prefixes that start at 0 and never decrease, shape (d + 1,).

        The histogram of these, their differences, has no negative count. Nearness is in the sum
        of squares over prefixes. The error is smaller where most cells are empty, but it is
        biased: small counts come out too large, and no standard error is known.

        Cost: O(d).
        """
        fitted = isotonic_regression(self.prefixes()[1:]).x
        return np.append(0.0, np.maximum(fitted, 0.0))

    def quantiles(self, shares: ArrayLike) -> NDArray[np.int64]:
        """Returns the cells in which given shares of the records are reached.

        Args:
            shares: in [0, 1], any shape.

        Returns:
            For each the first cell c such that at least this share lies in the cells 0..c, by
            ``increasing_prefixes``.

        Raises:
            InputError: if a share is out of range.
        """
        asked = np.asarray(shares, np.float64)
        if not np.all((asked >= 0) & (asked <= 1)):
            raise InputError("shares", shares, "must be from 0 to 1")
        prefixes = self.increasing_prefixes()[1:]
        found = np.searchsorted(prefixes, asked * prefixes[-1])
        result: NDArray[np.int64] = np.minimum(found, self.num_leaves - 1).astype(np.int64)
        return result

    def _checked(self, low: ArrayLike, high: ArrayLike) -> tuple[Indices, Indices]:
        ends = []
        for name, given in (("low", low), ("high", high)):
            array = np.asarray(given)
            if array.dtype.kind not in "iu":
                raise InputError(name, given, "must be integers")
            ends.append(array)
        if ends[0].shape != ends[1].shape:
            raise InputError("high", ends[1].shape, f"must have the shape of low, {ends[0].shape}")
        if not np.all(ends[0] >= 0):
            raise InputError("low", low, "must be >= 0")
        if not np.all((ends[0] <= ends[1]) & (ends[1] < self.num_leaves)):
            raise InputError("high", high, f"must be >= low and < {self.num_leaves}")
        return ends[0].astype(np.int64), ends[1].astype(np.int64)

"""Noisy counts of every rectangle of two ordered attributes: public, and free to query."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
from numpy.typing import ArrayLike

from beam_dp.errors import InputError
from beam_dp.interval_strategies.strategy import (
    ErrorLaw,
    Indices,
    Values,
)
from beam_dp.mechanisms.marginals.measurements import Distribution
from beam_dp.noise.bound import noise_bound, noise_variance
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.intervals import IntervalAnswers


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class RectangleRelease:
    """Counts of all rectangles of two ordered attributes: everything here is public.

    Answers are consistent: rectangles that make up another one add up to it.

    Args:
        guarantee: what was promised.
        strategies: names of the strategies of both attributes.
        distribution: of the noise.
        scale: of the noise of each measurement, in grid units.
        grid: grid units that make one unit of the product.
        prefixes: estimated counts of the first 0..d1 cells by the first 0..d2, float64.
        errors: of unit noise, of each attribute's intervals.
        draw_id: names this one draw of noise.
    """

    guarantee: Guarantee
    strategies: tuple[str, str]
    distribution: Distribution
    scale: float
    grid: int
    prefixes: Values
    errors: tuple[ErrorLaw, ErrorLaw]
    draw_id: str

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of cells of both attributes."""
        return (self.prefixes.shape[0] - 1, self.prefixes.shape[1] - 1)

    def answer(
        self,
        first_low: ArrayLike,
        first_high: ArrayLike,
        second_low: ArrayLike,
        second_high: ArrayLike,
        *,
        failure_probability: float = 0.05,
        all_at_once: bool = False,
    ) -> IntervalAnswers:
        """Returns the number of records in rectangles of cells, all four ends included.

        Accuracy: answers are unbiased and standard errors are exact. The variance of a rectangle
        is that of the noise times those of its two sides, for unit noise.

        Args:
            first_low: of the first attribute, integers, any shape.
            first_high: >= first_low and < d1, same shape.
            second_low: of the second attribute, same shape.
            second_high: >= second_low and < d2, same shape.
            failure_probability: of a bound, in (0, 1).
            all_at_once: whether all bounds of all rectangles are to hold at once.

        Returns:
            Arrays of the same shape.

        Raises:
            InputError: if an end is out of range or no integer.

        Cost: O(1) a rectangle, about a quarter of a second for 1e6.
        """
        ends = ("first_low", first_low), ("first_high", first_high)
        low, high = checked_ends(*ends, self.shape[0])
        ends = ("second_low", second_low), ("second_high", second_high)
        other_low, other_high = checked_ends(*ends, self.shape[1])
        if low.shape != other_low.shape:
            condition = f"must have the shape of first_low, {low.shape}"
            raise InputError("second_low", other_low.shape, condition)
        if not 0 < failure_probability < 1:
            condition = "must be > 0 and < 1"
            raise InputError("failure_probability", failure_probability, condition)
        shape = low.shape
        low, high, other_low, other_high = (
            each.ravel() for each in (low, high, other_low, other_high)
        )
        unit = noise_variance(self.distribution, self.scale)
        sides = self.errors[0].variances(low, high) * self.errors[1].variances(
            other_low, other_high
        )
        # Rounding may leave a variance of 0 a little below.
        errors = math.sqrt(unit) / self.grid * np.sqrt(np.maximum(sides, 0.0))
        sizes = (size * (size + 1) // 2 for size in self.shape)
        num_bounds = math.prod(sizes) if all_at_once else 1
        laplace_variance = unit if self.distribution == "discrete_laplace" else None
        factor = noise_bound(1.0, num_bounds, laplace_variance, failure_probability)
        table = self.prefixes
        values = (
            table[high + 1, other_high + 1]
            - table[low, other_high + 1]
            - table[high + 1, other_low]
            + table[low, other_low]
        )
        return IntervalAnswers(
            values.reshape(shape),
            errors.reshape(shape),
            (factor * errors).reshape(shape),
            failure_probability,
        )

    def histogram(self) -> Values:
        """Returns the unbiased counts of the cells, shape (d1, d2); some may be negative."""
        cells: Values = np.diff(np.diff(self.prefixes, axis=0), axis=1)
        return cells


def checked_ends(
    low: tuple[str, ArrayLike], high: tuple[str, ArrayLike], num_leaves: int
) -> tuple[Indices, Indices]:
    """Returns the ends of intervals of one attribute as arrays.

    Args:
        low: name and value.
        high: name and value.
        num_leaves: the number of cells.

    Raises:
        InputError: unless they are integers of one shape, 0 <= low <= high < num_leaves.
    """
    arrays = []
    for name, given in (low, high):
        array = np.asarray(given)
        if array.dtype.kind not in "iu":
            raise InputError(name, given, "must be integers")
        arrays.append(array)
    first, last = arrays
    if first.shape != last.shape:
        raise InputError(high[0], last.shape, f"must have the shape of {low[0]}, {first.shape}")
    if not np.all(first >= 0):
        raise InputError(low[0], low[1], "must be >= 0")
    if not np.all((first <= last) & (last < num_leaves)):
        raise InputError(high[0], high[1], f"must be >= {low[0]} and < {num_leaves}")
    return first.astype(np.int64), last.astype(np.int64)

"""Minimises the smooth convex functions of a fit.

A fit minimises N log Z(x) less a linear function, plus quadratic penalties, where Z is the sum of
the weights of all cells and x are the log-weights' coefficients. Limited-memory quasi-Newton steps
(Nocedal, 1980) start from an approximate inverse of the second derivatives, ``TableCurvature``.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import (
    Coefficients,
    Support,
    contrast_matrix,
    squared_scale,
    stacked,
    subsets,
)

Vector = NDArray[np.float64]
Inverse = Callable[[Vector], Vector]

# The largest and smallest number of remembered steps, and the largest number of stored values.
_MOST_STEPS = 200
_LEAST_STEPS = 13
_REMEMBERED_NUMBERS = 2**25
_MAX_EVALUATIONS = 1000
_MAX_TRIALS = 30
_MORE_STEPS = 20  # at most, after the last that gains, for a small gradient
# A trial step is short enough if the value falls by the first share of the fall that the slope
# predicts, and long enough if the slope falls to the second share of the initial slope.
_DECREASE = 1e-4
_FLATNESS = 0.9
# If the divisors of each table differ by less than this factor, a diagonal matrix is good enough.
_EVEN = 100.0
# Values with a smaller relative difference may differ only by rounding errors.
_ROUNDING = 1e-14

# Tables of one shape, one per row: a matrix per axis; the places of a table's coefficients among
# the unknowns; and the scales that convert these coefficients to those of the table.
_Tables = tuple[list[Vector], NDArray[np.int64], Vector]
# A step and the change of the gradient along the step, both of shape (num_unknowns,).
_Pair = tuple[Vector, Vector]


@dataclasses.dataclass(frozen=True)
class Point:
    """The value and the gradient of the smooth function at a point."""

    place: Vector
    value: float
    gradient: Vector


@dataclasses.dataclass(frozen=True)
class Penalised:
    """The smooth function minus ``linear @ x``, plus penalties on the distance to a point."""

    linear: Vector
    penalties: Vector
    reference: Vector

    def value(self, at: Point) -> float:
        """Returns the value to minimise."""
        moved = at.place - self.reference
        penalty = 0.5 * float((self.penalties * moved) @ moved)
        return at.value - float(at.place @ self.linear) + penalty

    def gradient(self, at: Point) -> Vector:
        """Returns the gradient of ``value``."""
        return at.gradient - self.linear + self.penalties * (at.place - self.reference)


class TableCurvature:
    """Approximates the second derivatives of a fit from the current tables of the hypothesis.

    For one table, adding t to the log-weights and normalising changes N log Z by the variance of t:
    the second derivative is N p(c) for each cell c, less a term of rank 1. With the same penalty in
    each cell, the inverse is 1 / (N p(c) + penalty), in the coordinates of cells. The sum of this
    inverse over all tables is an additive Schwarz preconditioner. Without it, log-weights of nearly
    empty cells, which no single coefficient moves, need hundreds of steps. While penalties are so
    large that the divisors differ little, ``variances`` alone serve as well, in less time.

    ``variances``: the variance of each chosen coefficient's basis vector, under independence.
    """

    def __init__(
        self, basis: Coefficients, chosen: NDArray[np.int64], total: float, variances: Vector
    ) -> None:
        self._basis, self._chosen, self._total = basis, chosen, total
        self._diagonal = total * variances
        squared_scales = np.empty(basis.num_coefficients)
        for support, where in basis.slices.items():
            squared_scales[where] = squared_scale(basis, support, support)
        self._squared_scales = squared_scales[chosen]

    @cached_property
    def _tables(self) -> list[_Tables]:
        basis, size = self._basis, len(self._chosen)
        # Coefficients that are not chosen get the place of an extra zero at the end.
        place = np.full(basis.num_coefficients, size)
        place[self._chosen] = np.arange(size)
        by_shape: dict[Support, list[tuple[NDArray[np.int64], Vector]]] = {}
        for axes in _maximal(basis.slices):
            shape = tuple(basis.shape[axis] for axis in axes)
            places = np.full(shape, size)
            scales = np.zeros(places.shape)
            for support in subsets(axes):
                where = basis.slices.get(support)
                if support and where is not None and where.start < where.stop:
                    index = tuple(slice(1, None) if axis in support else 0 for axis in axes)
                    places[index] = place[where].reshape(places[index].shape)
                    scales[index] = math.sqrt(squared_scale(basis, support, axes))
            if (places < size).any():
                by_shape.setdefault(shape, []).append((places.ravel(), scales.ravel()))
        return [
            (
                [_rotation(each) for each in shape],
                np.array([places for places, _ in tables]),
                np.array([scales for _, scales in tables]),
            )
            for shape, tables in by_shape.items()
        ]

    def inverse(self, gradient: Vector, penalties: Vector) -> Inverse:
        """Returns a function that multiplies by the inverse where the fit has this gradient."""

        def diagonal(vector: Vector) -> Vector:
            return vector / (self._diagonal + penalties)

        # No cell has more than all records, and no divisor is less than the penalty of a cell.
        if self._total < (_EVEN - 1) * (penalties * self._squared_scales).min(initial=np.inf):
            return diagonal
        size = len(gradient)
        padded, weighted = np.append(gradient, 0.0), np.append(penalties, 0.0)
        divisors, largest_ratio = [], 1.0
        for rotations, places, scales in self._tables:
            coefficients = padded[places] * scales
            num_cells = math.prod(rotation.shape[1] for rotation in rotations)
            coefficients[:, 0] = self._total / math.sqrt(num_cells)
            number = (places < size).sum(axis=1, keepdims=True)
            penalty = (weighted[places] * scales**2).sum(axis=1, keepdims=True) / number
            divisors.append(np.maximum(_rotated(coefficients, rotations), 0.0) + penalty)
            ratios = divisors[-1].max(axis=1) / divisors[-1].min(axis=1)
            largest_ratio = max(largest_ratio, float(ratios.max()))
        if largest_ratio < _EVEN:
            return diagonal

        def product(vector: Vector) -> Vector:
            padded, result = np.append(vector, 0.0), np.zeros(size + 1)
            for (rotations, places, scales), divisor in zip(self._tables, divisors, strict=True):
                table = _rotated(padded[places] * scales, rotations) / divisor
                back = _rotated(table, [part.T for part in rotations]) * scales
                result += np.bincount(places.ravel(), back.ravel(), size + 1)
            return result[:-1]

        return product


def _rotation(size: int) -> Any:
    """Returns the constant vector and the contrasts of one attribute, as rows."""
    return stacked([np.full((1, size), 1 / math.sqrt(size)), contrast_matrix(size)])


def _maximal(supports: Iterable[Support]) -> list[Support]:
    """Returns the supports that no other support contains, without the constant."""
    largest: list[Support] = []
    seen: set[Support] = {()}
    for axes in sorted(supports, key=len, reverse=True):
        if axes not in seen:
            largest.append(axes)
            seen.update(subsets(axes))
    return largest


def _rotated(values: Vector, rotations: Sequence[Any]) -> Vector:
    """Returns tables, one per row, row-major, multiplied by one square matrix per axis."""
    number = len(values)
    for matrix in rotations:
        # Each step replaces the leading axis by an axis at the end, as in ``table_coefficients``.
        size = matrix.shape[0]
        values = values.reshape(number, size, -1).swapaxes(1, 2).reshape(-1, size) @ matrix
    return values.reshape(number, -1)


class QuasiNewton:
    """A minimiser that keeps the learned curvature: only linear terms and penalties change."""

    def __init__(self, evaluate: Callable[[Vector], Point], num_unknowns: int) -> None:
        self._evaluate = evaluate
        limit = _REMEMBERED_NUMBERS // max(1, 3 * num_unknowns)
        self._steps: deque[_Pair] = deque(maxlen=min(max(limit, _LEAST_STEPS), _MOST_STEPS))

    def minimise(
        self,
        problem: Penalised,
        start: Point,
        tolerance: float,
        inverse: Inverse,
        errors: Vector | None = None,
    ) -> Point:
        """Lowers the value step by step; returns the point reached."""
        # Stops if a step gains at most ``tolerance`` (> 0), if none is found, or after a limit.
        # With ``errors``, continues for some steps until the gradient's parts are about as small.
        pairs: deque[_Pair] = deque(maxlen=self._steps.maxlen)
        pairs.extend((moved, changed + problem.penalties * moved) for moved, changed in self._steps)
        point, value, gradient = start, problem.value(start), problem.gradient(start)
        evaluations, gain = 0, math.inf
        more_steps = 0 if errors is None else _MORE_STEPS
        while evaluations < _MAX_EVALUATIONS:
            direction = _direction(pairs, inverse, gradient)
            slope = float(direction @ gradient)
            if not slope < 0:
                break
            if min(gain, -8 * slope) <= tolerance:
                if more_steps == 0 or _is_small(gradient, errors):
                    break
                more_steps -= 1
            low, high, length = 0.0, math.inf, 1.0
            noise = _ROUNDING * max(1.0, abs(point.value))
            for _ in range(_MAX_TRIALS):
                evaluations += 1
                trial = self._evaluate(point.place + length * direction)
                found_value, found_gradient = problem.value(trial), problem.gradient(trial)
                found_slope = float(direction @ found_gradient)
                if not found_value <= value + _DECREASE * length * slope + noise:
                    high = length
                elif found_slope < _FLATNESS * slope:
                    low = length
                else:
                    break
                length = 2 * low if high == math.inf else (low + high) / 2
            else:
                break
            moved, changed = trial.place - point.place, trial.gradient - point.gradient
            if moved @ changed > 0:
                self._steps.append((moved, changed))
            pairs.append((moved, found_gradient - gradient))
            gain = value - found_value
            point, value, gradient = trial, found_value, found_gradient
            if not moved @ pairs[-1][1] > 0:  # all that is left are rounding errors
                break
        return point


def _is_small(gradient: Vector, errors: Vector | None) -> bool:
    return errors is None or float(((gradient / errors) ** 2).mean()) <= 1


def _direction(pairs: Sequence[_Pair], inverse: Inverse, gradient: Vector) -> Vector:
    """Returns the quasi-Newton step, by the two loops of Nocedal (1980)."""
    direction = -gradient
    shares = []
    for moved, changed in reversed(pairs):
        share = float(moved @ direction) / float(moved @ changed)
        direction -= share * changed
        shares.append(share)
    if pairs:
        moved, changed = pairs[-1]
        direction *= float(moved @ changed) / float(changed @ inverse(changed))
    direction = inverse(direction)
    for (moved, changed), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(changed @ direction) / float(moved @ changed)) * moved
    return direction

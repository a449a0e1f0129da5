"""Minimisation of one smooth convex function under many quadratic penalties, one after the other.

Limited-memory quasi-Newton steps (Nocedal, 1980) learn curvature from how the gradient changes
along each step. What changes from one problem to the next is known exactly: linear terms and
diagonal penalties. So what was learnt of the smooth function serves every later problem.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

# Steps remembered: as many as pay, but with what is made of them no more than so many numbers.
_MOST_STEPS = 200
_LEAST_STEPS = 13
_REMEMBERED_NUMBERS = 2**25
_MAX_EVALUATIONS = 1000
_MAX_TRIALS = 30
# A trial step is long enough where the slope has fallen to the second share of what it was, and
# short enough where the value has by the first share of what the slope promised.
_DECREASE = 1e-4
_FLATNESS = 0.9
# Values that differ by less than rounding errors do not say which of two points is better.
_ROUNDING = 1e-14


# A step and by how much the gradient changed along it, each of shape (num_unknowns,).
_Pair = tuple[NDArray[np.float64], NDArray[np.float64]]


@dataclasses.dataclass(frozen=True)
class Point:
    """Where the smooth function was evaluated.

    ``gradient``: of it, same shape as the place.
    """

    place: NDArray[np.float64]
    value: float
    gradient: NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Penalised:
    """A problem: the smooth function, less ``linear @ x``, plus penalties of the distance.

    ``penalties``: same shape, >= 0.
    ``reference``: where the penalties are 0.
    """

    linear: NDArray[np.float64]
    penalties: NDArray[np.float64]
    reference: NDArray[np.float64]

    def value(self, at: Point) -> float:
        """Returns what is minimised."""
        moved = at.place - self.reference
        penalty = 0.5 * float((self.penalties * moved) @ moved)
        return at.value - float(at.place @ self.linear) + penalty

    def gradient(self, at: Point) -> NDArray[np.float64]:
        """Returns its gradient."""
        return at.gradient - self.linear + self.penalties * (at.place - self.reference)


class QuasiNewton:
    """A minimiser that remembers the curvature of the smooth function.

    ``curvature``: about its second derivatives by each unknown, > 0.
    """

    def __init__(
        self,
        evaluate: Callable[[NDArray[np.float64]], tuple[float, NDArray[np.float64]]],
        curvature: NDArray[np.float64],
    ) -> None:
        self._evaluate = evaluate
        self._curvature = curvature
        most = _REMEMBERED_NUMBERS // max(1, 3 * len(curvature))
        self._steps: deque[_Pair] = deque(maxlen=min(max(most, _LEAST_STEPS), _MOST_STEPS))

    def at(self, place: NDArray[np.float64]) -> Point:
        """Returns the smooth function at a place."""
        return Point(place, *self._evaluate(place))

    def learn(self, first: Point, second: Point) -> None:
        """Remembers how the gradient changes between two points."""
        moved, changed = second.place - first.place, second.gradient - first.gradient
        if moved @ changed > 0:
            self._steps.append((moved, changed))

    def minimise(self, problem: Penalised, start: Point, tolerance: float) -> Point:
        """Returns a point near the minimum: a further step would lower the value by little.

        ``tolerance``: > 0: the last step lowered the value by less than this.
        """
        pairs: deque[_Pair] = deque(maxlen=self._steps.maxlen)
        pairs.extend((moved, changed + problem.penalties * moved) for moved, changed in self._steps)
        diagonal = 1.0 / (self._curvature + problem.penalties)
        point, value, gradient = start, problem.value(start), problem.gradient(start)
        evaluations = 0
        while evaluations < _MAX_EVALUATIONS:
            direction = _direction(pairs, diagonal, gradient)
            slope = float(direction @ gradient)
            if -slope <= tolerance / 8 or not slope < 0:
                break
            low, high, length = 0.0, math.inf, 1.0
            noise = _ROUNDING * max(1.0, abs(point.value))
            for _ in range(_MAX_TRIALS):
                evaluations += 1
                found = self.at(point.place + length * direction)
                found_value, found_gradient = problem.value(found), problem.gradient(found)
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
            self.learn(point, found)
            pairs.append((found.place - point.place, found_gradient - gradient))
            decrease = value - found_value
            point, value, gradient = found, found_value, found_gradient
            if decrease <= tolerance:
                break
        return point


def _direction(
    pairs: Sequence[_Pair],
    diagonal: NDArray[np.float64],
    gradient: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Returns the quasi-Newton step: the two loops of Nocedal (1980)."""
    direction = -gradient
    shares = []
    for moved, changed in reversed(pairs):
        share = float(moved @ direction) / float(moved @ changed)
        direction -= share * changed
        shares.append(share)
    if pairs:
        moved, changed = pairs[-1]
        direction *= float(moved @ changed) / float(changed @ (diagonal * changed))
    direction *= diagonal
    for (moved, changed), share in zip(pairs, reversed(shares), strict=True):
        direction += (share - float(changed @ direction) / float(moved @ changed)) * moved
    return direction

"""The least epsilon with which something is within an error: a search over its own plans."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Generic, TypeVar

# An epsilon that is tried has four digits, so that what is printed is exactly what was planned.
_STEPS = 9000
_FIRST_DECADE = -6
_LAST = 12 * _STEPS  # of 1e6
# Guesses find an error that decays like 1 / epsilon at once; after so many it is found by halving.
_GUESSES = 8

OptionT = TypeVar("OptionT")


@dataclasses.dataclass(frozen=True)
class Least(Generic[OptionT]):
    """What a mechanism needs to be within an error.

    Args:
        epsilon: the least of four digits; None where none up to 1e6 is enough.
        option: planned with that epsilon; with the epsilon of the least error where it is None.
        error: of the option.
    """

    epsilon: float | None
    option: OptionT
    error: float

    @property
    def rank(self) -> tuple[float, float]:
        """What mechanisms are sorted by: the epsilon, then the error."""
        return math.inf if self.epsilon is None else self.epsilon, self.error


def least_epsilon(
    plan: Callable[[float], OptionT], error_of: Callable[[OptionT], float], error: float
) -> Least[OptionT]:
    """Returns the least epsilon of four digits with which a plan is within an error.

    What is returned was planned with exactly that epsilon, so that it surely keeps the error, and
    the next smaller one was planned too, and does not. It is the least of all where the error never
    grows with epsilon.

    Args:
        plan: what is planned with an epsilon.
        error_of: the error of that; infinite where it is refused or not known.
        error: the most that it may be, > 0.

    Cost: about ten plans.

    Example:
        >>> least_epsilon(lambda epsilon: 2 / epsilon, lambda error: error, 0.3).epsilon
        6.667
    """
    planned = functools.cache(lambda step: plan(_epsilon(step)))

    def reaches(step: int) -> bool:
        return error_of(planned(step)) <= error

    # By powers of ten from 1, then within one of them.
    step = -_FIRST_DECADE * _STEPS
    seen = [step]
    if reaches(step):
        while step > 0 and reaches(step - _STEPS):
            step -= _STEPS
        low, high = step - _STEPS, step
    else:
        while step < _LAST and not reaches(step):
            step += _STEPS
            seen.append(step)
        low, high = step - _STEPS, step
    if not reaches(high):
        best = min(seen, key=lambda each: error_of(planned(each)))
        return Least(None, planned(best), error_of(planned(best)))
    guess, guesses = high, 0
    while high - low > 1 and high > 0:
        step = min(max(guess, low + 1), high - 1) if guesses < _GUESSES else (low + high) // 2
        low, high = (low, step) if reaches(step) else (step, high)
        guess, guesses = _guess(step, error_of(planned(step)) / error), guesses + 1
    return Least(_epsilon(high), planned(high), error_of(planned(high)))


def _epsilon(step: int) -> float:
    """Returns the epsilon of a step; as a double it is the one that its four digits mean."""
    decade, digits = divmod(step, _STEPS)
    return float(f"{1000 + digits}e{decade + _FIRST_DECADE - 3}")


def _guess(step: int, ratio: float) -> int:
    """Returns the step at which an error that decays like 1 / epsilon is smaller by a ratio."""
    wanted = _epsilon(step) * min(max(ratio, 1e-3), 1e3)
    decade = math.floor(math.log10(wanted))
    digits = math.ceil(wanted / 10.0 ** (decade - 3) - 1e-9) - 1000
    return (decade - _FIRST_DECADE) * _STEPS + digits

"""`Theorem`: an error bound, its failure probability, and the number of records it needs."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Callable
from typing import Literal

from beam_dp.checks import checked_integer, checked_number
from beam_dp.mechanisms.checks import MAX_RECORDS, check_failure_probability

Calibration = Literal["tight", "textbook"]


@dataclasses.dataclass(frozen=True)
class Bound:
    """A bound on all errors, in records; void if the failure probability is 1 or more."""

    theorem: str
    num_records: int
    max_error: float
    failure_probability: float

    @property
    def max_error_fraction(self) -> float:
        """The bound divided by the number of records."""
        return self.max_error / self.num_records

    @property
    def vacuous(self) -> bool:
        """Whether the bound says nothing about answers from 0 to the number of records."""
        return not (self.max_error < self.num_records and self.failure_probability < 1)


@dataclasses.dataclass(frozen=True)
class Theorem:
    """A theorem on one job's error as a function of the number of records; also its inverse.

    ``name``: a string with the mechanism, the source, and the changes to the published theorem.
    ``error``: the largest error of all answers, in records, as a function of the number of records.
    The error divided by the number of records must fall when the number of records grows.

    Example:
        >>> from beam_dp.planning.theorems.noise import (laplace_theorem)
        >>> theorem = laplace_theorem(100, 100.0, 1.0, 0.05)
        >>> theorem.bound(10_000).max_error, theorem.records_needed(0.1)
        (761.0, 7610)
    """

    name: str
    failure_probability: Callable[[int], float]
    error: Callable[[int], float]

    def bound(self, num_records: int) -> Bound:
        """Returns the bound for a number of records."""
        checked_integer("num_records", num_records, 1)
        error, probability = self.error(num_records), self.failure_probability(num_records)
        return Bound(self.name, num_records, error, probability)

    def records_needed(self, max_error_fraction: float) -> int | None:
        """Returns the smallest number of records with at most this error; None if it is > 2^40."""
        checked_fraction(max_error_fraction)

        def is_enough(num_records: int) -> bool:
            allowed = max_error_fraction * num_records * (1 + 1e-12)
            return self.error(num_records) <= allowed and self.failure_probability(num_records) < 1

        return least_integer(is_enough, MAX_RECORDS)


def least_integer(holds: Callable[[int], bool], largest: int) -> int | None:
    """Returns the smallest integer in 1..``largest`` that meets a monotone condition, or None.

    Example:
        >>> least_integer(lambda n: n * n >= 50, 100), least_integer(lambda n: n > 9, 8)
        (8, None)
    """
    if not holds(largest):
        return None
    return bisect_left(range(1, largest), True, key=holds) + 1


def constant(value: float) -> Callable[[int], float]:
    """Returns a constant function of the number of records."""
    return lambda num_records: value


def checked_fraction(max_error_fraction: float) -> float:
    """Refuses a fraction of the records outside (0, 1]."""
    return checked_number(
        "max_error_fraction", max_error_fraction, above=0, most=1, note=", a share of the records"
    )


def checked_parameters(
    *, failure_probability: float | None = None, counts: dict[str, int], reals: dict[str, float]
) -> None:
    """Refuses public parameters out of range: counts are integers >= 1, reals > 0."""
    if failure_probability is not None:
        check_failure_probability(failure_probability)
    for name, count in counts.items():
        checked_integer(name, count, 1)
    for name, real in reals.items():
        checked_number(name, real, above=0)

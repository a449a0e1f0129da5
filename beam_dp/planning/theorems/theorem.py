"""`Theorem`: an error bound, its failure probability, and the records or queries it allows."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable
from typing import Literal, get_args

from beam_dp.checks import checked_integer, checked_number
from beam_dp.flags.shared import MAX_RECORDS
from beam_dp.mechanisms.checks import check_failure_probability

Calibration = Literal["tight", "textbook"]
CALIBRATIONS: tuple[Calibration, ...] = get_args(Calibration)


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


def laplace_theorem(
    num_queries: int, l1_sensitivity: float, epsilon: float, failure_probability: float
) -> Theorem:
    """Returns an error bound for discrete Laplace noise on whole records.

    ``l1_sensitivity``: D > 0, the most that one privacy unit changes all answers, in L1 norm.
    ``epsilon``: the epsilon spent on all answers together, finite and > 0.
    ``failure_probability``: the probability beta, in (0, 1).

    Accuracy: each of k answers gets noise of scale b = D / epsilon; with probability at least 1 -
    beta, every answer is within b ln(k / beta) of the truth, rounded up: P(|DLap(s)| > ceil(t)) <=
    exp(-t / s).

    Reference: Dwork and Roth (2014), Theorem 3.8.
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_queries": num_queries},
        reals={"sensitivity": l1_sensitivity, "epsilon": epsilon},
    )
    error = float(math.ceil(l1_sensitivity / epsilon * math.log(num_queries / failure_probability)))
    name = "Laplace: Dwork and Roth (2014), Theorem 3.8"
    return Theorem(name, constant(failure_probability), constant(error))


# Queries are counted exactly up to 10^15.
_EXACT_POWER, _MAX_POWER = 15, 10_000
MAX_EXACT, MAX_QUERIES = 10**_EXACT_POWER, 10**_MAX_POWER


def queries_allowed(
    theorem_of: Callable[[int], Theorem],
    num_records: int,
    target_error: float,
    failure_probability: float,
    *,
    least: int = 1,
) -> int:
    """Returns the largest number of queries for which a theorem keeps the error in bounds.

    A theorem's bound never falls as queries are added, so bisection finds the number. Theorems use
    its logarithm, so the number may be as large as 10^10,000. A set of fewer than ``least`` queries
    is treated as a part of a set of ``least`` queries.

    ``theorem_of``: returns the theorem for |Q| queries, from ``least`` to 10^10,000.
    ``target_error``: the largest bound to accept, in records, finite and > 0.
    ``failure_probability``: the largest one to accept from the theorem, in (0, 1).
    ``least``: the smallest number of queries for which the theorem is stated.

    Returns:
        The exact number up to 10^15; for a larger number, the largest power of ten, up to
        10^10,000, that the number reaches; 0 if even ``least`` queries have a larger error.

    Reference: Blum, Ligett and Roth (2013); Dwork and Roth (2014), section 4.1, the footnote on
    how large |Q| may be.

    Example:
        >>> from beam_dp.planning.theorems.synthesis import (small_db_theorem)
        >>> of = lambda count: small_db_theorem(1024, count, 1.0, 0.05, "textbook")
        >>> queries_allowed(of, 10**6, 10**5, 0.05, least=3)
        7396
        >>> queries_allowed(of, 10**8, 10**7, 0.05, least=3) == 10**391
        True
        >>> queries_allowed(of, 10**6, 10**4, 0.05, least=3)
        0
    """
    checked_number("target_error", target_error, above=0)
    check_failure_probability(failure_probability)

    def is_too_many(count: int) -> bool:
        return not theorem_of(count).bound(num_records).max_error <= target_error * (1 + 1e-12)

    if is_too_many(least):
        return 0
    first = least_integer(lambda count: is_too_many(max(count, least)), MAX_EXACT)
    if first is None:
        beyond = least_integer(lambda more: is_too_many(_power(more)), _MAX_POWER - _EXACT_POWER)
        largest = MAX_QUERIES if beyond is None else _power(beyond - 1)
    else:
        largest = first - 1
    theorem = theorem_of(largest)
    return largest if theorem.failure_probability(num_records) <= failure_probability else 0


def _power(more: int) -> int:
    """Returns a power of ten that is at least 10^15."""
    power: int = 10 ** (_EXACT_POWER + more)
    return power

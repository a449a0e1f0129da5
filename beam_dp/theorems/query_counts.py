"""How many queries a number of records allows: theorems of |Q| queries, inverted for |Q|."""

from __future__ import annotations

import math
from collections.abc import Callable

from beam_dp.checks import checked_number
from beam_dp.mechanisms.checks import check_failure_probability
from beam_dp.theorems.synthesis import mwem_theorem
from beam_dp.theorems.theorem import Theorem, checked_parameters, least_integer

# Numbers of queries are exact up to here, and powers of ten beyond.
_MAX_ROUNDS = 2.0**53
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
    """Returns the largest number of queries that a theorem keeps an error for.

    The bound of a theorem never falls as queries are added, so that bisection finds the number.
    Theorems know it by its logarithm, and it may be as large as 10^10,000; fewer queries than a
    theorem is stated for are some of as many as it is.

    Args:
        theorem_of: the theorem for |Q| queries, from ``least`` to 10^10,000.
        num_records: N >= 1.
        target_error: in records, finite and > 0; the bound must be at most that.
        failure_probability: in (0, 1); the theorem's, for as many queries, must be at most that.
        least: the fewest queries that the theorem is stated for.

    Returns:
        The number; up to 10^15 exactly, beyond it the largest power of ten, 10^10,000 at most; 0
        where not even one query, or ``least``, can be answered that well.

    Raises:
        InputError: if an argument is out of range.

    Cost: 66 evaluations of the theorem at most.
    Reference: Blum, Ligett and Roth (2013); Dwork and Roth (2014), section 4.1, the footnote on
    how large |Q| may be.

    Example:
        >>> from beam_dp.theorems.synthesis import small_db_theorem
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
        found = MAX_QUERIES if beyond is None else _power(beyond - 1)
    else:
        found = first - 1
    theorem = theorem_of(found)
    return found if theorem.failure_probability(num_records) <= failure_probability else 0


def _power(more: int) -> int:
    """A power of ten, from 10^15 on."""
    power: int = 10 ** (_EXACT_POWER + more)
    return power


def mwem_queries_allowed(
    num_cells: int,
    epsilon: float,
    num_records: int,
    target_error: float,
    failure_probability: float,
    max_records_per_unit: int = 1,
) -> tuple[int, int]:
    """Returns the most queries that published MWEM keeps an error for, and its rounds for them.

    T rounds keep A for ln|Q| <= epsilon (A - 2N sqrt(ln|X| / T)) / (10 k T). As a function of T
    this rises up to T = 9 N^2 ln|X| / A^2, where it is epsilon A^3 / (270 k N^2 ln|X|), and then
    falls: one of the two integers beside it is best. The theorem fails with probability 2T / |Q|,
    so that few queries are none.

    Args:
        num_cells: |X| >= 1.
        epsilon: finite, > 0.
        num_records: N >= 1.
        target_error: A, in records.
        failure_probability: that 2T / |Q| may be at most, in (0, 1).
        max_records_per_unit: k.

    Returns:
        As of ``queries_allowed``, and T.

    Raises:
        InputError: if an argument is out of range.

    Reference: Hardt, Ligett and McSherry (2012), Theorem 2.2.

    Example:
        >>> mwem_queries_allowed(1024, 1.0, 10**8, 10**7, 0.05)
        (100000000000000000000000, 6238)
    """
    checked_number("target_error", target_error, above=0)
    checked_parameters(counts={"num_cells": num_cells, "num_records": num_records}, reals={})
    share = target_error / num_records
    best = min(9 * math.log(num_cells) / share / share, _MAX_ROUNDS) if share else _MAX_ROUNDS

    def allowed(num_rounds: int) -> tuple[int, int]:
        def theorem_of(count: int) -> Theorem:
            return mwem_theorem(num_cells, count, epsilon, max_records_per_unit, num_rounds)

        count = queries_allowed(theorem_of, num_records, target_error, failure_probability)
        return count, num_rounds

    fewer, more = (allowed(max(1, number)) for number in (math.floor(best), math.ceil(best)))
    return more if more[0] > fewer[0] else fewer

"""What is proved of published MWEM where its rounds end as soon as the errors are small."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable

from beam_dp.errors import InputError
from beam_dp.mechanisms.marginals.textbook_mwem import MAX_ROUNDS, RoundNoise, round_noise
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.theorems.theorem import Theorem, checked_parameters, constant

_GROWTH = 1.1  # of the numbers of rounds that are compared
_DIGITS = 4  # of a threshold


@dataclasses.dataclass(frozen=True)
class EarlyStop:
    """Rounds, and when they end.

    ``max_error``: of any query, in records.
    """

    num_rounds: int
    stop_below: float
    max_error: float


def early_stop_theorem(
    num_cells: int,
    num_queries: int,
    guarantee: Guarantee,
    failure_probability: float,
    num_rounds: int | None = None,
) -> Theorem:
    """Returns how wrong the hypothesis can be that published MWEM releases if it stops early.

    ``num_queries``: |Q| >= 1, cells of marginals.
    ``failure_probability``: beta, in (0, 1).
    ``num_rounds``: T; by default the number with the least bound, up to 100,000.

    Accuracy: with probability 1 - beta the rounds end before the last update, and the hypothesis
    that is released is wrong by no more for any query. Two statements make it, which
    ``RoundNoise.stopped_error`` and ``RoundNoise.stopping_threshold`` prove. Whenever a comparison
    with A N ends the rounds, no error exceeds A N + the noise of a comparison + what a selection
    may lose: so a release says that has made fewer updates than T; one that has made all T says
    nothing of its last hypothesis. And as every update of an error of a N or more lowers the
    relative entropy by nearly 15/32 a^2, T = 32 ln|X| / (15 a^2) of them are impossible, so that a
    threshold of a N and the noise is met. The published step of half the error promises a quarter
    of it only, 4 ln|X| / a^2 updates.

    Reference: a lecture on online private multiplicative weights; Hardt, Ligett and McSherry
    (2012), the proof of Theorem 2.2; Dwork and Roth (2014), Theorems 3.11 and 3.24.

    Example:
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> theorem = early_stop_theorem(1024, 1000, promise, 0.05)
        >>> round(theorem.bound(10**6).max_error_fraction, 3), theorem.records_needed(0.1)
        (0.21, 9994362)
    """
    noises = _noises(num_cells, num_queries, guarantee, failure_probability, num_rounds)

    def error(num_records: int) -> float:
        best = _best(noises, num_cells, num_queries, num_records, failure_probability)
        return best.max_error

    name = "MWEM that stops early, of the hypothesis that is released"
    return Theorem(name, constant(failure_probability), error)


def best_early_stop(
    num_cells: int,
    num_queries: int,
    guarantee: Guarantee,
    failure_probability: float,
    num_records: int,
    num_rounds: int | None = None,
) -> EarlyStop:
    """Returns the rounds and the threshold that ``early_stop_theorem`` is of.

    Args: as of ``early_stop_theorem``, and
        num_records: N >= 1.

    Example:
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> best = best_early_stop(1024, 1000, promise, 0.05, 10**6)
        >>> best.num_rounds, best.stop_below
        (734, 0.1512)
    """
    checked_parameters(counts={"num_records": num_records}, reals={})
    noises = _noises(num_cells, num_queries, guarantee, failure_probability, num_rounds)
    return _best(noises, num_cells, num_queries, num_records, failure_probability)


def _noises(
    num_cells: int,
    num_queries: int,
    guarantee: Guarantee,
    failure_probability: float,
    num_rounds: int | None,
) -> list[RoundNoise]:
    """The noise of every number of rounds that is compared."""
    counts = {"num_cells": num_cells, "num_queries": num_queries}
    if num_rounds is not None:
        counts["num_rounds"] = num_rounds
    checked_parameters(failure_probability=failure_probability, counts=counts, reals={})
    if num_rounds is not None:
        return [round_noise(guarantee, num_rounds, stops=True)]
    found: list[RoundNoise] = []
    rounds = 1
    while rounds <= MAX_ROUNDS:
        try:
            found.append(round_noise(guarantee, rounds, stops=True))
        except InputError:
            # More rounds need more noise.
            if not found:
                raise
            break
        rounds = max(rounds + 1, round(rounds * _GROWTH))
    return found


def _best(
    noises: Iterable[RoundNoise],
    num_cells: int,
    num_queries: int,
    num_records: int,
    failure_probability: float,
) -> EarlyStop:
    found = []
    for noise in noises:
        threshold = noise.stopping_threshold(num_cells, num_records, failure_probability)
        below = _rounded_up(threshold / num_records)
        error = noise.stopped_error(below * num_records, num_queries, failure_probability)
        found.append(EarlyStop(noise.num_rounds, below, error))
    return min(found, key=lambda each: each.max_error)


def _rounded_up(share: float) -> float:
    """A number of few digits, for people to type, that is at least the one given."""
    unit = 10.0 ** (math.floor(math.log10(share)) + 1 - _DIGITS)
    return float(f"{math.ceil(share / unit) * unit:.{_DIGITS}g}")

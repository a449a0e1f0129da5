"""Theorems on SmallDB and MWEM."""

from __future__ import annotations

import dataclasses
import functools
import math

from beam_dp.checks import checked_number
from beam_dp.errors import InputError
from beam_dp.mechanisms.marginals import textbook_mwem
from beam_dp.mechanisms.small_db.choice import MAX_SIZE
from beam_dp.mechanisms.small_db.size import small_db_error
from beam_dp.planning.theorems.theorem import (
    Calibration,
    Theorem,
    checked_parameters,
    constant,
    queries_allowed,
)
from beam_dp.privacy.guarantee import Guarantee

# The ratio between successive sizes of small databases, or numbers of rounds, to compare.
_GROWTH = 1.1
# The largest number of rounds to compare.
_MAX_ROUNDS = 2.0**53


def small_db_theorem(
    num_cells: int,
    num_queries: int,
    epsilon: float,
    failure_probability: float,
    calibration: Calibration = "tight",
    max_records_per_unit: int = 1,
    max_size: int = MAX_SIZE,
) -> Theorem:
    """Returns an error bound for the answers of a small database.

    ``num_cells``: the number U >= 1 of cells of the domain.
    ``num_queries``: the number |Q| of distinct queries; at least 3 for ``textbook``.
    ``failure_probability``: the probability beta, in (0, 1).

    Accuracy: the bound is for N records and is true with probability 1 - beta. ``textbook`` is the
    published theorem solved for the error, N ((16 ln U ln|Q| + 4 ln(1 / beta)) / (epsilon
    N))^(1/3), which treats the size as a real number: rounding it up adds up to 4 ln U / (epsilon
    a) to the N that an error of a N needs. ``tight`` takes the size m with the smallest bound a N +
    (2 / epsilon) (ln C(U + m - 1, m) + ln(1 / beta)), where a is the smallest share for which m is
    enough (see ``best_small_db_size``).

    Reference: Dwork and Roth (2014), Theorem 4.5 and Proposition 4.4; Blum, Ligett and Roth (2013).

    Example:
        >>> theorem = small_db_theorem(1024, 1024, 1.0, 0.05, "textbook")
        >>> round(theorem.bound(10**6).max_error, 1), theorem.records_needed(0.1)
        (92079.5, 780708)
        >>> small_db_theorem(1024, 1024, 1.0, 0.05).records_needed(0.1) < 68_610
        True
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={
            "num_cells": num_cells,
            "num_queries": num_queries,
            "max_records_per_unit": max_records_per_unit,
            "max_size": max_size,
        },
        reals={"epsilon": epsilon},
    )
    of_record = epsilon / max_records_per_unit

    def textbook(num_records: int) -> float:
        main = 16 * math.log(num_cells) * math.log(num_queries)
        cubed = (main - 4 * math.log(failure_probability)) / (of_record * num_records)
        return num_records * math.cbrt(cubed)

    def tight(num_records: int) -> float:
        return best_small_db_size(
            num_cells, num_queries, of_record, failure_probability, num_records, 1, max_size
        )[0]

    name = "SmallDB: Proposition 4.4 with multisets and the best size"
    if calibration == "textbook":
        name = "SmallDB: Dwork and Roth (2014), Theorem 4.5"
    error = textbook if calibration == "textbook" else tight
    return Theorem(name, constant(failure_probability), error)


@functools.lru_cache(maxsize=256)
def best_small_db_size(
    num_cells: int,
    num_queries: int,
    epsilon: float,
    failure_probability: float,
    num_records: int,
    max_records_per_unit: int = 1,
    max_size: int = MAX_SIZE,
) -> tuple[float, int]:
    """Returns the smallest bound, in records, among compared sizes, and the size that has it.

    Example:
        >>> best_small_db_size(16, 16, 1.0, 0.05, 10_000)[1]
        9617
    """
    of_record = epsilon / max_records_per_unit
    bounds = []
    size = 1
    while size <= max_size:
        # A sample of this size has at most this error for every query: 2|Q| exp(-2 m a^2) < 1.
        share = math.sqrt(math.log(2 * num_queries) / (2 * size)) * (1 + 1e-12)
        error = small_db_error(
            num_cells, size, of_record, num_records, min(share, 1.0), failure_probability
        )
        bounds.append((error, size))
        size = max(size + 1, round(size * _GROWTH))
    return min(bounds)


def mwem_theorem(
    num_cells: int,
    num_queries: int,
    epsilon: float,
    max_records_per_unit: int = 1,
    num_rounds: int | None = None,
) -> Theorem:
    """Returns an error bound for the average of all hypotheses of published MWEM.

    Accuracy: for |X| cells, |Q| queries, T rounds and k records per unit, 2N sqrt(ln|X| / T) + 10 k
    T ln|Q| / epsilon with probability 1 - 2T / |Q|, for pure privacy. The release is the last
    hypothesis, for which the theorem proves nothing: see ``best_early_stop``. The bound is often
    vacuous.

    Reference: Hardt, Ligett and McSherry (2012), Theorem 2.2.

    Example:
        >>> bound = mwem_theorem(1024, 1000, 1.0, num_rounds=10).bound(10**6)
        >>> round(bound.max_error, 3), bound.vacuous
        (1665799.998, True)
    """
    checked_parameters(
        counts={
            "num_cells": num_cells,
            "num_queries": num_queries,
            "max_records_per_unit": max_records_per_unit,
            "num_rounds": 1 if num_rounds is None else num_rounds,
        },
        reals={"epsilon": epsilon},
    )

    def rounds(num_records: int) -> int:
        return num_rounds or textbook_mwem.best_num_rounds(
            num_cells, num_queries, epsilon, num_records
        )

    def error(num_records: int) -> float:
        of_record = epsilon / max_records_per_unit
        return textbook_mwem.published_error(
            num_cells, num_queries, of_record, num_records, rounds(num_records)
        )

    return Theorem(
        "MWEM: Hardt, Ligett and McSherry (2012), Theorem 2.2, for the average hypothesis",
        lambda num_records: min(1.0, 2 * rounds(num_records) / num_queries),
        error,
    )


def mwem_queries_allowed(
    num_cells: int,
    epsilon: float,
    num_records: int,
    target_error: float,
    failure_probability: float,
    max_records_per_unit: int = 1,
) -> tuple[int, int]:
    """Returns the largest number of queries that published MWEM answers within an error, and T.

    T rounds keep the error A = ``target_error`` if ln|Q| <= epsilon (A - 2N sqrt(ln|X| / T)) / (10
    k T). As a function of T the right side rises up to T = 9 N^2 ln|X| / A^2, where it is epsilon
    A^3 / (270 k N^2 ln|X|), and then falls: one of the two nearest integers is best. The theorem
    fails with probability 2T / |Q|, so a small number of queries counts as 0.

    ``failure_probability``: the largest 2T / |Q| to accept, in (0, 1).

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


_DIGITS = 4  # significant digits of a threshold


@dataclasses.dataclass(frozen=True)
class EarlyStop:
    """The number of rounds, the threshold, and the largest error of any query, in records."""

    num_rounds: int
    stop_below: float
    max_error: float


def best_early_stop(
    num_cells: int,
    num_queries: int,
    guarantee: Guarantee,
    failure_probability: float,
    num_records: int,
    num_rounds: int | None = None,
) -> EarlyStop:
    """Returns rounds and a threshold for published MWEM that stops early, with an error bound.

    ``num_queries``: the number |Q| >= 1 of queries (cells of marginals).
    ``failure_probability``: the probability beta, in (0, 1).
    ``num_records``: the number N >= 1 of records.
    ``num_rounds``: the number T of rounds; by default the best one up to 100,000.

    Accuracy: with probability 1 - beta, the rounds end before the last update, and every query's
    error in the released hypothesis is within the bound. The proof has two parts,
    ``RoundNoise.stopped_error`` and ``RoundNoise.stopping_threshold``. First, if a comparison with
    the threshold f N ends the rounds, every error is at most f N plus the noise of a comparison
    plus the loss of a selection. So a release with fewer than T updates states this bound; a
    release with all T updates states no bound for its last hypothesis. Second, every update with an
    error of at least a N lowers the relative entropy by nearly 15/32 a^2. So the errors of T = 32
    ln|X| / (15 a^2) updates cannot all be that large, and in one of these rounds a comparison falls
    below the threshold, if f N is a N plus the noise. The published step of half the error
    guarantees only a quarter of this error, 4 ln|X| / a^2 updates.

    Reference: a lecture on online private multiplicative weights; Hardt, Ligett and McSherry
    (2012), the proof of Theorem 2.2; Dwork and Roth (2014), Theorems 3.11 and 3.24.

    Example:
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> best = best_early_stop(1024, 1000, promise, 0.05, 10**6)
        >>> best.num_rounds, best.stop_below, round(best.max_error)
        (734, 0.1512, 210082)
    """
    counts = {"num_cells": num_cells, "num_queries": num_queries, "num_records": num_records}
    if num_rounds is not None:
        counts["num_rounds"] = num_rounds
    checked_parameters(failure_probability=failure_probability, counts=counts, reals={})
    stops: list[EarlyStop] = []
    rounds = num_rounds or 1
    while rounds <= (num_rounds or textbook_mwem.MAX_ROUNDS):
        try:
            noise = textbook_mwem.round_noise(guarantee, rounds, stops=True)
        except InputError:
            # A larger number of rounds needs more noise.
            if not stops:
                raise
            break
        threshold = noise.stopping_threshold(num_cells, num_records, failure_probability)
        below = _rounded_up(threshold / num_records)
        error = noise.stopped_error(below * num_records, num_queries, failure_probability)
        stops.append(EarlyStop(rounds, below, error))
        rounds = max(rounds + 1, round(rounds * _GROWTH))
    return min(stops, key=lambda stop: stop.max_error)


def _rounded_up(share: float) -> float:
    """Returns a number rounded up to a few digits, for people to type."""
    unit = 10.0 ** (math.floor(math.log10(share)) + 1 - _DIGITS)
    return float(f"{math.ceil(share / unit) * unit:.{_DIGITS}g}")

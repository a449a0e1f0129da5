"""Default sizes of small databases and their error bounds, from public numbers.

N is the public number of records, and a = ``max_error_fraction`` is a fraction of N. Each size is
the smallest integer for which a bound proves that some multiset of this size answers every query
with an error of at most a N. The privacy guarantee doesn't depend on the size.
"""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import checked_integer, checked_number
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import Calibration
from beam_dp.privacy.noise.bound import exp_above
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.vc_dimension import log_sauer_bound

VCBound = Literal["finite", "devroye", "vc71"]

LEAST_ERROR_FRACTION = 1e-9
MAX_VC_DIMENSION = 10_000


def small_db_size(
    num_queries: int, max_error_fraction: float, calibration: Calibration = "tight"
) -> int:
    """Returns a size m at which some sample of the data answers all |Q| queries.

    A sample misses one query by more than a with probability at most 2 exp(-2 m a^2) (Hoeffding);
    the sum of these probabilities over all queries must be below 1. ``textbook`` uses
    m = ceil(ln|Q| / a^2), which needs at least three queries; ``tight`` uses the smallest such m,
    floor(ln(2|Q|) / (2 a^2)) + 1.

    ``num_queries``: |Q|, the number of distinct queries, with values in [0, 1].
    ``max_error_fraction``: a, in (0, 1].

    Reference: Dwork and Roth (2014), Theorem 4.2; Blum, Ligett and Roth (2013).
    """
    _check_fraction(max_error_fraction)
    if num_queries < 1 or (calibration == "textbook" and num_queries < 3):
        least = 3 if calibration == "textbook" else 1
        raise InputError("num_queries", num_queries, f"must be >= {least} for {calibration} sizes")
    if calibration == "textbook":
        return math.ceil(math.log(num_queries) / max_error_fraction**2)
    return _least_size(math.log(2 * num_queries), max_error_fraction)


def small_db_size_by_vc(
    vc_dimension: int,
    max_error_fraction: float,
    bound: VCBound | None = None,
    num_cells: int | None = None,
) -> int:
    """Returns a size m from the VC dimension v of 0/1 queries, for any number of queries.

    * ``finite``: 2 Phi(U) exp(-2 m a^2) < 1, where Phi(s) = sum of C(s, i) for i <= v bounds the
      number of distinct queries on a universe of U cells (Sauer).
    * ``devroye``: 4 exp(4a + 4a^2) Phi(m^2) exp(-2 m a^2) < 1, for any universe.
    * ``vc71``: 4 Phi(2m) exp(-m a^2 / 8) < 1; not tight.

    A universe of U cells has at most 2^U distinct queries, so a v above U is replaced by U.

    ``max_error_fraction``: a, in (0, 1].

    Reference: Vapnik and Chervonenkis (1971); Devroye (1982); Dwork and Roth (2014), Theorem 4.8.
    """
    _check_fraction(max_error_fraction)
    checked_integer("vc_dimension", vc_dimension, 0, MAX_VC_DIMENSION)
    if num_cells is not None:
        vc_dimension = min(vc_dimension, num_cells)
    if bound is None:
        kinds: list[VCBound] = ["devroye", "vc71"]
        if num_cells is not None:
            kinds.append("finite")
        return min(
            small_db_size_by_vc(vc_dimension, max_error_fraction, kind, num_cells) for kind in kinds
        )
    if bound == "finite":
        num_cells = checked_integer("num_cells", num_cells, 1)
        log_union = math.log(2) + log_sauer_bound(num_cells, vc_dimension)
        return _least_size(log_union, max_error_fraction)
    a, v = max_error_fraction, vc_dimension
    if bound == "devroye":
        return _least(
            lambda m: math.log(4) + log_sauer_bound(m * m, v) + 4 * a + 4 * a**2 - 2 * m * a**2 < 0
        )
    return _least(lambda m: math.log(4) + log_sauer_bound(2 * m, v) - m * a**2 / 8 < 0)


def small_db_size_for_intervals(max_error_fraction: float) -> int:
    """Returns ceil(1 / a), a size that suffices for all intervals of an ordered universe.

    The quantiles at fractions (i - 1/2) / m of the records answer a prefix with an error of at
    most 1 / (2m), and an interval, a difference of two prefixes, of at most 1 / m.
    """
    _check_fraction(max_error_fraction)
    return math.ceil(1 / max_error_fraction)


def size_of_workload(
    num_queries: int,
    max_error_fraction: float,
    calibration: Calibration = "tight",
    *,
    vc_dimension: int | None = None,
    num_cells: int | None = None,
    are_intervals: bool = False,
) -> tuple[int, str]:
    """Returns the smallest size that any rule gives for a workload, and the name of the rule.

    ``max_error_fraction``: a, in (0, 1].
    ``vc_dimension``: the VC dimension of 0/1 queries, if known.
    """
    sizes = [(small_db_size(num_queries, max_error_fraction, calibration), "queries")]
    if calibration == "tight":
        if vc_dimension is not None:
            by_vc = small_db_size_by_vc(vc_dimension, max_error_fraction, None, num_cells)
            sizes.append((by_vc, "vc_dimension"))
        if are_intervals:
            sizes.append((small_db_size_for_intervals(max_error_fraction), "intervals"))
    return min(sizes)


def small_db_error_fraction(size: int, size_for: Callable[[float], int]) -> float:
    """Returns the least error fraction a for which ``size`` is enough, up to 1e-9; at most 1.

    ``size_for``: the size for an error fraction in (0, 1]; a decreasing function.
    """
    low, high = 0.0, 1.0  # ``size`` is enough for the fraction ``high``, or ``high`` is 1
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if size_for(middle) <= size else (middle, high)
    return high


def num_multisets(num_cells: int, size: int) -> int:
    """Returns C(U + m - 1, m), the number of multisets of m = ``size`` cells out of U."""
    return math.comb(num_cells + size - 1, size)


def log_num_multisets(num_cells: int, size: int) -> float:
    """Returns the logarithm of ``num_multisets``, to 12 digits, without computing the integer."""
    drawn = np.arange(size, dtype=np.float64)
    return float(np.log((float(num_cells) + drawn) / (drawn + 1)).sum())


def small_db_error(
    num_cells: int,
    size: int,
    epsilon: float,
    num_records: int,
    max_error_fraction: float,
    failure_probability: float,
) -> float:
    """Returns a bound on the errors of all queries, in records, with probability 1 - beta.

    The bound is a N + (2 / epsilon) (ln C(U + m - 1, m) + ln(1 / beta)), if some multiset of size m
    answers all queries within a N and there are N records; for n records add |n - N|.

    ``num_cells``: U, the number of cells; distinct columns of the queries give no smaller bound.
    ``failure_probability``: beta, in (0, 1).

    Reference: Dwork and Roth (2014), Proposition 4.4, with the number of multisets in place of
    the number of sequences.
    """
    log_terms = log_num_multisets(num_cells, size) - math.log(failure_probability)
    return max_error_fraction * num_records + 2 / epsilon * log_terms


def _least_size(log_union: float, a: float) -> int:
    """Returns the least integer m with log_union < 2 m a^2."""
    return math.floor(log_union / (2 * a**2)) + 1


def _least(holds: Callable[[int], bool]) -> int:
    """Returns the least integer m such that a condition is true for m and all larger integers."""
    high = 1
    while not holds(high):
        high *= 2
    first = high // 2 + 1  # the integer before this one is 0, or does not satisfy the condition
    return first + bisect_left(range(first, high), True, key=holds)


def _check_fraction(max_error_fraction: float) -> None:
    checked_number("max_error_fraction", max_error_fraction, least=LEAST_ERROR_FRACTION, most=1)


# The probability distribution of small databases: multisets of cells, weighted by their errors.
#
# A multiset's weight is at most a product of weights of its cells: a loss is the largest of many
# excesses, so the loss is at least any average of excesses, and an average is a sum over the cells
# of a multiset. exp(-loss / scale) is therefore at most a product of weights of cells. The sum of
# these products over all multisets of one size is a coefficient of a product of power series.


# Exact answers are clipped here to fit 64 bits. Clipping doesn't raise the sensitivity.
MAX_TARGET = 2**61
MAX_ANSWER = 2**60


@dataclasses.dataclass(frozen=True, eq=False)
class MultisetLaw:
    """A distribution over multisets y of one size: P(y) is proportional to exp(-loss(y) / scale).

    The loss is the integer max over q of |target(q) - sum of answers(q, x) over x in y|. Cells
    with equal answers to every query have the same type; multisets of one size from the cells of
    one type are equally likely. ``size`` times the largest answer is at most 2^60.
    """

    targets: tuple[int, ...]  # one per query, 0 <= target <= 2^61; secret
    answers: NDArray[np.int64]  # shape (num_queries, num_types), >= 0, distinct columns
    members: tuple[NDArray[np.int64], ...]  # the cells of each type
    size: int  # the number of cells in a multiset, >= 1
    scale: Fraction

    @property
    def num_types(self) -> int:
        """The number of distinct columns."""
        return len(self.members)

    @cached_property
    def ways(self) -> tuple[int, ...]:
        """The number of cells of each type."""
        return tuple(len(cells) for cells in self.members)

    @property
    def num_multisets(self) -> int:
        """The number of multisets of cells."""
        return math.comb(sum(self.ways) + self.size - 1, self.size)


def draw_cells(cells: NDArray[np.int64], size: int, noise: NoiseSource) -> list[int]:
    """Returns a uniformly drawn multiset of the given size from some cells.

    Multisets of c from k cells correspond to sets of c from k + c - 1 places (stars and bars).
    Floyd's algorithm draws such a set with c uniform integers.
    """
    places = len(cells) + size - 1
    chosen: set[int] = set()
    for last in range(places - size, places):
        place = noise.below(last + 1)
        chosen.add(last if place in chosen else place)
    return [int(cells[place - rank]) for rank, place in enumerate(sorted(chosen))]


# Weights of cells are integers in units of 2^-64.
TILT_BITS = 64
# The weight of the excesses in the average; the least known loss gets the rest of the weight.
_MASSES = (1.0, 0.75, 0.5, 0.25)
_NUM_STEPS = 150
_MARGIN = 1e-9
_RELATIVE_MARGIN = 1e-12


@dataclasses.dataclass(frozen=True, eq=False)
class Tilt:
    """An upper bound on weights: exp(-rest * (least known loss) / scale) times weights of cells."""

    rest: float  # the part of the average that is not excesses, >= 0
    weights: tuple[int, ...]  # the weight of a cell, per type; in units of 2^-64


def find_tilts(law: MultisetLaw, least: int) -> list[Tilt]:
    """Returns several upper bounds on weights; their sums over all multisets are nearly minimal.

    In the first bound, the plain tilt, all cells have weight 1. The law and everything
    derived from the law are secret.

    Reference: for each mass, the sum of all bounds is convex in the shares of the average.
    Exponentiated gradient descent reduces it (Kivinen and Warmuth, 1997).
    """
    plain = Tilt(1.0, (1 << TILT_BITS,) * law.num_types)
    offsets = [target + least for target in law.targets]
    offsets += [least - target for target in law.targets]
    answers = np.concatenate([law.answers, -law.answers])
    largest = law.size * answers.max(axis=1)
    # The answers to the remaining queries are never off by more than the least loss.
    useful = [number for number, offset in enumerate(offsets) if largest[number] > offset]
    if not useful:
        return [plain]
    scale = float(law.scale)
    excess = answers[useful] / scale
    excess -= np.array([offsets[number] / law.size / scale for number in useful])[:, None]
    margin = _MARGIN + _RELATIVE_MARGIN * float(np.abs(excess).max())
    tilts = [plain]
    for mass in _MASSES:
        exponents = -(_best_shares(excess, law, mass) @ excess) + margin
        top = max(math.ceil(float(exponents.max()) / math.log(2)), 0)
        weights = tuple(
            exp_above(top * math.log(2) - power, TILT_BITS + top) for power in exponents.tolist()
        )
        tilts.append(Tilt(1 - mass, weights))
    return tilts


def _best_shares(excess: NDArray[np.float64], law: MultisetLaw, mass: float) -> NDArray[np.float64]:
    ways = np.array(law.ways, np.float64)
    shares = np.full(len(excess), mass / len(excess))
    best, least = shares, math.inf
    for step in range(_NUM_STEPS):
        value, numbers = _log_sum(-(shares @ excess), ways, law.size)
        if value < least:
            best, least = shares, value
        slopes = excess @ numbers  # the derivatives of minus the logarithm
        spread = float(np.ptp(slopes))
        if spread <= 0:
            break
        rate = 4 * math.sqrt(math.log(len(shares) + 1) / (step + 1)) / spread
        logs = np.log(np.maximum(shares, 1e-300)) + rate * (slopes - slopes.max())
        shares = np.exp(logs - logs.max())
        shares *= mass / shares.sum()
    return best


def _log_sum(
    exponents: NDArray[np.float64], ways: NDArray[np.float64], size: int
) -> tuple[float, NDArray[np.float64]]:
    """Returns the log of the sum over all multisets, and the expected number of cells per type."""
    top = float(exponents.max())
    powers = np.exp(np.multiply.outer(np.arange(1, size + 1), exponents - top))
    sums = powers @ ways
    coefficients = np.ones(size + 1)
    for degree in range(1, size + 1):
        coefficients[degree] = sums[:degree] @ coefficients[degree - 1 :: -1][:degree] / degree
    numbers = ways * (coefficients[size - 1 :: -1][:size] @ powers) / coefficients[size]
    return float(np.log(coefficients[size])) + size * top, numbers

"""Audits of differential privacy, for the mechanisms of this package and for your own mechanisms.

There are three audits, and each audit finds faults that the other two audits cannot find:

* ``audit_law`` compares exact output distributions on all neighbours over a tiny universe. It
  refutes a wrong calibration, but doesn't test the code that draws.
* ``audit_sampler`` compares draws of the production sampler with the closed form, by chi-square.
* ``audit_black_box`` runs a mechanism on two neighbouring data sets. It bounds epsilon from below
  for any code, and also fails if the lower bound is smaller than expected.

An audit can refute a guarantee but can never prove a guarantee. Break your mechanism on purpose
(for example, halve its noise) and check that the audits fail.

Example: a histogram over a declared universe, and a histogram that leaves out empty cells.
    >>> from beam_dp import Guarantee
    >>> promise = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
    >>> def histogram(data):
    ...     return product_law([discrete_laplace(1.0, data.count(cell), -6, 8) for cell in "ab"])
    >>> audit_law(histogram, "ab", promise).is_private
    True
    >>> def without_empty_cells(data):
    ...     cells = [cell for cell in "ab" if cell in data]
    ...     laws = [discrete_laplace(1.0, data.count(cell), -6, 8) for cell in cells]
    ...     return {(*cells, *outcome): p for outcome, p in product_law(laws).items()}
    >>> audit_law(without_empty_cells, "ab", promise).epsilon
    inf
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.testing.black_box import (
    FALSE_ALARM as FALSE_ALARM,
    BlackBoxAudit as BlackBoxAudit,
    Event as Event,
    ForeseenEvent as ForeseenEvent,
    Law as Law,
    audit_black_box as audit_black_box,
    choose_event as choose_event,
    epsilon_lower_bound as epsilon_lower_bound,
)

R = TypeVar("R", bound=Hashable)

# Tolerances for rounding in the laws: relative to epsilon and delta, and absolute in probability.
_RELATIVE = 1e-9
_ABSOLUTE = 1e-13


@dataclasses.dataclass(frozen=True)
class ExactAudit:
    """The result of an exact audit: the worst case over all neighbours.

    ``epsilon``: the largest absolute log-ratio of an output's probabilities on two neighbours.
    ``neighbours``: the two data sets with the largest delta if the guarantee has a delta, otherwise
    with the largest epsilon.
    ``num_pairs``: the number of pairs of neighbours that were compared.
    """

    guarantee: Guarantee
    epsilon: float
    delta: float
    neighbours: tuple[tuple[Hashable, ...], tuple[Hashable, ...]]
    num_pairs: int

    @property
    def is_private(self) -> bool:
        """Whether the guarantee is true for all compared neighbours."""
        if self.epsilon <= self.guarantee.epsilon * (1 + _RELATIVE):
            return True
        return self.delta <= self.guarantee.delta * (1 + _RELATIVE) + (
            _ABSOLUTE if self.guarantee.delta else 0.0
        )


def unit_holdings(records: Sequence[R], most: int) -> list[tuple[R, ...]]:
    """Returns all multisets of records that one privacy unit may have, of size 0 to ``most``.

    Example:
        >>> unit_holdings("ab", 2)
        [(), ('a',), ('b',), ('a', 'a'), ('a', 'b'), ('b', 'b')]
    """
    sizes = range(most + 1)
    return [unit for size in sizes for unit in combinations_with_replacement(records, size)]


def neighbouring_units(
    records: Sequence[R], neighboring: Neighboring | str, most: int = 1
) -> Iterator[tuple[tuple[R, ...], tuple[R, ...]]]:
    """Yields all unordered pairs of one unit's records in two neighbouring data sets.

    Under add-or-remove-one, the unit is in exactly one of the two data sets. Under replace-one, the
    unit has different records in the two data sets; records may be missing or outside the domain,
    so the unit's records in either data set may be empty.

    ``most``: the largest number of records of a unit, >= 1.

    Example:
        >>> list(neighbouring_units("ab", "add_or_remove_one"))
        [(('a',), ()), (('b',), ())]
        >>> len(list(neighbouring_units("ab", "replace_one")))
        3
    """
    holdings = unit_holdings(records, most)
    if Neighboring(neighboring) is Neighboring.ADD_OR_REMOVE_ONE:
        yield from ((unit, ()) for unit in holdings if unit)
    else:
        yield from combinations(holdings, 2)


def audit_law(
    law: Callable[[tuple[R, ...]], Law],
    records: Sequence[R],
    guarantee: Guarantee,
    *,
    num_others: int = 2,
) -> ExactAudit:
    """Compares a mechanism's exact output distributions on all neighbours over a tiny universe.

    The verdict is the ``is_private`` attribute of the result.

    Example:
        >>> promise = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
        >>> audit_law(lambda data: discrete_laplace(1.0, len(data), -9, 9), "a", promise).is_private
        True
        >>> audit = audit_law(lambda data: discrete_laplace(0.5, len(data), -9, 9), "a", promise)
        >>> round(audit.epsilon, 6)
        2.0
    """
    position = {record: number for number, record in enumerate(records)}
    laws: dict[tuple[R, ...], Law] = {}

    def of(data: tuple[R, ...]) -> Law:
        ordered = tuple(sorted(data, key=position.__getitem__))
        if ordered not in laws:
            laws[ordered] = law(ordered)
            if not abs(sum(laws[ordered].values()) - 1) < _RELATIVE:
                raise ValueError("the probabilities of a law must sum to 1")
        return laws[ordered]

    limit = guarantee.max_records_per_unit
    worst = (-1.0, -1.0)
    epsilon = delta = 0.0
    pair: tuple[tuple[R, ...], tuple[R, ...]] = ((), ())
    num_pairs = 0
    for others in unit_holdings(records, num_others):
        for one, other in neighbouring_units(records, guarantee.neighboring, limit):
            first, second = of(others + one), of(others + other)
            ratio = largest_log_ratio(first, second)
            # Without this, rounding would give a delta of about 1e-16 if the ratio is exactly
            # epsilon.
            within = ratio <= guarantee.epsilon * (1 + _RELATIVE)
            excess = 0.0 if within else hockey_stick(first, second, guarantee.epsilon)
            epsilon, delta = max(epsilon, ratio), max(delta, excess)
            num_pairs += 1
            if (rank := (excess if guarantee.delta else ratio, ratio)) > worst:
                worst, pair = rank, (others + one, others + other)
    if num_pairs == 0:
        raise ValueError("there are no neighbours to compare: the universe has no records")
    return ExactAudit(guarantee, epsilon, delta, pair, num_pairs)


# Outcomes with a smaller expected count share one cell of the test: if cells are small, Pearson's
# statistic has a longer tail than the chi-square distribution. The worst law has two outcomes. By
# the exact binomial distribution, a test at 1e-6 rejects this law with 2.1 times this probability
# if all cells have an expected count >= 200, 5.2 times for >= 50, and 29 times for >= 10.
_LEAST_EXPECTED, _ENOUGH_EXPECTED, _SHARE_EXPECTED = 10.0, 200.0, 0.01


@dataclasses.dataclass(frozen=True)
class SamplerAudit:
    """The result of a chi-square test; ``statistic`` is infinite after an impossible outcome."""

    statistic: float
    critical_value: float
    freedoms: int

    @property
    def passes(self) -> bool:
        """Whether the outcomes are consistent with the law."""
        return self.statistic <= self.critical_value


def audit_sampler(
    outcomes: Iterable[Any], law: Law, *, false_alarm: float = FALSE_ALARM
) -> SamplerAudit:
    """Tests by chi-square whether outcomes follow a law.

    ``law``: the probability of every outcome; clip unbounded outcomes to a finite range.
    ``false_alarm``: the probability that a true law is rejected, in the limit of many draws. At
    1e-6 a true law is rejected with at most 2.1 times this probability for 20,000 draws or more,
    5.2 times for 5,000 draws or more, and 29 times for fewer draws.

    Example:
        >>> audit_sampler([0, 1] * 50, {0: 0.5, 1: 0.5}).passes
        True
        >>> audit_sampler([0] * 100, {0: 0.5, 1: 0.5}).passes
        False
    """
    counts = Counter(outcomes)
    runs = sum(counts.values())
    ordered = sorted(law, key=law.__getitem__, reverse=True)
    impossible = any(law.get(outcome, 0.0) == 0 for outcome in counts)
    expected = np.array([law[outcome] for outcome in ordered]) * runs
    observed = np.array([counts[outcome] for outcome in ordered], np.float64)
    least = min(_ENOUGH_EXPECTED, max(_LEAST_EXPECTED, _SHARE_EXPECTED * runs))
    enough = int((expected >= least).sum())
    if enough < len(ordered):
        rest = max(enough, 1)
        if expected[rest:].sum() < least:
            rest -= 1  # the shared cell is still too small: add the next rarest outcome
        expected = np.append(expected[:rest], expected[rest:].sum())
        observed = np.append(observed[:rest], observed[rest:].sum())
    if len(expected) < 2 and not impossible:
        raise ValueError("there are too few outcomes to compare them with the law")
    statistic = np.inf if impossible else float(((observed - expected) ** 2 / expected).sum())
    freedoms = max(len(expected) - 1, 1)
    return SamplerAudit(statistic, float(stats.chi2.isf(false_alarm, freedoms)), freedoms)


# Noise beyond this number of scales has a probability below 1e-20 and is ignored.
_REACH = 48.0
_LARGEST_EXPONENT = 700.0  # exp of this number is a finite double


def largest_log_ratio(first: Law, second: Law) -> float:
    """Returns the least epsilon of pure differential privacy for two output laws.

    The result is max |ln(P(outcome) / Q(outcome))|, infinite if only one law has some outcome.

    Example:
        >>> round(largest_log_ratio({0: 0.75, 1: 0.25}, {0: 0.25, 1: 0.75}), 4)
        1.0986
    """
    largest = 0.0
    for outcome in {**first, **second}:
        one, other = first.get(outcome, 0.0), second.get(outcome, 0.0)
        if one == 0 and other == 0:
            continue
        if one == 0 or other == 0:
            return math.inf
        largest = max(largest, abs(math.log(one) - math.log(other)))
    return largest


def hockey_stick(first: Law, second: Law, epsilon: float) -> float:
    """Returns the least delta of (epsilon, delta)-privacy for two output laws, in both directions.

    The result is the maximum over events and over both orders of the laws P and Q of
    P(event) - exp(epsilon) Q(event), in [0, 1].

    Example:
        >>> hockey_stick({0: 0.75, 1: 0.25}, {0: 0.25, 1: 0.75}, 0.0)
        0.5
    """

    def scaled(probability: float) -> float:
        # exp(epsilon) alone may overflow; products above 1 can be replaced by 1.
        if epsilon < _LARGEST_EXPONENT:
            return math.exp(epsilon) * probability
        return math.exp(min(0.0, epsilon + math.log(probability))) if probability > 0 else 0.0

    forward = backward = 0.0
    for outcome in {**first, **second}:
        one, other = first.get(outcome, 0.0), second.get(outcome, 0.0)
        forward += max(0.0, one - scaled(other))
        backward += max(0.0, other - scaled(one))
    return max(forward, backward)


def discrete_laplace(scale: float, value: int, low: int, high: int) -> dict[int, float]:
    """Returns the law of an integer plus discrete Laplace noise, clipped to [low, high].

    Clipping is post-processing; each end gets the probability of its whole tail.

    ``scale``: the scale of the noise, > 0; P(z) is proportional to exp(-|z| / scale).
    ``high``: the upper end, >= low.

    Example:
        >>> [round(each, 4) for each in discrete_laplace(1.0, 0, -1, 1).values()]
        [0.2689, 0.4621, 0.2689]
    """
    return _clipped(lambda z: -np.abs(z) / scale, scale, value, low, high)


def discrete_gaussian(sigma: float, value: int, low: int, high: int) -> dict[int, float]:
    """Returns the law of an integer plus discrete Gaussian noise, clipped to [low, high].

    ``sigma``: the parameter of the noise, > 0; P(z) is proportional to exp(-z^2 / (2 sigma^2)).
    ``high``: the upper end, >= low.
    """
    return _clipped(lambda z: -(z**2) / (2 * sigma**2), sigma, value, low, high)


def exponential_mechanism(scores: Sequence[float], scale: float) -> dict[int, float]:
    """Returns the law of a selection with P(index) proportional to exp(score / scale).

    Example:
        >>> [round(each, 4) for each in exponential_mechanism([10, 9, 5, 0], 2.0).values()]
        [0.5898, 0.3578, 0.0484, 0.004]
    """
    logits = np.asarray(scores, np.float64) / scale
    weights = np.exp(logits - logits.max())
    return dict(enumerate((weights / weights.sum()).tolist()))


def permute_and_flip(scores: Sequence[float], scale: float) -> dict[int, float]:
    """Returns the law of permute-and-flip with coins exp(-gap / scale).

    P(r) = p(r) times the integral over t in [0, 1] of the product over s other than r of
    1 - t p(s), where p(s) are the coins' probabilities and t is the time at which r is visited.

    ``scores``: the exact scores, at most a few dozen.

    Example:
        >>> [round(each, 4) for each in permute_and_flip([10, 9, 5, 0], 2.0).values()]
        [0.6704, 0.2943, 0.0327, 0.0026]
    """
    coins = np.exp((np.asarray(scores, np.float64) - max(scores)) / scale)
    # Gauss-Legendre quadrature with this number of nodes is exact for the integrand's degree.
    nodes, weights = _quadrature(len(coins) // 2 + 1)
    at = (nodes + 1) / 2
    law = [
        float(coin)
        * 0.5
        * float(weights @ np.prod(1 - np.outer(at, np.delete(coins, index)), axis=1))
        for index, coin in enumerate(coins)
    ]
    return dict(enumerate(law))


_quadrature = functools.cache(np.polynomial.legendre.leggauss)


def product_law(laws: Sequence[Law]) -> dict[tuple[Hashable, ...], float]:
    """Returns the joint law of independent outcomes; the joint outcomes are tuples."""
    return {
        tuple(outcome for outcome, _ in parts): math.prod(share for _, share in parts)
        for parts in itertools.product(*(law.items() for law in laws))
    }


def _clipped(
    log_weight: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    scale: float,
    value: int,
    low: int,
    high: int,
) -> dict[int, float]:
    if not 0 < scale < math.inf or high < low:
        raise ValueError("the scale must be finite and > 0, and low at most high")
    far = max(math.ceil(_REACH * scale), abs(low - value), abs(high - value)) + 1
    noise = np.arange(-far, far + 1)
    weights = np.exp(log_weight(noise.astype(np.float64)))
    clipped = np.clip(noise + value, low, high) - low
    law = np.bincount(clipped, weights=weights, minlength=high - low + 1) / weights.sum()
    return dict(zip(range(low, high + 1), law.tolist(), strict=True))

"""Audits of differential privacy, for the mechanisms of this package and for your own mechanisms.

There are three audits, and each audit finds faults that the other two cannot find:

* ``audit_law`` compares exact output distributions on all neighbours over a tiny universe. It
  refutes a wrong calibration, but doesn't test the code that draws.
* ``audit_sampler`` compares draws of the production sampler with the closed form, by chi-square.
* ``audit_black_box`` runs a mechanism on two neighbouring data sets. It bounds epsilon from below
  for any code, and also fails if it saw less than it should have seen.

An audit can refute a guarantee but never proves a guarantee. Break your mechanism on purpose, for
example halve its noise, and check that the audits fail.

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
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from typing import Any, TypeVar

import numpy as np
from scipy import stats

from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.testing.black_box import (
    FALSE_ALARM as FALSE_ALARM,
    BlackBoxAudit as BlackBoxAudit,
    Event as Event,
    ForeseenEvent as ForeseenEvent,
    audit_black_box as audit_black_box,
    choose_event as choose_event,
    epsilon_lower_bound as epsilon_lower_bound,
)
from beam_dp.testing.laws import (
    Law as Law,
    discrete_gaussian as discrete_gaussian,
    discrete_laplace as discrete_laplace,
    exponential_mechanism as exponential_mechanism,
    geometric_noisy_max as geometric_noisy_max,
    geometric_noisy_top as geometric_noisy_top,
    hockey_stick as hockey_stick,
    in_rounds as in_rounds,
    largest_log_ratio as largest_log_ratio,
    permute_and_flip as permute_and_flip,
    product_law as product_law,
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
    return [held for size in sizes for held in combinations_with_replacement(records, size)]


def neighbouring_units(
    records: Sequence[R], neighboring: Neighboring | str, most: int = 1
) -> Iterator[tuple[tuple[R, ...], tuple[R, ...]]]:
    """Yields all unordered pairs of one unit's records in two neighbouring data sets.

    Under add-or-remove-one the unit is in exactly one of both data sets. Under replace-one the unit
    has different records in both data sets. As records may be missing or outside the domain, either
    side may be empty.

    ``most``: the largest number of records of a unit, >= 1.

    Example:
        >>> list(neighbouring_units("ab", "add_or_remove_one"))
        [(('a',), ()), (('b',), ())]
        >>> len(list(neighbouring_units("ab", "replace_one")))
        3
    """
    holdings = unit_holdings(records, most)
    if Neighboring(neighboring) is Neighboring.ADD_OR_REMOVE_ONE:
        yield from ((held, ()) for held in holdings if held)
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
        >>> from beam_dp.testing.laws import discrete_laplace
        >>> promise = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
        >>> audit_law(lambda data: discrete_laplace(1.0, len(data), -9, 9), "a", promise).is_private
        True
        >>> audit = audit_law(lambda data: discrete_laplace(0.5, len(data), -9, 9), "a", promise)
        >>> round(audit.epsilon, 6)
        2.0
    """
    position = {record: number for number, record in enumerate(records)}
    known: dict[tuple[R, ...], Law] = {}

    def of(data: tuple[R, ...]) -> Law:
        ordered = tuple(sorted(data, key=position.__getitem__))
        if ordered not in known:
            known[ordered] = law(ordered)
            if not abs(sum(known[ordered].values()) - 1) < _RELATIVE:
                raise ValueError("the probabilities of a law must sum to 1")
        return known[ordered]

    most = guarantee.max_records_per_unit
    worst = (-1.0, -1.0)
    epsilon = delta = 0.0
    pair: tuple[tuple[R, ...], tuple[R, ...]] = ((), ())
    num_pairs = 0
    for others in unit_holdings(records, num_others):
        for one, other in neighbouring_units(records, guarantee.neighboring, most):
            first, second = of(others + one), of(others + other)
            ratio = largest_log_ratio(first, second)
            # If the ratio is exactly epsilon, rounding would report a delta of about 1e-16.
            within = ratio <= guarantee.epsilon * (1 + _RELATIVE)
            excess = 0.0 if within else hockey_stick(first, second, guarantee.epsilon)
            epsilon, delta = max(epsilon, ratio), max(delta, excess)
            num_pairs += 1
            if (rank := (excess if guarantee.delta else ratio, ratio)) > worst:
                worst, pair = rank, (others + one, others + other)
    if num_pairs == 0:
        raise ValueError("there are no neighbours to compare: the universe has no records")
    return ExactAudit(guarantee, epsilon, delta, pair, num_pairs)


# Outcomes with a smaller expected count share one cell of the test: with small cells, Pearson's
# statistic has a longer tail than the chi-square distribution. The worst law has two outcomes. By
# the exact binomial distribution, a test at 1e-6 rejects this law with 2.1 times this probability
# if all cells have an expected count >= 200, 5.2 times for >= 50, and 29 times for >= 10.
_LEAST_EXPECTED, _ENOUGH_EXPECTED, _SHARE_EXPECTED = 10.0, 200.0, 0.01


@dataclasses.dataclass(frozen=True)
class SamplerAudit:
    """The result of a chi-square test; infinite if an outcome of probability 0 occurred."""

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
    known = sorted(law, key=law.__getitem__, reverse=True)
    impossible = any(law.get(outcome, 0.0) == 0 for outcome in counts)
    expected = np.array([law[outcome] for outcome in known]) * runs
    observed = np.array([counts[outcome] for outcome in known], np.float64)
    least = min(_ENOUGH_EXPECTED, max(_LEAST_EXPECTED, _SHARE_EXPECTED * runs))
    enough = int((expected >= least).sum())
    if enough < len(known):
        rest = max(enough, 1)
        if expected[rest:].sum() < least:
            rest -= 1  # the shared cell is still too small: add the rarest remaining outcome
        expected = np.append(expected[:rest], expected[rest:].sum())
        observed = np.append(observed[:rest], observed[rest:].sum())
    if len(expected) < 2 and not impossible:
        raise ValueError("there are too few outcomes to compare them with the law")
    statistic = np.inf if impossible else float(((observed - expected) ** 2 / expected).sum())
    freedoms = max(len(expected) - 1, 1)
    return SamplerAudit(statistic, float(stats.chi2.isf(false_alarm, freedoms)), freedoms)

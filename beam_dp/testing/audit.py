"""Audits of differential privacy, for the mechanisms of this package and for yours.

Three kinds, each of which finds faults that the others cannot:

* ``audit_law``: the exact output laws on all neighbours over a tiny universe. Refutes a wrong
  calibration; knows nothing of the code that draws.
* ``audit_sampler``: draws of the production sampler against the closed form, by chi-square.
* ``audit_black_box``: whole runs on two neighbouring data sets. Bounds epsilon from below for any
  code, and also fails if it saw less than it should have.

An audit can refute a guarantee and never proves one. Break your mechanism on purpose, halve its
noise, and see each audit that should notice fail.

Example: a histogram over a declared universe, and the same with empty cells left out.
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

# Rounding of the laws, as a share of epsilon and of delta, and in probability.
_RELATIVE = 1e-9
_ABSOLUTE = 1e-13


@dataclasses.dataclass(frozen=True)
class ExactAudit:
    """The result of an exact audit: the worst over all neighbours.

    ``epsilon``: the largest log-ratio of two outputs' probabilities on neighbours.
    ``neighbours``: the two data sets with the larger of what decides: delta where one is
    promised, else epsilon.
    ``num_pairs``: how many pairs of neighbours were compared.
    """

    guarantee: Guarantee
    epsilon: float
    delta: float
    neighbours: tuple[tuple[Hashable, ...], tuple[Hashable, ...]]
    num_pairs: int

    @property
    def is_private(self) -> bool:
        """Whether the guarantee holds on everything that was compared."""
        if self.epsilon <= self.guarantee.epsilon * (1 + _RELATIVE):
            return True
        return self.delta <= self.guarantee.delta * (1 + _RELATIVE) + (
            _ABSOLUTE if self.guarantee.delta else 0.0
        )


def unit_holdings(records: Sequence[R], most: int) -> list[tuple[R, ...]]:
    """Returns everything that one privacy unit may hold: from 0 to ``most`` records.

    Example:
        >>> unit_holdings("ab", 2)
        [(), ('a',), ('b',), ('a', 'a'), ('a', 'b'), ('b', 'b')]
    """
    sizes = range(most + 1)
    return [held for size in sizes for held in combinations_with_replacement(records, size)]


def neighbouring_units(
    records: Sequence[R], neighboring: Neighboring | str, most: int = 1
) -> Iterator[tuple[tuple[R, ...], tuple[R, ...]]]:
    """Yields all unordered pairs of what one unit holds in neighbouring data sets.

    Under add-or-remove-one a unit is there or is not. Under replace-one it holds something else;
    as a record may be outside the domain, or be missing, either side may hold nothing.

    ``most``: records of a unit, >= 1.

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
    """Compares the exact output laws of a mechanism on all neighbours over a tiny universe.

    ``is_private`` of the result is the verdict.

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
            # Rounding makes a ratio of exactly epsilon a delta of 1e-16: not one to report.
            within = ratio <= guarantee.epsilon * (1 + _RELATIVE)
            excess = 0.0 if within else hockey_stick(first, second, guarantee.epsilon)
            epsilon, delta = max(epsilon, ratio), max(delta, excess)
            num_pairs += 1
            if (rank := (excess if guarantee.delta else ratio, ratio)) > worst:
                worst, pair = rank, (others + one, others + other)
    if num_pairs == 0:
        raise ValueError("there are no neighbours to compare: the universe has no records")
    return ExactAudit(guarantee, epsilon, delta, pair, num_pairs)


# Rarer outcomes share one cell of the test: Pearson's statistic has a longer tail than its limit
# where cells are small. The worst law has two outcomes. At 1e-6, by the exact binomial law, it is
# rejected 2.1 times as often as that if its cells have 200 or more, 5.2 times from 50 on, and 29
# times from 10 on, which is the best that few draws allow.
_LEAST_EXPECTED, _ENOUGH_EXPECTED, _SHARE_EXPECTED = 10.0, 200.0, 0.01


@dataclasses.dataclass(frozen=True)
class SamplerAudit:
    """A chi-square test against a law; infinite if something impossible happened."""

    statistic: float
    critical_value: float
    freedoms: int

    @property
    def passes(self) -> bool:
        """Whether the outcomes may well follow the law."""
        return self.statistic <= self.critical_value


def audit_sampler(
    outcomes: Iterable[Any], law: Law, *, false_alarm: float = FALSE_ALARM
) -> SamplerAudit:
    """Tests by chi-square whether outcomes follow a law.

    ``law``: probability of every outcome; clip what is unbounded.
    ``false_alarm``: probability that a true law is rejected, in the limit of many draws. At
    1e-6 a true law is rejected with at most 2.1 times this probability from 20,000 draws on,
    with at most 5.2 times from 5,000 on, and with at most 29 times below.

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
            rest -= 1  # outcomes that are rare even together join the rarest of the others
        expected = np.append(expected[:rest], expected[rest:].sum())
        observed = np.append(observed[:rest], observed[rest:].sum())
    if len(expected) < 2 and not impossible:
        raise ValueError("there are too few outcomes to compare them with the law")
    statistic = np.inf if impossible else float(((observed - expected) ** 2 / expected).sum())
    freedoms = max(len(expected) - 1, 1)
    return SamplerAudit(statistic, float(stats.chi2.isf(false_alarm, freedoms)), freedoms)

"""Exact audits: the output law of a mechanism on all neighbours of tiny data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Iterator, Sequence
from itertools import combinations, combinations_with_replacement
from typing import TypeVar

from beam_dp.privacy.guarantee import Guarantee, Neighboring
from beam_dp.testing.laws import Law, hockey_stick, largest_log_ratio

R = TypeVar("R", bound=Hashable)

# Rounding of the laws, as a share of epsilon and of delta, and in probability.
_RELATIVE = 1e-9
_ABSOLUTE = 1e-13


@dataclasses.dataclass(frozen=True)
class ExactAudit:
    """The worst that an exact audit found.

    Args:
        guarantee: what is promised.
        epsilon: the largest log-ratio of two outputs' probabilities on neighbours.
        delta: the largest hockey-stick divergence at the promised epsilon.
        neighbours: the two data sets with the larger of what decides: delta where one is
            promised, else epsilon.
        num_pairs: how many pairs of neighbours were compared.
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
    """Returns everything that one privacy unit may hold: up to ``most`` records, also none.

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

    Args:
        records: the universe.
        neighboring: the relation.
        most: records of a unit, >= 1.

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

    Args:
        law: the mechanism: returns the output law on a data set, a tuple of records. A law that
            depends on their order is called with one order only.
        records: the universe; a handful.
        guarantee: what is promised: the relation and the records of a unit are taken from it.
        num_others: the other units hold up to this many records together; all of them are tried.

    Returns:
        The worst over all neighbours; ``is_private`` is the verdict.

    Raises:
        ValueError: if a law does not sum to 1, or there are no records.

    Cost: the number of data sets of up to ``num_others + k`` records, and of their pairs.

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

"""Disjunctions, and the negation of any linear query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.queries.linear import (
    VALUE_BITS,
    Explicit,
    Factors,
    LinearQuery,
    LiteralQuery,
    Parity,
    Product,
    Range,
    Shape,
    check_codes,
    codes_to_json,
    complement,
    unit_mean,
)

Literals = dict[int, tuple[Range, ...]]


@dataclass(frozen=True)
class Disjunction(LiteralQuery):
    """1 on the cells where at least one of two or more literals holds.

    It is answered as 1 minus the conjunction of their complements.

    ``axes``: positions of the attributes of the literals, ascending, at least two.
    ``ranges``: for each, the codes where its literal holds, not all.

    Example:
        >>> Disjunction((2, 2), (0, 1), (((1, 2),), ((1, 2),))).values().tolist()
        [0.0, 1.0, 1.0, 1.0]
    """

    factors = Factors(constant=1, sign=-1, divisor=1, inside=0, outside=1)

    shape: Shape
    axes: tuple[int, ...]
    ranges: tuple[tuple[Range, ...], ...]
    _none: Product = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_codes(self.shape, self.axes, self.ranges)
        others = _complements(self)
        if len(others) < 2 or not all(others.values()):
            condition = "a disjunction must have two literals or more, none of which always holds"
            raise InputError("query", list(self.axes), condition)
        object.__setattr__(self, "_none", Product.of(self.shape, others))

    @classmethod
    def of(cls, shape: Shape, ranges: Mapping[int, tuple[Range, ...]]) -> LiteralQuery:
        """Returns 1 where the code of some attribute lies in its ranges, by position.

        One literal alone, or 1 everywhere, is a ``Product``: so equal queries compare equal.
        """
        if any(each == ((0, shape[axis]),) for axis, each in ranges.items()):
            return Product(shape, (), ())
        if len(ranges) == 1:
            return Product.of(shape, ranges)
        return cls(shape, tuple(sorted(ranges)), tuple(ranges[axis] for axis in sorted(ranges)))

    def count(self, counts: NDArray[np.int64]) -> int:
        """Returns 2^16 times the number of records where it is 1."""
        return (int(counts.sum()) << VALUE_BITS) - self._none.count(counts)

    def mean(self, weights: NDArray[np.float64]) -> float:
        """Returns the weight of the cells where it is 1."""
        return unit_mean(float(weights.sum()) - self._none.mean(weights))

    def add_to(self, table: NDArray[np.float64], step: float) -> None:
        """Adds ``step`` to the cells where it is 1."""
        # In a table of its own: adding to the table and subtracting again would leave rounding.
        steps = np.full(self.num_cells, step)
        self._none.add_to(steps, -step)
        table += steps

    def to_json(self) -> dict[str, Any]:
        """Returns the query as JSON values."""
        return {"disjunction_codes": codes_to_json(self.axes, self.ranges)}


def negation(query: LinearQuery) -> LinearQuery:
    """Returns 1 - q, of the same form or its dual, at no more cost than q.

    A conjunction becomes a disjunction of the negated literals and the other way round; in a
    parity one literal is negated.

    Example:
        >>> negation(Product((2, 2), (0, 1), (((1, 2),), ((1, 2),)))).values().tolist()
        [1.0, 1.0, 1.0, 0.0]
    """
    if isinstance(query, Explicit):
        return Explicit(query.shape, ((1 << VALUE_BITS) - query.table).astype("<i4").tobytes())
    assert isinstance(query, LiteralQuery)
    # A literal that always holds has no negation.
    others = {axis: ranges for axis, ranges in _complements(query).items() if ranges}
    if isinstance(query, Parity):
        return _even(query, others)
    if not others:
        raise InputError("query", "not", "must not be of what holds for all records")
    if isinstance(query, Product):
        return Disjunction.of(query.shape, others)
    return Product.of(query.shape, others)


def _even(query: Parity, others: Literals) -> LinearQuery:
    """1 where an even number of literals hold: an odd number, once one of them is negated."""
    if others:
        axis = min(others)
        literals = {**dict(zip(query.axes, query.ranges, strict=True)), axis: others[axis]}
        return Parity(query.shape, query.axes, tuple(literals.values()))
    if len(query.axes) % 2:
        raise InputError("query", "not", "must not be of what holds for all records")
    return Product(query.shape, (), ())


def _complements(query: LiteralQuery) -> Literals:
    """For each attribute the codes where its literal does not hold; none where it always does."""
    pairs = zip(query.axes, query.ranges, strict=True)
    return {axis: complement(ranges, query.shape[axis]) for axis, ranges in pairs}

"""Disjunctions, and the negation of any linear query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.queries import linear

Literals = dict[int, tuple[linear.Range, ...]]


@dataclass(frozen=True)
class Disjunction(linear.LiteralQuery):
    """A query that is 1 on the cells where at least one of two or more literals is true.

    A disjunction is computed as 1 minus the conjunction of the complements of the literals.

    ``axes``: positions of the attributes of the literals, ascending, at least two.
    ``ranges``: for each axis, the codes for which the literal is true, but not all codes.
    """

    factors = linear.Factors(constant=1, sign=-1, divisor=1, inside=0, outside=1)

    shape: linear.Shape
    axes: tuple[int, ...]
    ranges: tuple[tuple[linear.Range, ...], ...]
    _none: linear.Product = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        linear.check_codes(self.shape, self.axes, self.ranges)
        others = _complements(self)
        if len(others) < 2 or not all(others.values()):
            condition = "a disjunction must have two or more literals that are not always true"
            raise InputError("query", list(self.axes), condition)
        object.__setattr__(self, "_none", linear.Product.of(self.shape, others))

    @classmethod
    def of(
        cls, shape: linear.Shape, ranges: Mapping[int, tuple[linear.Range, ...]]
    ) -> linear.LiteralQuery:
        """Returns the query that is 1 if any attribute's code is in its ranges (by position).

        A single literal, and a query that is always 1, become a ``Product``, so that equal queries
        compare equal.
        """
        if any(each == ((0, shape[axis]),) for axis, each in ranges.items()):
            return linear.Product(shape, (), ())
        if len(ranges) == 1:
            return linear.Product.of(shape, ranges)
        return cls(shape, tuple(sorted(ranges)), tuple(ranges[axis] for axis in sorted(ranges)))

    def count(self, counts: NDArray[np.int64]) -> int:
        """Returns 2^16 times the number of records for which the query is 1."""
        return (int(counts.sum()) << linear.VALUE_BITS) - self._none.count(counts)

    def mean(self, weights: NDArray[np.float64]) -> float:
        """Returns the total weight of the cells where the query is 1."""
        return linear.unit_mean(float(weights.sum()) - self._none.mean(weights))

    def add_to(self, table: NDArray[np.float64], step: float) -> None:
        """Adds ``step`` to the cells where the query is 1."""
        # Uses a separate table: adding and then subtracting in place would leave rounding errors.
        steps = np.full(self.num_cells, step)
        self._none.add_to(steps, -step)
        table += steps

    def to_json(self) -> dict[str, Any]:
        """Returns the query as JSON values."""
        return {"disjunction_codes": linear.codes_to_json(self.axes, self.ranges)}


def negation(query: linear.LinearQuery) -> linear.LinearQuery:
    """Returns 1 - q in the same form as q or its dual; evaluating it costs no more than q.

    A conjunction becomes a disjunction of the negated literals, and vice versa. In a parity, one
    literal is negated.
    """
    if isinstance(query, linear.Explicit):
        return linear.Explicit(
            query.shape, ((1 << linear.VALUE_BITS) - query.table).astype("<i4").tobytes()
        )
    assert isinstance(query, linear.LiteralQuery)
    # A literal that is always true has no negation.
    others = {axis: ranges for axis, ranges in _complements(query).items() if ranges}
    if isinstance(query, linear.Parity):
        return _even(query, others)
    if not others:
        raise InputError("query", "not", "must not negate a query that is true for all records")
    if isinstance(query, linear.Product):
        return Disjunction.of(query.shape, others)
    return linear.Product.of(query.shape, others)


def _even(query: linear.Parity, others: Literals) -> linear.LinearQuery:
    """Returns the query for an even number of true literals: a parity with one literal negated."""
    if others:
        axis = min(others)
        literals = {**dict(zip(query.axes, query.ranges, strict=True)), axis: others[axis]}
        return linear.Parity(query.shape, query.axes, tuple(literals.values()))
    if len(query.axes) % 2:
        raise InputError("query", "not", "must not negate a query that is true for all records")
    return linear.Product(query.shape, (), ())


def _complements(query: linear.LiteralQuery) -> Literals:
    """Returns, for each attribute, the codes for which its literal is false (possibly empty)."""
    pairs = zip(query.axes, query.ranges, strict=True)
    return {axis: linear.complement(ranges, query.shape[axis]) for axis, ranges in pairs}

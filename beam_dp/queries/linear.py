"""Linear queries: functions from cells to [0, 1], summed over records.

Query objects know their structure, so only the relevant cells of a dense table are summed, and no
matrix of queries by cells is built. Values are multiples of 2^-16, so sums over records are exact.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.errors import InputError

Range = tuple[int, int]  # codes from the first number up to, but not including, the second
Shape = tuple[int, ...]

VALUE_BITS = 16
MAX_QUERY_CELLS = 2**26
_LOW_BITS = 20


class LinearQuery(ABC):
    """A function q from the cells of a domain to [0, 1]; immutable and hashable."""

    shape: Shape

    @property
    def num_cells(self) -> int:
        """Number of cells of the domain."""
        return math.prod(self.shape)

    @abstractmethod
    def count(self, counts: NDArray[np.int64]) -> int:
        """Returns 2^16 times the sum of q over records, exactly: an integer of any size.

        One record changes the result by at most 2^16.

        ``counts``: the number of records per cell, shape (num_cells,), int64, >= 0, sum <= 2^61.
        """

    @abstractmethod
    def mean(self, weights: NDArray[np.float64]) -> float:
        """Returns the mean of q under a distribution, in [0, 1]."""

    @abstractmethod
    def add_to(self, table: NDArray[np.float64], step: float) -> None:
        """Adds ``step`` times q to a table in place."""

    @abstractmethod
    def to_json(self) -> dict[str, Any]:
        """Returns the query as JSON values that ``LinearQueries.from_json`` reads."""

    def values(self) -> NDArray[np.float64]:
        """Returns q at all cells, shape (num_cells,). Cost: O(num_cells)."""
        table = np.zeros(self.num_cells)
        self.add_to(table, 1.0)
        return table


class Factors(NamedTuple):
    """A query as (constant + sign P) / divisor; P is a product of one factor per attribute.

    The factor is ``inside`` if the attribute's literal is true, otherwise ``outside``.
    """

    constant: int
    sign: int
    divisor: int
    inside: int
    outside: int


class LiteralQuery(LinearQuery):
    """A 0/1 query that depends on which literals are true, with at most one per attribute.

    A literal is a set of codes of an attribute, stored as ascending ranges that do not touch.
    """

    factors: ClassVar[Factors]
    axes: tuple[int, ...]
    ranges: tuple[tuple[Range, ...], ...]


@dataclass(frozen=True)
class Product(LiteralQuery):
    """A query that is 1 if all codes are in given ranges, such as a conjunction, cell or interval.

    ``axes``: positions of the attributes in the query, ascending; if empty, q = 1.
    ``ranges``: for each axis, the codes where q can be 1: ascending ranges that do not touch,
    and that do not contain all codes.
    """

    factors = Factors(constant=0, sign=1, divisor=1, inside=1, outside=0)

    shape: Shape
    axes: tuple[int, ...]
    ranges: tuple[tuple[Range, ...], ...]
    _view: Shape = field(init=False, repr=False, compare=False)
    _slices: tuple[slice, ...] = field(init=False, repr=False, compare=False)
    _taken: tuple[tuple[int, NDArray[np.int64]], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_codes(self.shape, self.axes, self.ranges)
        view = _merged(self.shape, self.axes)
        slices, taken = [slice(None)] * len(view), []
        for place, ranges in enumerate(self.ranges):
            if len(ranges) == 1:
                slices[2 * place + 1] = slice(*ranges[0])
            else:
                codes = np.concatenate([np.arange(*span) for span in ranges])
                taken.append((2 * place + 1, codes))
        object.__setattr__(self, "_view", view)
        object.__setattr__(self, "_slices", tuple(slices))
        object.__setattr__(self, "_taken", tuple(taken))

    @classmethod
    def of(cls, shape: Shape, ranges: Mapping[int, tuple[Range, ...]]) -> Product:
        """Returns the indicator of code ranges by position; full ranges are dropped."""
        kept = sorted(item for item in ranges.items() if item[1] != ((0, shape[item[0]]),))
        return cls(shape, tuple(axis for axis, _ in kept), tuple(listed for _, listed in kept))

    def count(self, counts: NDArray[np.int64]) -> int:
        """Returns 2^16 times the number of records for which the query is 1."""
        return int(self._held(counts)) << VALUE_BITS

    def mean(self, weights: NDArray[np.float64]) -> float:
        """Returns the total weight of the cells where the query is 1."""
        return unit_mean(float(self._held(weights)))

    def add_to(self, table: NDArray[np.float64], step: float) -> None:
        """Adds ``step`` to the cells where the query is 1."""
        view = table.reshape(self._view)
        for ranges in itertools.product(*self.ranges):
            index = list(self._slices)
            for place, span in enumerate(ranges):
                index[2 * place + 1] = slice(*span)
            view[tuple(index)] += step

    def _held(self, table: NDArray[Any]) -> Any:
        """Returns the sum over the cells where the query is 1."""
        view = table.reshape(self._view)[self._slices]
        for axis, codes in self._taken:
            view = view.take(codes, axis=axis)
        return view.sum()

    def to_json(self) -> dict[str, Any]:
        """Returns the query as JSON values."""
        return {"codes": codes_to_json(self.axes, self.ranges)}


@dataclass(frozen=True)
class Parity(LiteralQuery):
    """A query that is 1 on the cells where an odd number of literals is true."""

    factors = Factors(constant=1, sign=-1, divisor=2, inside=-1, outside=1)

    shape: Shape
    axes: tuple[int, ...]  # positions of the literals' attributes, ascending, at least one
    ranges: tuple[tuple[Range, ...], ...]  # for each axis, the codes for which the literal is true

    def __post_init__(self) -> None:
        check_codes(self.shape, self.axes, self.ranges)
        if not self.axes:
            raise InputError("query", {}, "a parity must have at least one literal")

    def count(self, counts: NDArray[np.int64]) -> int:
        """Returns 2^16 times the number of records for which the query is 1."""
        return (int(counts.sum()) - int(self._signed(counts))) // 2 << VALUE_BITS

    def mean(self, weights: NDArray[np.float64]) -> float:
        """Returns the total weight of the cells where the query is 1."""
        return unit_mean((float(weights.sum()) - float(self._signed(weights))) / 2)

    def add_to(self, table: NDArray[np.float64], step: float) -> None:
        """Adds ``step`` to the cells where the query is 1."""
        view = _merged(self.shape, self.axes)
        odd = np.ones([1] * len(view), np.int8)
        for place, signs in enumerate(self._signs()):
            odd = odd * signs.astype(np.int8).reshape(
                [-1 if axis == 2 * place + 1 else 1 for axis in range(len(view))]
            )
        table.reshape(view)[...] += np.where(odd < 0, step, 0.0)

    def to_json(self) -> dict[str, Any]:
        """Returns the query as JSON values."""
        return {"parity_codes": codes_to_json(self.axes, self.ranges)}

    def _signs(self) -> list[NDArray[np.int64]]:
        """Returns one array per axis: -1 for codes where the literal is true, otherwise 1."""
        vectors = []
        for axis, ranges in zip(self.axes, self.ranges, strict=True):
            signs = np.ones(self.shape[axis], np.int64)
            for start, stop in ranges:
                signs[start:stop] = -1
            vectors.append(signs)
        return vectors

    def _signed(self, table: NDArray[Any]) -> Any:
        """Returns the sum of a table multiplied by the product of the signs; exact for integers."""
        rest = table.reshape(_merged(self.shape, self.axes)).sum(axis=-1)
        for signs in reversed(self._signs()):
            rest = np.multiply(rest, signs).sum(axis=-1).sum(axis=-1)
        return rest


@dataclass(frozen=True)
class Explicit(LinearQuery):
    """A query given by its values at all cells; ``numerators``: 2^16 times the values, as int32."""

    shape: Shape
    numerators: bytes = field(repr=False)
    _table: NDArray[np.int32] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        table = np.frombuffer(self.numerators, "<i4")
        if table.shape != (self.num_cells,):
            raise InputError("query", table.size, f"must have a value for {self.num_cells} cells")
        if not (int(table.min()) >= 0 and int(table.max()) <= 1 << VALUE_BITS):
            raise InputError("query", "values", "must all be from 0 to 1")
        object.__setattr__(self, "_table", table)

    @property
    def table(self) -> NDArray[np.int32]:
        """The values times 2^16, shape (num_cells,), read-only."""
        return self._table

    @classmethod
    def of(cls, shape: Shape, values: ArrayLike) -> Explicit:
        """Returns the query with these values, of shape (num_cells,) or the domain's shape."""
        try:
            table = np.asarray(values, np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError("query", type(values).__name__, "must be a list of numbers") from None
        num_cells = math.prod(shape)
        if table.shape not in (shape, (num_cells,)):
            condition = f"must have a value for each of {num_cells} cells, and no others"
            raise InputError("query", table.shape, condition)
        is_value = (table >= 0) & (table <= 1)
        if not is_value.all():
            wrong = float(table.ravel()[int(np.argmin(is_value.ravel()))])
            raise InputError("query", wrong, "every value must be from 0 to 1")
        return cls(shape, np.rint(table.ravel() * 2.0**VALUE_BITS).astype("<i4").tobytes())

    def count(self, counts: NDArray[np.int64]) -> int:
        """Returns 2^16 times the sum of the query over records."""
        # Sums the low and high halves, which can't overflow: values below 2^17 at up to 2^26 cells.
        table = self._table.astype(np.int64)
        high = int(table @ (counts >> _LOW_BITS))
        return (high << _LOW_BITS) + int(table @ (counts & ((1 << _LOW_BITS) - 1)))

    def mean(self, weights: NDArray[np.float64]) -> float:
        """Returns the mean of the query under a distribution."""
        # A matrix product would start threads, which takes longer than this sum.
        total = float(np.multiply(weights, self._table).sum())
        return unit_mean(total / 2.0**VALUE_BITS)

    def add_to(self, table: NDArray[np.float64], step: float) -> None:
        """Adds ``step`` times the query's values to a table in place."""
        table += self._table * (step / 2.0**VALUE_BITS)

    def to_json(self) -> dict[str, Any]:
        """Returns the query as JSON values."""
        return {"numerators": self._table.tolist()}


def complement(ranges: Sequence[Range], size: int) -> tuple[Range, ...]:
    """Returns the codes of an attribute outside ascending ranges."""
    ends = [0, *(end for span in ranges for end in span), size]
    pairs = zip(ends[::2], ends[1::2], strict=True)
    return tuple((start, stop) for start, stop in pairs if start < stop)


def check_codes(shape: Shape, axes: Sequence[int], ranges: Sequence[Sequence[Range]]) -> None:
    """Raises an error for codes outside the universe."""
    in_order = all(one < other for one, other in itertools.pairwise(axes))
    if len(ranges) != len(axes) or not in_order:
        raise InputError("query", list(axes), "must name attributes in domain order, each once")
    for axis, listed in zip(axes, ranges, strict=True):
        if not 0 <= axis < len(shape):
            raise InputError("query", axis, f"must be of one of {len(shape)} attributes")
        ends = [end for span in listed for end in span]
        ascend = all(one < other for one, other in itertools.pairwise(ends))
        if not (ends and ascend and ends[0] >= 0 and ends[-1] <= shape[axis]):
            condition = f"must be ascending ranges of codes in 0..{shape[axis] - 1}"
            raise InputError("query", listed, condition)


def codes_to_json(axes: Sequence[int], ranges: Sequence[Sequence[Range]]) -> list[Any]:
    """Returns ranges of codes, with their positions, as JSON values."""
    return [
        [axis, [list(span) for span in listed]] for axis, listed in zip(axes, ranges, strict=True)
    ]


def _merged(shape: Shape, axes: Sequence[int]) -> Shape:
    """Returns the shape after merging all attributes before, between and after the given axes."""
    sizes, last = [], 0
    for axis in axes:
        sizes += [math.prod(shape[last:axis]), shape[axis]]
        last = axis + 1
    return (*sizes, math.prod(shape[last:]))


def unit_mean(mean: float) -> float:
    """Returns a mean clipped to [0, 1], because rounding may have moved it outside."""
    return min(1.0, max(0.0, mean))


# Disjunctions, and the negation of any linear query.


Literals = dict[int, tuple[Range, ...]]


@dataclass(frozen=True)
class Disjunction(LiteralQuery):
    """A query that is 1 on the cells where at least one of two or more literals is true.

    A disjunction is computed as 1 minus the conjunction of the complements of the literals.

    ``axes``: positions of the attributes of the literals, ascending, at least two.
    ``ranges``: for each axis, the codes for which the literal is true, but not all codes.
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
            condition = "a disjunction must have two or more literals that are not always true"
            raise InputError("query", list(self.axes), condition)
        object.__setattr__(self, "_none", Product.of(self.shape, others))

    @classmethod
    def of(cls, shape: Shape, ranges: Mapping[int, tuple[Range, ...]]) -> LiteralQuery:
        """Returns the query that is 1 if any attribute's code is in its ranges (by position).

        A single literal, and a query that is always 1, become a ``Product``, so that equal queries
        compare equal.
        """
        if any(span == ((0, shape[axis]),) for axis, span in ranges.items()):
            return Product(shape, (), ())
        if len(ranges) == 1:
            return Product.of(shape, ranges)
        return cls(shape, tuple(sorted(ranges)), tuple(ranges[axis] for axis in sorted(ranges)))

    def count(self, counts: NDArray[np.int64]) -> int:
        """Returns 2^16 times the number of records for which the query is 1."""
        return (int(counts.sum()) << VALUE_BITS) - self._none.count(counts)

    def mean(self, weights: NDArray[np.float64]) -> float:
        """Returns the total weight of the cells where the query is 1."""
        return unit_mean(float(weights.sum()) - self._none.mean(weights))

    def add_to(self, table: NDArray[np.float64], step: float) -> None:
        """Adds ``step`` to the cells where the query is 1."""
        # Uses a separate table: adding and then subtracting in place would leave rounding errors.
        steps = np.full(self.num_cells, step)
        self._none.add_to(steps, -step)
        table += steps

    def to_json(self) -> dict[str, Any]:
        """Returns the query as JSON values."""
        return {"disjunction_codes": codes_to_json(self.axes, self.ranges)}


def negation(query: LinearQuery) -> LinearQuery:
    """Returns 1 - q in the same form as q or its dual; evaluating it costs no more than q.

    A conjunction becomes a disjunction of the negated literals, and vice versa. In a parity, one
    literal is negated.
    """
    if isinstance(query, Explicit):
        return Explicit(query.shape, ((1 << VALUE_BITS) - query.table).astype("<i4").tobytes())
    assert isinstance(query, LiteralQuery)
    # A literal that is always true has no negation.
    others = {axis: ranges for axis, ranges in _complements(query).items() if ranges}
    if isinstance(query, Parity):
        return _even(query, others)
    if not others:
        raise InputError("query", "not", "must not negate a query that is true for all records")
    if isinstance(query, Product):
        return Disjunction.of(query.shape, others)
    return Product.of(query.shape, others)


def _even(query: Parity, others: Literals) -> LinearQuery:
    """Returns the query for an even number of true literals: a parity with one literal negated."""
    if others:
        axis = min(others)
        literals = {**dict(zip(query.axes, query.ranges, strict=True)), axis: others[axis]}
        return Parity(query.shape, query.axes, tuple(literals.values()))
    if len(query.axes) % 2:
        raise InputError("query", "not", "must not negate a query that is true for all records")
    return Product(query.shape, (), ())


def _complements(query: LiteralQuery) -> Literals:
    """Returns, for each attribute, the codes for which its literal is false (possibly empty)."""
    pairs = zip(query.axes, query.ranges, strict=True)
    return {axis: complement(ranges, query.shape[axis]) for axis, ranges in pairs}

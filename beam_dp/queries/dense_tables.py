"""Sums over one dense table: many marginals, batches of queries, and the transposes of both."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.domain.universe import Axes
from beam_dp.queries.linear import LinearQuery, LiteralQuery, Range

Name = TypeVar("Name", bound=Hashable)
Number = TypeVar("Number", np.int64, np.float64)


def marginal_tables(
    counts: NDArray[Number], names: tuple[Name, ...], wanted: Iterable[tuple[Name, ...]]
) -> dict[tuple[Name, ...], NDArray[Number]]:
    """Returns marginals of a table.

    One walk over the attributes computes all marginals. At each attribute the walk forks: marginals
    that lack the attribute go on from the table summed over it; the others keep the axis. Marginals
    that lack the same leading attributes share sums, and tables shrink before they are summed
    again: all 3-way marginals of binary attributes cost about 16 passes over the table in total.

    ``counts``: records or weights, one axis per name (or number); sums of int64 are exact.
    """
    tables: dict[tuple[Name, ...], NDArray[Number]] = {}

    def visit(table: NDArray[Number], axis: int, sets: set[tuple[Name, ...]]) -> None:
        # All sets keep the first axes of ``table``; the table's other axes are names[axis:].
        if not sets:
            return
        if axis == len(names):
            (attributes,) = sets
            tables[attributes] = np.asarray(table, order="C")
            return
        keeping = {attributes for attributes in sets if names[axis] in attributes}
        num_kept = table.ndim - (len(names) - axis)
        if len(keeping) < len(sets):
            visit(_sum_axis(table, num_kept), axis + 1, sets - keeping)
        visit(table, axis + 1, keeping)

    visit(counts, 0, set(wanted))
    return tables


def sum_of_tables(
    tables: Mapping[tuple[Name, ...], NDArray[Number]],
    names: tuple[Name, ...],
    shape: tuple[int, ...],
) -> NDArray[Number]:
    """Returns, for each cell, the sum of the entries for the cell in one or more marginal tables.

    This is the transpose of ``marginal_tables``: the same walk in the other direction. The result
    has one axis per name, and may be a read-only view of a smaller table.

    ``tables``: tables by attributes; the attributes of a table are a subsequence of ``names``.
    """

    def visit(num_kept: int, axis: int, sets: set[tuple[Name, ...]]) -> NDArray[Number]:
        # The sum over the sets, which all contain the first kept axes. It has size 1 along an
        # attribute of names[axis:] if no set contains that attribute.
        if axis == len(names):
            (attributes,) = sets
            return tables[attributes]
        keeping = {attributes for attributes in sets if names[axis] in attributes}
        parts = []
        if keeping:
            parts.append(visit(num_kept + 1, axis + 1, keeping))
        if len(keeping) < len(sets):
            without = visit(num_kept, axis + 1, sets - keeping)
            parts.append(without[(*(slice(None),) * num_kept, None)])
        return parts[0] + parts[1] if len(parts) == 2 else parts[0]

    return np.broadcast_to(visit(0, 0, set(tables)), shape)


def _sum_axis(table: NDArray[Number], axis: int) -> NDArray[Number]:
    """Sums one axis. On short inner axes, adding slices is faster than numpy's reduction."""
    size = table.shape[axis]
    if size > 16:
        return np.asarray(table.sum(axis=axis))
    # Uses plain indices, because np.moveaxis takes longer than summing a small table.
    before: tuple[Any, ...] = (slice(None),) * axis
    total: NDArray[Number] = table[(*before, 0)]
    if size > 1:
        total = np.add(total, table[(*before, 1)])
    for code in range(2, size):
        total += table[(*before, code)]
    return total


Literal = tuple[Range, ...]

# The largest number of cells: in the tables of a batch, and in all tables that are in memory.
_BATCH_CELLS = 2**22
_PART_CELLS = 2**24
# A summing step is limited to this number of cells, or four times the table or the queries.
_STEP_CELLS = 2**12


@dataclass(frozen=True, eq=False)
class Literals:
    """Distinct literals of one attribute: sets of codes, stored as ranges."""

    size: int
    starts: NDArray[np.int64]
    stops: NDArray[np.int64]
    first: NDArray[np.int64]

    @classmethod
    def of(cls, size: int, literals: Sequence[Literal]) -> Literals:
        """Returns the literals of an attribute with ``size`` codes."""
        ranges = np.array([span for ranges in literals for span in ranges], np.int64)
        first = np.cumsum([0, *map(len, literals[:-1])])
        return cls(size, ranges[:, 0].copy(), ranges[:, 1].copy(), first)

    def sums(self, table: NDArray[Number]) -> NDArray[Number]:
        """Sums the codes of each literal along the first axis, by differences of prefix sums."""
        prefixes = np.zeros((self.size + 1, *table.shape[1:]), table.dtype)
        np.cumsum(table, axis=0, out=prefixes[1:])
        sums: NDArray[Number] = prefixes[self.stops] - prefixes[self.starts]
        if len(self.first) < len(self.starts):
            sums = np.add.reduceat(sums, self.first, axis=0)
        return sums

    def spread(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns, for each code, the sum of the literals with this code: ``sums`` transposed."""
        lengths = np.diff([*self.first, len(self.starts)])
        of_range = np.repeat(values, lengths, axis=0)
        steps = np.zeros((self.size + 1, *values.shape[1:]), np.int64)
        np.add.at(steps, self.starts, of_range)
        np.subtract.at(steps, self.stops, of_range)
        return np.cumsum(steps[:-1], axis=0)


@dataclass(frozen=True, eq=False)
class QueryBatch:
    """Queries of one kind, with the same literals on several sets of attributes.

    All queries are sums of products over attributes (see ``Factors``), so a table can be summed
    along one attribute after the other.
    """

    axes: tuple[Axes, ...]
    positions: NDArray[np.int64]  # in the workload, shape (num_sets, num_queries)
    kind: type[LiteralQuery]
    literals: tuple[Literals, ...]
    index: NDArray[np.int64]  # the combination of literals of each query

    @property
    def num_cells(self) -> int:
        """Number of cells of all tables of the batch."""
        return len(self.axes) * math.prod(literal.size for literal in self.literals)

    def answers(self, tables: Mapping[Axes, NDArray[Number]]) -> NDArray[Number]:
        """Returns the sum of each query over its table, shape (num_sets, num_queries); exact."""
        table = np.stack([tables[axes] for axes in self.axes])
        totals = table.reshape(len(self.axes), -1).sum(axis=1, keepdims=True)
        # Each step sums along the first axis and moves it to the end, which restores the order.
        table = np.moveaxis(table, 0, -1)
        for literals in self.literals:
            table = np.moveaxis(self._multiplied(table, literals.sums(table)), 0, -1)
        answers: NDArray[Number] = table.reshape(len(self.axes), -1)[:, self.index]
        return self._sums(totals, answers)

    def spread(self, weights: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns tables with the sum of all queries times weights: ``answers`` transposed."""
        num_literals = [len(literal.first) for literal in self.literals]
        mine = weights[self.positions]
        table = np.zeros((math.prod(num_literals), len(self.axes)), np.int64)
        np.add.at(table, self.index, mine.T)
        table = table.reshape(*num_literals, len(self.axes))
        # This loop takes the steps of ``answers`` in reverse order.
        table = np.moveaxis(table, -1, 0)
        for literals in reversed(self.literals):
            last_first = np.moveaxis(table, -1, 0)
            table = self._multiplied(last_first, literals.spread(last_first))
        totals = mine.sum(axis=1).reshape(-1, *[1] * len(self.literals))
        return self._sums(totals, np.moveaxis(table, -1, 0))

    def _multiplied(self, table: NDArray[Number], values: NDArray[Number]) -> NDArray[Number]:
        """Multiplies by the factors of one attribute, given the sums over its true literals."""
        _, _, _, inside, outside = self.kind.factors
        if not outside:
            return values
        sums: NDArray[Number] = outside * table.sum(axis=0) + (inside - outside) * values
        return sums

    def _sums(self, totals: NDArray[Number], products: NDArray[Number]) -> NDArray[Number]:
        """Returns the sums of queries, given the sums of the products of the queries' factors."""
        constant, sign, divisor, _, _ = self.kind.factors
        if not constant:
            return products
        sums: NDArray[Any] = constant * totals + sign * products
        answers: NDArray[Any] = sums // divisor if sums.dtype == np.int64 else sums / divisor
        return answers


def batches_of(queries: Sequence[LinearQuery]) -> tuple[tuple[QueryBatch, ...], ...]:
    """Returns the batches of all queries of literals, in groups that fit in memory together."""
    groups: dict[tuple[str, Axes], list[int]] = {}
    for position, query in enumerate(queries):
        if isinstance(query, LiteralQuery):
            groups.setdefault((type(query).__name__, query.axes), []).append(position)
    alike: dict[tuple[object, ...], tuple[QueryBatch, list[Axes], list[NDArray[np.int64]]]] = {}
    for (_, axes), positions in sorted(groups.items()):
        first = queries[positions[0]]
        assert isinstance(first, LiteralQuery)
        kind, shape = type(first), first.shape
        sizes = tuple(shape[axis] for axis in axes)
        of_position = [(place, _ranges(queries[place])) for place in positions]
        for literals, part in _within_steps(sizes, of_position):
            batch = _batch(sizes, kind, axes, literals, part)
            key = (kind, sizes, tuple(map(tuple, literals)), batch.index.tobytes())
            _, all_axes, all_positions = alike.setdefault(key, (batch, [], []))
            all_axes.append(axes)
            all_positions.append(batch.positions[0])
    return _parts(
        QueryBatch(
            tuple(all_axes[start : start + step]),
            np.array(all_positions[start : start + step]),
            batch.kind,
            batch.literals,
            batch.index,
        )
        for batch, all_axes, all_positions in alike.values()
        for step in [max(1, _BATCH_CELLS // batch.num_cells)]
        for start in range(0, len(all_axes), step)
    )


def _ranges(query: LinearQuery) -> tuple[Literal, ...]:
    assert isinstance(query, LiteralQuery)
    return query.ranges


def _within_steps(
    sizes: tuple[int, ...], queries: list[tuple[int, tuple[Literal, ...]]]
) -> Iterator[tuple[list[list[Literal]], list[tuple[int, tuple[Literal, ...]]]]]:
    """Yields parts of a group of queries about the same attributes, with the distinct literals.

    A few queries with many literals on several attributes have far more combinations of literals
    than queries. Such a group is halved until the number of combinations is small.
    """
    literals = [sorted({ranges[place] for _, ranges in queries}) for place in range(len(sizes))]
    step = cells = math.prod(sizes)
    largest = 0
    for size, listed in zip(sizes, literals, strict=True):
        step = step // size * len(listed)
        largest = max(largest, step)
    if len(queries) > 1 and largest > max(4 * cells, 4 * len(queries), _STEP_CELLS):
        middle = len(queries) // 2
        yield from _within_steps(sizes, queries[:middle])
        yield from _within_steps(sizes, queries[middle:])
    else:
        yield literals, queries


def _batch(
    sizes: tuple[int, ...],
    kind: type[LiteralQuery],
    axes: Axes,
    literals: list[list[Literal]],
    queries: list[tuple[int, tuple[Literal, ...]]],
) -> QueryBatch:
    """Returns the batch for one set of attributes, with queries ordered by their literals."""
    index = np.zeros(len(queries), np.int64)
    for place, listed in enumerate(literals):
        number = {literal: code for code, literal in enumerate(listed)}
        here = np.array([number[ranges[place]] for _, ranges in queries], np.int64)
        index = index * len(listed) + here
    order = np.argsort(index, kind="stable")
    positions = np.array([position for position, _ in queries])[order]
    sides = tuple(Literals.of(size, part) for size, part in zip(sizes, literals, strict=True))
    return QueryBatch((axes,), positions[None, :], kind, sides, index[order])


def _parts(batches: Iterable[QueryBatch]) -> tuple[tuple[QueryBatch, ...], ...]:
    parts: list[list[QueryBatch]] = []
    cells = 0
    for batch in batches:
        if not parts or cells + batch.num_cells > _PART_CELLS:
            parts.append([])
            cells = 0
        parts[-1].append(batch)
        cells += batch.num_cells
    return tuple(map(tuple, parts))


# Weighted sums of the cells of a marginal, with product weights, for error bars.


Vector = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class VectorQuery:
    """The sum over records of a product of one number per attribute, which the code selects.

    Conjunctions and intervals have vectors of 0 and 1. For the sum of a column over some records,
    one vector contains the column's values. Disjunctions and parities are a constant per record
    plus a multiple of a product.
    """

    axes: Axes  # positions of the attributes in the product, ascending
    vectors: tuple[Vector, ...]  # one vector per axis, with one number per code, float64
    constant: float = 0.0
    factor: float = 1.0

    @classmethod
    def of(cls, vectors: Mapping[int, ArrayLike]) -> VectorQuery:
        """Returns the query with the given vectors, by position; drops vectors of only ones."""
        arrays = {axis: np.asarray(vectors[axis], np.float64) for axis in sorted(vectors)}
        kept = {axis: vector for axis, vector in arrays.items() if not (vector == 1).all()}
        return cls(tuple(kept), tuple(kept.values()))

    @classmethod
    def of_literals(cls, query: LiteralQuery) -> VectorQuery:
        """Returns a conjunction, disjunction or parity as a vector query."""
        constant, sign, divisor, inside, outside = query.factors
        vectors = []
        for axis, ranges in zip(query.axes, query.ranges, strict=True):
            vector = np.full(query.shape[axis], float(outside))
            for start, stop in ranges:
                vector[start:stop] = inside
            vectors.append(vector)
        return cls(query.axes, tuple(vectors), constant / divisor, sign / divisor)

    @cached_property
    def held(self) -> VectorQuery:
        """Returns the query for the number of records whose product is not 0."""
        return VectorQuery(
            self.axes, tuple((vector != 0).astype(np.float64) for vector in self.vectors)
        )

    @property
    def squared(self) -> VectorQuery:
        """Returns the query for the sum of the squared multiples of the product."""
        return VectorQuery(
            self.axes, tuple(vector**2 for vector in self.vectors), 0.0, self.factor**2
        )

    def with_vectors(self, vectors: Mapping[int, ArrayLike]) -> VectorQuery:
        """Returns the query multiplied by more vectors, given by position."""
        merged: dict[int, NDArray[np.float64]] = dict(zip(self.axes, self.vectors, strict=True))
        for axis, vector in vectors.items():
            factor = np.asarray(vector, np.float64)
            merged[axis] = merged[axis] * factor if axis in merged else factor
        return VectorQuery.of(merged)


def sums_of(table: NDArray[np.float64], queries: Sequence[VectorQuery]) -> Vector:
    """Returns the answers of queries about the attributes of one table."""
    sums = np.empty(len(queries))
    for start in range(0, len(queries), 64):
        part = queries[start : start + 64]
        if not part[0].axes:
            sums[start : start + len(part)] = float(table)
            continue
        stacked = [
            np.array(vectors) for vectors in zip(*(query.vectors for query in part), strict=True)
        ]
        summed = np.tensordot(stacked[0], table, axes=(1, 0))
        for vectors in stacked[1:]:
            shape = (len(part), vectors.shape[1]) + (1,) * (summed.ndim - 2)
            summed = (summed * vectors.reshape(shape)).sum(axis=1)
        sums[start : start + len(part)] = summed
    constant, factor = affine_parts(queries)
    return constant * float(table.sum()) + factor * sums


def sums_over_records(
    codes: Sequence[NDArray[Any]], counts: NDArray[np.int64], queries: Sequence[VectorQuery]
) -> Vector:
    """Returns the answers of queries over distinct records, given as codes with their counts."""
    sums = np.empty(len(queries))
    for place, query in enumerate(queries):
        weights = counts.astype(np.float64)
        for axis, vector in zip(query.axes, query.vectors, strict=True):
            weights *= vector[codes[axis]]
        sums[place] = weights.sum()
    constant, factor = affine_parts(queries)
    return constant * float(counts.sum()) + factor * sums


def affine_parts(queries: Sequence[VectorQuery]) -> tuple[Vector, Vector]:
    """Returns the constant and the multiplier of each query, each of shape (num_queries,)."""
    constants = np.array([query.constant for query in queries], np.float64)
    return constants, np.array([query.factor for query in queries], np.float64)

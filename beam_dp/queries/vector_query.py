"""Weighted sums of the cells of a marginal, with product weights, for error bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.domain.universe import Axes
from beam_dp.queries.linear import LiteralQuery

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
            self.axes, tuple((each != 0).astype(np.float64) for each in self.vectors)
        )

    @property
    def squared(self) -> VectorQuery:
        """Returns the query for the sum of the squared multiples of the product."""
        return VectorQuery(self.axes, tuple(each**2 for each in self.vectors), 0.0, self.factor**2)

    def with_vectors(self, vectors: Mapping[int, ArrayLike]) -> VectorQuery:
        """Returns the query multiplied by more vectors, given by position."""
        found: dict[int, NDArray[np.float64]] = dict(zip(self.axes, self.vectors, strict=True))
        for axis, vector in vectors.items():
            factor = np.asarray(vector, np.float64)
            found[axis] = found[axis] * factor if axis in found else factor
        return VectorQuery.of(found)


def sums_of(table: NDArray[np.float64], queries: Sequence[VectorQuery]) -> Vector:
    """Returns the answers of queries about the attributes of one table."""
    found = np.empty(len(queries))
    for start in range(0, len(queries), 64):
        part = queries[start : start + 64]
        if not part[0].axes:
            found[start : start + len(part)] = float(table)
            continue
        stacked = [
            np.array(vectors) for vectors in zip(*(each.vectors for each in part), strict=True)
        ]
        summed = np.tensordot(stacked[0], table, axes=(1, 0))
        for vectors in stacked[1:]:
            shape = (len(part), vectors.shape[1]) + (1,) * (summed.ndim - 2)
            summed = (summed * vectors.reshape(shape)).sum(axis=1)
        found[start : start + len(part)] = summed
    constant, factor = affine_parts(queries)
    return constant * float(table.sum()) + factor * found


def sums_over_records(
    codes: Sequence[NDArray[Any]], counts: NDArray[np.int64], queries: Sequence[VectorQuery]
) -> Vector:
    """Returns the answers of queries over distinct records, given as codes with their counts."""
    found = np.empty(len(queries))
    for place, query in enumerate(queries):
        weights = counts.astype(np.float64)
        for axis, vector in zip(query.axes, query.vectors, strict=True):
            weights *= vector[codes[axis]]
        found[place] = weights.sum()
    constant, factor = affine_parts(queries)
    return constant * float(counts.sum()) + factor * found


def affine_parts(queries: Sequence[VectorQuery]) -> tuple[Vector, Vector]:
    """Returns the constant and the multiplier of each query, each of shape (num_queries,)."""
    constants = np.array([each.constant for each in queries], np.float64)
    return constants, np.array([each.factor for each in queries], np.float64)

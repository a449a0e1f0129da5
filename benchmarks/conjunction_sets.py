"""Sets of random conjunctions of value sets, answered without a table of queries by cells."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.queries.linear import Product, Range


@dataclass(frozen=True, eq=False)
class ConjunctionSet:
    """Conjunctions: each says of some attributes in which of their values a record's must lie.

    The values asked for are any of an attribute's, but neither none nor all: negations are among
    them. All conjunctions concern the same number of attributes, all attributes have the same
    number of values. Query ``index`` is numbered by attribute sets in the order of
    ``itertools.combinations``, then by the value set of the first attribute, the second, ...

    Args:
        num_attributes: of the domain.
        num_values: of each attribute, 2 to 8.
        ways: attributes that a query concerns.
        indices: distinct, ascending, shape (num_queries,), int64.
    """

    num_attributes: int
    num_values: int
    ways: int
    indices: NDArray[np.int64]

    @classmethod
    def draw(
        cls, num_attributes: int, num_values: int, ways: int, number: int, seed: int
    ) -> ConjunctionSet:
        """Returns so many distinct conjunctions, uniformly."""
        available = math.comb(num_attributes, ways) * (2**num_values - 2) ** ways
        generator = np.random.default_rng(seed)
        chosen = generator.choice(available, size=number, replace=False)
        return cls(num_attributes, num_values, ways, np.sort(chosen))

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the attributes."""
        return (self.num_values,) * self.num_attributes

    @property
    def axes(self) -> list[tuple[int, ...]]:
        """The attribute sets that occur, in order."""
        every = list(itertools.combinations(range(self.num_attributes), self.ways))
        return [every[each] for each in np.unique(self.indices // self._num_patterns).tolist()]

    def sums(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the sum of a table over each conjunction, shape (num_queries,).

        Args:
            table: shape (num_cells,).

        Cost: one pass over the cells, and over all patterns, for each attribute set.
        """
        found, cube = np.empty(len(self.indices)), table.reshape(self.shape)
        for axes, patterns, place in self._groups():
            rest = tuple(axis for axis in range(self.num_attributes) if axis not in axes)
            found[place] = _on_all_axes(cube.sum(axis=rest), self._indicators).ravel()[patterns]
        return found

    def asked_of_cells(self) -> NDArray[np.int64]:
        """Returns how many conjunctions hold in each cell, shape (num_cells,).

        The largest is the L1 sensitivity of all answers together, and the square of the L2
        sensitivity: a record is in one cell, and a query is 0 or 1 there.
        """
        asked = np.zeros(self.shape, np.int64)
        for axes, patterns, _ in self._groups():
            held = np.bincount(patterns, minlength=self._num_patterns)
            table = held.reshape([len(self._indicators)] * self.ways)
            wide = [self.num_values if axis in axes else 1 for axis in range(asked.ndim)]
            asked += _on_all_axes(table, self._indicators.T).reshape(wide)
        return asked.ravel()

    def query(self, index: int) -> Product:
        """Returns the conjunction of an index as the package asks it."""
        which, pattern = divmod(index, self._num_patterns)
        axes = next(
            itertools.islice(
                itertools.combinations(range(self.num_attributes), self.ways), which, None
            )
        )
        digits = np.unravel_index(pattern, [2**self.num_values - 2] * self.ways)
        ranges = tuple(_ranges(self._indicators[int(digit)].tolist()) for digit in digits)
        return Product(self.shape, axes, ranges)

    @property
    def _num_patterns(self) -> int:
        return int((2**self.num_values - 2) ** self.ways)

    @property
    def _indicators(self) -> NDArray[np.int64]:
        """Which values are in each value set, shape (2^num_values - 2, num_values)."""
        sets = np.arange(1, 2**self.num_values - 1)
        return sets[:, None] >> np.arange(self.num_values) & 1

    def _groups(self) -> Iterator[tuple[tuple[int, ...], NDArray[np.int64], slice]]:
        """Yields attribute sets with the patterns asked of each and their places."""
        which = self.indices // self._num_patterns
        starts = np.unique(which, return_index=True)[1].tolist()
        ends = [*starts[1:], len(self.indices)]
        for axes, start, end in zip(self.axes, starts, ends, strict=True):
            yield axes, self.indices[start:end] % self._num_patterns, slice(start, end)


def _on_all_axes(table: NDArray[np.int64], matrix: NDArray[np.int64]) -> NDArray[np.int64]:
    """Applies a matrix to every axis of a table; the axes keep their order."""
    for _ in range(table.ndim):
        table = np.tensordot(table, matrix, axes=(0, 1))
    return table


def _ranges(is_held: list[int]) -> tuple[Range, ...]:
    """The ranges of codes that are held."""
    found, code = [], 0
    for held, run in itertools.groupby(is_held):
        length = len(list(run))
        if held:
            found.append((code, code + length))
        code += length
    return tuple(found)

"""Trees of sums over contiguous cells, below a few roots that any matrix may measure together.

A plain tree has one root. Without a matrix above it the root itself is not measured: its children
sum to it. Overlapping windows are a matrix over many roots, each of which has a tree below it.
"""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from numpy.typing import NDArray

from beam_dp.interval_strategies.hierarchy_errors import HierarchyErrors, parents_of, starts_of
from beam_dp.interval_strategies.strategy import Prefixes, Values, prefixes_of

Integers = NDArray[np.int64]


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """A tree strategy with least squares.

    Level 0 are the roots, the last level are the cells; node i of m_l on level l is a child of
    node floor(i m_(l-1) / m_l) above it, so that every node has about as many children as the
    others of its level, whatever the sizes. Below the roots every node is measured, empty ones
    too: its sum times its integer weight. Answers are the least-squares fit to everything that is
    measured; they are linear, unbiased and consistent.

    Privacy: a record changes the sums of the nodes on one path, and what the matrix says of its
    root: the sensitivities are those of the column, computed in integers.

    Args:
        sizes: numbers of nodes of the levels, from the roots, which do not decrease.
        weights: of the nodes of each level but the first, int64, >= 1.
        top: shape (rows, sizes[0]), int64, >= 0: measured of the roots; without rows nothing is.

    Cost: O(d) a level, and O(sizes[0]^3) where there are many roots.
    Reference: Hay, Rastogi, Miklau and Suciu (2010) for the consistency; Qardaji, Yang and Li
    (2013) for wide branches and no root.
    """

    sizes: tuple[int, ...]
    weights: tuple[Integers, ...]
    top: Integers

    @property
    def num_leaves(self) -> int:
        """The number of cells."""
        return self.sizes[-1]

    @property
    def l1_sensitivity(self) -> int:
        """The largest L1 norm of a column."""
        return self._largest_column(1)

    @property
    def l2_sensitivity_squared(self) -> int:
        """The largest squared L2 norm of a column."""
        return self._largest_column(2)

    def measure(self, counts: Integers) -> Integers:
        """Returns the weighted sums, exactly: of the matrix, then level by level from above."""
        sums = counts
        parts = []
        for level in range(len(self.sizes) - 1, 0, -1):
            parts.append(self.weights[level - 1] * sums)
            sums = np.add.reduceat(sums, starts_of(self.sizes, level - 1))
        parts.append(self.top @ sums)
        return np.concatenate(parts[::-1])

    def estimate(self, noisy: Values) -> Prefixes:
        """Returns the least-squares fit: sums from below, then what is above them handed down."""
        bounds = np.cumsum([len(self.top), *self.sizes[1:]])
        measured = np.split(noisy, bounds[:-1])
        below = [np.zeros(0)] * len(self.sizes)  # of each level, the best estimate from below
        sums, precision = np.zeros(self.num_leaves), np.zeros(self.num_leaves)
        scales, precisions = self.node_variances()
        for level in range(len(self.sizes) - 1, 0, -1):
            weight = self.weights[level - 1]
            below[level] = scales[level] * (weight * measured[level] + precision * sums)
            sums = np.add.reduceat(below[level], starts_of(self.sizes, level - 1))
            precision = precisions[level - 1]
        if len(self.top):
            totals = self.errors.roots @ (self.top.T @ measured[0] + precision * sums)
        else:
            totals = sums
        for level in range(1, len(self.sizes)):
            starts, parents = starts_of(self.sizes, level - 1), parents_of(self.sizes, level)
            missing = totals - np.add.reduceat(below[level], starts)
            shares = scales[level] * precisions[level - 1][parents]
            totals = below[level] + shares * missing[parents]
        return prefixes_of(totals)

    @functools.cached_property
    def errors(self) -> HierarchyErrors:
        """The variances of all answers, for noise of variance 1: computed once."""
        scales, precisions = self.node_variances()
        return HierarchyErrors(self.sizes, scales, precisions, self.top)

    def node_variances(self) -> tuple[list[Values], list[Values]]:
        """Returns what the tree says of each node from at and below it.

        Returns:
            For each level the variances of the nodes' best estimates from themselves and from
            below; and the precisions of the sums of their children's. The roots have no variance
            of their own here, and the cells no children: precision 0.
        """
        levels = len(self.sizes)
        scales, precisions = [np.zeros(0)] * levels, [np.zeros(0)] * levels
        precisions[-1] = np.zeros(self.num_leaves)
        for level in range(levels - 1, 0, -1):
            weight = self.weights[level - 1].astype(np.float64)
            scales[level] = 1 / (weight**2 + precisions[level])
            starts = starts_of(self.sizes, level - 1)
            precisions[level - 1] = 1 / np.add.reduceat(scales[level], starts)
        return scales, precisions

    def _largest_column(self, power: int) -> int:
        norms = (self.top**power).sum(axis=0)
        for level in range(1, len(self.sizes)):
            norms = norms[parents_of(self.sizes, level)] + self.weights[level - 1] ** power
        return int(norms.max())


def tree(sizes: tuple[int, ...]) -> Hierarchy:
    """Returns a tree of one root that is not measured, all other nodes with a weight of 1."""
    weights = tuple(np.ones(size, np.int64) for size in sizes)
    return Hierarchy((1, *sizes), weights, np.zeros((0, 1), np.int64))

"""Trees of sums over contiguous cells, with one or more roots that a matrix may measure.

A plain tree has one root. Without a matrix, the root is not measured, because it is the sum of its
children. Overlapping windows are a matrix over many roots, with a tree below every root.
``best_tree`` chooses the sizes of the levels, and so the branches of a node.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.intervals.strategy import (
    Indices,
    Integers,
    Prefixes,
    Values,
    mean_of_intervals,
    prefixes_of,
)

# The factors to try for the size of the tree's highest level, relative to the geometric size.
_TOP_FACTORS = (0.6, 0.75, 0.9, 1.1, 1.3, 1.6, 2.0)


def starts_of(sizes: tuple[int, ...], level: int) -> Indices:
    """Returns, for each node of a level, the index of its first child on the next level."""
    return -(-np.arange(sizes[level]) * sizes[level + 1] // sizes[level])


def parents_of(sizes: tuple[int, ...], level: int) -> Indices:
    """Returns the parent of each node of a level below the first."""
    return np.arange(sizes[level]) * sizes[level - 1] // sizes[level]


class HierarchyErrors:
    """The variances of all answers of a ``Hierarchy``, for noise of variance 1."""

    def __init__(
        self,
        sizes: tuple[int, ...],
        scales: list[Values],
        precisions: list[Values],
        top: NDArray[np.int64],
    ) -> None:
        self._sizes = sizes
        self._scales = scales
        self._sums = [1 / precision for precision in precisions[:-1]]
        if len(top):
            self.roots = _root_covariance(top, precisions[0])
        else:
            self.roots = np.diag(self._sums[0])

    @functools.cached_property
    def _root_prefixes(self) -> Values:
        """The covariances of the prefix sums of roots, shape (roots + 1, roots + 1)."""
        roots = len(self.roots)
        result = np.zeros((roots + 1, roots + 1))
        result[1:, 1:] = self.roots.cumsum(axis=0).cumsum(axis=1)
        return result

    @functools.cached_property
    def _nodes(self) -> list[NDArray[np.int32]]:
        """For each level, the node that contains each cell, and finally the number of nodes."""
        places = np.arange(self._sizes[-1] + 1)
        nodes = [places.astype(np.int32)]
        for size, below in zip(self._sizes[-2::-1], self._sizes[:0:-1], strict=True):
            nodes.append((nodes[-1].astype(np.int64) * size // below).astype(np.int32))
        return nodes[::-1]

    @functools.cached_property
    def _before(self) -> list[Values]:
        """For each level below the roots, the sum of the variances of a node's earlier siblings."""
        before = [np.zeros(0)]
        for level in range(1, len(self._sizes)):
            sums = np.concatenate([[0.0], np.cumsum(self._scales[level])])
            starts, parents = starts_of(self._sizes, level - 1), parents_of(self._sizes, level)
            before.append(sums[:-1] - sums[starts][parents])
        return before

    @functools.cached_property
    def _prefixes(self) -> list[tuple[Values, Values]]:
        """For each level, the share and noise of the prefix before a cell within its node."""
        num_cells = self._sizes[-1]
        share, noise = np.zeros(num_cells + 1), np.zeros(num_cells + 1)
        pairs = [(share, noise)]
        for level in range(len(self._sizes) - 1, 0, -1):
            child = self._nodes[level][:-1]
            sums = self._sums[level - 1][self._nodes[level - 1][:-1]]
            before, scale = self._before[level][child], self._scales[level][child]
            inner = before + share[:-1] * scale
            noise = np.append(
                noise[:-1] + before + share[:-1] ** 2 * scale - inner**2 / sums,
                0.0,
            )
            share = np.append(inner / sums, 0.0)
            pairs.append((share, noise))
        return pairs[::-1]

    @functools.cached_property
    def _variances(self) -> list[Values]:
        """For each level, the variances of the final estimates of the nodes."""
        levels = [np.diagonal(self.roots).copy()]
        for level in range(1, len(self._sizes)):
            parents = parents_of(self._sizes, level)
            scales, sums = self._scales[level], self._sums[level - 1][parents]
            levels.append((scales / sums) ** 2 * levels[-1][parents] + scales - scales**2 / sums)
        return levels

    def mean(self) -> float:
        """Returns the mean of the variances of all intervals."""
        share, noise = (part[:-1] for part in self._prefixes[0])
        root = self._nodes[0][:-1]
        prefix = self._root_prefixes
        ends = np.diagonal(prefix)
        variances = (
            (1 - share) ** 2 * ends[root]
            + share**2 * ends[root + 1]
            + 2 * share * (1 - share) * prefix[root, root + 1]
            + noise
        )
        variances = np.append(variances[1:], ends[-1])
        return mean_of_intervals(variances, self._variance_of_sum())

    def mean_prefix_noise(self) -> float:
        """Returns the mean variance of the prefix sum before a cell, given the roots."""
        return float(self._prefixes[0][1][:-1].mean())

    def _variance_of_sum(self) -> float:
        """Returns the variance of the sum of all prefixes."""
        num_cells = self._sizes[-1]
        share, noise = np.zeros(num_cells), 0.0
        whole = np.ones(num_cells)
        for level in range(len(self._sizes) - 1, 0, -1):
            starts, parents = starts_of(self._sizes, level - 1), parents_of(self._sizes, level)
            total = np.add.reduceat(whole, starts)
            ends = np.cumsum(total)[parents]
            factor = share + ends - np.cumsum(whole)
            scales = self._scales[level]
            inner = np.add.reduceat(factor * scales, starts)
            noise += float((factor**2 * scales).sum() - (inner**2 / self._sums[level - 1]).sum())
            share, whole = inner / self._sums[level - 1], total
        factor = share + num_cells - np.cumsum(whole) + 1
        return float(factor @ self.roots @ factor) + noise

    def variances(self, low: Indices, high: Indices) -> Values:
        """Returns the variance of each interval low..high, both included."""
        stop = high + 1
        result = np.zeros(len(low))
        pending = np.arange(len(low))
        for level in range(len(self._sizes)):
            nodes = self._nodes[level]
            apart = nodes[low[pending]] != nodes[high[pending]]
            at = pending[apart]
            if len(at):
                result[at] = self._across(level, low[at], high[at], stop[at])
            pending = pending[~apart]
        result[pending] = self._variances[-1][low[pending]]
        return result

    def _end(self, level: int, high: Indices, stop: Indices) -> tuple[Values, Values]:
        """Returns the share and noise, within a node of the level, of the prefix up to ``high``."""
        nodes = self._nodes[level]
        inside = nodes[stop] == nodes[high]
        share, noise = self._prefixes[level]
        return np.where(inside, share[stop], 1.0), np.where(inside, noise[stop], 0.0)

    def _across(self, level: int, low: Indices, high: Indices, stop: Indices) -> Values:
        """Returns variances of intervals whose ends are in different nodes with the same parent."""
        nodes = self._nodes[level]
        first, last = nodes[low], nodes[high]
        start_share, start_noise = (part[low] for part in self._prefixes[level])
        end_share, end_noise = self._end(level, high, stop)
        noise = start_noise + end_noise
        if level == 0:
            return noise + self._across_roots(first, last, start_share, end_share)
        scales, before = self._scales[level], self._before[level]
        between = before[last] - before[first]
        inner = between - start_share * scales[first] + end_share * scales[last]
        squares = (
            between
            - scales[first]
            + (1 - start_share) ** 2 * scales[first]
            + end_share**2 * scales[last]
        )
        parent = self._nodes[level - 1][low]
        sums = self._sums[level - 1][parent]
        result: Values = (
            noise
            + squares
            - inner**2 / sums
            + (inner / sums) ** 2 * self._variances[level - 1][parent]
        )
        return result

    def _across_roots(
        self, first: NDArray[np.int32], last: NDArray[np.int32], start: Values, end: Values
    ) -> Values:
        prefix = self._root_prefixes
        terms = [(last, 1 - end), (last + 1, end), (first, start - 1), (first + 1, -start)]
        result = np.zeros(len(first))
        for number, (place, factor) in enumerate(terms):
            result += factor**2 * prefix[place, place]
            for other, other_factor in terms[:number]:
                result += 2 * factor * other_factor * prefix[place, other]
        return result


def _root_covariance(top: NDArray[np.int64], precisions: Values) -> Values:
    """Returns the covariance of roots fitted to a measured matrix and independent estimates."""
    matrix = top.astype(np.float64)
    information = matrix.T @ matrix
    information[np.diag_indices_from(information)] += precisions
    return np.asarray(np.linalg.inv(information), np.float64)


@dataclasses.dataclass(frozen=True, eq=False)
class Hierarchy:
    """A tree strategy with least squares.

    Level 0 contains the roots, the last level the cells. Node i of m_l on level l is a child of
    node floor(i m_(l-1) / m_l) on the level above, so all nodes of a level have about the same
    number of children, for any sizes. Every node below the roots is measured, even an empty node:
    the measurement is the node's sum times its integer weight. Answers are the least-squares fit to
    all measurements. The answers are linear, unbiased and consistent.

    ``weights``: the weights of the nodes of each level except the first, int64, >= 1.
    ``top``: the matrix that measures the roots, shape (rows, sizes[0]), int64, >= 0; rows may be 0.

    Privacy: a record changes the sums of the nodes on one path, and the matrix's measurements of
    the root of this path. The sensitivities are norms of the record's column, in integers.

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
        """Returns the exact weighted sums: of the matrix, then of the levels from top to bottom."""
        sums = counts
        parts = []
        for level in range(len(self.sizes) - 1, 0, -1):
            parts.append(self.weights[level - 1] * sums)
            sums = np.add.reduceat(sums, starts_of(self.sizes, level - 1))
        parts.append(self.top @ sums)
        return np.concatenate(parts[::-1])

    def estimate(self, noisy: Values) -> Prefixes:
        """Returns the least-squares fit, by a pass up the tree and a pass down."""
        bounds = np.cumsum([len(self.top), *self.sizes[1:]])
        measured = np.split(noisy, bounds[:-1])
        below = [np.zeros(0)] * len(self.sizes)  # for each level, the best estimates from below
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
        """Returns variances and precisions of all nodes, from the nodes' subtrees, by level."""
        # The variances are those of the nodes' best estimates (without roots). The precisions are
        # those of the sums of the children's estimates, and 0 for cells.
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
    """Returns a tree with one root, which is not measured; all other nodes have weight 1."""
    weights = tuple(np.ones(size, np.int64) for size in sizes)
    return Hierarchy((1, *sizes), weights, np.zeros((0, 1), np.int64))


def _error_of(strategy: Hierarchy, power: int) -> float:
    """Returns a tree's mean squared error for noise scaled by the L1 norm (power 1) or L2 norm."""
    if power == 1:
        return float(strategy.l1_sensitivity**2 * strategy.errors.mean())
    return strategy.l2_sensitivity_squared * strategy.errors.mean()


@functools.lru_cache(maxsize=64)
def best_tree(num_leaves: int, power: int) -> Hierarchy:
    """Returns the rootless tree with the least error among trees with equal weights on all levels.

    The sizes of levels are geometric except for the highest level. Deeper trees are tried as long
    as the error falls. Cells need no padding: if a level has m nodes, node i contains the cells
    that round to i, so any level size works for any number of cells.

    ``power``: 1 for Laplace noise, 2 for Gaussian noise.
    """
    best = tree((num_leaves,))
    least = _error_of(best, power)
    for depth in range(2, num_leaves.bit_length()):
        sizes = _sizes(num_leaves, depth, num_leaves ** (1 / depth))
        error = _error_of(tree(sizes), power)
        if error > least:
            if depth > 4 or len(best.sizes) > 2:
                break
            continue
        best, least = tree(sizes), error
    depth = len(best.sizes) - 1
    if depth > 1:
        tops = [factor * num_leaves ** (1 / depth) for factor in _TOP_FACTORS]
        candidates = (tree(_sizes(num_leaves, depth, top)) for top in tops)  # one held at a time
        best = min(itertools.chain([best], candidates), key=lambda option: _error_of(option, power))
    return best


def _sizes(num_leaves: int, depth: int, top: float) -> tuple[int, ...]:
    """Returns the numbers of nodes per tree level, which grow from ``top`` by a constant factor."""
    first = min(max(round(top), 1), num_leaves)
    factor = (num_leaves / first) ** (1 / (depth - 1)) if depth > 1 else 1.0
    middle = [math.floor(first * factor**level + 0.5) for level in range(depth - 1)]
    return (*middle, num_leaves)

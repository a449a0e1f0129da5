"""Finds elimination orders and the cliques and edges of junction trees; adds pairs to trees.

Attribute sets are bit masks here, with bit ``axis`` for each attribute in the set. All functions
need only sizes, so a selection can compare thousands of models before building one. Adding a pair
changes only the path between its two attributes in the tree (Ibarra, 2008), so candidate pairs need
no new triangulation.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Axes


def mask_of(axes: Iterable[int]) -> int:
    """Returns a set of axes as a bit mask."""
    mask = 0
    for axis in axes:
        mask |= 1 << axis
    return mask


def axes_of(mask: int) -> Axes:
    """Returns the ascending axes of a bit mask: (0, 2, 3) for 0b1101."""
    axes = []
    while mask:
        lowest = mask & -mask
        axes.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(axes)


def maximal_masks(masks: Iterable[int]) -> list[int]:
    """Returns the masks that are not subsets of another mask, without duplicates, largest first."""
    result: list[int] = []
    for mask in sorted(set(masks), key=int.bit_count, reverse=True):
        if not any(mask & larger == mask for larger in result):
            result.append(mask)
    return result


@dataclasses.dataclass(frozen=True)
class Triangulation:
    """The cliques of an elimination order."""

    cliques: tuple[int, ...]
    num_cells: int


def num_clique_cells(shape: Sequence[int], sets: Iterable[Axes]) -> int:
    """Returns the number of cells of the junction tree for these sets, without building it."""
    return triangulate(shape, [mask_of(axes) for axes in sets]).num_cells


def cliques_fit(shape: Sequence[int], sets: Iterable[Axes], max_cells: int) -> bool:
    """Returns whether ``num_clique_cells`` is at most a limit; faster than counting all cells."""
    neighbours, logs = _joined(shape, map(mask_of, sets))
    return any(
        _eliminate(shape, logs, neighbours, order, max_cells).num_cells <= max_cells
        for order in (_clique_size, _fill)
    )


def triangulate(shape: Sequence[int], masks: Iterable[int]) -> Triangulation:
    """Returns the smallest triangulation found by a few greedy orders."""
    neighbours, logs = _joined(shape, masks)
    return min(
        (_eliminate(shape, logs, neighbours, order) for order in (_clique_size, _fill)),
        key=lambda trial: trial.num_cells,
    )


def _joined(shape: Sequence[int], masks: Iterable[int]) -> tuple[list[int], list[float]]:
    """Returns, per attribute, the mask of attributes that share a set with it, and the log size."""
    neighbours = [1 << axis for axis in range(len(shape))]
    for mask in masks:
        for axis in axes_of(mask):
            neighbours[axis] |= mask
    return neighbours, [math.log2(size) + 1e-3 for size in shape]


_Order = Callable[[int, list[int], list[float]], float]


def _clique_size(axis: int, neighbours: list[int], logs: list[float]) -> float:
    """Returns the log of the size of the clique that eliminating an attribute creates."""
    total = 0.0
    mask = neighbours[axis]
    while mask:
        lowest = mask & -mask
        total += logs[lowest.bit_length() - 1]
        mask ^= lowest
    return total


def _fill(axis: int, neighbours: list[int], logs: list[float]) -> float:
    """Returns the weighted number of new edges that eliminating an attribute creates."""
    clique = neighbours[axis]
    total = 0.0
    mask = clique ^ (1 << axis)
    while mask:
        lowest = mask & -mask
        mask ^= lowest
        other = lowest.bit_length() - 1
        missing = clique & ~neighbours[other]
        weight = logs[other]
        while missing:
            bit = missing & -missing
            missing ^= bit
            total += weight * logs[bit.bit_length() - 1]
    # If no new edges are needed, attributes with small cliques come first.
    return total if total else 1e-9 * _clique_size(axis, neighbours, logs)


def _eliminate(
    shape: Sequence[int],
    logs: list[float],
    initial: list[int],
    order: _Order,
    max_cells: float = math.inf,
) -> Triangulation:
    """Returns the triangulation of a greedy order; an attribute is among its own neighbours."""
    # If the triangulation exceeds the limit of cells, stops and returns it incomplete.
    neighbours = list(initial)
    costs = {axis: order(axis, neighbours, logs) for axis in range(len(shape))}
    cliques: list[int] = []
    num_cells = 0
    while costs:
        axis = min(costs, key=costs.__getitem__)
        clique = neighbours[axis]
        # A clique can only be a subset of an earlier clique.
        if not any(clique & ~larger == 0 for larger in cliques):
            cliques.append(clique)
            num_cells += math.prod([shape[part] for part in axes_of(clique)])
            if num_cells > max_cells:
                break
        del costs[axis]
        others = axes_of(clique ^ (1 << axis))
        rest = clique ^ (1 << axis)
        changed = 0
        for other in others:
            before = neighbours[other]
            neighbours[other] = (before | rest) & ~(1 << axis)
            changed |= neighbours[other]
        # Costs depend on the neighbours of an attribute and on the edges between its neighbours.
        stale = axes_of(changed) if order is _fill else others
        for other in stale:
            costs[other] = order(other, neighbours, logs)
    return Triangulation(tuple(cliques), num_cells)


def join_cliques(shape: Sequence[int], cliques: Sequence[int]) -> list[tuple[int, int, int]]:
    """Returns a spanning tree of the cliques with the largest separators, from the largest clique.

    For the maximal cliques of a chordal graph, every such tree is a junction tree (Jensen and
    Jensen, 1994): the cliques that share an attribute form a connected subtree.

    Returns:
        (mask, parent, separator) per clique, parents first: the position of the parent is -1 for
        the root, and the separator is the mask of the attributes shared with the parent.
    """

    def num_cells(mask: int) -> int:
        return math.prod(shape[axis] for axis in axes_of(mask))

    newest = max(cliques, key=num_cells)
    joined: list[tuple[int, int, int]] = []
    # Per remaining clique: the largest number of attributes shared with a joined clique, and the
    # position of that clique.
    best: dict[int, tuple[int, int]] = dict.fromkeys(cliques, (-1, -1))
    while True:
        parent = best.pop(newest)[1]
        joined.append((newest, parent, newest & joined[parent][0] if parent >= 0 else 0))
        if not best:
            return joined
        for clique, (shared, _) in best.items():
            if (clique & newest).bit_count() > shared:
                best[clique] = (clique & newest).bit_count(), len(joined) - 1
        newest = max(best, key=lambda clique: best[clique][0])


@dataclasses.dataclass(frozen=True)
class _Path:
    """A path of cliques: one attribute is only in the first clique, the other only in the last."""

    walked: list[int]
    cliques: list[int]  # after shortcuts: no separator contains the next one
    separators: list[int]
    passed: list[tuple[int, int]]


@dataclasses.dataclass(frozen=True)
class _Growth:
    """The change of a tree when a pair is added."""

    path: _Path
    chain: list[int]
    hosts: list[int]
    num_cells: int


class GrowingTree:
    """The cliques of some attribute sets and of the pairs that were added later.

    Adding a pair connects its two attributes along the path between them, at the cheapest meeting
    point. The order in which pairs are added can make the tree larger than necessary. So before
    refusing a pair, the tree triangulates all sets and pairs again, at most once after each change.

    ``sets``: the initial attribute sets, as ascending axes, of any size.
    """

    def __init__(self, shape: Sequence[int], sets: Iterable[Axes], max_cells: int) -> None:
        self.shape = tuple(shape)
        self.max_cells = max_cells
        self._joined = [mask_of(axes) for axes in sets]
        self._cells_of: dict[int, int] = {}
        self._is_fresh = True
        self._take(triangulate(self.shape, self._joined))

    @property
    def cliques(self) -> tuple[int, ...]:
        """The maximal cliques, as masks; every attribute is in a clique."""
        return tuple(self._edges)

    @property
    def edges(self) -> list[tuple[int, int]]:
        """The pairs of adjacent cliques in the tree, without duplicates."""
        return [(one, other) for one in self._edges for other in self._edges[one] if one < other]

    def join(self, pair: Axes) -> bool:
        """Adds a pair if the tree stays small enough; returns whether the pair was added."""
        mask = mask_of(pair)
        if mask & ~self._neighbours[pair[0]]:
            growth = self._growth(*pair)
            if growth.num_cells > self.max_cells and self._is_smaller_anew():
                return self.join(pair)
            if growth.num_cells > self.max_cells:
                return False
            self._grow(growth)
        self._joined.append(mask)
        return True

    def _is_smaller_anew(self) -> bool:
        """Triangulates again if the tree has changed; returns whether the tree became smaller."""
        if self._is_fresh:
            return False
        self._is_fresh = True
        anew = triangulate(self.shape, self._joined)
        if anew.num_cells >= self.num_cells:
            return False
        self._take(anew)
        return True

    def _take(self, cover: Triangulation) -> None:
        """Builds the tree of a triangulation's cliques."""
        joined = join_cliques(self.shape, cover.cliques)
        self._edges: dict[int, set[int]] = {clique: set() for clique, _, _ in joined}
        for clique, parent, _ in joined[1:]:
            self._link(clique, joined[parent][0])
        self.num_cells = cover.num_cells
        self._is_fresh = True
        self._walk()

    def _link(self, one: int, other: int) -> None:
        self._edges[one].add(other)
        self._edges[other].add(one)

    def _walk(self) -> None:
        """Finds every clique's depth and parent, and every attribute's topmost clique."""
        root = next(iter(self._edges))
        self._above: dict[int, tuple[int, int]] = {root: (0, root)}
        self._top: dict[int, int] = dict.fromkeys(axes_of(root), root)
        self._neighbours = [0] * len(self.shape)
        waiting = [root]
        for clique in waiting:
            depth = self._above[clique][0] + 1
            for axis in axes_of(clique):
                self._neighbours[axis] |= clique
            for below in self._edges[clique]:
                if below not in self._above:
                    self._above[below] = depth, clique
                    waiting.append(below)
                    for axis in axes_of(below & ~clique):
                        self._top[axis] = below

    def _path(self, first: int, second: int) -> _Path:
        """Returns the path between two attributes that are not in a common clique."""
        left, right = [self._top[first]], [self._top[second]]
        while left[-1] != right[-1]:
            # The deeper of the two cliques cannot be an ancestor of the other clique, so the walk
            # goes up from the deeper clique.
            if self._above[right[-1]][0] >= self._above[left[-1]][0]:
                right.append(self._above[right[-1]][1])
                if right[-1] >> first & 1:
                    left = right[-1:]
            else:
                left.append(self._above[left[-1]][1])
                if left[-1] >> second & 1:
                    right = left[-1:]
        walked = left + right[-2::-1]
        cliques, separators = walked[:1], list[int]()
        passed = []
        for before, clique in pairwise(walked):
            separator = before & clique
            while separators and separator & ~separators[-1] == 0:
                separators.pop()
                passed.append((cliques.pop(), cliques[-1]))
            if separators and separators[-1] & ~separator == 0:
                passed.append((cliques[-1], clique))
                cliques[-1] = clique
            else:
                separators.append(separator)
                cliques.append(clique)
        return _Path(walked, cliques, separators, passed)

    def _growth(self, first: int, second: int) -> _Growth:
        """Returns the cheapest way to add a pair that is not in a clique."""
        path = self._path(first, second)
        one, other = 1 << first, 1 << second
        # For each inner clique, the union of its two separators.
        parts = [before | after for before, after in pairwise(path.separators)]
        cells = [self._cells(part) for part in parts]
        from_first = accumulate((cell * self.shape[first] for cell in cells), initial=0)
        from_second = [*accumulate((cell * self.shape[second] for cell in cells[::-1]), initial=0)]
        both = self.shape[first] * self.shape[second]
        added, meeting = min(
            (left + self._cells(separator) * both + right, place)
            for place, (left, separator, right) in enumerate(
                zip(from_first, path.separators, from_second[::-1], strict=True)
            )
        )
        joined = [part | (one if i < meeting else other) for i, part in enumerate(parts)]
        chain = [*joined[:meeting], path.separators[meeting] | one | other, *joined[meeting:]]
        hosts = [chain[0], *joined, chain[-1]]
        inside = (
            self._cells(clique)
            for clique, host in zip(path.cliques, hosts, strict=True)
            if clique & ~host == 0
        )
        return _Growth(path, chain, hosts, self.num_cells + added - sum(inside))

    def _grow(self, growth: _Growth) -> None:
        """Inserts the new cliques into the tree."""
        for one, other in pairwise(growth.path.walked):
            self._edges[one].remove(other)
            self._edges[other].remove(one)
        for one, other in growth.path.passed:
            self._link(one, other)
        self._edges.update((clique, set()) for clique in growth.chain)
        for one, other in pairwise(growth.chain):
            self._link(one, other)
        for clique, host in zip(growth.path.cliques, growth.hosts, strict=True):
            if clique & ~host:
                self._link(clique, host)
                continue
            for other in self._edges.pop(clique):
                self._edges[other].remove(clique)
                self._link(other, host)
        self.num_cells = growth.num_cells
        self._is_fresh = False
        self._walk()

    def _cells(self, mask: int) -> int:
        """Returns the number of cells of the table over some attributes."""
        cells = self._cells_of.get(mask)
        if cells is None:
            cells = math.prod(self.shape[axis] for axis in axes_of(mask))
            self._cells_of[mask] = cells
        return cells


# Sums one large table into many small tables in few passes, and the reverse.
#
# A cascade is a tree of tables in which every child is smaller than its parent. The root has all
# axes; each child drops a large axis that the wanted tables below the child do not need. Summing
# the root down the cascade gives all wanted marginals. The transpose adds tables up the cascade and
# gives their sum over all axes.


# Rows shorter than this are summed faster by a product with a matrix of ones than by numpy's sum.
_SHORT_ROW = 48


def broadcast_shape(axes: Sequence[int], within: Sequence[int], shape: Sequence[int]) -> Axes:
    """Returns the shape of a table over some axes that broadcasts over all of ``within``."""
    return tuple(shape[axis] if axis in axes else 1 for axis in within)


@functools.lru_cache(maxsize=64)
def _tiled_identity(summed: int, kept: int) -> NDArray[np.float64]:
    """Returns the matrix that sums rows of shape (summed, kept) over their first axis."""
    return np.tile(np.eye(kept), (summed, 1))


def _runs(sizes: Sequence[int], is_kept: Sequence[bool]) -> list[tuple[int, bool]]:
    """Merges runs of adjacent axes that are all kept or all summed out, as (size, is_kept)."""
    runs: list[tuple[int, bool]] = []
    for size, kept in zip(sizes, is_kept, strict=True):
        if runs and runs[-1][1] == kept:
            runs[-1] = runs[-1][0] * size, kept
        elif size > 1:
            runs.append((size, kept))
    return runs


@functools.lru_cache(maxsize=4096)
def _summing_steps(sizes: Axes, is_kept: tuple[bool, ...]) -> tuple[tuple[int, int, int], ...]:
    """Returns, for the sum over each run of axes, a shape (before, summed, after)."""
    runs = _runs(sizes, is_kept)
    steps = []
    while not all(kept for _, kept in runs):
        # The largest run is summed first, so that the later sums are small.
        position = max((size, i) for i, (size, kept) in enumerate(runs) if not kept)[1]
        before = math.prod(size for size, _ in runs[:position])
        after = math.prod(size for size, _ in runs[position + 1 :])
        steps.append((before, runs[position][0], after))
        left = runs[:position] + runs[position + 1 :]
        runs = _runs([size for size, _ in left], [kept for _, kept in left])
    return tuple(steps)


def sum_to(
    table: NDArray[np.float64], is_kept: tuple[bool, ...], out: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """Returns a copy of a table, summed over the axes that are not kept."""
    # ``out``: a contiguous array for the result.
    sizes = table.shape
    for before, summed, after in _summing_steps(sizes, is_kept):
        if after == 1:
            table = table.reshape(before, summed) @ _tiled_identity(summed, 1)[:, 0]
        elif before == 1:
            table = _tiled_identity(summed, 1)[:, 0] @ table.reshape(summed, after)
        elif after < _SHORT_ROW and summed * after**2 < 2**20:
            table = table.reshape(before, summed * after) @ _tiled_identity(summed, after)
        else:
            table = table.reshape(before, summed, after).sum(axis=1)
    kept_sizes = tuple(size for size, kept in zip(sizes, is_kept, strict=True) if kept)
    if out is None:
        return table.reshape(kept_sizes).copy() if all(is_kept) else table.reshape(kept_sizes)
    out[...] = table.reshape(kept_sizes)
    return out


@dataclasses.dataclass
class _Node:
    """One table of a cascade."""

    axes: Axes
    table: NDArray[np.float64]
    wanted: int | None  # the position among the wanted tables
    children: list[_Node]
    shapes: list[Axes]  # per child, its shape for broadcasting over this table
    is_kept: list[tuple[bool, ...]]  # per child, a flag for each axis of this table


class Cascade:
    """The cascade from one table to its sums over some axes.

    ``wanted``: sets of axes, in the order of ``axes`` and without duplicates.
    """

    def __init__(self, axes: Axes, shape: Sequence[int], wanted: Sequence[Axes]) -> None:
        self._shape = tuple(shape)
        self.num_wanted = len(wanted)
        positions = {frozenset(table): number for number, table in enumerate(wanted)}
        self._root = self._build(axes, positions)

    def add_up(
        self, tables: Sequence[NDArray[np.float64] | None], out: NDArray[np.float64]
    ) -> None:
        """Writes the sum of the wanted tables over all axes; None means a table of zeros."""
        if self._add(self._root, tables, out) is None:
            out[...] = 0.0

    def sum_down(self, table: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Returns the wanted marginals of a table; the next call overwrites these arrays."""
        results: list[NDArray[np.float64]] = [table] * self.num_wanted
        self._sum(self._root, table, results)
        return results

    def _build(self, axes: Axes, wanted: dict[frozenset[int], int]) -> _Node:
        left = dict(wanted)
        node = _Node(axes, np.empty(0), left.pop(frozenset(axes), None), [], [], [])
        while left:
            # Drop the axis that saves the most cells over all remaining wanted tables.
            dropped = max(
                axes,
                key=lambda axis: (
                    math.log(self._shape[axis] + 1e-3) * sum(axis not in table for table in left)
                ),
            )
            group = {table: number for table, number in left.items() if dropped not in table}
            left = {table: number for table, number in left.items() if dropped in table}
            used = frozenset().union(*group)
            child = self._build(tuple(axis for axis in axes if axis in used), group)
            child.table = np.empty([self._shape[axis] for axis in child.axes])
            node.children.append(child)
            node.shapes.append(broadcast_shape(child.axes, axes, self._shape))
            node.is_kept.append(tuple(axis in used for axis in axes))
        return node

    def _add(
        self,
        node: _Node,
        tables: Sequence[NDArray[np.float64] | None],
        out: NDArray[np.float64],
    ) -> NDArray[np.float64] | None:
        parts = []
        if node.wanted is not None:
            table = tables[node.wanted]
            if table is not None:
                parts.append(table)
        for child, shape in zip(node.children, node.shapes, strict=True):
            part = self._add(child, tables, child.table)
            if part is not None:
                parts.append(part.reshape(shape))
        if not parts:
            return None
        if len(parts) == 1:
            out[...] = parts[0]
        for number, part in enumerate(parts[1:]):
            np.add(out if number else parts[0], part, out=out)
        return out

    def _sum(
        self, node: _Node, table: NDArray[np.float64], results: list[NDArray[np.float64]]
    ) -> None:
        if node.wanted is not None:
            results[node.wanted] = table
        for child, is_kept in zip(node.children, node.is_kept, strict=True):
            self._sum(child, sum_to(table, is_kept, child.table), results)

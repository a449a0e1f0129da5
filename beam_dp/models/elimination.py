"""Elimination orders: the cliques of a junction tree, and how they are joined.

Attribute sets are bit masks here: bit ``axis`` is set where the attribute is in. Everything works
on sizes alone, so that a selection can ask for the size of thousands of models before it builds
one.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Sequence

Axes = tuple[int, ...]


def mask_of(axes: Iterable[int]) -> int:
    """Returns a set of axes as a bit mask."""
    mask = 0
    for axis in axes:
        mask |= 1 << axis
    return mask


def axes_of(mask: int) -> Axes:
    """Returns the ascending axes of a bit mask.

    Example:
        >>> axes_of(0b1101)
        (0, 2, 3)
    """
    axes = []
    while mask:
        lowest = mask & -mask
        axes.append(lowest.bit_length() - 1)
        mask ^= lowest
    return tuple(axes)


def maximal_masks(masks: Iterable[int]) -> list[int]:
    """Returns the masks that lie inside no other one, without duplicates, largest first."""
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
    """Returns how many cells the junction tree of these sets would hold, without building it.

    Args:
        shape: number of codes of every attribute.
        sets: attribute sets, each to lie inside one clique.

    Cost: below 1 ms for 15 attributes and 60 sets.

    Example:
        >>> num_clique_cells((2, 3, 4), [(0, 1), (1, 2)])
        18
    """
    return triangulate(shape, [mask_of(axes) for axes in sets]).num_cells


def cliques_fit(shape: Sequence[int], sets: Iterable[Axes], max_cells: int) -> bool:
    """Returns whether ``num_clique_cells`` is at most a limit: at less cost, above all where it is.

    Args:
        shape: number of codes of every attribute.
        sets: attribute sets, each to lie inside one clique.
        max_cells: the limit.
    """
    neighbours, logs = _joined(shape, map(mask_of, sets))
    return any(
        _eliminate(shape, logs, neighbours, order, max_cells).num_cells <= max_cells
        for order in (_clique_size, _fill)
    )


def triangulate(shape: Sequence[int], masks: Iterable[int]) -> Triangulation:
    """Returns the smallest of the triangulations that a few greedy orders find.

    Args:
        shape: number of codes of every attribute.
        masks: attribute sets, each to lie inside one clique.
    """
    neighbours, logs = _joined(shape, masks)
    return min(
        (_eliminate(shape, logs, neighbours, order) for order in (_clique_size, _fill)),
        key=lambda found: found.num_cells,
    )


def _joined(shape: Sequence[int], masks: Iterable[int]) -> tuple[list[int], list[float]]:
    """Returns which attributes each one shares a set with, itself included, and logs of sizes."""
    neighbours = [1 << axis for axis in range(len(shape))]
    for mask in masks:
        for axis in axes_of(mask):
            neighbours[axis] |= mask
    return neighbours, [math.log2(size) + 1e-3 for size in shape]


_Order = Callable[[int, list[int], list[float]], float]


def _clique_size(axis: int, neighbours: list[int], logs: list[float]) -> float:
    """Returns the log of the cells of the clique that eliminating an attribute makes."""
    total = 0.0
    mask = neighbours[axis]
    while mask:
        lowest = mask & -mask
        total += logs[lowest.bit_length() - 1]
        mask ^= lowest
    return total


def _fill(axis: int, neighbours: list[int], logs: list[float]) -> float:
    """Returns the weighted number of pairs that eliminating an attribute newly joins."""
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
    # Among orders that join nothing new, small cliques first.
    return total if total else 1e-9 * _clique_size(axis, neighbours, logs)


def _eliminate(
    shape: Sequence[int],
    logs: list[float],
    initial: list[int],
    order: _Order,
    max_cells: float = math.inf,
) -> Triangulation:
    """Returns the triangulation of a greedy order; neighbours include the attribute itself.

    It is left incomplete as soon as it has more cells than the limit.
    """
    neighbours = list(initial)
    costs = {axis: order(axis, neighbours, logs) for axis in range(len(shape))}
    cliques: list[int] = []
    num_cells = 0
    while costs:
        axis = min(costs, key=costs.__getitem__)
        clique = neighbours[axis]
        # A clique can only lie inside one that was made before it.
        if not any(clique & ~larger == 0 for larger in cliques):
            cliques.append(clique)
            num_cells += math.prod([shape[each] for each in axes_of(clique)])
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
        # Costs depend on neighbours, and on which of them are joined.
        stale = axes_of(changed) if order is _fill else others
        for other in stale:
            costs[other] = order(other, neighbours, logs)
    return Triangulation(tuple(cliques), num_cells)


def join_cliques(shape: Sequence[int], cliques: Sequence[int]) -> list[tuple[int, int, int]]:
    """Returns a spanning tree of the cliques with the largest separators, from the largest clique.

    For the maximal cliques of a chordal graph every such tree is a junction tree (Jensen and
    Jensen, 1994): those with an attribute in common are connected through it.

    Returns:
        The cliques, the root first and every other one after its parent: each as a mask, with the
        position of its parent (-1 for the root) and the mask of what it shares with it.
    """

    def num_cells(mask: int) -> int:
        return math.prod(shape[axis] for axis in axes_of(mask))

    newest = max(cliques, key=num_cells)
    joined: list[tuple[int, int, int]] = []
    # The attributes that each clique left shares with one that is joined, and which one that is.
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

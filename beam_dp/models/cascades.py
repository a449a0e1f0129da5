"""Sums one large table into many small tables in few passes, and the reverse.

A cascade is a tree of tables in which every child is smaller than its parent. The root has all
axes; each child drops a large axis that the wanted tables below the child do not need. Summing the
root down the cascade gives all wanted marginals. The transpose adds tables up the cascade and gives
their sum over all axes.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Axes

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
        positions = {frozenset(each): number for number, each in enumerate(wanted)}
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
                    math.log(self._shape[axis] + 1e-3) * sum(axis not in each for each in left)
                ),
            )
            group = {each: number for each, number in left.items() if dropped not in each}
            left = {each: number for each, number in left.items() if dropped in each}
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
            own = tables[node.wanted]
            if own is not None:
                parts.append(own)
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

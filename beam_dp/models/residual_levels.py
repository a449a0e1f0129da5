"""Multiplies a table by basis vectors, a few axes at a time.

Merged axes are consumed from the first to the last. Partial supports with the same possible
continuations share one block, so all k-way marginals need k blocks for any number of attributes,
and products outside all supports are never computed. A support without a continuation ends with its
last axis, because the sum over the remaining axes is the same for all supports.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import Support, contrast_matrix, stacked

# Adjacent small axes are merged up to this number of codes: one product serves several attributes.
_MERGED_AXIS_SIZE = 64

Blocks = list[NDArray[np.float64]]


@dataclasses.dataclass(frozen=True)
class _Products:
    """The basis vectors of one merged axis, as the rows of a matrix; sparse for a large axis."""

    matrix: Any  # shape (num_rows, axis size)

    @property
    def num_rows(self) -> int:
        """The number of basis vectors."""
        return int(self.matrix.shape[0])

    def apply(self, cells: NDArray[np.float64], out: NDArray[np.float64]) -> None:
        """Writes the products of the basis vectors with cells, shape (axis size, any size)."""
        if isinstance(self.matrix, np.ndarray):
            np.matmul(self.matrix, cells, out=out)
        else:
            out[...] = self.matrix @ cells

    def spread(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the cells from products: the transpose of ``apply``."""
        cells: NDArray[np.float64] = self.matrix.T @ rows
        return cells


@dataclasses.dataclass(frozen=True)
class _Step:
    """Products of a source block that are written to a target block, from row ``start`` on."""

    products: _Products
    target: int
    start: int


@dataclasses.dataclass(frozen=True)
class _Source:
    """A block of partial supports, and its products with the next merged axis.

    A block has one row per basis vector of the consumed axes, and a column per remaining cell.
    """

    rows: int
    steps: tuple[_Step, ...]  # the products that later axes continue
    endings: tuple[_Products, ...]
    joined: _Products | None  # the products of all steps; None if there are no steps


@dataclasses.dataclass(frozen=True)
class Level:
    """The step from block to block for one merged axis."""

    axis_size: int
    rest_cells: int
    sources: tuple[_Source, ...]
    target_rows: tuple[int, ...]

    @property
    def num_ended(self) -> int:
        """The number of coefficients that end with this axis."""
        return sum(
            products.num_rows * source.rows
            for source in self.sources
            for products in source.endings
        )

    def contract(self, blocks: Sequence[NDArray[np.float64]]) -> tuple[Blocks, NDArray[np.float64]]:
        """Returns the blocks after this axis, (rows, rest), and this part's coefficients."""
        # The blocks before have shape (rows, axis size x rest); ``rest`` may be part of later axes.
        rest = blocks[0].shape[1] // self.axis_size
        targets = [np.empty((rows, rest)) for rows in self.target_rows]
        ended = np.empty(self.num_ended)
        start = 0
        summed = np.full(rest, self.rest_cells**-0.5)
        for source, block in zip(self.sources, blocks, strict=True):
            cells: NDArray[np.float64] = block.reshape(source.rows, self.axis_size, rest)
            if source.endings:
                sums = cells.reshape(source.rows * self.axis_size, rest) @ summed
                sums = sums.reshape(source.rows, self.axis_size).T
                for products in source.endings:
                    end = start + products.num_rows * source.rows
                    products.apply(sums, ended[start:end].reshape(-1, source.rows))
                    start = end
            if source.steps:
                cells = cells.transpose(1, 0, 2).reshape(self.axis_size, source.rows * rest)
                for step, rows in self._parts(source, targets):
                    step.products.apply(cells, rows)
        return targets, ended

    def expand(
        self, targets: Sequence[NDArray[np.float64]], ended: NDArray[np.float64], rest: int
    ) -> Blocks:
        """Returns the blocks before this axis: the transpose of ``contract``."""
        # ``targets``: the blocks after this axis, of shape (rows, rest).
        blocks = []
        start = 0
        for source in self.sources:
            parts = list(self._parts(source, targets))
            if source.joined is None:
                cells = np.zeros((self.axis_size, source.rows * rest))
            else:
                rows = [each for _, each in parts]
                stacked = rows[0] if len(rows) == 1 else np.concatenate(rows)
                cells = source.joined.spread(stacked)
            if source.endings:
                sums = np.zeros((self.axis_size, source.rows))
                for products in source.endings:
                    end = start + products.num_rows * source.rows
                    ending = ended[start:end].reshape(-1, source.rows)
                    sums += products.spread(ending)
                    start = end
                sums *= self.rest_cells**-0.5
                three = cells.reshape(self.axis_size, source.rows, rest)
                three += sums[:, :, None]
            blocks.append(
                cells.reshape(self.axis_size, source.rows, rest)
                .transpose(1, 0, 2)
                .reshape(source.rows, self.axis_size * rest)
            )
        return blocks

    def _parts(
        self, source: _Source, targets: Sequence[NDArray[np.float64]]
    ) -> Iterator[tuple[_Step, NDArray[np.float64]]]:
        """Yields the steps of a source, each with a view of the target rows that the step fills."""
        for step in source.steps:
            end = step.start + step.products.num_rows * source.rows
            rows = targets[step.target][step.start : end]
            yield step, rows.reshape(step.products.num_rows, source.rows * rows.shape[1])


def _merge_axes(shape: Sequence[int]) -> list[range]:
    """Returns runs of adjacent axes with a small product of sizes."""
    runs: list[range] = []
    start = 0
    size = 1
    for axis, axis_size in enumerate(shape):
        if axis > start and size * axis_size > _MERGED_AXIS_SIZE:
            runs.append(range(start, axis))
            start, size = axis, 1
        size *= axis_size
    runs.append(range(start, len(shape)))
    return runs


def _axis_rows(
    shape: Sequence[int], strides: list[int], run: range, support: Support
) -> tuple[Any, NDArray[np.int64]]:
    """Returns the basis vectors of one support along merged (adjacent) axes, and their labels."""
    if run[0] in support and shape[run[0]] > _MERGED_AXIS_SIZE:  # an axis by itself
        matrix = contrast_matrix(shape[run[0]])
        return matrix, strides[run[0]] * np.arange(1, shape[run[0]])
    matrix = np.ones((1, 1))
    labels = np.zeros(1, dtype=np.int64)
    for axis in run:
        size = shape[axis]
        if axis in support:
            rows = contrast_matrix(size)
            steps = strides[axis] * np.arange(1, size)
        else:
            rows = np.full((1, size), size**-0.5)
            steps = np.zeros(1, dtype=np.int64)
        # This is the Kronecker product; numpy.kron takes four times as long on small matrices.
        products = matrix[:, None, :, None] * rows[None, :, None, :]
        matrix = products.reshape(len(matrix) * len(rows), matrix.shape[1] * size)
        labels = (labels[:, None] + steps).ravel()
    return matrix, labels


def compile_levels(
    shape: Sequence[int], supports: Sequence[Support]
) -> tuple[list[Level], NDArray[np.int64]]:
    """Returns the products level by level, and the label of every coefficient, in order.

    A label is the mixed-radix number of a basis vector; digit 0 means the constant vector.

    ``supports``: the supports with coefficients, as ascending axes.
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    # The key of a block is the set of possible continuations of its partial supports.
    blocks: dict[frozenset[Support], NDArray[np.int64]] = {
        frozenset(supports): np.zeros(1, dtype=np.int64)
    }
    levels: list[Level] = []
    all_ended: list[NDArray[np.int64]] = []
    rest_cells = math.prod(shape)
    for run in _merge_axes(shape):
        axis_size = math.prod(shape[axis] for axis in run)
        rest_cells //= axis_size
        targets: dict[frozenset[Support], list[NDArray[np.int64]]] = {}
        num_rows: dict[frozenset[Support], int] = {}
        sources = []
        for continuations, source_labels in blocks.items():
            by_target: dict[frozenset[Support], list[Support]] = {}
            for part, rests in _split(continuations, run).items():
                by_target.setdefault(frozenset(rests), []).append(part)
            steps: list[_Step] = []
            endings: list[_Products] = []
            for rests_key, parts in by_target.items():
                for products, labels in _products(shape, strides, run, parts):
                    reached = (labels[:, None] + source_labels).ravel()
                    if rests_key == {()}:
                        endings.append(products)
                        all_ended.append(reached)
                        continue
                    start = num_rows.setdefault(rests_key, 0)
                    num_rows[rests_key] += len(reached)
                    targets.setdefault(rests_key, []).append(reached)
                    steps.append(_Step(products, list(targets).index(rests_key), start))
            sources.append(
                _Source(len(source_labels), tuple(steps), tuple(endings), _joined(steps))
            )
        levels.append(Level(axis_size, rest_cells, tuple(sources), tuple(num_rows.values())))
        blocks = {key: np.concatenate(parts) for key, parts in targets.items()}
        if not blocks:  # The remaining axes are in no support.
            break
    return levels, np.concatenate(all_ended)


def _joined(steps: Sequence[_Step]) -> _Products | None:
    """Returns the products of all steps as one matrix."""
    return _Products(stacked([step.products.matrix for step in steps])) if steps else None


def _split(continuations: frozenset[Support], run: range) -> dict[Support, set[Support]]:
    """Splits continuations after their merged axis; maps each first part to its possible rests."""
    result: dict[Support, set[Support]] = {}
    for continuation in sorted(continuations):
        part = tuple(axis for axis in continuation if axis in run)
        rest = tuple(axis for axis in continuation if axis not in run)
        result.setdefault(part, set()).add(rest)
    return result


def _products(
    shape: Sequence[int], strides: list[int], run: range, parts: list[Support]
) -> list[tuple[_Products, NDArray[np.int64]]]:
    """Returns the products for some supports within one merged axis, with their labels."""
    rows = [_axis_rows(shape, strides, run, part) for part in parts]
    matrix = stacked([each for each, _ in rows])
    return [(_Products(matrix), np.concatenate([labels for _, labels in rows]))]

"""An orthonormal basis of tables in which every marginal is a handful of coefficients.

Each attribute of ``size`` codes has an orthonormal basis whose first vector is constant. Products
of these vectors are a basis of all tables over the domain. The *support* of a product is the set
of attributes in which it is not constant; a marginal over attributes B depends on exactly the
coefficients whose support lies inside B. So the marginals of a workload are the coefficients of
its closure, with nothing said twice (McKenna et al. call the blocks *residuals*).
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Support = tuple[int, ...]

# Neighbouring small axes are merged up to this many codes, so that one matrix product serves
# several attributes; above it a product with a dense matrix costs more than it saves.
_MERGED_AXIS_SIZE = 32
_DENSE_AXIS_SIZE = 64


@functools.cache
def contrast_matrix(size: int) -> NDArray[np.float64]:
    """Returns the non-constant basis vectors of one attribute, as rows.

    Up to 64 codes these are the ``size - 1`` orthonormal Helmert contrasts. Larger attributes use
    the ``size`` centred unit vectors instead: a tight frame with the same inner products, whose
    product with a table costs one subtraction per cell.

    Args:
        size: number of codes, >= 1.

    Returns:
        shape (size - 1, size) or, above 64 codes, (size, size); float64; every row sums to 0.

    Example:
        >>> contrast_matrix(2).round(4).tolist()
        [[0.7071, -0.7071]]
    """
    if size > _DENSE_AXIS_SIZE:
        return np.eye(size) - 1.0 / size
    rows = np.tril(np.ones((size, size)), -1)[1:]
    rows[np.arange(size - 1), np.arange(1, size)] = -np.arange(1.0, size)
    normalised: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normalised


def num_contrasts(size: int) -> int:
    """Returns the number of rows of ``contrast_matrix(size)``."""
    return size if size > _DENSE_AXIS_SIZE else size - 1


def table_coefficients(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the coefficients of a table that depend on all of its attributes.

    Args:
        table: shape (size_1, ..., size_m), float64.

    Returns:
        shape (prod of num_contrasts(size_i),), float64, row-major. Rescaling of cells to a larger
        domain is the caller's.

    Cost: O(cells x largest size).
    """
    for size in table.shape:
        # The leading axis is consumed and its contrasts appended, so the axes rotate into place.
        table = np.moveaxis(np.tensordot(contrast_matrix(size), table, axes=(1, 0)), 0, -1)
    return table.ravel()


def coefficients_table(
    coefficients: NDArray[np.float64], shape: Sequence[int]
) -> NDArray[np.float64]:
    """Returns the table of the given shape whose coefficients are given: the transpose above."""
    table = coefficients.reshape([num_contrasts(size) for size in shape])
    for size in shape:
        table = np.moveaxis(np.tensordot(contrast_matrix(size), table, axes=(0, 0)), 0, -1)
    return table


@dataclasses.dataclass(frozen=True)
class _Step:
    """One product: rows of a merged axis lead from one block of partial supports to another.

    ``matrix`` has shape (rows, size of the merged axis); None stands for the centring of a large
    axis. The rows land at ``target_start`` of the target block, times the rows of the source.
    """

    source: int
    target: int
    target_start: int
    num_rows: int
    matrix: NDArray[np.float64] | None


@dataclasses.dataclass(frozen=True)
class _Level:
    """All products over one merged axis."""

    axis_size: int
    source_rows: tuple[int, ...]
    target_rows: tuple[int, ...]
    steps: tuple[_Step, ...]


class ResidualBasis:
    """The coefficients of dense tables whose supports are in a given collection.

    Merged axes are consumed from the last to the first. Partial supports that may be continued in
    the same ways share one block, so that all k-way marginals need k + 1 blocks whatever the
    number of attributes, and nothing that no support reaches is ever computed.

    Args:
        shape: number of codes of every attribute, in domain order.
        supports: the wanted supports, as tuples of ascending axes; () is the constant.

    Attributes:
        supports: as given, without duplicates.
        slices: for each support, where its coefficients stand (row-major over its axes).
        num_coefficients: length of a coefficient vector.
    """

    def __init__(self, shape: Sequence[int], supports: Iterable[Support]) -> None:
        self.shape = tuple(shape)
        self.supports = tuple(dict.fromkeys(supports))
        self.slices: dict[Support, slice] = {}
        start = 0
        for support in self.supports:
            length = math.prod(num_contrasts(self.shape[axis]) for axis in support)
            self.slices[support] = slice(start, start + length)
            start += length
        self.num_coefficients = start
        self.num_cells = math.prod(self.shape)
        self._levels, labels = _compile(self.shape, self.supports)
        self._positions = self._order(labels)

    def analyse(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the coefficients of a dense table.

        Args:
            table: shape (num_cells,), float64, C order.

        Returns:
            shape (num_coefficients,), float64.

        Cost: a few passes over the table, most of it matrix products.
        """
        blocks = [table.reshape(1, -1)]
        for level in self._levels:
            rest = blocks[0].shape[1] // level.axis_size
            targets = [np.empty((rows, rest)) for rows in level.target_rows]
            for step in level.steps:
                source = blocks[step.source].reshape(-1, level.axis_size)
                stop = step.target_start + step.num_rows * level.source_rows[step.source]
                out = targets[step.target][step.target_start : stop].reshape(step.num_rows, -1)
                if step.matrix is None:
                    np.subtract(source.T, source.mean(axis=1), out=out)
                else:
                    np.matmul(step.matrix, source.T, out=out)
            blocks = targets
        return blocks[0].ravel()[self._positions]

    def synthesise(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the dense table with the given coefficients, all others 0.

        The transpose of ``analyse``, and its right inverse up to the unnamed supports.

        Args:
            coefficients: shape (num_coefficients,), float64.

        Returns:
            shape (num_cells,), float64, C order.
        """
        start = np.empty((self.num_coefficients, 1))
        start[self._positions, 0] = coefficients
        blocks = [start]
        for level in reversed(self._levels):
            rest = blocks[0].shape[1]
            sources = [np.zeros((rows * rest, level.axis_size)) for rows in level.source_rows]
            for step in level.steps:
                stop = step.target_start + step.num_rows * level.source_rows[step.source]
                rows = blocks[step.target][step.target_start : stop].reshape(step.num_rows, -1)
                if step.matrix is None:
                    sources[step.source] += (rows - rows.mean(axis=0)).T
                else:
                    sources[step.source] += rows.T @ step.matrix
            blocks = [
                source.reshape(rows, -1)
                for source, rows in zip(sources, level.source_rows, strict=True)
            ]
        return blocks[0].ravel()

    def _order(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns, for every coefficient in documented order, its row in the last block."""
        radices = [num_contrasts(size) + 1 for size in self.shape]
        digits = np.unravel_index(labels, radices)
        codes = np.zeros(len(labels), dtype=np.int64)
        local = np.zeros(len(labels), dtype=np.int64)
        for axis, digit in enumerate(digits):
            used = digit > 0
            codes[used] += np.int64(1) << axis
            local[used] = local[used] * (radices[axis] - 1) + digit[used] - 1
        starts = {
            sum(1 << axis for axis in support): where.start
            for support, where in self.slices.items()
        }
        known, inverse = np.unique(codes, return_inverse=True)
        target = np.array([starts[int(code)] for code in known], dtype=np.int64)[inverse] + local
        positions = np.empty(self.num_coefficients, dtype=np.int64)
        positions[target] = np.arange(len(labels))
        return positions


def _merge_axes(shape: tuple[int, ...]) -> list[range]:
    """Returns runs of neighbouring axes whose product of sizes stays small."""
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
    shape: tuple[int, ...], strides: list[int], run: range, support: Support
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Returns the basis vectors of a merged axis with one support, and their labels."""
    matrix: NDArray[np.float64] = np.ones((1, 1))
    labels = np.zeros(1, dtype=np.int64)
    for axis in run:
        size = shape[axis]
        if axis in support:
            rows = contrast_matrix(size)
            steps = strides[axis] * np.arange(1, len(rows) + 1)
        else:
            rows = np.full((1, size), size**-0.5)
            steps = np.zeros(1, dtype=np.int64)
        matrix = np.asarray(np.kron(matrix, rows))
        labels = (labels[:, None] + steps).ravel()
    return matrix, labels


def _compile(
    shape: tuple[int, ...], supports: tuple[Support, ...]
) -> tuple[list[_Level], NDArray[np.int64]]:
    """Returns the products level by level, and the label of every row of the last block.

    A label is the mixed-radix number of the basis vector, digit 0 being the constant one.
    """
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * (num_contrasts(shape[axis + 1]) + 1)
    # A block is known by the ways in which its partial supports may be continued.
    blocks: dict[frozenset[Support], NDArray[np.int64]] = {
        frozenset(supports): np.zeros(1, dtype=np.int64)
    }
    levels = []
    for run in reversed(_merge_axes(shape)):
        targets: dict[frozenset[Support], list[NDArray[np.int64]]] = {}
        starts: dict[frozenset[Support], int] = {}
        steps = []
        for source, (continuations, source_labels) in enumerate(blocks.items()):
            by_part: dict[Support, set[Support]] = {}
            for continuation in continuations:
                part = tuple(axis for axis in continuation if axis in run)
                rest = tuple(axis for axis in continuation if axis not in run)
                by_part.setdefault(part, set()).add(rest)
            by_target: dict[frozenset[Support], list[Support]] = {}
            for part, rests in sorted(by_part.items()):
                by_target.setdefault(frozenset(rests), []).append(part)
            for rests_key, parts in by_target.items():
                for matrix, labels in _products(shape, strides, run, parts):
                    targets.setdefault(rests_key, []).append(
                        (labels[:, None] + source_labels).ravel()
                    )
                    start = starts.get(rests_key, 0)
                    starts[rests_key] = start + len(labels) * len(source_labels)
                    target = list(targets).index(rests_key)
                    steps.append(_Step(source, target, start, len(labels), matrix))
        levels.append(
            _Level(
                axis_size=math.prod(shape[axis] for axis in run),
                source_rows=tuple(len(labels) for labels in blocks.values()),
                target_rows=tuple(starts.values()),
                steps=tuple(steps),
            )
        )
        blocks = {key: np.concatenate(parts) for key, parts in targets.items()}
    (labels,) = blocks.values()
    return levels, labels


def _products(
    shape: tuple[int, ...], strides: list[int], run: range, parts: list[Support]
) -> list[tuple[NDArray[np.float64] | None, NDArray[np.int64]]]:
    """Returns the matrices that serve some supports within one merged axis, with their labels."""
    if len(run) == 1 and shape[run[0]] > _DENSE_AXIS_SIZE:
        size = shape[run[0]]
        constant = np.full((1, size), size**-0.5), np.zeros(1, dtype=np.int64)
        centred = None, strides[run[0]] * np.arange(1, size + 1)
        return [centred if part else constant for part in parts]
    rows = [_axis_rows(shape, strides, run, part) for part in parts]
    return [
        (
            np.concatenate([matrix for matrix, _ in rows]),
            np.concatenate([labels for _, labels in rows]),
        )
    ]

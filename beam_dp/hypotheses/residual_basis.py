"""An orthonormal basis of tables in which a marginal is a few coefficients.

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
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.hypotheses.cascades import Cascade

Support = tuple[int, ...]

# Neighbouring small axes are merged up to this many codes, so that one matrix product serves
# several attributes; above it a product with a dense matrix costs more than it saves.
_MERGED_AXIS_SIZE = 64
_DENSE_AXIS_SIZE = 64
_CACHED_CELLS = 2**15
_SMALLEST_SUM = 1e-200


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


def support_slices(
    shape: Sequence[int], supports: Iterable[Support]
) -> tuple[dict[Support, slice], int]:
    """Returns where each support's coefficients stand in a vector, and the vector's length.

    Args:
        shape: number of codes of every attribute.
        supports: distinct, as ascending axes, in the order of the vector.
    """
    slices: dict[Support, slice] = {}
    start = 0
    for support in supports:
        length = math.prod(num_contrasts(shape[axis]) for axis in support)
        slices[support] = slice(start, start + length)
        start += length
    return slices, start


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
        table = table.reshape(size, -1).T @ contrast_matrix(size).T
    return table.ravel()


def coefficients_table(
    coefficients: NDArray[np.float64], shape: Sequence[int]
) -> NDArray[np.float64]:
    """Returns the table of the given shape whose coefficients are given: the transpose above."""
    if not coefficients.size:  # of an attribute of one code
        return np.zeros(shape)
    table = coefficients
    for size in shape:
        table = table.reshape(num_contrasts(size), -1).T @ contrast_matrix(size)
    return table.reshape(shape)


@dataclasses.dataclass(frozen=True)
class _Step:
    """Some products of a source block land in a target block, from row ``start`` on."""

    target: int
    start: int
    num_rows: int  # of the source's matrix


@dataclasses.dataclass(frozen=True)
class _Source:
    """A block of partial supports, and what one more merged axis makes of it.

    A block has shape (rows, rest): basis vectors of the axes consumed so far, times the cells of
    the axes that are left. ``matrix``, shape (products, axis size), is contracted with the next
    axis; its rows are shared out to the steps in order. None stands for a large axis: the first
    product is its constant vector, the others centre it.
    """

    rows: int
    matrix: NDArray[np.float64] | None
    steps: tuple[_Step, ...]


@dataclasses.dataclass(frozen=True)
class _Level:
    """One merged axis."""

    axis_size: int
    sources: tuple[_Source, ...]
    target_rows: tuple[int, ...]

    def contract(self, blocks: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Returns the target blocks of source blocks of shape (rows, axis size x rest)."""
        rest = blocks[0].shape[1] // self.axis_size
        targets = [np.empty((rows, rest)) for rows in self.target_rows]
        for source, block in zip(self.sources, blocks, strict=True):
            cells: NDArray[np.float64] = block.reshape(source.rows, self.axis_size, rest)
            cells = cells.transpose(1, 0, 2).reshape(self.axis_size, -1)
            first = 0
            for step, rows in self._parts(source, targets):
                if source.matrix is not None:
                    matrix = source.matrix[first : first + step.num_rows]
                    np.matmul(matrix, cells, out=rows)
                elif step.num_rows == 1:
                    np.multiply(cells.sum(axis=0), self.axis_size**-0.5, out=rows[0])
                else:
                    np.subtract(cells, cells.mean(axis=0), out=rows)
                first += step.num_rows
        return targets

    def expand(self, targets: Sequence[NDArray[np.float64]]) -> list[NDArray[np.float64]]:
        """Returns the source blocks of target blocks: the transpose."""
        rest = targets[0].shape[1]
        blocks = []
        for source in self.sources:
            parts = [rows for _, rows in self._parts(source, targets)]
            if source.matrix is not None:
                rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
                cells = source.matrix.T @ rows
            else:
                cells = np.zeros((self.axis_size, source.rows * rest))
                for part in parts:
                    cells += part * self.axis_size**-0.5 if len(part) == 1 else part - part.mean(0)
            blocks.append(
                cells.reshape(self.axis_size, source.rows, rest)
                .transpose(1, 0, 2)
                .reshape(source.rows, -1)
            )
        return blocks

    def _parts(
        self, source: _Source, targets: Sequence[NDArray[np.float64]]
    ) -> Iterator[tuple[_Step, NDArray[np.float64]]]:
        """Yields the steps of a source with views of the target rows that they fill."""
        for step in source.steps:
            rows = targets[step.target][step.start : step.start + step.num_rows * source.rows]
            yield step, rows.reshape(step.num_rows, -1)


class ResidualBasis:
    """The coefficients of dense tables whose supports are in a given collection.

    Merged axes are consumed from the first to the last. Partial supports that may be continued in
    the same ways share one block, so that all k-way marginals need k + 1 blocks whatever the
    number of attributes, and nothing that no support reaches is ever computed.

    Args:
        shape: number of codes of every attribute, in domain order.
        supports: the wanted supports, as tuples of ascending axes; () is the constant. At least
            one must have coefficients.

    Attributes:
        supports: as given, without duplicates.
        slices: for each support, where its coefficients stand (row-major over its axes).
        num_coefficients: length of a coefficient vector.
    """

    def __init__(self, shape: Sequence[int], supports: Iterable[Support]) -> None:
        self.shape = tuple(shape)
        self.supports = tuple(dict.fromkeys(supports))
        self.slices, self.num_coefficients = support_slices(self.shape, self.supports)
        self.num_cells = math.prod(self.shape)
        # An attribute of one code has no contrasts: supports that name it are empty.
        filled = tuple(each for each, where in self.slices.items() if where.start < where.stop)
        self._levels, labels = _compile(self.shape, filled)
        self._positions = self._order(labels)

    def analyse(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the coefficients of a dense table.

        Args:
            table: shape (num_cells,), float64, C order.

        Returns:
            shape (num_coefficients,), float64.

        Cost: a few passes over the table, most of it matrix products.
        """
        return self._contract([table.reshape(1, -1)], self._levels)

    def synthesise(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the dense table with the given coefficients, all others 0.

        The transpose of ``analyse``, and its right inverse up to the unnamed supports.

        Args:
            coefficients: shape (num_coefficients,), float64.

        Returns:
            shape (num_cells,), float64, C order.
        """
        (block,) = self._expand(coefficients, self._levels)
        return block.ravel()

    def exponential_moments(
        self, coefficients: NDArray[np.float64], shift: float
    ) -> tuple[float, NDArray[np.float64]]:
        """Returns the sum and the coefficients of exp(table - shift), without forming the table.

        Equal to synthesising, exponentiating and analysing, but a piece that fits the cache at a
        time: what a fit spends all its time on.

        Args:
            coefficients: of the table, shape (num_coefficients,), float64.
            shift: subtracted from every cell first.

        Returns:
            The sum (infinite if a cell overflows), and shape (num_coefficients,), float64.
        """
        first = self._levels[0]
        inner = self._expand(coefficients, self._levels[1:])
        outer = [np.empty_like(block) for block in inner]
        width = max(1, _CACHED_CELLS // first.axis_size)
        total = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, inner[0].shape[1], width):
                piece = slice(start, start + width)
                (cells,) = first.expand([block[:, piece] for block in inner])
                cells -= shift
                np.exp(cells, out=cells)
                total += float(cells.sum())
                for block, part in zip(outer, first.contract([cells]), strict=True):
                    block[:, piece] = part
            # Where a cell overflowed the coefficients are of no use; the sum tells.
            return total, self._contract(outer, self._levels[1:])

    def log_moments(
        self, log_weights: NDArray[np.float64], shift: float
    ) -> tuple[float, NDArray[np.float64]]:
        """Returns the log of the sum of weights, and the coefficients of their distribution.

        Args:
            log_weights: shape (num_coefficients,), float64.
            shift: a guess of the logarithm: a good one saves two passes over the cells.

        Returns:
            The logarithm, and shape (num_coefficients,), float64.
        """
        weight_sum, coefficients = self.exponential_moments(log_weights, shift)
        if not _SMALLEST_SUM < weight_sum < math.inf:
            shift = float(self.synthesise(log_weights).max())
            weight_sum, coefficients = self.exponential_moments(log_weights, shift)
        return shift + math.log(weight_sum), coefficients / weight_sum

    def weights(self, log_weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the distribution as an array of shape (num_cells,), float64, that sums to 1."""
        weights = self.synthesise(log_weights)
        weights -= weights.max()
        np.exp(weights, out=weights)
        weights /= weights.sum()
        return weights

    def marginals(
        self, log_weights: NDArray[np.float64], wanted: Iterable[Support]
    ) -> list[NDArray[np.float64]]:
        """Returns marginals of the distribution, over any attributes.

        Args:
            log_weights: shape (num_coefficients,), float64.
            wanted: attribute sets, as ascending axes.

        Returns:
            For each set a table with one axis an attribute, which sums to 1.

        Cost: a few passes over the cells; memory of one array of them.
        """
        weights = self.weights(log_weights)
        sets = list(wanted)
        distinct = list(dict.fromkeys(sets))
        cascade = Cascade(tuple(range(len(self.shape))), self.shape, distinct)
        tables = dict(zip(distinct, cascade.sum_down(weights.reshape(self.shape)), strict=True))
        return [tables[axes].copy() for axes in sets]

    def cells_summed(self, axes: Support) -> int:
        """Returns how many cells of the described table a cell of this marginal sums up.

        The coefficients of a support are those of its marginal, divided by the root of this.
        """
        return self.num_cells // math.prod(self.shape[axis] for axis in axes)

    def _contract(
        self, blocks: list[NDArray[np.float64]], levels: Sequence[_Level]
    ) -> NDArray[np.float64]:
        for level in levels:
            blocks = level.contract(blocks)
        return blocks[0].ravel()[self._positions]

    def _expand(
        self, coefficients: NDArray[np.float64], levels: Sequence[_Level]
    ) -> list[NDArray[np.float64]]:
        last = np.empty((self.num_coefficients, 1))
        last[self._positions, 0] = coefficients
        blocks = [last]
        for level in reversed(levels):
            blocks = level.expand(blocks)
        return blocks

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
        # Their Kronecker product; numpy's own takes four times as long on matrices so small.
        products = matrix[:, None, :, None] * rows[None, :, None, :]
        matrix = products.reshape(len(matrix) * len(rows), matrix.shape[1] * size)
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
    for run in _merge_axes(shape):
        targets: dict[frozenset[Support], list[NDArray[np.int64]]] = {}
        num_rows: dict[frozenset[Support], int] = {}
        sources = []
        for continuations, source_labels in blocks.items():
            by_target: dict[frozenset[Support], list[Support]] = {}
            for part, rests in _split(continuations, run).items():
                by_target.setdefault(frozenset(rests), []).append(part)
            matrices, steps = [], []
            for rests_key, parts in by_target.items():
                for matrix, labels in _products(shape, strides, run, parts):
                    start = num_rows.setdefault(rests_key, 0)
                    num_rows[rests_key] += len(labels) * len(source_labels)
                    targets.setdefault(rests_key, []).append(
                        (labels[:, None] + source_labels).ravel()
                    )
                    steps.append(_Step(list(targets).index(rests_key), start, len(labels)))
                    matrices.append(matrix)
            is_large = _is_large(shape, run)
            sources.append(
                _Source(
                    rows=len(source_labels),
                    matrix=None if is_large else np.concatenate(matrices),
                    steps=tuple(steps),
                )
            )
        levels.append(
            _Level(
                axis_size=math.prod(shape[axis] for axis in run),
                sources=tuple(sources),
                target_rows=tuple(num_rows.values()),
            )
        )
        blocks = {key: np.concatenate(parts) for key, parts in targets.items()}
    (labels,) = blocks.values()
    return levels, labels


def _split(continuations: frozenset[Support], run: range) -> dict[Support, set[Support]]:
    """Returns what lies in a merged axis, each with what may follow it."""
    result: dict[Support, set[Support]] = {}
    for continuation in sorted(continuations):
        part = tuple(axis for axis in continuation if axis in run)
        rest = tuple(axis for axis in continuation if axis not in run)
        result.setdefault(part, set()).add(rest)
    return result


def _is_large(shape: tuple[int, ...], run: range) -> bool:
    """True for an axis that is contracted without a matrix."""
    return shape[run[0]] > _DENSE_AXIS_SIZE


def _products(
    shape: tuple[int, ...], strides: list[int], run: range, parts: list[Support]
) -> list[tuple[NDArray[np.float64], NDArray[np.int64]]]:
    """Returns the matrices that serve some supports within one merged axis, with their labels."""
    if _is_large(shape, run):
        size = shape[run[0]]
        nothing = np.zeros((0, size))
        constant = nothing, np.zeros(1, dtype=np.int64)
        centred = nothing, strides[run[0]] * np.arange(1, size + 1)
        return [centred if part else constant for part in parts]
    rows = [_axis_rows(shape, strides, run, part) for part in parts]
    return [
        (
            np.concatenate([matrix for matrix, _ in rows]),
            np.concatenate([labels for _, labels in rows]),
        )
    ]

"""An orthonormal basis of tables in which a marginal is a few coefficients.

Each attribute of ``size`` codes has an orthonormal basis whose first vector is constant. Products
of these vectors are a basis of all tables over the domain. The *support* of a product is the set
of attributes in which it is not constant; a marginal over attributes B depends on exactly the
coefficients whose support lies inside B. So the coefficients of a workload's closure describe its
marginals without redundancy (McKenna et al. call the blocks *residuals*).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import (
    Support,
    contrast_matrix,
    stacked,
    support_slices,
)
from beam_dp.models.elimination import Cascade

# Multiplies a table by basis vectors, a few axes at a time.
#
# Merged axes are consumed from the first to the last. Partial supports with the same possible
# continuations share one block, so all k-way marginals need k blocks for any number of attributes,
# and products outside all supports are never computed. A support without a continuation ends with
# its last axis, because the sum over the remaining axes is the same for all supports.


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
                rows = [row for _, row in parts]
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
    matrix = stacked([row for row, _ in rows])
    return [(_Products(matrix), np.concatenate([labels for _, labels in rows]))]


_CACHED_CELLS = 2**15
_SMALLEST_SUM = 1e-200


class ResidualBasis:
    """The coefficients of dense tables whose supports are in a given collection.

    Axes are processed from the smallest to the largest, several at a time: see ``residual_levels``.

    ``supports``: ascending axes; () is the constant. At least one must have coefficients.
    ``slices``: the positions of each support's coefficients, row-major over ascending axes.
    """

    def __init__(self, shape: Sequence[int], supports: Iterable[Support]) -> None:
        self.shape = tuple(shape)
        self.supports = tuple(dict.fromkeys(supports))
        self.slices, self.num_coefficients = support_slices(self.shape, self.supports)
        self.num_cells = math.prod(self.shape)
        # If small axes come first, a piece of the table needs few functions of the later axes.
        self._axes = tuple(sorted(range(len(self.shape)), key=lambda axis: self.shape[axis]))
        self._sizes = tuple(self.shape[axis] for axis in self._axes)
        places = {axis: place for place, axis in enumerate(self._axes)}
        # An attribute with one code has no contrasts: supports with this attribute are empty.
        filled = {
            tuple(sorted(places[axis] for axis in support)): support
            for support, where in self.slices.items()
            if where.start < where.stop
        }
        self._levels, labels = compile_levels(self._sizes, tuple(filled))
        self._positions = self._order(labels, filled)

    def analyse(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the coefficients of a dense table, shape (num_cells,), in the domain's order."""
        cells = table.reshape(self.shape).transpose(self._axes).reshape(1, -1)
        return self._gather(self._contract([cells], self._levels))

    def synthesise(self, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
        """Returns the dense table with the given coefficients, shape (num_cells,), in C order."""
        # The transpose and right inverse of ``analyse``.
        table = np.empty(self.num_cells)
        for where, cells in self.pieces(coefficients):
            table.reshape(self._levels[0].axis_size, -1)[:, where] = cells
        return table.reshape(self._sizes).transpose(np.argsort(self._axes)).ravel()

    def pieces(
        self, coefficients: NDArray[np.float64]
    ) -> Iterator[tuple[slice, NDArray[np.float64]]]:
        """Yields the table with the given coefficients in pieces that fit the cache."""
        # A piece is a pair: its columns, in the table with one row per code of the first merged
        # axis, and its cells, which the caller may change.
        first, inner, ended = self._opened(coefficients)
        for where in self._columns():
            width = where.stop - where.start
            (cells,) = first.expand([block[:, where] for block in inner], ended, width)
            yield where, cells.reshape(first.axis_size, width)

    def exponential_moments(
        self, coefficients: NDArray[np.float64], shift: float
    ) -> tuple[float, NDArray[np.float64]]:
        """Returns the sum and the coefficients of exp(table - shift), without forming the table."""
        # Equals synthesising, exponentiating and analysing, in pieces that fit the cache. A fit
        # spends almost all of its time here. The sum is infinite if a cell overflows.
        first = self._levels[0]
        outer = [np.empty((rows, first.rest_cells)) for rows in first.target_rows]
        ended = np.zeros(first.num_ended)
        total = 0.0
        with np.errstate(over="ignore", invalid="ignore"):
            for where, cells in self.pieces(coefficients):
                cells -= shift
                np.exp(cells, out=cells)
                total += float(cells.sum())
                parts, more = first.contract([cells.reshape(1, -1)])
                ended += more
                for block, part in zip(outer, parts, strict=True):
                    block[:, where] = part
            # If a cell overflowed, the sum is infinite and the coefficients are useless.
            later = self._contract(outer, self._levels[1:])
            return total, self._gather(np.concatenate([ended, later]))

    def log_moments(
        self, log_weights: NDArray[np.float64], shift: float
    ) -> tuple[float, NDArray[np.float64]]:
        """Returns the log of the sum of weights, and the coefficients of their distribution."""
        # ``shift``: a guess of the logarithm; a good guess saves two passes over the cells.
        weight_sum, coefficients = self.exponential_moments(log_weights, shift)
        if not _SMALLEST_SUM < weight_sum < math.inf:
            shift = max(float(cells.max()) for _, cells in self.pieces(log_weights))
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
        """Returns marginals of the distribution, over any attributes, one axis per attribute."""
        weights = self.weights(log_weights)
        sets = list(wanted)
        distinct = list(dict.fromkeys(sets))
        cascade = Cascade(tuple(range(len(self.shape))), self.shape, distinct)
        tables = dict(zip(distinct, cascade.sum_down(weights.reshape(self.shape)), strict=True))
        return [tables[axes].copy() for axes in sets]

    def cells_summed(self, axes: Support) -> int:
        """Returns the number of cells of the whole table that are summed per cell of a marginal."""
        # A support's coefficients are its marginal's coefficients over the root of this number.
        return self.num_cells // math.prod(self.shape[axis] for axis in axes)

    def _columns(self) -> Iterator[slice]:
        """Yields the columns of each piece."""
        first = self._levels[0]
        width = max(1, _CACHED_CELLS // first.axis_size)
        for start in range(0, first.rest_cells, width):
            yield slice(start, min(start + width, first.rest_cells))

    def _opened(
        self, coefficients: NDArray[np.float64]
    ) -> tuple[Level, Blocks, NDArray[np.float64]]:
        """Returns the first level, and the blocks and coefficients that it expands."""
        first = self._levels[0]
        ended = coefficients[self._positions]
        return (
            first,
            self._expand(ended[first.num_ended :], self._levels[1:]),
            ended[: first.num_ended],
        )

    def _gather(self, ended: NDArray[np.float64]) -> NDArray[np.float64]:
        """Reorders coefficients from the order in which they end to the order of ``slices``."""
        coefficients = np.empty(self.num_coefficients)
        coefficients[self._positions] = ended
        return coefficients

    @staticmethod
    def _contract(blocks: Blocks, levels: Sequence[Level]) -> NDArray[np.float64]:
        """Returns the coefficients that end with the given last levels."""
        all_ended = [np.empty(0)]
        for level in levels:
            blocks, ended = level.contract(blocks)
            all_ended.append(ended)
        return np.concatenate(all_ended)

    @staticmethod
    def _expand(ended: NDArray[np.float64], levels: Sequence[Level]) -> Blocks:
        """Returns the blocks before the given last levels: the transpose of ``_contract``."""
        blocks: Blocks = []
        for level in reversed(levels):
            ended, rest = np.split(ended, [len(ended) - level.num_ended])
            blocks = level.expand(blocks, rest, level.rest_cells)
        return blocks

    def _order(
        self, labels: NDArray[np.int64], filled: dict[Support, Support]
    ) -> NDArray[np.int64]:
        """Returns the position in a vector of every coefficient, in the order in which they end."""
        # ``filled``: the supports with coefficients, from consumed axes to domain axes.
        radices = self._sizes
        digits = np.unravel_index(labels, radices)
        codes = np.zeros(len(labels), dtype=np.int64)
        local = np.zeros(len(labels), dtype=np.int64)
        # Within a support, coefficients are row-major over ascending domain axes.
        for axis in np.argsort(self._axes):
            used = digits[axis] > 0
            codes[used] += np.int64(1) << axis
            local[used] = local[used] * (radices[axis] - 1) + digits[axis][used] - 1
        starts = {
            sum(1 << axis for axis in part): self.slices[support].start
            for part, support in filled.items()
        }
        distinct, inverse = np.unique(codes, return_inverse=True)
        firsts = np.array([starts[int(code)] for code in distinct], dtype=np.int64)
        positions: NDArray[np.int64] = firsts[inverse] + local
        return positions

"""An orthonormal basis of tables in which a marginal is a few coefficients.

Each attribute of ``size`` codes has an orthonormal basis whose first vector is constant. Products
of these vectors are a basis of all tables over the domain. The *support* of a product is the set
of attributes in which it is not constant; a marginal over attributes B depends on exactly the
coefficients whose support lies inside B. So the coefficients of a workload's closure describe its
marginals without redundancy (McKenna et al. call the blocks *residuals*).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import (
    Support,
    support_slices,
)
from beam_dp.models.cascades import Cascade
from beam_dp.models.residual_levels import Blocks, Level, compile_levels

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
            ended, own = np.split(ended, [len(ended) - level.num_ended])
            blocks = level.expand(blocks, own, level.rest_cells)
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
            sum(1 << axis for axis in own): self.slices[support].start
            for own, support in filled.items()
        }
        known, inverse = np.unique(codes, return_inverse=True)
        firsts = np.array([starts[int(code)] for code in known], dtype=np.int64)
        positions: NDArray[np.int64] = firsts[inverse] + local
        return positions

"""``ResidualBasis`` for domains that are too large for one array.

If log-weights are sums of small tables, the marginals of their distribution need only the cliques
of a junction tree. Coefficients here are the coefficients of each support's own marginal: over
10^300 cells, coefficients of the whole domain would not fit a float.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.basis import MarginalCoefficients, Support, contrast_matrix, stacked
from beam_dp.models.elimination import axes_of, mask_of, maximal_masks
from beam_dp.models.junction_tree import JunctionTree, tree_marginals


class FactoredBasis(MarginalCoefficients):
    """The coefficients of log-weights that are sums of tables, one for each maximal support.

    ``sets``: the maximal supports of the wanted ``supports``, which are ascending axes; each has a
    table. ``slices``: the positions of each support's coefficients, row-major. ``num_cells``: the
    number of cells of the domain; an exact integer of any size.
    """

    def __init__(self, shape: Sequence[int], supports: Iterable[Support]) -> None:
        super().__init__(shape, supports)
        masks = maximal_masks(mask_of(support) for support in self.supports)
        self.sets = tuple(axes_of(mask) for mask in masks)
        self._positions = self._positions_of(masks)
        self._num_products = sum(math.prod(self.shape[axis] for axis in axes) for axes in self.sets)

    def tables(self, log_weights: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Returns the log-potentials of each set, with one axis per attribute."""
        products = np.zeros(self._num_products)
        products[self._positions] = log_weights
        tables = []
        start = 0
        for axes in self.sets:
            sizes = [self.shape[axis] for axis in axes]
            end = start + math.prod(sizes)
            table = products[start:end].reshape(sizes)
            for position in range(len(axes)):
                table = _expand(table, position)
            tables.append(table)
            start = end
        return tables

    def coefficients(self, marginals: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Returns the coefficients of the marginals of all sets, shape (num_coefficients,)."""
        products = np.empty(self._num_products)
        start = 0
        for table in marginals:
            for position in range(table.ndim):
                table = _contract(table, position)
            products[start : start + table.size] = table.ravel()
            start += table.size
        return products[self._positions]

    def _positions_of(self, masks: Sequence[int]) -> NDArray[np.int64]:
        """Returns the position of every coefficient in the products of all sets."""
        positions = np.empty(self.num_coefficients, dtype=np.int64)
        left = dict(self.slices)
        start = 0
        for mask, axes in zip(masks, self.sets, strict=True):
            sizes = [self.shape[axis] for axis in axes]
            numbers = np.arange(start, start + math.prod(sizes)).reshape(sizes)
            start += numbers.size
            for support in [axes for axes in left if mask_of(axes) & ~mask == 0]:
                # Index 0 of an axis is for the constant.
                chosen = tuple(slice(1, None) if axis in support else 0 for axis in axes)
                positions[left.pop(support)] = numbers[chosen].ravel()
        return positions


class TreeBasis(FactoredBasis):
    """The coefficients of tables whose supports lie inside the cliques of a junction tree.

    ``impossible``: pairs (axes, table); the table is True in the cells that get no mass.
    """

    def __init__(
        self,
        shape: Sequence[int],
        supports: Iterable[Support],
        impossible: Sequence[tuple[Support, NDArray[np.bool_]]] = (),
    ) -> None:
        super().__init__(shape, supports)
        self.tree = JunctionTree(self.shape, [*self.sets, *(axes for axes, _ in impossible)])
        self._impossible = [np.where(cells, -np.inf, 0.0) for _, cells in impossible]

    def log_moments(
        self, log_weights: NDArray[np.float64], shift: float = 0.0
    ) -> tuple[float, NDArray[np.float64]]:
        """Returns the log of the sum of weights, and the coefficients of their distribution."""
        log_sum, marginals = self.tree.calibrate(self._potentials(log_weights))
        return log_sum, self.coefficients(marginals[: len(self.sets)])

    def marginals(
        self, log_weights: NDArray[np.float64], wanted: Iterable[Support]
    ) -> list[NDArray[np.float64]]:
        """Returns marginals of the distribution, over any attributes, one axis per attribute."""
        self.calibrate(log_weights)
        return tree_marginals(self.tree, wanted)

    def calibrate(self, log_weights: NDArray[np.float64]) -> float:
        """Calibrates the tree for marginals and records; returns the log of the sum of weights."""
        return self.tree.calibrate(self._potentials(log_weights))[0]

    def log_probabilities(
        self, log_weights: NDArray[np.float64], codes: NDArray[np.int32]
    ) -> NDArray[np.float64]:
        """Returns the logarithms of the probabilities of records."""
        # ``codes``: shape (number of attributes, number of records).
        potentials = self._potentials(log_weights)
        result = np.full(codes.shape[1], -self.tree.calibrate(potentials)[0])
        for axes, table in zip(self.tree.sets, potentials, strict=True):
            result += table[tuple(codes[axis] for axis in axes)]
        return result

    def _potentials(self, log_weights: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Returns the log-potentials of the tree, one table per set of the tree."""
        return self.tables(log_weights) + self._impossible


def _contract(table: NDArray[np.float64], position: int) -> NDArray[np.float64]:
    """Returns a table with one axis replaced by its sum and its products with the contrasts."""
    return _multiplied(_products(table.shape[position]), table, position)


def _expand(table: NDArray[np.float64], position: int) -> NDArray[np.float64]:
    """Returns the table that an axis of products describes: the transpose of ``_contract``."""
    return _multiplied(_products(table.shape[position]).T, table, position)


def _multiplied(matrix: Any, table: NDArray[np.float64], position: int) -> NDArray[np.float64]:
    """Returns a table with one axis multiplied by a square matrix, dense or sparse."""
    size = table.shape[position]
    before, after = math.prod(table.shape[:position]), math.prod(table.shape[position + 1 :])
    cells = table.reshape(before, size, after)
    if after == 1:
        result = cells[:, :, 0] @ matrix.T
    elif isinstance(matrix, np.ndarray):
        result = np.matmul(matrix, cells)
    else:
        result = (matrix @ cells.transpose(1, 0, 2).reshape(size, -1)).reshape(size, before, after)
        result = result.transpose(1, 0, 2)
    multiplied: NDArray[np.float64] = result.reshape(table.shape)
    return multiplied


@functools.cache
def _products(size: int) -> Any:
    """Returns the matrix for multiplying an axis: a row of ones, followed by the contrasts."""
    return stacked([np.ones((1, size)), contrast_matrix(size)])

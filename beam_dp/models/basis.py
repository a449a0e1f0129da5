"""Orthonormal coefficients of tables, shared by all representations of a log-linear distribution.

The same coefficients describe log-weights and marginals, whether the weights fill one array or the
cliques of a junction tree. The representations differ only in scale: the coefficients of a support
are the coefficients of its marginal divided by sqrt(``cells_summed``).
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, ParamSpec, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

from beam_dp.domain.universe import Domain

Support = tuple[int, ...]

# Above this number of codes, a sparse matrix is faster than a dense one.
_DENSE_AXIS_SIZE = 64


@functools.cache
def contrast_matrix(size: int) -> Any:
    """Returns the non-constant basis vectors of one attribute, as rows: its Haar wavelets.

    Each vector compares the two halves of a block of adjacent codes, so that large blocks and small
    blocks of an order have coefficients of their own. The first vector halves the whole attribute.

    Returns:
        shape (size - 1, size), float64; orthonormal; every row sums to 0. A dense array up to 64
        codes, above that a ``scipy.sparse.csr_array`` with at most log2(size) + 1 entries a column.
    """
    starts, middles, stops, _ = _halved_blocks(size)
    left, right = middles - starts, stops - middles
    heights = 1 / np.sqrt(left * right * (left + right))
    lengths = left + right
    columns = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths - starts, lengths)
    is_left = columns < np.repeat(middles, lengths)
    values = np.where(is_left, np.repeat(right, lengths), -np.repeat(left, lengths))
    values = values * np.repeat(heights, lengths)
    if size > _DENSE_AXIS_SIZE:
        with contextlib.suppress(ImportError):  # readers of releases may have no scipy
            from scipy.sparse import csr_array

            entries = (values, columns, np.append(0, np.cumsum(lengths)))
            return csr_array(entries, shape=(size - 1, size))
    matrix = np.zeros((max(size - 1, 0), size))
    matrix[np.repeat(np.arange(len(starts)), lengths), columns] = values
    return matrix


def stacked(matrices: Sequence[Any]) -> Any:
    """Returns a matrix with the rows of all matrices; sparse if one of them is."""
    if all(isinstance(matrix, np.ndarray) for matrix in matrices):
        return np.concatenate(matrices)
    from scipy.sparse import vstack  # readers of releases may have no scipy

    return vstack(matrices, format="csr")


@functools.cache
def contrast_levels(size: int) -> NDArray[np.int64]:
    """Returns how often the attribute was halved before each contrast, shape (size - 1,)."""
    return _halved_blocks(size)[-1]


def _halved_blocks(size: int) -> tuple[NDArray[np.int64], ...]:
    """Returns the starts, middles, stops and levels of the blocks of codes that are halved."""
    blocks = np.array([[0], [size]])
    parts = [np.empty((4, 0), dtype=np.int64)]
    while True:
        starts, stops = blocks = blocks[:, blocks[1] - blocks[0] > 1]
        if not len(starts):
            return tuple(np.concatenate(parts, axis=1))
        middles = (starts + stops + 1) // 2
        parts.append(np.stack([starts, middles, stops, np.full_like(starts, len(parts) - 1)]))
        halves = np.stack([[starts, middles], [middles, stops]])
        blocks = halves.transpose(0, 2, 1).reshape(2, -1)


def support_slices(
    shape: Sequence[int], supports: Iterable[Support]
) -> tuple[dict[Support, slice], int]:
    """Returns the position of each support's coefficients in a vector, and the vector's length."""
    # ``supports``: distinct attribute sets, as ascending axes, in the order of the vector.
    slices: dict[Support, slice] = {}
    start = 0
    for support in supports:
        length = math.prod(shape[axis] - 1 for axis in support)
        slices[support] = slice(start, start + length)
        start += length
    return slices, start


def table_coefficients(table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns the coefficients of a table that depend on all of its attributes, row-major."""
    # Shape (prod of (size_i - 1),). The caller rescales cells to a larger domain.
    for size in table.shape:
        # Each step replaces the leading axis by an axis of contrasts at the end, so after all steps
        # the axes are in their original order.
        table = table.reshape(size, -1).T @ contrast_matrix(size).T
    return table.ravel()


def coefficients_table(
    coefficients: NDArray[np.float64], shape: Sequence[int]
) -> NDArray[np.float64]:
    """Returns the table with these coefficients: the transpose of ``table_coefficients``."""
    if not coefficients.size:  # an attribute has only one code
        return np.zeros(shape)
    table = coefficients
    for size in shape:
        table = table.reshape(size - 1, -1).T @ contrast_matrix(size)
    return table.reshape(shape)


class Coefficients(Protocol):
    """The positions and the scale of the coefficients of supports in a vector."""

    shape: tuple[int, ...]
    supports: tuple[Support, ...]  # ascending axes, without duplicates
    slices: dict[Support, slice]  # row-major over the axes of the support
    num_coefficients: int
    num_cells: int

    def cells_summed(self, axes: Support) -> int:
        """Returns the number of cells of the table that are summed per cell of this marginal."""


class Basis(Coefficients, Protocol):
    """Coefficients that also describe log-weights: ``ResidualBasis`` or ``TreeBasis``."""

    def log_moments(
        self, log_weights: NDArray[np.float64], shift: float
    ) -> tuple[float, NDArray[np.float64]]:
        """Returns the log of the sum of weights, and the coefficients of their distribution."""
        # ``shift``: a guess of the logarithm; a good guess saves a pass.

    def marginals(
        self, log_weights: NDArray[np.float64], wanted: Iterable[Support]
    ) -> list[NDArray[np.float64]]:
        """Returns marginals of the distribution over any attributes; every marginal sums to 1."""


class MarginalCoefficients:
    """The coefficients of each marginal, on the scale of the marginal instead of the whole domain.

    On the scale of a domain with 10^300 cells, coefficients would overflow a float.

    ``supports``: the wanted supports, as tuples of ascending axes; () is the constant.
    """

    def __init__(self, shape: Sequence[int], supports: Iterable[Support]) -> None:
        self.shape = tuple(shape)
        self.supports = tuple(dict.fromkeys(supports))
        self.slices, self.num_coefficients = support_slices(self.shape, self.supports)
        self.num_cells = math.prod(self.shape)

    def cells_summed(self, axes: Support) -> int:
        """Returns 1: the coefficients are those of the marginal itself."""
        return 1


def squared_scale(basis: Coefficients, support: Support, axes: Support) -> float:
    """Returns the square of the factor that converts a support's coefficients in a basis."""
    # Times the factor, they are the support's coefficients in the marginal on ``axes``.
    sizes = [math.prod(basis.shape[axis] for axis in part) for part in (support, axes)]
    return basis.cells_summed(support) * sizes[0] / sizes[1]


def marginal_of(
    basis: Coefficients, coefficients: NDArray[np.float64], axes: Support
) -> NDArray[np.float64]:
    """Returns the marginal from coefficients; the basis must contain all subsets of its axes."""
    return _table(basis, coefficients, axes, is_sum=True)


def log_table(
    basis: Coefficients, log_weights: NDArray[np.float64], axes: Support
) -> NDArray[np.float64]:
    """Returns the table, over some axes, of the log-weights from all supports inside the axes."""
    return _table(basis, log_weights, axes, is_sum=False)


def log_potentials(
    basis: Coefficients, log_weights: NDArray[np.float64], sets: Sequence[Support]
) -> list[NDArray[np.float64]]:
    """Returns one table of log-weights per set; each support goes to the first set that fits."""
    # ``sets``: ascending axes; the sets must contain every support that has a weight.
    left = log_weights.copy()
    if () in basis.slices:
        left[basis.slices[()]] = 0.0
    potentials = []
    for axes in sets:
        taken = np.zeros_like(left)
        for support in subsets(axes):
            where = basis.slices.get(support)
            if where is not None:
                taken[where], left[where] = left[where], 0.0
        potentials.append(log_table(basis, taken, axes))
    return potentials


def carry_over(
    old: Mapping[Support, slice],
    coefficients: NDArray[np.float64],
    new: Coefficients,
    start: float = 0.0,
) -> NDArray[np.float64]:
    """Returns the coefficients in the order of another basis; the scale must be equal."""
    result = np.full(new.num_coefficients, start)
    for support, where in new.slices.items():
        if support in old:
            result[where] = coefficients[old[support]]
    return result


def importance_of(
    domain: Domain,
    basis: Coefficients,
    marginals: Sequence[Sequence[str]],
    weights: Sequence[float],
) -> NDArray[np.float64]:
    """Returns the weight of each coefficient in the mean squared error of a cell.

    The sum of these weights times the squared errors of the coefficients is the mean squared error
    of a cell of a marginal, averaged over the marginals with their weights.
    """
    result = np.zeros(basis.num_coefficients)
    total = sum(weights)
    for names, weight in zip(marginals, weights, strict=True):
        axes = domain.axes(names)
        cells = math.prod(domain.shape[axis] for axis in axes)
        for support in subsets(axes):
            # Supports that are not in the basis have no coefficients.
            where = basis.slices.get(support, slice(0, 0))
            ratio = squared_scale(basis, support, axes)
            result[where] += weight / total * ratio / cells
    return result


def subsets(axes: Support) -> Iterator[Support]:
    """Returns all subsets of a set of axes, smallest first, from () to the set itself."""
    return (subset for size in range(len(axes) + 1) for subset in combinations(axes, size))


def supports_inside(axes: Support, supports: Mapping[Support, Any]) -> list[Support]:
    """Returns the supports that are subsets of some axes."""
    if len(axes) < 20 and 1 << len(axes) < len(supports):
        return [subset for subset in subsets(axes) if subset in supports]
    within = set(axes)
    return [support for support in supports if within.issuperset(support)]


def _table(
    basis: Coefficients, coefficients: NDArray[np.float64], axes: Support, is_sum: bool
) -> NDArray[np.float64]:
    shape = tuple(basis.shape[axis] for axis in axes)
    table = np.zeros(shape)
    for support in subsets(axes):
        sizes = [basis.shape[axis] for axis in support]
        # A support with an attribute of one code has no coefficients and need not be in a basis.
        if 1 in sizes:
            continue
        where = basis.slices[support] if is_sum else basis.slices.get(support, slice(0, 0))
        if where.start == where.stop:
            continue
        part = coefficients_table(coefficients[where], sizes)
        broadcast = tuple(basis.shape[axis] if axis in support else 1 for axis in axes)
        scale = math.sqrt(basis.cells_summed(support))
        if is_sum:
            summed = math.prod(basis.shape[axis] for axis in axes if axis not in support)
            table += part.reshape(broadcast) * (scale / summed)
        else:
            table += part.reshape(broadcast) / scale
    return table


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


@functools.cache
def _libraries() -> ThreadpoolController:
    """Finds the loaded linear algebra libraries, which takes milliseconds; returns a controller."""
    return ThreadpoolController()


def on_one_thread(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Makes a function run its linear algebra on one thread.

    Thousands of small products gain nothing from more threads. If a worker shares its cores, the
    library's threads wait for each other and run up to thirty times slower.
    """

    @functools.wraps(function)
    def limited(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with _libraries().limit(limits=1, user_api="blas"):
            return function(*args, **kwargs)

    return limited

"""Orthonormal contrasts of attributes, and the coefficients of small tables in them."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Support = tuple[int, ...]

# Above this many codes a product with a dense matrix costs more than subtracting a mean.
DENSE_AXIS_SIZE = 64


@functools.cache
def contrast_matrix(size: int) -> NDArray[np.float64]:
    """Returns the non-constant basis vectors of one attribute, as rows.

    Up to 64 codes these are the ``size - 1`` orthonormal Helmert contrasts. Larger attributes use
    the ``size`` centred unit vectors instead: a tight frame with the same inner products, whose
    product with a table costs one subtraction per cell.

    Returns:
        shape (size - 1, size) or, above 64 codes, (size, size); float64; every row sums to 0.

    Example:
        >>> contrast_matrix(2).round(4).tolist()
        [[0.7071, -0.7071]]
    """
    if size > DENSE_AXIS_SIZE:
        return np.eye(size) - 1.0 / size
    rows = np.tril(np.ones((size, size)), -1)[1:]
    rows[np.arange(size - 1), np.arange(1, size)] = -np.arange(1.0, size)
    normalised: NDArray[np.float64] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return normalised


def num_contrasts(size: int) -> int:
    """Returns the number of rows of ``contrast_matrix(size)``."""
    return size if size > DENSE_AXIS_SIZE else size - 1


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

"""Strategies as dense integer matrices, for domains of few cells."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Self

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from beam_dp.interval_strategies.strategy import (
    Indices,
    Strategy,
    Values,
    mean_of_intervals,
)

Integers = NDArray[np.int64]

# The product of two strategies has entries of at most 2^26: room for 2^37 records. Rounding to
# this grid costs less than 1e-4 of the error.
_MAX_ENTRY = 2**13
# Doubles hold all integers up to this.
_EXACT_BITS = 53


@dataclasses.dataclass(frozen=True, eq=False)
class DenseStrategy:
    """An integer matrix, its sensitivities and its least squares, all computed from its entries.

    Args:
        matrix: shape (rows, d), int64, 0 <= entries <= 2^13, of rank d.

    Cost: O(rows d^2), once: 0.2 s for 1,024 cells, and 40 MiB.
    """

    matrix: Integers

    @classmethod
    def of(cls, strategy: Strategy) -> Self:
        """Returns a strategy as its matrix, in coarser integers where its entries are large."""
        cells = np.eye(strategy.num_leaves, dtype=np.int64)
        matrix = np.stack([strategy.measure(cell) for cell in cells], axis=1)
        largest = int(matrix.max())
        if largest > _MAX_ENTRY:
            matrix = np.rint(matrix * (_MAX_ENTRY / largest)).astype(np.int64)
        if matrix.min() < 0:
            raise AssertionError("columns without negative products are taken for granted")
        return cls(matrix)

    @property
    def num_leaves(self) -> int:
        """The number of cells."""
        return int(self.matrix.shape[1])

    @property
    def num_rows(self) -> int:
        """The number of measurements."""
        return int(self.matrix.shape[0])

    @functools.cached_property
    def l1_sensitivity(self) -> int:
        """The largest L1 norm of a column."""
        return int(self.matrix.sum(axis=0).max())

    @functools.cached_property
    def l2_sensitivity_squared(self) -> int:
        """The largest squared L2 norm of a column."""
        return int((self.matrix**2).sum(axis=0).max())

    def measure(self, values: Integers) -> Integers:
        """Returns the matrix times each column of a table, exactly, modulo 2^64.

        The values are split into signed digits so small that every sum of products is an integer
        that doubles hold exactly, in whatever order it is added up. The size of the digits follows
        from the matrix alone.

        Args:
            values: shape (d, columns), int64.

        Returns:
            shape (rows, columns), int64.
        """
        widest = int(self.matrix.sum(axis=1).max())
        digit_bits = _EXACT_BITS - widest.bit_length()
        half = 1 << (digit_bits - 1)
        result = np.zeros((self.num_rows, values.shape[1]), np.int64)
        rest = values.copy()
        for shift in range(0, 64, digit_bits):
            # Signed digits from -half to half - 1; modulo 2^64 what is left at the end is 0.
            digits = ((rest + half) & (2 * half - 1)) - half
            rest = (rest - digits) >> digit_bits
            result += (self._entries @ digits).astype(np.int64) << shift
        return result

    @functools.cached_property
    def prefixes(self) -> Values:
        """What turns measurements into least-squares prefix counts, shape (d + 1, rows)."""
        entries = self._entries
        factor = scipy.linalg.cho_factor(entries.T @ entries)
        cells = scipy.linalg.cho_solve(factor, entries.T)
        return np.concatenate([np.zeros((1, self.num_rows)), np.cumsum(cells, axis=0)])

    @functools.cached_property
    def errors(self) -> DenseErrors:
        """The variances of all answers, for noise of variance 1: computed once."""
        return DenseErrors(self.prefixes @ self.prefixes.T)

    @functools.cached_property
    def _entries(self) -> Values:
        return self.matrix.astype(np.float64)


class DenseErrors:
    """The variances of all answers of a ``DenseStrategy``, for noise of variance 1.

    Args:
        covariances: of the prefixes, shape (d + 1, d + 1).
    """

    def __init__(self, covariances: Values) -> None:
        own = np.diagonal(covariances)
        self._mean = mean_of_intervals(own[1:], math.fsum(covariances.sum(axis=0)))
        self._variances: Values = own[:, None] + own - 2 * covariances

    def mean(self) -> float:
        """Returns the mean of the variances of all intervals."""
        return self._mean

    def variances(self, low: Indices, high: Indices) -> Values:
        """Returns the variance of each interval low..high, both included."""
        result: Values = self._variances[low, high + 1]
        return result

"""The interface of a strategy for intervals: an integer matrix measured with equal noise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from beam_dp.interval_strategies.textbook_tree import Nodes

Values = NDArray[np.float64]
Indices = NDArray[np.int64]

MAX_LEAVES = 2**20


class ErrorLaw(Protocol):
    """The variances of all answers, where every measurement has noise of variance 1."""

    def mean(self) -> float:
        """Returns the mean of the variances of all d (d + 1) / 2 intervals."""
        ...

    def variances(self, low: Indices, high: Indices) -> Values:
        """Returns the variance of each interval low..high, both included."""
        ...


class Measured(Protocol):
    """What a release keeps of the strategy that was measured for it."""

    @property
    def num_leaves(self) -> int:
        """The number d of cells, the columns of the strategy's matrix."""
        ...

    @property
    def errors(self) -> ErrorLaw:
        """The variances of all answers, for noise of variance 1: computed once."""
        ...


class Strategy(Measured, Protocol):
    """An integer matrix A with one column a cell, and how to answer from noisy A x."""

    @property
    def l1_sensitivity(self) -> int:
        """The largest L1 norm of a column of A."""
        ...

    @property
    def l2_sensitivity_squared(self) -> int:
        """The largest squared L2 norm of a column of A.

        The inner products of columns are never negative, so that the difference of two columns
        has at most twice this squared norm.
        """
        ...

    def measure(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns A x exactly, in integers modulo 2^64: the only step that sees counts."""
        ...

    def estimate(self, noisy: Values) -> Prefixes | Nodes:
        """Returns the answers that noisy measurements give."""
        ...


class Prefixes:
    """Answers that are differences of one array of prefix counts, hence consistent.

    Args:
        values: shape (d + 1,), float64: the count of the first 0..d cells.
    """

    def __init__(self, values: Values) -> None:
        self.values = values

    def answer(self, low: Indices, high: Indices) -> Values:
        """Returns the estimated counts of the cells low..high, both included."""
        result: Values = self.values[high + 1] - self.values[low]
        return result


def prefixes_of(cells: Values) -> Prefixes:
    """Returns the prefixes of estimated cells."""
    return Prefixes(np.concatenate([[0.0], np.cumsum(cells)]))


def mean_of_intervals(prefix_variances: Values, variance_of_sum: float) -> float:
    """Returns the mean variance of all intervals.

    With errors f_0 = 0, f_1, ..., f_d of the prefixes, the sum over i < j of (f_j - f_i)^2 is
    (d + 1) (sum of f_i^2) - (sum of f_i)^2.

    Args:
        prefix_variances: of f_1, ..., f_d.
        variance_of_sum: of the sum of all f_i.
    """
    num_leaves = len(prefix_variances)
    total = (num_leaves + 1) * float(prefix_variances.sum()) - variance_of_sum
    return total / (num_leaves * (num_leaves + 1) / 2)

"""The interface of strategies for intervals (integer matrices), and the textbook tree."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from beam_dp.privacy.guarantee import Neighboring

Values = NDArray[np.float64]
Indices = NDArray[np.int64]
Integers = NDArray[np.int64]

MAX_LEAVES = 2**20


class ErrorLaw(Protocol):
    """The variances of all answers if every measurement has noise of variance 1."""

    def mean(self) -> float:
        """Returns the mean of the variances of all d (d + 1) / 2 intervals."""
        ...

    def variances(self, low: Indices, high: Indices) -> Values:
        """Returns the variance of each interval low..high, both included."""
        ...


class Strategy(Protocol):
    """An integer matrix A with one column per cell, and a way to answer from noisy A x."""

    @property
    def num_leaves(self) -> int:
        """The number d of cells, the columns of the strategy's matrix."""
        ...

    @property
    def errors(self) -> ErrorLaw:
        """The variances of all answers, for noise of variance 1: computed once."""
        ...

    @property
    def l1_sensitivity(self) -> int:
        """The largest L1 norm of a column of A."""
        ...

    @property
    def l2_sensitivity_squared(self) -> int:
        """The largest squared L2 norm of a column of A.

        Inner products of columns are never negative, so the difference of two columns has at most
        twice this squared norm.
        """
        ...

    def measure(self, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Returns A x exactly, in integers modulo 2^64. Only this step reads the counts."""
        ...

    def estimate(self, noisy: Values) -> Prefixes | Nodes:
        """Returns the answers that follow from noisy measurements."""
        ...


class Prefixes:
    """Consistent answers: differences between estimated counts of the first 0, 1, ..., d cells."""

    def __init__(self, values: Values) -> None:
        self.values = values

    def answer(self, low: Indices, high: Indices) -> Values:
        """Returns the estimated counts of the cells low..high, both included."""
        result: Values = self.values[high + 1] - self.values[low]
        return result


def prefixes_of(cells: Values) -> Prefixes:
    """Returns the prefix sums of the estimated cells."""
    return Prefixes(np.concatenate([[0.0], np.cumsum(cells)]))


def mean_of_intervals(prefix_variances: Values, variance_of_sum: float) -> float:
    """Returns the mean variance of all intervals.

    With errors f_0 = 0, f_1, ..., f_d of the prefixes, the sum over i < j of (f_j - f_i)^2 is
    (d + 1) (sum of f_i^2) - (sum of f_i)^2. ``prefix_variances``: the variances of f_1, ..., f_d.
    """
    num_leaves = len(prefix_variances)
    total = (num_leaves + 1) * float(prefix_variances.sum()) - variance_of_sum
    return total / (num_leaves * (num_leaves + 1) / 2)


@dataclasses.dataclass(frozen=True)
class TextbookTree:
    """Sums over the dyadic intervals of a domain padded to a power of two.

    An interval is answered by the smallest set of nodes that cover it exactly. Every node of the
    padded tree gets noise, even if it is empty. Under add-or-remove-one the root is measured like
    all other nodes: a record changes h + 1 nodes, with h = log2 of the padded size. Under
    replace-one the root is omitted, because the number of records is public. The count of the whole
    domain is the sum of its two halves, so no assumption about records outside the domain is
    needed. A replacement changes 2 h nodes.

    Reference: Dwork, Naor, Pitassi and Rothblum (2010); Chan, Shi and Song (2011).
    """

    num_leaves: int
    has_root: bool

    @classmethod
    def build(cls, num_leaves: int, neighboring: Neighboring) -> Self:
        """Returns the strategy for ``num_leaves`` cells under a relation."""
        return cls(num_leaves, neighboring is Neighboring.ADD_OR_REMOVE_ONE or num_leaves == 1)

    @property
    def num_levels(self) -> int:
        """The number of levels that are measured."""
        return (self.num_leaves - 1).bit_length() + self.has_root

    @property
    def l1_sensitivity(self) -> int:
        """The number of measured nodes that contain a cell: the L1 norm of every column."""
        return self.num_levels

    @property
    def l2_sensitivity_squared(self) -> int:
        """The squared L2 norm of every column, which equals its L1 norm."""
        return self.num_levels

    def measure(self, counts: Integers) -> Integers:
        """Returns the sums of the nodes, level by level from the cells to the top."""
        padded = 1 << (self.num_leaves - 1).bit_length()
        sums = np.pad(counts, (0, padded - self.num_leaves))
        parts = [sums]
        for _ in range(self.num_levels - 1):
            sums = sums.reshape(-1, 2).sum(axis=1)
            parts.append(sums)
        return np.concatenate(parts)

    def estimate(self, noisy: Values) -> Nodes:
        """Returns the answers, which are sums of noisy nodes."""
        return Nodes(np.split(noisy, np.cumsum(self.node_sizes())[:-1]))

    def node_sizes(self) -> list[int]:
        """Returns the number of nodes of each level, from the cells to the top."""
        padded = 1 << (self.num_leaves - 1).bit_length()
        return [padded >> level for level in range(self.num_levels)]

    @functools.cached_property
    def errors(self) -> TextbookErrors:
        """The variances of all answers, for noise of variance 1: computed once."""
        return TextbookErrors(self.num_leaves, self.num_levels)


class Nodes:
    """Answers that add up as few nodes as possible."""

    def __init__(self, levels: list[Values]) -> None:
        self.levels = levels

    def answer(self, low: Indices, high: Indices) -> Values:
        """Returns the sums of the nodes that make up the cells low..high, both included."""
        result = np.zeros(low.shape)
        for level, place, taken in _taken(low, high, len(self.levels)):
            result += np.where(taken, self.levels[level][np.where(taken, place, 0)], 0.0)
        return result


class TextbookErrors:
    """The number of nodes in each answer, which is its variance for noise of variance 1."""

    def __init__(self, num_leaves: int, num_levels: int) -> None:
        self._num_leaves = num_leaves
        self._num_levels = num_levels

    def mean(self) -> float:
        """Returns the mean number of nodes; a node inside is used if its parent is not inside."""
        num_leaves = self._num_leaves
        total = 0
        for level in range(self._num_levels):
            is_top = level == self._num_levels - 1
            total += self._contained(level) - (0 if is_top else 2 * self._contained(level + 1))
        return total / (num_leaves * (num_leaves + 1) // 2)

    def _contained(self, level: int) -> int:
        """Returns the number of pairs (node of the level, interval that contains the node)."""
        starts = np.arange(0, self._num_leaves, 1 << level)
        ends = starts + (1 << level)
        counted = (starts + 1) * np.maximum(self._num_leaves + 1 - ends, 0)
        return int(counted.sum())

    def variances(self, low: Indices, high: Indices) -> Values:
        """Returns the number of nodes of each interval low..high, both included."""
        result = np.zeros(low.shape)
        for _, _, taken in _taken(low, high, self._num_levels):
            result += taken
        return result


def _taken(
    low: Indices, high: Indices, num_levels: int
) -> Iterator[tuple[int, Indices, NDArray[np.bool_]]]:
    """Yields, per level, the candidate nodes for low..high and whether each node is used.

    A node inside the interval is used if its parent is not inside. On the highest level, which has
    one or two nodes, all nodes inside the interval are used.
    """
    start, stop = low, high + 1
    for level in range(num_levels - 1):
        some = start < stop
        yield level, start, some & (start % 2 == 1)
        yield level, stop - 1, some & (stop % 2 == 1)
        start, stop = (start + 1) // 2, stop // 2
    for place in (0, 1):
        yield num_levels - 1, np.full_like(start, place), (start <= place) & (place < stop)

"""Multiplicative weights over the cells of a domain, or over updated elements of any universe."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from beam_dp.queries.linear import VALUE_BITS, LinearQuery
from beam_dp.queries.sparse import Element, SparseQuery


class DenseWeights:
    """A public distribution, kept as logarithms.

    ``log_weights``: logarithms up to a constant, shape (num_cells,), float64, finite; not copied.
    """

    def __init__(self, log_weights: NDArray[np.float64]) -> None:
        self.log_weights = log_weights
        self.weights = np.empty_like(log_weights)
        self._normalise()

    def mean(self, query: LinearQuery) -> float:
        """Returns the mean of a query, in [0, 1]. Cost: that of ``query.mean``."""
        return query.mean(self.weights)

    def update(self, query: LinearQuery, step: float) -> None:
        """Multiplies each weight by exp(step q) and normalises; a step > 0 raises the mean of q.

        For q in [0, 1], a step of -eta multiplies weights by exp(-eta q). A step of eta is
        equivalent to multiplying weights by exp(-eta (1 - q)).

        Reference: Dwork and Roth (2014), Algorithm 5.
        """
        query.add_to(self.log_weights, step)
        self._normalise()

    def _normalise(self) -> None:
        self.log_weights -= self.log_weights.max()
        np.exp(self.log_weights, out=self.weights)
        self.weights /= self.weights.sum()


# If the running total is outside these limits, the weights are summed again, long before the total
# becomes imprecise.
_LEAST, _MOST = 2.0**-20, 2.0**200


class SparseWeights:
    """A public distribution over slots: one slot per updated element, and free slots.

    All elements that were never updated have the weight of one free slot, for any universe. Each
    newly updated element takes a slot. All data outside the earlier queries count as one free slot,
    so at least one slot stays free. c updates of at most m elements need m c + 1 slots; after that,
    slots are added.

    Reference: Blum and Roth (2011), Algorithm 1, with one slot that always stays free.
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = num_slots
        self._logs: dict[Element, float] = {}
        self._renew()

    @property
    def weights(self) -> dict[Element, float]:
        """The weights of all updated elements, as a copy."""
        return {element: weight / self._total for element, weight in self._scaled.items()}

    @property
    def common_weight(self) -> float:
        """The weight of every element that was not updated."""
        return self._common / self._total

    @property
    def num_free(self) -> int:
        """The number of free slots."""
        return self.num_slots - len(self._logs)

    def mean(self, query: SparseQuery) -> float:
        """Returns the mean of a query, in [0, 1]. Cost: O(m)."""
        return min(1.0, query.weigh(self._scaled, self._common) / self._total)

    def update(self, query: SparseQuery, step: float) -> None:
        """Multiplies each weight by exp(step q) and normalises; a step > 0 raises the mean of q."""
        for element, numerator in zip(query.elements, query.numerators, strict=True):
            if element not in self._logs and self.num_free == 1:
                self.num_slots += 1
                self._total += self._common
            old = self._scaled.get(element, self._common)
            moved = self._logs.get(element, 0.0) + step * numerator / (1 << VALUE_BITS)
            self._logs[element] = moved
            self._scaled[element] = math.exp(moved - self._offset)
            self._total += self._scaled[element] - old
        if not _LEAST < self._total < _MOST:
            self._renew()

    def _renew(self) -> None:
        """Scales the weights to the sum 1."""
        largest = max(self._logs.values(), default=0.0)
        largest = max(largest, 0.0)  # the logarithm for a free slot
        total = self.num_free * math.exp(-largest)
        total += math.fsum(math.exp(each - largest) for each in self._logs.values())
        self._offset = largest + math.log(total)
        self._common = math.exp(-self._offset)
        self._scaled = {
            element: math.exp(each - self._offset) for element, each in self._logs.items()
        }
        self._total = self.num_free * self._common + math.fsum(self._scaled.values())

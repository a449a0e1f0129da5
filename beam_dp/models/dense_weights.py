"""Multiplicative weights over all cells of a domain."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beam_dp.queries.linear import LinearQuery


class DenseWeights:
    """A public distribution, kept as logarithms.

    Args:
        log_weights: shape (num_cells,), float64, finite, up to a constant; the object keeps it.

    Example:
        >>> from beam_dp.queries.linear import Product
        >>> hypothesis = DenseWeights(np.zeros(4))
        >>> half = Product((4,), (0,), (((0, 2),),))
        >>> hypothesis.update(half, -0.25)
        >>> hypothesis.weights.round(6).tolist()
        [0.218912, 0.218912, 0.281088, 0.281088]
    """

    def __init__(self, log_weights: NDArray[np.float64]) -> None:
        self.log_weights = log_weights
        self.weights = np.empty_like(log_weights)
        self._normalise()

    def mean(self, query: LinearQuery) -> float:
        """Returns the mean of a query, in [0, 1]. Cost: as of ``query.mean``."""
        return query.mean(self.weights)

    def update(self, query: LinearQuery, step: float) -> None:
        """Multiplies each weight by exp(step q) and normalises: > 0 raises the mean of q.

        For q in [0, 1], a step of -eta is the same as weights times exp(-eta q), and one of eta
        the same as weights times exp(-eta (1 - q)).

        Cost: O(num_cells).
        Reference: Dwork and Roth (2014), Algorithm 5.
        """
        query.add_to(self.log_weights, step)
        self._normalise()

    def _normalise(self) -> None:
        self.log_weights -= self.log_weights.max()
        np.exp(self.log_weights, out=self.weights)
        self.weights /= self.weights.sum()

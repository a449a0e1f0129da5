"""Whoever makes multiplicative weights learn as often as can be."""

from __future__ import annotations

import dataclasses
import math
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from beam_dp.mechanisms.online.private_mw import DenseWeights
from beam_dp.mechanisms.online.sparse_mw import SparseWeights
from beam_dp.queries.linear import Explicit
from beam_dp.queries.sparse import SparseQuery

Weights = NDArray[np.float64]
Calibration = Literal["tight", "textbook"]

CALIBRATIONS: tuple[Calibration, ...] = ("textbook", "tight")
FALL = "nats, the least fall seen,"
_CANDIDATES = 24


def rate(calibration: Calibration, gap: float) -> float:
    """Returns eta, for queries that are wrong by the gap or more."""
    return gap / 2 if calibration == "textbook" else 4 * gap


@dataclasses.dataclass(frozen=True)
class Taught:
    """What an adversary made of a hypothesis.

    Args:
        updates: how many, until no query that it tried was wrong by the gap.
        least_drop: of the relative entropy of the data to the hypothesis, by an update.
        num_free: slots that no key has taken; 0 of a hypothesis over cells.
    """

    updates: int
    least_drop: float
    num_free: int


class Learner(Protocol):
    """A hypothesis, as the adversary sees it."""

    num_allowed: int  # the first cells, which queries may be of
    num_free: int

    def weights(self) -> Weights:
        """Of all cells, those of no query together in the last one."""

    def divergence(self) -> float:
        """The relative entropy of the data to it."""

    def update(self, query: Weights, step: float) -> float:
        """Learns; returns what the query is wrong by, as it was given."""


class Cells:
    """``DenseWeights`` over as many cells as the data have."""

    num_free = 0

    def __init__(self, data: Weights) -> None:
        self.data, self.num_allowed = data, len(data)
        self._hypothesis = DenseWeights(np.zeros(len(data)))

    def weights(self) -> Weights:
        """See ``Learner``."""
        return self._hypothesis.weights

    def divergence(self) -> float:
        """See ``Learner``."""
        return _divergence(self.data, self._hypothesis.weights)

    def update(self, query: Weights, step: float) -> float:
        """See ``Learner``."""
        asked = Explicit.of(query.shape, query)
        wrong = asked.mean(self.data) - self._hypothesis.mean(asked)
        self._hypothesis.update(asked, step)
        return wrong


class Slots:
    """``SparseWeights``; the data of keys that are never asked about are in a free slot.

    Args:
        data: of the keys 0, 1, ... that are; their sum may be less than 1.
        num_slots: s.
    """

    def __init__(self, data: Weights, num_slots: int) -> None:
        self.num_allowed = len(data)
        self.data = np.append(data, max(0.0, 1 - float(data.sum())))
        self._hypothesis = SparseWeights(num_slots)
        self._keys = [SparseQuery.of_list([key]) for key in range(len(data))]

    @property
    def num_free(self) -> int:
        """See ``Taught``."""
        return self._hypothesis.num_free

    def _of_keys(self) -> Weights:
        return np.array([self._hypothesis.mean(key) for key in self._keys])

    def weights(self) -> Weights:
        """See ``Learner``."""
        held = self._of_keys()
        return np.append(held, max(0.0, 1 - float(held.sum())))

    def divergence(self) -> float:
        """See ``Learner``."""
        return _divergence(self.data, np.append(self._of_keys(), self._hypothesis.common_weight))

    def update(self, query: Weights, step: float) -> float:
        """See ``Learner``."""
        values = query[:-1]
        asked = SparseQuery({key: value for key, value in enumerate(values.tolist()) if value > 0})
        wrong = float(values @ self.data[:-1]) - self._hypothesis.mean(asked)
        self._hypothesis.update(asked, step)
        return wrong


def teach(
    rng: np.random.Generator, learner: Cells | Slots, gap: float, rate: float, sparsity: int
) -> Taught:
    """Returns how often a hypothesis learns from queries that are wrong by the gap at least.

    Args:
        rng: of the adversary.
        learner: whose data the adversary knows.
        gap: alpha.
        rate: eta.
        sparsity: m, the most cells of a query.
    """
    updates, least, left = 0, math.inf, learner.divergence()
    while True:
        found = _least_to_learn(rng, learner, gap, rate, sparsity)
        if found is None:
            return Taught(updates, least, learner.num_free)
        query, sign = found
        assert sign * learner.update(query, sign * rate) >= gap
        now = learner.divergence()
        updates, least, left = updates + 1, min(least, left - now), now


def _least_to_learn(
    rng: np.random.Generator, learner: Cells | Slots, gap: float, rate: float, sparsity: int
) -> tuple[Weights, int] | None:
    """The query that teaches least of those tried, and whether its mean must rise."""
    data, weights, number = learner.data, learner.weights(), learner.num_allowed
    order = np.argsort((weights - data)[:number])
    best: tuple[float, Weights, int] | None = None
    for turn in range(_CANDIDATES):
        sign = 1 if turn % 2 else -1
        # Cells that the hypothesis has too little of, or too much, and perhaps some others.
        size = rng.integers(1, sparsity + 1)
        query = np.zeros(len(data))
        query[(order if sign > 0 else order[::-1])[:size]] = 1.0
        query[rng.choice(number, rng.integers(0, sparsity - size + 1), replace=False)] = 1.0
        wrong = sign * float(query @ (data - weights))
        if wrong < gap * (1 + 1e-3):
            continue
        if turn % 3:
            # Values on a grid of 2^-16 make it a little less.
            query *= gap / wrong * (1 + 1e-3)
        drop = sign * rate * float(query @ data)
        drop -= math.log(float(weights @ np.exp(sign * rate * query)))
        if best is None or drop < best[0]:
            best = drop, query, sign
    return None if best is None else (best[1], best[2])


def _divergence(data: Weights, hypothesis: Weights) -> float:
    held = data > 0
    return float((data[held] * np.log(data[held] / hypothesis[held])).sum())

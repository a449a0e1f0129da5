"""Exact counts of the elements of a huge universe that have records, for a stability histogram."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.encoding.key_batch import KeyBatch


@dataclass(frozen=True, eq=False, repr=False)
class ElementCounts:
    """The sums of weights by element. Secret, its elements too: only a mechanism may read it.

    Args:
        elements: shape (n,), uint64, ascending, each once, from ``hashing.universe_elements``.
        counts: shape (n,), int64, > 0: an element of weight 0 has no place here.
    """

    elements: NDArray[np.uint64]
    counts: NDArray[np.int64]

    def __repr__(self) -> str:
        return "ElementCounts()"

    @classmethod
    def of(cls, batches: Iterable[KeyBatch]) -> ElementCounts:
        """Returns the counts of all batches; also of pairs of an element and a partial sum.

        Cost: one sort; memory by records.
        """
        parts = [(batch.keys, batch.weights) for batch in batches]
        keys = np.concatenate([np.zeros(0, np.uint64), *(keys for keys, _ in parts)])
        weights = np.concatenate([np.zeros(0, np.int64), *(each for _, each in parts)])
        elements, where = np.unique(keys, return_inverse=True)
        counts = np.zeros(len(elements), np.int64)
        np.add.at(counts, where, weights)
        held = counts > 0
        return cls(elements[held], counts[held])

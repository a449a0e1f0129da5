"""Exact counts of universe elements and of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.encoding.batch import KeyBatch
from beam_dp.queries.sparse import Element

# A larger sum counts as this one. Sums of a sketch may wrap around 2^64, since all that follows is
# modulo 2^64 too; these are compared with 0 and a threshold, where a sum that wraps would be gone.
MOST = 2**62
_HALF = 32
_LOW = 2**_HALF - 1


@dataclass(frozen=True, eq=False, repr=False)
class ElementCounts:
    """The sums of weights by element. Secret, its elements too: only a mechanism may read it.

    Args:
        elements: shape (n,), uint64, ascending, each once, from ``hashing.universe_elements``.
        counts: shape (n,), int64, 0 < count <= ``MOST``: an element of weight 0 has no place here.
    """

    elements: NDArray[np.uint64]
    counts: NDArray[np.int64]

    def __repr__(self) -> str:
        return "ElementCounts()"

    @classmethod
    def of(cls, batches: Iterable[KeyBatch]) -> ElementCounts:
        """Returns the counts of all batches; also of pairs of an element and a partial sum.

        Sums are capped at ``MOST``: like smaller sums they do not depend on the order of batches,
        and a record moves them by its weight at most.
        """
        parts = [(batch.keys, batch.weights) for batch in batches]
        keys = np.concatenate([np.zeros(0, np.uint64), *(keys for keys, _ in parts)])
        weights = np.concatenate([np.zeros(0, np.int64), *(each for _, each in parts)])
        elements, where = np.unique(keys, return_inverse=True)
        # In two halves, which no number of records that fits in memory lets overflow.
        low, high = np.zeros((2, len(elements)), np.int64)
        np.add.at(low, where, weights & _LOW)
        np.add.at(high, where, weights >> _HALF)
        high += low >> _HALF
        counts = np.where(high < MOST >> _HALF, (high << _HALF) + (low & _LOW), MOST)
        held = counts > 0
        return cls(elements[held], counts[held])


_KINDS = frozenset((str, bytes, int))


@dataclass(frozen=True, eq=False, repr=False)
class KeyCounts:
    """Exact counts by key: text, bytes or integers. Secret, its keys too."""

    counts: Mapping[Element, int]

    def __repr__(self) -> str:
        return "KeyCounts()"

    @classmethod
    def of(cls, keys: Iterable[Any]) -> KeyCounts:
        """Returns the counts of records, given by their keys; those of other types are left out."""
        # Refusing a record would tell that it is there.
        return cls(dict(Counter(key for key in keys if type(key) in _KINDS)))

    @property
    def num_records(self) -> int:
        """The number of records; secret."""
        return sum(self.counts.values())

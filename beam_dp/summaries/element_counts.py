"""Exact counts of universe elements and of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.encoding.batch import KeyBatch
from beam_dp.queries.sparse import Element

if TYPE_CHECKING:
    import pyarrow as pa

# The largest sum; larger sums are capped. Sums of sketches may wrap around at 2^64, because all
# later sums are modulo 2^64, too. Sums of elements are compared with thresholds and must not wrap.
MOST = 2**62
_HALF = 32
_LOW = 2**_HALF - 1


@dataclass(frozen=True, eq=False, repr=False)
class ElementCounts:
    """The sums of weights per element. Elements and sums are secret; only a mechanism reads them.

    ``elements``: shape (n,), uint64, strictly ascending, from ``universe_elements``.
    ``counts``: shape (n,), int64, 0 < count <= ``MOST``; elements of weight 0 are left out.
    ``texts``: if each text is counted, the texts as large binary, null for those that are too long
    to be listed. Elements are then in any order, and two texts may have the same one.
    """

    elements: NDArray[np.uint64]
    counts: NDArray[np.int64]
    texts: pa.Array | None = None

    def __repr__(self) -> str:
        return "ElementCounts()"

    @classmethod
    def of(cls, batches: Iterable[KeyBatch]) -> ElementCounts:
        """Returns the sums of all batches, whose weights may be partial sums.

        Sums are capped at ``MOST``. A capped sum does not depend on the order of the batches, and
        one record changes it by at most the record's weight.
        """
        parts = [(batch.keys, batch.weights) for batch in batches]
        keys = np.concatenate([np.zeros(0, np.uint64), *(keys for keys, _ in parts)])
        weights = np.concatenate([np.zeros(0, np.int64), *(each for _, each in parts)])
        elements, where = np.unique(keys, return_inverse=True)
        # Adds low and high halves separately; records that fit in memory can't overflow a half.
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
    """Exact counts per key: text, bytes or integers. Keys and counts are secret."""

    counts: Mapping[Element, int]

    def __repr__(self) -> str:
        return "KeyCounts()"

    @classmethod
    def of(cls, keys: Iterable[Any]) -> KeyCounts:
        """Returns the number of records per key; keys of other types are left out."""
        # An error would reveal that the record exists.
        return cls(dict(Counter(key for key in keys if type(key) in _KINDS)))

    @property
    def num_records(self) -> int:
        """The number of records, which is secret."""
        return sum(self.counts.values())

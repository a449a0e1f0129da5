"""Batches of keys of a huge universe with integer weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False, repr=False)
class KeyBatch:
    """Records as universe elements and weights. Secret.

    Args:
        keys: shape (n,), uint64, from ``hashing.universe_elements``; repetitions count.
        weights: shape (n,), int64, already from 0 to the declared largest weight: sensitivities
            rest on it.
        units: shape (2, n), uint64, the 128-bit fingerprint of each record's privacy unit;
            None once contributions are limited, or where the unit is the record.
    """

    keys: NDArray[np.uint64]
    weights: NDArray[np.int64]
    units: NDArray[np.uint64] | None = None

    def __repr__(self) -> str:
        return "KeyBatch(secret)"


def merged_keys(batch: KeyBatch) -> KeyBatch:
    """Returns the batch with each key once, and the sum of its weights, if that halves it.

    Else it comes back as it is: hashing a few keys twice costs less than merging weights.

    Cost: a sort, of about 5 ns a record; 50 more where weights differ and are merged.

    Example:
        >>> batch = KeyBatch(np.array([7, 9, 7, 7], np.uint64), np.array([1, 1, 1, 4]))
        >>> merged = merged_keys(batch)
        >>> merged.keys.tolist(), merged.weights.tolist()
        ([7, 9], [6, 1])
    """
    keys = np.sort(batch.keys)
    starts = np.flatnonzero(np.concatenate((keys[:1] == keys[:1], keys[1:] != keys[:-1])))
    if 2 * len(starts) > len(keys) or not len(keys):
        return batch
    if (batch.weights == 1).all():
        weights = np.diff(starts, append=len(keys))
    else:
        weights = np.add.reduceat(batch.weights[np.argsort(batch.keys)], starts)
    return KeyBatch(keys[starts], weights.astype(np.int64))

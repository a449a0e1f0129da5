"""At most k records a privacy unit: which ones stay, and how records travel to their unit.

Which of a unit's records stay depends on the multiset of that unit's own encoded records and
on nothing else: not on other units, not on the order or the place of the records. So a bundle
that is done again keeps the same ones, and one unit more or less changes at most k records.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain import Domain
from beam_dp.encoding.batch import EncodedBatch
from beam_dp.encoding.key_batch import KeyBatch
from beam_dp.encoding.units import mix

Columns = list[NDArray[Any]]


class Words(Protocol):
    """How records of one kind travel: as a few integer columns, together with their units."""

    @property
    def dtypes(self) -> Sequence[np.dtype[Any]]:
        """The types of the columns."""

    def from_batch(self, batch: Any) -> Columns:
        """Returns a batch as columns of shape (n,)."""

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> Any:
        """Returns the records of ``from_batch``, all that are kept of their units, without these.

        Args:
            columns: of shape (n,).
            units: shape (2, n), fingerprints.
        """


class RecordWords:
    """Encoded records as a few integer columns.

    Args:
        domain: the universe. Where it has no index, runs of attributes share a word.
    """

    def __init__(self, domain: Domain) -> None:
        self.domain = domain
        self.dtypes = [
            np.dtype("<u4" if group.num_cells <= 2**32 else "<u8") for group in domain.groups
        ]

    def from_batch(self, batch: EncodedBatch) -> Columns:
        """Returns a batch as words, one array of shape (n,) a group of attributes."""
        if self.domain.has_index:
            return [batch.cell_index(self.domain).astype(self.dtypes[0])]
        words = self.domain.words(batch.code_columns(self.domain))
        return [word.astype(dtype) for word, dtype in zip(words, self.dtypes, strict=True)]

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> EncodedBatch:
        """Returns the records of ``from_batch``, without units."""
        if self.domain.has_index:
            return EncodedBatch(cells=columns[0].astype(np.int64))
        groups = zip(self.domain.groups, columns, strict=True)
        codes = [column for group, word in groups for column in group.codes(word.astype(np.int64))]
        return EncodedBatch(codes=codes)


class KeyWords:
    """Weighted elements of a huge universe as two integer columns."""

    dtypes: Sequence[np.dtype[Any]] = (np.dtype("<u8"), np.dtype("<i8"))

    def from_batch(self, batch: KeyBatch) -> Columns:
        """Returns the elements and the weights of a batch."""
        return [batch.keys, batch.weights]

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> KeyBatch:
        """Returns the records of ``from_batch``, without units."""
        keys, weights = columns
        return KeyBatch(keys.astype(np.uint64), weights.astype(np.int64))


def to_bytes(words: Words, units: NDArray[np.uint64], columns: Columns) -> bytes:
    """Returns records with their units, shape (2, n), as bytes."""
    typed = zip(columns, words.dtypes, strict=True)
    return b"".join(
        (
            units.astype("<u8", copy=False).tobytes(),
            *(column.astype(dtype, copy=False).tobytes() for column, dtype in typed),
        )
    )


def from_bytes(words: Words, chunks: Iterable[bytes]) -> tuple[NDArray[np.uint64], Columns]:
    """Returns the units and the records of many ``to_bytes``, joined."""
    record_bytes = 16 + sum(dtype.itemsize for dtype in words.dtypes)
    units: list[NDArray[np.uint64]] = [np.empty((2, 0), np.uint64)]
    columns: list[Columns] = [[np.empty(0, dtype)] for dtype in words.dtypes]
    for chunk in chunks:
        num_records = len(chunk) // record_bytes
        units.append(np.frombuffer(chunk, "<u8", 2 * num_records).reshape(2, -1))
        position = 16 * num_records
        for collected, dtype in zip(columns, words.dtypes, strict=True):
            collected.append(np.frombuffer(chunk, dtype, num_records, position))
            position += dtype.itemsize * num_records
    return np.concatenate(units, axis=1), [np.concatenate(collected) for collected in columns]


def split_by_unit(
    units: NDArray[np.uint64], words: Columns, num_partitions: int
) -> Iterator[tuple[int, NDArray[np.uint64], Columns]]:
    """Yields (partition, units, words) for each partition that has records.

    All records of a unit are in one partition.

    Args:
        units: shape (2, n), fingerprints.
        words: the records, arrays of shape (n,).
        num_partitions: a power of two, from 1 to 2^16.
    """
    bits = num_partitions.bit_length() - 1
    # The highest bits; a stable argsort of 16-bit integers is a radix sort.
    partition = units[0] >> np.uint64(1) >> np.uint64(63 - bits)
    partition = partition.astype(np.uint16)
    order = np.argsort(partition, kind="stable")
    units, words = units[:, order], [word[order] for word in words]
    sizes = np.bincount(partition, minlength=num_partitions)
    edges = [0, *np.cumsum(sizes).tolist()]
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        if start < stop:
            yield number, units[:, start:stop], [word[start:stop] for word in words]


def select_records(
    units: NDArray[np.uint64], words: Sequence[NDArray[Any]], max_records_per_unit: int
) -> NDArray[np.intp]:
    """Returns which records stay: of each unit those with the lowest hashes, at most k.

    Each record's hash is that of its unit, its code and its number among the unit's identical
    records, so that a unit's k records are a uniform sample of its records, and which of
    identical ones stay makes no difference.

    Args:
        units: shape (2, n), fingerprints; all records of each unit.
        words: the records, arrays of shape (n,).
        max_records_per_unit: k, >= 1.

    Returns:
        Positions of the records that stay.

    Cost: two sorts.
    """
    if units.shape[1] == 0:
        return np.empty(0, np.intp)
    order, unit = _group(units)
    sizes = np.bincount(unit)
    small = sizes <= max_records_per_unit
    kept = order[small[unit]]
    if small.all():
        return kept
    order, unit = order[~small[unit]], unit[~small[unit]]

    hashes = mix(units[0, order] ^ mix(units[1, order]))
    for word in words:
        hashes = mix(hashes ^ word[order].astype(np.uint64))
    order, unit, hashes = _sort_within(order, unit, hashes)
    # Identical records of a unit are neighbours now: number them, and hash again by number.
    new = np.ones(order.size, bool)
    new[1:] = (unit[1:] != unit[:-1]) | (hashes[1:] != hashes[:-1])
    if not new.all():
        number = _position_in_run(new)
        again = mix(hashes ^ mix(number.astype(np.uint64)))
        order, unit, hashes = _sort_within(order, unit, np.where(number > 0, again, hashes))
    first = np.ones(order.size, bool)
    first[1:] = unit[1:] != unit[:-1]
    return np.concatenate((kept, order[_position_in_run(first) < max_records_per_unit]))


def _group(units: NDArray[np.uint64]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Returns an order that puts each unit's records together, and the unit's number in it."""
    order = np.argsort(units[0])
    high, low = units[0, order], units[1, order]
    if ((high[1:] == high[:-1]) & (low[1:] != low[:-1])).any():
        # Two units agree in half of their bits: rare, but they must not be mixed up.
        order = np.lexsort((units[1], units[0]))
        high, low = units[0, order], units[1, order]
    new = (high[1:] != high[:-1]) | (low[1:] != low[:-1])
    return order, np.concatenate(([0], np.cumsum(new)))


def _sort_within(
    order: NDArray[np.intp], unit: NDArray[np.intp], hashes: NDArray[np.uint64]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.uint64]]:
    by_hash = np.lexsort((hashes, unit))
    return order[by_hash], unit[by_hash], hashes[by_hash]


def _position_in_run(starts: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Returns each position's distance to the last True at or before it."""
    positions = np.arange(starts.size)
    return positions - np.maximum.accumulate(np.where(starts, positions, 0))

"""Batches of encoded records, and their bytes on the way to the contribution limit."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.secret.encoding.records import EncodedBatch


@dataclass(frozen=True, eq=False, repr=False)
class KeyBatch:
    """Records as universe elements and weights. Secret."""

    keys: NDArray[np.uint64]  # shape (n,), uint64, one per record; may repeat
    weights: NDArray[np.int64]  # shape (n,), int64, clamped to the declared range
    units: NDArray[np.uint64] | None = None
    names: NDArray[np.uint64] | None = None  # shape (2, n): fingerprints of the keys' texts
    texts: pa.Array | None = None  # shape (n,), large binary; null if unknown

    def __repr__(self) -> str:
        return "KeyBatch(secret)"

    @property
    def num_rows(self) -> int:
        """The number of keys; with partial sums, not of records."""
        return len(self.keys)


def merged_keys(batch: KeyBatch) -> KeyBatch:
    """Returns distinct keys with summed weights, or the batch itself if merging saves no time."""
    keys = np.sort(batch.keys)
    starts = np.flatnonzero(np.concatenate((keys[:1] == keys[:1], keys[1:] != keys[:-1])))
    if 2 * len(starts) > len(keys) or not len(keys):
        return batch
    if (batch.weights == 1).all():
        weights = np.diff(starts, append=len(keys))
    else:
        weights = np.add.reduceat(batch.weights[np.argsort(batch.keys)], starts)
    return KeyBatch(keys[starts], weights.astype(np.int64))


Columns = list[NDArray[Any]]


class Words(Protocol):
    """Converts one kind of record to a few integer columns, which travel with the units."""

    @property
    def dtypes(self) -> Sequence[np.dtype[Any]]:
        """The dtypes of the columns."""

    def from_batch(self, batch: Any) -> Columns:
        """Returns a batch as columns of shape (n,)."""

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> Any:
        """Returns records from columns, without units."""


class RecordWords:
    """Encoded records as columns: the cell, or a word per group of attributes; then places."""

    def __init__(self, domain: Domain) -> None:
        self.domain, self._num_words = domain, len(domain.groups)
        self.dtypes = [
            np.dtype("<u4" if group.num_cells <= 2**32 else "<u8") for group in domain.groups
        ] + [np.dtype("<u4")] * len(domain.placed)

    def from_batch(self, batch: EncodedBatch) -> Columns:
        """Returns a batch as words, one array of shape (n,) per group of attributes."""
        if self.domain.has_index:
            words = [batch.cell_index(self.domain)]
        else:
            words = [*self.domain.words(batch.code_columns(self.domain))]
        columns = zip([*words, *batch.places], self.dtypes, strict=True)
        return [column.astype(dtype) for column, dtype in columns]

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> EncodedBatch:
        """Returns the records that were given to ``from_batch``, without units."""
        places = columns[self._num_words :]
        if self.domain.has_index:
            return EncodedBatch(cells=columns[0].astype(np.int64), places=places)
        return EncodedBatch(codes=self.codes(columns), places=places)

    def codes(self, columns: Columns) -> list[NDArray[np.int64]]:
        """Returns the codes of records, one array of shape (n,) per attribute."""
        if self.domain.has_index:
            return list(self.domain.codes(columns[0].astype(np.int64)))
        groups = zip(self.domain.groups, columns[: self._num_words], strict=True)
        return [column for group, word in groups for column in group.codes(word.astype(np.int64))]


class KeyWords:
    """Weighted universe elements as two integer columns."""

    dtypes: Sequence[np.dtype[Any]] = (np.dtype("<u8"), np.dtype("<i8"))

    def from_batch(self, batch: KeyBatch) -> Columns:
        """Returns the elements and the weights of a batch."""
        return [batch.keys, batch.weights]

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> KeyBatch:
        """Returns the records that were given to ``from_batch``, without units."""
        keys, weights = columns
        return KeyBatch(keys.astype(np.uint64), weights.astype(np.int64))


class NamedKeyWords(KeyWords):
    """Weighted universe elements with the fingerprints of their texts."""

    dtypes = (*KeyWords.dtypes, np.dtype("<u8"), np.dtype("<u8"))

    def from_batch(self, batch: KeyBatch) -> Columns:
        """Returns the elements, the weights and the fingerprints of a batch."""
        assert batch.names is not None
        return [*super().from_batch(batch), *batch.names]

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> KeyBatch:
        """Returns the records that were given to ``from_batch``, without units."""
        batch = super().to_batch(columns[:2], units)
        return dataclasses.replace(batch, names=np.stack(columns[2:]).astype(np.uint64))


def to_bytes(
    words: Words, units: NDArray[np.uint64], columns: Columns, counts: NDArray[np.int64]
) -> bytes:
    """Returns units, records and counts as bytes, with a count's width (0 if all counts are 1)."""
    width = 0
    if (counts != 1).any():
        width = np.min_scalar_type(int(counts.max())).itemsize
    typed = zip(columns, words.dtypes, strict=True)
    return b"".join(
        (
            units.astype("<u8", copy=False).tobytes(),
            *(column.astype(dtype, copy=False).tobytes() for column, dtype in typed),
            counts.astype(f"<u{width}").tobytes() if width else b"",
            bytes((width,)),
        )
    )


def from_bytes(
    words: Words, chunks: Iterable[bytes]
) -> tuple[NDArray[np.uint64], Columns, NDArray[np.int64]]:
    """Returns the concatenated units, records and counts from many results of ``to_bytes``."""
    units: list[NDArray[np.uint64]] = [np.empty((2, 0), np.uint64)]
    columns: list[Columns] = [[np.empty(0, dtype)] for dtype in words.dtypes]
    counts: list[NDArray[Any]] = [np.empty(0, np.int64)]
    for chunk in chunks:
        width = chunk[-1]
        num_records = (len(chunk) - 1) // (record_bytes(words) + width)
        units.append(np.frombuffer(chunk, "<u8", 2 * num_records).reshape(2, -1))
        position = 16 * num_records
        for collected, dtype in zip(columns, words.dtypes, strict=True):
            collected.append(np.frombuffer(chunk, dtype, num_records, position))
            position += dtype.itemsize * num_records
        if width:
            counts.append(np.frombuffer(chunk, f"<u{width}", num_records, position))
        else:
            counts.append(np.ones(num_records, np.uint8))
    return (
        np.concatenate(units, axis=1),
        [np.concatenate(collected) for collected in columns],
        # Counts fit in int64: an input never has 2^63 records.
        np.concatenate(counts, dtype=np.int64, casting="unsafe"),
    )


def record_bytes(words: Words) -> int:
    """Returns the number of bytes of a record with its unit, without its count."""
    return 16 + sum(dtype.itemsize for dtype in words.dtypes)


@dataclass(frozen=True, eq=False)
class CostLimit:
    """The limit ``UnitCosts``, applied to records as ``RecordWords``."""

    words: RecordWords
    costs: UnitCosts

    def keeps(self, unit: NDArray[np.intp], columns: Columns) -> NDArray[np.bool_]:
        """Returns the mask of kept records, given their units, ascending (``UnitCosts.keeps``)."""
        return self.costs.keeps(unit, self.words.codes(columns))

"""How encoded records travel to the step that limits their privacy unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.encoding.records import EncodedBatch, WindowBatch
from beam_dp.privacy.unit_costs import UnitCosts


@dataclass(frozen=True, eq=False, repr=False)
class KeyBatch:
    """Records as universe elements and weights. Secret.

    ``keys``: shape (n,), uint64, from ``universe_elements``; repetitions count.
    ``weights``: shape (n,), int64, already clamped to the declared range: sensitivities rest on it.
    """

    keys: NDArray[np.uint64]
    weights: NDArray[np.int64]
    units: NDArray[np.uint64] | None = None

    def __repr__(self) -> str:
        return "KeyBatch(secret)"


def merged_keys(batch: KeyBatch) -> KeyBatch:
    """Returns the batch with each key once and the sum of its weights, if that halves it.

    Otherwise returns the batch: hashing a few keys twice costs less than merging weights.
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


Columns = list[NDArray[Any]]


class Words(Protocol):
    """How records of one kind travel: as a few integer columns, together with their units."""

    @property
    def dtypes(self) -> Sequence[np.dtype[Any]]:
        """The types of the columns."""

    def from_batch(self, batch: Any) -> Columns:
        """Returns a batch as columns of shape (n,)."""

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> Any:
        """Returns records from columns, without the units by which they were selected."""


class RecordWords:
    """Encoded records as integer columns; without an index, runs of attributes share a word."""

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
        return EncodedBatch(codes=self.codes(columns))

    def codes(self, columns: Columns) -> list[NDArray[np.int64]]:
        """Returns the codes of each attribute of records, shape (n,) each."""
        if self.domain.has_index:
            return list(self.domain.codes(columns[0].astype(np.int64)))
        groups = zip(self.domain.groups, columns, strict=True)
        return [column for group, word in groups for column in group.codes(word.astype(np.int64))]


class WindowWords:
    """Encoded records with the window in which each counts, as two integer columns."""

    def __init__(self, domain: Domain) -> None:
        self.dtypes = [np.dtype("<u4"), *RecordWords(domain).dtypes]

    def from_batch(self, batch: WindowBatch) -> Columns:
        """Returns the windows and the cells of a batch."""
        columns = zip((batch.numbers, batch.cells), self.dtypes, strict=True)
        return [column.astype(dtype) for column, dtype in columns]

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> WindowBatch:
        """Returns the records of ``from_batch``, without units."""
        numbers, cells = (column.astype(np.int64) for column in columns)
        return WindowBatch(numbers, cells)


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


def to_bytes(
    words: Words, units: NDArray[np.uint64], columns: Columns, counts: NDArray[np.int64]
) -> bytes:
    """Returns records, units and counts as bytes; the last is the counts' width, 0 if all are 1."""
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
    """Returns the units, the records and the counts of many ``to_bytes``, joined."""
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
        # Counts of records fit: no input has 2^63 of them.
        np.concatenate(counts, dtype=np.int64, casting="unsafe"),
    )


def record_bytes(words: Words) -> int:
    """Returns how many bytes a record takes with its unit, without its count."""
    return 16 + sum(dtype.itemsize for dtype in words.dtypes)


@dataclass(frozen=True, eq=False)
class CostLimit:
    """``UnitCosts`` of records that travel."""

    words: RecordWords
    costs: UnitCosts

    def keeps(self, unit: NDArray[np.intp], columns: Columns) -> NDArray[np.bool_]:
        """Returns which records stay, given each one's unit, ascending: see ``UnitCosts.keeps``."""
        return self.costs.keeps(unit, self.words.codes(columns))

"""Encoded batches: records of a domain as integer columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.encoding.layouts import Mask
from beam_dp.privacy.unit_costs import UnitCosts


@dataclass(frozen=True, eq=False, repr=False)
class EncodedBatch:
    """Records inside the domain, as one cell index each or as one code column an attribute.

    Exactly one of ``cells`` and ``codes`` is given: cells where the domain has an index and
    the summary counts cells, else codes.

    Args:
        cells: shape (n,), any integer type, cell indices.
        codes: one array of shape (n,) an attribute, any integer type.
        units: shape (2, n), uint64, the 128-bit fingerprint of each record's privacy unit;
            None once contributions are limited, or where the unit is the record.
    """

    cells: NDArray[Any] | None = None
    codes: Sequence[NDArray[Any]] | None = None
    units: NDArray[np.uint64] | None = None

    def __post_init__(self) -> None:
        if (self.cells is None) == (self.codes is None):
            raise ValueError("a batch holds either cells or codes")

    def __repr__(self) -> str:
        return "EncodedBatch(secret)"

    def cell_index(self, domain: Domain) -> NDArray[Any]:
        """Returns the cell of each record, shape (n,)."""
        if self.cells is not None:
            return self.cells
        assert self.codes is not None
        return domain.cell_index(self.codes)

    def code_columns(self, domain: Domain) -> Sequence[NDArray[Any]]:
        """Returns the codes of each attribute, arrays of shape (n,)."""
        if self.codes is not None:
            return self.codes
        assert self.cells is not None
        return domain.codes(self.cells)


@dataclass(frozen=True, eq=False, repr=False)
class WindowBatch:
    """Records inside the domain that count in some window, as one cell index each.

    Args:
        numbers: shape (n,), any integer type, the window of each.
        cells: shape (n,), any integer type.
        units: shape (2, n), uint64, fingerprints of their privacy units; None where the unit is
            the record.
    """

    numbers: NDArray[Any]
    cells: NDArray[Any]
    units: NDArray[np.uint64] | None = None

    def __repr__(self) -> str:
        return "WindowBatch(secret)"


def left_out_records(
    codes: Sequence[NDArray[Any]], outside: Mask, units: NDArray[np.uint64] | None
) -> EncodedBatch:
    """Returns the records outside the domain, as cells: the first attribute that each one fails.

    Args:
        codes: of each attribute, in domain order, shape (n,), -1 where the value has no level.
        outside: shape (n,), which records are outside.
        units: shape (2, n), fingerprints of their units, or None.

    Returns:
        One record for each that is outside, in their order, whatever number of attributes it
        fails. Its cell is the position of the first one; the number of attributes, if it fails
        none and matches an impossible combination.
    """
    places = np.flatnonzero(outside)
    failed = np.full(len(places), len(codes))
    for axis in reversed(range(len(codes))):
        failed[codes[axis].take(places) < 0] = axis
    return EncodedBatch(cells=failed, units=None if units is None else units.take(places, axis=1))


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
        return EncodedBatch(codes=self.codes(columns))

    def codes(self, columns: Columns) -> list[NDArray[np.int64]]:
        """Returns the codes of each attribute of records, shape (n,) each."""
        if self.domain.has_index:
            return list(self.domain.codes(columns[0].astype(np.int64)))
        groups = zip(self.domain.groups, columns, strict=True)
        return [column for group, word in groups for column in group.codes(word.astype(np.int64))]


class WindowWords:
    """Encoded records with the windows that they count in, as two integer columns.

    Args:
        domain: the universe; it must have an index.
    """

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
    """Returns records with their units and counts as bytes.

    Counts take no more bytes than the largest one needs, and none where each is 1; the last byte
    says how many.

    Args:
        words: how records travel.
        units: shape (2, n), fingerprints.
        columns: the records, arrays of shape (n,).
        counts: shape (n,), how many records each stands for, >= 1.
    """
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
        """Returns which records stay: see ``UnitCosts.keeps``.

        Args:
            unit: shape (n,), ascending.
            columns: the records, of shape (n,) each.
        """
        return self.costs.keeps(unit, self.words.codes(columns))

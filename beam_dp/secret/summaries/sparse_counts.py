"""Exact counts of universe elements, keys, values of open columns, and records of units."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.texts import Element
from beam_dp.domain.universe import Domain
from beam_dp.privacy.discovery import record_levels
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.secret.encoding.batch import Columns, KeyBatch
from beam_dp.secret.encoding.contributions import distinct_units
from beam_dp.secret.encoding.layouts import not_null
from beam_dp.secret.encoding.open_values import (
    OpenColumns,
    ValueWords,
    encode_values,
    kept_values,
    prefix_of,
)
from beam_dp.secret.encoding.records import EncodedBatch, encode_records
from beam_dp.secret.encoding.units import mix, short_values
from beam_dp.secret.summaries.histogram import HistogramAccumulator

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
        weights = np.concatenate([np.zeros(0, np.int64), *(part for _, part in parts)])
        elements, where = np.unique(keys, return_inverse=True)
        counts = _capped_sums(where, weights, len(elements))
        mask = counts > 0
        return cls(elements[mask], counts[mask])


def _capped_sums(where: NDArray[np.intp], weights: NDArray[np.int64], size: int) -> NDArray[Any]:
    """Returns the sum of the weights at each place, at most ``MOST``."""
    # Adds low and high halves separately; records that fit in memory can't overflow a half.
    low, high = np.zeros((2, size), np.int64)
    np.add.at(low, where, weights & _LOW)
    np.add.at(high, where, weights >> _HALF)
    high += low >> _HALF
    return np.where(high < MOST >> _HALF, (high << _HALF) + (low & _LOW), MOST)


def merged_by_name(batches: Sequence[KeyBatch]) -> KeyBatch:
    """Returns the sum of the weights of each name, with its text if one of the batches has it.

    Names without weight are kept, because their texts may belong to weights in other batches.
    """
    parts = [batch.names for batch in batches if batch.names is not None]
    names = np.concatenate([_NAMELESS, *parts], axis=1)
    keys = np.concatenate([np.zeros(0, np.uint64), *(batch.keys for batch in batches)])
    weights = np.concatenate([np.zeros(0, np.int64), *(batch.weights for batch in batches)])
    distinct, places = distinct_units(names)
    merged_keys = np.empty(distinct.shape[1], np.uint64)
    merged_keys[places] = keys
    sums = _capped_sums(places, weights, distinct.shape[1])
    texts = pa.concat_arrays(
        [
            pa.array([], pa.large_binary()),
            *(batch.texts for batch in batches if batch.texts is not None),
        ]
    )
    if not len(texts):
        return KeyBatch(merged_keys, sums, names=distinct)
    has_texts = np.concatenate(
        [np.full(batch.num_rows, batch.texts is not None) for batch in batches]
    )
    named = not_null(texts)
    row_of = np.full(distinct.shape[1], -1)
    row_of[places[has_texts][named]] = np.flatnonzero(named)
    kept = texts.take(pa.array(row_of, mask=row_of < 0))
    return KeyBatch(merged_keys, sums, names=distinct, texts=kept)


def known_texts(merged: KeyBatch) -> pa.Array:
    """Returns the text of each row, as it was sent or as its name contains it; else null."""
    import pyarrow.compute as pc

    if merged.names is None:
        assert merged.texts is not None
        return merged.texts
    contained = short_values(merged.names)
    return contained if merged.texts is None else pc.coalesce(merged.texts, contained)


def merged_by_text(batches: Sequence[KeyBatch]) -> KeyBatch:
    """Returns the sum of the weights of each text, for batches whose texts determine the keys."""
    texts = [batch.texts for batch in batches if batch.texts is not None]
    encoded = pa.concat_arrays([pa.array([], pa.large_binary()), *texts]).dictionary_encode()
    places = encoded.indices.to_numpy()
    keys = np.empty(len(encoded.dictionary), np.uint64)
    keys[places] = np.concatenate([keys[:0], *(batch.keys for batch in batches)])
    weights = np.concatenate([np.zeros(0, np.int64), *(batch.weights for batch in batches)])
    return KeyBatch(keys, _capped_sums(places, weights, len(keys)), texts=encoded.dictionary)


_TEXT_PARTITIONS = 2**8
_HASHED_TEXTS = 2**14


def split_by_text(batch: KeyBatch) -> Iterator[tuple[int, KeyBatch]]:
    """Yields (partition, rows) for each of 256 partitions; equal texts are in the same one."""
    assert batch.texts is not None
    starts = range(0, batch.num_rows, _HASHED_TEXTS)
    hashed = [_partitions(batch.texts.slice(start, _HASHED_TEXTS)) for start in starts]
    numbers = np.concatenate([np.zeros(0, np.uint8), *hashed])
    order = np.argsort(numbers, kind="stable")
    keys, weights = batch.keys.take(order), batch.weights.take(order)
    texts = batch.texts.take(pa.array(order))
    stops = np.cumsum(np.bincount(numbers, minlength=_TEXT_PARTITIONS)).tolist()
    for number, (start, stop) in enumerate(itertools.pairwise([0, *stops])):
        if start < stop:
            part = slice(start, stop)
            yield (
                number,
                KeyBatch(keys[part], weights[part], texts=texts.slice(start, stop - start)),
            )


def _partitions(texts: pa.Array) -> NDArray[np.uint8]:
    """Returns 8 bits of a hash of each text's length and of its first, middle and last bytes.

    The hash only spreads the work over partitions. Texts are compared by all of their bytes.
    """
    _, offsets, data = texts.buffers()
    ends = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    used = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]] if data else np.zeros(0, np.uint8)
    padded = np.concatenate((used, np.zeros(8, np.uint8)))
    # The eight bytes from each position on, as one word.
    words = np.ndarray(len(used) + 1, "<u8", padded, 0, (1,))
    starts, lengths = ends[:-1] - ends[0], np.diff(ends)
    rest = np.maximum(lengths - 8, 0)
    # Shifts out the bytes after the end of a short text.
    outside = (8 * np.clip(8 - lengths, 0, 7)).astype(np.uint64)
    hashes = lengths.astype(np.uint64)
    for place in (starts, starts + rest // 2, starts + rest):
        hashes = mix(hashes ^ (words[place] << outside))
    hashes[lengths == 0] = 0
    return (hashes >> np.uint64(56)).astype(np.uint8)


_NAMELESS = np.zeros((2, 0), np.uint64)


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


# Exact weights of the values of open columns, and how one table in memory is counted.


@dataclass(frozen=True, eq=False, repr=False)
class ValueCounts:
    """The sums of the weights of values, in steps of 1 / GRID of a unit. Secret.

    ``texts``: by column, the texts that have any weight, as large binary, and their sums, int64.
    ``leaves``: by column, the sum of each leaf, shape (num_levels,), int64.
    """

    texts: Mapping[str, tuple[pa.Array, NDArray[np.int64]]]
    leaves: Mapping[str, NDArray[np.int64]]

    def __repr__(self) -> str:
        return "ValueCounts(secret)"


def value_counts(columns: OpenColumns, counts: ElementCounts) -> ValueCounts:
    """Returns the sums of each column, from sums whose elements are the numbers of columns."""
    import pyarrow.compute as pc

    assert counts.texts is not None
    texts: dict[str, tuple[pa.Array, NDArray[np.int64]]] = {}
    leaves = {}
    for number, attribute in enumerate(columns.attributes):
        rows = np.flatnonzero(counts.elements == number)
        sums = counts.counts.take(rows)
        rest = counts.texts.take(pa.array(rows))
        rest = pc.binary_replace_slice(rest, 0, len(prefix_of(number)), b"")
        if number < len(columns.texts):
            texts[attribute.name] = rest, sums
        else:
            leaves[attribute.name] = np.zeros(attribute.num_levels, np.int64)
            leaves[attribute.name][[int(text) for text in rest.to_pylist()]] = sums
    return ValueCounts(texts, leaves)


def counted_values(
    columns: OpenColumns, guarantee: Guarantee, batches: Iterable[pa.RecordBatch]
) -> ValueCounts:
    """Returns the exact sums of a table in memory; ``batches`` contain all of its records."""
    tables = [
        pair for batch in batches for pair in encode_values(columns, guarantee.privacy_unit, batch)
    ]
    values = [value for value, _ in tables]
    if guarantee.privacy_unit == RECORD:
        return value_counts(columns, _counts(merged_by_text(values)))
    limit = guarantee.max_records_per_unit
    units, *words = _columns(values)
    kept = kept_values(len(columns.texts), limit, units, words, np.ones(len(words[0]), np.int64))
    texts = [text for _, text in tables if text is not None]
    return value_counts(columns, _counts(merged_by_name([kept, *texts])))


def _columns(values: list[KeyBatch]) -> list[NDArray[Any]]:
    """Returns the units and the words of all rows."""
    words = ValueWords()
    units: list[NDArray[Any]] = [np.zeros((2, 0), np.uint64)]
    parts = [[np.zeros(0, dtype) for dtype in words.dtypes]]
    for value in values:
        assert value.units is not None
        units.append(value.units)
        parts.append(words.from_batch(value))
    return [np.concatenate(units, axis=1), *map(np.concatenate, zip(*parts, strict=True))]


def _counts(merged: KeyBatch) -> ElementCounts:
    places = np.flatnonzero(merged.weights)
    texts = known_texts(merged)
    return ElementCounts(merged.keys[places], merged.weights[places], texts.take(pa.array(places)))


# Exact numbers of privacy units by their numbers of records.


class UnitWords:
    """Records without any columns: only their units are of interest."""

    dtypes: Sequence[np.dtype[np.uint64]] = ()

    def from_batch(self, batch: EncodedBatch) -> Columns:
        """Returns no columns."""
        return []

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> EncodedBatch:
        """Returns records without columns and without units."""
        return EncodedBatch(codes=[])


def levels_counter(limit: int) -> HistogramAccumulator:
    """Returns the accumulator that counts the units of each level."""
    levels = IntegerAttribute("level", 0, len(record_levels(limit)) - 1)
    return HistogramAccumulator(Domain((levels,)))


def levels_of_units(
    units: NDArray[np.uint64], counts: NDArray[np.int64], limit: int
) -> NDArray[np.int64]:
    """Returns the level of each distinct unit, by its number of records; no order.

    ``units``: fingerprints, shape (2, n), which contain all records of each unit.
    ``counts``: the number of records of each row, shape (n,), >= 1.
    """
    distinct, places = distinct_units(units)
    sums = np.zeros(distinct.shape[1], np.int64)
    np.add.at(sums, places, counts)
    return np.searchsorted(record_levels(limit), sums, side="right").astype(np.int64) - 1


def counted_units(
    declared: Domain, privacy_unit: str, max_records: int, batches: Iterable[pa.RecordBatch]
) -> NDArray[np.int64]:
    """Returns the number of units in each level, of a table in memory; no unit is the record."""
    encoded = [encode_records(declared, privacy_unit, False, batch) for batch in batches]
    units = [_NAMELESS, *(batch.units for batch in encoded if batch.units is not None)]
    together = np.concatenate(units, axis=1)
    levels = levels_of_units(together, np.ones(together.shape[1], np.int64), max_records)
    return np.bincount(levels, minlength=len(record_levels(max_records))).astype(np.int64)

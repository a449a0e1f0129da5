"""Exact weights of the values of open columns, and how one table in memory is counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.privacy.discovery import record_levels
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.secret.encoding.batch import Columns, KeyBatch
from beam_dp.secret.encoding.contributions import distinct_units
from beam_dp.secret.encoding.open_values import (
    OpenColumns,
    ValueWords,
    encode_values,
    kept_values,
    prefix_of,
)
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.element_counts import (
    ElementCounts,
    known_texts,
    merged_by_name,
    merged_by_text,
)
from beam_dp.secret.summaries.histogram import HistogramAccumulator

if TYPE_CHECKING:
    import pyarrow as pa


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
    import pyarrow as pa
    import pyarrow.compute as pc

    assert counts.texts is not None
    texts: dict[str, tuple[pa.Array, NDArray[np.int64]]] = {}
    leaves = {}
    for number, attribute in enumerate(columns.attributes):
        rows = np.flatnonzero(counts.elements == number)
        sums = counts.counts.take(rows)
        own = counts.texts.take(pa.array(rows))
        own = pc.binary_replace_slice(own, 0, len(prefix_of(number)), b"")
        if number < len(columns.texts):
            texts[attribute.name] = own, sums
        else:
            leaves[attribute.name] = np.zeros(attribute.num_levels, np.int64)
            leaves[attribute.name][[int(text) for text in own.to_pylist()]] = sums
    return ValueCounts(texts, leaves)


def counted_values(
    columns: OpenColumns, guarantee: Guarantee, batches: Iterable[pa.RecordBatch]
) -> ValueCounts:
    """Returns the exact sums of a table in memory; ``batches`` contain all of its records."""
    found = [
        pair for batch in batches for pair in encode_values(columns, guarantee.privacy_unit, batch)
    ]
    values = [value for value, _ in found]
    if guarantee.privacy_unit == RECORD:
        return value_counts(columns, _counts(merged_by_text(values)))
    most = guarantee.max_records_per_unit
    units, *words = _columns(values)
    kept = kept_values(len(columns.texts), most, units, words, np.ones(len(words[0]), np.int64))
    texts = [text for _, text in found if text is not None]
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
    import pyarrow as pa

    held = np.flatnonzero(merged.weights)
    texts = known_texts(merged)
    return ElementCounts(merged.keys[held], merged.weights[held], texts.take(pa.array(held)))


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


def levels_counter(most: int) -> HistogramAccumulator:
    """Returns the accumulator that counts the units of each level."""
    levels = IntegerAttribute("level", 0, len(record_levels(most)) - 1)
    return HistogramAccumulator(Domain((levels,)))


def levels_of_units(
    units: NDArray[np.uint64], counts: NDArray[np.int64], most: int
) -> NDArray[np.int64]:
    """Returns the level of each distinct unit, by its number of records; no order.

    ``units``: fingerprints, shape (2, n), which contain all records of each unit.
    ``counts``: the number of records of each row, shape (n,), >= 1.
    """
    distinct, places = distinct_units(units)
    sums = np.zeros(distinct.shape[1], np.int64)
    np.add.at(sums, places, counts)
    return np.searchsorted(record_levels(most), sums, side="right").astype(np.int64) - 1

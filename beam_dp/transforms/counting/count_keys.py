"""The transforms that encode and count keys, and count undeclared values and privacy units."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.hashing.keys import HashKey
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.secret.encoding.batch import KeyBatch
from beam_dp.secret.encoding.contributions import split_by_unit
from beam_dp.secret.encoding.keys import (
    KeyColumns,
    clamped_numbers,
    key_elements,
    named_key_elements,
)
from beam_dp.secret.encoding.open_values import OpenColumns, ValueWords, encode_values, kept_values
from beam_dp.secret.encoding.records import EncodedBatch, column_of
from beam_dp.secret.encoding.units import mix, unit_fingerprints
from beam_dp.secret.summaries.sparse_counts import (
    ElementCounts,
    UnitWords,
    ValueCounts,
    known_texts,
    levels_counter,
    levels_of_units,
    merged_by_name,
    merged_by_text,
    split_by_text,
    value_counts,
)
from beam_dp.transforms.counting.limit_contributions import PARTITIONS, PartitionUnits, UnitRows
from beam_dp.transforms.counting.summarise import (
    DomainBatches,
    EncodeRecords,
    Summarise,
)
from beam_dp.transforms.job_page import withhold_messages
from beam_dp.transforms.reading.records import RecordBatches, refuse_windows

# Tags of collections: of keys with their weights, and of their texts.
KEYS, TEXTS = "keys", "texts"
# The maximum number of elements in a shard: 4 MiB.
_SHARD_ELEMENTS = 2**18
_BUFFERED_RECORDS = 2**20
_PARTITIONS = 256


class EncodeKeys(beam.PTransform):
    """Encodes records as elements of a huge universe, with weights and privacy units.

    Records without a key, a weight or a unit, or with weight 0, are silently left out, because
    their number is private. Encoding comes before contributions are limited, as in
    ``EncodeRecords``. Weights are clamped to 0..max_weight. The hash key is public and drawn before
    any record is read.

    Output: ``KeyBatch``, as secret as the records. If the columns say ``list_keys``, two
    collections tagged ``KEYS`` and ``TEXTS``. The second contains the keys' texts, of weight 0.
    """

    def __init__(
        self, columns: KeyColumns, max_weight: int, hash_key: HashKey, privacy_unit: str
    ) -> None:
        super().__init__()
        self.columns = columns
        self.privacy_unit = privacy_unit
        self._encode = _EncodeKeys(columns, max_weight, hash_key, privacy_unit)

    def expand(self, records: beam.PCollection[Any]) -> Any:
        """Collects rows in batches, then encodes the batches."""
        needed = {self.columns.key: "key"}
        if self.columns.weight is not None:
            needed[self.columns.weight] = "weight"
        batches = records | "Batches" >> RecordBatches(needed, self.privacy_unit)
        encode = beam.ParDo(self._encode).with_output_types(KeyBatch)
        if not self.columns.list_keys:
            return batches | "Encode" >> encode
        encoded = batches | "Encode" >> encode.with_outputs(TEXTS, main=KEYS)
        encoded[KEYS].element_type, encoded[TEXTS].element_type = KeyBatch, KeyBatch
        return encoded


@dataclasses.dataclass(eq=False, repr=False)
class _EncodeKeys(beam.DoFn):
    columns: KeyColumns
    max_weight: int
    hash_key: HashKey
    privacy_unit: str

    @withhold_messages
    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        column = column_of(batch, self.columns.key)
        key_type, hash_key = self.columns.key_type, self.hash_key
        if not self.columns.list_keys:
            return iter([self._encoded(batch, *key_elements(column, key_type, hash_key))])
        keys, names, keep, texts = named_key_elements(column, key_type, hash_key)
        encoded = self._encoded(batch, keys, keep, names)
        return iter([encoded, *(beam.pvalue.TaggedOutput(TEXTS, text) for text in texts)])

    def _encoded(
        self,
        batch: pa.RecordBatch,
        keys: NDArray[np.uint64],
        keep: NDArray[np.bool_],
        names: NDArray[np.uint64] | None = None,
    ) -> KeyBatch:
        if self.columns.weight is None:
            weights = np.ones(len(keys), np.int64)
        else:
            weights, valid = clamped_numbers(column_of(batch, self.columns.weight), self.max_weight)
            keep = keep & valid & (weights > 0)
        units = None
        if self.privacy_unit != RECORD:
            units, valid = unit_fingerprints(column_of(batch, self.privacy_unit))
            keep = keep & valid
        kept = np.flatnonzero(keep)
        return KeyBatch(
            keys[kept],
            weights[kept],
            None if units is None else units.take(kept, axis=1),
            None if names is None else names.take(kept, axis=1),
        )


class CountElements(beam.PTransform):
    """Adds up the weights per element of ``KeyBatch``: first per bundle, then per partition.

    Output: shards for ``counts_of_shards``, as secret as the records. An element is in one shard.
    """

    def expand(self, records: beam.PCollection[KeyBatch]) -> beam.PCollection[bytes]:
        """Adds up weights per bundle, shuffles once, and adds up weights per partition."""
        refuse_windows(records)
        return (
            records
            | "Merge bundles" >> _merge_bundles(_summed, _element_shards)
            | "Group elements" >> beam.GroupByKey()
            | "Merge partitions" >> beam.ParDo(_MergePartition()).with_output_types(bytes)
        )


def counts_of_shards(shards: Iterable[bytes]) -> ElementCounts:
    """Returns the summed counts of all shards."""
    return ElementCounts.of(map(_read_elements, shards))


def _merge_bundles(merge: Callable[..., Any], shards: Callable[..., Any]) -> beam.ParDo:
    return beam.ParDo(_MergeBundle(merge, shards)).with_output_types(tuple[int, bytes])


@dataclasses.dataclass(eq=False, repr=False)
class _MergeBundle(beam.DoFn):
    """Merges the batches of a bundle; outputs the result when the buffer is full.

    ``merge``: returns one batch for a list of batches.
    ``shards``: returns (partition, bytes) pairs for a batch.
    """

    merge: Callable[[list[Any]], Any]
    shards: Callable[[Any], Iterable[tuple[int, bytes]]]

    def start_bundle(self) -> None:
        self._batches: list[Any] = []
        self._num_buffered = 0

    @withhold_messages
    def process(self, batch: Any) -> Iterable[tuple[int, bytes]]:
        self._batches.append(batch)
        self._num_buffered += batch.num_rows
        if self._num_buffered < _BUFFERED_RECORDS:
            return ()
        merged = self.merge(self._batches)
        self._batches, self._num_buffered = [merged], merged.num_rows
        # Continues buffering if many records were equal; otherwise outputs the batch.
        if 2 * merged.num_rows < _BUFFERED_RECORDS:
            return ()
        self.start_bundle()
        return list(self.shards(merged))

    @withhold_messages
    def finish_bundle(self) -> Iterator[WindowedValue]:
        batches = self._batches
        self.start_bundle()
        shards = list(self.shards(self.merge(batches))) if batches else []
        return iter([beam.window.GlobalWindows.windowed_value(shard) for shard in shards])


def _summed(batches: Iterable[KeyBatch]) -> KeyBatch:
    counts = ElementCounts.of(batches)
    return KeyBatch(counts.elements, counts.counts)


def _element_shards(batch: KeyBatch) -> Iterator[tuple[int, bytes]]:
    # Elements are hashed, because consecutive integers would be in the same partition.
    places = np.stack((mix(batch.keys), batch.keys))
    for number, _, (elements, weights) in split_by_unit(
        places, [batch.keys, batch.weights], _PARTITIONS
    ):
        for shard in _write_elements(ElementCounts(elements, weights)):
            yield number, shard


class _MergePartition(beam.DoFn):
    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
        return _write_elements(counts_of_shards(partition[1]))


def _write_elements(counts: ElementCounts) -> Iterator[bytes]:
    for start in range(0, len(counts.elements), _SHARD_ELEMENTS):
        part = slice(start, start + _SHARD_ELEMENTS)
        elements, sums = counts.elements[part], counts.counts[part]
        yield elements.astype("<u8").tobytes() + sums.astype("<i8").tobytes()


def _read_elements(shard: bytes) -> KeyBatch:
    elements, sums = np.frombuffer(shard, "<u8").reshape(2, -1)
    return KeyBatch(elements.astype(np.uint64), sums.view("<i8").astype(np.int64))


# A listed key takes up to 300 bytes, so this is up to 5 MB.
_SHARD_KEYS = 2**14


class CountListedKeys(beam.PTransform):
    """Adds up the weights of each key, and joins the sums with the texts of the keys.

    Keys are counted by the fingerprints of their texts, which are exact where elements may collide:
    so each text has its own count. Texts of keys without a count are dropped. Short texts need not
    be sent, because their fingerprints contain them.

    Input: one or several collections of ``KeyBatch``, with names, and with weights, texts, or both.
    Output: shards for ``listed_counts``, as secret as the records.
    """

    def expand(self, batches: Any) -> beam.PCollection[bytes]:
        """Merges counts and texts per bundle, shuffles once, and joins them per partition."""
        if not isinstance(batches, beam.PCollection):
            batches = batches | "With texts" >> beam.Flatten()
        refuse_windows(batches)
        return (
            batches
            | "Merge bundles" >> _merge_bundles(merged_by_name, _named_shards)
            | "Group keys" >> beam.GroupByKey()
            | "Join partitions" >> beam.ParDo(_JoinPartition()).with_output_types(bytes)
        )


def listed_counts(shards: Iterable[bytes]) -> ElementCounts:
    """Returns the counts of all shards, with a text or None for each."""
    parts = list(map(read_columns, shards))
    elements = [np.zeros(0, np.uint64), *(part["element"].to_numpy() for part in parts)]
    counts = [np.zeros(0, np.int64), *(part["count"].to_numpy() for part in parts)]
    texts = [pa.array([], pa.large_binary()), *(part["text"] for part in parts)]
    return ElementCounts(np.concatenate(elements), np.concatenate(counts), pa.concat_arrays(texts))


def _named_shards(batch: KeyBatch) -> Iterator[tuple[int, bytes]]:
    assert batch.names is not None
    columns = [batch.keys, batch.weights, np.arange(batch.num_rows)]
    for number, names, (elements, counts, rows) in split_by_unit(batch.names, columns, _PARTITIONS):
        texts = {} if batch.texts is None else {"text": batch.texts.take(pa.array(rows))}
        yield number, write_columns(names, element=elements, count=counts, **texts)


class _JoinPartition(beam.DoFn):
    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
        """Yields the counts of a partition's keys, with their texts."""
        return iter(list(listed_shards(merged_by_name(list(map(_named_batch, partition[1]))))))


def listed_shards(merged: KeyBatch) -> Iterator[bytes]:
    """Yields the keys that have weight, with their texts, as shards for ``listed_counts``."""
    counted = np.flatnonzero(merged.weights)
    texts = known_texts(merged)
    for start in range(0, len(counted), _SHARD_KEYS):
        part = counted[start : start + _SHARD_KEYS]
        yield write_columns(
            element=merged.keys[part],
            count=merged.weights[part],
            text=texts.take(pa.array(part)),
        )


def _named_batch(shard: bytes) -> KeyBatch:
    read = read_columns(shard)
    names = np.stack([read[name].to_numpy() for name in _NAMES])
    texts = read["text"] if "text" in read.schema.names else None
    return KeyBatch(read["element"].to_numpy(), read["count"].to_numpy(), names=names, texts=texts)


_NAMES = ("first", "second")


def write_columns(names: NDArray[np.uint64] | None = None, **columns: Any) -> bytes:
    """Returns columns, and fingerprints as two more columns, as bytes of one Arrow batch."""
    if names is not None:
        columns |= dict(zip(_NAMES, names, strict=True))
    batch = pa.record_batch(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def read_columns(data: bytes) -> pa.RecordBatch:
    """Returns the batch that ``write_columns`` wrote."""
    with pa.ipc.open_stream(data) as reader:
        return reader.read_next_batch()


# Counts the values of columns that are not declared, in one pass over the records.


_BUFFERED_TEXTS = 2**20
_BUFFERED_BYTES = 2**26


class CountValues(beam.PTransform):
    """Adds up what privacy units add to the values of open columns (``kept_values``).

    Records outside the declared columns, records without a unit and values that are not counted are
    silently left out. All columns are counted in the same pass. If the unit is the record, a worker
    merges equal texts before the only shuffle. Otherwise the values of each unit are limited after
    a shuffle of units and fingerprints; each worker sends a text once per batch, apart from the
    units.

    Privacy: adding or removing a unit moves the sums of each column by at most GRID in L2 norm,
    those of leaves also in L1 norm, whatever the unit has in its records, and its texts that no
    other unit has are at most ``max_records_per_unit`` per column.

    Output: shards for ``counts_of_values``, as secret as the records.
    """

    def __init__(self, columns: OpenColumns, guarantee: Guarantee) -> None:
        super().__init__()
        self.columns = columns
        self.guarantee = guarantee

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[bytes]:
        """Encodes values, limits what each unit adds, and adds up the weights of each value."""
        unit, declared = self.guarantee.privacy_unit, self.columns.declared
        attributes = () if declared is None else declared.attributes
        domain = Domain((*attributes, *self.columns.attributes))
        batches = records | "Batches" >> DomainBatches(domain, unit)
        encode = beam.ParDo(_EncodeValues(self.columns, unit))
        if unit == RECORD:
            values = batches | "Encode" >> encode.with_output_types(KeyBatch)
            return values | "Count" >> _CountTexts()
        encoded = batches | "Encode" >> encode.with_outputs(TEXTS, main=KEYS)
        encoded[KEYS].element_type, encoded[TEXTS].element_type = KeyBatch, KeyBatch
        rows = UnitRows.of(ValueWords(), records.pipeline)
        partition = beam.ParDo(PartitionUnits(rows.words, PARTITIONS, rows.send))
        limit = self.guarantee.max_records_per_unit
        keep = beam.ParDo(_KeepValues(rows, len(self.columns.texts), limit))
        kept = (
            encoded[KEYS]
            | "Partition" >> partition.with_output_types(tuple[int, bytes])
            | "Group units" >> beam.GroupByKey()
            | "Keep values" >> keep.with_output_types(KeyBatch)
        )
        return (kept, encoded[TEXTS]) | "Count" >> CountListedKeys()


def counts_of_values(columns: OpenColumns, shards: Iterable[bytes]) -> ValueCounts:
    """Returns the sums of each column from the shards of ``CountValues``."""
    return value_counts(columns, listed_counts(shards))


class _CountTexts(beam.PTransform):
    """Adds up the weights of texts: first per bundle, then per partition."""

    def expand(self, values: beam.PCollection[KeyBatch]) -> beam.PCollection[bytes]:
        merge, join = beam.ParDo(_MergeTexts()), beam.ParDo(_JoinTexts())
        return (
            values
            | "Merge bundles" >> merge.with_output_types(tuple[int, bytes])
            | "Group texts" >> beam.GroupByKey()
            | "Merge partitions" >> join.with_output_types(bytes)
        )


class _MergeTexts(beam.DoFn):
    """Collects the texts of a bundle by partition, so that equal texts are merged in the cache."""

    def start_bundle(self) -> None:
        self._parts: dict[int, list[KeyBatch]] = {}
        self._num_texts = self._num_bytes = 0

    @withhold_messages
    def process(self, batch: KeyBatch) -> Iterable[tuple[int, bytes]]:
        assert batch.texts is not None
        for number, part in split_by_text(batch):
            self._parts.setdefault(number, []).append(part)
        self._num_texts += batch.num_rows
        self._num_bytes += batch.texts.nbytes
        is_full = self._num_texts >= _BUFFERED_TEXTS or self._num_bytes >= _BUFFERED_BYTES
        return self._flush() if is_full else ()

    @withhold_messages
    def finish_bundle(self) -> Iterator[WindowedValue]:
        return iter([beam.window.GlobalWindows.windowed_value(shard) for shard in self._flush()])

    def _flush(self) -> list[tuple[int, bytes]]:
        parts = self._parts
        self.start_bundle()
        return [
            (number, write_columns(element=part.keys, count=part.weights, text=part.texts))
            for number, batches in parts.items()
            for part in [merged_by_text(batches)]
        ]


class _JoinTexts(beam.DoFn):
    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
        return iter(list(listed_shards(merged_by_text(list(map(_texts, partition[1]))))))


def _texts(shard: bytes) -> KeyBatch:
    read = read_columns(shard)
    return KeyBatch(read["element"].to_numpy(), read["count"].to_numpy(), texts=read["text"])


@dataclasses.dataclass(eq=False, repr=False)
class _EncodeValues(beam.DoFn):
    columns: OpenColumns
    privacy_unit: str

    @withhold_messages
    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        return iter(list(self._encoded(batch)))

    def _encoded(self, batch: pa.RecordBatch) -> Iterator[Any]:
        for values, texts in encode_values(self.columns, self.privacy_unit, batch):
            yield values
            if texts is not None:
                yield beam.pvalue.TaggedOutput(TEXTS, texts)


@dataclasses.dataclass(eq=False, repr=False)
class _KeepValues(beam.DoFn):
    rows: UnitRows
    num_texts: int
    max_records_per_unit: int

    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterator[KeyBatch]:
        rows = self.rows.received(partition[1])
        return iter([kept_values(self.num_texts, self.max_records_per_unit, *rows)])


# Counts privacy units by their numbers of records, in one pass over the records.


@dataclasses.dataclass(eq=False, repr=False)
class CountUnits(beam.PTransform):
    """Counts the units in each level of ``record_levels(most)``, by their numbers of records.

    Records outside the declared attributes and records without a unit are silently left out. Units
    are shuffled once, as fingerprints with the number of their records in a bundle.

    Privacy: a unit is in one level or, without records, in none, whatever it has in its records.

    Output: shards for ``levels_of_shards``, as secret as the records.
    """

    declared: Domain
    privacy_unit: str
    most: int

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[tuple[int, bytes]]:
        """Adds up the records of each unit, then counts units."""
        refuse_windows(records)
        rows = UnitRows.of(UnitWords(), records.pipeline)
        partition = beam.ParDo(PartitionUnits(rows.words, PARTITIONS, rows.send))
        levels = beam.ParDo(_Levels(rows, self.most))
        return (
            records
            | "Encode" >> EncodeRecords(self.declared, self.privacy_unit, as_cells=False)
            | "Partition" >> partition.with_output_types(tuple[int, bytes])
            | "Group units" >> beam.GroupByKey()
            | "Levels" >> levels.with_output_types(EncodedBatch)
            | "Summarise" >> Summarise(levels_counter(self.most))
        )


def levels_of_shards(limit: int, shards: Iterable[tuple[int, bytes]]) -> NDArray[np.int64]:
    """Returns the number of units in each level from the shards of ``CountUnits``."""
    return levels_counter(limit).from_shards(shards).counts


@dataclasses.dataclass(eq=False, repr=False)
class _Levels(beam.DoFn):
    rows: UnitRows
    most: int

    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterator[EncodedBatch]:
        units, _, counts = self.rows.received(partition[1])
        return iter([EncodedBatch(cells=levels_of_units(units, counts, self.most))])

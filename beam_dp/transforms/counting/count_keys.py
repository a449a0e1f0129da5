"""The transforms that add up the weights of keys, by element or by the text of each key."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from beam_dp.secret.encoding.batch import KeyBatch
from beam_dp.secret.encoding.contributions import split_by_unit
from beam_dp.secret.encoding.units import mix
from beam_dp.secret.summaries.element_counts import ElementCounts, known_texts, merged_by_name
from beam_dp.transforms.job_page import withhold_messages
from beam_dp.transforms.reading.records import refuse_windows

# Tags of collections: of keys with their weights, and of their texts.
KEYS, TEXTS = "keys", "texts"
# The maximum number of elements in a shard: 4 MiB.
_SHARD_ELEMENTS = 2**18
_BUFFERED_RECORDS = 2**20
_PARTITIONS = 256


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
        return iter(list(_joined_shards(partition[1])))


def _joined_shards(shards: Iterable[bytes]) -> Iterator[bytes]:
    """Yields the counts of a partition's keys, with their texts."""
    return listed_shards(merged_by_name(list(map(_named_batch, shards))))


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

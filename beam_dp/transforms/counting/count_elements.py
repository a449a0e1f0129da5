"""The transform from weighted elements to the exact sum of each, as shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue

from beam_dp.encoding.contributions import split_by_unit
from beam_dp.encoding.key_batch import KeyBatch
from beam_dp.encoding.units import mix
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.reading.records import refuse_windows

# Elements of one shard: at most 4 MiB.
_SHARD_ELEMENTS = 2**18
_BUFFERED_RECORDS = 2**20
_PARTITIONS = 256


class CountElements(beam.PTransform):
    """Adds up the weights of each element: in each bundle, then by partitions of the elements.

    Input: ``KeyBatch``.

    Raises:
        InputError: when applied, if the records are windowed or unbounded.

    Output: shards for ``counts_of_shards``; every element is in one of them. They are as secret as
    the records.
    """

    def expand(self, records: beam.PCollection[KeyBatch]) -> beam.PCollection[bytes]:
        """Merges bundles, shuffles once, merges partitions."""
        refuse_windows(records)
        return (
            records
            | "Merge bundles" >> beam.ParDo(_MergeBundle()).with_output_types(tuple[int, bytes])
            | "Group elements" >> beam.GroupByKey()
            | "Merge partitions" >> beam.ParDo(_MergePartition()).with_output_types(bytes)
        )


def counts_of_shards(shards: Iterable[bytes]) -> ElementCounts:
    """Returns the counts of all shards."""
    return ElementCounts.of(map(_read, shards))


class _MergeBundle(beam.DoFn):
    """Collects the elements of a bundle, and sends each one once, or now and then again."""

    def start_bundle(self) -> None:
        self._batches: list[KeyBatch] = []
        self._num_buffered = 0

    @withhold_messages
    def process(self, batch: KeyBatch) -> Iterable[tuple[int, bytes]]:
        self._batches.append(batch)
        self._num_buffered += len(batch.keys)
        if self._num_buffered < _BUFFERED_RECORDS:
            return ()
        counts = ElementCounts.of(self._batches)
        self._batches = [KeyBatch(counts.elements, counts.counts)]
        self._num_buffered = len(counts.elements)
        # Elements that repeat themselves stay here; else there is nothing to be gained.
        return self._flush() if 2 * self._num_buffered >= _BUFFERED_RECORDS else ()

    @withhold_messages
    def finish_bundle(self) -> Iterator[WindowedValue]:
        return iter([GlobalWindows.windowed_value(shard) for shard in self._flush()])

    def _flush(self) -> list[tuple[int, bytes]]:
        counts = ElementCounts.of(self._batches)
        self.start_bundle()
        # Integers that follow each other spread over partitions only when they are mixed.
        places = np.stack((mix(counts.elements), counts.elements))
        return [
            (number, shard)
            for number, _, (elements, weights) in split_by_unit(
                places, [counts.elements, counts.counts], _PARTITIONS
            )
            for shard in _written(ElementCounts(elements, weights))
        ]


class _MergePartition(beam.DoFn):
    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterator[bytes]:
        return _written(counts_of_shards(partition[1]))


def _written(counts: ElementCounts) -> Iterator[bytes]:
    for start in range(0, len(counts.elements), _SHARD_ELEMENTS):
        part = slice(start, start + _SHARD_ELEMENTS)
        elements, sums = counts.elements[part], counts.counts[part]
        yield elements.astype("<u8").tobytes() + sums.astype("<i8").tobytes()


def _read(shard: bytes) -> KeyBatch:
    elements, sums = np.frombuffer(shard, "<u8").reshape(2, -1)
    return KeyBatch(elements.astype(np.uint64), sums.view("<i8").astype(np.int64))

"""The transforms from records to one exact summary, as shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import KeyBatch
from beam_dp.encoding.contributions import split_by_unit
from beam_dp.encoding.records import EncodedBatch
from beam_dp.encoding.units import mix
from beam_dp.mechanisms.left_out import LeftOutPlan
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.summaries.element_counts import ElementCounts
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.summaries.shards import (
    Accumulator,
    add_shard,
    merge_shards,
    shard_length,
    sum_shards,
    write_shard,
)
from beam_dp.transforms.counting.encode import INSIDE, LEFT_OUT, EncodeRecords
from beam_dp.transforms.counting.limit_contributions import limited
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.reading.records import refuse_windows


class Summarise(beam.PTransform):
    """Reduces encoded records to a summary: in each bundle, then block by block in a tree.

    Output: (block, shard) pairs, at most one for each block, for ``accumulator.from_shards``; none
    for no records. They are as secret as the records.
    """

    def __init__(self, accumulator: Accumulator[Any, Any, Any]) -> None:
        super().__init__()
        self.accumulator = accumulator

    def expand(
        self, records: beam.PCollection[EncodedBatch]
    ) -> beam.PCollection[tuple[int, bytes]]:
        """Counts each bundle, then adds the shards of each block."""
        refuse_windows(records)
        count = beam.ParDo(_CountBundle(self.accumulator))
        return add_shards(records | "Count bundles" >> count.with_output_types(tuple[int, bytes]))


class _CountBundle(beam.DoFn):
    """Counts the records of a bundle, and sends the counts when it ends."""

    def __init__(self, accumulator: Accumulator[Any, Any, Any]) -> None:
        self.accumulator = accumulator

    def start_bundle(self) -> None:
        self._state = self.accumulator.create()

    @withhold_messages
    def process(self, batch: EncodedBatch) -> None:
        self._state = self.accumulator.add_batch(self._state, batch)

    @withhold_messages
    def finish_bundle(self) -> Iterator[WindowedValue]:
        state, self._state = self._state, None
        shards = self.accumulator.to_shards(state)
        return (GlobalWindows.windowed_value(shard) for shard in shards)


def add_shards(shards: beam.PCollection[tuple[int, bytes]]) -> beam.PCollection[tuple[int, bytes]]:
    """Returns the sum of the shards of each block, in each window of the collection."""
    return shards | "Add shards" >> beam.CombinePerKey(_AddShards())


class _AddShards(beam.CombineFn):
    """Adds shards of one block. An accumulator is a shard until a second one comes."""

    def create_accumulator(self) -> bytes | NDArray[np.int64]:
        return b""

    @withhold_messages
    def add_input(
        self, accumulator: bytes | NDArray[np.int64], shard: bytes
    ) -> bytes | NDArray[np.int64]:
        if isinstance(accumulator, bytes):
            return sum_shards([accumulator, shard]) if accumulator else shard
        longer = shard_length(shard) - accumulator.size
        if longer > 0:
            accumulator = np.pad(accumulator, (0, longer))
        add_shard(accumulator, shard)
        return accumulator

    @withhold_messages
    def merge_accumulators(self, accumulators: Iterable[Any]) -> bytes:
        return merge_shards(shard for each in accumulators if (shard := self.compact(each)))

    @withhold_messages
    def compact(self, accumulator: bytes | NDArray[np.int64]) -> bytes:
        return accumulator if isinstance(accumulator, bytes) else write_shard(accumulator)

    def extract_output(self, accumulator: bytes | NDArray[np.int64]) -> bytes:
        return self.compact(accumulator)


def limited_records(
    records: beam.PCollection[Any],
    domain: Domain,
    guarantee: Guarantee,
    *,
    as_cells: bool,
    unit_costs: UnitCosts | None,
    left_out: LeftOutPlan | None = None,
) -> tuple[beam.PCollection[EncodedBatch], beam.PCollection[tuple[int, bytes]] | None]:
    """Returns at most k records a unit inside a domain, and shards of how many others there are.

    Records inside the domain and outside it are limited separately, each kind as a function of the
    unit's own records of that kind: those outside do not push out those inside.

    The plan's ``unit_costs`` limit only the records inside the domain; ``left_out`` says how the
    others are counted, if they are.
    """
    refuse_windows(records)
    unit = guarantee.privacy_unit
    encode = EncodeRecords(domain, unit, as_cells=as_cells, keep_left_out=left_out is not None)
    encoded = records | "Encode" >> encode
    if left_out is None:
        return limited(encoded, domain, guarantee, unit_costs=unit_costs), None
    inside = limited(encoded[INSIDE], domain, guarantee, unit_costs=unit_costs)
    # Their noise is that for k of them.
    outside = limited(
        encoded[LEFT_OUT], left_out.domain, guarantee, "Limit left out", unit_costs=None
    )
    accumulator = HistogramAccumulator(left_out.domain)
    return inside, outside | "Summarise left out" >> Summarise(accumulator)


class CountCells(beam.PTransform):
    """Encodes records, limits what a unit contributes, and counts the cells of a domain.

    Output: shards for ``HistogramAccumulator.from_shards``, as secret as the records.
    """

    def __init__(
        self, domain: Domain, guarantee: Guarantee, *, unit_costs: UnitCosts | None
    ) -> None:
        super().__init__()
        self.unit_costs = unit_costs
        self.domain = domain
        self.guarantee = guarantee

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[tuple[int, bytes]]:
        """Encodes, limits contributions, counts."""
        encoded, _ = limited_records(
            records, self.domain, self.guarantee, as_cells=True, unit_costs=self.unit_costs
        )
        return encoded | "Summarise" >> Summarise(HistogramAccumulator(self.domain))


# Elements of one shard: at most 4 MiB.
_SHARD_ELEMENTS = 2**18
_BUFFERED_RECORDS = 2**20
_PARTITIONS = 256


class CountElements(beam.PTransform):
    """Adds up the weights of each element of ``KeyBatch``: in each bundle, then by partitions.

    Output: shards for ``counts_of_shards``, each element in one; as secret as the records.
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
    return ElementCounts.of(map(_read_elements, shards))


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
        # Keeps the elements if many were equal; otherwise waiting for more gains nothing.
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
            for shard in _write_elements(ElementCounts(elements, weights))
        ]


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

"""The transform from encoded records to one exact summary, as shards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.transforms.window import GlobalWindows
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from beam_dp.encoding.batch import EncodedBatch
from beam_dp.summaries.accumulator import Accumulator
from beam_dp.summaries.shards import (
    add_shard,
    merge_shards,
    shard_length,
    sum_shards,
    write_shard,
)
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.reading.records import refuse_windows


class Summarise(beam.PTransform):
    """Reduces encoded records to a summary: in each bundle, then block by block in a tree.

    Raises:
        InputError: when applied, if the records are windowed or unbounded.

    Output: (block, shard) pairs, at most one a block, for ``accumulator.from_shards``; none for
    no records. They are as secret as the records.
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

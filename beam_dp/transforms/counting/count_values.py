"""Counts the values of columns that are not declared, in one pass over the records."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.secret.encoding.batch import KeyBatch, from_bytes
from beam_dp.secret.encoding.open_values import OpenColumns, ValueWords, encode_values, kept_values
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.summaries.element_counts import (
    UnitWords,
    ValueCounts,
    levels_counter,
    levels_of_units,
    merged_by_text,
    split_by_text,
    value_counts,
)
from beam_dp.transforms.counting.count_keys import (
    KEYS,
    TEXTS,
    CountListedKeys,
    listed_counts,
    listed_shards,
    read_columns,
    write_columns,
)
from beam_dp.transforms.counting.limit_contributions import PARTITIONS, PartitionUnits, send_as_one
from beam_dp.transforms.counting.summarise import (
    DomainBatches,
    EncodeRecords,
    Summarise,
)
from beam_dp.transforms.job_page import withhold_messages
from beam_dp.transforms.reading.records import refuse_windows

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
        known = () if declared is None else declared.attributes
        domain = Domain((*known, *self.columns.attributes))
        batches = records | "Batches" >> DomainBatches(domain, unit)
        encode = beam.ParDo(_EncodeValues(self.columns, unit))
        if unit == RECORD:
            values = batches | "Encode" >> encode.with_output_types(KeyBatch)
            return values | "Count" >> _CountTexts()
        encoded = batches | "Encode" >> encode.with_outputs(TEXTS, main=KEYS)
        encoded[KEYS].element_type, encoded[TEXTS].element_type = KeyBatch, KeyBatch
        words = ValueWords()
        send = functools.partial(send_as_one, words)
        partition = beam.ParDo(PartitionUnits(words, PARTITIONS, send))
        most = self.guarantee.max_records_per_unit
        keep = beam.ParDo(_KeepValues(len(self.columns.texts), most))
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
    num_texts: int
    max_records_per_unit: int

    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterator[KeyBatch]:
        rows = from_bytes(ValueWords(), partition[1])
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
        words = UnitWords()
        send = functools.partial(send_as_one, words)
        partition = beam.ParDo(PartitionUnits(words, PARTITIONS, send))
        levels = beam.ParDo(_Levels(self.most))
        return (
            records
            | "Encode" >> EncodeRecords(self.declared, self.privacy_unit, as_cells=False)
            | "Partition" >> partition.with_output_types(tuple[int, bytes])
            | "Group units" >> beam.GroupByKey()
            | "Levels" >> levels.with_output_types(EncodedBatch)
            | "Summarise" >> Summarise(levels_counter(self.most))
        )


def levels_of_shards(most: int, shards: Iterable[tuple[int, bytes]]) -> NDArray[np.int64]:
    """Returns the number of units in each level from the shards of ``CountUnits``."""
    return levels_counter(most).from_shards(shards).counts


@dataclasses.dataclass(eq=False, repr=False)
class _Levels(beam.DoFn):
    most: int

    @withhold_messages
    def process(self, partition: tuple[int, Iterable[bytes]]) -> Iterator[EncodedBatch]:
        units, _, counts = from_bytes(UnitWords(), partition[1])
        return iter([EncodedBatch(cells=levels_of_units(units, counts, self.most))])

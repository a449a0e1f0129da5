"""Counts the values of columns that are not declared, in one pass over the records."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import KeyBatch, from_bytes
from beam_dp.encoding.open_values import (
    OpenColumns,
    ValueWords,
    encode_values,
    kept_values,
    named,
)
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.summaries.value_counts import ValueCounts, value_counts
from beam_dp.transforms.counting.count_keys import CountListedKeys, listed_counts
from beam_dp.transforms.counting.limit_contributions import PartitionUnits, send_as_one
from beam_dp.transforms.counting.summarise import KEYS, TEXTS, DomainBatches
from beam_dp.transforms.errors import withhold_messages

_PARTITIONS = 256


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
            return values | "Count" >> CountListedKeys(named)
        encoded = batches | "Encode" >> encode.with_outputs(TEXTS, main=KEYS)
        encoded[KEYS].element_type, encoded[TEXTS].element_type = KeyBatch, KeyBatch
        words = ValueWords()
        send = functools.partial(send_as_one, words)
        partition = beam.ParDo(PartitionUnits(words, _PARTITIONS, send))
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

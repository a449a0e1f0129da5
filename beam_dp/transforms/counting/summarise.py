"""The transforms from records to codes or elements, and from these to one exact summary."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.utils.windowed_value import WindowedValue
from numpy.typing import NDArray

from beam_dp.checks import check_choice
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import KeyBatch
from beam_dp.encoding.contributions import split_by_unit
from beam_dp.encoding.keys import clamped_numbers, key_elements
from beam_dp.encoding.records import EncodedBatch, column_of, encode_all_records, encode_records
from beam_dp.encoding.units import mix, unit_fingerprints
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.left_out import LeftOutPlan
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.queries.sparse import KEY_TYPES, KeyType
from beam_dp.queries.sparse_reader import KEY_RULE
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
from beam_dp.transforms.counting.limit_contributions import limited
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.reading.records import RecordBatches, refuse_windows

INSIDE, LEFT_OUT = "inside", "left_out"


class EncodeRecords(beam.PTransform):
    """Encodes records as cells or codes of a domain, with their privacy units.

    Records outside the domain, and those without a unit, are left out, silently: how many
    there are is private. This comes before contributions are limited, so that a unit's
    records outside the domain do not push out those inside; what is left of a unit still
    depends on its own records alone.

    ``as_cells``: whether to encode as cell indices (the domain must have an index) or as codes.

    Output: ``EncodedBatch``, as secret as the records. With ``keep_left_out`` two collections,
    tagged ``INSIDE`` and ``LEFT_OUT``: the second is ``left_out_records``, without the records that
    have no unit, which nothing limits.
    """

    def __init__(
        self, domain: Domain, privacy_unit: str, *, as_cells: bool, keep_left_out: bool = False
    ) -> None:
        super().__init__()
        self.domain = domain
        self.privacy_unit = privacy_unit
        self.as_cells = as_cells
        self.keep_left_out = keep_left_out

    def expand(self, records: beam.PCollection[Any]) -> Any:
        """Collects rows into batches, then encodes."""
        batches = records | "Batches" >> DomainBatches(self.domain, self.privacy_unit)
        step = _Encode(self.domain, self.privacy_unit, self.as_cells, self.keep_left_out)
        encode = beam.ParDo(step).with_output_types(EncodedBatch)
        if not self.keep_left_out:
            return batches | "Encode" >> encode
        encoded = batches | "Encode" >> encode.with_outputs(LEFT_OUT, main=INSIDE)
        encoded[LEFT_OUT].element_type = EncodedBatch
        return encoded


class DomainBatches(RecordBatches):
    """``RecordBatches`` of a domain, the privacy unit and other columns, each with its argument."""

    def __init__(
        self,
        domain: Domain,
        privacy_unit: str,
        others: Mapping[str, str] | None = None,
        *,
        may_be_unbounded: bool = False,
    ) -> None:
        needed = {**dict.fromkeys(domain.names, "domain"), **(others or {})}
        # A unit is the text as it was written: 007 is not 7.
        integers = {
            attribute.name
            for attribute in domain
            if isinstance(attribute, IntegerAttribute) and attribute.name != privacy_unit
        }
        super().__init__(needed, privacy_unit, integers, domain, may_be_unbounded=may_be_unbounded)


class _Encode(beam.DoFn):
    def __init__(
        self, domain: Domain, privacy_unit: str, as_cells: bool, all_records: bool
    ) -> None:
        self.how = domain, privacy_unit, as_cells
        self.all_records = all_records

    @withhold_messages
    def process(self, batch: pa.RecordBatch) -> Iterator[Any]:
        if not self.all_records:
            return iter([encode_records(*self.how, batch)])
        inside, left_out = encode_all_records(*self.how, batch)
        return iter([inside, beam.pvalue.TaggedOutput(LEFT_OUT, left_out)])


@dataclasses.dataclass(frozen=True)
class KeyColumns:
    """Which columns of records make weighted elements; public.

    Args:
        key: the column of keys.
        key_type: what the keys are: ``text``, ``bytes`` or ``integer``; see
            ``encoding.keys.key_elements``.
        weight: the column of whole weights; None where every record weighs 1.

    Raises:
        InputError: if the type is not known, or one column is to be both.
    """

    key: str
    key_type: KeyType = "text"
    weight: str | None = None

    def __post_init__(self) -> None:
        check_choice("key_type", self.key_type, KEY_TYPES)
        if self.weight == self.key:
            raise InputError("weight", self.weight, "must be another column than the key's")

    def stated(self) -> dict[str, str | int | None]:
        """Returns what cards say of them, and of the rule by which keys are read."""
        return {**dataclasses.asdict(self), "rule": KEY_RULE}


class EncodeKeys(beam.PTransform):
    """Encodes records as elements of a huge universe, with weights and privacy units.

    A record without a key, a weight or a unit, or with weight 0, is left out, silently: how many
    there are is private. This comes before contributions are limited, as in ``EncodeRecords``.
    Weights are clamped to 0..max_weight; the hash key is public, drawn before any record is read.

    Output: ``KeyBatch``, as secret as the records.
    """

    def __init__(
        self, columns: KeyColumns, max_weight: int, hash_key: HashKey, privacy_unit: str
    ) -> None:
        super().__init__()
        self.columns = columns
        self.privacy_unit = privacy_unit
        self._encode = _EncodeKeys(columns, max_weight, hash_key, privacy_unit)

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[KeyBatch]:
        """Collects rows into batches, then encodes."""
        needed = {self.columns.key: "key"}
        if self.columns.weight is not None:
            needed[self.columns.weight] = "weight"
        return (
            records
            | "Batches" >> RecordBatches(needed, self.privacy_unit)
            | "Encode" >> beam.ParDo(self._encode).with_output_types(KeyBatch)
        )


@dataclasses.dataclass(eq=False, repr=False)
class _EncodeKeys(beam.DoFn):
    columns: KeyColumns
    max_weight: int
    hash_key: HashKey
    privacy_unit: str

    @withhold_messages
    def process(self, batch: pa.RecordBatch) -> Iterator[KeyBatch]:
        return iter([self._encoded(batch)])

    def _encoded(self, batch: pa.RecordBatch) -> KeyBatch:
        column = column_of(batch, self.columns.key)
        keys, keep = key_elements(column, self.columns.key_type, self.hash_key)
        if self.columns.weight is None:
            weights = np.ones(len(keys), np.int64)
        else:
            weights, valid = clamped_numbers(column_of(batch, self.columns.weight), self.max_weight)
            keep = keep & valid & (weights > 0)
        if self.privacy_unit == RECORD:
            return KeyBatch(keys[keep], weights[keep])
        units, valid = unit_fingerprints(column_of(batch, self.privacy_unit))
        kept = np.flatnonzero(keep & valid)
        return KeyBatch(keys[kept], weights[kept], units.take(kept, axis=1))


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
        return (beam.window.GlobalWindows.windowed_value(shard) for shard in shards)


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


@dataclasses.dataclass(eq=False, repr=False)
class CountCells(beam.PTransform):
    """Encodes records, limits what a unit contributes, and counts the cells of a domain.

    Output: shards for ``HistogramAccumulator.from_shards``, as secret as the records.
    """

    domain: Domain
    guarantee: Guarantee
    _: dataclasses.KW_ONLY
    unit_costs: UnitCosts | None

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
        return iter([beam.window.GlobalWindows.windowed_value(shard) for shard in self._flush()])

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

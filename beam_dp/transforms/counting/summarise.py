"""The transforms that encode records as codes or elements, and reduce them to an exact summary."""

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
from beam_dp.domain.texts import KEY_TYPES, KeyType
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.left_out import LeftOutPlan
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.queries.sparse_reader import KEY_RULE
from beam_dp.secret.encoding.batch import KeyBatch
from beam_dp.secret.encoding.keys import clamped_numbers, key_elements, named_key_elements
from beam_dp.secret.encoding.records import (
    EncodedBatch,
    column_of,
    encode_all_records,
    encode_records,
)
from beam_dp.secret.encoding.units import unit_fingerprints
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.secret.summaries.shards import (
    Accumulator,
    add_shard,
    merge_shards,
    shard_length,
    sum_shards,
    write_shard,
)
from beam_dp.transforms.counting.limit_contributions import limited
from beam_dp.transforms.job_page import withhold_messages
from beam_dp.transforms.reading.records import RecordBatches, lines_of, refuse_windows

INSIDE, LEFT_OUT = "inside", "left_out"
KEYS, TEXTS = "keys", "texts"


class EncodeRecords(beam.PTransform):
    """Encodes records as cells or codes of a domain, with their privacy units.

    Records outside the domain and records without a unit are silently left out, because their
    number is private. Encoding comes before contributions are limited, so that a unit's records
    outside the domain do not displace its records inside. Which records of a unit remain still
    depends only on the unit's own records.

    ``as_cells``: whether to encode as cell indices (the domain must have an index) or as codes.

    Output: ``EncodedBatch``, as secret as the records. With ``keep_left_out``, two collections
    tagged ``INSIDE`` and ``LEFT_OUT``. The second contains ``left_out_records``; records without a
    unit are not in it, because their number could not be limited. If the record is the unit, lines
    of files that are no records are in it, at the first attribute.
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
        """Collects rows in batches, then encodes the batches."""
        batches = records | "Batches" >> DomainBatches(self.domain, self.privacy_unit)
        step = _Encode(self.domain, self.privacy_unit, self.as_cells, self.keep_left_out)
        encode = beam.ParDo(step).with_output_types(EncodedBatch)
        if not self.keep_left_out:
            return batches | "Encode" >> encode
        encoded = batches | "Encode" >> encode.with_outputs(LEFT_OUT, main=INSIDE)
        encoded[LEFT_OUT].element_type = EncodedBatch
        lines = lines_of(records) if self.privacy_unit == RECORD else None
        if lines is None:
            return encoded
        left_out = (encoded[LEFT_OUT], lines) | "All left out" >> beam.Flatten()
        return {INSIDE: encoded[INSIDE], LEFT_OUT: left_out}


class DomainBatches(RecordBatches):
    """``RecordBatches`` with the columns of a domain, of the privacy unit, and additional columns.

    ``others``: maps each additional column to the argument that names the column.
    """

    def __init__(
        self,
        domain: Domain,
        privacy_unit: str,
        others: Mapping[str, str] | None = None,
        *,
        may_be_unbounded: bool = False,
    ) -> None:
        needed = {**dict.fromkeys(domain.names, "domain"), **(others or {})}
        # A unit is read as the text in the file: 007 is not 7.
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
    """The columns that contain keys and weights. Public.

    Args:
        key: the column of keys.
        key_type: the type of the keys: ``text``, ``bytes`` or ``integer`` (see
            ``encoding.keys.key_elements``).
        weight: the column of whole-number weights; None if every record has weight 1.
        list_keys: whether a release of counts lists the texts of its keys, up to 256 bytes long. A
            key is only listed if the count of its own text was released.

    Raises:
        InputError: if the type is unknown, key and weight are the same column, or integers are to
            be listed.
    """

    key: str
    key_type: KeyType = "text"
    weight: str | None = None
    list_keys: bool = False

    def __post_init__(self) -> None:
        check_choice("key_type", self.key_type, KEY_TYPES)
        if self.list_keys and self.key_type == "integer":
            condition = "must be of text or bytes: every release of counts contains its integers"
            raise InputError("list_keys", True, condition)
        if self.weight == self.key:
            raise InputError("weight", self.weight, "must be another column than the key's")

    def stated(self) -> dict[str, str | bool | None]:
        """Returns the entries of a card about the columns and the rule for reading keys."""
        stated = {**dataclasses.asdict(self), "rule": KEY_RULE}
        if not self.list_keys:
            del stated["list_keys"]
        return stated


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
        how = column, self.columns.key_type, self.hash_key
        if not self.columns.list_keys:
            return iter([self._encoded(batch, *key_elements(*how))])
        keys, names, keep, texts = named_key_elements(*how)
        encoded = self._encoded(batch, keys, keep, names)
        return iter([encoded, *(beam.pvalue.TaggedOutput(TEXTS, each) for each in texts)])

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


class Summarise(beam.PTransform):
    """Reduces encoded records to a summary: counts each bundle, then adds up each block's shards.

    Output: (block, shard) pairs for ``accumulator.from_shards``, at most one pair per block, and no
    pairs without records. The shards are as secret as the records.
    """

    def __init__(self, accumulator: Accumulator[Any, Any, Any]) -> None:
        super().__init__()
        self.accumulator = accumulator

    def expand(
        self, records: beam.PCollection[EncodedBatch]
    ) -> beam.PCollection[tuple[int, bytes]]:
        """Counts each bundle, then adds up the shards of each block."""
        refuse_windows(records)
        count = beam.ParDo(_CountBundle(self.accumulator))
        return add_shards(records | "Count bundles" >> count.with_output_types(tuple[int, bytes]))


class _CountBundle(beam.DoFn):
    """Counts the records of a bundle, and outputs the counts at the end of the bundle."""

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
    """Adds up shards of one block. An accumulator is bytes until a second shard is added."""

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
    """Returns at most k records per unit inside a domain, and shards that count left-out records.

    Records inside and outside the domain are limited separately. The kept records of either kind
    are a function of the unit's own records of that kind, so records outside the domain do not
    displace records inside.

    ``unit_costs``: the plan's cost limits, which apply only to records inside the domain.
    ``left_out``: the plan for counting records outside the domain; None to leave them uncounted.
    """
    refuse_windows(records)
    unit = guarantee.privacy_unit
    encode = EncodeRecords(domain, unit, as_cells=as_cells, keep_left_out=left_out is not None)
    encoded = records | "Encode" >> encode
    if left_out is None:
        return limited(encoded, domain, guarantee, unit_costs=unit_costs), None
    inside = limited(encoded[INSIDE], domain, guarantee, unit_costs=unit_costs)
    # The noise of the left-out counts is calibrated for k left-out records per unit.
    outside = limited(
        encoded[LEFT_OUT], left_out.domain, guarantee, "Limit left out", unit_costs=None
    )
    accumulator = HistogramAccumulator(left_out.domain)
    return inside, outside | "Summarise left out" >> Summarise(accumulator)


@dataclasses.dataclass(eq=False, repr=False)
class CountCells(beam.PTransform):
    """Encodes records, limits the contributions of units, and counts the cells of a domain.

    Output: shards for ``HistogramAccumulator.from_shards``, as secret as the records.
    """

    domain: Domain
    guarantee: Guarantee
    _: dataclasses.KW_ONLY
    unit_costs: UnitCosts | None

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[tuple[int, bytes]]:
        """Encodes records, limits contributions, and counts cells."""
        encoded, _ = limited_records(
            records, self.domain, self.guarantee, as_cells=True, unit_costs=self.unit_costs
        )
        return encoded | "Summarise" >> Summarise(HistogramAccumulator(self.domain))

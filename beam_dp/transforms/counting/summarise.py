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

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.left_out import LeftOutPlan
from beam_dp.privacy.guarantee import RECORD, Guarantee
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.secret.encoding.records import (
    EncodedBatch,
    encode_all_records,
    encode_records,
)
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
        return merge_shards(shard for part in accumulators if (shard := self.compact(part)))

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

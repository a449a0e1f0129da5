"""The transform from records to codes of a domain."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain import Domain, IntegerAttribute
from beam_dp.encoding.batch import EncodedBatch, left_out_records
from beam_dp.encoding.columns import column_of, encode_batch, encode_cells
from beam_dp.encoding.texts import Mask
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.privacy.guarantee import RECORD
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.reading.records import RecordBatches

INSIDE, LEFT_OUT = "inside", "left_out"


class EncodeRecords(beam.PTransform):
    """Encodes records as cells or codes of a domain, with their privacy units.

    Records outside the domain, and those without a unit, are left out, silently: how many
    there are is private. This comes before contributions are limited, so that a unit's
    records outside the domain do not push out those inside; what is left of a unit still
    depends on its own records alone.

    Args:
        domain: the universe.
        privacy_unit: the column that names the unit, or ``"record"``.
        as_cells: whether to encode as cell indices (the domain must have an index) or as codes.
        keep_left_out: whether the records outside the domain come out, too.

    Raises:
        InputError: when applied, if the records are windowed or unbounded, or lack a column.

    Output: a collection of ``EncodedBatch``. It is as secret as the records. With
    ``keep_left_out`` two of them, tagged ``INSIDE`` and ``LEFT_OUT``; the second one's are those
    of ``left_out_records``, without the records that have no unit: nothing limits these.
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
        """Batches what is not batched, then encodes."""
        needed = dict.fromkeys(self.domain.names, "domain")
        # A unit is the text as it was written: 007 is not 7.
        integers = {
            attribute.name
            for attribute in self.domain
            if isinstance(attribute, IntegerAttribute) and attribute.name != self.privacy_unit
        }
        batches = records | "Batches" >> RecordBatches(
            needed, self.privacy_unit, integers, self.domain
        )
        step = _Encode(self.domain, self.privacy_unit, self.as_cells, self.keep_left_out)
        encode = beam.ParDo(step).with_output_types(EncodedBatch)
        if not self.keep_left_out:
            return batches | "Encode" >> encode
        encoded = batches | "Encode" >> encode.with_outputs(LEFT_OUT, main=INSIDE)
        encoded[LEFT_OUT].element_type = EncodedBatch
        return encoded


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


def encode_records(
    domain: Domain, privacy_unit: str, as_cells: bool, batch: pa.RecordBatch
) -> EncodedBatch:
    """Returns the records of a batch that are inside the domain and have a unit."""
    if privacy_unit == RECORD and as_cells:
        return EncodedBatch(cells=encode_cells(domain, batch))
    codes, keep = encode_batch(domain, batch)
    units, valid = _units(privacy_unit, batch)
    return _kept(domain, as_cells, codes, units, _both(keep, valid))


def encode_all_records(
    domain: Domain, privacy_unit: str, as_cells: bool, batch: pa.RecordBatch
) -> tuple[EncodedBatch, EncodedBatch]:
    """Returns the records of a batch that have a unit: those inside the domain, and the others.

    The others are as ``left_out_records`` says.
    """
    codes, keep = encode_batch(domain, batch)
    units, valid = _units(privacy_unit, batch)
    inside = _kept(domain, as_cells, codes, units, _both(keep, valid))
    outside = np.zeros(batch.num_rows, np.bool_) if keep is None else ~keep
    if valid is not None:
        outside &= valid
    return inside, left_out_records(codes, outside, units)


def _units(
    privacy_unit: str, batch: pa.RecordBatch
) -> tuple[NDArray[np.uint64] | None, Mask | None]:
    """The unit of each record, and which records have one; None for all."""
    if privacy_unit == RECORD:
        return None, None
    units, valid = unit_fingerprints(column_of(batch, privacy_unit))
    return units, None if valid.all() else valid


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _kept(
    domain: Domain,
    as_cells: bool,
    codes: Sequence[NDArray[Any]],
    units: NDArray[np.uint64] | None,
    keep: Mask | None,
) -> EncodedBatch:
    if keep is not None:
        # Positions are found once; a mask would be searched anew for each column.
        kept = np.flatnonzero(keep)
        codes = [column.take(kept) for column in codes]
        units = None if units is None else units.take(kept, axis=1)
    if as_cells:
        return EncodedBatch(cells=domain.cell_index(codes), units=units)
    return EncodedBatch(codes=codes, units=units)

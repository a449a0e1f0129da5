"""Records to codes of their domain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa

from beam_dp.domain import Domain, IntegerAttribute
from beam_dp.encoding.batch import EncodedBatch
from beam_dp.encoding.columns import column_of, encode_batch, encode_cells
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.privacy.guarantee import RECORD
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.records import RecordBatches


class EncodeRecords(beam.PTransform):
    """Encodes records as cells or codes of a domain, with their privacy units.

    Records outside the domain, and those without a unit, are left out, silently: how many
    there are is private. This comes before contributions are bounded, so that a unit's
    records outside the domain do not push out those inside; what is left of a unit still
    depends on its own records alone.

    Args:
        domain: the universe.
        privacy_unit: the column that names the unit, or ``"record"``.
        as_cells: whether to encode as cell indices (the domain must have an index) or as codes.

    Output: a collection of ``EncodedBatch``. It is as secret as the records.
    """

    def __init__(self, domain: Domain, privacy_unit: str, *, as_cells: bool) -> None:
        super().__init__()
        self.domain = domain
        self.privacy_unit = privacy_unit
        self.as_cells = as_cells

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[EncodedBatch]:
        """Batches what is not batched, then encodes."""
        needed = dict.fromkeys(self.domain.names, "domain")
        ambiguous = {}
        if self.privacy_unit == RECORD:
            # Whoever means a column of that name would get the weaker promise, unseen.
            ambiguous[RECORD] = "privacy_unit"
        else:
            needed.setdefault(self.privacy_unit, "privacy_unit")
        # A unit is the text as it was written: 007 is not 7.
        integers = {
            attribute.name
            for attribute in self.domain
            if isinstance(attribute, IntegerAttribute) and attribute.name != self.privacy_unit
        }
        encode = _Encode(self.domain, self.privacy_unit, self.as_cells)
        return (
            records
            | "Batches" >> RecordBatches(needed, integers, ambiguous, self.domain)
            | "Encode" >> beam.ParDo(encode).with_output_types(EncodedBatch)
        )


class _Encode(beam.DoFn):
    def __init__(self, domain: Domain, privacy_unit: str, as_cells: bool) -> None:
        self.domain = domain
        self.privacy_unit = privacy_unit
        self.as_cells = as_cells

    @withhold_messages
    def process(self, batch: pa.RecordBatch) -> Iterator[EncodedBatch]:
        return iter([encode_records(self.domain, self.privacy_unit, self.as_cells, batch)])


def encode_records(
    domain: Domain, privacy_unit: str, as_cells: bool, batch: pa.RecordBatch
) -> EncodedBatch:
    """Returns the records of a batch that are inside the domain and have a unit."""
    if privacy_unit == RECORD and as_cells:
        return EncodedBatch(cells=encode_cells(domain, batch))
    codes, keep = encode_batch(domain, batch)
    units = None
    if privacy_unit != RECORD:
        units, valid = unit_fingerprints(column_of(batch, privacy_unit))
        if not valid.all():
            keep = valid if keep is None else keep & valid
    if keep is not None:
        # Positions are found once; a mask would be searched anew for each column.
        kept = np.flatnonzero(keep)
        codes = [column.take(kept) for column in codes]
        units = None if units is None else units.take(kept, axis=1)
    if as_cells:
        return EncodedBatch(cells=domain.cell_index(codes), units=units)
    return EncodedBatch(codes=codes, units=units)

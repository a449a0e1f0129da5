"""The transform from records to codes of a domain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain import Domain, IntegerAttribute
from beam_dp.encoding.batch import EncodedBatch, WindowBatch, left_out_records
from beam_dp.encoding.columns import column_of, encode_batch, encode_cells
from beam_dp.encoding.seconds import seconds_of
from beam_dp.encoding.texts import Mask
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.privacy.guarantee import RECORD
from beam_dp.transforms.errors import withhold_messages
from beam_dp.transforms.reading.records import RecordBatches
from beam_dp.windows import Horizon, counted_windows

_ROWS = 2**14
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
        batches = records | "Batches" >> DomainBatches(self.domain, self.privacy_unit)
        step = _Encode(self.domain, self.privacy_unit, self.as_cells, self.keep_left_out)
        encode = beam.ParDo(step).with_output_types(EncodedBatch)
        if not self.keep_left_out:
            return batches | "Encode" >> encode
        encoded = batches | "Encode" >> encode.with_outputs(LEFT_OUT, main=INSIDE)
        encoded[LEFT_OUT].element_type = EncodedBatch
        return encoded


class DomainBatches(RecordBatches):
    """``RecordBatches`` of the columns of a domain and of the privacy unit.

    Args:
        domain: the universe.
        privacy_unit: the column that names the unit, or ``"record"``.
        others: further columns, with the argument that names each.
        may_be_unbounded: whether the records may be those of a stream.
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


def encode_window_cells(
    domain: Domain, horizon: Horizon, times: tuple[str, str], batch: pa.RecordBatch
) -> Iterator[NDArray[np.int64]]:
    """Yields the cells of the records that count in some window and are inside the domain.

    Args: as of ``encode_windows``.

    Returns:
        cells of one table after the other: those of window w begin at ``w * domain.num_cells``.
        They come so many at a time that all of them stay in the cache.
    """
    events, arrivals = (seconds_of(column_of(batch, name)) for name in times)
    codes, inside = encode_batch(domain, batch)
    if inside is not None:
        kept = np.flatnonzero(inside)
        events, arrivals = events.take(kept), arrivals.take(kept)
        codes = [column.take(kept) for column in codes]
    index = domain.cell_index(codes)
    for first in range(0, events.size, _ROWS):
        part = slice(first, first + _ROWS)
        cells = counted_windows(horizon, events[part], arrivals[part])
        cells *= domain.num_cells
        cells += index[part]
        yield cells[cells >= 0]  # of those in no window, number -1, none is


def encode_windows(
    domain: Domain,
    horizon: Horizon,
    privacy_unit: str,
    times: tuple[str, str],
    batch: pa.RecordBatch,
) -> WindowBatch:
    """Returns the records that count in some window, are inside the domain and have a unit.

    Args:
        domain: the universe; it must have an index.
        horizon: the windows, of which each record counts in one or in none.
        privacy_unit: the column that names the unit.
        times: the columns with the time of a record's event and with its arrival at its source.
        batch: of records.
    """
    numbers = counted_windows(horizon, *(seconds_of(column_of(batch, name)) for name in times))
    codes, inside = encode_batch(domain, batch)
    units, valid = _units(privacy_unit, batch)
    keep = _both(numbers >= 0, _both(inside, valid))
    kept = _kept(domain, True, codes, units, keep)
    assert kept.cells is not None
    return WindowBatch(numbers[keep], kept.cells, kept.units)


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

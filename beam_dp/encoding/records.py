"""Arrow batches to encoded records with their privacy units: of a domain, or of its windows too.

Times of windows are whole seconds. Dates, timestamps, ISO 8601 texts and numbers of seconds since
1970 are times, rounded down; so are texts of numbers, because CSV has no others. A time without a
zone is in UTC. Other values, such as booleans and durations, are not times. Nothing here raises on
data.
"""

from __future__ import annotations

import decimal
import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.texts import time_of
from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import EncodedBatch, WindowBatch, left_out_records
from beam_dp.encoding.canonical import NANOSECONDS
from beam_dp.encoding.columns import column_of, encode_batch, encode_cells
from beam_dp.encoding.layouts import Mask, as_bytes, by_distinct, by_values, not_null
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.privacy.guarantee import RECORD
from beam_dp.windows.horizon import Horizon, counted_windows

if TYPE_CHECKING:
    import pyarrow as pa

NO_TIME = -(2**63)
_A_SECOND, _A_DAY = 10**9, 86_400
_NUMBER = re.compile(rb"\s*[+-]?[0-9]{1,20}(\.[0-9]{0,20})?\s*")
_LARGEST = 2**62  # beyond it floats and unsigned integers are no time


def seconds_of(column: pa.Array) -> NDArray[np.int64]:
    """Returns the seconds since 1970 of each value, int64; ``NO_TIME`` where it has no time."""
    seconds, has_time = by_values(column, _read)
    return seconds if has_time.all() else np.where(has_time, seconds, NO_TIME)


def _read(values: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The seconds of values in a plain array, and which of them are times."""
    import pyarrow as pa

    kind, has_time = values.type, not_null(values)
    if pa.types.is_timestamp(kind):
        return _integers(values.view(pa.int64())) // (_A_SECOND // NANOSECONDS[kind.unit]), has_time
    if pa.types.is_date32(kind):
        return _integers(values.view(pa.int32())) * _A_DAY, has_time
    if pa.types.is_date64(kind):
        return _integers(values.view(pa.int64())) // 1000, has_time
    if pa.types.is_integer(kind):
        integers = _integers(values)
        if integers.max(initial=0) >= _LARGEST:
            has_time &= integers < _LARGEST
        return integers.astype(np.int64, copy=False), has_time
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        floats = np.floor(_integers(values.cast(pa.float64())))
        is_near = np.abs(floats) < _LARGEST
        return np.where(is_near, floats, 0).astype(np.int64), has_time & is_near
    if (texts := as_bytes(values)) is not None:
        seconds = by_distinct(texts, _of_texts)
        return seconds, has_time & (seconds != NO_TIME)
    return np.zeros(len(values), np.int64), np.zeros(len(values), np.bool_)


def _integers(values: pa.Array) -> NDArray[Any]:
    """Numbers, zero where null; dates are widened before they are multiplied."""
    filled: NDArray[Any] = (values.fill_null(0) if values.null_count else values).to_numpy(
        zero_copy_only=False
    )
    return filled.astype(np.int64) if filled.dtype == np.int32 else filled


def _of_texts(texts: list[bytes]) -> NDArray[np.int64]:
    return np.array([_of_text(text) for text in texts], np.int64)


def _of_text(text: bytes) -> int:
    """A text that looks like a number is one: CSV has no other way to write it."""
    if _NUMBER.fullmatch(text):
        seconds = math.floor(decimal.Decimal(text.decode().strip()))
        return seconds if abs(seconds) < _LARGEST else NO_TIME
    read = time_of(text)
    return NO_TIME if read is None else read[0] // _A_SECOND


_ROWS = 2**14


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
    """Returns the records that have a unit: those inside the domain, and ``left_out_records``."""
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
    """Yields the cells of the records that count in a window and are inside the domain.

    Cells of window w begin at ``w * domain.num_cells``. They come in parts that fit in the cache.
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
    """Returns the records that count in a window, are inside the domain and have a unit.

    ``times`` are the columns of a record's event and of its arrival at its source.
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
        # Positions are found once; a mask would be searched again for each column.
        kept = np.flatnonzero(keep)
        codes = [column.take(kept) for column in codes]
        units = None if units is None else units.take(kept, axis=1)
    if as_cells:
        return EncodedBatch(cells=domain.cell_index(codes), units=units)
    return EncodedBatch(codes=codes, units=units)

"""Encodes the records of a stream, each with the window in which it counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from beam_dp.domain.horizon import Horizon, counted_windows
from beam_dp.domain.universe import Domain
from beam_dp.secret.encoding.batch import Columns, RecordWords
from beam_dp.secret.encoding.layouts import seconds_of
from beam_dp.secret.encoding.records import both, column_of, encode_batch, kept_records, units_of

_ROWS = 2**14  # rows per step, so that cells and times of windows fit in the cache


@dataclass(frozen=True, eq=False, repr=False)
class WindowBatch:
    """Records inside the domain that count in a window: window numbers and cells, shape (n,)."""

    numbers: NDArray[Any]
    cells: NDArray[Any]
    units: NDArray[np.uint64] | None = None

    def __repr__(self) -> str:
        return "WindowBatch(secret)"


class WindowWords:
    """Encoded records with the numbers of their windows, as integer columns."""

    def __init__(self, domain: Domain) -> None:
        self.dtypes = [np.dtype("<u4"), *RecordWords(domain).dtypes]

    def from_batch(self, batch: WindowBatch) -> Columns:
        """Returns the windows and the cells of a batch."""
        columns = zip((batch.numbers, batch.cells), self.dtypes, strict=True)
        return [column.astype(dtype) for column, dtype in columns]

    def to_batch(self, columns: Columns, units: NDArray[np.uint64]) -> WindowBatch:
        """Returns the records that were given to ``from_batch``, without units."""
        numbers, cells = (column.astype(np.int64) for column in columns)
        return WindowBatch(numbers, cells)


def encode_window_cells(
    domain: Domain, horizon: Horizon, times: tuple[str, str], batch: pa.RecordBatch
) -> Iterator[NDArray[np.int64]]:
    """Yields the cells of the records that count in a window and are inside the domain."""
    # The cells of window w begin at ``w * domain.num_cells``. Each yielded part fits in the cache.
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
        yield cells[cells >= 0]  # records outside all windows (window -1) have negative cells


def encode_windows(
    domain: Domain,
    horizon: Horizon,
    privacy_unit: str,
    times: tuple[str, str],  # the columns with the event time and the arrival time
    batch: pa.RecordBatch,
) -> WindowBatch:
    """Returns the records that count in a window, are inside the domain and have a privacy unit."""
    numbers = counted_windows(horizon, *(seconds_of(column_of(batch, name)) for name in times))
    codes, inside = encode_batch(domain, batch)
    units, valid = units_of(privacy_unit, batch)
    keep = both(numbers >= 0, both(inside, valid))
    kept = kept_records(domain, True, codes, units, keep)
    assert kept.cells is not None
    return WindowBatch(numbers[keep], kept.cells, kept.units)

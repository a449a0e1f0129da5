"""The transform that counts an exact histogram of records in each window of a horizon.

At most k records of a unit count in a window, and a unit counts in at most c of any P windows.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec
from apache_beam.utils.timestamp import Timestamp
from apache_beam.utils.windowed_value import WindowedValue

from beam_dp.domain.horizon import Horizon, KeptWindows, WindowUnit, keep_windows
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, magnitude
from beam_dp.privacy.guarantee import RECORD
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.secret.encoding.batch import (
    Columns,
    CostLimit,
    RecordWords,
    from_bytes,
    to_bytes,
)
from beam_dp.secret.encoding.contributions import distinct_units, select_records, split_by
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.secret.encoding.windows import (
    WindowBatch,
    WindowWords,
    encode_window_cells,
    encode_windows,
)
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.secret.summaries.shards import CellCounts, num_blocks, write_shard
from beam_dp.transforms.counting.limit_contributions import PartitionUnits
from beam_dp.transforms.counting.summarise import DomainBatches, add_shards
from beam_dp.transforms.job_page import withhold_messages

_MICROSECONDS = 10**6
_MILLISECOND = 1000


@dataclasses.dataclass(frozen=True)
class BeamWindows:
    """Maps windows of a horizon, or blocks of windows, to Beam windows."""

    horizon: Horizon
    size: int = 1  # windows per Beam window; the last one ends as if it were complete

    @property
    def _seconds(self) -> int:
        return self.size * self.horizon.window

    @property
    def _first_end(self) -> int:
        return self.horizon.closes(self.size - 1)

    def into(self) -> beam.WindowInto:
        """Returns the transform that assigns elements to the Beam windows."""
        return beam.WindowInto(
            beam.window.FixedWindows(self._seconds, offset=self._first_end % self._seconds)
        )

    def number(self, window: beam.window.IntervalWindow) -> int:
        """Returns the number of the window or block that a Beam window represents."""
        end: int = window.end.micros // _MICROSECONDS
        return (end - self._first_end) // self._seconds


def stamp(horizon: Horizon, number: int) -> Timestamp:
    """Returns the last millisecond before a window closes."""
    return Timestamp(micros=horizon.closes(number) * _MICROSECONDS - _MILLISECOND)


def of_each_window(
    pipeline: beam.Pipeline,
    horizon: Horizon,
    elements: Callable[[int], Iterable[tuple[int, bytes]]],
) -> beam.PCollection[tuple[int, bytes]]:
    """Emits the given elements for every window, with timestamps inside the window."""
    emit = beam.ParDo(_OfEachWindow(horizon, elements)).with_output_types(tuple[int, bytes])
    return pipeline | "Begin" >> beam.Impulse() | "Of each window" >> emit


@dataclasses.dataclass(eq=False, repr=False)
class _OfEachWindow(beam.DoFn):
    horizon: Horizon
    elements: Callable[[int], Iterable[tuple[int, bytes]]]

    def process(self, _: bytes) -> Iterator[beam.window.TimestampedValue]:
        for number in range(self.horizon.num_windows):
            for element in self.elements(number):
                yield beam.window.TimestampedValue(element, stamp(self.horizon, number))


Pane = tuple[int, tuple[int, Iterable[bytes]]]  # partition, window, records of the window


@dataclasses.dataclass(eq=False, repr=False)
class CountLimited(beam.PTransform):
    """Counts at most k records of each privacy unit in a window, and in at most c of P windows.

    ``domain``: the universe, with at most 2^28 cells.
    ``unit_costs``: the cost limits of a unit in each window; None to limit only the number of
    records.
    ``num_partitions``: the number of keys in the shuffle, a power of two up to 2^16. A worker must
    have enough memory for a window of a partition, and for windows that arrive out of order.

    Privacy: adding or removing one unit changes the counts of at most c of any P windows, by at
    most k records each, regardless of other units. With ``unit_costs``, the cost of these records
    is at most the limit in each window. Every window is an independent draw with noise for that
    cost, so that c windows spend c times as much as one window. The unit's own records, in order of
    windows, determine which of them count (``keep_windows``, ``select_records``). So a replay
    counts the same records in windows that were already released.

    A partition of units has exactly one pane per window, even if the pane is empty. So storing the
    number of the next window is enough to order the panes on any runner, without timers or clocks.

    Input: Arrow batches in the global window. Output: shards of histograms in the global window,
    with timestamps just before their windows close.
    """

    domain: Domain
    horizon: Horizon
    unit: WindowUnit
    unit_costs: UnitCosts | None
    times: tuple[str, str]
    num_partitions: int

    def expand(
        self, batches: beam.PCollection[pa.RecordBatch]
    ) -> beam.PCollection[tuple[int, bytes]]:
        """Splits records by unit and window, then selects and counts records in window order."""
        partitions = self.num_partitions
        encode = beam.ParDo(_Encode(self.domain, self.horizon, self.unit, self.times))
        send = _SendPanes(RecordWords(self.domain), self.horizon)
        split = beam.ParDo(PartitionUnits(WindowWords(self.domain), partitions, send))
        panes = (
            batches
            | "Encode" >> encode.with_output_types(WindowBatch)
            | "Split" >> split.with_output_types(tuple[int, bytes])
        )
        nothing = functools.partial(_empty_panes, partitions)
        empty = of_each_window(batches.pipeline, self.horizon, nothing)
        windows = BeamWindows(self.horizon)
        number = beam.ParDo(_NumberPane(windows)).with_output_types(Pane)
        count = beam.ParDo(_CountInOrder(self.domain, self.horizon, self.unit, self.unit_costs))
        return (
            (panes, empty)
            | beam.Flatten()
            | "Into windows" >> windows.into().with_output_types(tuple[int, bytes])
            | "Group panes" >> beam.GroupByKey()
            | "Number" >> number
            | "Out of windows" >> beam.WindowInto(beam.window.GlobalWindows())
            | "Count in order" >> count.with_output_types(tuple[int, bytes])
        )


def _empty_panes(partitions: int, _: int) -> Iterator[tuple[int, bytes]]:
    return ((partition, b"") for partition in range(partitions))


class _NumberPane(beam.DoFn):
    """Adds the window number to each pane."""

    def __init__(self, windows: BeamWindows) -> None:
        self.windows = windows

    def process(
        self,
        pane: tuple[int, Iterable[bytes]],
        window: beam.window.IntervalWindow = beam.DoFn.WindowParam,
    ) -> Iterator[Pane]:
        partition, rows = pane
        return iter([(partition, (self.windows.number(window), list(rows)))])


class _Encode(beam.DoFn):
    """Encodes the records that count in a window."""

    def __init__(
        self, domain: Domain, horizon: Horizon, unit: WindowUnit, times: tuple[str, str]
    ) -> None:
        self.how = domain, horizon, unit.privacy_unit, times

    @withhold_messages
    def process(self, batch: pa.RecordBatch) -> Iterator[WindowBatch]:
        return iter([encode_windows(*self.how, batch)])


@dataclasses.dataclass(frozen=True)
class _SendPanes:
    """Sends the records of a partition to the panes of their windows."""

    words: RecordWords
    horizon: Horizon

    def __call__(
        self,
        number: int,
        units: np.ndarray[Any, Any],
        columns: Columns,
        counts: np.ndarray[Any, Any],
    ) -> Iterator[WindowedValue]:
        windows, cells = columns
        for window, (units_here, cells_here, counts_here) in split_by(
            windows, self.horizon.num_windows, [units, cells, counts]
        ):
            rows = to_bytes(self.words, units_here, [cells_here], counts_here)
            yield WindowedValue(
                (number, rows), stamp(self.horizon, window), (beam.window.GlobalWindow(),)
            )


class _CountInOrder(beam.DoFn):
    """Selects and counts the records of a partition, window by window.

    The state of a partition consists of the next window's number, the rows and window numbers of
    the panes that arrived out of order, and the windows in which each unit was counted.
    """

    NEXT = ReadModifyWriteStateSpec("next", beam.coders.VarIntCoder())
    EARLY = BagStateSpec(
        "early", beam.coders.TupleCoder((beam.coders.VarIntCoder(), beam.coders.BytesCoder()))
    )
    WAITING = BagStateSpec("waiting", beam.coders.VarIntCoder())
    KEPT = ReadModifyWriteStateSpec("kept", beam.coders.BytesCoder())

    def __init__(
        self, domain: Domain, horizon: Horizon, unit: WindowUnit, unit_costs: UnitCosts | None
    ) -> None:
        self.horizon = horizon
        self.unit = unit
        self.words = RecordWords(domain)
        self.cost_limit = None if unit_costs is None else CostLimit(self.words, unit_costs)
        self.accumulator = HistogramAccumulator(domain)

    @withhold_messages
    def process(
        self,
        pane: Pane,
        next_window: Any = beam.DoFn.StateParam(NEXT),
        early: Any = beam.DoFn.StateParam(EARLY),
        waiting: Any = beam.DoFn.StateParam(WAITING),
        kept: Any = beam.DoFn.StateParam(KEPT),
    ) -> Iterator[Any]:
        _, (number, rows) = pane
        due = next_window.read() or 0
        if number != due:
            waiting.add(number)
            for row in rows:
                early.add((number, row))
            return
        here = {due: list(rows)}
        numbers = set(waiting.read())
        if due + 1 in numbers:  # otherwise skip reading the waiting rows, which may be many
            here = {**here, **{window: [] for window in numbers}}
            for window, row in early.read():
                here[window].append(row)
            waiting.clear()
            early.clear()
        remembered = before = _read(kept.read())
        while due in here:
            shards, remembered = self._count(due, here.pop(due), remembered)
            for shard in shards:
                yield beam.window.TimestampedValue(shard, stamp(self.horizon, due))
            due += 1
        next_window.write(due)
        if remembered is not before:
            kept.write(remembered.to_bytes())
        for window, those in here.items():
            waiting.add(window)
            for row in those:
                early.add((window, row))

    def _count(
        self, number: int, rows: list[bytes], remembered: KeptWindows
    ) -> tuple[Iterable[tuple[int, bytes]], KeptWindows]:
        units, columns, counts = from_bytes(self.words, filter(None, rows))
        if not counts.size:
            return (), remembered
        distinct, unit = distinct_units(units)
        keep, remembered = keep_windows(
            remembered, distinct, number, self.unit, self.horizon.num_windows
        )
        (stay,) = np.nonzero(keep[unit])
        units, counts = units[:, stay], counts[stay]
        columns = [column[stay] for column in columns]
        limit = self.unit.max_records_per_unit
        selected = select_records(units, columns, counts, limit, self.cost_limit)
        batch = EncodedBatch(cells=columns[0][selected])
        state = self.accumulator.add_batch(self.accumulator.create(), batch)
        return self.accumulator.to_shards(state), remembered


def _read(state: bytes | None) -> KeptWindows:
    return KeptWindows.nothing() if state is None else KeptWindows.from_bytes(state)


# The limit for all windows together: a replay may keep the tables of all windows in memory.
MAX_CELLS = 2**32
# The limit for windows times partitions: every pane is an element, even if it is empty.
MAX_PANES = 2**24
PANES = 2**11  # the default limit, which takes one or two seconds
WindowShards = tuple[int, Iterable[tuple[int, bytes]]]


class CountWindows(beam.PTransform):
    """Encodes records, limits the contributions of units, and counts the cells of each window.

    Records stay in the global window; only tables are assigned to windows. A bundle outputs a table
    per window, with a timestamp just before the window closes, so that no runner drops it as late.
    An additional empty table per window ensures that windows without records have an output. Which
    records count depends on the times of the records (``windows.counted_windows``); the watermark
    only determines when a window is complete. The watermark must not exceed the arrival of any
    later record: Beam drops some records whose arrival is behind the watermark.

    ``domain``: the universe, with at most 2^28 cells; records outside are silently left out.
    ``unit_costs``: the plan's cost limits of a unit in each window; None to limit only the number
    of records.
    ``num_partitions``: the number of partitions of units (``CountLimited``); by default 8 to 64,
    fewer if there are many windows.

    Output: exactly one pair per window, of its number and its shards for
    ``HistogramAccumulator.from_shards``, in a Beam window that ends when the window closes. The
    shards are as secret as the records.
    """

    def __init__(
        self,
        domain: Domain,
        horizon: Horizon,
        unit: WindowUnit,
        event_time: str,
        arrival: str,
        num_partitions: int | None = None,
        *,
        unit_costs: UnitCosts | None,
    ) -> None:
        super().__init__()
        HistogramAccumulator(domain)  # refuses a domain with too many cells
        if num_partitions is None:
            few = max(1, PANES // horizon.num_windows).bit_length() - 1
            num_partitions = 2 ** min(max(few, 3), 6)
        if horizon.num_windows * domain.num_cells > MAX_CELLS:
            condition = f"must be at most {MAX_CELLS // domain.num_cells:,} with this domain, of"
            condition += f" {magnitude(domain.num_cells)} cells: 2^32 cells in all windows together"
            raise InputError("num_windows", horizon.num_windows, condition)
        if unit.privacy_unit != RECORD and horizon.num_windows * num_partitions > MAX_PANES:
            condition = f"must be at most {MAX_PANES // num_partitions:,} if units are limited"
            raise InputError("num_windows", horizon.num_windows, condition)
        unit.check_times(event_time, arrival)
        self.domain = domain
        self.horizon = horizon
        self.unit = unit
        self.event_time = event_time
        self.arrival = arrival
        self.num_partitions = num_partitions
        self.unit_costs = unit_costs

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[WindowShards]:
        """Counts the records (of at most k per unit, if limited) and adds up tables per window."""
        others = {self.event_time: "event_time", self.arrival: "arrival"}
        times = self.event_time, self.arrival
        batches = records | "Batches" >> DomainBatches(
            self.domain, self.unit.privacy_unit, others, may_be_unbounded=True
        )
        if self.unit.privacy_unit == RECORD:
            count = beam.ParDo(_CountBundle(self.domain, self.horizon, times))
            counted = batches | "Count bundles" >> count.with_output_types(tuple[int, bytes])
        else:
            counted = batches | "Count limited" >> CountLimited(
                self.domain, self.horizon, self.unit, self.unit_costs, times, self.num_partitions
            )
        empty = of_each_window(records.pipeline, self.horizon, _empty_shards)
        windows = BeamWindows(self.horizon)
        return (
            (counted, empty)
            | beam.Flatten()
            | "Into windows" >> windows.into().with_output_types(tuple[int, bytes])
            | "Sum" >> SumTables(windows, self.domain.num_cells)
        )


class SumTables(beam.PTransform):
    """Adds up the shards in each Beam window.

    Input: shards, at least one per window. Output: as for ``CountWindows``.
    """

    def __init__(self, windows: BeamWindows, num_cells: int) -> None:
        super().__init__()
        self.windows = windows
        self.num_blocks = num_blocks(num_cells)

    def expand(self, shards: beam.PCollection[tuple[int, bytes]]) -> beam.PCollection[WindowShards]:
        """Adds up blocks and adds window numbers; if a table has several blocks, groups them."""
        blocks, is_whole = add_shards(shards), self.num_blocks == 1
        numbered = blocks | "Number" >> beam.ParDo(_NumberBlock(self.windows, is_whole))
        return numbered if is_whole else numbered | "Group" >> beam.GroupByKey()


def _empty_shards(_: int) -> list[tuple[int, bytes]]:
    return [(0, write_shard(np.zeros(0, np.int64)))]


@dataclasses.dataclass(eq=False, repr=False)
class _CountBundle(beam.DoFn):
    """Counts the records of a bundle in one table of all windows; outputs counts per window.

    Sorting records by window is unnecessary: the records of a bundle are close in time, so their
    cells are close in memory.
    """

    domain: Domain
    horizon: Horizon
    times: tuple[str, str]

    def start_bundle(self) -> None:
        self._counts: CellCounts | None = None

    @withhold_messages
    def process(self, batch: pa.RecordBatch) -> None:
        if self._counts is None:
            self._counts = CellCounts(self.horizon.num_windows * self.domain.num_cells)
        for cells in encode_window_cells(self.domain, self.horizon, self.times, batch):
            self._counts.add(cells)

    @withhold_messages
    def finish_bundle(self) -> Iterator[WindowedValue]:
        counts, self._counts = self._counts, None
        if counts is not None:
            for number, shard in counts.to_shards_of_tables(self.domain.num_cells):
                yield WindowedValue(
                    shard, stamp(self.horizon, number), (beam.window.GlobalWindow(),)
                )


@dataclasses.dataclass(eq=False, repr=False)
class _NumberBlock(beam.DoFn):
    """Pairs each block with its window number; a block that is a whole table becomes a list."""

    windows: BeamWindows
    is_whole: bool

    def process(
        self, block: tuple[int, bytes], window: beam.window.IntervalWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, Any]]:
        return iter([(self.windows.number(window), [block] if self.is_whole else block)])

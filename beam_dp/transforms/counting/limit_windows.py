"""The transform that counts at most k records of a unit in a window, and in c of any P windows."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.coders import BytesCoder, TupleCoder, VarIntCoder
from apache_beam.transforms.userstate import BagStateSpec, ReadModifyWriteStateSpec
from apache_beam.transforms.window import (
    GlobalWindow,
    GlobalWindows,
    IntervalWindow,
    TimestampedValue,
)
from apache_beam.utils.windowed_value import WindowedValue

from beam_dp.domain.universe import Domain
from beam_dp.encoding.batch import EncodedBatch, WindowBatch
from beam_dp.encoding.contributions import distinct_units, select_records
from beam_dp.encoding.records import encode_windows
from beam_dp.encoding.split import split_by
from beam_dp.encoding.unit_costs import CostLimit
from beam_dp.encoding.words import Columns, RecordWords, WindowWords, from_bytes, to_bytes
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.beam_windows import BeamWindows, of_each_window, stamp
from beam_dp.transforms.counting.limit_contributions import PartitionUnits
from beam_dp.transforms.errors import withhold_messages
from beam_dp.windows.horizon import Horizon
from beam_dp.windows.unit import KeptWindows, WindowUnit, keep_windows

Pane = tuple[int, tuple[int, Iterable[bytes]]]  # partition, window, its records


class CountLimited(beam.PTransform):
    """Counts at most k records of each privacy unit in a window, and in at most c of P windows.

    Privacy: adding or removing one unit changes the counts of at most c of any P windows, by at
    most k records each, whatever the other units are. With ``unit_costs`` these records cost, in
    each window, at most its limit; every window is an independent draw with noise for that cost, so
    that c windows spend c times what one does. What is counted of a unit is a function of
    its own records (``keep_windows``, ``select_records``), in order of windows; so a replay counts
    the same, and agrees with windows that were released before it.

    Each partition of units has one pane for each window, without records if there are none. So
    each pane comes exactly once, and a state that knows the next one brings them in order, on any
    runner: no timer, no clock.

    Args:
        domain: the universe, at most 2^28 cells.
        horizon: the windows.
        unit: whose k, c and P are kept.
        unit_costs: which limit a unit's records in each window as well; None where only their
            number is limited.
        times: the columns with the time of a record's event and with its arrival at its source.
        num_partitions: keys of the shuffle, a power of two up to 2^16. A window of a partition is
            held in one worker's memory, and those that come before their turn.

    Input: Arrow batches in the global window. Output: shards of histograms, there too, each
    stamped just before its window closes.
    """

    def __init__(
        self,
        domain: Domain,
        horizon: Horizon,
        unit: WindowUnit,
        unit_costs: UnitCosts | None,
        times: tuple[str, str],
        num_partitions: int,
    ) -> None:
        super().__init__()
        self.domain = domain
        self.horizon = horizon
        self.unit = unit
        self.unit_costs = unit_costs
        self.times = times
        self.num_partitions = num_partitions

    def expand(
        self, batches: beam.PCollection[pa.RecordBatch]
    ) -> beam.PCollection[tuple[int, bytes]]:
        """Splits by unit and window, groups, brings windows in order, selects and counts."""
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
        number = beam.ParDo(_Number(windows)).with_output_types(Pane)
        count = beam.ParDo(_CountInOrder(self.domain, self.horizon, self.unit, self.unit_costs))
        return (
            (panes, empty)
            | beam.Flatten()
            | "Into windows" >> windows.into().with_output_types(tuple[int, bytes])
            | "Group panes" >> beam.GroupByKey()
            | "Number" >> number
            | "Out of windows" >> beam.WindowInto(GlobalWindows())
            | "Count in order" >> count.with_output_types(tuple[int, bytes])
        )


def _empty_panes(partitions: int, _: int) -> Iterator[tuple[int, bytes]]:
    return ((partition, b"") for partition in range(partitions))


class _Number(beam.DoFn):
    """Names the window of a pane."""

    def __init__(self, windows: BeamWindows) -> None:
        self.windows = windows

    def process(
        self,
        pane: tuple[int, Iterable[bytes]],
        window: IntervalWindow = beam.DoFn.WindowParam,
    ) -> Iterator[Pane]:
        partition, rows = pane
        return iter([(partition, (self.windows.number(window), list(rows)))])


class _Encode(beam.DoFn):
    """Encodes the records that count in some window."""

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
            yield WindowedValue((number, rows), stamp(self.horizon, window), (GlobalWindow(),))


class _CountInOrder(beam.DoFn):
    """Selects and counts the records of a partition, window after window.

    The state of a partition is the window that is next, the rows of panes that came before their
    turn and the numbers of these, and which windows were kept of each unit.
    """

    NEXT = ReadModifyWriteStateSpec("next", VarIntCoder())
    EARLY = BagStateSpec("early", TupleCoder((VarIntCoder(), BytesCoder())))
    WAITING = BagStateSpec("waiting", VarIntCoder())
    KEPT = ReadModifyWriteStateSpec("kept", BytesCoder())

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
            for each in rows:
                early.add((number, each))
            return
        here = {due: list(rows)}
        numbers = set(waiting.read())
        if due + 1 in numbers:  # else the rows that wait are left alone: they may be many
            here = {**here, **{window: [] for window in numbers}}
            for window, each in early.read():
                here[window].append(each)
            waiting.clear()
            early.clear()
        remembered = before = _read(kept.read())
        while due in here:
            shards, remembered = self._count(due, here.pop(due), remembered)
            for shard in shards:
                yield TimestampedValue(shard, stamp(self.horizon, due))
            due += 1
        next_window.write(due)
        if remembered is not before:
            kept.write(remembered.to_bytes())
        for window, those in here.items():
            waiting.add(window)
            for each in those:
                early.add((window, each))

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
        most = self.unit.max_records_per_unit
        selected = select_records(units, columns, counts, most, self.cost_limit)
        batch = EncodedBatch(cells=columns[0][selected])
        state = self.accumulator.add_batch(self.accumulator.create(), batch)
        return self.accumulator.to_shards(state), remembered


def _read(state: bytes | None) -> KeptWindows:
    return KeptWindows.nothing() if state is None else KeptWindows.from_bytes(state)

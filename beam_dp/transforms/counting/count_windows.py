"""The transform from records of a stream to the exact histogram of each window of a horizon."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.transforms.window import GlobalWindow, IntervalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_dp.domain.universe import Domain
from beam_dp.encoding.records import encode_window_cells
from beam_dp.errors import InputError, magnitude
from beam_dp.privacy.guarantee import RECORD
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.summaries.cell_counts import CellCounts
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.summaries.shards import num_blocks, write_shard
from beam_dp.transforms.counting.beam_windows import BeamWindows, of_each_window, stamp
from beam_dp.transforms.counting.encode import DomainBatches
from beam_dp.transforms.counting.limit_windows import CountLimited
from beam_dp.transforms.counting.summarise import add_shards
from beam_dp.transforms.errors import withhold_messages
from beam_dp.windows.horizon import Horizon
from beam_dp.windows.unit import WindowUnit

# Of all windows together: a replay may hold the tables of all of them at once.
MAX_CELLS = 2**32
# Windows of all partitions of units: each is an element, also where it is empty.
MAX_PANES = 2**24
PANES = 2**11  # so many cost a second or two
WindowShards = tuple[int, Iterable[tuple[int, bytes]]]


class CountWindows(beam.PTransform):
    """Encodes records, limits what a unit contributes, and counts the cells of each window.

    Rows stay in the global window; what is counted gets one. A bundle has a table for each window,
    stamped just before the window closes, so that no engine finds it late; and each window has an
    empty table besides, so that one without records comes out as well. Which records count follows
    from their own times (``windows.counted_windows``): watermarks only say when a window is done.
    They must be a lower bound of arrivals to come: of those that arrive behind it Beam drops some.

    Args:
        domain: the universe, at most 2^28 cells; records outside it are left out, silently.
        horizon: the windows.
        unit: whose limits are kept: see ``CountLimited``.
        event_time: the column with the time of a record's event.
        arrival: the column with the time at which its source had it.
        unit_costs: the plan's, which limit a unit's records in each window as well; None where
            only their number is limited.
        num_partitions: of units: see ``CountLimited``; by default 8 to 64, fewer where there are
            many windows.

    Raises:
        InputError: if the domain has more than 2^28 cells, all windows together more than 2^32, or
            2^24 panes where units are limited; if a column of times names the unit; when applied,
            if the records are not in the global window as it is by default, or lack a column.

    Output: for each window exactly one pair of its number and its shards, for
    ``HistogramAccumulator.from_shards``, in a window of Beam's that ends when it closes; as secret
    as the records.
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
        HistogramAccumulator(domain)  # refuses what it does not hold
        if num_partitions is None:
            few = max(1, PANES // horizon.num_windows).bit_length() - 1
            num_partitions = 2 ** min(max(few, 3), 6)
        if horizon.num_windows * domain.num_cells > MAX_CELLS:
            condition = f"must be at most {MAX_CELLS // domain.num_cells:,} with this domain, of"
            condition += f" {magnitude(domain.num_cells)} cells: 2^32 cells in all windows together"
            raise InputError("num_windows", horizon.num_windows, condition)
        if unit.privacy_unit != RECORD and horizon.num_windows * num_partitions > MAX_PANES:
            condition = f"must be at most {MAX_PANES // num_partitions:,} where units are limited"
            raise InputError("num_windows", horizon.num_windows, condition)
        if unit.privacy_unit in (event_time, arrival):
            condition = "must be another column than those of times"
            raise InputError("privacy_unit", unit.privacy_unit, condition)
        self.domain = domain
        self.horizon = horizon
        self.unit = unit
        self.event_time = event_time
        self.arrival = arrival
        self.num_partitions = num_partitions
        self.unit_costs = unit_costs

    def expand(self, records: beam.PCollection[Any]) -> beam.PCollection[WindowShards]:
        """Counts bundles, or what is limited, adds empty tables, adds up."""
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
    """Adds up the shards of each of Beam's windows.

    Input: shards, in each window at least one. Output: as that of ``CountWindows``.
    """

    def __init__(self, windows: BeamWindows, num_cells: int) -> None:
        super().__init__()
        self.windows = windows
        self.num_blocks = num_blocks(num_cells)

    def expand(self, shards: beam.PCollection[tuple[int, bytes]]) -> beam.PCollection[WindowShards]:
        """Adds up, numbers, groups: a table of one block is whole as it is."""
        blocks, is_whole = add_shards(shards), self.num_blocks == 1
        numbered = blocks | "Number" >> beam.ParDo(_Number(self.windows, is_whole))
        return numbered if is_whole else numbered | "Group" >> beam.GroupByKey()


def _empty_shards(_: int) -> list[tuple[int, bytes]]:
    return [(0, write_shard(np.zeros(0, np.int64)))]


class _CountBundle(beam.DoFn):
    """Counts the records of a bundle, as one table of all windows; sends the counts when it ends.

    Records need not be sorted by window for that: they are near in time, and so are the cells.
    """

    def __init__(self, domain: Domain, horizon: Horizon, times: tuple[str, str]) -> None:
        self.domain = domain
        self.horizon = horizon
        self.times = times

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
                yield WindowedValue(shard, stamp(self.horizon, number), (GlobalWindow(),))


class _Number(beam.DoFn):
    """Names the window that a block belongs to, or that a list of its only block does."""

    def __init__(self, windows: BeamWindows, is_whole: bool) -> None:
        self.windows = windows
        self.is_whole = is_whole

    def process(
        self, block: tuple[int, bytes], window: IntervalWindow = beam.DoFn.WindowParam
    ) -> Iterator[tuple[int, Any]]:
        return iter([(self.windows.number(window), [block] if self.is_whole else block)])

"""Counts of limited units, pane by pane, in an order that a test chooses."""

from typing import Any

import numpy as np
import pyarrow as pa
from apache_beam.utils.timestamp import Timestamp

import beam_dp as dp
from beam_dp.privacy.unit_costs import UnitCosts
from beam_dp.secret.encoding.batch import RecordWords
from beam_dp.secret.encoding.windows import WindowWords, encode_windows
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.count_windows import _CountInOrder, _SendPanes
from beam_dp.transforms.counting.limit_contributions import PartitionUnits

DOMAIN = dp.Domain((dp.IntegerAttribute("a", 0, 3),))
HORIZON = dp.Horizon(0, 10, 6, 5)
IN_ORDER = list(range(HORIZON.num_windows))
PARTITIONS = 2
Rows = list[tuple[int, int, int, int]]  # person, cell, event, arrival


class State:
    """What a runner keeps for a key: one value, or a bag."""

    def __init__(self) -> None:
        self.values: list[Any] = []

    def add(self, value: Any) -> None:
        self.values.append(value)

    def clear(self) -> None:
        self.values = []

    def write(self, value: Any) -> None:
        self.values = [value]


class Value(State):
    def read(self) -> Any:
        return self.values[0] if self.values else None


class Bag(State):
    def read(self) -> list[Any]:
        return list(self.values)


def panes_of(rows: Rows, bundles: int) -> dict[int, dict[int, list[bytes]]]:
    """For each partition the panes of all windows, one without records at least."""
    panes: dict[int, dict[int, list[bytes]]] = {
        partition: {number: [b""] for number in range(HORIZON.num_windows)}
        for partition in range(PARTITIONS)
    }
    send = _SendPanes(RecordWords(DOMAIN), HORIZON)
    for bundle in range(bundles):
        part = rows[bundle::bundles]
        columns = dict(zip(("person", "a", "t", "came"), zip(*part, strict=True), strict=False))
        if not columns:
            continue
        step = PartitionUnits(WindowWords(DOMAIN), PARTITIONS, send)
        step.start_bundle()
        batch = pa.RecordBatch.from_pydict({name: list(each) for name, each in columns.items()})
        step.process(encode_windows(DOMAIN, HORIZON, "person", ("t", "came"), batch))
        for each in step.finish_bundle():
            partition, data = each.value
            panes[partition][_window(each.timestamp)].append(data)
    return panes


def _window(stamp: Timestamp) -> int:
    """The one that closes just after a time."""
    return (int(stamp) + 1 - HORIZON.closes(0)) // HORIZON.window


def counted(
    rows: Rows,
    unit: dp.WindowUnit,
    order: list[int],
    bundles: int = 1,
    unit_costs: UnitCosts | None = None,
) -> np.ndarray:
    """The tables of all windows; the panes of each partition come in an order."""
    tables = np.zeros((HORIZON.num_windows, DOMAIN.num_cells), np.int64)
    accumulator = HistogramAccumulator(DOMAIN)
    for partition, panes in panes_of(rows, bundles).items():
        step = _CountInOrder(DOMAIN, HORIZON, unit, unit_costs)
        states = Value(), Bag(), Bag(), Value()
        for number in order:
            for shard in step.process((partition, (number, panes[number])), *states):
                tables[_window(shard.timestamp)] += accumulator.from_shards([shard.value]).counts
        assert not states[1].read() and not states[2].read()
    return tables

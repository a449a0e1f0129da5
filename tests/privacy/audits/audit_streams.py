"""Audits of the exact tables of windows: how far one unit moves them, in any course of a stream.

No noise is drawn here: the mechanism is private for tables that one unit moves so little, if each
is drawn once. What a mutant does is what a stream does by itself, where nobody minds.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.testing import test_stream
from apache_beam.transforms.trigger import AccumulationMode, AfterCount, Repeatedly
from apache_beam.transforms.window import FixedWindows, TimestampedValue
from apache_beam.utils.timestamp import Timestamp
from auditing import Audit, Finding, Patch, around, audited, replaced
from limited_panes import DOMAIN, HORIZON, IN_ORDER, Rows, counted
from numpy.typing import NDArray

from beam_dp.domain.horizon import WindowUnit, whole_promise
from beam_dp.secret.encoding import windows as encode_module
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting import count_windows as count_windows_module
from beam_dp.transforms.counting.count_windows import CountWindows

UNIT = WindowUnit("person", 2, 2, HORIZON.num_windows)
# One who has more records than count, in more windows: in time, too late, and of the future.
HEAVY = [(70, n % 4, 10 * w + n, 10 * w + n) for w in range(4) for n in range(4)]
HEAVY += [(70, 0, 3, 16), (70, 1, 9_000, 12)]
# Others; no one has records in the last window but one.
OTHERS = [(n, n % 4, 7 * n % 40, 7 * n % 40 + 1) for n in range(20)] + [(30, 2, 52, 53)]


def within_limits(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Whether tables of windows differ by no more than one unit may."""
    moved = np.abs(one - other).sum(axis=1)
    spans = [moved[start : start + UNIT.protected_windows] for start in IN_ORDER]
    return bool(
        moved.max() <= UNIT.max_records_per_unit
        and max(map(np.count_nonzero, spans)) <= UNIT.max_windows_per_unit
        and moved.any()
    )


def limits() -> Finding:
    """Tables with and without the unit."""
    return Finding(
        within_limits(*(counted(rows, UNIT, IN_ORDER) for rows in (OTHERS + HEAVY, OTHERS)))
    )


def replay() -> Finding:
    """Windows that were released before a crash, and the others after it, in another order.

    What comes first after it is whatever the engine has read again.
    """

    def released(rows: Rows) -> NDArray[np.int64]:
        before = counted(rows, UNIT, IN_ORDER)
        after = counted(rows, UNIT, IN_ORDER[::-1])
        return np.concatenate([before[:2], after[2:]])

    return Finding(within_limits(released(OTHERS + HEAVY), released(OTHERS)))


PANES: list[tuple[int, list[int]]] = []  # of this process, in which both runners run


def _keep(pane: tuple[int, Any]) -> None:
    number, shards = pane
    PANES.append((number, HistogramAccumulator(DOMAIN).from_shards(shards).counts.tolist()))


def panes_of(source: Any, runner: str) -> list[tuple[int, list[int]]]:
    """What comes out for each window, as often as it does."""
    PANES.clear()
    options = PipelineOptions([f"--runner={runner}", "--streaming"])
    with beam.Pipeline(options=options) as pipeline:
        count = CountWindows(
            DOMAIN, HORIZON, WindowUnit("record", 1, 1, 1), "t", "came", unit_costs=None
        )
        _ = pipeline | source | count | beam.Map(_keep)
    return sorted(PANES)


def watermark_of(rows: Rows) -> int:
    """What a source may say after some rows: none will arrive before the last one did."""
    return rows[-1][3]


def course() -> Finding:
    """A stream and a batch of the same records: one table of each window, and the same ones."""
    rows = sorted(OTHERS + HEAVY, key=lambda row: row[3])
    elements = [
        ({"a": cell, "t": event, "came": arrival}, arrival) for _, cell, event, arrival in rows
    ]
    stream = test_stream.TestStream()
    watermark = 0
    for number, (element, arrival) in enumerate(elements):
        stream = stream.add_elements([TimestampedValue(element, Timestamp(arrival))])
        if (moved := watermark_of(rows[: number + 1])) > watermark:
            watermark = moved
            stream = stream.advance_watermark_to(Timestamp(watermark))
    streamed = panes_of(stream.advance_watermark_to_infinity(), "BundleBasedDirectRunner")
    batched = panes_of(beam.Create([element for element, _ in elements]), "FnApiRunner")
    return Finding(streamed == batched and [number for number, _ in batched] == IN_ORDER)


keep_all = replaced(
    count_windows_module,
    "keep_windows",
    lambda remembered, units, *_: (np.ones(units.shape[1], np.bool_), remembered),
)


def count_as_it_comes(patch: Patch) -> None:
    """What was processed first is kept, instead of what is first."""
    keep = count_windows_module.keep_windows

    def process(
        self: Any, pane: Any, next_window: Any, early: Any, waiting: Any, kept: Any
    ) -> Iterator[Any]:
        _, (number, rows) = pane
        turn = next_window.read() or 0
        next_window.write(turn + 1)
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(
                count_windows_module,
                "keep_windows",
                lambda remembered, units, _, *limits: keep(remembered, units, turn, *limits),
            )
            shards, after = self._count(number, list(rows), count_windows_module._read(kept.read()))
        kept.write(after.to_bytes())
        for shard in shards:
            yield TimestampedValue(shard, count_windows_module.stamp(self.horizon, number))

    patch.setattr(count_windows_module._CountInOrder, "process", process)


count_late_records = around(
    encode_module,
    "counted_windows",
    lambda original, horizon, events, arrivals: original(
        horizon, events, np.minimum(arrivals, events)
    ),
)
follow_events = replaced(
    sys.modules[__name__], "watermark_of", lambda rows: max(event for _, _, event, _ in rows)
)


def skip_empty(patch: Patch) -> None:
    original, shards = count_windows_module.of_each_window, count_windows_module._empty_shards

    def mutant(pipeline: Any, horizon: Any, elements: Any) -> Any:
        if elements is shards:
            return pipeline | "Nothing" >> beam.Create([], reshuffle=False)
        return original(pipeline, horizon, elements)

    patch.setattr(count_windows_module, "of_each_window", mutant)


def draw_early(patch: Patch) -> None:
    def into(self: Any) -> beam.WindowInto:
        windows = FixedWindows(self._seconds, offset=self._first_end % self._seconds)
        return beam.WindowInto(
            windows,
            trigger=Repeatedly(AfterCount(1)),
            accumulation_mode=AccumulationMode.ACCUMULATING,
        )

    patch.setattr(count_windows_module.BeamWindows, "into", into)


def audits() -> list[Audit]:
    guarantee = whole_promise(HORIZON, UNIT, 1.0, 0.0)
    checks = {"limits": limits, "replay": replay, "course": course}
    bugs = {
        "limits": {"cap not enforced": keep_all},
        "replay": {"cap by order of processing": count_as_it_comes},
        "course": {
            "late record counted": count_late_records,
            "watermark from event times": follow_events,
            "empty window skipped": skip_empty,
            "second pane drawn": draw_early,
        },
    }
    return [audited("windows of a stream", guarantee, checks, bugs, jobs=checks)]

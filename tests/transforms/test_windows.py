"""Every exported transform refuses collections that would be released pane by pane."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.transforms import trigger, window
from apache_beam.transforms.trigger import AccumulationMode
from apache_beam.transforms.window import TimestampCombiner
from fakes import COLLECTED, DOMAIN, collect, pipeline
from test_sources import PLANS, TRANSFORMS

from beam_dp import transforms
from beam_dp.errors import InputError
from beam_dp.mechanisms.windows.plan import plan_window_tables
from beam_dp.queries.workload import marginals
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms import (
    EncodeRecords,
    LimitContributions,
    ReleaseWindows,
    Summarise,
    WriteAnswers,
    WriteRelease,
)
from beam_dp.transforms.counting.summarise import CountElements
from beam_dp.windows.horizon import Horizon
from beam_dp.windows.unit import WindowUnit

GUARDED: dict[str, Callable[[Any, pathlib.Path], Any]] = {
    **{name: lambda records, _, apply=apply: apply(records) for name, apply in TRANSFORMS.items()},
    "LimitContributions": lambda records, _: (
        records | LimitContributions(DOMAIN, 1, cost_limit=None)
    ),
    "EncodeRecords": lambda records, _: records | EncodeRecords(DOMAIN, "who", as_cells=True),
    "Summarise": lambda records, _: records | Summarise(HistogramAccumulator(DOMAIN)),
    "WriteAnswers": lambda batches, out: batches | WriteAnswers(out, PLANS["private_mw"]),
    "WriteRelease": lambda shards, out: shards | WriteRelease(out),
    "ReleaseWindows": lambda records, out: (
        records | ReleaseWindows(WINDOWS, out, "0" * 32, "age", "age")
    ),
    # Not exported, but it groups.
    "CountElements": lambda records, _: records | CountElements(),
}
WINDOWS = plan_window_tables(
    marginals(DOMAIN, ways=1), Horizon(0, 10, 3, 0), WindowUnit("record", 1, 1, 1), 1.0, 0.0
)
WINDOWINGS: dict[str, dict[str, Any]] = {
    "fixed": {"windowfn": window.FixedWindows(60)},
    "sliding": {"windowfn": window.SlidingWindows(60, 30)},
    "sessions": {"windowfn": window.Sessions(60)},
    "trigger, discarding": {
        "trigger": trigger.Repeatedly(trigger.AfterCount(1)),
        "accumulation_mode": AccumulationMode.DISCARDING,
    },
    "trigger, accumulating": {
        "trigger": trigger.AfterWatermark(early=trigger.AfterCount(1)),
        "accumulation_mode": AccumulationMode.ACCUMULATING,
    },
    "accumulating": {"accumulation_mode": AccumulationMode.ACCUMULATING},
    "lateness": {"allowed_lateness": 60},
    "timestamps": {"timestamp_combiner": TimestampCombiner.OUTPUT_AT_LATEST},
}


def windowed(kind: str) -> beam.PTransform:
    return kind >> beam.WindowInto(**{"windowfn": window.GlobalWindows(), **WINDOWINGS[kind]})


def exported() -> set[str]:
    found = vars(transforms).values()
    return {
        each.__name__
        for each in found
        if isinstance(each, type) and issubclass(each, beam.PTransform)
    }


def test_every_exported_transform_is_tested_with_windows():
    """A new transform is added above, or takes a pipeline only."""
    readers = {"ReadRecords", "ReadArrivals", "ReadKafka", "SyntheticRows"}
    assert exported() - readers == GUARDED.keys() - {CountElements.__name__}


@pytest.mark.mostly_slow(one_in=3, start=2)
@pytest.mark.parametrize("name", GUARDED)
def test_rejects_windows_and_triggers(name, tmp_path):
    for kind, given in WINDOWINGS.items():
        records = pipeline() | beam.Create([{"age": 1}]) | windowed(kind)
        with pytest.raises(InputError, match=r"^records: .* must be in the global ") as refused:
            GUARDED[name](records, tmp_path / "out")
        text = str(refused.value)
        assert "\n" not in text and " at 0x" not in text
        found = text.partition(" is refused")[0]
        assert type(given.get("windowfn", window.GlobalWindows())).__name__ in found
        assert str(given.get("trigger", trigger.DefaultTrigger())) in found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(GUARDED.keys() - {"WriteAnswers", "ReleaseWindows"}))
def test_rejects_unbounded_collection(name, tmp_path):
    records = pipeline() | beam.Create([{"age": 1}])
    records.is_bounded = False
    with pytest.raises(InputError, match=r"^records: 'an unbounded .* must be bounded"):
        GUARDED[name](records, tmp_path / "out")


def test_advice_in_the_message_makes_one_release():
    with pipeline() as p:
        created = beam.Create([{"age": 1, "sex": "f", "smokes": True}] * 5)
        records = p | created.with_output_types(Any)
        for kind in ("sliding", "trigger, accumulating", "lateness", "timestamps"):
            records = records | windowed(kind)
        advised = records | beam.WindowInto(beam.window.GlobalWindows())
        cells = advised | EncodeRecords(DOMAIN, "record", as_cells=True)
        _ = cells | Summarise(HistogramAccumulator(DOMAIN)) | collect("shards")
    shards = set(COLLECTED["shards"])
    # Each record was put into two windows.
    assert HistogramAccumulator(DOMAIN).from_shards(shards).counts.sum() == 2 * 5

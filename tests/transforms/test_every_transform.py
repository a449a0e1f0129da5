"""Every transform reads what it needs of any source, and refuses windows and triggers.

That all sources give the same counts is tested in ``tests/contracts/test_sources.py``.
"""

from __future__ import annotations

import datetime
import decimal
import pathlib
import typing
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.transforms import trigger, window
from apache_beam.transforms.trigger import AccumulationMode
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.utils.timestamp import Timestamp
from fakes import COLLECTED, DOMAIN as PEOPLE, NoPrivacy, collect, pipeline, reading
from open_domains import guarantee as open_guarantee, open_domain

from beam_dp import transforms
from beam_dp.domain.attributes import CategoricalAttribute
from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.encoding.units import canonical_bytes
from beam_dp.errors import InputError
from beam_dp.mechanisms.discovery.plan import plan_domain
from beam_dp.mechanisms.linear_answers.answers import plan_workload_answers
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
from beam_dp.mechanisms.sketches.mechanisms import CountSketch
from beam_dp.mechanisms.windows.plan import plan_window_tables
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.queries.lines import read_line
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.workload import marginals
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms import (
    AnswerQueries,
    AnswerSparseQueries,
    AnswerWorkload,
    EncodeRecords,
    KeyColumns,
    LimitContributions,
    ReadRecords,
    ReleaseDomain,
    ReleaseIntervals,
    ReleaseProjection,
    ReleaseSyntheticDatabase,
    ReleaseWindows,
    Summarise,
    WriteAnswers,
    WriteRelease,
)
from beam_dp.transforms.counting.count_keys import CountElements
from beam_dp.windows.horizon import Horizon, WindowUnit

HUGE = 1e6  # an epsilon whose noise is 0, but with a probability that no test will see
DOMAIN = Domain(
    (
        IntegerAttribute("age", 0, 9),
        CategoricalAttribute("sex", ("f", "m"), nullable=True),
        IntegerAttribute("cost", 0, 4, other=True),
    )
)
WHO = Guarantee(HUGE, 0.0, "add_or_remove_one", "born", 2)
# Which records of a unit are kept follows a hash that each run of sparse_mw draws.
ALL_OF_THREE = Guarantee(HUGE, 0.0, "add_or_remove_one", "born", 3)
N = 200


class Visit(typing.NamedTuple):
    age: float
    sex: str | None
    cost: decimal.Decimal
    clinic: bytes
    born: datetime.date
    seen: datetime.datetime


SEEN = datetime.datetime(2024, 1, 1, 5, tzinfo=datetime.UTC)
VISIT = Visit(1.0, "f", decimal.Decimal(1), b"clinic 1", datetime.date(1990, 1, 1), SEEN)
KEY = KeyColumns("clinic")
QUERIES = [
    '{"conjunction": {"sex": "f"}}',
    '{"interval": {"attribute": "age", "low": 2, "high": 5}}',
    '{"conjunction": {"sex": null, "cost": 1}}',
]
PLANS = {
    "private_mw": plan_private_mw(DOMAIN, WHO, N, num_questions=3),
    "sparse_mw": plan_sparse_mw(ALL_OF_THREE, N, max_sparsity=2, num_questions=1),
    "laplace": plan_workload_answers(
        parse_linear_workload("\n".join(QUERIES), DOMAIN), WHO, N, "discrete_laplace"
    ),
    "count_sketch": CountSketch(3 * 128).plan(WHO, max_sparsity=2),
}
ASKED = tuple(read_line(LinearQueries(DOMAIN), line) for line in QUERIES)

TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "ReleaseSyntheticDatabase": lambda records: (
        records | ReleaseSyntheticDatabase(DOMAIN, marginals(DOMAIN, ways=2), WHO, NoPrivacy())  # type: ignore[arg-type]
    ),
    "ReleaseIntervals": lambda records: (
        records | ReleaseIntervals(DOMAIN, "age", WHO, strategy="histogram")
    ),
    "ReleaseProjection": lambda records: records | ReleaseProjection(PLANS["count_sketch"], KEY),
    "AnswerQueries": lambda records: (
        records.pipeline
        | "Queries" >> beam.Create([QUERIES])
        | AnswerQueries(PLANS["private_mw"], records)
    ),
    "AnswerSparseQueries": lambda records: (
        records.pipeline
        | "Queries" >> beam.Create(['{"sparse": {"clinic 1": 1.0, "clinic 4": 0.5}}'])
        | AnswerSparseQueries(PLANS["sparse_mw"], KEY, records)
    ),
    "AnswerWorkload": lambda records: records | AnswerWorkload(PLANS["laplace"], ASKED),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_reads_only_needed_columns_of_a_file(name, tmp_path):
    pyarrow.parquet.write_table(pa.Table.from_pylist([VISIT._asdict()]), tmp_path / "a.parquet")
    p = pipeline()
    TRANSFORMS[name](p | ReadRecords(str(tmp_path / "a.parquet")))
    needed = {
        "ReleaseIntervals": {"age", "born"},
        "ReleaseProjection": {"clinic", "born"},
        "AnswerSparseQueries": {"clinic", "born"},
    }
    assert set(reading(p).columns) == needed.get(name, {*DOMAIN.names, "born"})


class Lacking(typing.NamedTuple):
    age: int


@pytest.mark.parametrize("name", TRANSFORMS)
def test_every_transform_rejects_schema_that_lacks_a_column(name):
    rows = pipeline() | beam.Create([Lacking(1)])
    with pytest.raises(InputError, match="must be a field of the records; known are 'age'"):
        TRANSFORMS[name](rows)


def test_beam_timestamp_is_the_same_unit_as_python_datetime():
    expected = canonical_bytes(SEEN)
    assert canonical_bytes(Timestamp.from_utc_datetime(SEEN)) == expected
    assert expected is not None and expected.startswith(b"timestamp:1704")


GUARDED: dict[str, Callable[[Any, pathlib.Path], Any]] = {
    **{name: lambda records, _, apply=apply: apply(records) for name, apply in TRANSFORMS.items()},
    "LimitContributions": lambda records, _: (
        records | LimitContributions(PEOPLE, 1, cost_limit=None)
    ),
    "EncodeRecords": lambda records, _: records | EncodeRecords(PEOPLE, "who", as_cells=True),
    "Summarise": lambda records, _: records | Summarise(HistogramAccumulator(PEOPLE)),
    "WriteAnswers": lambda batches, out: batches | WriteAnswers(out, PLANS["private_mw"]),
    "WriteRelease": lambda shards, out: shards | WriteRelease(out),
    "ReleaseDomain": lambda records, _: (
        records | ReleaseDomain(plan_domain(open_domain(), open_guarantee()))
    ),
    "ReleaseWindows": lambda records, out: (
        records | ReleaseWindows(WINDOWS, out, "0" * 32, "age", "age")
    ),
    # Not exported, but it groups.
    "CountElements": lambda records, _: records | CountElements(),
}
WINDOWS = plan_window_tables(
    marginals(PEOPLE, ways=1), Horizon(0, 10, 3, 0), WindowUnit("record", 1, 1, 1), 1.0, 0.0
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
    found = (getattr(transforms, name) for name in transforms._HOMES)  # loaded at first use
    return {
        each.__name__
        for each in found
        if isinstance(each, type) and issubclass(each, beam.PTransform)
    }


def test_every_exported_transform_is_tested_with_windows():
    """A new transform is added above, or takes a pipeline or committed releases only."""
    readers = {"ReadRecords", "ReadArrivals", "ReadKafka"}
    readers |= {f"{kind}Rows" for kind in ("Synthetic", "Marginal", "Interval", "Answer", "Window")}
    assert exported() - readers == GUARDED.keys() - {CountElements.__name__}


def test_rejects_windows_and_triggers(tmp_path):
    """Each transform some kinds, and one of them all: they share the check."""
    kinds = [*WINDOWINGS]
    pairs = [("EncodeRecords", kind) for kind in kinds]
    pairs += [(name, kinds[(i + j) % len(kinds)]) for i, name in enumerate(GUARDED) for j in (0, 3)]
    for name, kind in pairs:
        given = WINDOWINGS[kind]
        records = pipeline() | beam.Create([{"age": 1}]) | windowed(kind)
        with pytest.raises(InputError, match=r"^records: .* must be in the global ") as refused:
            GUARDED[name](records, tmp_path / "out")
        text = str(refused.value)
        assert "\n" not in text and " at 0x" not in text, name
        found = text.partition(" is not valid")[0]
        assert type(given.get("windowfn", window.GlobalWindows())).__name__ in found
        assert str(given.get("trigger", trigger.DefaultTrigger())) in found
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sorted(GUARDED.keys() - {"WriteAnswers", "ReleaseWindows"}))
def test_rejects_unbounded_collection(name, tmp_path):
    records = pipeline() | beam.Create([{"age": 1}])
    records.is_bounded = False
    with pytest.raises(InputError, match=r"^records: 'an unbounded .* must be bounded"):
        GUARDED[name](records, tmp_path / "out")


@pytest.mark.job
def test_global_window_merges_windows_into_one_histogram():
    with pipeline() as p:
        created = beam.Create([{"age": 1, "sex": "f", "smokes": True}] * 5)
        records = p | created.with_output_types(Any)
        for kind in ("sliding", "trigger, accumulating", "lateness", "timestamps"):
            records = records | windowed(kind)
        advised = records | beam.WindowInto(beam.window.GlobalWindows())
        cells = advised | EncodeRecords(PEOPLE, "record", as_cells=True)
        _ = cells | Summarise(HistogramAccumulator(PEOPLE)) | collect("shards")
    shards = set(COLLECTED["shards"])
    # Each record was put into two windows.
    assert HistogramAccumulator(PEOPLE).from_shards(shards).counts.sum() == 2 * 5

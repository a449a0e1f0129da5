"""Every transform reads what it needs of any source, and refuses windows and triggers.

That all sources give the same counts is tested in ``tests/contracts/test_sources.py``.
"""

from __future__ import annotations

import datetime
import decimal
import json
import pathlib
import typing
from collections.abc import Callable
from typing import Any

import apache_beam as beam
import fakes
import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.transforms import trigger, window
from apache_beam.transforms.trigger import AccumulationMode
from apache_beam.transforms.window import TimestampCombiner
from apache_beam.utils.timestamp import Timestamp
from fakes import COLLECTED, DOMAIN as PEOPLE, NoPrivacy, collect, pipeline, reading
from jobs import key_flags
from open_domains import guarantee as open_guarantee, open_domain

import beam_dp as dp
from beam_dp.hashing.keys import HashKey
from beam_dp.queries.reader import read_line
from beam_dp.queries.sparse import SparseQueries, conjunction_of_text
from beam_dp.secret.encoding.units import canonical_bytes
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.count_keys import CountElements
from beam_dp.transforms.counting.limit_contributions import LimitContributions
from beam_dp.transforms.counting.summarise import EncodeRecords, Summarise
from pipelines.answer_queries import main

HUGE = 1e6  # an epsilon whose noise is 0, but with a probability that no test will see
DOMAIN = dp.Domain(
    (
        dp.IntegerAttribute("age", 0, 9),
        dp.CategoricalAttribute("sex", ("f", "m"), nullable=True),
        dp.IntegerAttribute("cost", 0, 4, other=True),
    )
)
WHO = dp.Guarantee(HUGE, 0.0, "add_or_remove_one", "born", 2)
# Which records of a unit are kept follows a hash that each run of sparse_mw draws.
ALL_OF_THREE = dp.Guarantee(HUGE, 0.0, "add_or_remove_one", "born", 3)
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
KEY = dp.KeyColumns("clinic")
QUERIES = [
    '{"conjunction": {"sex": "f"}}',
    '{"interval": {"attribute": "age", "low": 2, "high": 5}}',
    '{"conjunction": {"sex": null, "cost": 1}}',
]
PLANS = {
    "private_mw": dp.plan_private_mw(DOMAIN, WHO, N, num_questions=3),
    "sparse_mw": dp.plan_sparse_mw(ALL_OF_THREE, N, max_sparsity=2, num_questions=1),
    "laplace": dp.plan_workload_answers(
        dp.parse_linear_workload("\n".join(QUERIES), DOMAIN), WHO, N, "discrete_laplace"
    ),
    "count_sketch": dp.CountSketch(3 * 128).plan(WHO, max_sparsity=2),
}
ASKED = tuple(read_line(dp.LinearQueries(DOMAIN), line) for line in QUERIES)

TRANSFORMS: dict[str, Callable[[Any], Any]] = {
    "ReleaseSyntheticDatabase": lambda records: (
        records
        | dp.ReleaseSyntheticDatabase(DOMAIN, dp.marginals(DOMAIN, ways=2), WHO, NoPrivacy())  # type: ignore[arg-type]
    ),
    "ReleaseIntervals": lambda records: (
        records | dp.ReleaseIntervals(DOMAIN, "age", WHO, strategy="histogram")
    ),
    "ReleaseProjection": lambda records: records | dp.ReleaseProjection(PLANS["count_sketch"], KEY),
    "AnswerQueries": lambda records: (
        records.pipeline
        | "Queries" >> beam.Create([QUERIES])
        | dp.AnswerQueries(PLANS["private_mw"], records)
    ),
    "AnswerSparseQueries": lambda records: (
        records.pipeline
        | "Queries" >> beam.Create(['{"sparse": {"clinic 1": 1.0, "clinic 4": 0.5}}'])
        | dp.AnswerSparseQueries(PLANS["sparse_mw"], KEY, records)
    ),
    "AnswerWorkload": lambda records: records | dp.AnswerWorkload(PLANS["laplace"], ASKED),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_reads_only_needed_columns_which_a_schema_must_have(name, tmp_path):
    pyarrow.parquet.write_table(pa.Table.from_pylist([VISIT._asdict()]), tmp_path / "a.parquet")
    p = pipeline()
    TRANSFORMS[name](p | dp.ReadRecords(str(tmp_path / "a.parquet")))
    needed = {
        "ReleaseIntervals": {"age", "born"},
        "ReleaseProjection": {"clinic", "born"},
        "AnswerSparseQueries": {"clinic", "born"},
    }
    assert set(reading(p).columns) == needed.get(name, {*DOMAIN.names, "born"})
    rows = pipeline() | beam.Create([Lacking(1)])
    with pytest.raises(dp.InputError, match="must be a field of the records; known are 'age'"):
        TRANSFORMS[name](rows)


class Lacking(typing.NamedTuple):
    age: int


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
    "WriteAnswers": lambda batches, out: batches | dp.WriteAnswers(out, PLANS["private_mw"]),
    "WriteRelease": lambda shards, out: shards | dp.WriteRelease(out),
    "ReleaseDomain": lambda records, _: (
        records | dp.ReleaseDomain(dp.plan_domain(open_domain(), open_guarantee()))
    ),
    "ReleaseWindows": lambda records, out: (
        records | dp.ReleaseWindows(WINDOWS, out, "0" * 32, "age", "age")
    ),
    # Not exported, but it groups.
    "CountElements": lambda records, _: records | CountElements(),
}
WINDOWS = dp.plan_window_tables(
    dp.marginals(PEOPLE, ways=1),
    dp.Horizon(0, 10, 3, 0),
    dp.WindowUnit("record", 1, 1, 1),
    1.0,
    0.0,
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
    found = (getattr(dp, name) for name in dp.__all__)  # loaded at first use
    found = (*found, EncodeRecords, LimitContributions, Summarise)
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
        with pytest.raises(dp.InputError, match=r"^records: .* must be in the global ") as refused:
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
    with pytest.raises(dp.InputError, match=r"^records: 'an unbounded .* must be bounded"):
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


@pytest.fixture(autouse=True)
def seeded(monkeypatch) -> None:
    fakes.seed_noise(monkeypatch)


EMAILS = [f"{i % 20}@example.org" for i in range(4000)]  # 200 records of each
RECORDS = [{"email": key, "person": i // 2} for i, key in enumerate(EMAILS)]
LINES = [
    '{"id": "first", "sparse": {"3@example.org": 1, "4@example.org": 0.5}}',
    '{"sparse": {"3@example.org": 2}}',
    '{"sparse": {"a": 1, "b": 1, "c": 1, "d": 1}}',
    '{"sparse": [[5, 1]]}',
    '{"sparse": {"nobody": 1}}',
]


def plan(unit: str = "record", k: int = 1) -> Any:
    promise = dp.Guarantee(1000.0, 1e-9, "add_or_remove_one", unit, k)
    return dp.plan_sparse_mw(promise, "noisy", max_sparsity=3, num_questions=5, max_updates=5)


def answering(lines: list[Any], made: Any, records: list[dict[str, Any]] = RECORDS) -> Any:
    def branch(p: Any) -> Any:
        data = p | "Records" >> beam.Create(records)
        asked = p | "Lines" >> beam.Create([lines])
        return asked | dp.AnswerSparseQueries(made, dp.KeyColumns("email"), data)

    return branch


@pytest.mark.job
def test_answers_queries_accurately_and_reports_invalid_queries():
    found = fakes.outputs(
        {
            "queries": answering(LINES, plan()),
            "of units": answering([LINES[0]], plan("person", 1)),
            "no queries": answering([], plan(), []),
            "no records": answering([LINES[0]], plan(), []),
        }
    )
    rows = {name: batches[0].answers for name, batches in found.items()}
    each = rows["queries"]
    assert [row["error"] is None for row in each] == [True, False, False, False, True]
    assert each[0]["id"] == "first"
    assert each[0]["value"] == pytest.approx(300, abs=each[0]["bound"])
    assert each[4]["value"] == pytest.approx(0, abs=each[4]["bound"])
    assert "3" in each[2]["error"] and "must be text" in each[3]["error"]
    # Of each person one of two records, with neighbouring keys, is kept.
    (row,) = rows["of units"]
    assert row["bound"] < 40 and row["value"] == pytest.approx(150, abs=80)
    assert rows["no queries"] == []
    (row,) = rows["no records"]
    assert row["value"] == pytest.approx(0, abs=row["bound"])


def test_elements_of_one_query_never_share_a_fingerprint(monkeypatch):
    reader = SparseQueries("text", 3, HashKey.draw(1))
    asked = {"sparse": {"a": 1, "b": 1}}
    assert reader.from_json(asked).sparsity == 2
    same = lambda elements, key: np.zeros(len(elements), np.uint64)  # noqa: E731
    monkeypatch.setattr("beam_dp.queries.sparse.universe_elements", same)
    with pytest.raises(dp.InputError, match="must not share a fingerprint"):
        reader.from_json(asked)


@pytest.mark.job
def test_program_answers_all_conjunctions_over_rows(tmp_path):
    rows = ["1111"] * 3000 + ["1101"] * 2000 + ["0000"] * 9
    asked = {"mechanism": "sparse_mw", "queries": "row_conjunctions:4,3", "num_records": "noisy"}
    assert main(key_flags(tmp_path, keys=rows, max_sparsity=None, **asked)) == 0
    (path,) = (tmp_path / "out").glob("answers-*.avro")
    with path.open("rb") as file:
        found: list[Any] = list(fastavro.reader(file))
    family = dp.RowConjunctions(4, 3)
    assert [json.loads(row["query"]) for row in found] == family.to_json()
    for row, text in zip(found, family, strict=True):
        exact = sum(map(rows.count, conjunction_of_text(text).elements))
        assert abs(row["value"] - exact) <= row["bound"] < len(rows) / 2
    plan_on_card = json.loads((tmp_path / "out" / "card.json").read_text())["plan"]
    assert (plan_on_card["max_sparsity"], plan_on_card["num_questions"]) == (2, 32)

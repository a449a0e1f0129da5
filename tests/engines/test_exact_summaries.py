"""Flink counts as FnApiRunner does, to the last record, and answers a stream of queries once."""

from __future__ import annotations

import json
import pathlib
import pickle
import uuid
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from jobs import DOMAIN, people, write_table
from test_sources import ROWS, promises, summarised

import beam_dp as dp
from beam_dp.secret.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.answers import AnswerBatch
from beam_dp.transforms.counting.summarise import CountCells
from beam_dp.transforms.drawing.answer_queries import AnswerQueries
from beam_dp.transforms.reading.read import ReadRecords

pytestmark = [pytest.mark.engines, pytest.mark.part]
# Both slots of Flink read some of the files, so that their counts must be added; people of one
# unit are in different files.
NUM_FILES, TIMES = 4, 100
# 2^20 cells: eight blocks of 1 MiB.
MANY_CELLS = dp.Domain((dp.IntegerAttribute("who", 0, 2**19 - 1), dp.IntegerAttribute("age", 0, 1)))


class _Keep(beam.DoFn):
    """Writes a file for each element: workers share a directory with the test, but no memory."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def process(self, element: Any) -> None:
        (self.folder / uuid.uuid4().hex).write_bytes(pickle.dumps(element))


def counted(folder: pathlib.Path, pattern: str, flags: list[str]) -> tuple[Any, Any]:
    folder.mkdir()
    promise = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        records = pipeline | dp.ReadRecords(pattern)
        cells = records | "Many" >> CountCells(MANY_CELLS, promise, unit_costs=None)
        blocks = cells | beam.Map(lambda shard: ("blocks", shard))
        _ = (promises(records), blocks) | "All" >> beam.Flatten() | beam.ParDo(_Keep(folder))
    found = [pickle.loads(path.read_bytes()) for path in sorted(folder.iterdir())]
    many = HistogramAccumulator(MANY_CELLS).from_shards(
        [shard for label, shard in found if label == "blocks"]
    )
    return summarised([each for each in found if each[0] != "blocks"]), many.counts.tolist()


def test_flink_counts_exactly(tmp_path, flink):
    rows = [
        {**row, "who": row["who"] and row["who"] + 1000 * time}
        for time in range(TIMES)
        for row in ROWS
    ]
    for number in range(NUM_FILES):
        part = pa.Table.from_pylist(rows[number::NUM_FILES])
        pyarrow.parquet.write_table(part, tmp_path / f"people-{number}.parquet")
    pattern = str(tmp_path / "people-*.parquet")
    local, many = counted(tmp_path / "local", pattern, ["--runner=FnApiRunner"])
    assert all(local.values()) and sum(many)
    assert counted(tmp_path / "flink", pattern, flink) == (local, many)


QUERIES = [
    '{"id": "women", "conjunction": {"sex": "Female"}}',
    '{"id": "up to 60", "prefix": {"attribute": "age", "high": 60}}',
    '{"id": "smokers", "conjunction": {"smokes": true}}',
]
TIMES_ASKED = 3


class _AsStream(beam.PTransform):
    """Elements of an unbounded source, so that they are answered as they arrive."""

    def expand(self, elements: beam.PCollection[str]) -> beam.PCollection[str]:
        stream = elements | beam.Reshuffle()
        stream.is_bounded = False
        return stream


class _KeepAnswers(beam.DoFn):
    """Writes one file per batch: workers share a directory with the test, but no memory."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def process(self, batch: AnswerBatch) -> None:
        values = [(row["id"], row["value"]) for row in batch.answers]
        file = self.folder / f"{batch.run_id}-{batch.number}"
        file.write_text(json.dumps(values), encoding="utf-8")


def test_one_run_answers_a_stream_of_queries(tmp_path, flink):
    guarantee = dp.Guarantee(1000.0, 1e-9, dp.Neighboring.ADD_OR_REMOVE_ONE, "record", 1)
    plan = dp.plan_private_mw(
        dp.parse_domain(json.dumps(DOMAIN), source="domain"),
        guarantee,
        "noisy",
        num_questions=len(QUERIES),
        failure_probability=0.05,
    )
    path, kept = write_table(tmp_path, people()), tmp_path / "kept"
    kept.mkdir()
    # One query per bundle, so that each finds the state left by the previous one.
    flags = [*flink, "--streaming", "--max_bundle_size=1"]
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        queries = pipeline | beam.Create(QUERIES * TIMES_ASKED) | _AsStream()
        records = pipeline | "Records" >> ReadRecords(path)
        _ = queries | AnswerQueries(plan, records) | beam.ParDo(_KeepAnswers(kept))
    names = [file.name.split("-") for file in kept.iterdir()]
    assert len({run_id for run_id, _ in names}) == 1
    assert sorted(int(number) for _, number in names) == list(range(len(names)))
    assert len(names) > 1
    answers = [tuple(row) for file in kept.iterdir() for row in json.loads(file.read_text())]
    assert len(answers) == len(QUERIES) * TIMES_ASKED
    # An answered query is not answered again.
    assert len(set(answers)) == len(QUERIES)

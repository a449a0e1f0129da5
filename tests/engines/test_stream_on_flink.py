"""A stream of queries: on Flink, too, one run answers them all from its state."""

from __future__ import annotations

import json
import pathlib

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from jobs import DOMAIN, people, write_table

import beam_dp as dp
from beam_dp.transforms import AnswerBatch, AnswerQueries, ReadRecords

pytestmark = [pytest.mark.engines, pytest.mark.part]
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


class _Keep(beam.DoFn):
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
        _ = queries | AnswerQueries(plan, records) | beam.ParDo(_Keep(kept))
    names = [file.name.split("-") for file in kept.iterdir()]
    assert len({run_id for run_id, _ in names}) == 1
    assert sorted(int(number) for _, number in names) == list(range(len(names)))
    assert len(names) > 1
    answers = [tuple(row) for file in kept.iterdir() for row in json.loads(file.read_text())]
    assert len(answers) == len(QUERIES) * TIMES_ASKED
    # An answered query is not answered again.
    assert len(set(answers)) == len(QUERIES)

"""Flink counts as FnApiRunner does: all of the contract of sources, to the last record."""

from __future__ import annotations

import pathlib
import pickle
import uuid
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from test_sources import ROWS, promises, summarised

import beam_dp as dp
from beam_dp.summaries.histogram import HistogramAccumulator
from beam_dp.transforms.counting.summarise import CountCells

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

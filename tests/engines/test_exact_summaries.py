"""Flink's counts equal FnApiRunner's: every summary, to the last record."""

from __future__ import annotations

import json
import pathlib
import uuid
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow.parquet
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from jobs import DOMAIN, people
from numpy.typing import NDArray

import beam_dp as dp
from beam_dp.hashing.keys import HashKey
from beam_dp.hashing.projections import BlockSigns
from beam_dp.summaries.histogram import HistogramAccumulator, MarginalsAccumulator
from beam_dp.summaries.projection import ProjectionAccumulator
from beam_dp.transforms import EncodeRecords, KeyColumns, ReadRecords, Summarise
from beam_dp.transforms.counting.count_keys import CountElements, counts_of_shards
from beam_dp.transforms.counting.summarise import CountCells, EncodeKeys

pytestmark = [pytest.mark.engines, pytest.mark.part]
# Both slots of Flink read some of the files, so that their counts must be added.
NUM_FILES, NUM_RECORDS = 4, 20_000
Shards = Iterable[tuple[int, bytes]]
TABLES = (("age", "sex"), ("smokes",))


class Summary(NamedTuple):
    """From records to shards, and from all shards to one array."""

    count: Callable[[Any], Any]
    read: Callable[[Shards], NDArray[np.int64]]


def domain_of(*attributes: dict[str, Any]) -> dp.Domain:
    return dp.parse_domain(json.dumps({"attributes": attributes}), source="domain")


def histogram(domain: dp.Domain, privacy_unit: str = "record") -> Summary:
    guarantee = dp.Guarantee(1.0, 0.0, dp.Neighboring.ADD_OR_REMOVE_ONE, privacy_unit, 1)
    accumulator = HistogramAccumulator(domain)
    return Summary(
        CountCells(domain, guarantee, unit_costs=None).expand,
        lambda shards: accumulator.from_shards(shards).counts,
    )


def marginals(domain: dp.Domain) -> Summary:
    accumulator = MarginalsAccumulator(domain, TABLES)

    def read(shards: Shards) -> NDArray[np.int64]:
        found = accumulator.from_shards(shards)
        return np.concatenate([found.marginal(table).ravel() for table in TABLES])

    return Summary(
        lambda records: (
            records | EncodeRecords(domain, "record", as_cells=False) | Summarise(accumulator)
        ),
        read,
    )


def _keys(hash_key: HashKey) -> EncodeKeys:
    columns = KeyColumns("household", "text")
    return EncodeKeys(columns, 1, hash_key, "record")


def projection(hash_key: HashKey) -> Summary:
    accumulator = ProjectionAccumulator(BlockSigns(hash_key, 4096))
    return Summary(
        lambda records: records | _keys(hash_key) | Summarise(accumulator),
        lambda shards: accumulator.from_shards(shards).sums,
    )


def counts_of_keys(hash_key: HashKey) -> Summary:
    def read(shards: Shards) -> NDArray[np.int64]:
        found = counts_of_shards(data for _, data in shards)
        return np.stack((found.elements.view(np.int64), found.counts))

    return Summary(
        lambda records: (
            records | _keys(hash_key) | CountElements() | beam.Map(lambda data: (0, data))
        ),
        read,
    )


HASH_KEY = HashKey.draw(4)  # public, and the same for both runners
PEOPLE = domain_of(*DOMAIN["attributes"])
# 2^20 cells: eight blocks of 1 MiB.
MANY_CELLS = domain_of(
    {"name": "household", "type": "integer", "min": 0, "max": 2**19 - 1}, DOMAIN["attributes"][1]
)
SUMMARIES = {
    "histogram": histogram(PEOPLE),
    # The household's own records decide which of them is kept.
    "histogram, one record a household": histogram(PEOPLE, "household"),
    "histogram of many blocks": histogram(MANY_CELLS),
    "marginals": marginals(PEOPLE),
    "projection": projection(HASH_KEY),
    "counts of keys": counts_of_keys(HASH_KEY),
}


class _Keep(beam.DoFn):
    """Writes one file per shard: workers share a directory with the test, but no memory."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def process(self, shard: tuple[int, bytes]) -> None:
        (self.folder / f"{shard[0]}-{uuid.uuid4().hex}").write_bytes(shard[1])


def counted(
    folder: pathlib.Path, summary: Summary, pattern: str, flags: list[str]
) -> NDArray[np.int64]:
    folder.mkdir()
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        _ = summary.count(pipeline | ReadRecords(pattern)) | beam.ParDo(_Keep(folder))
    files = sorted(folder.iterdir())
    assert files
    return summary.read((int(file.name.partition("-")[0]), file.read_bytes()) for file in files)


@pytest.mark.parametrize("name", SUMMARIES)
def test_flink_counts_exactly(name, tmp_path, flink):
    table = people(NUM_RECORDS)
    for number in range(NUM_FILES):
        # Every fourth record: people of one household are in different files.
        part = table.take(np.arange(number, NUM_RECORDS, NUM_FILES))
        pyarrow.parquet.write_table(part, tmp_path / f"people-{number}.parquet")
    pattern, summary = str(tmp_path / "people-*.parquet"), SUMMARIES[name]
    expected = counted(tmp_path / "local", summary, pattern, ["--runner=FnApiRunner"])
    assert expected.any()
    found = counted(tmp_path / "flink", summary, pattern, flink)
    np.testing.assert_array_equal(found, expected)

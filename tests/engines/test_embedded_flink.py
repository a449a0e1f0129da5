"""Every program on an embedded Flink, compared with the same program on FnApiRunner."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import uuid
from typing import Any

import apache_beam as beam
import fastavro
import numpy as np
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from jobs import DOMAIN, everything_under, job_flags, people, write_table

from beam_dp.domain_json import parse_domain
from beam_dp.releases import read_release
from beam_dp.summaries import HistogramAccumulator
from beam_dp.transforms import EncodeRecords, ReadRecords, Summarise
from pipelines import answer_queries, release_synthetic_database

pytestmark = pytest.mark.engines
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOCAL = ["--runner=FnApiRunner"]
CHOSEN = {"draw_id", "files"}  # what differs between two draws of one job


@pytest.fixture(scope="session")
def flink() -> list[str]:
    """Flags of an embedded Flink with two slots; a skip that says what is missing."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed")
    jars = sorted((ROOT / "flink-jars").glob(f"*-job-server-{beam.__version__}.jar"))
    jar = os.environ.get("BEAM_DP_FLINK_JOB_SERVER_JAR") or (str(jars[-1]) if jars else None)
    if jar is None:
        pytest.skip("no job server of Flink: `make flink` fetches it, where Maven is installed")
    return [
        "--runner=FlinkRunner",
        "--flink_master=[local]",
        f"--flink_job_server_jar={jar}",
        "--parallelism=2",
    ]


class _KeepShards(beam.DoFn):
    """One file a shard: workers of an engine share a directory with the test, and no memory."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder

    def process(self, shard: tuple[int, bytes]) -> None:
        (self.folder / f"{shard[0]}-{uuid.uuid4().hex}").write_bytes(shard[1])


def summary(folder: pathlib.Path, flags: list[str]) -> Any:
    """The exact histogram of the people, counted on a runner."""
    folder.mkdir()
    domain = parse_domain(json.dumps(DOMAIN), source="domain")
    accumulator = HistogramAccumulator(domain)
    path = write_table(folder.parent, people())
    with beam.Pipeline(options=PipelineOptions(flags)) as pipeline:
        _ = (
            pipeline
            | ReadRecords(path)
            | EncodeRecords(domain, "record", as_cells=True)
            | Summarise(accumulator)
            | beam.ParDo(_KeepShards(folder))
        )
    files = sorted(folder.iterdir())
    assert files
    return accumulator.from_shards(
        (int(file.name.partition("-")[0]), file.read_bytes()) for file in files
    )


def test_exact_summaries_are_equal(tmp_path: pathlib.Path, flink: list[str]) -> None:
    expected = summary(tmp_path / "local", LOCAL)
    assert expected.counts.sum() > 0
    counted = summary(tmp_path / "flink", flink)
    np.testing.assert_array_equal(counted.counts, expected.counts)


def card(directory: pathlib.Path) -> dict[str, Any]:
    """The card without what two draws of one job choose."""
    text = (directory / "card.json").read_text(encoding="utf-8")
    return {name: value for name, value in json.loads(text).items() if name not in CHOSEN}


def test_a_synthetic_database_has_equal_structure_and_guarantee(
    tmp_path: pathlib.Path, flink: list[str]
) -> None:
    for name, flags in (("local", LOCAL), ("flink", flink)):
        # With a public number of records the released number is the same for every draw.
        argv = job_flags(tmp_path, num_records="500", output=str(tmp_path / name))
        assert release_synthetic_database.main([*argv, *flags]) == 0
        assert len(everything_under(tmp_path / name)) == 3  # and so no draft
    local, distributed = (read_release(tmp_path / name) for name in ("local", "flink"))
    assert distributed.draw_id != local.draw_id
    left, right = card(tmp_path / "flink"), card(tmp_path / "local")
    assert left.keys() == right.keys()
    for name in ("mechanism", "guarantee", "domain", "workload", "num_records"):
        assert left[name] == right[name], name


def test_answers_have_equal_structure_and_guarantee(
    tmp_path: pathlib.Path, flink: list[str]
) -> None:
    queries = tmp_path / "queries.jsonl"
    queries.write_text('{"id": "women", "conjunction": {"sex": "Female"}}\n', encoding="utf-8")
    rows = {}
    for name, flags in (("local", LOCAL), ("flink", flink)):
        output = tmp_path / name
        argv = job_flags(tmp_path, workload=None, queries=str(queries), output=str(output))
        assert answer_queries.main([*argv, *flags]) == 0
        assert len(everything_under(output)) == 2
        (path,) = output.glob("answers-*.avro")
        with path.open("rb") as file:
            (rows[name],) = [dict(row) for row in fastavro.reader(file)]  # type: ignore[call-overload]
    women = people()["sex"].to_pylist().count("Female")
    for row in rows.values():
        assert row["id"] == "women" and abs(row["value"] - women) <= row["bound"]
    assert rows["flink"].keys() == rows["local"].keys()
    left, right = card(tmp_path / "flink"), card(tmp_path / "local")
    assert left.keys() == right.keys()
    for name in ("mechanism", "guarantee", "plan"):
        assert left[name] == right[name], name

"""Windows in Beam YAML: what is read can be read again, and a horizon is paid for once."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from jobs import write_table
from yaml_jobs import run, step

import beam_dp as dp
import beam_dp.yaml
from beam_dp.privacy.ledger.ledger import Ledger
from pipelines import release_windows, yaml_transforms

START = 1_790_000_000 - 1_790_000_000 % 3600
HORIZON = {"start": "2026-09-21T14:00Z", "window": "1h", "num_windows": 3, "grace": "0s"}
UNIT = "person in any 3 consecutive windows of 1h"
PROMISED = ("guarantee", "plan", "workload")
FIELDS: dict[str, Any] = {
    **HORIZON,
    "domain": {"age": 4},
    "workload": "marginals:1",
    "event_time": "t",
    "arrival": "t",
    "epsilon": 1,
    "delta": 0,
    "neighboring": "add_or_remove_one",
    "privacy_unit": "person",
    "max_records_per_unit": 1,
    "max_windows_per_unit": 1,
    "protected_windows": 3,
}


def read(folder: Path) -> dict[str, Any]:
    numbers = range(300)
    times = [START + 36 * number for number in numbers]
    table = {"person": list(numbers), "age": [number % 4 for number in numbers], "t": times}
    return step("ReadRecords", input=write_table(folder, pa.table(table)))


@pytest.mark.job
def test_horizon_continues_without_another_draw_or_payment(tmp_path):
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 1.5, 0, UNIT, "add_or_remove_one")
    out = tmp_path / "out"
    budget = {"ledger": ledger.name, "dataset_id": "people", "output": str(out)}
    release = step("ReleaseWindows", **FIELDS, **budget)
    draws, reading = [], read(tmp_path)
    for name in ("first", "second"):
        write = step("WriteToParquet", path=str(tmp_path / name))
        run(reading, release, step("WindowRows", attributes="age"), write)
        table = pa.concat_tables(map(pq.read_table, tmp_path.glob(f"{name}-*")))
        draws.append(sorted(zip(*table.to_pydict().values(), strict=True)))
    assert draws[0] == draws[1] and len(draws[0]) == 3 * 4
    (entry,) = ledger.entries("people")
    ledger.mark_released(entry)
    shutil.rmtree(out / "windows" / "000001")
    with pytest.raises(ValueError, match="is missing released windows, and people/1 paid for"):
        run(reading, release)
    flags = {name: str(each) for name, each in FIELDS.items() if name != "domain"}
    flags |= {"domain": '{"age": 4}', "input": "unused", "output": "unused", "replay": "true"}
    argv = [f"--{name}" if each == "true" else f"--{name}={each}" for name, each in flags.items()]
    promised = json.loads(json.dumps(release_windows.parse_arguments(argv).card()))
    card = json.loads((out / "horizon.json").read_text())
    assert [card[name] for name in PROMISED] == [promised[name] for name in PROMISED]


@pytest.mark.parametrize("is_joined", [False, True])
def test_source_that_cannot_be_read_again_is_refused(tmp_path, is_joined):
    fields = {**FIELDS, "output": str(tmp_path / "out")}
    pipeline = beam.Pipeline()
    records = pipeline | beam.Create([{"age": 1}])
    if is_joined:
        files = pipeline | beam_dp.yaml.ReadRecords(**read(tmp_path)["config"])
        records = (files, records) | beam.Flatten()
    with pytest.raises(ValueError, match="must all come from ReadKafka or ReadRecords"):
        _ = records | beam_dp.yaml.ReleaseWindows(**fields)
    assert not (tmp_path / "out").exists()


def test_two_transforms_do_not_write_the_same_horizon(tmp_path):
    records = beam.Pipeline() | beam_dp.yaml.ReadRecords(**read(tmp_path)["config"])
    fields = {**FIELDS, "output": str(tmp_path / "out")}
    _ = records | beam_dp.yaml.ReleaseWindows(**fields)
    with pytest.raises(ValueError, match="this pipeline writes there already"):
        _ = records | "again" >> beam_dp.yaml.ReleaseWindows(**fields)


def test_mistake_leaves_no_horizon_that_keeps_it(tmp_path):
    source = {"input": write_table(tmp_path, pa.table({"person": [1], "age": [2], "t": [START]}))}
    right = {**FIELDS, "output": str(tmp_path / "out")}
    for wrong in ({"event_time": "seen"}, {"private_folder": "gs://bucket/folder"}):
        with pytest.raises(ValueError, match=f"^{next(iter(wrong))}: "):
            records = beam.Pipeline() | beam_dp.yaml.ReadRecords(**source)
            _ = records | beam_dp.yaml.ReleaseWindows(**{**right, **wrong})
    assert [each.name for each in tmp_path.iterdir()] == [Path(source["input"]).name]
    records = beam.Pipeline() | beam_dp.yaml.ReadRecords(**source)
    _ = records | beam_dp.yaml.ReleaseWindows(**right)
    assert (tmp_path / "out" / "horizon.json").exists()
    assert (tmp_path / "out.private" / "files.sqlite").exists()


def test_horizon_that_another_pipeline_has_just_begun_is_refused(tmp_path, monkeypatch):
    other = "0" * 32
    monkeypatch.setattr(yaml_transforms, "begin_horizon", lambda *_: other)
    with pytest.raises(ValueError, match=r"^output: .* two pipelines at a time"):
        records = beam.Pipeline() | beam_dp.yaml.ReadRecords(**read(tmp_path)["config"])
        _ = records | beam_dp.yaml.ReleaseWindows(**FIELDS, output=str(tmp_path / "out"))


def test_topic_is_read_as_its_fields_say(monkeypatch):
    given: list[Any] = []
    topic = beam.Create([{"age": 1}])

    def made(*arguments: Any, **named: Any) -> beam.PTransform:
        given.append((arguments, named))
        return topic

    monkeypatch.setattr(yaml_transforms.read_kafka, "ReadKafka", made)
    fields = {"servers": "broker:9092", "topic": "visits", "settle": "10s"}
    _ = beam.Pipeline() | beam_dp.yaml.ReadKafka(**fields, **HORIZON)
    horizon = dp.Horizon("2026-09-21T14:00Z", "1h", 3, "0s")
    assert given == [(("broker:9092", "visits", horizon), {"settle": "10s"})]

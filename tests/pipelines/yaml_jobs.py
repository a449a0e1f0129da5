"""Small pipelines of Beam YAML for the tests of its transforms."""

from __future__ import annotations

import pathlib
from typing import Any

import apache_beam as beam
import yaml
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.yaml.yaml_transform import expand_pipeline
from jobs import DOMAIN, people, write_table

NAMES = (
    "AnswerQueries",
    "ReadRecords",
    "ReleaseIntervals",
    "ReleaseProjection",
    "ReleaseSyntheticDatabase",
)
PROMISE: dict[str, Any] = {
    "epsilon": 1,
    "delta": 0,
    "neighboring": "add_or_remove_one",
    "privacy_unit": "household",
    "max_records_per_unit": 2,
}
RELEASE = {**PROMISE, "domain": DOMAIN, "workload": "marginals:2", "num_records": "noisy"}


def build(pipeline: beam.Pipeline, spec: dict[str, Any]) -> None:
    """Adds a chain or a composite to a pipeline, written and read as YAML."""
    providers = {
        "type": "python",
        "config": {"packages": []},
        "transforms": {name: f"beam_dp.yaml.{name}" for name in NAMES},
    }
    expand_pipeline(pipeline, yaml.safe_dump({"pipeline": spec, "providers": [providers]}))


def run(*transforms: dict[str, Any]) -> None:
    """Builds and runs a chain."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        build(pipeline, {"type": "chain", "transforms": list(transforms)})


def step(name: str, **config: Any) -> dict[str, Any]:
    return {"type": name, "config": config}


def read(folder: pathlib.Path) -> dict[str, Any]:
    return step("ReadRecords", input=write_table(folder, people()))

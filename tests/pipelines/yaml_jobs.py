"""Small pipelines of Beam YAML for the tests of its transforms."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import yaml
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.yaml.yaml_transform import expand_pipeline
from jobs import people, write_table

from beam_dp.yaml import PROVIDERS


def build(pipeline: beam.Pipeline, spec: dict[str, Any]) -> None:
    """Adds a chain or a composite to a pipeline, written and read as YAML."""
    providers = [{"include": PROVIDERS}]
    expand_pipeline(pipeline, yaml.safe_dump({"pipeline": spec, "providers": providers}))


def run(*transforms: dict[str, Any]) -> None:
    """Builds and runs a chain."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        build(pipeline, {"type": "chain", "transforms": list(transforms)})


def step(name: str, **config: Any) -> dict[str, Any]:
    return {"type": name, "config": config}


def read(folder: Path) -> dict[str, Any]:
    return step("ReadRecords", input=write_table(folder, people()))

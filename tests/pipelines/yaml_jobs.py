"""Small pipelines of Beam YAML for the tests of its transforms."""

from pathlib import Path
from typing import Any

import apache_beam as beam
import yaml
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.yaml.yaml_transform import expand_pipeline
from jobs import DOMAIN, people, write_table

from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.yaml import PROVIDERS

PROMISE: dict[str, Any] = {
    "epsilon": 1,
    "delta": 0,
    "neighboring": "add_or_remove_one",
    "privacy_unit": "household",
    "max_records_per_unit": 2,
}
RELEASE = {**PROMISE, "domain": DOMAIN, "workload": "marginals:2", "num_records": "noisy"}
_QUERIES = [{"conjunction": {"sex": "Male"}}]
_NOISY = {**PROMISE, "num_records": "noisy"}
PAID_JOBS: dict[str, tuple[str, dict[str, Any]]] = {
    "synthetic database": ("ReleaseSyntheticDatabase", RELEASE),
    "projection": ("ReleaseProjection", {**PROMISE, "key": "sex", "max_sparsity": 2, "size": 1024}),
    "intervals": ("ReleaseIntervals", {**PROMISE, "domain": DOMAIN, "attribute": "age"}),
    "private_mw": (
        "AnswerQueries",
        {**_NOISY, "domain": DOMAIN, "queries": _QUERIES, "mechanism": "private_mw"},
    ),
    "laplace": (
        "AnswerQueries",
        {**_NOISY, "domain": DOMAIN, "queries": _QUERIES, "mechanism": "laplace"},
    ),
}


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


def paid(job: str, ledger: Ledger, folder: Path, **fields: Any) -> dict[str, Any]:
    """The release of a job, into the folder ``out``."""
    name, config = PAID_JOBS[job]
    budget = {"ledger": ledger.name, "dataset_id": "people"}
    return step(name, **config, **budget, output=str(folder / "out"), **fields)

"""The portable graph of each program, which a runner and everyone who sees its jobs get.

Runners show names of steps, options and hints in their user interface, and keep the graph in a
staging folder. So names are for people, and nothing that is secret may be in it. Pickled steps are
unpacked here, down to the text in them.
"""

import base64
import binascii
import bz2
import dataclasses
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet
import pytest
from apache_beam.portability.api import beam_runner_api_pb2
from jobs import interval_flags, job_flags, people
from program_jobs import JOBS, ONE_OF_EACH, shortened, texts

from beam_dp.flags.command_line import import_program
from pipelines import release_intervals, release_synthetic_database
from pipelines.program import Job, build
from pipelines.runners import make_pipeline

Proto = beam_runner_api_pb2.Pipeline
MIN_RAM = "beam:resources:min_ram_bytes:v1"
PASSWORD = "hunter2-of-the-ledger"
CANARY = "canary-in-a-record"
# Names that Beam gives to parts of its own transforms: we name the transforms.
BEAMS_OWN = ("Once", "Files", "Queries", "Spread ranges", "Keep the draw", "Spread files")


# Each mechanism that makes steps of its own.
NAMES = (*ONE_OF_EACH, "small_db", "hybrid sketch")


def parsed(name: str, folder: Path, **more: str) -> Any:
    """A job whose units must not appear in its graph; also the least and largest one."""
    flags = JOBS[name].flags(folder)
    path = str(flags["input"])
    table = pyarrow.parquet.read_table(path)
    (unit,) = {"household", "owner"} & {*table.column_names}
    canaries = pa.array([f"{CANARY}-{number // 2}" for number in range(len(table))])
    table = table.set_column(table.column_names.index(unit), unit, canaries)
    pyarrow.parquet.write_table(table, path)
    units = {"privacy_unit": unit, "max_records_per_unit": "2"}
    argv = shortened(texts({**flags, **units, **more}))
    return import_program(JOBS[name].program).parse_arguments(argv)


@pytest.fixture(scope="module", params=NAMES)
def graph(request, tmp_path_factory) -> Proto:
    """The graph of a job that a ledger with a password paid for."""
    job = parsed(request.param, tmp_path_factory.mktemp("job"))
    if hasattr(job, "ledger_url"):
        job = dataclasses.replace(job, ledger_url=f"postgresql://bob:{PASSWORD}@localhost/db")
    return graph_of(job)


def graph_of(job: Job) -> Proto:
    pipeline = make_pipeline(job.beam_flags, job.output)
    build(job, pipeline)
    return pipeline.to_runner_api()


def own_steps(graph: Proto) -> Iterator[beam_runner_api_pb2.PTransform]:
    """Steps but the one without a kind, around all, and but those inside Beam's own transforms."""
    for step in graph.components.transforms.values():
        parents = step.unique_name.split("/")[:-1]
        if step.spec.urn and not set(parents) & set(BEAMS_OWN):
            yield step


def unpacked(data: bytes) -> Iterator[bytes]:
    """Everything in a text of bytes: itself, and what was pickled, packed and encoded in it."""
    yield data
    for match in re.finditer(rb"[A-Za-z0-9+/]{24,}={0,2}", data):
        try:
            packed = base64.b64decode(match[0], validate=True)
        except binascii.Error:
            continue
        for unpack in (bz2.decompress, zlib.decompress):
            try:
                inside = unpack(packed)
            except (OSError, ValueError, zlib.error):
                continue
            yield from unpacked(inside)


def everything_in(data: bytes) -> bytes:
    return b"\n".join(unpacked(data))


def test_graph_has_readable_steps_and_no_secret(graph):
    names = [step.unique_name for step in graph.components.transforms.values()]
    assert len(set(names)) == len(names)
    steps = list(own_steps(graph))
    assert len(steps) > 10
    for step in steps:
        for part in step.unique_name.split("/"):
            # Beam's names of parts of a combine, or of steps with several outputs, are its own.
            assert re.fullmatch(r"[A-Z][A-Za-z]*( [a-z]+)*|GroupByKey|ParDo\(\w+\)", part), (
                step.unique_name
            )
    assert not any("lambda" in step.unique_name for step in steps)
    roots = {step.unique_name.partition("/")[0] for step in steps}
    assert roots - {"Queries"} <= {"Read", "Release", "Answer", "Write"}
    assert {"Read", "Write"} < roots
    # Nor do workers import a program, which has another name where the package is installed.
    data = graph.SerializeToString()
    assert len(data) < 200_000
    inside = everything_in(data)
    assert b"max_records_per_unit" in inside  # what is deep in a step is found
    for secret in (PASSWORD, CANARY, "NoiseSource", "sqlalchemy", "pipelines."):
        assert secret.encode() not in inside


def test_search_finds_a_secret_in_a_step():
    pipeline = beam.Pipeline()
    held = {"ledger": f"postgresql://bob:{PASSWORD}@localhost/db"}
    _ = pipeline | beam.Create([None]) | beam.Map(lambda element: (element, held))
    data = pipeline.to_runner_api().SerializeToString()
    assert PASSWORD.encode() not in data
    assert PASSWORD.encode() in everything_in(data)


@pytest.mark.parametrize("name", NAMES)
def test_runner_options_exclude_our_flags(name, tmp_path):
    """Runners show options: the ledger's URL and the dataset must not be among them."""
    job = parsed(name, tmp_path, ledger=f"{tmp_path / PASSWORD}.sqlite", dataset_id=CANARY)
    pipeline = make_pipeline(job.beam_flags, job.output)
    shown = repr(pipeline.options.get_all_options(drop_default=True))
    shown += repr(pipeline.options.display_data())
    assert "FnApiRunner" in shown
    for secret in (PASSWORD, CANARY, "household", "owner", "epsilon"):
        assert secret not in shown


def test_sums_are_sharded_by_key_and_only_the_draw_requests_memory(graph):
    """Each is added up under the integers of its blocks, or grouped by them."""
    components = graph.components
    groups = [
        step
        for step in components.transforms.values()
        if step.spec.urn == "beam:transform:group_by_key:v1"
        and step.unique_name.rpartition("/")[2] != "Group shards"
        and not set(step.unique_name.split("/")) & {"Spread ranges", "Keep the draw"}
        and step.unique_name.partition("/")[0] != "Write"
    ]
    assert groups
    for step in groups:
        (source,) = step.inputs.values()
        pairs = components.coders[components.pcollections[source].coder_id]
        key = components.coders[pairs.component_coder_ids[0]]
        assert key.spec.urn == "beam:coder:varint:v1", step.unique_name
    environments = graph.components.environments
    asked: dict[str, int] = {}
    for step in graph.components.transforms.values():
        hints = environments[step.environment_id].resource_hints if step.environment_id else {}
        if MIN_RAM in hints:
            asked[step.unique_name] = int(hints[MIN_RAM])
    top = {"/".join(name.split("/")[:2]) for name in asked}
    assert top in (
        {"Release/Once", "Release/Draw", "Release/Keep the draw"},
        {"Answer/Once", "Answer/Draw", "Answer/Keep the draw"},
    )
    (memory,) = set(asked.values())
    assert memory % 2**28 == 0 and 2**28 <= memory < 2**31


@pytest.mark.job
def test_drawing_step_requests_the_larger_of_planned_and_user_memory(tmp_path):
    def memory(hint: str) -> int:
        job = release_intervals.parse_arguments([*interval_flags(tmp_path), hint])
        components = graph_of(job).components
        (draw,) = (
            step for step in components.transforms.values() if step.unique_name == "Release/Draw"
        )
        return int(components.environments[draw.environment_id].resource_hints[MIN_RAM])

    assert memory("--resource_hints=min_ram=64GB") == 64 * 10**9
    assert memory("--resource_hints=min_ram=1KB") >= 2**28


@pytest.mark.job
def test_hints_and_names_do_not_depend_on_records(tmp_path):
    """Two tables with other records and sizes give the same graph, except what is drawn again."""
    shapes = []
    for size in (10, 500):
        folder = tmp_path / str(size)
        folder.mkdir()
        job = release_synthetic_database.parse_arguments(job_flags(folder, people(size)))
        components = graph_of(job).components
        names = sorted(step.unique_name for step in components.transforms.values())
        hints = [dict(each.resource_hints) for each in components.environments.values()]
        shapes.append((names, hints))
    assert shapes[0] == shapes[1]

"""Contract of a program on any runner: the same files, and cards that do not depend on the draw."""

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import fastavro
from jobs import answer_flags, everything_under, job_flags, people
from program_jobs import JOBS, ONE_OF_EACH, Job, keys, named, texts

from pipelines import answer_queries

LOCAL = ["--runner=FnApiRunner"]
HOUSEHOLDS = {"privacy_unit": "household", "max_records_per_unit": "2"}
OWNERS = {"privacy_unit": "owner", "max_records_per_unit": "2"}
# Decided by the job's flags, not by records or draws: equal on every runner.
PUBLIC = (
    "schema_version", "kind", "mechanism", "guarantee", "domain", "attribute", "workload",
    "parameters", "plan", "max_sparsity", "max_weight", "hash_family", "sketch", "histogram",
    "noise", "num_answers", "num_refused", "versions",
)  # fmt: skip
QUERIES = (
    '{"id": "women", "conjunction": {"sex": "Female"}}',
    '{"id": "unknown", "conjunction": {"sex": "Femal"}}',
    '{"id": "middle", "interval": {"attribute": "age", "low": 20, "high": 60}}',
)


PROGRAMS = {
    **{
        name: job
        for name, job in JOBS.items()
        if job.releases == ("",) and job.program not in ("run_yaml", "check_domain")
    },
    "gaussian, households": Job(
        "release_synthetic_database",
        lambda folder: named(
            job_flags(folder, mechanism="gaussian", num_records="500", **HOUSEHOLDS)
        ),
    ),
    "hybrid, owners": Job(
        "release_projection",
        lambda folder: keys(folder, size="1024", mechanism="hybrid", **OWNERS),
    ),
}


def without_counts(job: Job) -> Job:
    """Counts of what is left out take more network buffers than the small cluster has."""
    return dataclasses.replace(
        job, flags=lambda folder: job.flags(folder) | {"count_left_out": None}
    )


ON_CLUSTER = {name: without_counts(JOBS[name]) for name in ONE_OF_EACH}


def card(output: pathlib.Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((output / "card.json").read_text(encoding="utf-8"))
    return loaded


def structure(value: Any) -> Any:
    """A JSON value without its numbers and texts."""
    if isinstance(value, dict):
        return {name: structure(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [structure(entry) for entry in value]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else ""


def files(output: pathlib.Path) -> dict[str, Any]:
    """The kinds of files, by their names without the draw, with their Avro schemas."""
    draw_id = card(output)["draw_id"]
    found: dict[str, Any] = {}
    for name in everything_under(output):
        assert name == "card.json" or draw_id in name, name
        kind = name.replace(draw_id, "DRAW")
        if kind.endswith(".avro"):
            with (output / name).open("rb") as file:
                found[kind] = fastavro.reader(file).writer_schema
        else:
            found[kind] = None
    return found


def assert_same_contract(local: pathlib.Path, other: pathlib.Path) -> None:
    """Checks two draws of one job: same promise, same form, and no file of any other draw."""
    left, right = card(local), card(other)
    assert left["draw_id"] != right["draw_id"]
    assert files(other) == files(local)
    assert set(card(other).pop("files")) == set(everything_under(other)) - {"card.json"}
    for each in (left, right):
        each["files"] = sorted(name.replace(each["draw_id"], "DRAW") for name in each["files"])
    assert structure(right) == structure(left)
    for name in PUBLIC:
        assert right.get(name) == left.get(name), name


def check_contract(program: Job, folder: pathlib.Path, runner: Sequence[str]) -> None:
    """Runs a program on FnApiRunner and on another runner, and compares their outputs."""
    for output, flags in (("local", LOCAL), ("other", runner)):
        argv = {**program.flags(folder), "output": str(folder / output)}
        assert program.main([*texts(argv), *flags]) == 0
    assert_same_contract(folder / "local", folder / "other")


def check_answers(folder: pathlib.Path, runner: Sequence[str]) -> None:
    """Asks a runner questions: answers are accurate, and a bad line gets an error."""
    assert answer_queries.main([*answer_flags(folder, QUERIES), *runner]) == 0
    (path,) = (folder / "out").glob("answers-*.avro")
    with path.open("rb") as file:
        rows: dict[str, Any] = {row["id"]: row for row in fastavro.reader(file)}  # type: ignore
    assert rows["unknown"]["error"] and rows["unknown"]["value"] is None
    table = people()
    truths = {
        "women": table["sex"].to_pylist().count("Female"),
        "middle": sum(20 <= age < 60 for age in table["age"].to_pylist()),
    }
    # With epsilon 1000 a bound of 100 records is far wider than the noise.
    for name, truth in truths.items():
        assert abs(rows[name]["value"] - truth) <= rows[name]["bound"] < 100

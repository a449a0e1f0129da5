"""Contract of a program on any runner: the same files, and cards that do not depend on the draw."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import fastavro
from jobs import everything_under, interval_flags, job_flags, people

from pipelines import (
    answer_queries,
    release_intervals,
    release_projection,
    release_synthetic_database,
)

LOCAL = ["--runner=FnApiRunner"]
HOUSEHOLDS = {"privacy_unit": "household", "max_records_per_unit": "2"}
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
SPARSE_QUERIES = ('{"id": "thirties", "sparse": {"30": 1, "31": 0.5}}',)


class Program(NamedTuple):
    """A program, and its flags in addition to the common ones."""

    main: Callable[[Sequence[str]], int]
    flags: dict[str, str | None]
    queries: Sequence[str] = ()

    def argv(self, folder: pathlib.Path, output: pathlib.Path) -> list[str]:
        flags = {**self.flags, "output": str(output)}
        if self.queries:
            path = folder / "queries.jsonl"
            path.write_text("\n".join(self.queries), encoding="utf-8")
            flags["queries"] = str(path)
        if self.main is release_intervals.main:
            return interval_flags(folder, **flags)
        argv = job_flags(folder, **flags)
        if "key" in self.flags:  # no universe of columns, then
            argv = [flag for flag in argv if not flag.startswith("--domain=")]
        return argv


_SYNTHETIC = release_synthetic_database.main
_ANSWERS: dict[str, str | None] = {"workload": None}
_PROJECTION: dict[str, str | None] = {
    "workload": None, "num_records": None, "key": "age", "max_sparsity": "10", "size": "65536"
}  # fmt: skip
PROGRAMS = {
    # With a public number of records the released number is the same for every draw.
    "mwem": Program(_SYNTHETIC, {"num_records": "500"}),
    "gaussian, households": Program(
        _SYNTHETIC, {"num_records": "500", "mechanism": "gaussian", **HOUSEHOLDS}
    ),
    "small_db": Program(
        _SYNTHETIC,
        {"mechanism": "small_db", "size": "4", "workload": "marginals:1", "num_records": "500"},
    ),
    "projection": Program(release_projection.main, _PROJECTION),
    "hybrid, households": Program(
        release_projection.main, {**_PROJECTION, **HOUSEHOLDS, "mechanism": "hybrid"}
    ),
    "intervals": Program(release_intervals.main, {}),
    "private_mw": Program(answer_queries.main, _ANSWERS, QUERIES),
    "laplace": Program(answer_queries.main, {**_ANSWERS, "mechanism": "laplace"}, QUERIES),
    "sparse_mw": Program(
        answer_queries.main,
        {**_ANSWERS, "mechanism": "sparse_mw", "key": "age", "max_sparsity": "3"},
        SPARSE_QUERIES,
    ),
}


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


def check_contract(name: str, folder: pathlib.Path, runner: Sequence[str]) -> None:
    """Runs a program on FnApiRunner and on another runner, and compares their outputs."""
    program = PROGRAMS[name]
    for output, flags in (("local", LOCAL), ("other", runner)):
        assert program.main([*program.argv(folder, folder / output), *flags]) == 0
    assert_same_contract(folder / "local", folder / "other")


def check_answers(folder: pathlib.Path, runner: Sequence[str]) -> None:
    """Asks a runner questions: answers are accurate, and a bad line gets an error."""
    program = PROGRAMS["private_mw"]
    assert program.main([*program.argv(folder, folder / "out"), *runner]) == 0
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

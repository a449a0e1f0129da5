"""Every program as a small job, with the expected form of its release."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
from jobs import interval_flags, job_flags, write_table

from pipelines import (
    answer_queries,
    release_intervals,
    release_projection,
    release_synthetic_database,
)


@dataclasses.dataclass(frozen=True)
class Program:
    """A program, and the flags of a small job.

    Args:
        main: the program.
        flags: flags of a job in a folder, without Beam's; the output is the folder's ``out``.
        num_files: number of files in its release.
    """

    main: Callable[[Sequence[str]], int]
    flags: Callable[[pathlib.Path], list[str]]
    num_files: int


def _synthetic(folder: pathlib.Path) -> list[str]:
    return job_flags(folder, num_records="500")


def _intervals(folder: pathlib.Path) -> list[str]:
    return interval_flags(folder)


def _sparse(folder: pathlib.Path, **named: str) -> list[str]:
    keys = [f"plane {number % 50}" for number in range(2000)]
    table = pa.table({"plane": keys, "owner": list(range(len(keys)))})
    values = {
        "input": write_table(folder, table),
        "key": "plane",
        "epsilon": "1000",
        "delta": "1e-9",
        "neighboring": "add_or_remove_one",
        "privacy_unit": "record",
        "max_sparsity": "10",
        "output": str(folder / "out"),
        **named,
    }
    return [f"--{name}={value}" for name, value in values.items()]


def _projection(folder: pathlib.Path) -> list[str]:
    return _sparse(folder, size="65536")


def _queries(folder: pathlib.Path, line: dict[str, Any]) -> str:
    path = folder / "queries.jsonl"
    path.write_text(json.dumps(line) + "\n", encoding="utf-8")
    return str(path)


def _private_mw(folder: pathlib.Path) -> list[str]:
    queries = _queries(folder, {"id": "women", "conjunction": {"sex": "Female"}})
    return job_flags(folder, workload=None, queries=queries)


def _laplace(folder: pathlib.Path) -> list[str]:
    return [*_private_mw(folder), "--mechanism=laplace"]


def _sparse_mw(folder: pathlib.Path) -> list[str]:
    queries = _queries(folder, {"id": "one", "sparse": {"plane 3": 1.0}})
    return _sparse(folder, mechanism="sparse_mw", queries=queries, num_records="noisy")


PROGRAMS = {
    "release_synthetic_database": Program(release_synthetic_database.main, _synthetic, 4),
    "release_projection": Program(release_projection.main, _projection, 3),
    "release_intervals": Program(release_intervals.main, _intervals, 2),
    "answer_queries, private_mw": Program(answer_queries.main, _private_mw, 2),
    "answer_queries, sparse_mw": Program(answer_queries.main, _sparse_mw, 2),
    "answer_queries, laplace": Program(answer_queries.main, _laplace, 2),
}

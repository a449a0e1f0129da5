"""The programs that run a job, and the transforms of Beam YAML, which are the same programs."""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import pathlib
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import apache_beam as beam
import pytest
from jobs import interval_flags, job_flags, paid_by
from program_jobs import (
    RELEASE,
    WINDOWS,
    Flags,
    answers,
    checked,
    choosing,
    discovering,
    keys,
    main_of,
    named,
    small_db,
    sparse_answers,
    texts,
    windows,
    words_of,
    yaml_file,
)
from surfaces import Program, Surface

import beam_dp.yaml
from beam_dp.errors import InputError
from beam_dp.privacy.ledger.ledger import Ledger


@functools.cache
def declared_ledger(privacy_unit: str) -> bytes:
    """The file of a ledger that would pay."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "ledger.sqlite")
        Ledger(str(path)).declare("people", 1e6, 1e-6, privacy_unit, "add_or_remove_one")
        return path.read_bytes()


def program(name: str, flags: Callable[[pathlib.Path], Mapping[str, str | None]]) -> Program:
    """A program whose job a ledger would pay for."""

    def paid(folder: pathlib.Path) -> Flags:
        found = flags(folder)
        ledger = folder / "ledger.sqlite"
        ledger.write_bytes(declared_ledger(str(found["privacy_unit"])))
        return {**found, "ledger": str(ledger), "dataset_id": "people"}

    given = paid if flags not in (checked, yaml_file) else flags
    return Program(main_of(name), given, words_of(name))


@functools.cache
def saved_run() -> pathlib.Path:
    """A folder with a saved run of one answer, and the ledger that paid for it."""
    folder = pathlib.Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, folder)
    flags = answers(folder, num_questions="10", state=str(folder / "state"))
    _, argv = paid_by(texts(flags), folder)
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main_of("answer_queries")(argv) == 0
    shutil.rmtree(folder / "out")
    return folder


def resumed(folder: pathlib.Path) -> Flags:
    """Goes on from a copy of that run; another dataset could pay, too."""
    shutil.copytree(saved_run(), folder, dirs_exist_ok=True)
    ledger = Ledger(str(folder / "ledger.sqlite"))
    ledger.declare("other", 1000.0, 1e-9, "record", "add_or_remove_one")
    paid = {"ledger": ledger.name, "dataset_id": "people", "resume": str(folder / "state")}
    return {**answers(folder, num_questions="10"), **paid}


def for_engines(folder: pathlib.Path) -> Flags:
    """A job, with programs that say what Java says, or something else, and an empty jar."""
    said = {"java8": 'openjdk version "1.8.0_392"', "java11": 'openjdk version "11.0.21"'}
    for name, text in {**said, "java": 'openjdk version "17.0.9"', "other": "what?"}.items():
        (folder / name).write_text(f"#!/bin/sh\necho '{text}'\n", encoding="utf-8")
    (folder / "no-program").write_text("\x7fELF of another machine", encoding="utf-8")
    for path in folder.iterdir():
        path.chmod(0o755)
    with zipfile.ZipFile(folder / "beam-dp-flink-1.20-job-server-2.70.0.jar", "w") as file:
        file.writestr("META-INF/MANIFEST.MF", "")
    return {**named(job_flags(folder)), "job_server_java_launcher": str(folder / "java")}


def without_engines(argv: Sequence[str]) -> int:
    """Runs the program where the environment names no Java, job server or Prism."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("JAVA_HOME", "BEAM_DP_PRISM", "BEAM_DP_FLINK_JOB_SERVER_JAR"):
            patch.delenv(name, raising=False)
        patch.setattr("pipelines.job_servers.SECONDS_TO_ANSWER", 0.5)
        return main_of("release_synthetic_database")(argv)


class InYamlError(InputError):
    """What Beam YAML says of a field, in words of its own."""

    def __init__(self, text: str) -> None:
        super().__init__("fields", None, text)

    def __str__(self) -> str:
        return self.condition


FIELDS: dict[str, dict[str, Any]] = {
    "ReleaseSyntheticDatabase": {**RELEASE, "output": "out"},
    "ReleaseDomain": {**RELEASE, "output": "out"},
    "ReleaseWindows": {**WINDOWS, "output": "out"},
    "ReadKafka": {
        **{name: WINDOWS[name] for name in ("start", "window", "num_windows", "grace")},
        "servers": "localhost:1",
        "topic": "visits",
        "settle": "10s",
    },
}


def in_yaml(name: str, **changed: Any) -> object:
    """A transform with valid fields, but for what is changed."""
    try:
        return getattr(beam_dp.yaml, name)(**{**FIELDS.get(name, {}), **changed})
    except InputError:
        raise
    except ValueError as error:
        raise InYamlError(str(error)) from None


def applied(build: Callable[[], object]) -> object:
    """Builds a pipeline with a transform."""
    try:
        return build()
    except ValueError as error:
        raise InYamlError(str(error)) from None


OPEN = {"attributes": [{"name": "age", "type": "numeric", "discover": {"bins": 5}}]}


SURFACES: dict[str, Surface] = {
    "release-synthetic-database": program(
        "release_synthetic_database", lambda folder: named(job_flags(folder))
    ),
    "small_db": program("release_synthetic_database", small_db),
    "discovered domain": program("release_synthetic_database", discovering),
    "discovered records per unit": program("release_synthetic_database", choosing),
    "release-intervals": program("release_intervals", lambda folder: named(interval_flags(folder))),
    "release-projection": program("release_projection", lambda folder: keys(folder, size="1024")),
    "release-windows": program("release_windows", windows),
    "answer-queries": program("answer_queries", answers),
    "answer-queries, sparse_mw": program("answer_queries", sparse_answers),
    "answer-queries, resumed": Program(
        main_of("answer_queries"), resumed, words_of("answer_queries")
    ),
    "on engines": Program(without_engines, for_engines, words_of("release_synthetic_database")),
    "check-domain": program("check_domain", checked),
    "run-yaml": program("run_yaml", yaml_file),
    "Beam YAML": {
        "yaml": in_yaml,
        "applied": applied,
        "beam": beam,
        "OPEN": OPEN,
        "nan": float("nan"),
        "object": object(),
    },
}

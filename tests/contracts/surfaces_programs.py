"""The programs that run a job, and the transforms of Beam YAML, which are the same programs."""

from __future__ import annotations

import functools
import pathlib
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

from jobs import interval_flags, job_flags
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
    windows,
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

    return Program(main_of(name), paid if flags not in (checked, yaml_file) else flags)


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
    "check-domain": program("check_domain", checked),
    "run-yaml": program("run_yaml", yaml_file),
    "Beam YAML": {"yaml": in_yaml, "OPEN": OPEN, "nan": float("nan"), "object": object()},
}

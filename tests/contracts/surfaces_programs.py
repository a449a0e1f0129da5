"""The programs that run a job."""

from __future__ import annotations

import functools
import pathlib
import tempfile

from jobs import interval_flags, job_flags
from surfaces import Program, Surface

from beam_dp.privacy.ledger.ledger import Ledger
from pipelines import release_intervals, release_synthetic_database


@functools.cache
def declared_ledger(privacy_unit: str) -> bytes:
    """The file of a ledger that would pay."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "ledger.sqlite")
        Ledger(str(path)).declare("people", 1e6, 1e-6, privacy_unit, "add_or_remove_one")
        return path.read_bytes()


def paid(folder: pathlib.Path, argv: list[str]) -> dict[str, str | None]:
    """Flags by their names, and those of a ledger that would pay."""
    parts = (each.removeprefix("--").partition("=") for each in argv)
    flags: dict[str, str | None] = {name: value for name, _, value in parts}
    ledger = folder / "ledger.sqlite"
    ledger.write_bytes(declared_ledger(str(flags["privacy_unit"])))
    return {**flags, "ledger": str(ledger), "dataset_id": "people"}


def synthetic(folder: pathlib.Path) -> dict[str, str | None]:
    return paid(folder, job_flags(folder))


def intervals(folder: pathlib.Path) -> dict[str, str | None]:
    return paid(folder, interval_flags(folder))


SURFACES: dict[str, Surface] = {
    "release-synthetic-database": Program(release_synthetic_database.main, synthetic),
    "release-intervals": Program(release_intervals.main, intervals),
}

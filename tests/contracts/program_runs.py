"""Runs of the jobs of ``program_jobs``, each once for all tests of a process."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import json
import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from jobs import everything_under
from program_jobs import JOBS, Job, texts

from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.ledger.entries import Entry
from beam_dp.privacy.ledger.ledger import Ledger

REPEAT = "--direct_runner_bundle_repeat=2"


@dataclasses.dataclass(frozen=True)
class Ran:
    """One call of a program: its exit code, what it printed and drew, and what it left."""

    code: int
    out: str
    err: str
    draws: tuple[str, ...]
    files: Sequence[str]
    entries: list[Entry]


@contextlib.contextmanager
def watched() -> Iterator[list[str]]:
    """The names of all draws while the block runs, whose noise stays real."""
    draws: list[str] = []
    draw_id = NoiseSource.draw_id

    def noted(self: NoiseSource) -> str:
        draws.append(draw_id(self))
        return draws[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoiseSource, "draw_id", noted)
        yield draws


def run(job: Job, folder: pathlib.Path, ledger: Ledger | None, argv: Sequence[str]) -> Ran:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), watched() as draws:
        code = job.main(argv)
    entries = [] if ledger is None else ledger.entries("people")
    files = everything_under(folder / "out")
    return Ran(code, out.getvalue(), err.getvalue(), tuple(draws), files, entries)


@dataclasses.dataclass(frozen=True)
class Done:
    """A job: its preview, its run with replayed bundles, and the same command once more."""

    folder: pathlib.Path
    job: Job
    preview: Ran | None
    ran: Ran
    again: Ran

    @property
    def entry(self) -> Entry:
        (entry,) = self.ran.entries
        return entry

    def card(self, place: str = "") -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "out" / place / "card.json").read_text())
        return found


_FOLDER = tempfile.TemporaryDirectory()


@functools.cache
def done(name: str) -> Done:
    """Previews a job, runs it with replayed bundles, and once more."""
    folder = pathlib.Path(_FOLDER.name, name)
    folder.mkdir()
    job = JOBS[name]
    ledger, flags = job.paid_flags(folder)
    argv, preview = texts(flags), None
    if "ledger" in flags:
        preview = run(job, folder, ledger, [*argv, "--validate_only", "--json"])
    ran = run(job, folder, ledger, [*argv, REPEAT])
    assert ran.code == 0, ran.err
    return Done(folder, job, preview, ran, run(job, folder, ledger, argv))

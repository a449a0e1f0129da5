"""Runs of the jobs of ``program_jobs``, each once for all tests of a process."""

import contextlib
import dataclasses
import functools
import io
import json
import os
import pathlib
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from jobs import everything_under
from program_jobs import JOBS, Job, texts

import beam_dp as dp
from beam_dp.privacy.ledger.entries import Entry
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.steps import Step, total
from beam_dp.releases.kinds import read_any, verify_release

CHOICE = "records_per_unit"
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


def run(job: Job, folder: pathlib.Path, ledger: dp.Ledger | None, argv: Sequence[str]) -> Ran:
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
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(os, "link")  # a preview writes nothing, not even to try it
            preview = run(job, folder, ledger, [*argv, "--validate_only", "--json"])
    ran = run(job, folder, ledger, [*argv, REPEAT])
    assert ran.code == 0, ran.err
    return Done(folder, job, preview, ran, run(job, folder, ledger, argv))


class Killed(BaseException):
    """What a killed program dies of: nothing catches it."""


def dies(*_: object, **__: object) -> None:
    raise Killed


def assert_covers(entry: Entry, output: pathlib.Path, *places: str) -> None:
    """Demands that an entry is charged at least the loss of all steps on the cards it paid for.

    ``places``: of the releases in the output; what the earlier runs of a command drew is on cards
    of their own.
    """
    verified = verify_release(read_any(output))
    assert verified.holds, verified.faults
    earlier = {place: verify_release(read_any(output / place)).steps for place in places if place}
    losses = [step.loss for step in verified.steps]
    for steps in earlier.values():
        assert all(step.loss in losses for step in steps)
    choice = [step.loss for place in earlier for step in earlier[place] if CHOICE in place]
    rest = [step for step in verified.steps if step.loss not in choice]
    assert len(choice) + len(rest) == len(losses)
    spent = composed(losses), composed([_together(rest, verified.promise), *choice])
    assert any(entry.loss.covers(each) for each in spent)


def _together(steps: Sequence[Step], promise: dp.Guarantee) -> Loss:
    """The loss of steps of which only the epsilon at the delta of a promise is known."""
    if promise.delta == 0:
        return composed(step.loss for step in steps)
    pure = [step for step in steps if step.loss.epsilon is not None]
    others = [step for step in steps if step.loss.epsilon is None]
    # The least, whether or not epsilons are added last.
    epsilon = min(total(steps, promise)[1], total(others, promise, pure)[1])
    return Loss.approximate(epsilon, promise.delta)

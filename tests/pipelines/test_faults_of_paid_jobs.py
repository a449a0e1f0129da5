"""Paid jobs that are killed, or whose disk or output fails, at each public step of a run.

The state of the ledger's entry is compared with the steps that the job reached.
"""

import collections
import contextlib
import multiprocessing
import os
import pathlib
import random
import resource
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from jobs import everything_under, job_flags, paid_by
from patience import HANG_SECONDS

import beam_dp as dp
from beam_dp.cli.main import main as beam_dp
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.kinds import finish_writing
from beam_dp.storage.store import LocalStore
from pipelines import program
from pipelines.release_synthetic_database import main

PROCESSES = multiprocessing.get_context("forkserver")
# What a server can import forks quickly.
PROCESSES.set_forkserver_preload(["pytest", "pipelines.release_synthetic_database"])
STEPS: list[tuple[Any, str]] = [
    *((dp.Ledger, name) for name in ("check", "spend", "mark_submitted", "mark_released")),
    (program, "run_pipeline"),
    (NoiseSource, "draw_id"),
    *((LocalStore, name) for name in ("open_draft", "write_draft", "create_exclusively")),
    *((LocalStore, name) for name in ("place", "withdraw", "remove_draft")),
]
NUM_MOMENTS = 49  # begins and ends of steps in a run without a fault
AFTER_DRAW = 25
TRIALS = range(NUM_MOMENTS + 1)  # of each fault before a release


def be_killed(_: random.Random) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def lose_output(chance: random.Random) -> None:
    read, write = os.pipe()
    os.close(read)
    for number in chance.choice([(1,), (2,), (1, 2)]):
        os.dup2(chance.choice([write, os.open("/dev/full", os.O_WRONLY)]), number)


def fill_disk(chance: random.Random) -> None:
    room = chance.choice([0, *(2**power for power in range(8, 18))])
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))


def close_streams(chance: random.Random) -> None:
    for number in chance.choice([(1,), (2,), (0, 1, 2)]):
        os.close(number)


FAULTS = {
    "kill -9": be_killed,
    "broken pipe": lose_output,
    "full disk": fill_disk,
    "closed streams": close_streams,
}


def run_job(
    folder: pathlib.Path,
    flags: Sequence[str],
    fault: str,
    moment: int,
    chance: random.Random,
    steps: Any,
) -> None:
    """Runs a program that sends the begins and ends of its steps, and has a fault at a moment."""
    output = os.open(folder / "printed", os.O_WRONLY | os.O_CREAT)
    for number in (1, 2):
        os.dup2(output, number)
    sent = 0

    def send(step: str) -> None:
        nonlocal sent
        steps.send(step)
        if sent == moment:
            FAULTS[fault](chance)
        sent += 1

    def watched(original: Callable[..., Any], name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            send(f"{name} begins")
            found = original(*arguments, **options)
            send(f"{name} ends")
            return found

        return call

    for owner, name in STEPS:
        setattr(owner, name, watched(getattr(owner, name), name))
    send("start")
    sys.exit(main(flags))


def trial(
    folder: pathlib.Path, fault: str, moment: int, chance: random.Random
) -> tuple[str, str, str]:
    """Returns the state of the entry, what is in the output, and the exit code, all checked."""
    ledger, flags = paid_by(job_flags(folder), folder)
    receiver, sender = PROCESSES.Pipe(duplex=False)
    if fault == "closed streams":
        moment = 0  # by the caller of a program
    arguments = (folder, flags, fault, moment, chance, sender)
    process = PROCESSES.Process(target=run_job, args=arguments)
    process.start()
    sender.close()
    reached = []
    with contextlib.suppress(EOFError):
        while True:
            reached.append(receiver.recv())
    process.join(HANG_SECONDS)
    code, printed = process.exitcode, (folder / "printed").read_text("utf-8")
    is_complete = finish_writing(str(folder / "out"))
    marks = {"mark_released": "released", "mark_submitted": "submitted", "spend": "spent"}
    expected = [state for mark, state in marks.items() if f"{mark} ends" in reached][:1]
    assert [entry.state for entry in ledger.entries("people")] == expected, printed
    (state,) = expected or ["no entry"]
    assert "draw_id ends" not in reached or state in ("submitted", "released"), printed
    if is_complete:
        release = dp.read_release(str(folder / "out"))
        assert release.plan["ledger_release"] == "people/1" and state in ("submitted", "released")
    else:
        assert everything_under(folder / "out") == [] and state != "released", printed
    if fault in ("broken pipe", "closed streams"):
        assert code == 0, printed
    elif code != -signal.SIGKILL:
        assert code == (0 if is_complete else 1 if expected else 2), printed
    return state, "a release" if is_complete else "nothing", str(code)


@pytest.mark.parametrize(
    ("fault", "trials"),
    [pytest.param(fault, [AFTER_DRAW], marks=pytest.mark.job) for fault in FAULTS]
    + [pytest.param(fault, TRIALS, marks=pytest.mark.release) for fault in FAULTS],
)
def test_state_of_the_entry_says_how_far_the_job_came(tmp_path, capfd, fresh_seed, fault, trials):
    found: collections.Counter[tuple[str, ...]] = collections.Counter()
    for each in trials:
        folder = tmp_path / str(each)
        folder.mkdir()
        outcome = trial(folder, fault, each % NUM_MOMENTS, random.Random(fresh_seed + each))
        found[outcome] += 1
        assert beam_dp(["ledger", str(folder / "ledger.sqlite")]) == 0
        said = capfd.readouterr().out
        is_open = outcome[0] in ("spent", "submitted")
        assert (f", {outcome[0]}" in said and "\nstate " in said) == is_open
    with capfd.disabled():
        for (state, output, code), times in sorted(found.items()):
            print(f"\n{fault:<16}{times:>4}  {state:<10} {output:<10} exit code {code}", end="")

"""One trial of a fault: runs a program, kills something, and checks everything that is left."""

import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import shutil
import signal
import stat
import threading
from collections.abc import Sequence

from engines import moments
from engines.cluster import FlinkCluster
from engines.moments import Moments
from fake_google_storage import FakeGoogleStorage
from jobs import paid_by
from patience import HANG_SECONDS, wait_for
from program_jobs import Job, texts

import beam_dp as dp
from beam_dp.releases.kinds import finish_writing
from beam_dp.storage.open import store_for
from beam_dp.storage.store import DRAFT_PREFIX

TASK_MANAGER, WORKER, JOB_MANAGER = "task manager", "Python worker", "job manager"
# Prefixes of flaws.
SECOND_DRAW, DRAFT, LEDGER = "second draw:", "draft left:", "ledger:"


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault: the process to kill, and the moments, which trials use in turn."""

    victim: str
    at: Sequence[str]
    worker_lives: bool = False  # that of a killed task manager, once the job has ended
    is_careless: bool = False  # the writer publishes each file at once, which must be detected


FAULTS = {
    "a. task manager, in the distributed pass": Fault(TASK_MANAGER, (moments.COUNTING,)),
    "b. task manager, just after the noise was drawn": Fault(TASK_MANAGER, (moments.DRAWN,)),
    "c. task manager, during the write": Fault(TASK_MANAGER, moments.WRITING),
    "d. task manager, during the write, its worker goes on": Fault(
        TASK_MANAGER, moments.WRITING, worker_lives=True
    ),
    "e. Python worker, at any of these moments": Fault(
        WORKER, (moments.COUNTING, moments.DRAWN, *moments.WRITING)
    ),
    "f. job manager, at any of these moments": Fault(
        JOB_MANAGER, (moments.COUNTING, moments.DRAWN, *moments.WRITING)
    ),
}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a trial left; flaws are violations, in words."""

    is_complete: bool  # the program succeeded, with one complete release
    num_draws: int
    # A worker that outlived a failed job left drafts after the program, which were then removed.
    needs_cleaning: bool
    flaws: tuple[str, ...]


def run_trial(
    cluster: FlinkCluster,
    waiting: Moments,
    program: Job,
    fault: Fault,
    folder: pathlib.Path,
    number: int = 0,
    service: FakeGoogleStorage | None = None,
) -> Outcome:
    """Runs a program, kills something, and checks what is left after the job has ended.

    ``number`` chooses the moment; the output is a bucket of the ``service``, if there is one.
    """
    moment = fault.at[number % len(fault.at)]
    ledger, flags = paid_by(texts(program.flags(folder)), folder)
    output = str(folder / "out")
    if service is not None:
        local, output = f"--output={output}", f"gs://releases/{folder.name}"
        flags = [f"--output={output}" if flag == local else flag for flag in flags]
    codes: list[int] = []
    job = threading.Thread(
        target=lambda: codes.append(program.main([*flags, *cluster.flags()])), daemon=True
    )
    waiting.arm(moment, outlives=fault.worker_lives, is_careless=fault.is_careless)
    job.start()
    try:
        reached = wait_for(moment, waiting.reached)
        kill(cluster, fault.victim, reached)
        if not fault.worker_lives:
            waiting.let_go()
        job.join(timeout=HANG_SECONDS)
        waiting.let_go()
        wait_for("the worker's end", lambda: not _lives(reached["pid"]))
    finally:
        waiting.let_go()
        # Without the job manager, task managers continue a job until a heartbeat is missing.
        repair(cluster)
        draws = waiting.draws()
        waiting.disarm()
    code = codes[0] if codes else None
    needs_cleaning = code == 1 and bool(store_for(output, "output").drafts())
    if needs_cleaning:
        finish_writing(output)
    if service is not None:
        _fetch(service, folder)
    flaws = _flaws(code, folder, ledger, cluster.temporary, draws)
    return Outcome(code == 0, len(draws), needs_cleaning, tuple(flaws))


def _fetch(service: FakeGoogleStorage, folder: pathlib.Path) -> None:
    """Copies the bucket, including drafts, to the place of a local output."""
    for name in service.names():
        path = folder / "out" / name.removeprefix(f"{folder.name}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(service.buckets["releases"].objects.pop(name)[0])


def kill(cluster: FlinkCluster, victim: str, reached: dict[str, str | int]) -> None:
    """Kills the part of a cluster that reached a moment, and starts another."""
    if victim == TASK_MANAGER:
        cluster.kill_task_manager(cluster.task_manager_of(str(reached["control"])))
        cluster.start_task_manager()
    elif victim == WORKER:
        os.kill(int(reached["pid"]), signal.SIGKILL)
    else:
        cluster.kill_job_manager()
        # A new one that remembers no jobs, as a process supervisor starts it.
        cluster.start_job_manager()


def _lives(pid: int) -> bool:
    """Whether a process runs; a killed one may wait for its parent to reap it."""
    try:
        status = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def repair(cluster: FlinkCluster) -> None:
    """Waits until the cluster is complete again."""
    cluster.remove_files_of_the_dead()
    cluster.wait_for_task_managers()
    cluster.forget_workers()


def _flaws(
    code: int | None,
    folder: pathlib.Path,
    ledger: dp.Ledger,
    temporary: pathlib.Path,
    draws: set[str],
) -> list[str]:
    """Every violation, in words."""
    output = folder / "out"
    flaws = []
    if code not in (0, 1):
        flaws.append(f"the program ended with {code}")
    files = sorted(output.rglob("*")) if output.exists() else []
    flaws += [f"{DRAFT} {path.name}" for path in files if path.name.startswith(DRAFT_PREFIX)]
    card_path = output / "card.json"
    draw_id = None
    if card_path.exists():
        card = json.loads(card_path.read_text(encoding="utf-8"))
        draw_id = card["draw_id"]
        flaws += _incomplete(output, card["files"], card.get("kind"))
        if len(files) != 1 + len(card["files"]):
            flaws.append(f"{len(files)} files")
    elif files:
        flaws.append(f"no card, but {len(files)} files")
    if code == 0 and draw_id is None:
        flaws.append("no release")
    others = draws - {draw_id}
    if draw_id is not None and draw_id not in draws:
        flaws.append("a release of a draw that nobody made")
    for path in (*files, *sorted(temporary.rglob("*"))):
        flaws += [f"{SECOND_DRAW} {path.name}" for each in others if _holds(path, each)]
    entries = ledger.entries("people")
    found = [(entry.state, entry.draw_id) for entry in entries]
    expected = ("released", draw_id) if code == 0 else ("submitted", None)
    if found != [expected]:
        flaws.append(f"{LEDGER} {found}")
    return flaws


def _incomplete(
    output: pathlib.Path, files: dict[str, dict[str, str | int]], kind: str | None
) -> list[str]:
    for name, promised in files.items():
        path = output / name
        if not path.exists():
            return [f"{name} is missing"]
        if hashlib.sha256(path.read_bytes()).hexdigest() != promised["sha256"]:
            return [f"{name} is damaged"]
    if kind != "answers":
        dp.read_release(output)
    return []


def _holds(path: pathlib.Path, draw_id: str) -> bool:
    """Whether a file's name or content contains a draw's id."""
    with contextlib.suppress(FileNotFoundError, PermissionError):
        if draw_id in path.name:
            return True
        if stat.S_ISREG(path.lstat().st_mode):
            return draw_id.encode() in path.read_bytes()
    return False


def new_folder(parent: pathlib.Path, number: int) -> pathlib.Path:
    """Makes an empty folder for a trial, and removes the previous one."""
    folder = parent / f"trial-{number}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder

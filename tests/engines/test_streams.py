"""Windows over a folder with arriving files: each exact table, on each engine."""

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from engines.cluster import ROOT, FlinkCluster
from engines.moments import Moments
from patience import wait_for

from beam_dp.cli.main import main as cli
from beam_dp.domain.horizon import Horizon, counted_windows
from beam_dp.releases.windows.horizon_files import read_windows
from beam_dp.secret.encoding.contributions import select_records
from beam_dp.secret.encoding.units import unit_fingerprints
from pipelines import release_windows

NUM_CELLS = 8
DOMAIN = {"attributes": [{"name": "a", "type": "integer", "min": 0, "max": NUM_CELLS - 1}]}
# At most two records of a unit in each of at most two windows; many units have more.
UNITS = {
    "privacy_unit": "person",
    "max_records_per_unit": "2",
    "max_windows_per_unit": "2",
}
# The program; its workers, in its own process, write at most the given number of cards.
_HALF = """
import pathlib, sys, time
from beam_dp.storage.store import LocalStore
from pipelines import release_windows

half, output = int(sys.argv[1]), pathlib.Path(sys.argv[2])
create = LocalStore.create_exclusively

def create_half(*args):
    if len(list(output.glob("windows/*/card.json"))) >= half:
        time.sleep(86400)
    return create(*args)

LocalStore.create_exclusively = create_half
sys.exit(release_windows.main(sys.argv[3:]))
"""
NUM_TRIALS = int(os.environ.get("FAULT_TRIALS", "20"))


class Source(threading.Thread):
    """Writes files, and knows which of their records count.

    Events may be out of order, too late or in the future; two windows stay empty.
    """

    def __init__(self, folder: pathlib.Path, horizon: Horizon, seed: int) -> None:
        super().__init__(daemon=True)
        self.folder = folder
        self.horizon = horizon
        self.rng = np.random.default_rng(seed)
        self.counted: list[tuple[int, int, int]] = []  # window, cell, person

    def run(self) -> None:
        number = 0
        while time.time() < self.horizon.closes(self.horizon.num_windows - 1):
            self.drop(number)
            number += 1
            time.sleep(0.25)

    def drop(self, number: int) -> None:
        size = 200
        ages = self.rng.exponential(1.2, size) - 0.2
        events = np.floor(time.time() - ages).astype(np.int64)
        windows = (events - self.horizon.start) // self.horizon.window
        events = events[(windows != 3) & (windows != 4)]
        cells = self.rng.integers(0, NUM_CELLS, len(events))
        persons = self.rng.zipf(1.3, len(events)) % 2000
        hidden = self.folder.parent / f"{number}.parquet"
        table = pa.table({"a": cells, "t": events, "person": persons})
        pyarrow.parquet.write_table(table, hidden)
        arrival = int(hidden.stat().st_mtime)
        counted = counted_windows(self.horizon, events, np.full(len(events), arrival))
        self.counted += [
            (int(window), int(cell), int(person))
            for window, cell, person in zip(counted, cells, persons, strict=True)
            if window >= 0
        ]
        hidden.rename(self.folder / hidden.name)

    def tables(self, *, limited: bool) -> np.ndarray:
        """The exact tables of all records, or of those allowed per unit, counted one by one."""
        counts = np.zeros((self.horizon.num_windows, NUM_CELLS), np.int64)
        held: dict[int, dict[int, list[int]]] = {}
        for window, cell, person in self.counted:
            counts[window, cell] += 1
            held.setdefault(person, {}).setdefault(window, []).append(cell)
        if not limited:
            return counts
        counts[:] = 0
        for person, windows in held.items():
            for window in sorted(windows)[:2]:
                cells = np.array(windows[window], "<u4")
                units, _ = unit_fingerprints(pa.array([person] * len(cells)))
                ones = np.ones(len(cells), np.int64)
                np.add.at(counts[window], cells[select_records(units, [cells], ones, 2, None)], 1)
        return counts


class Trial:
    """A horizon of one-second windows, of units or not, released while files arrive."""

    def __init__(self, folder: pathlib.Path, num_windows: int, *, limited: bool = False) -> None:
        self.landing, self.output = folder / "landing", folder / "out"
        self.landing.mkdir()
        self.horizon = Horizon(int(time.time()) + 2, 1, num_windows, 2)
        self.limited = limited
        self.source = Source(self.landing, self.horizon, 3)
        self.source.start()

    def run(self, runner: list[str]) -> int:
        """Runs the program to its end."""
        return release_windows.main(self.flags(runner))

    def run_half_way(self, runner: list[str]) -> None:
        """Runs the program in a process of its own, and stops it once windows are released."""
        half = self.horizon.num_windows // 2
        command = [sys.executable, "-c", _HALF, str(half), str(self.output), *self.flags(runner)]
        with subprocess.Popen(command, cwd=ROOT) as program:
            wait_for("windows", lambda: self.num_released >= half)
            program.send_signal(signal.SIGTERM)
            assert program.wait() == 128 + signal.SIGTERM
        assert self.num_released < self.horizon.num_windows

    def flags(self, runner: list[str]) -> list[str]:
        """The program's flags."""
        start = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.horizon.start))
        unit = {**UNITS, "protected_windows": str(self.horizon.num_windows)}
        flags = {
            "input": f"{self.landing}/*.parquet",
            "domain": json.dumps(DOMAIN),
            "workload": "marginals:1",
            "event_time": "t",
            "arrival": "file_time",
            "start": start,
            "window": "1s",
            "num_windows": str(self.horizon.num_windows),
            "grace": "2s",
            # On a loaded machine a file may appear late.
            "settle": "20s",
            "poll": "1s",
            **(unit if self.limited else {"privacy_unit": "record"}),
            # Almost no noise.
            "epsilon": "20000",
            "delta": "0",
            "neighboring": "add_or_remove_one",
            "output": str(self.output),
        }
        return [*(f"--{name}={value}" for name, value in flags.items()), *runner]

    def check(self) -> np.ndarray:
        """Compares the release with the expected counts, and returns it."""
        self.source.join()
        release = read_windows(self.output)
        assert release.released == tuple(range(self.horizon.num_windows))
        workload = release.workload
        found = [release.answer(workload, slice(n, n + 1))[0].values for n in release.released]
        expected = self.source.tables(limited=self.limited)
        np.testing.assert_array_equal(np.rint(found), expected)
        assert expected.sum() > 0 and not expected[3:5].any()
        return expected

    @property
    def num_released(self) -> int:
        """How many windows have a card."""
        return len(self.cards())

    def cards(self) -> dict[str, bytes]:
        """The card of each window that is released."""
        cards = (self.output / "windows").glob("*/card.json")
        return {card.parent.name: card.read_bytes() for card in cards}

    def kill(self, kills: int, kill: Callable[[], None]) -> threading.Thread:
        """Kills the given number of times, at random moments spread over the horizon."""
        rng = random.Random()

        def go() -> None:
            part = self.horizon.num_windows // (kills + 1)
            for number in range(kills):
                least = number * part + rng.randrange(1, part)
                wait_for(f"{least} windows", lambda least=least: self.num_released >= least)
                kill()

        thread = threading.Thread(target=go, daemon=True)
        thread.start()
        return thread


def kill_task_manager(cluster: FlinkCluster) -> None:
    cluster.kill_task_manager(random.choice(cluster.task_managers))
    cluster.start_task_manager()


def kill_worker(cluster: FlinkCluster) -> None:
    """Kills a running Python worker, if there is one."""
    for pid in random.sample(sorted(cluster.python_workers()), len(cluster.python_workers())):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        return


@pytest.mark.engines
@pytest.mark.parametrize(
    "engine",
    [pytest.param("prism", marks=pytest.mark.job), pytest.param("flink", marks=pytest.mark.part)],
)
def test_same_command_resumes_a_cancelled_job(tmp_path, request, engine):
    """Starts from the beginning: the engine does not remember the job."""
    runner = request.getfixturevalue(engine)
    if engine == "flink":
        runner = [*runner, "--checkpointing_interval=2000"]
    trial = Trial(tmp_path, 12, limited=engine == "flink")
    trial.run_half_way(runner)
    before = trial.cards()
    assert trial.run(runner) == 0
    trial.check()
    after = trial.cards()
    assert {number: after[number] for number in before} == before


def faulty(
    tmp_path: pathlib.Path,
    cluster: FlinkCluster,
    waiting: Moments,
    kill: Callable[[FlinkCluster], None],
    num_windows: int,
    kills: int,
) -> None:
    """Runs one trial on a cluster while parts of it are killed."""
    waiting.disarm()
    cluster.forget_workers()
    trial = Trial(tmp_path, num_windows, limited=True)
    killer = trial.kill(kills, lambda: kill(cluster))
    code = trial.run([*cluster.flags(), "--checkpointing_interval=5000"])
    killer.join()
    cluster.wait_for_task_managers()
    cluster.remove_files_of_the_dead()
    if code:  # too many restarts for one job: the same command goes on
        assert trial.run([*cluster.flags(), "--checkpointing_interval=5000"]) == 0
    expected = trial.check()
    drawn = waiting.windows()
    assert {number for number, _ in drawn} == set(range(num_windows))
    for number, counts in drawn:
        assert counts == expected[number].tolist()
    assert cli(["finish", str(trial.output)]) == 0
    assert not list(trial.output.rglob(".draft-*"))


@pytest.mark.engines
@pytest.mark.part
def test_windows_stay_exact_after_task_managers_are_killed(tmp_path, cluster, waiting):
    faulty(tmp_path, cluster, waiting, kill_task_manager, 60, 3)


@pytest.mark.faults
@pytest.mark.parametrize("number", range(NUM_TRIALS))
@pytest.mark.parametrize("kill", [kill_task_manager, kill_worker])
def test_windows_stay_exact_after_any_kill(tmp_path, cluster, waiting, kill, number):
    faulty(tmp_path, cluster, waiting, kill, 30, 2)


@pytest.mark.faults
@pytest.mark.parametrize("number", range(NUM_TRIALS))
def test_same_command_resumes_after_job_manager_is_killed(tmp_path, cluster, waiting, number):
    """The job manager does not remember jobs: the job is lost, and started again."""

    def kill_job_manager(cluster: FlinkCluster) -> None:
        cluster.kill_job_manager()
        cluster.start_job_manager()

    faulty(tmp_path, cluster, waiting, kill_job_manager, 30, 1)

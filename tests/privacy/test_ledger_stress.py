"""Many at once, and killed at any point: the ledger never shows less than what was drawn."""

from __future__ import annotations

import multiprocessing
import os
import pathlib
import random
import signal
import time
from typing import Any

import pytest
from ledger_workers import TINY, release_for_ever, submit
from patience import HANG_SECONDS, wait_for

from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss

# A server that has the imports done forks quickly, and has no threads of a test's.
PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(
    [
        "beam_dp.privacy.ledger",
        "sqlalchemy.dialects.sqlite",
        "sqlalchemy.dialects.postgresql.psycopg",
    ]
)


@pytest.mark.slow
def test_of_fifty_at_once_exactly_ten_are_paid(ledger_url: str) -> None:
    ledger = Ledger(ledger_url, wait_seconds=HANG_SECONDS)
    ledger.declare("visits", 1.0, 0.0, "person", "add_or_remove_one")
    start = PROCESSES.Barrier(50)
    submissions = [PROCESSES.Process(target=submit, args=(ledger_url, start)) for _ in range(50)]
    for submission in submissions:
        submission.start()
    for submission in submissions:
        submission.join(HANG_SECONDS)
    codes = [submission.exitcode for submission in submissions]
    assert sorted(codes, key=str) == [0] * 10 + [3] * 40
    assert [entry.number for entry in ledger.entries("visits")] == list(range(1, 11))
    assert ledger.remaining("visits") == 0


def kill_at_random_points(url: str, folder: pathlib.Path, times: int) -> None:
    ledger = Ledger(url, wait_seconds=HANG_SECONDS)
    ledger.declare("visits", 100.0, 0.0, "person", "add_or_remove_one")
    ledger.declare("other", 100.0, 0.0, "person", "add_or_remove_one")
    drawn = folder / "drawn"
    drawn.touch()
    began = time.perf_counter()
    for _ in range(3):
        ledger.mark_released(ledger.spend("other", TINY, Loss.pure(1e-4), "laplace"))
    three_releases = time.perf_counter() - began
    for number in range(times):
        # Every other worker has drawn before it may be killed, however slow the machine.
        awaited = drawn.read_bytes().count(b"\n") + (1 if number % 2 else 2)
        worker = PROCESSES.Process(target=release_for_ever, args=(url, str(drawn)))
        worker.start()

        def has_come(awaited: int = awaited, worker: Any = worker) -> bool:
            assert worker.is_alive(), "a worker ended by itself"
            return drawn.read_bytes().count(b"\n") >= awaited

        wait_for("a worker to be ready, or to draw", has_come)
        # Nothing is waited for here: it spreads the kills over all points of a release.
        time.sleep(random.random() * three_releases)
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)
        worker.join()
        # Ids of a line that was cut short are not there: a write of a line is one system call.
        lines = drawn.read_text().split("\n")
        draws = [line for line in lines if line.startswith("visits/")]
        entries = {entry.release_id: entry for entry in ledger.entries("visits")}
        assert len(set(draws)) == len(draws), "one entry paid for two draws"
        assert set(draws) <= set(entries), "something was drawn that the ledger does not show"
        assert len(entries) <= len(draws) + number + 1
        released = [entry for entry in entries.values() if entry.state == "released"]
        assert {entry.release_id for entry in released} <= set(draws)
    assert len(draws) >= times // 2
    assert ledger.total("visits") == pytest.approx(1e-4 * len(entries))


@pytest.mark.slow
def test_killed_at_random_points_it_shows_all_that_was_drawn(
    ledger_url: str, tmp_path: pathlib.Path
) -> None:
    kill_at_random_points(ledger_url, tmp_path, 10)


@pytest.mark.audit
def test_killed_at_200_random_points_it_shows_all_that_was_drawn(
    ledger_url: str, tmp_path: pathlib.Path
) -> None:
    kill_at_random_points(ledger_url, tmp_path, 200)

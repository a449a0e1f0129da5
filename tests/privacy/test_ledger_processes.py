"""Ledgers that many processes use: a restarted job pays once, and a saved state is used once."""

import concurrent.futures
import multiprocessing
import os
import pathlib
import random
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from ledger_workers import (
    AR,
    TENTH,
    TINY,
    declared,
    execute,
    go_on_at_once,
    release_for_ever,
    resume_at_once,
    submit,
)
from patience import HANG_SECONDS, wait_for

from beam_dp.privacy.ledger.entries import Entry, LedgerError, Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss

LOSS = Loss.pure(0.1)
PROCESSES = multiprocessing.get_context("forkserver")


def paid(ledger: Ledger, name: str, **changed: Any) -> tuple[Entry, bool]:
    given = {"guarantee": TENTH, "loss": LOSS, "mechanism": "windows", **changed}
    parameters = {"grace": 5, "horizon_id": name, "name": "Zoë"}
    return ledger.spend_once("visits", parameters=parameters, key="horizon_id", **given)


def test_restarted_release_is_paid_once(ledger_url):
    ledger = declared(ledger_url)
    first, is_new = paid(ledger, "a" * 32)
    assert is_new and first.state == "spent" and first.release_id == "visits/1"
    first.check("windows", TENTH, LOSS)
    for _ in range(2):
        assert paid(Ledger(ledger_url), "a" * 32) == (first, False)
    assert ledger.entries("visits") == [first] and ledger.total("visits") == pytest.approx(0.1)
    ledger.mark_released(first, "a" * 32)
    again, is_new = paid(ledger, "a" * 32)
    assert not is_new and again.state == "released" and again.draw_id == "a" * 32
    assert ledger.total("visits") == pytest.approx(0.1)


def test_release_with_another_id_is_paid_separately(ledger_url):
    """Also one that a pattern would match, and one that occurs elsewhere in an entry."""
    ledger = declared(ledger_url)
    ledger.spend("visits", TENTH, LOSS, "laplace", {"note": {"horizon_id": "ab"}})
    ledger.spend("visits", TENTH, LOSS, "laplace", {"note": '"horizon_id": "ab"'})
    for number, name in enumerate(("ab", "a_", "a%", "AB", 'a"\\b', "Zoë", "a/b"), start=3):
        entry, is_new = paid(ledger, name)
        assert is_new and entry.number == number
        assert paid(ledger, name) == (entry, False)


def test_release_with_same_id_in_another_dataset_is_paid_separately(ledger_url):
    ledger = declared(ledger_url)
    ledger.declare("other", 1.0, 0.0, "person", AR)
    ledger.spend("other", TENTH, LOSS, "windows", {"horizon_id": "ab"})
    assert paid(ledger, "ab")[1]


def test_only_one_of_several_threads_pays_for_an_id(ledger_url):
    declared(ledger_url)
    start = threading.Barrier(4)

    def begin(name: str) -> tuple[Entry, bool]:
        ledger = Ledger(ledger_url, wait_seconds=HANG_SECONDS)
        start.wait(HANG_SECONDS)
        return paid(ledger, name)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        found = list(pool.map(begin, ["ab", "ab", "cd", "ab"]))
    of_ab = [found[place] for place in (0, 1, 3)]
    assert len({entry.number for entry, _ in of_ab}) == 1
    assert sorted(is_new for _, is_new in of_ab) == [False, False, True]
    assert found[2][1] and len(Ledger(ledger_url).entries("visits")) == 2


def test_rejects_damaged_parameters(ledger_url):
    ledger = declared(ledger_url)
    paid(ledger, "ab")
    execute(ledger_url, """UPDATE beam_dp_releases SET parameters = '["horizon_id": "ab"'""")
    with pytest.raises(LedgerError, match="must be undamaged: release visits/1 is unreadable"):
        paid(ledger, "ab")


def paid_run(url: str) -> tuple[Ledger, Token]:
    ledger = declared(url)
    return ledger, ledger.spend("visits", TENTH, LOSS, "private_mw")


def test_each_state_is_used_once_and_in_order(ledger_url):
    ledger, token = paid_run(ledger_url)
    for number in (1, 2, 3):
        ledger.check_state(token, number)
        ledger.use_state(token, number)
        for call in (ledger.check_state, ledger.use_state):
            for used in range(1, number + 1):
                with pytest.raises(LedgerError, match=f"not used: the next is {number + 1}, ") as e:
                    call(token, used)
                assert "\n" not in str(e.value) and "'visits/1'" in str(e.value)
            with pytest.raises(LedgerError, match=rf"must be {number + 1}, .* is it a backup\?$"):
                call(token, number + 2)
    assert ledger.total("visits") == pytest.approx(0.1)


def all_at_once(number: int, work: Callable[..., None], *arguments: Any) -> list[int | None]:
    """Returns the exit codes of processes that do the same work at the same moment, sorted."""
    start = PROCESSES.Barrier(number)
    workers = [PROCESSES.Process(target=work, args=(*arguments, start)) for _ in range(number)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(HANG_SECONDS)
    return sorted((worker.exitcode for worker in workers), key=str)


@pytest.mark.job
def test_only_one_of_several_processes_pays_for_an_id(ledger_url):
    ledger = declared(ledger_url)
    assert all_at_once(6, go_on_at_once, ledger_url) == [0] + [3] * 5
    assert len(ledger.entries("visits")) == 1


@pytest.mark.job
def test_only_one_of_several_processes_resumes_a_state(ledger_url):
    ledger, token = paid_run(ledger_url)
    assert all_at_once(8, resume_at_once, ledger_url, token) == [0] + [3] * 7
    ledger.use_state(token, 2)


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM beam_dp_used_states WHERE state_number = 1", "DROP TABLE beam_dp_used_states"],
)
def test_rejects_damaged_states(ledger_url, statement):
    ledger, token = paid_run(ledger_url)
    ledger.use_state(token, 1)
    ledger.use_state(token, 2)
    execute(ledger_url, statement)
    for number in (1, 2, 3):
        with pytest.raises(LedgerError, match=r"must be (undamaged|a ledger that can be used)"):
            ledger.use_state(token, number)


# A server that has the imports done forks quickly, and has no threads of a test's.
PROCESSES.set_forkserver_preload(
    [
        "beam_dp.privacy.ledger.ledger",
        "sqlalchemy.dialects.sqlite",
        "sqlalchemy.dialects.postgresql.psycopg",
    ]
)


@pytest.mark.part
def test_exactly_ten_of_fifty_processes_pay(ledger_url):
    ledger = declared(ledger_url)
    assert all_at_once(50, submit, ledger_url) == [0] * 10 + [3] * 40
    assert [entry.number for entry in ledger.entries("visits")] == list(range(1, 11))
    assert ledger.remaining("visits") == 0


def kill_at_random_points(url: str, folder: pathlib.Path, times: int) -> None:
    ledger = declared(url, 100.0, wait_seconds=HANG_SECONDS)
    ledger.declare("other", 100.0, 0.0, "person", AR)
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


@pytest.mark.job
def test_ledger_of_a_killed_process_contains_every_draw(ledger_url, tmp_path):
    kill_at_random_points(ledger_url, tmp_path, 10)


@pytest.mark.part
@pytest.mark.parametrize("ledger", range(4))
def test_ledger_of_50_killed_processes_contains_every_draw(ledger, ledger_url, tmp_path):
    """200 in all, of four ledgers: each payment reads all entries of one."""
    kill_at_random_points(ledger_url, tmp_path, 50)

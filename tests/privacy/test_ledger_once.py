"""Releases with an id of their own: however often a job is started again, it pays once."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import multiprocessing
import threading
from typing import Any

import pytest
import sqlalchemy as sa
from ledger_workers import TENTH, go_on_at_once
from patience import HANG_SECONDS

from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import Entry, LedgerError, OverBudgetError
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss

LOSS = Loss.pure(0.1)
PROCESSES = multiprocessing.get_context("forkserver")


def declared(url: str, epsilon: float = 1.0) -> Ledger:
    ledger = Ledger(url, wait_seconds=HANG_SECONDS)
    ledger.declare("visits", epsilon, 0.0, "person", "add_or_remove_one")
    return ledger


def paid(ledger: Ledger, name: str, **changed: Any) -> tuple[Entry, bool]:
    given = {"guarantee": TENTH, "loss": LOSS, "mechanism": "windows", **changed}
    parameters = {"grace": 5, "horizon_id": name, "name": "Zoë"}
    return ledger.spend_once("visits", parameters=parameters, key="horizon_id", **given)


def test_what_is_started_again_is_paid_for_once(ledger_url: str) -> None:
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


def test_another_id_pays_again(ledger_url: str) -> None:
    """Also one that a pattern would match, and one that stands elsewhere in an entry."""
    ledger = declared(ledger_url)
    ledger.spend("visits", TENTH, LOSS, "laplace", {"note": {"horizon_id": "ab"}})
    ledger.spend("visits", TENTH, LOSS, "laplace", {"note": '"horizon_id": "ab"'})
    for number, name in enumerate(("ab", "a_", "a%", "AB", 'a"\\b', "Zoë", "a/b"), start=3):
        assert ledger.entry_with("visits", "horizon_id", name) is None
        entry, is_new = paid(ledger, name)
        assert is_new and entry.number == number
        assert ledger.entry_with("visits", "horizon_id", name) == entry
        assert paid(ledger, name) == (entry, False)


def test_an_id_of_one_dataset_is_none_of_another(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    ledger.declare("other", 1.0, 0.0, "person", "add_or_remove_one")
    ledger.spend("other", TENTH, LOSS, "windows", {"horizon_id": "ab"})
    assert paid(ledger, "ab")[1]


@pytest.mark.parametrize(
    "changed",
    [
        {"mechanism": "laplace"},
        {"loss": Loss.pure(0.05)},
        {"guarantee": dataclasses.replace(TENTH, max_records_per_unit=2)},
        {"guarantee": Guarantee(0.2, 0.0, "add_or_remove_one", "person", 1)},  # type: ignore[arg-type]
    ],
)
def test_an_id_that_paid_for_something_else_is_refused(
    ledger_url: str, changed: dict[str, Any]
) -> None:
    ledger = declared(ledger_url)
    paid(ledger, "ab")
    with pytest.raises(LedgerError, match=r"^horizon_id: 'ab' is refused; must .*'visits/1'") as e:
        paid(ledger, "ab", **changed)
    assert "\n" not in str(e.value)
    assert len(ledger.entries("visits")) == 1


def test_what_is_paid_goes_on_where_nothing_is_left(ledger_url: str) -> None:
    ledger = declared(ledger_url, 0.1)
    entry, _ = paid(ledger, "ab")
    assert paid(ledger, "ab") == (entry, False)
    with pytest.raises(OverBudgetError):
        paid(ledger, "cd")
    assert ledger.entries("visits") == [entry]


def test_of_many_that_start_at_once_one_pays(ledger_url: str) -> None:
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


@pytest.mark.slow
def test_of_many_processes_that_start_at_once_one_pays(ledger_url: str) -> None:
    declared(ledger_url)
    start = PROCESSES.Barrier(6)
    starters = [PROCESSES.Process(target=go_on_at_once, args=(ledger_url, start)) for _ in range(6)]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(HANG_SECONDS)
    assert sorted(str(starter.exitcode) for starter in starters) == ["0"] + ["3"] * 5
    assert len(Ledger(ledger_url).entries("visits")) == 1


@pytest.mark.parametrize("name", ["", "a" * 201, "a\nb", "\ud800", 7, None])
def test_what_can_be_no_id_is_refused(ledger_url: str, name: Any) -> None:
    ledger = declared(ledger_url)
    with pytest.raises(InputError, match=r"^(horizon_id: .* must be 1 to 200|parameters: )"):
        paid(ledger, name)
    with pytest.raises(InputError, match=r"^horizon_id: .* must be 1 to 200"):
        ledger.entry_with("visits", "horizon_id", name)
    assert ledger.entries("visits") == []


def test_an_unknown_dataset_and_another_unit_are_refused(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    with pytest.raises(LedgerError, match="must be declared first"):
        ledger.spend_once("other", TENTH, LOSS, "windows", {"id": "a"}, "id")
    with pytest.raises(LedgerError, match="privacy_unit"):
        paid(ledger, "ab", guarantee=dataclasses.replace(TENTH, privacy_unit="plane"))
    assert ledger.entries("visits") == []


def test_parameters_that_are_damaged_are_never_taken_for_unpaid(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    paid(ledger, "ab")
    engine = sa.create_engine(ledger_url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.begin() as connection:
        damaged = """UPDATE beam_dp_releases SET parameters = '["horizon_id": "ab"'"""
        connection.execute(sa.text(damaged))
    with pytest.raises(LedgerError, match="must be undamaged: release visits/1 is unreadable"):
        paid(ledger, "ab")

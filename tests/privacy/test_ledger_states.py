"""Saved states of paid runs: the ledger lets each be used once, whoever holds a copy of it."""

from __future__ import annotations

import multiprocessing

import pytest
import sqlalchemy as sa
from ledger_workers import resume_at_once
from patience import HANG_SECONDS

from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import LedgerError, Token
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss

AR = "add_or_remove_one"
TENTH = Guarantee(0.1, 0.0, AR, "person", 1)  # type: ignore[arg-type]
PROCESSES = multiprocessing.get_context("forkserver")


def paid(url: str) -> tuple[Ledger, Token]:
    ledger = Ledger(url)
    ledger.declare("visits", 1.0, 0.0, "person", AR)
    return ledger, ledger.spend("visits", TENTH, Loss.pure(0.1), "private_mw")


def engine(url: str) -> sa.Engine:
    return sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))


def execute(url: str, *statements: str) -> None:
    with engine(url).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


@pytest.mark.mostly_slow(one_in=2)
def test_each_state_is_used_once_and_in_order(ledger_url: str) -> None:
    ledger, token = paid(ledger_url)
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


def test_states_of_different_entries_are_apart(ledger_url: str) -> None:
    ledger, first = paid(ledger_url)
    second = ledger.spend("visits", TENTH, Loss.pure(0.1), "private_mw")
    ledger.use_state(first, 1)
    ledger.use_state(second, 1)
    ledger.use_state(first, 2)


def test_an_entry_that_the_ledger_lacks_is_refused(ledger_url: str) -> None:
    ledger, token = paid(ledger_url)
    for other in (
        Token("visits", 2, "private_mw", TENTH, Loss.pure(0.1)),
        Token("visits", 1, "private_mw", TENTH, Loss.pure(0.2)),
        Token("other", 1, "private_mw", TENTH, Loss.pure(0.1)),
    ):
        with pytest.raises(LedgerError, match="must be of this ledger"):
            ledger.use_state(other, 1)
    ledger.use_state(token, 1)


@pytest.mark.parametrize("number", [0, -1, 2**31, 1.0, True, None])
def test_a_number_that_is_none_is_refused(ledger_url: str, number: object) -> None:
    ledger, token = paid(ledger_url)
    for call in (ledger.check_state, ledger.use_state):
        with pytest.raises(InputError, match=r"^state_number: .* must be an integer from 1"):
            call(token, number)  # type: ignore[arg-type]


def test_of_many_who_resume_at_once_exactly_one_wins(ledger_url: str) -> None:
    ledger, token = paid(ledger_url)
    start = PROCESSES.Barrier(8)
    resumers = [
        PROCESSES.Process(target=resume_at_once, args=(ledger_url, token, start)) for _ in range(8)
    ]
    for resumer in resumers:
        resumer.start()
    for resumer in resumers:
        resumer.join(HANG_SECONDS)
    assert sorted(str(resumer.exitcode) for resumer in resumers) == ["0"] + ["3"] * 7
    ledger.use_state(token, 2)


@pytest.mark.parametrize(
    "statement",
    ["DELETE FROM beam_dp_used_states WHERE state_number = 1", "DROP TABLE beam_dp_used_states"],
)
def test_damage_is_never_taken_for_unused(ledger_url: str, statement: str) -> None:
    ledger, token = paid(ledger_url)
    ledger.use_state(token, 1)
    ledger.use_state(token, 2)
    execute(ledger_url, statement)
    for number in (1, 2, 3):
        with pytest.raises(LedgerError, match=r"must be (undamaged|a ledger that can be used)"):
            ledger.use_state(token, number)

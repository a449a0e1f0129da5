"""Ledgers of the tests, and what other processes do to them in the stress tests."""

import os
from multiprocessing.synchronize import Barrier
from typing import Any

import pytest
import sqlalchemy as sa
from patience import HANG_SECONDS

import beam_dp as dp
from beam_dp.privacy.ledger.entries import LedgerError, OverBudgetError, Token
from beam_dp.privacy.loss import Loss

AR = "add_or_remove_one"
TENTH = dp.Guarantee(0.1, 0.0, AR, "person", 3)  # type: ignore[arg-type]
TINY = dp.Guarantee(1e-4, 0.0, AR, "person", 1)  # type: ignore[arg-type]


def declared(url: str, epsilon: float = 1.0, delta: float = 0.0, **named: float) -> dp.Ledger:
    """Returns a ledger that declares the budget of ``visits``."""
    ledger = dp.Ledger(url, **named)
    ledger.declare("visits", epsilon, delta, "person", AR)
    return ledger


def spend(ledger: dp.Ledger, *more: Any) -> Token:
    """Pays a tenth of the budget of ``visits``."""
    return ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace", *more)


def one_line(error: pytest.ExceptionInfo[dp.InputError]) -> str:
    """Returns a refusal, which must be one short line."""
    text = str(error.value)
    assert "\n" not in text and len(text) < 500
    return text


def execute(url: str, *statements: str) -> None:
    """Runs SQL on the database of a ledger."""
    with sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:")).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def submit(url: str, start: Barrier) -> None:
    """One submission, at the same moment as all others; exit code 0, or 3 if over budget."""
    ledger = dp.Ledger(url, wait_seconds=HANG_SECONDS)
    start.wait(HANG_SECONDS)
    try:
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    except OverBudgetError:
        os._exit(3)


def resume_at_once(url: str, token: Token, start: Barrier) -> None:
    """Uses the first state at the same moment as all others; exit code 0, or 3 if it was used."""
    ledger = dp.Ledger(url, wait_seconds=HANG_SECONDS)
    start.wait(HANG_SECONDS)
    try:
        ledger.use_state(token, 1)
    except LedgerError as error:
        assert error.name == "state_number"
        os._exit(3)


def go_on_at_once(url: str, start: Barrier) -> None:
    """Starts one release at the same moment as all others; exit code 0 for who paid, else 3."""
    ledger = dp.Ledger(url, wait_seconds=HANG_SECONDS)
    start.wait(HANG_SECONDS)
    parameters = {"horizon_id": "ab"}
    _, is_new = ledger.spend_once(
        "visits", TENTH, Loss.pure(0.1), "windows", parameters, "horizon_id"
    )
    os._exit(0 if is_new else 3)


def release_for_ever(url: str, drawn: str) -> None:
    """Spends, draws, marks, until killed; a draw is a line in a file."""
    ledger = dp.Ledger(url, wait_seconds=HANG_SECONDS)
    file = os.open(drawn, os.O_WRONLY | os.O_APPEND)
    os.write(file, b"ready\n")
    while True:
        token = ledger.spend("visits", TINY, Loss.pure(1e-4), "laplace")
        os.write(file, f"{token.release_id}\n".encode())
        ledger.mark_released(token)

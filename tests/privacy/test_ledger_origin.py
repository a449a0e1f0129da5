"""Who paid for a release, why and where it went, also in a ledger of an earlier version."""

from __future__ import annotations

import json
import pathlib
import sqlite3

import pytest
import sqlalchemy as sa

from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import LONGEST, Origin, system_user
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.ledger.storage import RELEASES, Storage
from beam_dp.privacy.loss import Loss

AR = "add_or_remove_one"
TENTH = Guarantee(0.1, 0.0, AR, "person", 3)
SAID = Origin("Zoë", 'the yearly "report"', "s3://bucket/out")


def declared(url: str) -> Ledger:
    ledger = Ledger(url)
    ledger.declare("visits", 1.0, 0.0, "person", AR)
    return ledger


def test_the_ledger_says_who_why_and_where(ledger_url: str) -> None:
    parameters = {"scale": 30.0}
    declared(ledger_url).spend("visits", TENTH, Loss.pure(0.1), "laplace", parameters, SAID)
    (entry,) = Ledger(ledger_url).entries("visits")
    assert (entry.origin, entry.parameters) == (SAID, {"scale": 30.0})
    assert entry.to_json()["origin"] == SAID.to_json() and parameters == {"scale": 30.0}


def test_without_a_word_it_says_the_user_of_the_system(ledger_url: str) -> None:
    declared(ledger_url).spend("visits", TENTH, Loss.pure(0.1), "laplace")
    (entry,) = Ledger(ledger_url).entries("visits")
    assert entry.origin == Origin(system_user(), None, None)


def test_of_a_release_that_goes_on_the_first_origin_stays(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    for origin in (SAID, Origin("bob")):
        found, _ = ledger.spend_once(
            "visits", TENTH, Loss.pure(0.1), "windows", {"id": "a"}, "id", origin
        )
        assert (found.origin, found.parameters) == (SAID, {"id": "a"})
    assert len(ledger.entries("visits")) == 1


def test_entries_of_earlier_versions_are_read_and_spent_beside(ledger_url: str) -> None:
    """As they were written: parameters alone, also such as have that name by chance."""
    ledger = declared(ledger_url)
    for _ in range(4):
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    old = [{"scale": 1.0}, {"origin": "x"}, {"origin": {"who": "x"}}, [1, 2]]
    with Storage(ledger_url, 5.0).writing() as connection:
        for number, parameters in enumerate(old, start=1):
            connection.execute(
                sa.update(RELEASES)
                .where(RELEASES.c.number == number)
                .values(parameters=json.dumps(parameters))
            )
    entries = Ledger(ledger_url).entries("visits")
    assert [entry.parameters for entry in entries] == old
    assert {entry.origin for entry in entries} == {None}
    ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace", origin=SAID)
    assert ledger.entries("visits")[-1].origin == SAID
    assert ledger.total("visits") == pytest.approx(0.5)


def test_no_table_is_changed(tmp_path: pathlib.Path) -> None:
    """Programs of earlier versions read and spend from the same ledger."""
    ledger = declared(str(tmp_path / "ledger"))
    with sqlite3.connect(tmp_path / "ledger") as connection:
        before = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace", origin=SAID)
    with sqlite3.connect(tmp_path / "ledger") as connection:
        after = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        assert connection.execute("SELECT version FROM beam_dp_ledger").fetchall() == [(2,)]
    assert before == after


def test_it_is_no_parameter(ledger_url: str) -> None:
    with pytest.raises(InputError, match="parameters: 'origin' is refused; must not be a param"):
        declared(ledger_url).spend("visits", TENTH, Loss.pure(0.1), "laplace", {"origin": 1})
    assert Ledger(ledger_url).entries("visits") == []


@pytest.mark.parametrize("name", list(LONGEST))
@pytest.mark.parametrize("text", ["", "two\nlines", "\x1b[2J", "\udcff", 7, "long"])
def test_what_is_no_text_is_refused(name: str, text: object) -> None:
    value = "a" * (LONGEST[name] + 1) if text == "long" else text
    with pytest.raises(InputError, match=rf"^{name}: .* must be 1 to [\d,]+ printable characters$"):
        Origin(**{name: value})  # type: ignore[arg-type]
    Origin(**{name: "a" * LONGEST[name]})

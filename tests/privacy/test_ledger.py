"""The ledger on both databases: what it records, what it refuses, and in which words."""

from __future__ import annotations

import json
import os
import pathlib
import sqlite3
import stat

import pytest
import sqlalchemy as sa

from beam_dp.errors import InputError
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger import Ledger, LedgerError, OverBudgetError, Token
from beam_dp.privacy.loss import Loss

AR = "add_or_remove_one"
TENTH = Guarantee(0.1, 0.0, AR, "person", 3)


def declared(url: str, epsilon: float = 1.0, delta: float = 0.0) -> Ledger:
    ledger = Ledger(url)
    ledger.declare("visits", epsilon, delta, "person", AR)
    return ledger


def one_line(error: pytest.ExceptionInfo[InputError]) -> str:
    text = str(error.value)
    assert "\n" not in text and len(text) < 500
    return text


def test_what_was_spent_is_there_for_everybody(ledger_url: str) -> None:
    token = declared(ledger_url).spend(
        "visits", TENTH, Loss.pure(0.1), "laplace", {"scale": 30.0, "name": "Zoë"}
    )
    (entry,) = Ledger(ledger_url).entries("visits")
    assert token.release_id == entry.release_id == "visits/1"
    assert (entry.guarantee, entry.loss, entry.mechanism) == (TENTH, Loss.pure(0.1), "laplace")
    assert entry.parameters == {"scale": 30.0, "name": "Zoë"}
    assert (entry.state, entry.released_at, entry.draw_id) == ("spent", None, None)
    assert entry.spent_at.endswith("+00:00")
    assert json.loads(json.dumps(entry.to_json()))["release_id"] == "visits/1"


def test_a_complete_release_is_marked_once(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    tokens = [ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace") for _ in range(2)]
    for draw_id in ("a" * 32, "b" * 32):
        ledger.mark_released(tokens[1], draw_id)
    first, second = ledger.entries("visits")
    assert (first.state, second.state, second.draw_id) == ("spent", "released", "a" * 32)


def test_a_token_of_another_ledger_is_refused(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    for number, loss in ((2, Loss.pure(0.1)), (1, Loss.pure(0.2))):
        with pytest.raises(LedgerError, match="token: 'visits/"):
            ledger.mark_released(Token("visits", number, "laplace", TENTH, loss))


def test_ten_tenths_fit_and_an_eleventh_does_not(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    for number in range(10):
        assert ledger.remaining("visits") == pytest.approx(1 - number / 10)
        assert ledger.total("visits") == pytest.approx(number / 10)
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    with pytest.raises(OverBudgetError):
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    assert len(ledger.entries("visits")) == 10
    assert ledger.remaining("visits") <= 1e-12


def test_a_refusal_says_what_would_fit_and_who_spent_most(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    for epsilon in (0.1, 0.5):
        guarantee = Guarantee(epsilon, 0.0, AR, "person", 3)
        ledger.spend("visits", guarantee, Loss.pure(epsilon), "laplace")
    with pytest.raises(OverBudgetError) as error:
        ledger.spend("visits", Guarantee(0.6, 0.0, AR, "person", 3), Loss.pure(0.6), "mwem")
    assert one_line(error) == (
        "epsilon: 0.6 is refused; must be at most 0.4: requested epsilon 0.6, remaining 0.4 of"
        " 'visits', 0.2 too much; spent most by visits/2 (laplace, epsilon 0.5),"
        " visits/1 (laplace, epsilon 0.1)"
    )
    ledger.spend("visits", Guarantee(0.4, 0.0, AR, "person", 3), Loss.pure(0.4), "laplace")
    with pytest.raises(OverBudgetError, match="nothing is left"):
        ledger.spend("visits", TENTH, Loss.pure(0.1), "mwem")


def test_a_check_costs_nothing(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    ledger.check("visits", TENTH, Loss.pure(0.1))
    with pytest.raises(OverBudgetError):
        ledger.check("visits", TENTH, Loss.pure(1.1))
    assert ledger.entries("visits") == []


def test_a_budget_without_delta_admits_pure_releases_only(ledger_url: str) -> None:
    with pytest.raises(OverBudgetError, match="purely private releases only"):
        declared(ledger_url).spend("visits", TENTH, Loss.gaussian(1e-3), "gaussian")


@pytest.mark.parametrize(
    ("guarantee", "name"),
    [
        (Guarantee(0.1, 0.0, AR, "household", 3), "privacy_unit"),
        (Guarantee(0.1, 0.0, AR, "record", 1), "privacy_unit"),
        (Guarantee(0.1, 0.0, "replace_one", "person", 3), "neighboring"),
    ],
)
def test_another_unit_or_relation_is_refused(
    ledger_url: str, guarantee: Guarantee, name: str
) -> None:
    ledger = declared(ledger_url)
    with pytest.raises(LedgerError, match=f"^{name}: .* is refused; must be .* 'visits'"):
        ledger.spend("visits", guarantee, Loss.pure(0.1), "laplace")
    assert ledger.entries("visits") == []


def test_dataset_ids_are_apart(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    ledger.declare("a 'quoted' name; DROP TABLE", 0.1, 0.0, "person", AR)
    ledger.spend("a 'quoted' name; DROP TABLE", TENTH, Loss.pure(0.1), "laplace")
    assert ledger.remaining("visits") == 1.0
    assert [dataset.dataset_id for dataset in ledger.datasets()] == [
        "a 'quoted' name; DROP TABLE",
        "visits",
    ]


def test_an_unknown_dataset_id_says_how_to_declare_it(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    for call in (
        lambda: ledger.spend("flights", TENTH, Loss.pure(0.1), "laplace"),
        lambda: ledger.check("flights", TENTH, Loss.pure(0.1)),
        lambda: ledger.account("flights"),
    ):
        with pytest.raises(LedgerError) as error:
            call()
        assert "dataset_id: 'flights' is refused; must be declared" in one_line(error)
        assert "--declare NAME --epsilon E --delta X" in one_line(error)


def test_a_budget_is_declared_once(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    declared(ledger_url)  # the same again changes nothing
    for epsilon, delta, unit, relation in (
        (2.0, 0.0, "person", AR),
        (1.0, 1e-9, "person", AR),
        (1.0, 0.0, "record", AR),
        (1.0, 0.0, "person", "replace_one"),
    ):
        with pytest.raises(LedgerError, match="declared once"):
            ledger.declare("visits", epsilon, delta, unit, relation)
    assert len(ledger.datasets()) == 1


def test_a_large_delta_must_be_admitted_by_name(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    with pytest.raises(InputError, match=r"delta: 0.0001 is refused.*--allow_large_delta"):
        ledger.declare("flights", 1.0, 1e-4, "plane", AR)
    ledger.declare("flights", 1.0, 1e-4, "plane", AR, allow_large_delta=True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", float("nan")),
        ("epsilon", 1e-7),
        ("epsilon", 1e7),
        ("delta", -1e-9),
        ("delta", float("nan")),
        ("delta", 1.0),
        ("privacy_unit", ""),
        ("neighboring", "replace"),
        ("composition", "advanced"),
        ("dataset_id", ""),
        ("dataset_id", "a\nb"),
        ("dataset_id", "x" * 201),
    ],
)
def test_a_declaration_out_of_range_is_refused(
    tmp_path: pathlib.Path, field: str, value: object
) -> None:
    valid = {
        "dataset_id": "visits",
        "epsilon": 1.0,
        "delta": 1e-9,
        "privacy_unit": "person",
        "neighboring": AR,
    }
    with pytest.raises(InputError, match=f"^{field}: "):
        Ledger(f"{tmp_path}/l.sqlite").declare(**{**valid, field: value})  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_parameters_must_be_json(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    for value in (float("nan"), b"bytes", object()):
        with pytest.raises(InputError, match=r"^parameters: "):
            ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace", {"value": value})
    assert ledger.entries("visits") == []


def test_rows_are_never_changed(ledger_url: str) -> None:
    """What is in the tables stays as it is, whatever is done next."""
    ledger = declared(ledger_url)

    def rows() -> set[tuple[object, ...]]:
        with ledger._storage.reading() as connection:
            return {
                (name, *row)
                for name in ("datasets", "releases", "completions", "ledger")
                for row in connection.execute(sa.text(f"SELECT * FROM beam_dp_{name}"))
            }

    before = rows()
    for _ in range(3):
        token = ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
        assert before < rows()
        before = rows()
        ledger.mark_released(token)
        assert before < rows()
        before = rows()


# What can be wrong with the database itself.


def execute(url: str, *statements: str) -> None:
    with sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:")).begin() as connection:
        for statement in statements:
            connection.execute(sa.text(statement))


def refuses_everything(ledger: Ledger, pattern: str) -> None:
    """Every call is refused in one line."""
    token = Token("visits", 1, "laplace", TENTH, Loss.pure(0.1))
    for call in (
        lambda: ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace"),
        lambda: ledger.mark_released(token),
        lambda: ledger.account("visits"),
        lambda: ledger.datasets(),
        lambda: ledger.declare("other", 1.0, 0.0, "person", AR),
    ):
        with pytest.raises(LedgerError, match=pattern) as error:
            call()
        one_line(error)


def test_a_newer_schema_is_refused(ledger_url: str) -> None:
    ledger = declared(ledger_url)
    ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    execute(ledger_url, "UPDATE beam_dp_ledger SET version = 2")
    refuses_everything(ledger, "must be of schema 1, and is of 2: a newer beam_dp wrote it")


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM beam_dp_releases WHERE number = 1",
        "UPDATE beam_dp_releases SET loss = '{}' WHERE number = 2",
        "UPDATE beam_dp_releases SET loss = '{\"rho\": NaN}' WHERE number = 2",
        "UPDATE beam_dp_releases SET guarantee = '[[[' WHERE number = 1",
        "UPDATE beam_dp_datasets SET epsilon = -1",
        "DELETE FROM beam_dp_ledger",
    ],
)
def test_damaged_rows_are_refused_and_never_taken_for_unspent(
    ledger_url: str, statement: str
) -> None:
    ledger = declared(ledger_url)
    for _ in range(2):
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    execute(ledger_url, statement)
    with pytest.raises(LedgerError, match="must be undamaged"):
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")


def test_a_database_without_a_ledger_is_refused(ledger_url: str) -> None:
    execute(ledger_url, "CREATE TABLE other (x INTEGER)")
    with pytest.raises(LedgerError, match="must hold a ledger"):
        Ledger(ledger_url).spend("visits", TENTH, Loss.pure(0.1), "laplace")


def test_a_missing_file_is_refused_and_not_made(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LedgerError, match="must exist"):
        Ledger(f"{tmp_path}/l.sqlite").spend("visits", TENTH, Loss.pure(0.1), "laplace")
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_refused(tmp_path: pathlib.Path) -> None:
    with pytest.raises(LedgerError, match="must be a file that can be opened"):
        declared(f"{tmp_path}/nowhere/l.sqlite")


@pytest.mark.parametrize("damage", ["junk", "truncated", "overwritten"])
def test_a_damaged_file_is_refused(tmp_path: pathlib.Path, damage: str) -> None:
    path = tmp_path / "l.sqlite"
    ledger = declared(str(path))
    for _ in range(5):
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace", {"text": "x" * 5000})
    content = path.read_bytes()
    middle = len(content) // 2
    path.write_bytes(
        {
            "junk": b"this is no database" * 1000,
            "truncated": content[: middle - middle % 4096],
            "overwritten": content[:4096] + b"\xff" * 4096 * 8 + content[4096 * 9 :],
        }[damage]
    )
    refuses_everything(ledger, "must be (a sqlite file|undamaged)")


def test_a_locked_file_is_refused_after_a_while(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "l.sqlite"
    declared(str(path))
    ledger = Ledger(str(path), wait_seconds=0.2)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    refuses_everything(ledger, "must not be locked for more than 0.2 seconds")
    holder.execute("ROLLBACK")
    holder.close()
    assert ledger.entries("visits") == []


def test_a_locked_row_is_refused_after_a_while(postgresql: str) -> None:
    import psycopg
    from databases import new_database

    url = new_database(postgresql, 10_000)
    declared(url)
    ledger = Ledger(url, wait_seconds=0.2)
    with psycopg.connect(url) as holder:
        holder.execute("SELECT * FROM beam_dp_datasets FOR UPDATE")
        with pytest.raises(LedgerError, match=r"must not be locked for more than 0\.2 seconds"):
            ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    assert ledger.entries("visits") == []


def test_a_read_only_server_can_be_read_and_not_spent_from(postgresql: str) -> None:
    from databases import new_database

    url = new_database(postgresql, 10_001)
    ledger = declared(url)
    execute(url, "ALTER DATABASE ledger10001 SET default_transaction_read_only = on")
    with pytest.raises(LedgerError, match="must be on a disk that can be written"):
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    ledger.check("visits", TENTH, Loss.pure(0.1))
    assert ledger.entries("visits") == []


def test_a_read_only_ledger_can_be_read_and_not_spent_from(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "l.sqlite"
    declared(str(path))
    ledger = Ledger(f"sqlite:///file:{path}?mode=ro&uri=true")
    with pytest.raises(LedgerError, match="must be on a disk that can be written"):
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    ledger.check("visits", TENTH, Loss.pure(0.1))
    assert ledger.entries("visits") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everything")
def test_a_file_without_write_permission_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "l.sqlite"
    ledger = declared(str(path))
    path.chmod(stat.S_IRUSR)
    with pytest.raises(LedgerError, match="must be on a disk that can be written"):
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")


def test_an_unreachable_server_is_refused_without_its_password(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("psycopg")
    ledger = Ledger(f"postgresql://somebody:secret@/ledger?host={tmp_path}")
    with pytest.raises(LedgerError, match="must be a server that can be reached") as error:
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    assert "secret" not in one_line(error)
    assert "secret" not in ledger.name


@pytest.mark.parametrize(
    "url",
    [
        "mysql://somebody:secret@host/db",
        "sqlite://",
        "sqlite:///:memory:",
        "://x:secret@",
        "",
        "postgresql://somebody:secret@host:port/db",
        "sqlite:///l.sqlite?timeout=x",
    ],
)
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(LedgerError, match="must be a path of a sqlite file") as error:
        Ledger(url)
    assert "secret" not in one_line(error)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_wait_out_of_range_is_refused(seconds: float) -> None:
    with pytest.raises(InputError, match="wait_seconds"):
        Ledger("l.sqlite", wait_seconds=seconds)

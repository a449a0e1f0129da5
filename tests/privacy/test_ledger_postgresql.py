"""All tests of ledgers on a PostgreSQL server, and those that only a server needs."""

import inspect

import pytest
import sqlalchemy as sa
import test_ledger
import test_ledger_database
import test_ledger_entries
import test_ledger_processes
import test_ledger_pure_first
from databases import new_database
from ledger_workers import AR, TENTH, declared, execute, one_line, spend
from patience import wait_for

from beam_dp.cli.main import main
from beam_dp.privacy.ledger.entries import LedgerError
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss

pytestmark = pytest.mark.job

for module in (
    test_ledger,
    test_ledger_database,
    test_ledger_entries,
    test_ledger_processes,
    test_ledger_pure_first,
):
    for name, test in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("test_") and "ledger_url" in inspect.signature(test).parameters:
            globals()[name] = test


def name_of(url: str) -> str:
    """The name of a database in its URL."""
    return url.partition("?")[0].rpartition("/")[2]


@pytest.fixture
def ledger_url(postgresql) -> str:
    """The URL of an empty database of the server."""
    return new_database(postgresql)


def test_gives_up_on_a_locked_row_after_waiting(postgresql):
    import psycopg

    url = new_database(postgresql)
    declared(url)
    ledger = Ledger(url, wait_seconds=0.2)
    with psycopg.connect(url) as holder:
        holder.execute("SELECT * FROM beam_dp_datasets FOR UPDATE")
        with pytest.raises(LedgerError, match=r"must not be locked for more than 0\.2 seconds"):
            spend(ledger)
    assert ledger.entries("visits") == []


def test_read_only_server_can_be_read_but_not_spent_from(postgresql):
    url = new_database(postgresql)
    ledger = declared(url)
    execute(url, f"ALTER DATABASE {name_of(url)} SET default_transaction_read_only = on")
    test_ledger_database.can_only_be_read(ledger)


# What makes a commit durable, and ends a call on a server that does not answer.


def test_non_ascii_dataset_id_survives_a_server_without_encoding(postgresql):
    """As initdb makes one where the system's locale is C."""
    options = "TEMPLATE template0 ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
    ledger = Ledger(new_database(postgresql, options))
    ledger.declare("Besuche für März", 1.0, 0.0, "person", AR)
    ledger.spend("Besuche für März", TENTH, Loss.pure(0.1), "laplace")
    assert [dataset.dataset_id for dataset in ledger.datasets()] == ["Besuche für März"]
    assert ledger.account("Besuche für März").epsilon == 1.0


def test_server_transaction_has_synchronous_commit_and_timeouts(postgresql):
    url = new_database(postgresql)
    declared(url)
    execute(url, f"ALTER DATABASE {name_of(url)} SET synchronous_commit = off")
    ledger = Ledger(url, wait_seconds=2)
    with ledger._storage.writing() as connection:
        settings = {
            name: connection.execute(sa.select(sa.func.current_setting(name))).scalar()
            for name in (
                "synchronous_commit",
                "lock_timeout",
                "statement_timeout",
                "idle_in_transaction_session_timeout",
            )
        }
        link = connection.connection.dbapi_connection.info.get_parameters()  # type: ignore[union-attr]
    assert list(settings.values()) == ["on", "2s", "62s", "62s"]
    assert {name: link[name] for name in ("tcp_user_timeout", "keepalives_idle")} == {
        "tcp_user_timeout": "30000",
        "keepalives_idle": "10",
    }


def is_connected(url: str, backend: object) -> bool:
    query = sa.text("SELECT count(*) FROM pg_stat_activity WHERE pid = :backend")
    server = sa.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with server.connect() as connection:
        return bool(connection.execute(query, {"backend": backend}).scalar())


def test_rejects_server_that_does_not_answer_in_time(postgresql, monkeypatch):
    url = new_database(postgresql)
    declared(url)
    monkeypatch.setattr("beam_dp.privacy.ledger.storage.STATEMENT_SECONDS", 0.1)
    storage = Ledger(url, wait_seconds=0.1)._storage
    refusal = pytest.raises(LedgerError, match=r"must be a server that answers within 0\.2 seconds")
    with refusal as error, storage.writing() as connection:
        connection.execute(sa.select(sa.func.pg_sleep(30)))
    one_line(error)
    with pytest.raises(LedgerError) as error, storage.writing() as connection:
        backend = connection.execute(sa.select(sa.func.pg_backend_pid())).scalar()
        # Frozen, while it holds the lock, until the server has had enough.
        wait_for("the end of the connection", lambda: not is_connected(url, backend))
        storage.dataset(connection, "visits", lock=True)
    one_line(error)


def test_ledger_commands_and_errors_hide_the_password(postgresql, capfd):
    url = f"{new_database(postgresql)}&password=s3cret"
    declared(url)
    for flags in ([], ["--json"]):
        assert main(["ledger", url, *flags]) == 0
        out, err = capfd.readouterr()
        assert "s3cret" not in out + err and "***" in out
    with pytest.raises(LedgerError, match="must be declared first") as error:
        Ledger(url).account("flights")
    assert "s3cret" not in str(error.value)

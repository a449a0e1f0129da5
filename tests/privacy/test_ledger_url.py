"""Which URLs are a ledger's; and that none of them is ever printed with its password."""

from __future__ import annotations

import pathlib

import pytest

from beam_dp.cli.main import main
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import LedgerError
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss

TENTH = Guarantee(0.1, 0.0, "add_or_remove_one", "person", 3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    [
        "mysql://somebody:s3cret@host/db",
        "mysql://somebody@host/db?password=s3cret",
        "sqlite://",
        "sqlite:///:memory:",
        "sqlite://somebody:s3cret@host/db",
        "://x:s3cret@",
        "x:s3cret@host://db",
        "",
        "a\0b",
        "a\udcff.sqlite",
        "sqlite:///a\udcff.sqlite",
        "sqlite:///a\0b",
        "postgresql://somebody:s3cret@host:port/db",
        # Typing errors, which must not be taken for a path or a host and printed.
        "postgresql:/bob:s3cret@localhost/db",
        "postgresql//bob:s3cret@localhost/db",
        "Postgres:/localhost/db?password=s3cret",
        "bob:s3cret@host/db",
        "postgresql://bob:x@s3cret@localhost:1/db",
        "postgresql://bob/s3cret@localhost/db",
        "postgresql:///bob:s3cret@localhost/db",
        "postgresql://localhost/db&password=s3cret",
        "postgresql://localhost;password=s3cret/db",
        "postgresql://bob;password=s3cret@localhost/db",
        "postgresql ://bob:s3cret@localhost/db",
        "mysql://bob:x@s3cret@localhost/db",
        "sqlite://bob:x@s3cret@localhost/db",
    ],
)
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(LedgerError, match="must be a path of a sqlite file") as error:
        Ledger(url)
    text = str(error.value)
    assert "s3cret" not in text
    assert "\n" not in text and len(text) < 300


@pytest.mark.parametrize(
    "query",
    [
        "timeout=x",
        "uri=true",
        "uri=false&mode=ro",
        "mode=ro",
        "mode=memory&uri=true",
        "mode=rwc&uri=true",
        "mode=ro&mode=rwc&uri=true",
        "nolock=1&uri=true",
        "nolock=1&mode=rw&uri=true",
        "immutable=1&mode=ro&uri=true",
        "vfs=unix-none&mode=rw&uri=true",
        "cache=shared&mode=rw&uri=true",
    ],
)
def test_a_url_that_would_switch_off_locks_is_refused(tmp_path: pathlib.Path, query: str) -> None:
    with pytest.raises(LedgerError, match="with mode ro or rw and no other option"):
        Ledger(f"sqlite:///file:{tmp_path}/l.sqlite?{query}")


def test_a_file_may_be_opened_by_a_uri(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "l.sqlite"
    Ledger(str(path)).declare("visits", 1.0, 0.0, "person", "add_or_remove_one")
    Ledger(f"sqlite:///file:{path}?uri=true&mode=rw").spend(
        "visits", TENTH, Loss.pure(0.1), "laplace"
    )
    assert len(Ledger(f"sqlite:///file:{path}?mode=ro&uri=true").entries("visits")) == 1


PASSWORDS = [
    "postgresql://somebody:s3cret@/ledger?host={folder}",
    "postgresql://somebody@/ledger?host={folder}&password=s3cret",
    "postgresql://somebody@/ledger?host={folder}&pasword=s3cret",
    "postgresql://somebody@/ledger?host={folder}&sslpassword=s3cret",
    "postgresql://somebody@/ledger?host={folder}&p%61ssword=s3cret",
    "postgresql://somebody@/ledger?host={folder}&password=s3cret&password=s3cret",
    "postgresql://some%40body:s3cret@/ledger?host={folder}",
]


@pytest.mark.parametrize("url", PASSWORDS)
def test_an_unreachable_server_is_refused_without_its_password(
    tmp_path: pathlib.Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("psycopg")
    ledger = Ledger(url.format(folder=tmp_path))
    with pytest.raises(LedgerError, match=r"ledger: 'postgresql.psycopg://some") as error:
        ledger.spend("visits", TENTH, Loss.pure(0.1), "laplace")
    for text in (str(error.value), ledger.name):
        assert "s3cret" not in text and "***" in text
        assert "\n" not in text and len(text) < 600
    for flags in ([], ["--json"]):
        assert main(["ledger", url.format(folder=tmp_path), *flags]) == 2
        out, err = capfd.readouterr()
        assert out == "" and "s3cret" not in err and err.count("\n") == 1


def test_a_ledger_that_can_be_read_is_named_without_its_password(
    postgresql: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from databases import new_database

    url = f"{new_database(postgresql, 10_010)}&password=s3cret"
    Ledger(url).declare("visits", 1.0, 0.0, "person", "add_or_remove_one")
    for flags in ([], ["--json"]):
        assert main(["ledger", url, *flags]) == 0
        out, err = capfd.readouterr()
        assert "s3cret" not in out + err and "***" in out
    with pytest.raises(LedgerError, match="must be declared first") as error:
        Ledger(url).account("flights")
    assert "s3cret" not in str(error.value)


def test_a_driver_cannot_print_the_password(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    psycopg = pytest.importorskip("psycopg")

    def connect(*arguments: object, **named: object) -> None:
        raise psycopg.OperationalError(f"no such host: {arguments} {named}")

    monkeypatch.setattr("psycopg.connect", connect)
    monkeypatch.setattr("psycopg.Connection.connect", connect)
    ledger = Ledger(f"postgresql://somebody:s3cret@{tmp_path.name}/db?key=t0ken")
    with pytest.raises(LedgerError, match="must be a server that can be reached") as error:
        ledger.datasets()
    assert "s3cret" not in str(error.value) and "t0ken" not in str(error.value)

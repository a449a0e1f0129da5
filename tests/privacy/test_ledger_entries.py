"""Entries of the ledger: valid URLs, hidden passwords, who paid, and edges from a release."""

import json
import pathlib
import sqlite3

import pytest
import sqlalchemy as sa
from ledger_workers import declared, spend

import beam_dp as dp
from beam_dp.cli.main import main
from beam_dp.privacy.ledger.entries import LedgerError, Origin, system_user
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.ledger.storage import RELEASES, Storage
from beam_dp.privacy.loss import Loss
from beam_dp.releases.domain.earlier import check_edges_paid

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
def test_reports_unreachable_server_without_password(tmp_path, url, capfd):
    pytest.importorskip("psycopg")
    ledger = Ledger(url.format(folder=tmp_path))
    with pytest.raises(LedgerError, match=r"ledger: 'postgresql.psycopg://some") as error:
        spend(ledger)
    for text in (str(error.value), ledger.name):
        assert "s3cret" not in text and "***" in text
        assert "\n" not in text and len(text) < 600
    for flags in ([], ["--json"]):
        assert main(["ledger", url.format(folder=tmp_path), *flags]) == 2
        out, err = capfd.readouterr()
        assert out == "" and "s3cret" not in err and err.count("\n") == 1


def test_error_hides_password_printed_by_the_driver(tmp_path, monkeypatch):
    psycopg = pytest.importorskip("psycopg")

    def connect(*arguments: object, **named: object) -> None:
        raise psycopg.OperationalError(f"no such host: {arguments} {named}")

    monkeypatch.setattr("psycopg.connect", connect)
    monkeypatch.setattr("psycopg.Connection.connect", connect)
    ledger = Ledger(f"postgresql://somebody:s3cret@{tmp_path.name}/db?key=t0ken")
    with pytest.raises(LedgerError, match="must be a server that can be reached") as error:
        ledger.datasets()
    assert "s3cret" not in str(error.value) and "t0ken" not in str(error.value)


SAID = Origin("Zoë", 'the yearly "report"', "s3://bucket/out")


def test_entry_names_payer_purpose_and_output(ledger_url):
    parameters = {"scale": 30.0}
    spend(declared(ledger_url), parameters, SAID)
    (entry,) = Ledger(ledger_url).entries("visits")
    assert (entry.origin, entry.parameters) == (SAID, {"scale": 30.0})
    assert entry.to_json()["origin"] == SAID.to_json() and parameters == {"scale": 30.0}


def test_payer_defaults_to_system_user(ledger_url):
    spend(declared(ledger_url))
    (entry,) = Ledger(ledger_url).entries("visits")
    assert entry.origin == Origin(system_user(), None, None)


def test_reads_entries_without_origin(ledger_url):
    """As they were written: parameters alone, also such as have that name by chance."""
    ledger = declared(ledger_url)
    for _ in range(4):
        spend(ledger)
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
    spend(ledger, {}, SAID)
    assert ledger.entries("visits")[-1].origin == SAID
    assert ledger.total("visits") == pytest.approx(0.5)


def test_storing_an_origin_changes_neither_sql_tables_nor_schema_version(tmp_path):
    """Programs of earlier versions read and spend from the same ledger."""
    ledger = declared(str(tmp_path / "ledger"))
    with sqlite3.connect(tmp_path / "ledger") as connection:
        before = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    spend(ledger, {}, SAID)
    with sqlite3.connect(tmp_path / "ledger") as connection:
        after = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
        assert connection.execute("SELECT version FROM beam_dp_ledger").fetchall() == [(2,)]
    assert before == after


DRAW = "0f" * 16
ORIGIN = {"ledger_release": "visits/1", "draw_id": DRAW}
SEX = {"name": "sex", "type": "categorical", "values": ["F", "M"]}
AGE = {"name": "age", "type": "numeric", "edges": [0, 20, 90], "edges_from": ORIGIN}
DOMAIN = dp.parse_domain({"attributes": [SEX, AGE]})


def ledger_of(path: pathlib.Path, draw_id: str | None = DRAW) -> Ledger:
    """A ledger that paid for one release, and marked this draw of it."""
    ledger = Ledger(str(path))
    for name in ("visits", "others"):
        ledger.declare(name, 3.0, 1e-9, "record", "add_or_remove_one")
    guarantee = dp.Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
    token = ledger.spend("visits", guarantee, Loss.pure(1.0), "tree")
    if draw_id is not None:
        ledger.mark_released(token, draw_id)
    return ledger


def test_accepts_edges_paid_by_the_same_budget(tmp_path):
    check_edges_paid(DOMAIN, ledger_of(tmp_path / "l.sqlite"), "visits")


@pytest.mark.parametrize("dataset_id", ["", "visits"])
def test_public_edges_need_no_ledger(tmp_path, dataset_id):
    public = dp.parse_domain({"attributes": [SEX, {**AGE, "edges_from": None}]})
    check_edges_paid(public, None, dataset_id)
    check_edges_paid(public, Ledger(str(tmp_path / "absent.sqlite")), dataset_id)


@pytest.mark.parametrize(
    ("draw_id", "dataset_id", "name", "condition"),
    [
        (DRAW, "others", "dataset_id", "must be 'visits', the budget of the earlier release"),
        ("1f" * 16, "visits", "ledger", f"draw {DRAW}, not {'1f' * 16}"),
        (None, "visits", "ledger", r"must know which draw it paid for \(Ledger.mark_released\)"),
    ],
)
def test_rejects_edges_paid_by_another_budget(tmp_path, draw_id, dataset_id, name, condition):
    ledger = ledger_of(tmp_path / "l.sqlite", draw_id)
    with pytest.raises(dp.InputError, match=condition) as caught:
        check_edges_paid(DOMAIN, ledger, dataset_id)
    assert caught.value.name == name and "visits/1" in str(caught.value)


def test_rejects_released_edges_without_the_ledger_that_paid(tmp_path):
    with pytest.raises(dp.InputError, match="ledger is required, the ledger of the earlier"):
        check_edges_paid(DOMAIN, None, "")
    fresh = Ledger(str(tmp_path / "fresh.sqlite"))
    fresh.declare("visits", 3.0, 1e-9, "record", "add_or_remove_one")
    with pytest.raises(dp.InputError, match="must be the ledger of the earlier release: the edges"):
        check_edges_paid(DOMAIN, fresh, "visits")

"""What can be wrong with a ledger's database: every call is refused, in one line."""

import os
import pathlib
import pickle
import resource
import sqlite3
import stat

import pytest
from ledger_workers import AR, TENTH, declared, execute, one_line, spend

import beam_dp as dp
from beam_dp.privacy.ledger.entries import LedgerError, Token
from beam_dp.privacy.loss import Loss

WHOLE = dp.Guarantee(1.0, 0.0, AR, "person", 3)  # type: ignore[arg-type]


def refuses_everything(ledger: dp.Ledger, pattern: str) -> None:
    """Every call is refused in one line."""
    token = Token("visits", 1, "laplace", TENTH, Loss.pure(0.1))
    for call in (
        lambda: spend(ledger),
        lambda: ledger.mark_released(token),
        lambda: ledger.account("visits"),
        lambda: ledger.datasets(),
        lambda: ledger.declare("other", 1.0, 0.0, "person", AR),
    ):
        with pytest.raises(LedgerError, match=pattern) as error:
            call()
        one_line(error)


def test_declaring_on_a_full_disk_leaves_no_file(tmp_path):
    _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, most))
    try:
        with pytest.raises(LedgerError, match=r"^ledger: .* must be on a disk with room left$"):
            declared(str(tmp_path / "ledger"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    assert [*tmp_path.iterdir()] == []
    declared(str(tmp_path / "ledger"))


def test_pickle_has_the_url_unless_it_has_a_password(ledger_url):
    ledger = declared(ledger_url)
    spend(ledger)
    assert pickle.loads(pickle.dumps(ledger)).entries("visits") == ledger.entries("visits")
    with pytest.raises(LedgerError, match=r"bob:\*\*\*@.* must not contain a password"):
        pickle.dumps(dp.Ledger("postgresql://bob:secret@localhost/db"))


@pytest.mark.parametrize(("version", "age"), [(3, "a newer"), (1, "an unpublished")])
def test_rejects_ledger_with_another_schema_version(ledger_url, version, age):
    ledger = declared(ledger_url)
    spend(ledger)
    execute(ledger_url, f"UPDATE beam_dp_ledger SET version = {version}")
    refuses_everything(ledger, f"must have schema 2, not schema {version}: {age} beam_dp wrote it")


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
def test_rejects_damaged_rows(ledger_url, statement):
    ledger = declared(ledger_url)
    for _ in range(2):
        spend(ledger)
    execute(ledger_url, statement)
    with pytest.raises(LedgerError, match="must be undamaged"):
        spend(ledger)


def test_rejects_database_without_ledger(ledger_url):
    execute(ledger_url, "CREATE TABLE other (x INTEGER)")
    with pytest.raises(LedgerError, match="must contain a ledger"):
        spend(dp.Ledger(ledger_url))


@pytest.mark.parametrize(
    ("url", "condition"),
    [
        ("{folder}/l.sqlite", "must exist"),
        ("sqlite:///file:{folder}/l.sqlite?mode=ro&uri=true", "must be a file that can be opened"),
        ("sqlite:///file:{folder}/l.sqlite?mode=rw&uri=true", "must be a file that can be opened"),
    ],
)
def test_rejects_missing_file_without_creating_it(tmp_path, url, condition):
    ledger = dp.Ledger(url.format(folder=tmp_path))
    for call in (ledger.datasets, lambda: spend(ledger)):
        with pytest.raises(LedgerError, match=condition):
            call()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("damage", ["junk", "truncated", "overwritten"])
def test_rejects_damaged_file(tmp_path, damage):
    path = tmp_path / "l.sqlite"
    ledger = declared(str(path))
    for _ in range(5):
        spend(ledger, {"text": "x" * 5000})
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


def test_rejects_locked_file_after_waiting(tmp_path):
    path = tmp_path / "l.sqlite"
    declared(str(path))
    ledger = dp.Ledger(str(path), wait_seconds=0.2)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    refuses_everything(ledger, "must not be locked for more than 0.2 seconds")
    holder.execute("ROLLBACK")
    holder.close()
    assert ledger.entries("visits") == []


def test_read_only_file_can_be_read_but_not_spent_from(tmp_path):
    declared(f"{tmp_path}/l.sqlite")
    can_only_be_read(dp.Ledger(f"sqlite:///file:{tmp_path}/l.sqlite?mode=ro&uri=true"))


def can_only_be_read(ledger: dp.Ledger) -> None:
    with pytest.raises(LedgerError, match="must be on a disk that can be written"):
        spend(ledger)
    ledger.check("visits", TENTH, Loss.pure(0.1))
    assert ledger.entries("visits") == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes everything")
def test_rejects_file_without_write_permission(tmp_path):
    path = tmp_path / "l.sqlite"
    ledger = declared(str(path))
    path.chmod(stat.S_IRUSR)
    with pytest.raises(LedgerError, match="must be on a disk that can be written"):
        spend(ledger)


def spent_ledger(path: pathlib.Path) -> tuple[dp.Ledger, bytes]:
    """All of a budget is spent; returns the file's bytes as well."""
    ledger = declared(str(path))
    ledger.spend("visits", WHOLE, Loss.pure(1.0), "laplace")
    return ledger, path.read_bytes()


def test_rejects_damaged_index(tmp_path):
    """The rows are whole: only the index says that there are none."""
    path = tmp_path / "l.sqlite"
    ledger, content = spent_ledger(path)
    with sqlite3.connect(path) as connection:
        find = "SELECT rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = ?"
        ((root,),) = connection.execute(find, ("beam_dp_releases",)).fetchall()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    place = content.index(b"visits", (root - 1) * size, root * size)
    damaged = bytearray(content)
    damaged[place] ^= 1
    path.write_bytes(damaged)
    refuses_everything(ledger, "must be undamaged; a backup lacks later releases")


def test_flipped_bit_in_the_schema_gives_a_one_line_error(tmp_path):
    path = tmp_path / "l.sqlite"
    ledger, content = spent_ledger(path)
    first = content.index(b"CREATE TABLE")
    for place in range(first - 60, content.index(b"\0", first + 2000), 7):
        damaged = bytearray(content)
        damaged[place] ^= 128
        path.write_bytes(damaged)
        with pytest.raises(LedgerError) as error:
            ledger.spend("visits", WHOLE, Loss.pure(1.0), "laplace")
        one_line(error)


@pytest.mark.parametrize("url", ["file:l.sqlite", "sqlite:///file:l.sqlite"])
def test_reads_path_that_begins_like_a_uri_as_a_path(tmp_path, monkeypatch, url):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(LedgerError, match="must exist"):
        dp.Ledger(url).datasets()
    assert list(tmp_path.iterdir()) == []
    declared(url)
    assert [path.name for path in tmp_path.iterdir()] == ["file:l.sqlite"]


def test_sqlite_connection_commits_synchronously_and_checks_foreign_keys(tmp_path):
    ledger = declared(str(tmp_path / "l.sqlite"))
    with ledger._storage.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3  # EXTRA
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1

"""Where the ledger's rows live: a sqlite file, or a PostgreSQL database for teams.

Rows are only ever inserted. Each release of a dataset id has the next number, and the pair is the
primary key: even if two writers slipped past the lock, they could not both insert the same number.

A write transaction locks first: sqlite's whole file (``BEGIN IMMEDIATE``), or in PostgreSQL the row
of the dataset id (``SELECT ... FOR UPDATE``). Commits are durable before they return.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.pool import NullPool

from beam_dp.errors import InputError

SCHEMA_VERSION = 1
CONNECT_SECONDS = 10

_CONDITIONS = {
    "BUSY": "must not be locked for more than {seconds:g} seconds: another program holds it",
    "LOCKED": "must not be locked for more than {seconds:g} seconds: another program holds it",
    "READONLY": "must be on a disk that can be written",
    "PERM": "must be one that you may read and write",
    "CANTOPEN": "must be a file that can be opened, in a directory that can be written",
    "NOTADB": "must be a sqlite file: it is damaged, or is something else",
    "CORRUPT": "must be undamaged: restore it from a backup",
    "FULL": "must be on a disk with room left",
    "IOERR": "must be on a disk that works",
}
_POSTGRESQL_STATES = {"55P03": "BUSY", "25006": "READONLY", "42501": "PERM", "53100": "FULL"}

_metadata = sa.MetaData()
VERSION = sa.Table("beam_dp_ledger", _metadata, sa.Column("version", sa.Integer, nullable=False))
DATASETS = sa.Table(
    "beam_dp_datasets",
    _metadata,
    sa.Column("dataset_id", sa.String(200), primary_key=True),
    sa.Column("epsilon", sa.Double, nullable=False),
    sa.Column("delta", sa.Double, nullable=False),
    sa.Column("privacy_unit", sa.Text, nullable=False),
    sa.Column("neighboring", sa.String(40), nullable=False),
    sa.Column("composition", sa.String(40), nullable=False),
    sa.Column("declared_at", sa.String(40), nullable=False),
)
RELEASES = sa.Table(
    "beam_dp_releases",
    _metadata,
    sa.Column("dataset_id", sa.ForeignKey(DATASETS.c.dataset_id), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("mechanism", sa.Text, nullable=False),
    sa.Column("guarantee", sa.Text, nullable=False),  # JSON, as are the next two
    sa.Column("loss", sa.Text, nullable=False),
    sa.Column("parameters", sa.Text, nullable=False),
    sa.Column("spent_at", sa.String(40), nullable=False),
)
COMPLETIONS = sa.Table(
    "beam_dp_completions",
    _metadata,
    sa.Column("dataset_id", sa.String(200), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("draw_id", sa.String(40), nullable=True),
    sa.Column("released_at", sa.String(40), nullable=False),
    sa.ForeignKeyConstraint(["dataset_id", "number"], [RELEASES.c.dataset_id, RELEASES.c.number]),
)
# Any fixed number: whoever creates the tables in PostgreSQL holds this lock.
_CREATION_LOCK = 0x6265616D6470


class LedgerError(InputError):
    """The ledger refused, or can't be used: whatever was to follow must not happen.

    Nothing was spent, unless a server's connection broke just when it said so.
    """


class Storage:
    """Transactions on one database.

    Args:
        url: a path of a sqlite file, or ``sqlite:///PATH`` or ``postgresql://...``.
        wait_seconds: how long to wait for a lock, > 0.

    Raises:
        LedgerError: if the URL is none of these, or the driver is not installed.
    """

    def __init__(self, url: str, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        self._url = _parse(url)
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self.name = self._url.render_as_string(hide_password=True)
        try:
            self._engine = self._make_engine()
        except ImportError:
            condition = "must have its driver: pip install 'beam_dp[postgresql]'"
            raise LedgerError("ledger", self.name, condition) from None

    def _make_engine(self) -> sa.Engine:
        if not self.is_sqlite:
            return sa.create_engine(
                self._url,
                poolclass=NullPool,
                isolation_level="READ COMMITTED",
                connect_args={"connect_timeout": CONNECT_SECONDS},
            )
        engine = sa.create_engine(
            self._url, poolclass=NullPool, connect_args={"timeout": self.wait_seconds}
        )

        @event.listens_for(engine, "connect")
        def _on_connect(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # transactions begin where we say so
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = EXTRA")

        @event.listens_for(engine, "begin")
        def _on_begin(connection: sa.Connection) -> None:
            writes = connection.get_execution_options().get("writes", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that changes nothing, on a ledger that exists."""
        with self._transaction(writes=False) as connection:
            self._check_schema(connection)
            yield connection

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[sa.Connection]:
        """A transaction that holds the lock, or nearly: see ``lock``. It commits at its end."""
        with self._transaction(writes=True, create=create) as connection:
            if create:
                if not self.is_sqlite:
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
                if not sa.inspect(connection).has_table(VERSION.name):
                    _metadata.create_all(connection)
                    connection.execute(VERSION.insert().values(version=SCHEMA_VERSION))
            self._check_schema(connection)
            yield connection

    def lock(self, connection: sa.Connection, dataset_id: str) -> sa.Row[Any] | None:
        """Returns the row of a dataset id, locked until the transaction ends."""
        query = sa.select(DATASETS).where(DATASETS.c.dataset_id == dataset_id)
        return connection.execute(query.with_for_update()).one_or_none()

    @contextmanager
    def _transaction(self, *, writes: bool, create: bool = False) -> Iterator[sa.Connection]:
        if self.is_sqlite and not create:
            self._check_file()
        try:
            with (
                self._engine.connect().execution_options(writes=writes) as connection,
                connection.begin(),
            ):
                if not self.is_sqlite:
                    wait = f"{max(1, round(self.wait_seconds * 1000))}ms"
                    for setting, value in (("lock_timeout", wait), ("synchronous_commit", "on")):
                        connection.execute(sa.select(sa.func.set_config(setting, value, True)))
                yield connection
        except exc.SQLAlchemyError as error:
            raise LedgerError("ledger", self.name, self._condition(error)) from None

    def _check_file(self) -> None:
        """Refuses a file that is not there, which sqlite would create."""
        path = self._url.database or ""
        if not path.startswith("file:") and not os.path.exists(path):
            raise LedgerError(
                "ledger", self.name, "must exist; `beam-dp ledger URL --declare` makes one"
            )

    def _check_schema(self, connection: sa.Connection) -> None:
        if not sa.inspect(connection).has_table(VERSION.name):
            condition = "must hold a ledger; `beam-dp ledger URL --declare` makes one"
            raise LedgerError("ledger", self.name, condition)
        versions = connection.execute(sa.select(VERSION.c.version)).scalars().all()
        if versions != [SCHEMA_VERSION]:
            if len(versions) == 1 and isinstance(versions[0], int) and versions[0] > SCHEMA_VERSION:
                condition = (
                    f"must be of schema {SCHEMA_VERSION}, and is of {versions[0]}:"
                    " a newer beam_dp wrote it"
                )
            else:
                condition = "must be undamaged: its schema version is unreadable"
            raise LedgerError("ledger", self.name, condition)
        if self.is_sqlite:
            (verdict,) = connection.exec_driver_sql("PRAGMA quick_check(1)").first() or ("none",)
            if verdict != "ok":
                raise LedgerError("ledger", self.name, _CONDITIONS["CORRUPT"])

    def _condition(self, error: exc.SQLAlchemyError) -> str:
        cause = getattr(error, "orig", None) or error
        if isinstance(cause, sqlite3.Error):
            full_name = str(getattr(cause, "sqlite_errorname", None) or "")
            name = full_name.removeprefix("SQLITE_").partition("_")[0]
            if name in _CONDITIONS:
                return _CONDITIONS[name].format(seconds=self.wait_seconds)
        state = str(getattr(cause, "sqlstate", None) or "")
        if state in _POSTGRESQL_STATES:
            return _CONDITIONS[_POSTGRESQL_STATES[state]].format(seconds=self.wait_seconds)
        text = " ".join(str(cause).split())[:200]
        if isinstance(error, exc.OperationalError) and not self.is_sqlite:
            return f"must be a server that can be reached: {text}"
        return f"must be a ledger that can be used: {type(cause).__name__}: {text}"


def _parse(text: str) -> sa.URL:
    condition = "must be a path of a sqlite file, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
    try:
        url = sa.make_url(text) if "://" in text else sa.URL.create("sqlite", database=text)
    except (exc.ArgumentError, ValueError):  # no URL, or a port that is no number
        # The text may hold a password.
        raise LedgerError("ledger", text.partition("://")[0], condition) from None
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return url.set(drivername="postgresql+psycopg")
    is_file = url.drivername in ("sqlite", "sqlite+pysqlite") and url.database not in (
        None,
        "",
        ":memory:",
    )
    if is_file and (not url.query or "uri" in url.query):
        return url
    raise LedgerError("ledger", url.render_as_string(hide_password=True), condition)

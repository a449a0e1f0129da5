"""Database tables of the ledger, in sqlite or PostgreSQL.

``ledger.py`` inserts rows; rows are never changed or deleted. Releases of a dataset id are numbered
1, 2, ..., and (dataset id, number) is the primary key: even if the lock failed and two writers used
one number, only one writer could insert it.

A write transaction first locks the whole file in sqlite (``BEGIN IMMEDIATE``), or the row of the
dataset id in PostgreSQL (``SELECT ... FOR UPDATE``). A commit is durable before it returns.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.pool import NullPool

from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import (
    Dataset,
    Entry,
    LedgerError,
    Origin,
    Token,
)
from beam_dp.privacy.ledger.urls import holds_secrets, parse_url, shown_url, without_secrets
from beam_dp.privacy.loss import Loss

SCHEMA_VERSION = 2
_NEW_BYTES = 2**18  # more than a new ledger takes
CONNECT_SECONDS = 10
# Seconds added to the wait for a lock: the timeout of a PostgreSQL statement or idle transaction.
STATEMENT_SECONDS = 60
_CLIENT = {
    # These options close the connection to a server that has disappeared. The first value is in
    # milliseconds, the next two are in seconds.
    "tcp_user_timeout": 30_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    # Without this option, the driver returns bytes if the database has no encoding (SQL_ASCII).
    "client_encoding": "utf8",
}
# Advice for a damaged ledger: a backup lacks the rows of later releases.
FROM_BACKUP = "a backup lacks later releases: restore it, and pay for those releases again"

_CONDITIONS = {
    "BUSY": "must not be locked for more than {seconds:g} seconds: another program has locked it",
    "LOCKED": "must not be locked for more than {seconds:g} seconds: another program has locked it",
    "READONLY": "must be on a disk that can be written",
    "PERM": "must be one that you may read and write",
    "CANTOPEN": "must be a file that can be opened, in a directory that can be written",
    "NOTADB": "must be a sqlite file: this file is damaged or not a database",
    "CORRUPT": f"must be undamaged; {FROM_BACKUP}",
    "FULL": "must be on a disk with room left",
    "IOERR": "must be on a disk that works",
    "SLOW": "must be a server that answers within {statement_seconds:g} seconds",
}
_POSTGRESQL_STATES = {
    "55P03": "BUSY",
    "25006": "READONLY",
    "42501": "PERM",
    "53100": "FULL",
    "57014": "SLOW",
    "25P03": "SLOW",
}

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
    sa.Column("guarantee", sa.Text, nullable=False),  # JSON, like the next two columns
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
USED_STATES = sa.Table(
    "beam_dp_used_states",
    _metadata,
    sa.Column("dataset_id", sa.String(200), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("state_number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("used_at", sa.String(40), nullable=False),
    sa.ForeignKeyConstraint(["dataset_id", "number"], [RELEASES.c.dataset_id, RELEASES.c.number]),
)
# The state number of the row that says when a job was submitted. Saved states have numbers from 1.
SUBMITTED = 0
# An arbitrary fixed number that identifies the advisory lock for creating tables in PostgreSQL.
_CREATION_LOCK = 0x6265616D6470


class Storage:
    """Transactions on one database, which wait ``wait_seconds`` for a lock."""

    def __init__(self, url: str, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        self._arguments = url, wait_seconds
        self._url = parse_url(url)
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self.name = shown_url(self._url)
        try:
            self._engine = self._make_engine()
        except ImportError:
            condition = "must have its driver: pip install 'beam_dp[postgresql]'"
            raise LedgerError("ledger", self.name, condition) from None

    def __reduce__(self) -> tuple[type[Storage], tuple[str, float]]:
        """Pickles the URL; refuses a password, which everyone who sees a job's graph could read."""
        if holds_secrets(self._arguments[0]):
            condition = "must not contain a password to be pickled; use PGPASSWORD"
            raise LedgerError("ledger", self.name, condition)
        return Storage, self._arguments

    def _make_engine(self) -> sa.Engine:
        if not self.is_sqlite:
            given = {"connect_timeout": CONNECT_SECONDS, **_CLIENT}
            return sa.create_engine(
                self._url,
                poolclass=NullPool,
                isolation_level="READ COMMITTED",
                connect_args={name: given[name] for name in given.keys() - self._url.query.keys()},
            )
        engine = sa.create_engine(
            self._url, poolclass=NullPool, connect_args={"timeout": self.wait_seconds}
        )

        @event.listens_for(engine, "connect")
        def _on_connect(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # no implicit transactions
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA synchronous = EXTRA")

        @event.listens_for(engine, "begin")
        def _on_begin(connection: sa.Connection) -> None:
            writes = connection.get_execution_options().get("writes", False)
            connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

        return engine

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A read-only transaction on an existing ledger."""
        with self._transaction(writes=False) as connection:
            self._check_schema(connection)
            yield connection

    @contextmanager
    def writing(self, *, create: bool = False) -> Iterator[sa.Connection]:
        """A write transaction, committed at its end. In PostgreSQL, lock the dataset first."""
        with self._transaction(writes=True, create=create) as connection:
            if create:
                if not self.is_sqlite:  # sqlite has already locked its file
                    connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_CREATION_LOCK)))
                if not sa.inspect(connection).has_table(VERSION.name):
                    _metadata.create_all(connection)
                    connection.execute(VERSION.insert().values(version=SCHEMA_VERSION))
            self._check_schema(connection)
            yield connection

    def dataset(
        self, connection: sa.Connection, dataset_id: str, *, lock: bool = False
    ) -> sa.Row[Any] | None:
        """Returns the row of a dataset id; with ``lock``, locks it until the transaction ends."""
        query = sa.select(DATASETS).where(DATASETS.c.dataset_id == dataset_id)
        return connection.execute(query.with_for_update() if lock else query).one_or_none()

    @contextmanager
    def _transaction(self, *, writes: bool, create: bool = False) -> Iterator[sa.Connection]:
        if self.is_sqlite:
            self._check_file(create)
        try:
            with (
                self._engine.connect().execution_options(writes=writes) as connection,
                connection.begin(),
            ):
                for setting, value in self._settings():
                    connection.execute(sa.select(sa.func.set_config(setting, value, True)))
                yield connection
        except UnicodeDecodeError:
            raise LedgerError("ledger", self.name, _CONDITIONS["CORRUPT"]) from None
        except UnicodeEncodeError:
            condition = "must be given text that UTF-8 can encode: a string has a lone surrogate"
            raise LedgerError("ledger", self.name, condition) from None
        except exc.SQLAlchemyError as error:
            raise LedgerError("ledger", self.name, self._condition(error)) from None

    @property
    def _statement_seconds(self) -> float:
        # This timeout exceeds the wait for a lock, so that a slow server and a lock have different
        # errors.
        return self.wait_seconds + STATEMENT_SECONDS

    def _settings(self) -> list[tuple[str, str]]:
        """Returns the settings of a PostgreSQL transaction; sqlite needs no settings."""
        if self.is_sqlite:
            return []
        wait, patience = (
            f"{min(max(1, round(seconds * 1000)), 2**31 - 1)}ms"
            for seconds in (self.wait_seconds, self._statement_seconds)
        )
        return [
            ("lock_timeout", wait),
            ("statement_timeout", patience),
            # A program that freezes while it owns the lock must not block all other programs.
            ("idle_in_transaction_session_timeout", patience),
            ("synchronous_commit", "on"),
        ]

    def _check_file(self, create: bool) -> None:
        """Refuses a missing file, which sqlite would create unless the URL has a mode.

        With ``create``, only refuses a full disk, on which sqlite would leave an empty file.
        """
        path = self._url.database or ""
        if self._url.query or os.path.exists(path):
            return
        if not create:
            condition = "must exist; `beam-dp ledger URL --declare` makes one"
            raise LedgerError("ledger", self.name, condition)
        try:
            with tempfile.TemporaryFile(dir=os.path.dirname(path) or ".") as file:
                file.write(bytes(_NEW_BYTES))
        except OSError as error:
            if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
                raise LedgerError("ledger", self.name, _CONDITIONS["FULL"]) from None

    def _check_schema(self, connection: sa.Connection) -> None:
        if not sa.inspect(connection).has_table(VERSION.name):
            condition = "must contain a ledger; `beam-dp ledger URL --declare` makes one"
            raise LedgerError("ledger", self.name, condition)
        versions = list(connection.execute(sa.select(VERSION.c.version)).scalars().all())
        if versions != [SCHEMA_VERSION]:
            condition = "must be undamaged: its schema version is unreadable"
            if len(versions) == 1 and isinstance(versions[0], int) and versions[0] >= 1:
                age = "a newer" if versions[0] > SCHEMA_VERSION else "an unpublished"
                reason = f"not schema {versions[0]}: {age} beam_dp wrote it"
                condition = f"must have schema {SCHEMA_VERSION}, {reason}"
            raise LedgerError("ledger", self.name, condition)
        if self.is_sqlite:
            # quick_check is not enough: it does not compare indexes with tables, and queries read
            # indexes.
            (verdict,) = connection.exec_driver_sql("PRAGMA integrity_check(1)").first() or ("",)
            if verdict != "ok":
                raise LedgerError("ledger", self.name, _CONDITIONS["CORRUPT"])

    def _condition(self, error: exc.SQLAlchemyError) -> str:
        cause = getattr(error, "orig", None) or error
        if isinstance(cause, sqlite3.Error):
            full_name = str(getattr(cause, "sqlite_errorname", None) or "")
            name = full_name.removeprefix("SQLITE_").partition("_")[0]
            if name in _CONDITIONS:
                return self._in_words(name)
        state = str(getattr(cause, "sqlstate", None) or "")
        if state in _POSTGRESQL_STATES:
            return self._in_words(_POSTGRESQL_STATES[state])
        text = " ".join(without_secrets(str(cause), self._url).split())[:200]
        if isinstance(error, exc.OperationalError) and not self.is_sqlite:
            return f"must be a server that can be reached: {text}"
        return f"must be a ledger that can be used: {type(cause).__name__}: {text}"

    def _in_words(self, name: str) -> str:
        return _CONDITIONS[name].format(
            seconds=self.wait_seconds, statement_seconds=self._statement_seconds
        )


# The key of the origin among a row's parameters. A table column would need a new schema version.
ORIGIN = "origin"


class Rows:
    """Reads entries from rows, within the caller's transaction."""

    def __init__(self, name: str) -> None:
        self._name = name

    def tokens(self, connection: sa.Connection, dataset_id: str) -> list[Token]:
        """Returns the tokens of all releases, in order. Does not read the parameters."""
        query = sa.select(
            RELEASES.c.number, RELEASES.c.mechanism, RELEASES.c.guarantee, RELEASES.c.loss
        )
        query = query.where(RELEASES.c.dataset_id == dataset_id).order_by(RELEASES.c.number)
        rows = connection.execute(query).all()
        self.refuse_gaps(dataset_id, [row.number for row in rows])
        # The releases of a dataset usually have only a few different guarantees.
        guarantees: dict[str, Guarantee] = {}
        tokens = []
        for row in rows:
            try:
                if row.guarantee not in guarantees:
                    guarantees[row.guarantee] = Guarantee.from_json(json.loads(row.guarantee))
                loss = Loss.from_json(json.loads(row.loss))
                guarantee = guarantees[row.guarantee]
                tokens.append(Token(dataset_id, row.number, row.mechanism, guarantee, loss))
            except (TypeError, ValueError, RecursionError):
                self.refuse_damage(f"release {dataset_id}/{row.number} is unreadable")
        return tokens

    def entries(self, connection: sa.Connection, condition: sa.ColumnElement[bool]) -> list[Entry]:
        """Returns the entries that match a condition, in order."""
        completed, submitted = (
            sa.and_(
                RELEASES.c.dataset_id == table.c.dataset_id, RELEASES.c.number == table.c.number
            )
            for table in (COMPLETIONS, USED_STATES)
        )
        submitted = sa.and_(submitted, USED_STATES.c.state_number == SUBMITTED)
        joined = RELEASES.outerjoin(COMPLETIONS, completed).outerjoin(USED_STATES, submitted)
        query = sa.select(
            RELEASES, COMPLETIONS.c.draw_id, COMPLETIONS.c.released_at, USED_STATES.c.used_at
        )
        query = query.select_from(joined).where(condition).order_by(RELEASES.c.number)
        return [self._entry(row) for row in connection.execute(query).all()]

    def entry_with(
        self, connection: sa.Connection, dataset_id: str, key: str, value: str
    ) -> Entry | None:
        """Returns the entry with the parameter ``key`` equal to ``value``, or None."""
        # Parameters may be long: fetch only rows whose parameters contain the encoded pair.
        written = json.dumps({key: value}, ensure_ascii=False)[1:-1]
        holds = RELEASES.c.parameters.contains(written, autoescape=True)
        for entry in self.entries(connection, sa.and_(RELEASES.c.dataset_id == dataset_id, holds)):
            if not isinstance(entry.parameters, dict):
                self.refuse_damage(f"release {entry.release_id} is unreadable")
            if entry.parameters.get(key) == value:
                return entry
        return None

    def refuse_gaps(self, dataset_id: str, numbers: list[int]) -> None:
        """Raises LedgerError if the numbers of the releases have a gap."""
        if numbers != list(range(1, len(numbers) + 1)):
            self.refuse_damage(f"a release of {dataset_id!r} is missing")

    def _entry(self, row: sa.Row[Any]) -> Entry:
        try:
            parameters = json.loads(row.parameters)
            origin = None
            if isinstance(parameters, dict):
                origin = Origin.from_json(parameters.get(ORIGIN))
            if origin is not None:
                del parameters[ORIGIN]
            return Entry(
                dataset_id=row.dataset_id,
                number=row.number,
                mechanism=row.mechanism,
                guarantee=Guarantee.from_json(json.loads(row.guarantee)),
                loss=Loss.from_json(json.loads(row.loss)),
                parameters=parameters,
                spent_at=row.spent_at,
                released_at=row.released_at,
                draw_id=row.draw_id,
                origin=origin,
                submitted_at=row.used_at,
            )
        except (TypeError, ValueError, RecursionError):
            self.refuse_damage(f"release {row.dataset_id}/{row.number} is unreadable")

    def dataset(self, row: sa.Row[Any]) -> Dataset:
        """Returns the declared budget in a row."""
        fields = [field.name for field in dataclasses.fields(Dataset)]
        try:
            return Dataset(**{name: getattr(row, name) for name in fields})
        except (TypeError, ValueError):
            self.refuse_damage("a declared budget is unreadable")

    def refuse_damage(self, what: str) -> NoReturn:
        """Raises a LedgerError that says how to recover from damage."""
        raise LedgerError("ledger", self._name, f"must be undamaged: {what}; {FROM_BACKUP}")

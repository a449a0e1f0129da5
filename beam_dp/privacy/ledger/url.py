"""Ledger URLs: which are valid, and how they are shown without a password."""

from __future__ import annotations

import re
from typing import NoReturn

import sqlalchemy as sa
from sqlalchemy import exc

from beam_dp.errors import InputError

_CONDITION = "must be a path of a sqlite file, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
# Other options of a file's URL switch off its locks, or keep it in memory.
_OPTIONS_CONDITION = (
    "must be a path of a sqlite file, sqlite:///PATH or sqlite:///file:PATH?mode=ro&uri=true, with"
    " mode ro or rw and no other option"
)
_OPTIONS = ("uri", "mode")
_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
# The options whose values are shown: any other one may be a password, also a misspelt one.
_PUBLIC = (
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "sslmode",
    "connect_timeout",
    "uri",
    "mode",
)
_HIDDEN = "***"
# Where a server's name, database or user holds one of these, a password was not where it belongs.
_MISPLACED = re.compile(r"[@=&;?\s]")


class LedgerError(InputError):
    """The ledger refused, or can't be used: whatever was to follow must not happen.

    Nothing was spent, unless a server's connection broke just when it said so.
    """


def parse_url(text: str) -> sa.URL:
    """Returns the URL of a ledger, whose driver is sqlite's or psycopg.

    Raises:
        LedgerError: if it names no ledger, or one that could not be locked; without the password.
    """
    try:
        text.encode()
    except UnicodeEncodeError:  # bytes of the command line that are no text
        _refuse_unseen(text)
    if "://" not in text:
        looks_like_server = text.lower().startswith("postgres") or re.search(":.*@", text, re.S)
        if looks_like_server or not text or "\0" in text:
            _refuse_unseen(text)
        return sa.URL.create("sqlite", database=text)
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):  # no URL, or a port that is no number
        _refuse_unseen(text)
    parts = [url.host, url.username]
    if url.drivername not in _SQLITE:
        # Some providers have users such as name@server, which a URL must write name%40server.
        parts = [url.host, url.database, (url.username or "").replace("@", "")]
    if any(_MISPLACED.search(part or "") for part in parts) or "\0" in text:
        _refuse_unseen(text)
    if url.drivername in _POSTGRESQL:
        return url.set(drivername="postgresql+psycopg")
    is_file = url.drivername in _SQLITE and url.database not in (None, "", ":memory:")
    if not is_file or url.host or url.username or url.password or url.port:
        raise LedgerError("ledger", shown_url(url), _CONDITION)
    is_uri = url.query.get("uri") == "true" and url.query.get("mode") in ("ro", "rw")
    if url.query and not (is_uri and set(url.query) == set(_OPTIONS)):
        raise LedgerError("ledger", shown_url(url), _OPTIONS_CONDITION)
    return url


def _refuse_unseen(text: str) -> NoReturn:
    """Refuses a text that may hold a password where none can be told apart."""
    scheme = re.match(r"(?:postgres(?:ql)?|mysql|sqlite)(?:\+\w+)?://", text)
    raise LedgerError("ledger", f"{scheme[0] if scheme else ''}{_HIDDEN}", _CONDITION)


def shown_url(url: sa.URL) -> str:
    """Returns a URL without its secrets.

    Example:
        >>> shown_url(sa.make_url("postgresql://bob:a@localhost/db?password=b&port=1"))
        'postgresql://bob:***@localhost/db?password=***&port=1'
    """
    query = {key: value if key in _PUBLIC else _HIDDEN for key, value in url.query.items()}
    text = url.set(query=query).render_as_string(hide_password=True)
    return text.replace("%2A%2A%2A", _HIDDEN)


def holds_secrets(text: str) -> bool:
    """Returns whether a URL holds a password, or an option that may be one.

    Raises:
        LedgerError: if it names no ledger.

    Example:
        >>> holds_secrets("postgresql://bob:a@localhost/db"), holds_secrets("budgets.sqlite")
        (True, False)
    """
    return _HIDDEN in shown_url(parse_url(text))


def without_secrets(text: str, url: sa.URL) -> str:
    """Returns a text, such as a driver's message, without the secrets of a URL."""
    secrets = [value for key, value in url.query.items() if key not in _PUBLIC]
    for secret in (url.password, *secrets):
        for each in (secret,) if isinstance(secret, str) else secret or ():
            text = text.replace(each, _HIDDEN) if each else text
    return text

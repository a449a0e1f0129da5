"""URLs of ledgers: which are accepted, and what is shown of them."""

from __future__ import annotations

import re
from typing import NoReturn

import sqlalchemy as sa
from sqlalchemy import exc

from beam_dp.privacy.ledger.entries import LedgerError
from beam_dp.storage.store import local_path

_CONDITION = "must be a path of a sqlite file, sqlite:///PATH or postgresql://USER@HOST/DATABASE"
# Any other option in a sqlite URL may switch off the file's locks, or keep the data in memory.
_OPTIONS_CONDITION = (
    "must be a path of a sqlite file, sqlite:///PATH or sqlite:///file:PATH?mode=ro&uri=true, with"
    " mode ro or rw and no other option"
)
_OPTIONS = ("uri", "mode")
_SQLITE = ("sqlite", "sqlite+pysqlite")
_POSTGRESQL = ("postgresql", "postgres", "postgresql+psycopg")
# The options whose values are shown. Any other option, even a misspelt one, may be a password.
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
# A host, database or user name with one of these characters contains a misplaced password.
_MISPLACED = re.compile(r"[@=&;?\s]")


def parse_url(text: str) -> sa.URL:
    """Returns the parsed URL of a ledger, with the driver of sqlite or psycopg."""
    try:
        text.encode()
    except UnicodeEncodeError:  # the command line contained undecodable bytes
        _refuse_unseen(text)
    if "://" not in text:
        looks_like_server = text.lower().startswith("postgres") or re.search(":.*@", text, re.S)
        if looks_like_server or not text or "\0" in text:
            _refuse_unseen(text)
        return sa.URL.create("sqlite", database=str(local_path(text, "ledger")))
    try:
        url = sa.make_url(text)
    except (exc.ArgumentError, ValueError):  # the text is not a URL, or the port is not a number
        _refuse_unseen(text)
    parts = [url.host, url.username]
    if url.drivername not in _SQLITE:
        # Some providers have user names such as name@server, written name%40server in a URL.
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
    """Refuses an unparsable URL without showing it, because it may contain a password."""
    scheme = re.match(r"(?:postgres(?:ql)?|mysql|sqlite)(?:\+\w+)?://", text)
    raise LedgerError("ledger", f"{scheme[0] if scheme else ''}{_HIDDEN}", _CONDITION)


def shown_url(url: sa.URL) -> str:
    """Returns a URL without its secrets."""
    query = {key: value if key in _PUBLIC else _HIDDEN for key, value in url.query.items()}
    text = url.set(query=query).render_as_string(hide_password=True)
    return text.replace("%2A%2A%2A", _HIDDEN)


def holds_secrets(text: str) -> bool:
    """Returns whether a URL contains a password, or an option that may be a password."""
    return _HIDDEN in shown_url(parse_url(text))


def without_secrets(text: str, url: sa.URL) -> str:
    """Returns a string, such as a driver's message, without the secrets of a URL."""
    secrets = [value for key, value in url.query.items() if key not in _PUBLIC]
    for secret in (url.password, *secrets):
        for part in (secret,) if isinstance(secret, str) else secret or ():
            text = text.replace(part, _HIDDEN) if part else text
    return text

"""Databases for the ledger's tests: sqlite files, and a private PostgreSQL server."""

import contextlib
import glob
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator

import pytest
from patience import HANG_SECONDS

BACKENDS = ("sqlite", "postgresql")
_NUMBERS = itertools.count()


def server_program(name: str) -> str | None:
    """Where a program of the PostgreSQL server is; Debian keeps them off the path."""
    found = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return found[-1] if found else shutil.which(name)


@contextlib.contextmanager
def postgresql_server() -> Iterator[str]:
    """A server of one's own in a temporary folder, reached by its socket there; yields the folder.

    The server refuses to run as root: then it runs as an account without rights.
    """
    if not all(map(server_program, ("initdb", "pg_ctl", "postgres"))):
        pytest.skip("the PostgreSQL server (package postgresql) is not installed")
    pytest.importorskip("psycopg")
    account = None
    if os.geteuid() == 0:
        known = {entry.pw_name for entry in pwd.getpwall()}
        account = next((name for name in ("postgres", "nobody") if name in known), None)
        if account is None:
            pytest.skip("the PostgreSQL server can't run as root, and there is no account for it")
    folder = tempfile.mkdtemp(prefix="ledger-")  # a socket's path must be short
    try:
        if account is not None:
            os.chown(folder, pwd.getpwnam(account).pw_uid, -1)

        def run(name: str, *arguments: str) -> None:
            subprocess.run(
                [str(server_program(name)), *arguments],
                user=account,
                cwd=folder,
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=HANG_SECONDS,
            )

        data = f"{folder}/data"
        run("initdb", "-D", data, "-U", "tester", "-A", "trust", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c fsync=off"
        run("pg_ctl", "-D", data, "-l", f"{folder}/log", "-w", "-o", options, "start")
        try:
            yield folder
        finally:
            run("pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def new_database(folder: str, options: str = "") -> str:
    """The URL of a new, empty database, made with options of SQL's CREATE DATABASE."""
    import psycopg

    name = f"ledger{next(_NUMBERS)}"
    with psycopg.connect(f"host={folder} user=tester dbname=postgres", autocommit=True) as server:
        server.execute(f"CREATE DATABASE {name} {options}")
    return f"postgresql://tester@/{name}?host={folder}"

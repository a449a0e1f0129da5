"""The list of files read for a horizon, so that a restarted job counts the same files."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import sqlite3
from collections.abc import Iterable, Iterator

from beam_dp.errors import InputError
from beam_dp.storage.store import is_url, local_path
from beam_dp.transforms.reading.read import FoundFile

PRIVATE_FOLDER = "private_folder"
_FILE = "files.sqlite"
_PATIENCE = 600.0  # seconds to wait for the transaction of another job
_TABLES = (
    "CREATE TABLE IF NOT EXISTS horizon (id TEXT NOT NULL, settled REAL NOT NULL)",
    "CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, num_bytes INTEGER NOT NULL,"
    " modified REAL NOT NULL, counts INTEGER NOT NULL)",
)


class SeenFiles:
    """The files that jobs on a horizon have seen: path, size, time, and whether the file counts.

    Whether a file counts is decided once, when a listing of the folder first contains the file. A
    file counts unless its time was already settled at an earlier listing, which should have found
    the file. A listing is recorded in one transaction before any file is read, so a restarted job,
    and other jobs on the horizon, make the same decision.

    ``directory``: the directory of the horizon, whose files are public.
    ``folder``: a local folder that every worker can access; by default ``directory + ".private"``.

    Privacy: sizes and times of files depend on records. So only the owner may access the folder,
    and error messages show nothing from the list except the path of a changed file.
    """

    def __init__(
        self, directory: str | os.PathLike[str], folder: str | os.PathLike[str] | None
    ) -> None:
        output = os.fspath(directory)
        if folder is None and is_url(output):
            condition = "must name a local folder: the output is in a bucket"
            raise InputError(PRIVATE_FOLDER, None, condition)
        path = output.rstrip("/" + os.sep) + ".private" if folder is None else folder
        self.folder = local_path(path, PRIVATE_FOLDER).absolute()
        public = pathlib.Path(output).resolve()
        if not is_url(output) and self.folder.resolve().is_relative_to(public):
            raise self._refused(f"must not be in the output, {output!r}, which is public")

    def begin(self, horizon_id: str, *, may_be_new: bool) -> None:
        """Creates the folder of a horizon, or opens the existing folder."""
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if os.name == "posix" and self.folder.stat().st_mode & 0o077:
                raise self._refused("must be accessible only to its owner: chmod 700")
            (self.folder / _FILE).touch(mode=0o600)
        except OSError as error:
            raise self._refused(f"must be a folder that can be written: {error.strerror}") from None
        with self._look() as look:
            for table in _TABLES:
                look.execute(table)
            held = look.execute("SELECT id FROM horizon").fetchone()
            if held is None and may_be_new:
                look.execute("INSERT INTO horizon VALUES (?, ?)", (horizon_id, -math.inf))
            elif held is None:
                condition = "must be the folder that lists the files of the released windows"
                raise self._refused(condition)
            elif held != (horizon_id,):
                raise self._refused("must not belong to another horizon, which needs it")

    def counted(
        self,
        found: Iterable[FoundFile],
        settled: float = -math.inf,
        *,
        may_be_removed: bool = True,
    ) -> list[FoundFile]:
        """Returns the present files that count."""
        with self._look() as look:
            known = {path: row for path, *row in look.execute("SELECT * FROM files")}
            (before,) = look.execute("SELECT settled FROM horizon").fetchone()
            files = {_absolute(file.path): file for file in found}
            for path, file in files.items():
                if path not in known:
                    known[path] = [*file[1:], file.modified >= before]
                    look.execute("INSERT INTO files VALUES (?, ?, ?, ?)", (path, *known[path]))
                elif known[path][:2] != [*file[1:]]:
                    condition = "must not change before its horizon is over, but has changed"
                    raise InputError("input", path, condition)
            gone = [path for path, row in known.items() if row[-1] and path not in files]
            if gone and not may_be_removed:
                condition = "must not be removed before its horizon is over: it was read"
                raise InputError("input", gone[0], condition)
            look.execute("UPDATE horizon SET settled = max(settled, ?)", (settled,))
        return [file for path, file in files.items() if known[path][-1]]

    @contextlib.contextmanager
    def _look(self) -> Iterator[sqlite3.Connection]:
        """Opens one transaction, which is rolled back on failure."""
        url = f"{(self.folder / _FILE).as_uri()}?mode=rw"
        try:
            connection = sqlite3.connect(url, _PATIENCE, isolation_level=None, uri=True)
            with contextlib.closing(connection):
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
        except sqlite3.Error:
            condition = "must be a folder that every worker sees and can write"
            raise self._refused(condition) from None

    def _refused(self, condition: str) -> InputError:
        return InputError(PRIVATE_FOLDER, os.fspath(self.folder), condition)


def _absolute(path: str) -> str:
    return path if is_url(path) else os.path.abspath(path)

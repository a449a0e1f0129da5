"""Reads files as they appear in a folder, and the same files again if a job is restarted."""

from __future__ import annotations

import contextlib
import math
import os
import pathlib
import sqlite3
import time
from collections.abc import Iterable, Iterator

import apache_beam as beam
from apache_beam.utils.timestamp import Timestamp

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.horizon import Horizon, seconds_of_duration
from beam_dp.errors import InputError
from beam_dp.flags.shared import FILE_TIME
from beam_dp.secret.encoding.layouts import NEED_TIMES
from beam_dp.storage.store import is_url, local_path
from beam_dp.transforms.job_page import ReadError
from beam_dp.transforms.reading import read
from beam_dp.transforms.reading.formats import format_of
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
            row = look.execute("SELECT id FROM horizon").fetchone()
            if row is None and may_be_new:
                look.execute("INSERT INTO horizon VALUES (?, ?)", (horizon_id, -math.inf))
            elif row is None:
                condition = "must be the folder that lists the files of the released windows"
                raise self._refused(condition)
            elif row != (horizon_id,):
                raise self._refused("must not belong to another horizon, which needs it")

    def counted(
        self,
        present: Iterable[FoundFile],
        settled: float = -math.inf,
        *,
        may_be_removed: bool = True,
    ) -> list[FoundFile]:
        """Returns the present files that count."""
        with self._look() as look:
            rows = {path: row for path, *row in look.execute("SELECT * FROM files")}
            (before,) = look.execute("SELECT settled FROM horizon").fetchone()
            files = {_absolute(file.path): file for file in present}
            for path, file in files.items():
                if path not in rows:
                    rows[path] = [*file[1:], file.modified >= before]
                    look.execute("INSERT INTO files VALUES (?, ?, ?, ?)", (path, *rows[path]))
                elif rows[path][:2] != [*file[1:]]:
                    condition = "must not change before its horizon is over, but has changed"
                    raise InputError("input", path, condition)
            gone = [path for path, row in rows.items() if row[-1] and path not in files]
            if gone and not may_be_removed:
                condition = "must not be removed before its horizon is over: it was read"
                raise InputError("input", gone[0], condition)
            look.execute("UPDATE horizon SET settled = max(settled, ?)", (settled,))
        return [file for path, file in files.items() if rows[path][-1]]

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


try:
    from apache_beam.io.watch import PollFn, PollResult, Watch
except ImportError:  # Beam before 2.76
    Watch, PollFn = None, object

_MICROSECONDS = 10**6


class ReadArrivals(read.ReadRecords):
    """Reads files as they appear in a folder during a horizon, or replays the files present now.

    All records of a file arrive at the file's modification time, which records can't change. The
    additional column ``file_time`` contains that time in seconds. The watermark is the clock
    minus ``settle`` and never depends on times of events. So files must be written elsewhere and
    moved into the folder complete, at most ``settle`` after their modification time.

    If the folder is read again from the start, files have the same arrival times. So a copy or a
    restored backup must keep the modification times of files (``cp -p``).

    Privacy: all records of a unit since the start determine which windows the unit's records are
    counted in. So ``ReleaseWindows`` keeps a list of the files that its input comes from. A file
    that changes stops the job. A file that appears later than ``settle`` after its modification
    never counts. If units are limited over windows, a job whose file was removed can't continue.

    Args:
        pattern: a path or glob on any filesystem that Beam supports.
        horizon: the horizon; reading ends when its last window has closed.
        file_format: as for ``ReadRecords``; required if there is no file yet and the pattern has
            no extension.
        poll: the interval between listings of the folder, as seconds or a string such as ``30s``.
        settle: the longest time between a file's modification and its appearance, as seconds or
            a string; >= 0.
        replay: whether to read the files present now, as a bounded collection; the tables are the
            same. Refused before the horizon is over.

    Raises:
        InputError: if a value is out of range, ``ReadRecords`` would refuse a present file, or the
            version of Beam can't watch a folder.

    Output: Arrow batches, with the time of the file as the timestamp.
    """

    arrival_column = FILE_TIME

    def __init__(
        self,
        pattern: str,
        horizon: Horizon,
        file_format: str | None = None,
        *,
        poll: int | str,
        settle: int | str,
        replay: bool = False,
    ) -> None:
        self.replay = replay
        self.poll_seconds = seconds_of_duration("poll", poll, least=1)
        self.polling = _Poll(horizon, seconds_of_duration("settle", settle, least=0))
        if replay:
            horizon.check_over(time.time() - self.polling.settle)
        if Watch is None and not replay:
            raise InputError(
                "apache-beam", beam.__version__, "must be 2.76 or newer for a stream of files"
            )
        pattern = read.plain_pattern(pattern)
        read.check_times(pattern)
        if file_format is None and (name := format_of(pattern)) is not None:
            file_format = name.name
        super().__init__(pattern, None, file_format)
        read.check_folder(pattern)

    def check_column(self, argument: str, column: str, attribute: Attribute | None = None) -> None:
        """Refuses a column as ``ReadRecords`` does, but accepts ``file_time`` as a time."""
        if argument == "arrival" and column != FILE_TIME and not self.replay:
            condition = f"must be {FILE_TIME}, which the watermark bounds, except in a replay"
            raise InputError(argument, column, condition)
        if column != FILE_TIME or argument not in NEED_TIMES:
            return super().check_column(argument, column, attribute)
        for path, columns in self.schemas.items():
            if FILE_TIME in columns:
                condition = f"must not be a column of {path}: it is the time of the file"
                raise InputError(argument, column, condition)
        return None

    def _found(self) -> list[tuple[str, int]]:
        return super()._found() if self.replay else list(read.list_files(self.pattern))

    def _refuse_empty_files(self) -> None:
        """Refuses empty files only in a replay: a stream may begin without files."""
        if self.replay:
            super()._refuse_empty_files()

    def _listed(self, pipeline: beam.Pipeline) -> beam.PCollection[tuple[str, int]]:
        pattern = pipeline | "Pattern" >> beam.Create([self.pattern])
        if self.replay:
            listing = beam.FlatMap(self.polling.replayed).with_output_types(tuple[str, int])
            return pattern | "List files" >> listing | "Spread files" >> beam.Reshuffle()
        watch = Watch(
            self.polling,
            poll_interval=self.poll_seconds,
            output_key_fn=_path_of,  # a file that is touched or grows is not read again
            output_key_coder=beam.coders.StrUtf8Coder(),
        )
        return (
            pattern
            | "Watch" >> watch
            | "Found" >> beam.Values()
            | "Spread files" >> beam.Reshuffle()
        )


def keep_files(reader: read.ReadRecords, seen: SeenFiles, *, may_be_removed: bool) -> None:
    """Makes a job read the same files as other jobs on the horizon.

    ``ReadArrivals`` reads only the files that count, and adds new files to the list of ``seen``.
    ``ReadRecords`` refuses files that changed or are new, and removed files, unless
    ``may_be_removed``.
    """
    read.check_times(reader.pattern)
    files = list(read.timed_files(reader.pattern))
    if isinstance(reader, ReadArrivals):
        seen.counted(files, may_be_removed=may_be_removed)
        reader.polling.seen = seen
        return
    counted = seen.counted(files, math.inf, may_be_removed=may_be_removed)
    for file in files:
        if file not in counted:
            condition = "must not appear after the files of its horizon were read"
            raise InputError("input", file.path, condition)


class _Poll(PollFn):
    """Lists the files; the watermark is the clock minus ``settle``."""

    seen: SeenFiles | None = None  # the files of the horizon, after it has begun

    def __init__(self, horizon: Horizon, settle: int) -> None:
        self.ends = horizon.closes(horizon.num_windows - 1)
        self.settle = settle

    def __call__(self, pattern: str) -> PollResult[tuple[str, int]]:
        """Returns all present files with timestamps, and the watermark."""
        settled = time.time() - self.settle  # read before the files are listed
        files = self._arrived(pattern, settled)
        if settled >= self.ends:
            return PollResult.complete(files)
        watermark = Timestamp(micros=int(settled * _MICROSECONDS))
        return PollResult.incomplete(files).with_watermark(watermark)

    def replayed(self, pattern: str) -> list[beam.window.TimestampedValue]:
        """Returns all present files with timestamps."""
        return self._arrived(pattern, time.time() - self.settle)

    def _arrived(self, pattern: str, settled: float) -> list[beam.window.TimestampedValue]:
        """Returns files with their sizes, with the arrival as the timestamp."""
        files = list(read.timed_files(pattern))
        if self.seen is not None:
            try:
                files = self.seen.counted(files, settled)
            except InputError as error:
                raise ReadError(f"{error.value}: {error.condition}") from None
        return [
            beam.window.TimestampedValue(
                (path, num_bytes), Timestamp(micros=int(modified * _MICROSECONDS))
            )
            for path, num_bytes, modified in files
        ]

    def default_output_coder(self) -> beam.coders.TupleCoder:
        """Returns the coder of a path and a size."""
        return beam.coders.TupleCoder((beam.coders.StrUtf8Coder(), beam.coders.VarIntCoder()))


def _path_of(file: tuple[str, int]) -> str:
    return file[0]

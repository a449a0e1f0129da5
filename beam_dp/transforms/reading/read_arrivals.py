"""The transform that reads files as they appear in a folder, with arrivals from file times."""

from __future__ import annotations

import datetime
import math
import time

import apache_beam as beam
from apache_beam.utils.timestamp import Timestamp

from beam_dp.domain.attributes import Attribute
from beam_dp.domain.horizon import Horizon, seconds_of_duration
from beam_dp.errors import InputError
from beam_dp.flags.shared import FILE_TIME
from beam_dp.secret.encoding.column_types import NEED_TIMES
from beam_dp.transforms.job_page import ReadError
from beam_dp.transforms.reading import read
from beam_dp.transforms.reading.formats import format_of
from beam_dp.transforms.reading.seen_files import SeenFiles

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
        if replay and time.time() - self.polling.settle < self.polling.ends:
            moment = datetime.datetime.fromtimestamp(self.polling.ends, datetime.UTC)
            closes = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
            condition = f"can't be given before the last window has closed ({closes}) and settled"
            raise InputError("replay", True, condition)
        if Watch is None and not replay:
            raise InputError(
                "apache-beam", beam.__version__, "must be 2.76 or newer for a stream of files"
            )
        pattern = read.plain_pattern(pattern)
        read.check_times(pattern)
        if file_format is None and (found := format_of(pattern)) is not None:
            file_format = found.name
        super().__init__(pattern, None, file_format)
        read.check_folder(pattern)

    def check_column(self, argument: str, column: str, attribute: Attribute | None = None) -> None:
        """Refuses a column as ``ReadRecords`` does, but accepts ``file_time`` as a time."""
        if argument == "arrival" and column != FILE_TIME and not self.replay:
            condition = f"must be {FILE_TIME}, which the watermark bounds, except in a replay"
            raise InputError(argument, column, condition)
        if column != FILE_TIME or argument not in NEED_TIMES:
            return super().check_column(argument, column, attribute)
        for path, known in self.schemas.items():
            if FILE_TIME in known:
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
    found = list(read.timed_files(reader.pattern))
    if isinstance(reader, ReadArrivals):
        seen.counted(found, may_be_removed=may_be_removed)
        reader.polling.seen = seen
        return
    counted = seen.counted(found, math.inf, may_be_removed=may_be_removed)
    for file in found:
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
        found = self._arrived(pattern, settled)
        if settled >= self.ends:
            return PollResult.complete(found)
        watermark = Timestamp(micros=int(settled * _MICROSECONDS))
        return PollResult.incomplete(found).with_watermark(watermark)

    def replayed(self, pattern: str) -> list[beam.window.TimestampedValue]:
        """Returns all present files with timestamps."""
        return self._arrived(pattern, time.time() - self.settle)

    def _arrived(self, pattern: str, settled: float) -> list[beam.window.TimestampedValue]:
        """Returns files with their sizes, with the arrival as the timestamp."""
        found = list(read.timed_files(pattern))
        if self.seen is not None:
            try:
                found = self.seen.counted(found, settled)
            except InputError as error:
                raise ReadError(f"{error.value}: {error.condition}") from None
        return [
            beam.window.TimestampedValue(
                (path, num_bytes), Timestamp(micros=int(modified * _MICROSECONDS))
            )
            for path, num_bytes, modified in found
        ]

    def default_output_coder(self) -> beam.coders.TupleCoder:
        """Returns the coder of a path and a size."""
        return beam.coders.TupleCoder((beam.coders.StrUtf8Coder(), beam.coders.VarIntCoder()))


def _path_of(file: tuple[str, int]) -> str:
    return file[0]

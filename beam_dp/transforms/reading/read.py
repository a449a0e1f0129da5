"""The transform that reads files as Arrow batches, and the listing of files by pattern."""

from __future__ import annotations

import dataclasses
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.utils.timestamp import Timestamp

from beam_dp.domain.attributes import Attribute, nearest_known
from beam_dp.domain.dates import TimeAttribute
from beam_dp.domain.schemas.file_kinds import other_kind
from beam_dp.errors import InputError
from beam_dp.flags.shared import FILE_TIME
from beam_dp.secret.encoding.layouts import NEED_TIMES, ColumnType, nearest_column, unfit
from beam_dp.secret.encoding.records import EncodedBatch
from beam_dp.storage.open import bucket_of
from beam_dp.storage.store import plain_path
from beam_dp.transforms.job_page import (
    READ,
    FileError,
    ReadError,
    name_file_only,
    reason_of,
    report_source,
)
from beam_dp.transforms.reading.formats import FORMATS, Wanted, format_of
from beam_dp.transforms.reading.records import LINES, RecordSource, takers_of

_WILD = r"[*?\[]"
_HERE = os.path.join(os.curdir, "")
# Filesystems, in addition to buckets, whose file times are reliable. On other filesystems, such as
# Azure's, Beam uses the worker's time zone, so that times are an hour off in summer.
_WITH_TIMES = (None, "hdfs")


def plain_pattern(pattern: str) -> str:
    """Returns a pattern in Beam's form, with a path for ``file://``; refuses a folder."""
    if not isinstance(pattern, str):
        raise InputError("input", pattern, "must be a path or a glob, as a string")
    path = plain_path("input", pattern)
    if os.path.isdir(path) and not path.endswith(("/", os.sep)):
        example = os.path.join(path, _pattern_in(path))
        raise InputError("input", pattern, f"is a folder; must match files, as {example!r} does")
    return path


def _pattern_in(folder: str) -> str:
    """Returns a pattern for the most common kind of files in a folder, or in a folder below it."""
    for place, below, names in itertools.islice(os.walk(folder), _CHECKED_FILES):
        below[:] = [name for name in below if re.match(r"\w+=|\d+$", name)]  # partitions
        ends = (re.search(r"(\.csv)?\.\w+$", name) for name in names if format_of(name))
        kinds = [ending[0] for ending in ends if ending]
        if kinds:
            return f"{'' if place == folder else '**/'}*{max(kinds, key=kinds.count)}"
    return "*.csv"


def list_files(pattern: str) -> Iterator[tuple[str, int]]:
    """Yields the files that match a pattern, with their sizes."""
    for path, num_bytes, _ in _listed_by_beam(pattern):
        yield path, num_bytes


def check_folder(pattern: str) -> None:
    """Refuses a local pattern whose folder does not exist: files could never appear there."""
    if FileSystems.get_scheme(pattern) is None and not os.path.isdir(_folder(pattern) or os.curdir):
        raise InputError("input", pattern, "must be in a folder that exists")


def check_times(pattern: str) -> None:
    """Refuses files on a filesystem without reliable file times in UTC."""
    if bucket_of(pattern) is None and FileSystems.get_scheme(pattern) not in _WITH_TIMES:
        condition = "must be local, gs://, s3:// or hdfs://: others do not state times in UTC"
        raise InputError("input", pattern, condition)


class FoundFile(NamedTuple):
    """A file that matches a pattern, its size, and its time in seconds since 1970, UTC."""

    path: str
    num_bytes: int
    modified: float


def timed_files(pattern: str) -> Iterator[FoundFile]:
    """Yields the files that match a pattern, with their sizes and times."""
    bucket = bucket_of(pattern)
    if bucket is None:
        for file in _listed_by_beam(pattern):
            if not file.modified:
                raise ReadError(f"{file.path}: its filesystem does not say when it was modified")
            yield file
        return
    # Beam's listing is not used: it depends on the worker's time zone and on changes of metadata.
    root = "/".join(pattern.split("/")[:3]) + "/"
    wanted = pattern[len(root) :] + ("*" if pattern.endswith("/") else "")
    is_match = re.compile(FileSystem.translate_pattern(wanted)).match
    for name, num_bytes, modified in bucket.listed(re.split(_WILD, wanted)[0]):
        if is_match(name) and not name.endswith("/"):
            yield FoundFile(root + name, num_bytes, modified)


def _listed_by_beam(pattern: str) -> Iterator[FoundFile]:
    # Beam does not find files by a pattern without a folder.
    is_local = FileSystems.get_scheme(pattern) is None
    pattern = _escaped(pattern) if is_local else pattern
    is_here = is_local and not _folder(pattern)
    (match,) = FileSystems.match([_HERE + pattern if is_here else pattern])
    for entry in match.metadata_list:
        path = entry.path.removeprefix(_HERE) if is_here else entry.path
        yield FoundFile(path, entry.size_in_bytes, entry.last_updated_in_seconds)


def _escaped(pattern: str) -> str:
    """Returns a local pattern in which what exists, such as visits[1].csv, stands for itself."""
    head, tail = os.path.split(pattern)
    if os.path.lexists(pattern) or not tail:
        return re.sub(f"({_WILD})", r"[\\\1]", pattern)  # Python warns of [[] in Beam's expression
    return os.path.join(_escaped(head), tail)


def _folder(pattern: str) -> str:
    """Returns the folder in a pattern before the first wildcard."""
    return os.path.dirname(re.split(_WILD, pattern)[0])


_CHECKED_FILES = 64
_MICROSECONDS = 10**6
_NAMED_FILES = 1000  # with more files, the job graph contains the pattern instead of file names


class ReadRecords(RecordSource):
    """Reads files of records in parallel, with only the needed columns.

    The constructor checks everything public: that files match the pattern, can be opened and have
    the columns (at most 64 files are opened). Records are secret: a malformed record affects only
    itself. In CSV, a record is one physical line (ended by LF, CRLF or CR); quotes never span
    several lines; every file starts with a header; an empty field is null. A CSV line is left out
    if its number of fields differs from the header's, or if a quote is open at its end. The job
    stops and names the file if a container (Avro block, Parquet page, compression) is damaged, if a
    column is missing or has a type without levels, if the first line of a CSV file is blank, or if
    an Avro schema is recursive.

    Args:
        pattern: a path or glob on any filesystem that Beam supports.
        columns: the columns to read. None reads the columns that releases need, or all columns if
            any other step uses the records. CSV columns are strings, or integers if only releases
            use the records and need integers.
        file_format: ``"avro"``, ``"parquet"`` or ``"csv"``; None to detect it by the extension.

    Raises:
        InputError: if no file matches, one can't be read or lacks a column, or a format is unknown.

    Example:
        >>> ReadRecords("missing/*.parquet")
        Traceback (most recent call last):
        beam_dp.errors.InputError: input: 'missing/*.parquet' is not valid: must match a file
    """

    # The name of an additional column with the arrival of the file in seconds.
    arrival_column: ClassVar[str | None] = None

    def __init__(
        self, pattern: str, columns: Sequence[str] | None = None, file_format: str | None = None
    ) -> None:
        super().__init__()
        self.pattern = pattern = plain_pattern(pattern)
        self.columns = None if columns is None else list(dict.fromkeys(columns))
        if file_format is not None and file_format not in FORMATS:
            raise InputError("input_format", file_format, nearest_known(file_format, FORMATS))
        self.files = self._found()
        paths = sorted(path for path, _ in self.files)
        self.file_format = file_format or _common_format(pattern, paths)
        # The columns that the files declare; an empty CSV file declares no columns.
        self.schemas: dict[str, list[str]] = {}
        self._types: dict[str, Mapping[str, ColumnType | None]] = {}
        for path in paths[:: max(1, -(-len(paths) // _CHECKED_FILES))]:
            self._look_into(path)
        self._refuse_empty_files()
        for column in self.columns or ():
            self.check_column("column", column)

    def expand(self, pipeline: beam.Pipeline) -> beam.PCollection[pa.RecordBatch]:
        """Lists files, splits files into ranges, and reads the ranges."""
        split = beam.ParDo(_SplitFile(self.pattern, self.file_format))
        read = beam.ParDo(_ReadRange(self.file_format, self.arrival_column))
        read = read.with_output_types(pa.RecordBatch)
        read.label = "Read ranges"
        files = (
            self._listed(pipeline)
            | "Split files" >> split
            | "Spread ranges" >> beam.Reshuffle()
            | "Read" >> read.with_outputs(LINES, main="records")
        )
        records, files[LINES].element_type = files["records"], EncodedBatch
        split.fn.reading = read.fn.reading = _LateReading(self, records)
        return records

    def check_column(self, argument: str, column: str, attribute: Attribute | None = None) -> None:
        """Refuses a column that is not read, is missing, is repeated, or has an unsuitable type."""
        if self.columns is not None and column not in self.columns:
            near = nearest_column(argument, column, self.columns)
            raise InputError(argument, column, f"must be one of the columns that are read; {near}")
        for path, columns in self.schemas.items():
            if column not in columns:
                is_csv = self.file_format == "csv"
                near = nearest_column(argument, column, columns, list_all=not is_csv)
                # If a CSV file lacks its header, the names in ``known`` are the values of a record.
                near = near or "its first line must name its columns"
                raise InputError(argument, column, f"must be a column of {path}; {near}")
            if columns.count(column) > 1:
                raise InputError(argument, column, f"must be unique in the header of {path}")
            kind = self._types[path][column]
            wanted = None if kind is None else unfit(kind, argument, attribute)
            if kind is not None and wanted is not None:
                condition = f"must be a column of {wanted}; in {path} it is {kind.name}"
                raise InputError(argument, column, condition)

    def reading(self, records: beam.PCollection[Any]) -> Reading:
        """Returns the columns that the steps after ``records`` need; raises if they conflict."""
        takers, others = takers_of(records)
        uses = [
            (name, argument, taker.attributes.get(name))
            for taker in takers
            for name, argument in taker.columns.items()
            if name != self.arrival_column  # not a column of files
        ]
        times = {
            name
            for name, argument, attribute in uses
            if argument in NEED_TIMES or _may_be_time(attribute)
        }
        if clash := times & {name for name, argument, _ in uses if argument in ("key", "weight")}:
            # In Avro, a key is read as the stored integer, but a date attribute needs the date.
            condition = "must not be both dates or times, and a key or weight; read the files twice"
            raise InputError("input", min(clash), condition)
        if others or not takers:
            # Other steps may need any column, with strings as written.
            return Reading(Wanted(self.columns, (), times), uses)
        texts = {name for taker in takers for name in taker.columns.keys() - taker.integers}
        integers = {name for taker in takers for name in taker.integers} - texts
        needed = list(dict.fromkeys(name for name, _, _ in uses))
        columns = needed if self.columns is None else self.columns
        return Reading(Wanted(columns, integers, times), uses)

    def batches(
        self,
        columns: Sequence[str],
        attributes: Iterable[Attribute],
        times: Sequence[str] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Yields columns of the records, read in this process as a worker reads them.

        ``times``: the columns that are read as times; ``file_time`` is the time of the file.
        """
        # Raises ReadError if a file is damaged, or lacks a column.
        listed = list(attributes)
        files: Iterable[tuple[str, int, float | None]] = ((*file, None) for file in self.files)
        if FILE_TIME in times:
            check_times(self.pattern)
            columns = [column for column in columns if column != FILE_TIME]
            files = timed_files(self.pattern)
        for path, num_bytes, modified in files:
            for batch in self.file_batches(path, num_bytes, columns, listed, times):
                yield batch if modified is None else _with_arrival(batch, FILE_TIME, int(modified))

    def file_batches(
        self,
        path: str,
        num_bytes: int,
        columns: Sequence[str],
        attributes: Iterable[Attribute],
        times: Sequence[str] = (),
        *,
        may_lack: bool = False,
        faults: Counter[str] | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """Yields the records of a file; ``may_lack`` skips missing or repeated columns."""
        # Lines that are no records are added to ``faults``, by what is wrong.
        # Raises ReadError if the file is damaged or missing, or lacks a column.
        times = [*times, *(time.name for time in attributes if _may_be_time(time))]
        file_format = FORMATS[self.file_format]
        with name_file_only(path):
            if may_lack:
                names = [name for name, _ in file_format.columns(path) or ()]
                columns = [name for name in columns if names.count(name) == 1]
                if not columns:
                    return
            wanted = Wanted(columns, times=times)
            for start, stop in file_format.ranges(path, num_bytes):
                for batch in file_format.batches(path, start, stop, wanted):
                    if not isinstance(batch, Counter):
                        yield batch
                    elif faults is not None:
                        faults.update(batch)

    def _found(self) -> list[tuple[str, int]]:
        """Returns the existing files with their sizes."""
        return _matching_files(self.pattern)

    def _listed(self, pipeline: beam.Pipeline) -> beam.PCollection[tuple[str, int]]:
        """Returns the files to read, with their sizes."""
        if len(self.files) <= _NAMED_FILES:
            return pipeline | "Files" >> beam.Create(self.files)
        return (
            pipeline
            | "Pattern" >> beam.Create([self.pattern])
            | "List files" >> beam.FlatMap(list_files)
            | "Spread files" >> beam.Reshuffle()
        )

    def _refuse_empty_files(self) -> None:
        """Refuses input whose files are all empty CSV files, without column names."""
        if not self.schemas:
            condition = "must match a file with the names of its columns; those found are empty"
            raise InputError("input", self.pattern, condition)

    def _look_into(self, path: str) -> None:
        try:
            columns = FORMATS[self.file_format].columns(path)
        except FileError as error:
            raise InputError("input", path, str(error)) from None
        except Exception as error:
            # The parser's message may quote a record.
            condition = f"must be a readable {self.file_format} file{reason_of(error)}"
            raise InputError("input", path, condition) from None
        if columns is not None:
            self.schemas[path] = [name for name, _ in columns]
            self._types[path] = dict(columns)


def _matching_files(pattern: str) -> list[tuple[str, int]]:
    try:
        files = list(list_files(pattern))
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError("input", pattern, f"must be listed by its filesystem: {reason}") from None
    if not files:
        raise InputError("input", pattern, "must match a file")
    return files


def _common_format(pattern: str, paths: Sequence[str]) -> str:
    formats = {format_of(path) for path in paths}
    common = formats.pop() if formats else None
    if common is None or formats:
        for path in filter(other_kind, paths):
            raise InputError("input", path, str(other_kind(path)))
        endings = ", ".join(f".{name}" for name in FORMATS)
        condition = f"must match files of one extension of {endings}: rename them, or give"
        raise InputError("input", pattern, f"{condition} --input_format if the command has it")
    return common.name


@dataclasses.dataclass(frozen=True)
class Reading:
    """The columns that workers read from each file, and the argument and attribute per column."""

    wanted: Wanted = dataclasses.field(default_factory=Wanted)
    uses: Sequence[tuple[str, str, Attribute | None]] = ()


class _LateReading:
    """When pickled, is replaced by the result of ``reader.reading``.

    Only the choice of columns happens after construction. A pipeline's sources are built first. The
    columns that releases need are known only when the graph is complete, and its steps are pickled
    for the workers.
    """

    def __init__(self, reader: ReadRecords, records: beam.PCollection[pa.RecordBatch]) -> None:
        self._reader, self._records = reader, records

    def __reduce__(self) -> tuple[Any, ...]:
        reading = self._reader.reading(self._records)
        return Reading, (reading.wanted, reading.uses)


class _SplitFile(beam.DoFn):
    """Splits a file into ranges that workers read independently.

    The constructor of ``ReadRecords`` opens only some of many files, so column types are checked
    again for every file. The declared columns of a file are public.
    """

    def __init__(self, pattern: str, file_format: str) -> None:
        self.reading: Any = Reading()
        self.pattern = pattern
        self.file_format = file_format

    def process(self, file: tuple[str, int]) -> Iterator[tuple[str, int, int]]:
        path, num_bytes = file
        file_format = FORMATS[self.file_format]
        with name_file_only(path):
            report_source(self.pattern)
            types = dict(file_format.columns(path) or ())
            for column, argument, attribute in self.reading.uses:
                kind = types.get(column)
                wanted = None if kind is None else unfit(kind, argument, attribute)
                if kind is not None and wanted is not None:
                    condition = f"must be of {wanted}; it is {kind.name}"
                    raise ReadError(f"{path}: column {column!r} {condition}")
            for start, stop in file_format.ranges(path, num_bytes):
                READ.found()
                yield path, start, stop


class _ReadRange(beam.DoFn):
    """Reads one range of a file."""

    def __init__(self, file_format: str, arrival_column: str | None = None) -> None:
        self.reading: Any = Reading()
        self.file_format = file_format
        self.arrival_column = arrival_column

    def process(
        self, file_range: tuple[str, int, int], arrived: Timestamp = beam.DoFn.TimestampParam
    ) -> Iterator[Any]:
        path, start, stop = file_range
        file_format = FORMATS[self.file_format]
        with name_file_only(path):
            for batch in file_format.batches(path, start, stop, self.reading.wanted):
                if isinstance(batch, Counter):
                    # Without values, they fail the first attribute of any domain.
                    lines = EncodedBatch(cells=np.zeros(batch.total(), np.int64))
                    yield beam.pvalue.TaggedOutput(LINES, lines)
                    continue
                if self.arrival_column is not None:
                    if self.arrival_column in batch.schema.names:
                        condition = "must not exist: it is the time of the file"
                        raise ReadError(f"{path}: column {self.arrival_column!r} {condition}")
                    batch = _with_arrival(
                        batch, self.arrival_column, arrived.micros // _MICROSECONDS
                    )
                yield batch
        READ.done()


def _may_be_time(attribute: Attribute | None) -> bool:
    return isinstance(attribute, TimeAttribute) or getattr(attribute, "any_type", False)


def _with_arrival(batch: pa.RecordBatch, column: str, seconds: int) -> pa.RecordBatch:
    return batch.append_column(column, pa.array(np.full(batch.num_rows, seconds)))

"""Cuts Avro, Parquet and plain CSV files into ranges; reads files or ranges as Arrow batches.

Compressed CSV is not read with Beam's reader, which accepts truncated files, nor with Python's for
bzip2 and xz, which ignore bytes after the last stream. Both would lose records silently.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, Any, Protocol

import pyarrow as pa
import pyarrow.parquet
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dp.domain.schemas.file_kinds import compression_of, content_of, format_name
from beam_dp.secret.encoding.layouts import ColumnType
from beam_dp.threads import in_order
from beam_dp.transforms.job_page import FileError, ReadError


@contextlib.contextmanager
def open_file(path: str, *, decompress: bool) -> Iterator[IO[bytes]]:
    """Opens a file on any filesystem of Beam; with ``decompress``, decompresses by extension."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        yield content_of(file, path) if decompress else file


# Names and types of columns; None if the file declares no type.
Columns = list[tuple[str, ColumnType | None]]
Faults = collections.Counter[str]
Batches = Iterator[pa.RecordBatch | Faults]

_SPLIT_BYTES = 2**26
_BATCH_RECORDS = 2**16  # so that columns of a Parquet batch stay in the cache during encoding


@dataclasses.dataclass(frozen=True)
class Wanted:
    """The columns to read (None for all), and the columns with integers (CSV) or times (Avro)."""

    columns: Sequence[str] | None = None
    integers: Collection[str] = ()
    times: Collection[str] = ()

    def of(self, path: str, names: Sequence[str]) -> list[str]:
        """Returns the columns to read from a file with the columns ``names``."""
        if self.columns is None:
            return list(names)
        for column in self.columns:
            if names.count(column) != 1:  # schemas are public
                raise ReadError(f"{path}: has no column {column!r}, or more than one")
        return list(self.columns)


class FileFormat(Protocol):
    """The interface of formats for ``ReadRecords``; a range is the part that one worker reads."""

    @property
    def name(self) -> str:
        """The file extension."""

    def columns(self, path: str) -> Columns | None:
        """Returns the columns in order; None for an empty CSV file."""

    def ranges(self, path: str, num_bytes: int) -> list[tuple[int, int]]:
        """Returns ranges that cover the file."""

    def batches(self, path: str, start: int, stop: int, wanted: Wanted) -> Batches:
        """Yields the records of one range, and how many lines are no records, by what is wrong."""


class Avro:
    """Avro container files: ranges of bytes, cut at sync markers."""

    name = "avro"

    def columns(self, path: str) -> Columns:
        """Returns the fields of the records; raises if its codec can't be decompressed here."""
        from beam_dp.transforms.reading import avro_blocks

        with open_file(path, decompress=False) as file:
            header = avro_blocks.read_header(file)
        if (reason := avro_blocks.unreadable_codec(header)) is not None:
            raise FileError(f"must be readable here: {reason}")
        return list(header.types.items())

    def ranges(self, path: str, num_bytes: int) -> list[tuple[int, int]]:
        """Returns ranges of up to 16 MiB, which fit in memory and take seconds to decode."""
        return _ranges(num_bytes, _SPLIT_BYTES // 4)

    def batches(self, path: str, start: int, stop: int, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """Yields the records of one range."""
        from beam_dp.transforms.reading import avro_blocks

        with open_file(path, decompress=False) as file:
            header = avro_blocks.read_header(file)
            columns = wanted.of(path, list(header.types))
            yield from avro_blocks.range_batches(file, header, start, stop, columns, wanted.times)


class Parquet:
    """Parquet files: ranges of row groups."""

    name = "parquet"

    def columns(self, path: str) -> Columns:
        """Returns the top-level columns; types say if a column can't be decoded here."""
        with open_file(path, decompress=False) as file:
            metadata = _footer(file)
        unreadable = _unreadable_columns(metadata)
        columns: Columns = []
        for field in metadata.schema.to_arrow_schema():
            kind = ColumnType.of_arrow(field.type)
            if (reason := unreadable.get(field.name)) is not None:
                kind = dataclasses.replace(kind, name=f"{kind.name}, {reason}", is_decodable=False)
            columns.append((field.name, kind))
        return columns

    def ranges(self, path: str, num_bytes: int) -> list[tuple[int, int]]:
        """Returns ranges of row groups, up to about 64 MiB per range."""
        with open_file(path, decompress=False) as file:
            num_groups = _footer(file).num_row_groups
        return _ranges(num_groups, max(1, num_groups * _SPLIT_BYTES // max(num_bytes, 1)))

    def batches(self, path: str, start: int, stop: int, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        """Yields the records of one range."""
        with open_file(path, decompress=False) as file:
            metadata = _footer(file)
            schema = metadata.schema.to_arrow_schema()
            columns = wanted.of(path, schema.names)
            groups = list(range(start, stop))
            parquet = pyarrow.parquet.ParquetFile(
                file,
                metadata=metadata,
                read_dictionary=_short_dictionaries(
                    metadata, groups, set(columns) & _texts(schema)
                ),
                pre_buffer=True,
                # As nanoseconds, times before 1677 or after 2262 would wrap around.
                coerce_int96_timestamp_unit="us",
            )
            # One thread decodes: more threads cost more processor time, and workers share cores.
            yield from _read_ahead(
                parquet.iter_batches(
                    _BATCH_RECORDS, row_groups=groups, columns=columns, use_threads=False
                )
            )


class Csv:
    """CSV files with a header: ranges of bytes, cut at line ends; one range if compressed."""

    name = "csv"

    def columns(self, path: str) -> Columns | None:
        """Returns the names in the header, without types: all CSV fields are text."""
        from beam_dp.transforms.reading import csv_lines

        with open_file(path, decompress=True) as file:
            return [(name, None) for name in csv_lines.read_header(file)[0]] or None

    def ranges(self, path: str, num_bytes: int) -> list[tuple[int, int]]:
        """Returns ranges of up to 64 MiB, or one range without end for a compressed file."""
        if compression_of(path) is not None:
            return [(0, -1)]
        return _ranges(num_bytes, _SPLIT_BYTES)

    def batches(self, path: str, start: int, stop: int, wanted: Wanted) -> Batches:
        """Yields the records of one range, as columns of text, and the faults of other lines."""
        from beam_dp.transforms.reading import csv_lines

        with open_file(path, decompress=True) as file:
            names, position = csv_lines.read_header(file)
            if not names:
                return
            columns = wanted.of(path, names)
            if start > 0:
                position = start - 1
            file.seek(position)
            blocks = csv_lines.line_blocks(file, position, start, stop if stop >= 0 else None)

            def parsed(block: bytes) -> list[pa.RecordBatch | Faults]:
                faults = Faults()
                read = csv_lines.parse_lines(block, names, columns, wanted.integers, faults)
                return [*read, *([faults] if faults else [])]

            yield from _in_threads(parsed, blocks)


# The decoders of Avro and CSV are imported when the first such file is read.
FORMATS: dict[str, FileFormat] = {"avro": Avro(), "parquet": Parquet(), "csv": Csv()}


def format_of(path: str) -> FileFormat | None:
    """Returns the format of a file by its extension; None for an unknown extension."""
    name = format_name(path)
    return None if name is None else FORMATS[name]


def _ranges(length: int, limit: int) -> list[tuple[int, int]]:
    """Returns the fewest ranges of at most ``most``, equally long, so that workers share evenly."""
    number = -(-length // limit)
    cuts = [length * i // number for i in range(number + 1)] if number else []
    return list(itertools.pairwise(cuts))


def _texts(schema: pa.Schema) -> set[str]:
    tests = (pa.types.is_string, pa.types.is_large_string)
    return {field.name for field in schema if any(is_text(field.type) for is_text in tests)}


_ENCRYPTED = "must not be encrypted: decrypt the file first"
_SIGNATURE_BYTES = 28  # after the plain footer of a file with encrypted columns
# Dictionaries, and what writers use after a dictionary has grown too long. Arrow reads the texts of
# other encodings (DELTA_BYTE_ARRAY, for example) only as plain columns.
_OF_DICTIONARIES = frozenset(("PLAIN", "RLE", "BIT_PACKED", "PLAIN_DICTIONARY", "RLE_DICTIONARY"))
_CHECKED_CHUNKS = 2**16


def _footer(file: IO[bytes]) -> Any:
    """Returns the metadata of a Parquet file; refuses encryption, at which Arrow may abort."""
    file.seek(-8, os.SEEK_END)
    num_bytes, magic = int.from_bytes(file.read(4), "little"), file.read(4)
    if magic == b"PARE":
        raise FileError(_ENCRYPTED)
    metadata = pyarrow.parquet.read_metadata(file)
    if num_bytes - metadata.serialized_size == _SIGNATURE_BYTES:
        raise FileError(_ENCRYPTED)
    return metadata


def _unreadable_columns(metadata: Any) -> dict[str, str]:
    """Returns the top-level columns with a codec or encoding unknown here, and its name."""
    reasons: dict[str, str] = {}
    num_groups = min(metadata.num_row_groups, _CHECKED_CHUNKS // max(metadata.num_columns, 1))
    for chunk in _chunks(metadata, range(num_groups)):
        if "UNKNOWN" in chunk.encodings:
            reason = "of an unknown encoding"
        elif not _is_known_codec(chunk.compression):
            reason = f"compressed as {chunk.compression}"
        else:
            continue
        path = chunk.path_in_schema
        reasons |= dict.fromkeys((path, path.partition(".")[0]), reason)
    return reasons


def _is_known_codec(name: str) -> bool:
    try:
        return name == "UNCOMPRESSED" or bool(pa.Codec.is_available(name.lower()))
    except ValueError:  # a name that Arrow does not know
        return False


def _chunks(metadata: Any, groups: Iterable[int]) -> Iterator[Any]:
    for group in map(metadata.row_group, groups):
        yield from map(group.column, range(group.num_columns))


def _short_dictionaries(metadata: Any, groups: Iterable[int], texts: set[str]) -> list[str]:
    """Returns text columns with short dictionaries; long dictionaries slow down every batch."""
    short: dict[str, bool] = {}
    for chunk in _chunks(metadata, groups):
        name = chunk.path_in_schema
        if name in texts:
            is_short = chunk.total_uncompressed_size < 2 * chunk.num_values
            is_read = _OF_DICTIONARIES.issuperset(chunk.encodings)
            # The first row group decides about the length, all of them whether Arrow can.
            short[name] = short.get(name, is_short) and is_read
    return [name for name, is_short in short.items() if is_short]


def _read_ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yields batches in order; a thread reads the next batch while the caller uses this batch."""
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(next, batches, None)
        while (batch := pending.result()) is not None:
            pending = pool.submit(next, batches, None)
            yield batch


def _in_threads(
    function: Callable[[bytes], list[pa.RecordBatch | Faults]], blocks: Iterator[bytes]
) -> Batches:
    """Yields the batches of each block in order, while threads parse the next blocks."""
    for batches in in_order(function, blocks):
        yield from batches

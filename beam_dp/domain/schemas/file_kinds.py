"""What files of records are, by extensions and first bytes; compressed files, and CSV headers."""

from __future__ import annotations

import bz2
import csv
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any, cast

from beam_dp.errors import FileError

# What files of other extensions are, and how to get on.
_OTHERS = {
    "ods xls xlsb xlsm xlsx": "is a workbook, which cannot be read: save it as CSV",
    "tab tsv": "is separated by tabs, and only commas are read: save it as CSV",
    "json jsonl ndjson": "is JSON, which is not read: save it as Parquet or CSV",
    "7z rar tar tgz zip": "is an archive: unpack it",
    "arrow dta feather html orc rds sas7bdat sav xml": "cannot be read: save it as Parquet or CSV",
}
EXTENSIONS = {"avro": (".avro",), "parquet": (".parquet", ".pq"), "csv": (".csv",)}


def format_name(path: str) -> str | None:
    """Returns the format of a file by its extension: only CSV files may be compressed."""
    name = path.rsplit("/", 1)[-1].lower()
    if compression_of(name) is not None and (inner := name.rpartition(".")[0]).endswith(".csv"):
        name = inner
    for kind, extensions in EXTENSIONS.items():
        if name.endswith(extensions) or f".{name}" in extensions:
            return kind
    return None


def other_kind(path: str) -> str | None:
    """Returns what a file of an extension that is not read is; None for an unknown extension."""
    name, _, extension = path.lower().rpartition(".")
    extension = extension if compression_of(path) is None else name.rpartition(".")[2]
    return next((kind for ends, kind in _OTHERS.items() if extension in ends.split()), None)


MAX_LINE_BYTES = 2**26  # longer lines, including the line end, are dropped

_BOM = b"\xef\xbb\xbf"
_UTF16_BOMS = b"\xff\xfe", b"\xfe\xff"
_FIRST_LINE = "must name its columns in its first line"
# How files of other kinds begin, which are often named .csv.
_OTHER_KINDS = {
    **{
        start: f"is compressed ({name}): name it .csv.{extension}"
        for start, name, extension in (
            (b"\x1f\x8b", "gzip", "gz"),
            (b"BZh", "bzip2", "bz2"),
            (b"\xfd7zXZ\0", "xz", "xz"),
            (b"\x28\xb5\x2f\xfd", "Zstandard", "zst"),
        )
    },
    b"PK\x03\x04": "is a workbook or a ZIP file: save its table as CSV",
    b"\xd0\xcf\x11\xe0": "is a workbook: save it as CSV",
    b"PAR1": "is a Parquet file: name it .parquet",
    b"Obj\x01": "is an Avro file: name it .avro",
    b"ARROW1": "is an Arrow file: save it as Parquet or CSV",
    b"\0\x05\x16\x07": "contains no table: macOS writes such files next to others; remove it",
}
_HTML = b"<!doctype", b"<html", b"<table"
_SEPARATORS = {";": "';'", "\t": "a tab", "|": "'|'"}


def read_header(file: IO[bytes]) -> tuple[list[str], int]:
    """Returns the column names and the byte position of the records; raises without a header."""
    head = b""
    while len(head) <= MAX_LINE_BYTES:
        chunk = file.read(2**16)
        head += chunk
        end = line_end(head)
        if end is not None and (end < len(head) or not chunk):
            break
        if not chunk:
            end = len(head)
            break
    else:
        raise FileError(f"{_FIRST_LINE}, of at most {MAX_LINE_BYTES:,} bytes")
    if not head.removeprefix(_BOM):
        return [], len(head)
    return _names(head[:end]), end


def _names(line: bytes) -> list[str]:
    """Returns the names in the first line; refuses a blank line, which would drop all records."""
    for start, reason in _OTHER_KINDS.items():
        if line.startswith(start):
            raise FileError(reason)
    if line.lstrip().lower().startswith(_HTML):
        raise FileError("is an HTML page: save its table as CSV")
    if line.startswith(_UTF16_BOMS) or b"\0" in line:
        raise FileError("must be UTF-8 text, and looks like UTF-16: save it as UTF-8")
    try:
        text = line.removeprefix(_BOM).decode("utf-8").rstrip("\r\n")
        rows = list(csv.reader([text], strict=True))
    except UnicodeDecodeError:
        raise FileError("must be UTF-8 text: its first line is not") from None
    except csv.Error:
        raise FileError(f"{_FIRST_LINE}, with quotes that close in that line") from None
    names = rows[0] if rows else []
    if not any(name.strip() for name in names):
        raise FileError(f"{_FIRST_LINE}, which is blank: remove the lines before the header")
    if len(names) == 1 and not text.startswith('"'):
        for separator, shown_as in _SEPARATORS.items():
            if separator in text:  # without a header, the text is a record, and is not shown
                raise FileError(
                    f"has one column. Is its separator {shown_as}? Only commas are read"
                )
    return names


def line_end(head: bytes) -> int | None:
    """Returns the position of the second line; a CR that ends ``head`` may be half of a CRLF."""
    ends = [at for at in (head.find(b"\n"), head.find(b"\r")) if at >= 0]
    if not ends:
        return None
    end = min(ends)
    return end + 2 if head[end : end + 2] == b"\r\n" else end + 1


# The number of compressed bytes per decompression call: .zst may grow 30,000-fold and .bz2 a
# million-fold, so a record that repeats one letter could exhaust a worker's memory.
_CHUNK_BYTES = 2**8
_ZSTANDARD_WINDOW = 2**31  # as in Beam
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    "gzip": lambda: zlib.decompressobj(wbits=31),
    "deflate": zlib.decompressobj,
    "bzip2": bz2.BZ2Decompressor,
    "lzma": lzma.LZMADecompressor,
    "zstd": lambda: _zstandard(),
}
_OF_EXTENSIONS = {
    "gz": "gzip", "bz2": "bzip2", "deflate": "deflate", "lzma": "lzma", "xz": "lzma",
    "zst": "zstd", "zstd": "zstd",
}  # fmt: skip


def compression_of(path: str) -> str | None:
    """Returns the compression of a file by its extension; None for an uncompressed file."""
    return _OF_EXTENSIONS.get(path.lower().rpartition(".")[2])


def _zstandard() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor(max_window_size=_ZSTANDARD_WINDOW).decompressobj()


def content_of(file: IO[bytes], path: str) -> IO[bytes]:
    """Returns the content of an open file, decompressed by the extension of its name."""
    compression = compression_of(path)
    return file if compression is None else cast(IO[bytes], Decompressed(file, compression))


class Decompressed:
    """The content of a compressed file: one stream, or several concatenated streams.

    Damage raises an error if the format can detect the damage: every format marks its end, but
    ``.lzma`` has no checksum, and the checksum of ``.zst`` is optional.
    """

    def __init__(self, file: IO[bytes], compression: str) -> None:
        if compression not in _DECOMPRESSORS:
            raise FileError("must be compressed as .gz, .bz2, .xz, .zst or .deflate, or not at all")
        self._file = file
        self._new_stream = _DECOMPRESSORS[compression]
        self._start()

    def read(self, size: int) -> bytes:
        """Returns the next bytes, fewer than ``size`` only at the end; raises on damage."""
        while len(self._ready) < size and self._advance():
            pass
        data = bytes(self._ready[:size])
        del self._ready[:size]
        return data

    def seek(self, position: int) -> None:
        """Moves to a position in the content, by reading again from the beginning."""
        self._file.seek(0)
        self._start()
        while position > 0 and (skipped := self.read(min(position, 2**20))):
            position -= len(skipped)

    def _start(self) -> None:
        self._stream = self._new_stream()
        self._rest = b""  # bytes read from the file after the end of a stream
        self._ready = bytearray()

    def _advance(self) -> bool:
        """Decompresses the next chunk; returns False at the end."""
        chunk = self._rest or self._file.read(_CHUNK_BYTES)
        if not chunk:
            if not self._stream.eof:
                raise FileError("must be whole: its compression ends too early")
            return False
        if self._stream.eof:
            self._stream = self._new_stream()
        try:
            self._ready += self._stream.decompress(chunk)
        except Exception:  # each compression module raises its own errors
            raise FileError("must be whole: its compression is damaged") from None
        self._rest = self._stream.unused_data if self._stream.eof else b""
        return True

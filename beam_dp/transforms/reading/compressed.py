"""Compressed files, read whole or not at all.

Beam's own reader takes a file that was cut short for a whole one, and readers of Python's ignore
what stands behind the last stream, which may be a damaged one: records would be lost silently.
"""

from __future__ import annotations

import bz2
import contextlib
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

import zstandard
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dp.transforms.errors import FileError

# Of the file, expanded at once: .zst may grow 30,000-fold, .bz2 a million times, so that one long
# run of a letter in somebody's record would take a worker's memory.
_CHUNK_BYTES = 2**8
_ZSTANDARD_WINDOW = 2**31  # as Beam has it
_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    CompressionTypes.GZIP: lambda: zlib.decompressobj(wbits=31),
    CompressionTypes.DEFLATE: zlib.decompressobj,
    CompressionTypes.BZIP2: bz2.BZ2Decompressor,
    CompressionTypes.LZMA: lzma.LZMADecompressor,
    CompressionTypes.ZSTD: lambda: zstandard.ZstdDecompressor(
        max_window_size=_ZSTANDARD_WINDOW
    ).decompressobj(),
}


def compression_of(path: str) -> str | None:
    """Returns the compression that a file's extension tells, None if it tells none."""
    kind: str = CompressionTypes.detect_compression_type(path)
    return None if kind == CompressionTypes.UNCOMPRESSED else kind


@contextlib.contextmanager
def open_file(path: str, *, decompress: bool) -> Iterator[IO[bytes]]:
    """Opens a file on any filesystem that Beam knows.

    Args:
        path: of the file.
        decompress: whether to decompress it, if its extension tells a compression.
    """
    compression = compression_of(path) if decompress else None
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        yield file if compression is None else cast(IO[bytes], Decompressed(file, compression))


class Decompressed:
    """What a compressed file holds: one stream, or several one behind the other.

    Damage raises as far as the format notices it: all have an end that must be there; ``.lzma``
    has no checksum, ``.zst`` has one where its writer wanted it.
    """

    def __init__(self, file: IO[bytes], compression: str) -> None:
        if compression not in _DECOMPRESSORS:
            raise FileError("must be compressed as .gz, .bz2, .xz, .zst or .deflate, or not at all")
        self._file = file
        self._new_stream = _DECOMPRESSORS[compression]
        self._start()

    def read(self, size: int) -> bytes:
        """Returns the next bytes, fewer than ``size`` only at the end.

        Raises:
            FileError: if the file ends before its last stream does, or holds what is none.
        """
        while len(self._ready) < size and self._advance():
            pass
        found = bytes(self._ready[:size])
        del self._ready[:size]
        return found

    def seek(self, position: int) -> None:
        """Goes to a place in what is held, from the beginning: all before it is read again."""
        self._file.seek(0)
        self._start()
        while position > 0 and (skipped := self.read(min(position, 2**20))):
            position -= len(skipped)

    def _start(self) -> None:
        self._stream = self._new_stream()
        self._rest = b""  # read from the file, and behind the end of a stream
        self._ready = bytearray()

    def _advance(self) -> bool:
        """Decompresses a little more; False at the end."""
        chunk = self._rest or self._file.read(_CHUNK_BYTES)
        if not chunk:
            if not self._stream.eof:
                raise FileError("must be whole: its compression ends too early")
            return False
        if self._stream.eof:
            self._stream = self._new_stream()
        try:
            self._ready += self._stream.decompress(chunk)
        except Exception:  # each compression has errors of its own
            raise FileError("must be whole: its compression is damaged") from None
        self._rest = self._stream.unused_data if self._stream.eof else b""
        return True

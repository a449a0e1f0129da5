"""Reads compressed files as streams of their content."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any

from beam_dp.errors import FileError

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
        found = bytes(self._ready[:size])
        del self._ready[:size]
        return found

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

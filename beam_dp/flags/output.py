"""Standard output and error of a program, which never end it: what can't be printed is dropped."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Any, TextIO

EXIT_NOT_PRINTED = 1


class LossyStream:
    """A stream that drops the rest of its text if the disk is full or the reader has gone.

    A paid job must not end because a line about it can't be printed. ``error`` is the first error;
    ``num_programs`` how many programs of this process print to it.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.error: Exception | None = None
        self.num_programs = 0

    def write(self, text: str) -> int:
        """Writes a text; letters that the stream's encoding lacks are escaped."""
        try:
            self.stream.write(text)
        except UnicodeEncodeError as error:
            return self.write(
                text.encode(error.encoding, "backslashreplace").decode(error.encoding)
            )
        except (OSError, ValueError) as error:
            self._lose(error)
        return len(text)

    def flush(self) -> None:
        """Writes what is buffered."""
        try:
            self.stream.flush()
        except (OSError, ValueError) as error:
            self._lose(error)

    def _lose(self, error: Exception) -> None:
        self.error = self.error or error
        # What is still buffered must not fail again when the interpreter ends.
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "w") as nothing:
            os.dup2(nothing.fileno(), self.stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def open_closed_streams() -> None:
    """Opens standard streams that the caller closed, so that no other file takes their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8"))


@contextlib.contextmanager
def lasting_output() -> Iterator[LossyStream]:
    """Keeps failing standard streams from ending a program; yields that of standard output.

    Programs may overlap in one process. The last one to end restores a stream, unless other code
    has replaced it.
    """
    open_closed_streams()
    streams = {name: _lossy(getattr(sys, name)) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        stream.num_programs += 1
        setattr(sys, name, stream)
    try:
        yield streams["stdout"]
    finally:
        for name, stream in streams.items():
            stream.flush()
            stream.num_programs -= 1
            if stream.num_programs == 0 and getattr(sys, name) is stream:
                setattr(sys, name, stream.stream)


def _lossy(stream: TextIO | LossyStream) -> LossyStream:
    return stream if isinstance(stream, LossyStream) else LossyStream(stream)


def code_of_lost(output: LossyStream) -> int:
    """Returns the exit code of a program that only prints: 1, and a line, if not all was printed.

    A reader such as `head` that has closed its pipe has read what it wanted.
    """
    if output.error is None or isinstance(output.error, BrokenPipeError):
        return 0
    reason = getattr(output.error, "strerror", None) or str(output.error)
    sys.stderr.write(f"error: standard output can't be written: {reason}\n")
    return EXIT_NOT_PRINTED

"""The share of a stage that workers in this process have done, for lines on a terminal.

A share is read at intervals of time only. So it shows no more than the time of the stage does: the
number of its parts, which may depend on the records or on noise, is never printed.
"""

from __future__ import annotations

import threading


class ShareDone:
    """Counts the parts of a stage: ranges of files to read, or files to write."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        """Forgets the parts of earlier jobs."""
        self._found = self._done = 0

    def found(self, number: int = 1) -> None:
        """Counts parts that have to be done."""
        with self._lock:
            self._found += number

    def done(self) -> None:
        """Counts a part that is done."""
        with self._lock:
            self._done += 1

    def text(self) -> str:
        """Returns the share of a stage that has begun, and has not ended; else an empty text."""
        with self._lock:
            is_open = 0 < self._found > self._done
            return f"{100 * self._done // self._found} % of the {self._name}" if is_open else ""


READ = ShareDone("files are read")
WRITTEN = ShareDone("records are written")

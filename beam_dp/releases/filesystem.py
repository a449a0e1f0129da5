"""Where a release is written: what committing one needs of a filesystem."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, Protocol

from beam_dp.errors import InputError
from beam_dp.releases.card import PayloadFile

DRAFT_PREFIX = ".draft-"


class Store(Protocol):
    """A directory on one filesystem that will hold a release.

    Drafts are private folders inside it, each of one attempt. ``create_exclusively`` is what Beam's
    own filesystems lack: a file that appears complete, or not at all, and for one caller only.
    """

    def open_draft(self, draw_id: str) -> str:
        """Makes the directory and a new private folder in it, and returns the folder's name."""

    def write_draft(
        self, draft: str, name: str, write: Callable[[BinaryIO], object]
    ) -> PayloadFile:
        """Writes one file of a draft, durably, and returns what it holds."""

    def create_exclusively(self, draft: str, name: str) -> bool:
        """Publishes a file of a draft under its name, unless that exists: then returns False."""

    def place(self, draft: str, name: str) -> None:
        """Moves a file of a draft to its name, if it is still in the draft."""

    def fingerprint(self, name: str, draft: str | None = None) -> PayloadFile | None:
        """Returns what a file holds, or None where there is no such file."""

    def read_card(self, name: str, max_bytes: int) -> str | None:
        """Returns the text of a file, or None where there is no such file."""

    def drafts(self) -> list[str]:
        """Returns the names of the drafts that are there."""

    def remove_draft(self, draft: str) -> None:
        """Removes a draft, and the directory if this store made it and nothing else is in it."""


def store_for(directory: str | os.PathLike[str]) -> Store:
    """Returns the store of a directory.

    Raises:
        InputError: if it is on a filesystem that has no adapter.
    """
    return LocalStore(local_path(directory, "output"))


def local_path(directory: str | os.PathLike[str], name: str) -> Path:
    """Returns the path of a local directory.

    Raises:
        InputError: if it is an URL, or no path at all.
    """
    text = os.fspath(directory)
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        condition = "must be a local directory; other filesystems are not supported yet"
        raise InputError(name, text, condition)
    if not text or "\0" in text:
        raise InputError(name, text, "must be the path of a directory")
    return Path(text)


class LocalStore:
    """A directory of the local filesystem, which must know hard links."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._is_new = False

    def open_draft(self, draw_id: str) -> str:
        """Makes the directory and a new private folder in it, and returns the folder's name."""
        self._is_new = self._is_new or not self._path.exists()
        self._path.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{DRAFT_PREFIX}{draw_id}-", dir=self._path)).name

    def write_draft(
        self, draft: str, name: str, write: Callable[[BinaryIO], object]
    ) -> PayloadFile:
        """Writes one file of a draft, durably, and returns what it holds."""
        with open(self._path / draft / name, "xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        written = self.fingerprint(name, draft)
        if written is None:
            raise FileNotFoundError(2, "the draft was removed", str(self._path / draft / name))
        return written

    def create_exclusively(self, draft: str, name: str) -> bool:
        """Publishes a file of a draft under its name, unless that exists: then returns False."""
        try:
            os.link(self._path / draft / name, self._path / name, follow_symlinks=False)
        except FileExistsError:
            return False
        self._sync_directory()
        return True

    def place(self, draft: str, name: str) -> None:
        """Moves a file of a draft to its name, if it is still in the draft."""
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._path / draft / name, self._path / name)
            self._sync_directory()

    def fingerprint(self, name: str, draft: str | None = None) -> PayloadFile | None:
        """Returns what a file holds, or None where there is no such file."""
        try:
            with open(self._path / (draft or ".") / name, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                return PayloadFile(digest, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            return None

    def read_card(self, name: str, max_bytes: int) -> str | None:
        """Returns the text of a file, or None where there is no such file."""
        try:
            with open(self._path / name, "rb") as file:
                return file.read(max_bytes).decode(errors="replace")
        except FileNotFoundError:
            return None

    def drafts(self) -> list[str]:
        """Returns the names of the drafts that are there."""
        try:
            return sorted(name for name in os.listdir(self._path) if name.startswith(DRAFT_PREFIX))
        except FileNotFoundError:
            return []

    def remove_draft(self, draft: str) -> None:
        """Removes a draft, and the directory if this store made it and nothing else is in it."""
        shutil.rmtree(self._path / draft, ignore_errors=True)
        if self._is_new:
            with contextlib.suppress(OSError):
                self._path.rmdir()

    def _sync_directory(self) -> None:
        """Makes a new name durable."""
        descriptor = os.open(self._path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

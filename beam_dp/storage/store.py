"""Stores that a release can be committed to: the interface, and local directories."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from beam_dp.errors import InputError

_FILE = "file://"
DRAFT_PREFIX = ".draft-"
TRIAL = "trial"  # the draw id in the name of a trial draft
MAX_CARD_BYTES = 2**26
FREE = "must be a directory that does not exist yet, or an empty one"


class DamagedFileError(Exception):
    """A file violates its format; the message describes the violation."""


@dataclass(frozen=True)
class PayloadFile:
    """The digest and size of a file, as stated on the card of a release."""

    sha256: str
    num_bytes: int


class Store(Protocol):
    """A directory on one filesystem that contains, or will contain, a release.

    Drafts are private folders in the directory, one per attempt. Unlike Beam's filesystems, a store
    has ``publish``: the file appears completely or not at all, and only one caller succeeds.
    Methods raise OSError on failure unless their docstring states another error.
    """

    def check_free(self, beside: str | None = None) -> None:
        """Raises InputError unless the directory is writable with only drafts; writes nothing.

        ``beside``: the name of a subfolder that may exist, too.
        """

    def trial(self) -> AbstractContextManager[Store]:
        """Yields a new draft as a separate store, and removes the draft at the end."""

    def remove_old_trials(self) -> None:
        """Removes what killed trials left outside of the directory."""

    def exists(self) -> bool:
        """Returns whether the directory exists."""

    def folders(self, inside: str, holding: str | None = None) -> list[str]:
        """Returns the names of the subfolders of a folder, sorted.

        Args:
            inside: the path of the folder relative to the directory; it need not exist.
            holding: the name of a published file; only subfolders with such a file are returned.
        """

    def read(self, name: str, num_bytes: int | None = None) -> bytes:
        """Returns the content of a published file.

        ``num_bytes``: the required size; None for any size up to ``MAX_CARD_BYTES``.

        Raises:
            DamagedFileError: if the file has another size or is not a regular file.
        """

    def fingerprint(self, name: str, draft: str | None = None) -> PayloadFile | None:
        """Returns the digest and size of a file, or None if the file does not exist."""

    def open_draft(self, draw_id: str) -> str:
        """Creates the directory and a new private folder in it; returns the folder's name."""

    def write_draft(self, draft: str, name: str, data: bytes) -> PayloadFile:
        """Writes one file of a draft durably; returns the file's digest and size."""

    def publish(self, draft: str, name: str, data: bytes) -> bool:
        """Writes a file of a draft and publishes it under its name, unless the name exists.

        Fails, without publishing, if the draft was withdrawn at any earlier time.

        Returns:
            Whether this call published the file.
        """

    def place(self, draft: str, name: str, into: str | None = None) -> None:
        """Moves a file out of a draft, if it is still there, to its final name or another draft."""

    def drafts(self) -> list[str]:
        """Returns the names of the existing drafts."""

    def withdraw(self, draft: str) -> str:
        """Ensures that nothing more is published from a draft; returns the draft's new name."""

    def remove_draft(self, draft: str) -> None:
        """Removes a draft; also removes the directory if it is empty and this store created it."""


def check_size(num_bytes: int, promised: int | None) -> None:
    """Refuses a size other than ``promised``; if that is None, a size over ``MAX_CARD_BYTES``."""
    if promised is not None and num_bytes != promised:
        raise DamagedFileError("does not have the size on its card")
    if promised is None and num_bytes > MAX_CARD_BYTES:
        raise DamagedFileError("is too large for a card")


_TRIAL_SECONDS = 3600
WITHDRAWN = "~"  # a character that tempfile never uses in names
# Open in binary mode, without following symbolic links or waiting for a writer, and close in child
# processes. Some systems lack some of these flags.
_READING = os.O_RDONLY
for _flag in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
    _READING |= getattr(os, _flag, 0)


class LocalStore:
    """A directory of the local filesystem, which must support hard links."""

    def __init__(self, path: Path, name: str = "output") -> None:
        self._path = path
        self._name = name
        self._is_new = False

    def check_free(self, beside: str | None = None) -> None:
        """Raises InputError if the directory contains more than drafts or isn't writable."""
        try:
            names = (name for name in os.listdir(self._path) if name != beside)
            if any(not name.startswith(DRAFT_PREFIX) for name in names):
                raise self._refused(FREE)
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            raise self._refused(FREE) from None
        except OSError as error:
            condition = f"must be a directory that can be written: {error.strerror}"
            raise self._refused(condition) from None
        existing = self._existing()
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            condition = f"must be in a directory that can be written, and {str(existing)!r} is not"
            raise self._refused(condition)

    @contextlib.contextmanager
    def trial(self) -> Iterator[Store]:
        """Yields a new folder as a store, in the directory or in its nearest existing parent."""
        self.remove_old_trials()
        folder = Path(tempfile.mkdtemp(prefix=f"{DRAFT_PREFIX}{TRIAL}-", dir=self._existing()))
        try:
            yield LocalStore(folder, self._name)
        finally:
            shutil.rmtree(folder)

    def remove_old_trials(self) -> None:
        """Removes the folders of trials that were killed: a trial takes no hour."""
        oldest = time.time() - _TRIAL_SECONDS
        for folder in self._existing().glob(f"{DRAFT_PREFIX}{TRIAL}-*"):
            with contextlib.suppress(OSError):
                if folder.stat().st_mtime < oldest:
                    shutil.rmtree(folder)

    def free_bytes(self) -> float:
        """Returns the free space of the filesystem."""
        return shutil.disk_usage(self._existing()).free

    def exists(self) -> bool:
        """Returns whether the directory exists."""
        return self._path.is_dir()

    def folders(self, inside: str, holding: str | None = None) -> list[str]:
        """Returns the names of the subfolders of a folder, sorted."""
        try:
            with os.scandir(self._path / inside) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        if holding is not None:
            names = [name for name in names if (self._path / inside / name / holding).exists()]
        return sorted(names)

    def read(self, name: str, num_bytes: int | None = None) -> bytes:
        """Returns the content of a regular file; refuses symbolic links."""
        if not hasattr(os, "O_NOFOLLOW") and (self._path / name).is_symlink():
            raise DamagedFileError("is not a regular file")
        descriptor = os.open(self._path / name, _READING)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DamagedFileError("is not a regular file")
            check_size(status.st_size, num_bytes)
            return file.read(status.st_size)

    def fingerprint(self, name: str, draft: str | None = None) -> PayloadFile | None:
        """Returns the digest and size of a file, or None if the file does not exist."""
        try:
            with open(self._path / (draft or ".") / name, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                return PayloadFile(digest, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            return None

    def open_draft(self, draw_id: str) -> str:
        """Creates the directory and a new private folder in it; returns the folder's name."""
        self._is_new = self._is_new or not self._path.exists()
        self._path.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{DRAFT_PREFIX}{draw_id}-", dir=self._path)).name

    def write_draft(self, draft: str, name: str, data: bytes) -> PayloadFile:
        """Writes one file of a draft durably; returns the file's digest and size."""
        with open(self._path / draft / name, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written = self.fingerprint(name, draft)
        if written is None:
            raise FileNotFoundError(2, "the draft was removed", str(self._path / draft / name))
        return written

    def publish(self, draft: str, name: str, data: bytes) -> bool:
        """Writes a file of a draft and publishes it under its name, unless the name exists."""
        self.write_draft(draft, name, data)
        return self.create_exclusively(draft, name)

    def create_exclusively(self, draft: str, name: str) -> bool:
        """Links a file of a draft to its final name; returns False if the name exists."""
        try:
            os.link(self._path / draft / name, self._path / name, follow_symlinks=False)
        except FileExistsError:
            return False
        sync_directory(self._path)
        return True

    def place(self, draft: str, name: str, into: str | None = None) -> None:
        """Moves a file out of a draft, if it is still there, to its final name or another draft."""
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._path / draft / name, self._path / (into or ".") / name)
            sync_directory(self._path)

    def drafts(self) -> list[str]:
        """Returns the names of the existing drafts."""
        try:
            return sorted(name for name in os.listdir(self._path) if name.startswith(DRAFT_PREFIX))
        except FileNotFoundError:
            return []

    def withdraw(self, draft: str) -> str:
        """Renames a draft, so that the draft's writer can't find it; returns the new name."""
        if draft.endswith(WITHDRAWN):
            return draft
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._path / draft, self._path / (draft + WITHDRAWN))
        return draft + WITHDRAWN

    def remove_draft(self, draft: str) -> None:
        """Removes a draft; also removes the directory if it is empty and this store created it."""
        shutil.rmtree(self._path / draft, ignore_errors=True)
        if self._is_new:
            with contextlib.suppress(OSError):
                self._path.rmdir()

    def _existing(self) -> Path:
        """Returns the directory, or its nearest existing parent."""
        existing = self._path.absolute()
        # A missing drive has no parent folder.
        while not os.path.lexists(existing) and existing != existing.parent:
            existing = existing.parent
        return existing

    def _refused(self, condition: str) -> InputError:
        return InputError(self._name, os.fspath(self._path), condition)


def sync_directory(path: str | Path) -> None:
    """Makes created and removed names in a directory durable, if the system supports that."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows can't open directories
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new_file(path: str | os.PathLike[str], data: bytes, *, is_private: bool = False) -> None:
    """Writes a file that must not exist yet; deletes the file if writing fails."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags, 0o600 if is_private else 0o666)
        with open(handle, "wb") as file:
            try:
                file.write(data)
                file.flush()
            except BaseException:  # including an interrupt
                os.unlink(path)
                raise
    except FileExistsError:
        condition = "must not exist: nothing is overwritten"
        raise InputError("output", os.fspath(path), condition) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        condition = f"must be a file that can be written: {reason}"
        raise InputError("output", os.fspath(path), condition) from None


def local_path(directory: str | os.PathLike[str], name: str) -> Path:
    """Returns the path of a local directory."""
    text = os.fspath(directory)
    if is_url(text):
        raise InputError(name, text, "must be a local directory")
    if not text or "\0" in text:
        raise InputError(name, text, "must be the path of a directory")
    try:
        os.path.abspath(text)
    except OSError:
        condition = "must be an absolute path, because the current folder was removed"
        raise InputError(name, text, condition) from None
    return Path(text)


def plain_path(argument: str, path: str) -> str:
    """Returns the local path of a ``file:///PATH`` URL; returns other paths unchanged."""
    if not path.lower().startswith(_FILE):
        return path
    local = urllib.parse.unquote(path[len(_FILE) :]).removeprefix("localhost")
    if not local.startswith("/"):
        raise InputError(argument, path, "must be file:///PATH, or a path")
    return local


def is_url(text: str) -> bool:
    """Returns whether a string is a URL rather than a local path."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None

"""Local folders as a place where a release can be committed."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from beam_dp.errors import InputError
from beam_dp.storage import store

_WITHDRAWN = "~"  # in no name that tempfile makes
# Bytes as they are, no link, no wait for a writer: not every system has all of these.
_READING = os.O_RDONLY
for _flag in ("O_BINARY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC"):
    _READING |= getattr(os, _flag, 0)


class LocalStore:
    """A directory of the local filesystem, which must know hard links."""

    def __init__(self, path: Path, name: str = "output") -> None:
        self._path = path
        self._name = name
        self._is_new = False

    def check_free(self) -> None:
        """Raises InputError if it holds more than drafts, or can't be written; writes nothing."""
        try:
            if any(not name.startswith(store.DRAFT_PREFIX) for name in os.listdir(self._path)):
                raise self._refused(store.FREE)
        except FileNotFoundError:
            pass
        except NotADirectoryError:
            raise self._refused(store.FREE) from None
        except OSError as error:
            condition = f"must be a directory that can be written: {error.strerror}"
            raise self._refused(condition) from None
        existing = self._existing()
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            condition = f"must be in a directory that can be written, and {str(existing)!r} is not"
            raise self._refused(condition)

    @contextlib.contextmanager
    def trial(self) -> Iterator[store.Store]:
        """Returns a new folder as a store: in the directory, or in what it would be made in."""
        folder = Path(
            tempfile.mkdtemp(prefix=f"{store.DRAFT_PREFIX}{store.TRIAL}-", dir=self._existing())
        )
        try:
            yield LocalStore(folder, self._name)
        finally:
            shutil.rmtree(folder)

    def exists(self) -> bool:
        """Returns whether there is such a directory."""
        return self._path.is_dir()

    def folders(self, inside: str, holding: str | None = None) -> list[str]:
        """Returns the names of the folders in one of its folders, in order."""
        try:
            with os.scandir(self._path / inside) as entries:
                names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        except (FileNotFoundError, NotADirectoryError):
            return []
        if holding is not None:
            names = [name for name in names if (self._path / inside / name / holding).exists()]
        return sorted(names)

    def read(self, name: str, num_bytes: int | None = None) -> bytes:
        """Returns a regular file that is no link."""
        if not hasattr(os, "O_NOFOLLOW") and (self._path / name).is_symlink():
            raise store.DamagedFileError("is not a regular file")
        descriptor = os.open(self._path / name, _READING)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise store.DamagedFileError("is not a regular file")
            store.check_size(status.st_size, num_bytes)
            return file.read(status.st_size)

    def fingerprint(self, name: str, draft: str | None = None) -> store.PayloadFile | None:
        """Returns what a file holds, or None where there is no such file."""
        try:
            with open(self._path / (draft or ".") / name, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                return store.PayloadFile(digest, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            return None

    def open_draft(self, draw_id: str) -> str:
        """Makes the directory and a new private folder in it, and returns the folder's name."""
        self._is_new = self._is_new or not self._path.exists()
        self._path.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{store.DRAFT_PREFIX}{draw_id}-", dir=self._path)).name

    def write_draft(self, draft: str, name: str, data: bytes) -> store.PayloadFile:
        """Writes one file of a draft, durably, and returns what it holds."""
        with open(self._path / draft / name, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        written = self.fingerprint(name, draft)
        if written is None:
            raise FileNotFoundError(2, "the draft was removed", str(self._path / draft / name))
        return written

    def publish(self, draft: str, name: str, data: bytes) -> bool:
        """Writes a file of a draft, and publishes it under its name unless that exists."""
        self.write_draft(draft, name, data)
        return self.create_exclusively(draft, name)

    def create_exclusively(self, draft: str, name: str) -> bool:
        """Links a file of a draft to its name; returns False where that exists."""
        try:
            os.link(self._path / draft / name, self._path / name, follow_symlinks=False)
        except FileExistsError:
            return False
        sync_directory(self._path)
        return True

    def place(self, draft: str, name: str) -> None:
        """Moves a file of a draft to its name, if it is still in the draft."""
        with contextlib.suppress(FileNotFoundError):
            os.replace(self._path / draft / name, self._path / name)
            sync_directory(self._path)

    def drafts(self) -> list[str]:
        """Returns the names of the drafts that are there."""
        try:
            return sorted(
                name for name in os.listdir(self._path) if name.startswith(store.DRAFT_PREFIX)
            )
        except FileNotFoundError:
            return []

    def withdraw(self, draft: str) -> str:
        """Renames a draft, so that its writer does not find it again; returns its new name."""
        if draft.endswith(_WITHDRAWN):
            return draft
        with contextlib.suppress(FileNotFoundError):
            os.rename(self._path / draft, self._path / (draft + _WITHDRAWN))
        return draft + _WITHDRAWN

    def remove_draft(self, draft: str) -> None:
        """Removes a draft, and the directory if this store made it and nothing else is in it."""
        shutil.rmtree(self._path / draft, ignore_errors=True)
        if self._is_new:
            with contextlib.suppress(OSError):
                self._path.rmdir()

    def _existing(self) -> Path:
        """Returns the directory, or the nearest above it that exists."""
        existing = self._path.absolute()
        # A drive that is not there has no folder above it.
        while not os.path.lexists(existing) and existing != existing.parent:
            existing = existing.parent
        return existing

    def _refused(self, condition: str) -> InputError:
        return InputError(self._name, os.fspath(self._path), condition)


def sync_directory(path: str | Path) -> None:
    """Makes durable that a name in a directory is new, or is gone, where a system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no directory
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new_file(path: str | os.PathLike[str], data: bytes, *, is_private: bool = False) -> None:
    """Writes a file that must not exist yet; of one that can't be written whole nothing is left.

    Example:
        >>> write_new_file("domain.json", b"{}")  # doctest: +SKIP
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        handle = os.open(path, flags, 0o600 if is_private else 0o666)
        with open(handle, "wb") as file:
            try:
                file.write(data)
                file.flush()
            except BaseException:  # an interrupt, too
                os.unlink(path)
                raise
    except FileExistsError:
        condition = "must not exist: nothing is overwritten"
        raise InputError("output", os.fspath(path), condition) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a path"
        condition = f"must be a file that can be written: {reason}"
        raise InputError("output", os.fspath(path), condition) from None

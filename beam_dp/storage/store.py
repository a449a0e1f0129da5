"""Where a release can be committed: the interface, local directories, and what a URL names."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from beam_dp.errors import InputError

if TYPE_CHECKING:
    from beam_dp.storage.bucket import Bucket

DRAFT_PREFIX = ".draft-"
TRIAL = "trial"  # the draw id of a trial's draft
MAX_CARD_BYTES = 2**26
FREE = "must be a directory that does not exist yet, or an empty one"


class DamagedFileError(Exception):
    """The bytes are not what the format says; the message says what is wrong."""


@dataclass(frozen=True)
class PayloadFile:
    """What a file holds, as the card of a release states it."""

    sha256: str
    num_bytes: int


class Store(Protocol):
    """A directory on one filesystem that holds a release, or will.

    Drafts are private folders inside it, each of one attempt. ``publish`` is what Beam's own
    filesystems lack: a file that appears complete, or not at all, and for one caller only.
    Methods raise OSError on failure unless they say otherwise.
    """

    def check_free(self) -> None:
        """Raises InputError if it holds more than drafts, or can't be written; writes nothing."""

    def trial(self) -> AbstractContextManager[Store]:
        """Returns a new draft as a store of its own, gone at the end; the directory is not made."""

    def exists(self) -> bool:
        """Returns whether there is such a directory."""

    def folders(self, inside: str, holding: str | None = None) -> list[str]:
        """Returns the names of the folders in one of its folders, in order.

        Args:
            inside: the path of that folder, from the directory on; it need not exist.
            holding: returns only folders that hold a published file of this name.
        """

    def read(self, name: str, num_bytes: int | None = None) -> bytes:
        """Returns a published file: of this size, or else of at most ``MAX_CARD_BYTES``.

        Raises:
            DamagedFileError: if it is of another size, or no regular file.
        """

    def fingerprint(self, name: str, draft: str | None = None) -> PayloadFile | None:
        """Returns what a file holds, or None where there is no such file."""

    def open_draft(self, draw_id: str) -> str:
        """Makes the directory and a new private folder in it, and returns the folder's name."""

    def write_draft(self, draft: str, name: str, data: bytes) -> PayloadFile:
        """Writes one file of a draft, durably, and returns what it holds."""

    def publish(self, draft: str, name: str, data: bytes) -> bool:
        """Writes a file of a draft, and publishes it under its name unless that exists.

        Fails, and publishes nothing, if the draft was withdrawn, at whatever time.

        Returns:
            Whether this call published it.
        """

    def place(self, draft: str, name: str) -> None:
        """Moves a file of a draft to its name, if it is still in the draft."""

    def drafts(self) -> list[str]:
        """Returns the names of the drafts that are there."""

    def withdraw(self, draft: str) -> str:
        """Ensures that nothing more is published from a draft; returns its new name."""

    def remove_draft(self, draft: str) -> None:
        """Removes a draft, and the directory if this store made it and nothing else is in it."""


def check_size(num_bytes: int, promised: int | None) -> None:
    """Refuses a file of another size than promised, or, without a promise, one too large."""
    if promised is not None and num_bytes != promised:
        raise DamagedFileError("does not have the size of its card")
    if promised is None and num_bytes > MAX_CARD_BYTES:
        raise DamagedFileError("is too large for a card")


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
            if any(not name.startswith(DRAFT_PREFIX) for name in os.listdir(self._path)):
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
        """Returns a new folder as a store: in the directory, or in what it would be made in."""
        folder = Path(tempfile.mkdtemp(prefix=f"{DRAFT_PREFIX}{TRIAL}-", dir=self._existing()))
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
            raise DamagedFileError("is not a regular file")
        descriptor = os.open(self._path / name, _READING)
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise DamagedFileError("is not a regular file")
            check_size(status.st_size, num_bytes)
            return file.read(status.st_size)

    def fingerprint(self, name: str, draft: str | None = None) -> PayloadFile | None:
        """Returns what a file holds, or None where there is no such file."""
        try:
            with open(self._path / (draft or ".") / name, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                return PayloadFile(digest, os.fstat(file.fileno()).st_size)
        except FileNotFoundError:
            return None

    def open_draft(self, draw_id: str) -> str:
        """Makes the directory and a new private folder in it, and returns the folder's name."""
        self._is_new = self._is_new or not self._path.exists()
        self._path.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{DRAFT_PREFIX}{draw_id}-", dir=self._path)).name

    def write_draft(self, draft: str, name: str, data: bytes) -> PayloadFile:
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
            return sorted(name for name in os.listdir(self._path) if name.startswith(DRAFT_PREFIX))
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
    """Makes new and removed names in a directory durable, where the system can."""
    if not hasattr(os, "O_DIRECTORY"):
        return  # Windows opens no directory
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_new_file(path: str | os.PathLike[str], data: bytes, *, is_private: bool = False) -> None:
    """Writes a file that must not exist yet; removes it again if it can't be written completely.

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


def store_for(directory: str | os.PathLike[str], name: str) -> Store:
    """Returns the store of a directory, without looking at it.

    ``directory``: a local path, ``gs://BUCKET/FOLDER`` or ``s3://BUCKET/FOLDER``.

    Example:
        >>> type(store_for("gs://releases/visits", "output")).__name__
        'BucketStore'
    """
    if not isinstance(directory, str | os.PathLike):
        raise InputError(name, directory, "must be a directory, as a path or a URL")
    text = os.fspath(directory)
    if not is_url(text):
        return LocalStore(local_path(text, name), name)
    bucket = bucket_of(text)
    if bucket is not None:
        from beam_dp.storage.bucket import BucketStore

        return BucketStore(bucket, text, name)
    condition = "must be a local directory, gs://BUCKET/FOLDER or s3://BUCKET/FOLDER"
    raise InputError(name, text, condition)


def bucket_of(url: str) -> Bucket | None:
    """Returns the bucket of an URL, without looking at it; None where it names no bucket."""
    scheme, _, rest = url.partition("://")
    name, _, folder = rest.partition("/")
    if scheme == "gs":
        from beam_dp.storage.google import GoogleBucket

        return GoogleBucket(name)
    if scheme == "s3":
        from beam_dp.storage.amazon import AmazonBucket

        return AmazonBucket(name, folder.rstrip("/"))
    return None


def local_path(directory: str | os.PathLike[str], name: str) -> Path:
    """Returns the path of a local directory."""
    text = os.fspath(directory)
    if is_url(text):
        raise InputError(name, text, "must be a local directory")
    if not text or "\0" in text:
        raise InputError(name, text, "must be the path of a directory")
    return Path(text)


def is_url(text: str) -> bool:
    """Returns whether a text names a directory on another filesystem than the local one."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text) is not None

"""Commits releases in folders of an object store.

A bucket has no folders, links or renames, so a draft is a set of objects whose names share a
prefix. Publishing is still one atomic step of the service:

- Opening a draft creates the draft's object ``commit``, without content.
- To publish a file, the writer first overwrites ``commit`` with the file's bytes, if ``commit``
  still exists. The service then copies ``commit`` to the file's name, if ``commit`` still has that
  version and the name does not exist yet.
- Withdrawing a draft deletes ``commit``. From then on both steps fail. (No service documents
  whether a copy already in progress fails, too. Copying a card takes milliseconds.)
"""

from __future__ import annotations

import contextlib
import copy
import errno
import hashlib
import itertools
import re
import tempfile
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol

from beam_dp.errors import InputError
from beam_dp.storage.store import DRAFT_PREFIX, FREE, TRIAL, PayloadFile, Store, check_size

_COMMIT = "commit"
# Object names have at most 1,024 bytes, including the names of drafts and files.
_MAX_FOLDER_BYTES = 800


class BucketSettingsError(Exception):
    """A setting of the bucket makes it unsafe for private drafts."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


class FoundObject(NamedTuple):
    """An object in a listing; ``modified`` is the content's time in seconds since 1970, UTC."""

    name: str
    num_bytes: int
    modified: float


class Bucket(Protocol):
    """A set of named objects; an object exists completely or not at all.

    Every call sees the effects of all earlier calls, in any process. A version is a string that
    identifies one content of the object with that name. Failures raise OSError, or
    FileNotFoundError if an object is missing.
    """

    def check(self) -> None:
        """Raises BucketSettingsError if no draft should be written here.

        Reasons: the bucket keeps deleted objects or is open to the public; a permission is missing.
        """

    def create(self, name: str) -> str | None:
        """Creates an object without a file's content; returns its version, or None if it exists."""

    def write(self, name: str, data: bytes) -> None:
        """Writes an object, whether it exists or not."""

    def replace(self, name: str, version: str, data: bytes) -> str | None:
        """Overwrites an object only if it has ``version``; returns the new version or None."""

    def copy(self, source: str, target: str) -> None:
        """Copies an object, whether the target exists or not."""

    def copy_exclusively(self, source: str, version: str, target: str) -> bool:
        """Copies an object; returns False if the object's version changed or the target exists.

        May also return False for a retried request whose first response was lost.
        """

    def size(self, name: str) -> int:
        """Returns the size of an object in bytes."""

    def read(self, name: str, file: BinaryIO) -> None:
        """Writes the content of an object to a file and verifies it."""

    def listed(self, prefix: str) -> Iterator[FoundObject]:
        """Returns the objects whose names have this prefix, sorted by name."""

    def delete(self, name: str) -> None:
        """Deletes an object for good; does nothing if the object is missing."""


class BucketStore:
    """A folder of a bucket."""

    def __init__(self, bucket: Bucket, url: str, name: str) -> None:
        folder = url.partition("://")[2].partition("/")[2].rstrip("/")
        if (
            not folder
            or len(folder.encode()) > _MAX_FOLDER_BYTES
            or re.search(r"[\x00-\x1f\x7f]", folder)
            or any(part in ("", ".", "..") for part in folder.split("/"))
        ):
            scheme = url.partition("://")[0]
            raise InputError(name, url, f"must be {scheme}://BUCKET/FOLDER")
        self._bucket = bucket
        self._url = url
        self._name = name
        self._folder = f"{folder}/"
        self._versions: dict[str, str] = {}

    def check_free(self, beside: str | None = None) -> None:
        """Raises InputError if the folder contains more than drafts or isn't writable."""
        try:
            self._bucket.check()
            kept = (DRAFT_PREFIX,) if beside is None else (DRAFT_PREFIX, f"{beside}/")
            prefixes = tuple(self._folder + prefix for prefix in kept)
            is_free = all(
                name == self._folder or name.startswith(prefixes)
                for name in self._names(self._folder)
            )
        except BucketSettingsError as error:
            raise InputError(self._name, self._url, error.condition) from None
        except OSError as error:
            condition = f"must be a directory that can be written: {error.strerror}"
            raise InputError(self._name, self._url, condition) from None
        if not is_free:
            raise InputError(self._name, self._url, FREE)

    @contextlib.contextmanager
    def trial(self) -> Iterator[Store]:
        """Yields a new draft as a separate store, and removes the draft at the end."""
        draft = self.open_draft(TRIAL)
        inside = copy.copy(self)
        inside._folder, inside._versions = f"{self._folder}{draft}/", {}
        try:
            yield inside
        finally:
            self.remove_draft(draft)

    def remove_old_trials(self) -> None:
        """Removes nothing: here a trial is a draft inside the folder."""

    def exists(self) -> bool:
        """Returns whether the folder exists."""
        return any(True for _ in self._names(self._folder))

    def folders(self, inside: str, holding: str | None = None) -> list[str]:
        """Returns the names of the subfolders of a folder, sorted."""
        prefix, names = f"{self._folder}{inside}/", set()
        for name in self._names(prefix):
            folder, slash, rest = name[len(prefix) :].partition("/")
            if folder and slash and (holding is None or rest == holding):
                names.add(folder)
        return sorted(names)

    def read(self, name: str, num_bytes: int | None = None) -> bytes:
        """Returns the content of a published file."""
        check_size(self._bucket.size(self._folder + name), num_bytes)
        with tempfile.TemporaryFile() as file:
            self._bucket.read(self._folder + name, file)
            check_size(file.tell(), num_bytes)
            file.seek(0)
            return file.read()

    def fingerprint(self, name: str, draft: str | None = None) -> PayloadFile | None:
        """Returns the digest and size of a file, or None if the file does not exist."""
        try:
            with tempfile.TemporaryFile() as file:
                self._bucket.read(self._named(name, draft), file)
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                return PayloadFile(digest, file.tell())
        except FileNotFoundError:
            return None

    def open_draft(self, draw_id: str) -> str:
        """Creates the object ``commit`` of a new draft; returns the draft's name."""
        try:
            self._bucket.check()
        except BucketSettingsError as error:
            raise OSError(errno.EPERM, f"it {error.condition}") from None
        for number in itertools.count():
            draft = f"{DRAFT_PREFIX}{draw_id}-{number}"
            version = self._bucket.create(self._named(_COMMIT, draft))
            if version is not None:
                self._versions[draft] = version
                return draft
        raise AssertionError("there is always another number")

    def write_draft(self, draft: str, name: str, data: bytes) -> PayloadFile:
        """Writes one file of a draft; returns the file's digest and size."""
        self._bucket.write(self._named(name, draft), data)
        return PayloadFile(hashlib.sha256(data).hexdigest(), len(data))

    def publish(self, draft: str, name: str, data: bytes) -> bool:
        """Publishes a file of a draft, unless the draft was withdrawn or the file's name exists."""
        commit = self._named(_COMMIT, draft)
        version = self._bucket.replace(commit, self._versions[draft], data)
        with contextlib.suppress(FileNotFoundError):
            if version is not None:
                return self._bucket.copy_exclusively(commit, version, self._folder + name)
        raise FileNotFoundError(errno.ENOENT, "the draft was withdrawn")

    def place(self, draft: str, name: str, into: str | None = None) -> None:
        """Moves a file out of a draft, if it is still there, to its final name or another draft."""
        with contextlib.suppress(FileNotFoundError):
            self._bucket.copy(self._named(name, draft), self._named(name, into))
            self._bucket.delete(self._named(name, draft))

    def drafts(self) -> list[str]:
        """Returns the names of the existing drafts."""
        names = self._names(self._folder + DRAFT_PREFIX)
        return sorted({name[len(self._folder) :].partition("/")[0] for name in names})

    def withdraw(self, draft: str) -> str:
        """Deletes the object ``commit`` of a draft, so that nothing more can be published."""
        self._bucket.delete(self._named(_COMMIT, draft))
        return draft

    def remove_draft(self, draft: str) -> None:
        """Deletes all objects of a draft."""
        for name in self._names(f"{self._folder}{draft}/"):
            self._bucket.delete(name)

    def _names(self, prefix: str) -> Iterator[str]:
        return (blob.name for blob in self._bucket.listed(prefix))

    def _named(self, name: str, draft: str | None) -> str:
        return f"{self._folder}{name}" if draft is None else f"{self._folder}{draft}/{name}"

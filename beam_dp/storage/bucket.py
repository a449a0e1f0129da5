"""Folders of an object store, and how a release is committed in one.

A bucket has no folders, no links and no renames, so a draft is a set of objects whose names start
alike. Publishing is one atomic step of the service all the same:

- Opening a draft creates its object ``commit``, which holds nothing yet.
- To publish a file, its bytes replace this ``commit``, if it is still there, and are then copied to
  the file's name, by the service, if the version is still there and the name is not.
- Withdrawing a draft deletes ``commit``. From then on both steps fail. (No service says that a copy
  which it is just making fails, too: that of a card, which takes it milliseconds.)
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
# Names of drafts and files are appended, and the services allow 1,024 bytes in all.
_MAX_FOLDER_BYTES = 800


class BucketSettingsError(Exception):
    """A bucket is set up so that no private draft should be written there."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


class FoundObject(NamedTuple):
    """An object of a listing.

    ``modified``: when its content was written, in seconds since 1970, UTC.
    """

    name: str
    num_bytes: int
    modified: float


class Bucket(Protocol):
    """Objects by name, each of which is there whole or not at all.

    Every call sees what all calls before it did, of whatever process. A version is a text that no
    other content of that name ever has. Failures raise OSError, or FileNotFoundError if an object
    is missing.
    """

    def check(self) -> None:
        """Raises BucketSettingsError if no draft should be written here.

        Reasons: deleted objects are kept, the public may read it, or a right is missing.
        """

    def create(self, name: str) -> str | None:
        """Creates an object that holds no file; returns its version, None where there is one."""

    def write(self, name: str, data: bytes) -> None:
        """Writes an object, whether it exists or not."""

    def replace(self, name: str, version: str, data: bytes) -> str | None:
        """Writes an object if it has this version; returns the new one, None if it had another."""

    def copy(self, source: str, target: str) -> None:
        """Copies an object, whether the target exists or not."""

    def copy_exclusively(self, source: str, version: str, target: str) -> bool:
        """Copies an object of this version, unless the target exists: then returns False.

        May also return False for a repeated request whose first answer was lost.
        """

    def size(self, name: str) -> int:
        """Returns the size of an object in bytes."""

    def read(self, name: str, file: BinaryIO) -> None:
        """Writes the bytes of an object, verified, to a file."""

    def names(self, prefix: str) -> Iterator[str]:
        """Returns the names that start like this, in order."""

    def listed(self, prefix: str) -> Iterator[FoundObject]:
        """Returns the objects whose names start like this, in order."""

    def delete(self, name: str) -> None:
        """Deletes an object in all versions; one that is missing is fine."""


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

    def check_free(self) -> None:
        """Raises InputError if it holds more than drafts, or can't be written; writes nothing."""
        try:
            self._bucket.check()
            is_free = all(
                name == self._folder or name.startswith(self._folder + DRAFT_PREFIX)
                for name in self._bucket.names(self._folder)
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
        """Returns a new draft as a store of its own."""
        draft = self.open_draft(TRIAL)
        inside = copy.copy(self)
        inside._folder, inside._versions = f"{self._folder}{draft}/", {}
        try:
            yield inside
        finally:
            self.remove_draft(draft)

    def exists(self) -> bool:
        """Returns whether there is such a directory."""
        return any(True for _ in self._bucket.names(self._folder))

    def folders(self, inside: str, holding: str | None = None) -> list[str]:
        """Returns the names of the folders in one of its folders, in order."""
        prefix, found = f"{self._folder}{inside}/", set()
        for name in self._bucket.names(prefix):
            folder, slash, rest = name[len(prefix) :].partition("/")
            if folder and slash and (holding is None or rest == holding):
                found.add(folder)
        return sorted(found)

    def read(self, name: str, num_bytes: int | None = None) -> bytes:
        """Returns a published file."""
        check_size(self._bucket.size(self._folder + name), num_bytes)
        with tempfile.TemporaryFile() as file:
            self._bucket.read(self._folder + name, file)
            check_size(file.tell(), num_bytes)
            file.seek(0)
            return file.read()

    def fingerprint(self, name: str, draft: str | None = None) -> PayloadFile | None:
        """Returns what a file holds, or None where there is no such file."""
        try:
            with tempfile.TemporaryFile() as file:
                self._bucket.read(self._named(name, draft), file)
                file.seek(0)
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                return PayloadFile(digest, file.tell())
        except FileNotFoundError:
            return None

    def open_draft(self, draw_id: str) -> str:
        """Creates the object of a new draft to publish, and returns the draft's name."""
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
        """Writes one file of a draft, and returns what it holds."""
        self._bucket.write(self._named(name, draft), data)
        return PayloadFile(hashlib.sha256(data).hexdigest(), len(data))

    def publish(self, draft: str, name: str, data: bytes) -> bool:
        """Writes a file to a draft that was not withdrawn, and copies it unless its name exists."""
        commit = self._named(_COMMIT, draft)
        version = self._bucket.replace(commit, self._versions[draft], data)
        with contextlib.suppress(FileNotFoundError):
            if version is not None:
                return self._bucket.copy_exclusively(commit, version, self._folder + name)
        raise FileNotFoundError(errno.ENOENT, "the draft was withdrawn")

    def place(self, draft: str, name: str) -> None:
        """Moves a file of a draft to its name, if it is still in the draft."""
        with contextlib.suppress(FileNotFoundError):
            self._bucket.copy(self._named(name, draft), self._folder + name)
            self._bucket.delete(self._named(name, draft))

    def drafts(self) -> list[str]:
        """Returns the names of the drafts that are there."""
        names = self._bucket.names(self._folder + DRAFT_PREFIX)
        return sorted({name[len(self._folder) :].partition("/")[0] for name in names})

    def withdraw(self, draft: str) -> str:
        """Deletes what would be published from a draft."""
        self._bucket.delete(self._named(_COMMIT, draft))
        return draft

    def remove_draft(self, draft: str) -> None:
        """Deletes all objects of a draft."""
        for name in self._bucket.names(f"{self._folder}{draft}/"):
            self._bucket.delete(name)

    def _named(self, name: str, draft: str | None) -> str:
        return f"{self._folder}{name}" if draft is None else f"{self._folder}{draft}/{name}"

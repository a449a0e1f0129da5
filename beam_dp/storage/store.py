"""The interface of a place where a release can be committed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

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
    Where nothing is said of errors, what fails raises OSError.
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
            holding: only those that hold a published file of this name.
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
        """Sees to it that nothing is published from a draft any more; returns its new name."""

    def remove_draft(self, draft: str) -> None:
        """Removes a draft, and the directory if this store made it and nothing else is in it."""


def check_size(num_bytes: int, promised: int | None) -> None:
    """Refuses a file that is not of the promised size; or, where none was, is no card."""
    if promised is not None and num_bytes != promised:
        raise DamagedFileError("does not have the size of its card")
    if promised is None and num_bytes > MAX_CARD_BYTES:
        raise DamagedFileError("is too large for a card")

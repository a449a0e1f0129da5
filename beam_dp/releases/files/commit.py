"""Commits releases: the first complete attempt wins, and no partial release remains.

Several workers may try to write. Their attempts have the same draw of noise if Beam retries only
the bundle that writes, and different draws if Beam also retries the bundle that draws the noise.
The directory belongs to the draw whose card is created first; creating a card is exclusive:

1. Each attempt writes all files into its own private draft folder, which ``storage.store`` names
   by draw id.
2. The attempt publishes its complete ``card.json`` in the directory. This fails if a card exists.
3. An attempt that finds a card, its own or another attempt's, moves the payload of this card into
   place from the draft that contains the payload. So a later attempt repairs a crash after step 2.
4. Once the payload is complete, no other draw can win: all drafts are removed.

The files of a large release are written by several workers, each into a draft of its own
(``write_part``). The attempt that has all of one draw moves them into its own draft before step 2,
so that no card is published whose payload another draft's owner may remove.

A draft is private data: it may be a second draw of noise on the same records.

``probe_output`` tests the output directory before a release is paid for.
"""

from __future__ import annotations

import errno
import math
import os
import shlex
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from beam_dp.errors import InputError
from beam_dp.releases.files.card import CARD, Card, ReleaseError, fingerprint
from beam_dp.storage import store as storage
from beam_dp.storage.open import store_for

# Replaces the draw id in the name of the draft of ``horizon.json``.
BEGINNING = "horizon"
# The draft in which a job of several releases keeps what its next run compares.
JOB = "job"
# The drafts that contain no draw; they may belong to another job that starts at the same moment.
_WITHOUT_DRAW = tuple(f"{storage.DRAFT_PREFIX}{name}-" for name in (storage.TRIAL, BEGINNING, JOB))


@dataclass(frozen=True)
class Draw:
    """The complete content of one release as it is written: the card and the payload."""

    text: bytes
    payload: Mapping[str, bytes]

    @cached_property
    def card(self) -> Card:
        """The parsed card."""
        return Card.from_text(self.text.decode())

    def to_bytes(self) -> bytes:
        """Returns the draw as bytes that a pipeline can pass from step to step."""
        return b"".join([struct.pack("<q", len(self.text)), self.text, *self.payload.values()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Returns the draw that ``to_bytes`` wrote."""
        start = struct.calcsize("<q")
        (length,) = struct.unpack_from("<q", data) if len(data) >= start else (-1,)
        if length > storage.MAX_CARD_BYTES:
            raise storage.DamagedFileError("has a card that is too large")
        if not 0 <= length <= len(data) - start:
            raise storage.DamagedFileError("is cut short")
        text = data[start : start + length]
        payload, position = {}, start + length
        for name, file in Card.from_text(text.decode()).files.items():
            payload[name] = data[position : position + file.num_bytes]
            storage.check_size(len(payload[name]), file.num_bytes)
            position += file.num_bytes
        storage.check_size(len(data), position)
        return cls(text, payload)


def check_output(directory: str | os.PathLike[str], beside: str | None = None) -> None:
    """Raises InputError if a new job can't release to a directory; writes nothing.

    ``beside``: the name of a subfolder that may exist.

    Call this before paying for the job. Writers do not call this: a retried stage may find drafts
    of its own job, and must keep them. If two jobs start at the same moment, the first complete
    attempt wins.
    """
    check_free(directory, beside)
    store = store_for(directory, "output")
    if any(not draft.startswith(_WITHOUT_DRAW) for draft in store.drafts()):
        condition = (
            "must not contain drafts of another job: stop that job if it is running, then run"
            f" `beam-dp finish {shlex.quote(os.fspath(directory))}`, which withdraws its drafts"
        )
        raise InputError("output", os.fspath(directory), condition)


def check_free(directory: str | os.PathLike[str], beside: str | None = None) -> None:
    """Raises InputError if a release can't be committed in a directory; writes nothing."""
    store = store_for(directory, "output")
    try:
        store.check_free(beside)
    except InputError as error:
        condition = error.condition + advice_on_drafts(store, directory)
        raise InputError("output", os.fspath(directory), condition) from None


def write_part(
    draw_id: str, name: str, data: bytes, directory: str | os.PathLike[str]
) -> storage.PayloadFile | None:
    """Writes one file of a draw into a draft of its own; None if a release was committed before."""
    store = store_for(directory, "output")
    try:
        if committed_card(store, directory) is not None:
            return None
        draft = store.open_draft(draw_id)
        try:
            return _write(store, draft, name, data)
        except BaseException:
            store.remove_draft(draft)
            raise
    except OSError as error:
        # The winner may have removed this draft while it was being written.
        if committed_card(store, directory) is None:
            raise _refusal(error, directory) from None
        return None


def commit_files(
    draw_id: str,
    files: Iterable[tuple[str, bytes]],
    text_of: Callable[[Mapping[str, storage.PayloadFile]], str],
    directory: str | os.PathLike[str],
    written: Mapping[str, storage.PayloadFile] | None = None,
) -> bool:
    """Writes a draw unless another draw was committed first; may be repeated at any time.

    ``files``: names and contents of files, of which only one at a time needs to be in memory.
    ``text_of``: returns the text of the card, given all files.
    ``written``: further files, which ``write_part`` has written.

    On return, the release in the directory is complete. Returns True if it is this draw; otherwise
    this draw's drafts are removed.
    """
    store = store_for(directory, "output")
    try:
        if committed_card(store, directory) is None:
            _try_to_commit(draw_id, files, text_of, store, written or {})
    except OSError as error:
        # The winner may have removed this draft while it was being written.
        if committed_card(store, directory) is None:
            raise _refusal(error, directory) from None
    committed = committed_card(store, directory)
    if committed is None:
        raise InputError("output", os.fspath(directory), "must not be written by other programs")
    _complete(committed, store, directory)
    return committed.draw_id == draw_id


def holds_card(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory has a card, valid or damaged."""
    try:
        return read_card(store_for(directory, "output")) is not None
    except OSError as error:
        raise _refusal(error, directory) from None


def complete_committed(directory: str | os.PathLike[str]) -> str | None:
    """Completes the committed draw, and returns its id; None if there is none."""
    store = store_for(directory, "output")
    card = committed_card(store, directory)
    if card is None:
        return None
    _complete(card, store, directory)
    return card.draw_id


def _try_to_commit(
    draw_id: str,
    files: Iterable[tuple[str, bytes]],
    text_of: Callable[[Mapping[str, storage.PayloadFile]], str],
    store: storage.Store,
    written: Mapping[str, storage.PayloadFile],
) -> None:
    """Writes the draft and publishes the card; removes the draft unless it became the release."""
    draft, text = store.open_draft(draw_id), None
    try:
        for name, promised in written.items():
            _adopt(store, draft, name, promised)
        new = {name: _write(store, draft, name, data) for name, data in files}
        text = text_of({**written, **new}).encode()
        store.publish(draft, CARD, text)
    finally:
        # Checks the card, not the result of publishing: publishing may report a failure although it
        # succeeded, and then only the draft contains the committed payload. A draft with files of
        # other steps stays for the next attempt.
        if not written and (text is None or read_card(store) != text):
            store.remove_draft(draft)


def _write(store: storage.Store, draft: str, name: str, data: bytes) -> storage.PayloadFile:
    """Writes a file of a draft, and checks that it contains what was written."""
    promised = fingerprint(data)
    if store.write_draft(draft, name, data) != promised:
        raise OSError(errno.EIO, "the file does not contain what was written")
    return promised


def _adopt(store: storage.Store, draft: str, name: str, promised: storage.PayloadFile) -> None:
    """Moves a file that ``write_part`` wrote from its draft into another draft."""
    for other in store.drafts():
        if other == draft or other.endswith(storage.WITHDRAWN):
            continue
        if store.fingerprint(name, other) == promised:
            store.place(other, name, draft)
            break
    if store.fingerprint(name, draft) != promised:
        raise OSError(errno.ENOENT, f"{name} was removed from its draft")


def _complete(card: Card, store: storage.Store, directory: str | os.PathLike[str]) -> None:
    """Places the payload of the committed draw, and removes all drafts."""
    missing = place_payload(store, card.files)
    if missing:
        raise ReleaseError(os.fspath(directory), f"{missing[0]} is missing or damaged")
    for draft in store.drafts():
        store.remove_draft(draft)


def place_payload(store: storage.Store, files: Mapping[str, storage.PayloadFile]) -> list[str]:
    """Moves a committed payload from the drafts into place; returns the missing files."""
    missing = []
    for name, promised in files.items():
        for draft in store.drafts():
            # A draft may vanish: its own attempt may lose, or another attempt may place the file.
            if store.fingerprint(name) == promised:
                break
            if store.fingerprint(name, draft) == promised:
                store.place(draft, name)
        if store.fingerprint(name) != promised:
            missing.append(name)
    return missing


def committed_card(store: storage.Store, directory: str | os.PathLike[str]) -> Card | None:
    """Returns the card of the release in a directory; None if there is none."""
    try:
        card = read_card(store)
        return None if card is None else Card.from_text(card.decode())
    except OSError as error:
        raise _refusal(error, directory) from None
    except (ArithmeticError, storage.DamagedFileError, LookupError, TypeError, ValueError):
        raise InputError("output", os.fspath(directory), storage.FREE) from None


def _refusal(error: OSError, directory: str | os.PathLike[str]) -> InputError:
    """Returns the refusal of a directory whose card cannot be read or written."""
    condition = f"must be a directory that can be written: {error.strerror}"
    if isinstance(error, NotADirectoryError):
        condition = storage.FREE
    return InputError("output", os.fspath(directory), condition)


def read_card(store: storage.Store) -> bytes | None:
    """Returns the bytes of the committed card; None if no card was committed."""
    try:
        return store.read(CARD)
    except FileNotFoundError:
        return None


def advice_on_drafts(store: storage.Store, directory: str | os.PathLike[str]) -> str:
    """Returns advice about the drafts of a stopped job; empty if there are no drafts."""
    try:
        if not store.drafts():
            return ""
    except Exception:  # storage libraries raise any type; the caller's error matters more
        return ""
    return (
        "; a job has left drafts there: once the job has ended,"
        f" `beam-dp finish {shlex.quote(os.fspath(directory))}` completes the committed release"
    )


_PAYLOAD, _CARD = "payload", "card"


def probe_output(
    directory: str | os.PathLike[str], beside: str | None = None, num_bytes: float = 0.0
) -> None:
    """Commits a few bytes in a private draft, as for a release, and removes the bytes again.

    Unlike ``check_output``, this finds faults that permissions do not show: a filesystem that is
    read-only or has no hard links, a link that replaces an existing file, or files that can't be
    removed. Call this before paying from a ledger. A probe can't detect that the disk will be full
    later, only that a local disk has no room for the files now.

    ``directory``: the directory of the release, which the probe does not create. A temporary folder
    ``.draft-trial-*`` is created there, or in the nearest existing directory above.
    ``beside``: the name of a subfolder that may exist.
    ``num_bytes``: about how large the files of the release may become.
    """
    check_output(directory, beside)
    store = store_for(directory, "output")
    try:
        with store.trial() as inside:
            _commit(inside)
            free = store.free_bytes() if isinstance(store, storage.LocalStore) else math.inf
    except OSError as error:
        reason = error.strerror or type(error).__name__
        condition = f"must be a directory where a release can be committed: {reason}"
        raise InputError("output", os.fspath(directory), condition) from None
    if free < num_bytes:
        condition = (
            f"must be on a disk with room for the records, up to {num_bytes / 1e9:,.3g} GB:"
            f" {free / 1e9:,.3g} GB are free; or release fewer, with num_synthetic_records"
        )
        raise InputError("output", os.fspath(directory), condition)


def _commit(store: storage.Store) -> None:
    first, second = (store.open_draft(name) for name in ("first", "second"))
    written = store.write_draft(first, _PAYLOAD, b"payload")
    if not store.publish(first, _CARD, b"first"):
        raise OSError(errno.EIO, "a new file can't be created")
    if store.publish(second, _CARD, b"second"):
        raise OSError(errno.EOPNOTSUPP, "a second draw can replace an existing file")
    store.place(first, _PAYLOAD)
    if store.fingerprint(_PAYLOAD) != written or store.read(_CARD) != b"first":
        raise OSError(errno.EIO, "the file does not contain what was written")

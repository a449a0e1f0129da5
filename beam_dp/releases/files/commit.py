"""Commits releases: the first complete attempt wins, and nothing half-written stays.

Several workers may try to write: attempts of one draw of noise (a bundle that was retried), and of
different draws (a bundle with the draw in it was). The directory belongs to the draw whose card was
created first, and creating it is exclusive:

1. Each attempt writes all files into a private draft folder of its own, named by draw id.
2. It publishes its complete ``card.json`` in the directory. That fails if a card is there.
3. An attempt that finds a card, its own or another's, moves the payload of this card into place
   from the draft that contains it. So any later attempt repairs a crash after step 2.
4. Once the payload is complete no other draw can win: all drafts are removed.

A draft is private data: it may be a second draw of noise on the same records.

``probe_output`` tests the output directory before a release is paid for.
"""

from __future__ import annotations

import errno
import os
import shlex
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from beam_dp.errors import InputError
from beam_dp.releases.files.card import CARD, Card, ReleaseError
from beam_dp.storage.store import (
    DRAFT_PREFIX,
    FREE,
    MAX_CARD_BYTES,
    TRIAL,
    DamagedFileError,
    PayloadFile,
    Store,
    check_size,
    store_for,
)

# The draw id, for drafts, of the file that begins a horizon.
BEGINNING = "horizon"
# Drafts without a draw: jobs that start at the same moment may see each other's.
_WITHOUT_DRAW = (f"{DRAFT_PREFIX}{TRIAL}-", f"{DRAFT_PREFIX}{BEGINNING}-")


@dataclass(frozen=True)
class Draw:
    """One draw of noise of any kind, complete, as it is written: its card and its payload."""

    text: bytes
    payload: Mapping[str, bytes]

    @cached_property
    def card(self) -> Card:
        """The parsed text."""
        return Card.from_text(self.text.decode())

    def to_bytes(self) -> bytes:
        """Returns it as one string of bytes, as it travels from step to step of a pipeline."""
        return b"".join([struct.pack("<q", len(self.text)), self.text, *self.payload.values()])

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Returns the draw that ``to_bytes`` wrote."""
        start = struct.calcsize("<q")
        (length,) = struct.unpack_from("<q", data) if len(data) >= start else (-1,)
        if length > MAX_CARD_BYTES:
            raise DamagedFileError("has a card that is too large")
        if not 0 <= length <= len(data) - start:
            raise DamagedFileError("is cut short")
        text = data[start : start + length]
        payload, position = {}, start + length
        for name, file in Card.from_text(text.decode()).files.items():
            payload[name] = data[position : position + file.num_bytes]
            check_size(len(payload[name]), file.num_bytes)
            position += file.num_bytes
        check_size(len(data), position)
        return cls(text, payload)


def check_output(directory: str | os.PathLike[str]) -> None:
    """Refuses a directory that a new job can't release to; writes nothing.

    Call it before paying for the job. Writers do not: a retried stage finds drafts of its own job,
    and of two jobs that start at the same moment the first complete attempt wins.
    """
    check_free(directory)
    store = store_for(directory, "output")
    if any(not draft.startswith(_WITHOUT_DRAW) for draft in store.drafts()):
        condition = (
            "must hold no drafts of another job: stop that job if it is running, then run"
            f" `beam-dp finish {shlex.quote(os.fspath(directory))}`, which withdraws its drafts"
        )
        raise InputError("output", os.fspath(directory), condition)


def check_free(directory: str | os.PathLike[str]) -> None:
    """Refuses a directory that a release can't be committed in; writes nothing."""
    store = store_for(directory, "output")
    try:
        store.check_free()
    except InputError as error:
        condition = error.condition + advice_on_drafts(store, directory)
        raise InputError("output", os.fspath(directory), condition) from None


def commit_draw(draw: Draw, directory: str | os.PathLike[str]) -> bool:
    """Writes a draw unless another one was committed first; may be repeated at any time.

    Returns:
        Whether the release in the directory, complete on return, is of this draw. If it is of
        another one, this draw's drafts are gone.
    """
    store = store_for(directory, "output")
    try:
        if committed_card(store, directory) is None:
            _try_to_commit(draw, store)
    except OSError as error:
        # The winner may have removed this draft while it was being written.
        if committed_card(store, directory) is None:
            condition = f"must be a directory that can be written: {error.strerror}"
            raise InputError("output", os.fspath(directory), condition) from None
    committed = committed_card(store, directory)
    if committed is None:
        raise InputError("output", os.fspath(directory), "must be written by nobody else")
    _complete(committed, store, directory)
    return committed.draw_id == draw.card.draw_id


def holds_card(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory has a card, valid or not."""
    return read_card(store_for(directory, "output")) is not None


def complete_committed(directory: str | os.PathLike[str]) -> None:
    """Completes the committed draw, if there is one."""
    store = store_for(directory, "output")
    card = committed_card(store, directory)
    if card is not None:
        _complete(card, store, directory)


def _try_to_commit(draw: Draw, store: Store) -> None:
    """Takes steps 1 and 2, and removes the draft unless it became the release."""
    draft = store.open_draft(draw.card.draw_id)
    try:
        for name, data in draw.payload.items():
            if store.write_draft(draft, name, data) != draw.card.files[name]:
                raise OSError(errno.EIO, "what was written is not what is read")
        store.publish(draft, CARD, draw.text)
    finally:
        # Looks at the card, not at the call that made it: a call may fail after its effect, and
        # then only the draft contains the committed payload.
        if read_card(store) != draw.text:
            store.remove_draft(draft)


def _complete(card: Card, store: Store, directory: str | os.PathLike[str]) -> None:
    """Takes steps 3 and 4 for the committed draw."""
    missing = place_payload(store, card.files)
    if missing:
        raise ReleaseError(os.fspath(directory), f"{missing[0]} is missing or damaged")
    for draft in store.drafts():
        store.remove_draft(draft)


def place_payload(store: Store, files: Mapping[str, PayloadFile]) -> list[str]:
    """Moves a committed payload into place from the drafts; returns the missing files."""
    missing = []
    for name, promised in files.items():
        for draft in store.drafts():
            # A draft that matches may vanish: its own attempt lost, or another one placed it.
            if store.fingerprint(name) == promised:
                break
            if store.fingerprint(name, draft) == promised:
                store.place(draft, name)
        if store.fingerprint(name) != promised:
            missing.append(name)
    return missing


def committed_card(store: Store, directory: str | os.PathLike[str]) -> Card | None:
    """Returns the card of the release in a directory; None if there is none."""
    try:
        card = read_card(store)
        return None if card is None else Card.from_text(card.decode())
    except OSError as error:
        if isinstance(error, NotADirectoryError):
            raise InputError("output", os.fspath(directory), FREE) from None
        condition = f"must be a directory that can be written: {error.strerror}"
        raise InputError("output", os.fspath(directory), condition) from None
    except (ArithmeticError, DamagedFileError, LookupError, TypeError, ValueError):
        raise InputError("output", os.fspath(directory), FREE) from None


def read_card(store: Store) -> bytes | None:
    """Returns the card that was committed, or None where none was."""
    try:
        return store.read(CARD)
    except FileNotFoundError:
        return None


def advice_on_drafts(store: Store, directory: str | os.PathLike[str]) -> str:
    """Returns words about the drafts of a stopped job and what to do; empty without drafts."""
    try:
        if not store.drafts():
            return ""
    except Exception:  # of any storage's library: the refusal matters, not the advice
        return ""
    return (
        "; drafts of a job are left there: once it has ended,"
        f" `beam-dp finish {shlex.quote(os.fspath(directory))}` completes what it committed"
    )


_PAYLOAD, _CARD = "payload", "card"


def probe_output(directory: str | os.PathLike[str]) -> None:
    """Commits a few bytes in a private draft, as a release would be, and removes them.

    Unlike ``check_output``, this finds faults that permissions do not show: a filesystem without
    hard links, a read-only one, a link that replaces an existing file, files that can't be removed.
    Call it before paying from a ledger. It can't foresee that space runs out later.

    ``directory``: of the release. It is not created; a folder ``.draft-trial-*`` is, for a moment,
    in it or in the nearest existing directory above.
    """
    check_output(directory)
    store = store_for(directory, "output")
    try:
        with store.trial() as inside:
            _commit(inside)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        condition = f"must be a directory where a release can be committed: {reason}"
        raise InputError("output", os.fspath(directory), condition) from None


def _commit(store: Store) -> None:
    first, second = (store.open_draft(name) for name in ("first", "second"))
    written = store.write_draft(first, _PAYLOAD, b"payload")
    if not store.publish(first, _CARD, b"first"):
        raise OSError(errno.EIO, "a name that was free is taken")
    if store.publish(second, _CARD, b"second"):
        raise OSError(errno.EOPNOTSUPP, "the name of a file can be taken twice, hence by two draws")
    store.place(first, _PAYLOAD)
    if store.fingerprint(_PAYLOAD) != written or store.read(_CARD) != b"first":
        raise OSError(errno.EIO, "what was written is not what is read")

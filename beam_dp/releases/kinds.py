"""Writes, completes, reads and verifies releases of all kinds."""

from __future__ import annotations

import dataclasses
import os
import posixpath  # slashes work in buckets and on every system
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar, overload

from beam_dp.checks import check_choice, check_is, with_article
from beam_dp.domain.texts import checked_json
from beam_dp.errors import InputError
from beam_dp.releases.files import card as cards, commit
from beam_dp.releases.parts import KINDS, part
from beam_dp.releases.release import AnyRelease, Release, Shard
from beam_dp.storage.open import store_for
from beam_dp.storage.store import FREE, DamagedFileError, PayloadFile, Store
from beam_dp.threads import in_order

if TYPE_CHECKING:
    from beam_dp.releases.verdict import Verification

ReleaseT = TypeVar("ReleaseT", bound=Release)

# Errors that a card may cause if a field is missing or has another type.
_DAMAGE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)


def write_release(
    release: Release, directory: str | os.PathLike[str], *, beside: str | None = None
) -> None:
    """Writes a release to a directory.

    Args:
        release: the release to write.
        directory: local, ``gs://BUCKET/FOLDER`` or ``s3://BUCKET/FOLDER``. The directory must be
            missing or empty, or contain this same draw, which is then completed.
        beside: the name of a subfolder that may exist in the directory.

    Raises:
        InputError: if the directory contains anything else, or can't be written.

    Example:
        >>> write_release(release, "out/visits")  # doctest: +SKIP
    """
    check_is("release", release, Release)
    if commit.committed_card(store_for(directory, "output"), directory) is None:
        commit.check_free(directory, beside)
    if not commit_release(release, directory):
        raise InputError("output", os.fspath(directory), FREE)


def commit_release(
    release: Release,
    directory: str | os.PathLike[str],
    written: Mapping[str, PayloadFile | None] | None = None,
) -> bool:
    """Writes a release unless another draw was committed first; see ``commit_files``.

    ``written``: the files of records that ``write_shard`` has written, or None for a file that came
    too late; by default, this writes them.
    """
    module = part(release.KIND, "files")
    present = {name: file for name, file in (written or {}).items() if file is not None}
    if written is not None and len(present) < len(written):
        return commit.complete_committed(directory) == release.draw_id
    shards = release.shards() if written is None else ()
    named = in_order(lambda shard: (shard.name, module.shard_bytes(shard)), shards)
    files = chain(module.payload(release).items(), named)
    text_of = partial(cards.card_text, release.KIND, release.draw_id, release.card)
    return commit.commit_files(release.draw_id, files, text_of, directory, present)


def write_shard(shard: Shard, directory: str | os.PathLike[str]) -> PayloadFile | None:
    """Writes one file of records: see ``commit.write_part``."""
    data = part("synthetic_database", "files").shard_bytes(shard)
    return commit.write_part(shard.draw_id, shard.name, data, directory)


def release_to_bytes(release: Release) -> bytes:
    """Returns a release of any kind as bytes, without pickle, and with its distinct records."""
    payload = part(release.KIND, "files").payload(release)
    if release.num_shards == 1:
        payload |= part(release.KIND, "files").distinct_records(release)
    files = {name: cards.fingerprint(data) for name, data in payload.items()}
    text = cards.card_text(release.KIND, release.draw_id, release.card, files)
    return commit.Draw(text.encode(), payload).to_bytes()


def release_from_bytes(data: bytes) -> Release:
    """Returns the release that ``release_to_bytes`` wrote."""
    name = "bytes"
    try:
        draw = commit.Draw.from_bytes(data)
    except (DamagedFileError, ValueError) as error:
        raise cards.ReleaseError(name, str(error)) from None
    return _read(name, lambda: draw.text, lambda file, _: draw.payload[file], "absent")


def finish_writing(directory: str | os.PathLike[str]) -> bool:
    """Completes a release that a killed writer had committed, and removes all drafts.

    Call this after a job has ended, even if it failed: a draft may be a second draw of noise, which
    no one should see. A draft without a published card is removed. A live writer that has not
    published its card yet finds that its draft was withdrawn, and fails. A writer that starts later
    follows the rules of ``commit``. For a horizon, this includes all windows and blocks.
    """
    first, *inside = finish_each(directory).values()
    if not holds_horizon(directory):
        return first
    horizon = part("horizon", "horizon_files")
    _, card = horizon.read_horizon(directory)
    return all(inside) and horizon.released(directory, card).num_missing == 0


def finish_each(directory: str | os.PathLike[str]) -> dict[str, bool]:
    """Calls ``finish_writing`` for a directory and for all windows and blocks in the directory."""
    return {place: _finish(place) for place in release_directories(directory)}


def release_directories(directory: str | os.PathLike[str]) -> list[str]:
    """Returns a directory and the directories of the windows and blocks in it."""
    store = store_for(directory, "output")
    above = [cards.WINDOWS, *(f"{cards.LEVELS}/{size}" for size in store.folders(cards.LEVELS))]
    inside = [f"{folder}/{name}" for folder in above for name in store.folders(folder)]
    return [os.fspath(directory), *(posixpath.join(directory, folder) for folder in inside)]


def _finish(directory: str) -> bool:
    """Finishes the directory of one release."""
    store = store_for(directory, "output")
    drafts, files = store.drafts(), _committed_files(store)
    if files is None:
        # A writer may be publishing a card now. If its draft is withdrawn first, the draft is
        # removed; otherwise the draft is moved into place.
        drafts = [store.withdraw(draft) for draft in drafts]
        files = _committed_files(store) or {}
    missing = commit.place_payload(store, files)
    for draft in drafts:
        store.remove_draft(draft)
    return bool(files) and not missing


def _committed_files(store: Store) -> dict[str, PayloadFile] | None:
    """Returns the files that a card names, empty for a damaged card; None without a card."""
    try:
        card = commit.read_card(store)
        if card is None:
            return None
        entries = checked_json("card", cards.CARD, card.decode())["files"].items()
        files = {name: cards.payload_file(name, entry) for name, entry in entries}
        return files if all(os.path.basename(name) == name for name in files) else {}
    except (AttributeError, DamagedFileError, InputError, LookupError, TypeError, ValueError):
        return {}  # reading the release reports the damage


@overload
def read_release(directory: str | os.PathLike[str], *, check_rows: bool = False) -> Release: ...


@overload
def read_release(
    directory: str | os.PathLike[str], *, kind: type[ReleaseT], check_rows: bool = False
) -> ReleaseT: ...


def read_release(
    directory: str | os.PathLike[str], *, kind: Any = Release, check_rows: bool = False
) -> Release:
    """Reads a release of any kind, or of an expected kind, and checks its files.

    A damaged or hostile directory is rejected: the files must be the regular files that the card
    names, in this directory, with the stated sizes and checksums, and with records of the stated
    domain. No content of a file is executed.

    Args:
        directory: a directory that ``write_release`` wrote; local, ``gs://BUCKET/FOLDER`` or
            ``s3://BUCKET/FOLDER``.
        kind: the expected class, such as ``SyntheticDatabase``, which type checkers then infer as
            the type of the result.
        check_rows: whether to parse the rows of a large release, whose distinct records are in a
            file of their own, and compare them with these; otherwise only checksums are compared.
            The rows of other releases are always parsed.

    Returns:
        The release, of the kind that the card names: synthetic records, interval counts, sketches
        and counts for sparse queries, answers, or tables of a window.

    Raises:
        ReleaseError: if the directory has no release, a damaged release, or a release of another
            kind. If a job has left drafts there, the message names the command that completes the
            committed release.
        InputError: if ``kind`` is not a class of releases.

    Cost: 0.2 to 0.8 microseconds per row that is parsed, plus 0.5 per distinct record and
    attribute; 0.1 per cell or element of a release for sparse queries; 10 per answer.

    Example:
        >>> release = read_release("out/visits", kind=SyntheticDatabase)  # doctest: +SKIP
    """
    if not (isinstance(kind, type) and issubclass(kind, Release)):
        condition = "must be a class of releases, such as dp.SyntheticDatabase"
        raise InputError("kind", kind, condition)
    store = store_for(directory, "release")
    try:
        rows: cards.Rows = "checked" if check_rows else "present"
        release = _read(os.fspath(directory), lambda: _text_in(store, directory), store.read, rows)
    except cards.ReleaseError as error:
        condition = error.condition + commit.advice_on_drafts(store, directory)
        raise cards.ReleaseError(os.fspath(directory), condition) from None
    object.__setattr__(release, "directory", os.fspath(directory))
    if not isinstance(release, kind):
        condition = f"must contain {with_article(kind)}; this is {with_article(type(release))}"
        raise cards.ReleaseError(os.fspath(directory), condition)
    return release


def holds_release(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory has a ``card.json``, valid or damaged."""
    try:
        return store_for(directory, "release").fingerprint(cards.CARD) is not None
    except (InputError, OSError):
        return False


def holds_horizon(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory has a ``horizon.json``, valid or damaged."""
    try:
        return store_for(directory, "release").fingerprint(cards.HORIZON) is not None
    except OSError:
        return False  # reading the directory later reports the error


def read_any(directory: str | os.PathLike[str], *, check_rows: bool = False) -> AnyRelease:
    """Reads the release of a directory, or the windows of a stream: see ``read_windows``."""
    if not holds_horizon(directory):
        return read_release(directory, check_rows=check_rows)
    horizon: AnyRelease = part("horizon", "horizon_files").read_windows(directory)
    return horizon


def _text_in(store: Store, directory: str | os.PathLike[str]) -> bytes:
    if not store.exists():
        raise cards.ReleaseError(os.fspath(directory), "is not a directory")
    try:
        return store.read(cards.CARD)
    except FileNotFoundError:
        if store.fingerprint(cards.HORIZON) is not None:
            condition = "contains the releases of many windows: use read_windows"
            raise cards.ReleaseError(os.fspath(directory), condition) from None
        condition = f"is not a release: it has no {cards.CARD}"
        raise cards.ReleaseError(os.fspath(directory), condition) from None


def _read(
    name: str,
    read_text: Callable[[], bytes],
    read_file: Callable[[str, int], bytes],
    rows: cards.Rows = "present",
) -> Release:
    """Returns a release from a card and files; reports errors in one line."""
    payload = None
    try:
        card = cards.Card.from_text(read_text().decode())
        check_choice("kind", card.kind, KINDS)
        payload = cards.Payload(card, read_file, rows)
        release: Release = part(card.kind, "files").read(card, payload)
        object.__setattr__(release, "read_from", card.fields)
        return release
    except cards.ReleaseError:
        raise
    except cards.READ_ERRORS as error:
        place = cards.CARD if payload is None else payload.place
        raise cards.ReleaseError(name, f"{place}{cards.reading_fault(error)}") from None


def verify_release(release: AnyRelease) -> Verification:
    """Recomputes the privacy loss of a release from the noise that the card states.

    The loss of each step follows from the scale and the sensitivity. The losses are composed and
    converted to epsilon at the card's delta, with arithmetic that never states less than the true
    loss. Figures that follow from other figures are recomputed and must agree to 1e-9. A release
    can't show that its noise was drawn as stated; verification checks that the stated noise gives
    the stated guarantee.

    Args:
        release: from ``read_release`` or ``read_windows``, which compare the checksums.

    Returns:
        The steps, the total loss and the faults; see ``Verification.holds``.

    Raises:
        InputError: if the card lacks a field that the loss follows from; the error names the field.

    Cost: tenths of a second; for linear answers the cost of ``workload_sensitivity``, for a horizon
    the cost of reading all its windows.

    Example:
        >>> verify_release(read_release("out/visits")).holds  # doctest: +SKIP
        True
    """
    from beam_dp.releases.verdict import misread

    try:
        verification: Verification = part(release.KIND, "verify").verify(release)
        if not isinstance(release, Release):
            return verification
        if release.plan.get("windows") is not None:
            verification = part("window_tables", "verify").of_one_window(verification, release)
        faults = (*verification.faults, *misread(release))
        return dataclasses.replace(verification, faults=faults)
    except InputError:
        raise
    except _DAMAGE as error:
        words = str(error.args[0])[:80] if error.args else type(error).__name__
        condition = f"lacks a field that determines its loss, or has one of another type: {words}"
        raise InputError("card", type(release).__name__, condition) from None

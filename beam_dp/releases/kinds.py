"""The table of kinds of releases, by which all of them are written, read and verified."""

from __future__ import annotations

import dataclasses
import importlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from beam_dp.checks import check_choice, check_is, with_article
from beam_dp.errors import InputError
from beam_dp.releases.files import commit
from beam_dp.releases.files.card import (
    CARD,
    HORIZON,
    READ_ERRORS,
    Card,
    Payload,
    ReleaseError,
    card_text,
    told,
)
from beam_dp.releases.release import AnyRelease, Release
from beam_dp.storage.store import FREE, DamagedFileError, Store, store_for

if TYPE_CHECKING:
    from beam_dp.verification.verdict import Verification

ReleaseT = TypeVar("ReleaseT", bound=Release)


# The folder of each kind, next to this file, by the name of the kind in cards. It has
#   files.py     ``payload``: the files of a release, by name; and ``read``: the release of a card
#                and its payload, which may raise InputError or DamagedFileError;
#   verify.py    ``verify_KIND``: the verification of a release;
#   describe.py  ``describe_KIND``: the tables that `beam-dp describe` prints; and ``report_KIND``:
#                the sections of `beam-dp report`;
#   answer.py    ``answer_KIND``: prints the answers to a command line of `beam-dp answer`; and,
#                if it has cells, ``compare_KIND``: the differences between those of two releases.
# A module is imported when it is first needed: reading one kind loads nothing of the others.
KINDS = {
    "synthetic_database": "synthetic_database",
    "intervals": "intervals",
    "sparse_release": "sketches",
    "answers": "answers",
    "window_tables": "windows",
}
# Errors that a card without a field, or with one of another type, may cause.
_DAMAGE = (ArithmeticError, AssertionError, LookupError, TypeError, ValueError)
# A directory of many releases has no files of its own kind.
_FOLDERS = {**KINDS, "horizon": "windows"}


def part(kind: str, name: str) -> Any:
    """Returns a module of a kind, such as ``part("intervals", "files")``."""
    return importlib.import_module(f"beam_dp.releases.{_FOLDERS[kind]}.{name}")


def of_kind(verb: str, release: AnyRelease, *arguments: Any) -> Any:
    """Calls the function of a kind for a verb, such as ``describe_intervals``."""
    module = part(release.KIND, "describe" if verb == "report" else verb)
    return getattr(module, f"{verb}_{release.KIND}")(release, *arguments)


def draw_of(release: Release) -> commit.Draw:
    """Returns a release of any kind as it is written."""
    payload = part(release.KIND, "files").payload(release)
    text = card_text(release.KIND, release.draw_id, release.card, payload)
    return commit.Draw(text.encode(), payload)


def write_release(release: Release, directory: str | os.PathLike[str]) -> None:
    """Writes a release to a directory.

    Args:
        release: what to write.
        directory: local, ``gs://BUCKET/FOLDER`` or ``s3://BUCKET/FOLDER``; it does not exist yet,
            is empty, or already holds this very draw, which is then completed.

    Raises:
        InputError: if it holds something else, or can't be written.

    Example:
        >>> write_release(release, "out/visits")  # doctest: +SKIP
    """
    check_is("release", release, Release)
    if commit.committed_card(store_for(directory, "output"), directory) is None:
        commit.check_free(directory)
    if not commit_release(release, directory):
        raise InputError("output", os.fspath(directory), FREE)


def commit_release(release: Release, directory: str | os.PathLike[str]) -> bool:
    """Writes a release unless another draw was committed first: ``commit_draw``."""
    return commit.commit_draw(draw_of(release), directory)


def release_to_bytes(release: Release) -> bytes:
    """Returns a release of any kind as bytes, without pickle."""
    return draw_of(release).to_bytes()


def release_from_bytes(data: bytes) -> Release:
    """Returns the release that ``release_to_bytes`` wrote."""
    name = "bytes"
    try:
        draw = commit.Draw.from_bytes(data)
    except (DamagedFileError, ValueError) as error:
        raise ReleaseError(name, str(error)) from None
    return _read(name, lambda: draw.text, lambda file, _: draw.payload[file])


@overload
def read_release(directory: str | os.PathLike[str]) -> Release: ...


@overload
def read_release(directory: str | os.PathLike[str], *, kind: type[ReleaseT]) -> ReleaseT: ...


def read_release(directory: str | os.PathLike[str], *, kind: Any = Release) -> Release:
    """Reads a release, of any kind or of one that is expected, and verifies all of it.

    A damaged or hostile directory is refused: files must be those that the card names, regular ones
    in this directory, of the sizes and checksums that it states, and hold records of its domain.
    Nothing that is read is run.

    Args:
        directory: that ``write_release`` wrote; local, ``gs://BUCKET/FOLDER`` or
            ``s3://BUCKET/FOLDER``.
        kind: the class that it must be of, such as ``SyntheticDatabase``; type checkers then know
            it, too.

    Returns:
        The release, of the kind that the card names: synthetic records, interval counts, sketches
        and counts for sparse queries, answers, or tables of a window.

    Raises:
        ReleaseError: if it holds none, a damaged one, or one of another kind; where a job has left
            drafts there, it names the command that completes what was committed.
        InputError: if the kind is no class of releases.

    Cost: about 0.1 microseconds a record, and 0.5 a distinct record and attribute; or 0.1 a cell
    or element of a release for sparse queries; or 10 an answer.

    Example:
        >>> release = read_release("out/visits", kind=SyntheticDatabase)  # doctest: +SKIP
    """
    if not (isinstance(kind, type) and issubclass(kind, Release)):
        condition = "must be a class of releases, such as dp.SyntheticDatabase"
        raise InputError("kind", kind, condition)
    store = store_for(directory, "release")
    try:
        release = _read(os.fspath(directory), lambda: _text_in(store, directory), store.read)
    except ReleaseError as error:
        condition = error.condition + commit.advice_on_drafts(store, directory)
        raise ReleaseError(os.fspath(directory), condition) from None
    if not isinstance(release, kind):
        condition = f"must hold {with_article(kind)}; this is {with_article(type(release))}"
        raise ReleaseError(os.fspath(directory), condition)
    return release


def holds_horizon(directory: str | os.PathLike[str]) -> bool:
    """Returns whether a directory has a ``horizon.json``, damaged or not."""
    try:
        return store_for(directory, "release").fingerprint(HORIZON) is not None
    except OSError:
        return False  # reading the directory reports it


def read_any(directory: str | os.PathLike[str]) -> AnyRelease:
    """Reads the release of a directory, or the windows of a stream: see ``read_windows``."""
    if not holds_horizon(directory):
        return read_release(directory)
    found: AnyRelease = part("horizon", "horizon_files").read_windows(directory)
    return found


def _text_in(store: Store, directory: str | os.PathLike[str]) -> bytes:
    if not store.exists():
        raise ReleaseError(os.fspath(directory), "must be a directory that holds a release")
    try:
        return store.read(CARD)
    except FileNotFoundError:
        if store.fingerprint(HORIZON) is not None:
            condition = "holds the releases of many windows: read_windows reads them"
            raise ReleaseError(os.fspath(directory), condition) from None
        raise


def _read(
    name: str, read_text: Callable[[], bytes], read_file: Callable[[str, int], bytes]
) -> Release:
    """Returns a release from its card and files; reports errors in one line."""
    payload = None
    try:
        card = Card.from_text(read_text().decode())
        check_choice("kind", card.kind, KINDS)
        payload = Payload(card, read_file)
        release: Release = part(card.kind, "files").read(card, payload)
        object.__setattr__(release, "read_from", card.fields)
        return release
    except ReleaseError:
        raise
    except READ_ERRORS as error:
        place = CARD if payload is None else payload.place
        raise ReleaseError(name, f"{place}{told(error)}") from None


def verify_release(release: AnyRelease) -> Verification:
    """Recomputes what a release reveals from the noise that its card states.

    For each step the scale and the sensitivity give what it reveals; steps are composed, and
    converted to epsilon at the card's delta, by arithmetic that never states less than is true.
    Figures that follow from others are recomputed and compared to 1e-9. No one can tell from a
    release that its noise was drawn as it says: this checks that what it says keeps its promise.

    Args:
        release: from ``read_release`` or ``read_windows``, which compare the checksums.

    Returns:
        The steps, the total, the faults; see ``Verification.holds``.

    Raises:
        InputError: if the card lacks what the loss follows from, naming the field.

    Cost: tenths of a second; for linear answers that of ``workload_sensitivity``, for a horizon
    that of reading all its windows.

    Example:
        >>> verify_release(read_release("out/visits")).holds  # doctest: +SKIP
        True
    """
    from beam_dp.verification.verdict import misread

    try:
        found: Verification = of_kind("verify", release)
        if not isinstance(release, Release):
            return found
        if release.plan.get("windows") is not None:
            found = part("window_tables", "verify").of_one_window(found, release)
        return dataclasses.replace(found, faults=(*found.faults, *misread(release)))
    except InputError:
        raise
    except _DAMAGE as error:
        words = str(error.args[0])[:80] if error.args else type(error).__name__
        condition = f"lacks a field that its loss follows from, or has another type: {words}"
        raise InputError("card", type(release).__name__, condition) from None

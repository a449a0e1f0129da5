"""Completes releases and removes drafts that killed writers left in a directory."""

from __future__ import annotations

import os
import posixpath  # slashes work in buckets and on every system

from beam_dp.domain.texts import checked_json
from beam_dp.errors import InputError
from beam_dp.releases.files.card import CARD, LEVELS, WINDOWS, payload_file
from beam_dp.releases.files.commit import place_payload, read_card
from beam_dp.releases.kinds import holds_horizon
from beam_dp.releases.parts import part
from beam_dp.storage.open import store_for
from beam_dp.storage.store import DamagedFileError, PayloadFile, Store


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
    above = [WINDOWS, *(f"{LEVELS}/{size}" for size in store.folders(LEVELS))]
    inside = [f"{each}/{name}" for each in above for name in store.folders(each)]
    return [os.fspath(directory), *(posixpath.join(directory, each) for each in inside)]


def _finish(directory: str) -> bool:
    """Finishes the directory of one release."""
    store = store_for(directory, "output")
    drafts, files = store.drafts(), _committed_files(store)
    if files is None:
        # A writer may be publishing a card now. If its draft is withdrawn first, the draft is
        # removed; otherwise the draft is moved into place.
        drafts = [store.withdraw(draft) for draft in drafts]
        files = _committed_files(store) or {}
    missing = place_payload(store, files)
    for draft in drafts:
        store.remove_draft(draft)
    return bool(files) and not missing


def _committed_files(store: Store) -> dict[str, PayloadFile] | None:
    """Returns the files that a card names, empty for a damaged card; None without a card."""
    try:
        card = read_card(store)
        if card is None:
            return None
        entries = checked_json("card", CARD, card.decode())["files"].items()
        files = {name: payload_file(name, entry) for name, entry in entries}
        return files if all(os.path.basename(name) == name for name in files) else {}
    except (AttributeError, DamagedFileError, InputError, LookupError, TypeError, ValueError):
        return {}  # reading the release reports the damage

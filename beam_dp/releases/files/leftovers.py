"""Finding and removing what killed writers left in a directory."""

from __future__ import annotations

import os

from beam_dp.domain.strict_json import checked_json
from beam_dp.errors import InputError
from beam_dp.releases.files.card import CARD, payload_file
from beam_dp.releases.files.commit import place_payload, read_card
from beam_dp.storage.of_url import store_for
from beam_dp.storage.store import DamagedFileError, PayloadFile, Store


def finish_writing(directory: str | os.PathLike[str]) -> bool:
    """Completes a release that a killed writer had committed, and removes all drafts.

    For when a job has ended, however it did: a draft may be a second draw of noise, which nobody
    should see. A release without its card is none, and goes. A writer that is still alive, and
    has not published its card by now, finds its draft withdrawn and fails; one that starts later
    follows the rules of ``commit``.

    Args:
        directory: the output of the job. It need not exist.

    Returns:
        Whether it holds a committed release with all its files.

    Raises:
        InputError: if it is on a filesystem where no release can be committed.
        OSError: if drafts can't be read or removed.
    """
    store = store_for(directory, "output")
    drafts, files = store.drafts(), _committed_files(store)
    if files is None:
        # A card may be published while we look: what was withdrawn before it goes, or is placed.
        drafts = [store.withdraw(draft) for draft in drafts]
        files = _committed_files(store) or {}
    missing = place_payload(store, files)
    for draft in drafts:
        store.remove_draft(draft)
    return bool(files) and not missing


def _committed_files(store: Store) -> dict[str, PayloadFile] | None:
    """Returns what a card promises, nothing where it is none of ours; None without a card."""
    try:
        card = read_card(store)
        if card is None:
            return None
        entries = checked_json("card", CARD, card.decode())["files"].items()
        files = {name: payload_file(name, entry) for name, entry in entries}
        return files if all(os.path.basename(name) == name for name in files) else {}
    except (AttributeError, DamagedFileError, InputError, LookupError, TypeError, ValueError):
        return {}  # whoever reads the release says so

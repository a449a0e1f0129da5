"""What writers that were killed have left in a directory, once their job has ended."""

from __future__ import annotations

import os

from beam_dp.errors import InputError
from beam_dp.releases.card import parse_card_text, payload_file
from beam_dp.releases.filesystem import store_for
from beam_dp.releases.store import CARD, MAX_CARD_BYTES


def finish_writing(directory: str | os.PathLike[str]) -> bool:
    """Completes a release that a killed writer had committed, and removes all drafts.

    For when a job has ended, however it did: a draft may be a second draw of noise, which nobody
    should see. A release without its card is none, and goes. A writer that is still alive finds its
    draft gone and fails; one that starts later follows the rules of ``store``.

    Args:
        directory: the output of the job. It need not exist.

    Returns:
        Whether it holds a committed release with all its files.

    Raises:
        InputError: if it is not local.
        OSError: if drafts can't be read or removed.
    """
    store = store_for(directory)
    files = {}
    text = store.read_card(CARD, MAX_CARD_BYTES)
    if text is not None:
        try:
            entries = parse_card_text(text)["files"].items()
            files = {name: payload_file(name, entry) for name, entry in entries}
        except (InputError, AttributeError, LookupError, TypeError):
            files = {}  # no card of ours: whoever reads the release says so
    for name, promised in files.items():
        for draft in store.drafts():
            if store.fingerprint(name) == promised:
                break
            if os.path.basename(name) == name and store.fingerprint(name, draft) == promised:
                store.place(draft, name)
    for draft in store.drafts():
        store.remove_draft(draft)
    return bool(files) and all(
        store.fingerprint(name) == promised for name, promised in files.items()
    )

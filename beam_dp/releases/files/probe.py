"""The test of an output directory before anybody pays for a release."""

from __future__ import annotations

import errno
import os

from beam_dp.errors import InputError
from beam_dp.releases.files.commit import check_output
from beam_dp.storage.of_url import store_for
from beam_dp.storage.store import Store

_PAYLOAD, _CARD = "payload", "card"


def probe_output(directory: str | os.PathLike[str]) -> None:
    """Commits a few bytes in a private draft, as a release would be, and removes all of it.

    ``check_output`` only looks. This finds what shows in no permission: a filesystem without hard
    links, one that can only be read, a link that replaces what is there, files that stay. Call it
    before a ledger is paid from; the programs do. Space that runs out later nobody finds before.

    Args:
        directory: where the release is to be. It is not made; a folder ``.draft-trial-*`` is, for
            a moment, in it or in the nearest directory above that exists.

    Raises:
        InputError: if ``check_output`` refuses it, or no release can be committed in it.

    Cost: some milliseconds; in a bucket about 50 requests.
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

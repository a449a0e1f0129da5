"""The command `beam-dp finish`, which cleans up after a job whose program was killed."""

from __future__ import annotations

import argparse
from typing import Any

from beam_dp.errors import InputError


def add_finish(commands: Any) -> None:
    """Adds the command's arguments to those of `beam-dp`."""
    finish = commands.add_parser(
        "finish",
        help="once a job has ended: complete what it committed, remove its drafts",
    )
    finish.add_argument("directory", metavar="DIR", help="output of a job that has ended")


def run_finish(options: argparse.Namespace) -> None:
    """Completes a release that was committed, removes all drafts, and says which it was.

    Args:
        options: of `beam-dp finish`.

    Raises:
        InputError: if there is no such directory, or drafts can't be removed.
        ReleaseError: if a card was committed and its release can't be completed.
    """
    from beam_dp.releases import ReleaseError, finish_writing
    from beam_dp.releases.files.card import CARD
    from beam_dp.storage.of_url import store_for

    directory = options.directory
    store = store_for(directory, "output")
    try:
        if not store.exists():
            condition = "must be a directory that exists: is the name right?"
            raise InputError("output", directory, condition)
        num_drafts = len(store.drafts())
        is_complete = finish_writing(directory)
        left = store.drafts()
        has_card = store.fingerprint(CARD) is not None
    except OSError as error:
        condition = f"may hold drafts, .draft-*, which are private: {error.strerror}"
        raise InputError("output", directory, condition) from None
    if left:
        condition = (
            f"still holds drafts, {left[0]} for one, which are private: they can't be removed, or"
            " a worker is alive"
        )
        raise InputError("output", directory, condition)
    removed = f"drafts removed: {num_drafts}"
    if has_card and not is_complete:
        condition = f"{CARD} names no files of a release, or some that are missing or damaged"
        raise ReleaseError(directory, f"{condition}; {removed}")
    state = "the release is complete" if is_complete else "no release was committed"
    print(f"{directory}: {state}; {removed}")

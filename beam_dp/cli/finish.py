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

    Of a horizon, the releases of all its windows and blocks.

    Raises:
        InputError: if there is no such directory, or drafts can't be removed.
        ReleaseError: if a card was committed and its release can't be completed.
    """
    from beam_dp.releases.files.card import CARD, ReleaseError
    from beam_dp.releases.kinds import holds_horizon
    from beam_dp.releases.leftovers import finish_each
    from beam_dp.releases.windows.horizon_files import release_directories
    from beam_dp.storage.of_url import store_for

    directory = options.directory
    try:
        if not store_for(directory, "output").exists():
            condition = "must be a directory that exists: is the name right?"
            raise InputError("output", directory, condition)
        stores = {place: store_for(place, "output") for place in release_directories(directory)}
        num_drafts = sum(len(store.drafts()) for store in stores.values())
        done = finish_each(directory)
        left = [draft for store in stores.values() for draft in store.drafts()]
        broken = [
            place
            for place, is_complete in done.items()
            if not is_complete and store_for(place, "output").fingerprint(CARD) is not None
        ]
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
    if broken:
        condition = f"{CARD} names no files of a release, or some that are missing or damaged"
        raise ReleaseError(broken[0], f"{condition}; {removed}")
    if holds_horizon(directory):
        state = _state_of_horizon(directory)
    elif done[directory]:
        state = "the release is complete"
    else:
        # A writer that is still alive publishes nothing from them any more.
        state, removed = "no release was committed", f"drafts withdrawn: {num_drafts}"
    print(f"{directory}: {state}; {removed}")


def _state_of_horizon(directory: str) -> str:
    from beam_dp.releases.windows.horizon_files import read_horizon, released

    _, card = read_horizon(directory)
    found = released(directory, card)
    state = f"{len(found.windows):,} of {card.horizon.num_windows:,} windows are released"
    if card.block is not None:
        state += f", {len(found.blocks):,} of {card.num_blocks:,} blocks"
    return state

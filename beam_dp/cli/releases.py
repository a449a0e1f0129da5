"""The commands that read or complete a release: `describe`, `answer` and `finish`."""

from __future__ import annotations

import argparse
import dataclasses
import json
from typing import Any

from beam_dp.errors import InputError
from beam_dp.flags import questions
from beam_dp.flags.command_line import Command
from beam_dp.flags.flag import DIRECTORY, JSON


def _describe(options: argparse.Namespace) -> None:
    """Prints what a release promises, or its card as JSON."""
    from rich.console import Console

    from beam_dp.releases.files.card import CARD, HORIZON
    from beam_dp.releases.kinds import of_kind, read_any
    from beam_dp.storage.of_url import store_for

    release: Any = read_any(options.directory)
    is_horizon = release.KIND == "horizon"
    if not options.json:
        Console().print(of_kind("describe", release))
        return
    # All of the release was verified when it was read, so this is its card.
    text = store_for(options.directory, "release").read(HORIZON if is_horizon else CARD).decode()
    if is_horizon:
        found = {"windows": [*release.windows], "blocks": [*release.blocks]}
        text = json.dumps({**json.loads(text), "released": found}, ensure_ascii=False) + "\n"
    print(text, end="")


def _answer(options: argparse.Namespace) -> None:
    """Prints the answers to what a command line asks."""
    questions.check_answer(options)
    from beam_dp.releases.kinds import of_kind, read_any

    of_kind("answer", read_any(options.directory), options)


def _finish(options: argparse.Namespace) -> None:
    """Completes a committed release after its job was killed, and removes all drafts.

    For a horizon, it does so for all its windows and blocks.

    Raises:
        InputError: if there is no such directory, or drafts cannot be removed.
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
        # A live writer can no longer publish anything from them.
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


COMMANDS = {
    "describe": Command((DIRECTORY, JSON), _describe),
    "answer": Command(questions.FLAGS, _answer),
    "finish": Command(
        (dataclasses.replace(DIRECTORY, help="output of a job that has ended"),), _finish
    ),
}

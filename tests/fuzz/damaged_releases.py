"""Releases that are damaged in their card or in a file, with checksums made to fit."""

from __future__ import annotations

import atexit
import json
import pathlib
import shutil
import tempfile
from collections.abc import Callable
from functools import cache
from typing import Any

from fuzz.choices import Choices
from fuzz.mutations import mutate_bytes, mutate_json

CARD = "card.json"


@cache
def fuzz_folder() -> pathlib.Path:
    """One folder a process, in memory where the system has such."""
    shared = "/dev/shm"
    folder = tempfile.mkdtemp(dir=shared if pathlib.Path(shared).is_dir() else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return pathlib.Path(folder)


def written_to_fuzz_folder(files: dict[str, bytes]) -> pathlib.Path:
    folder = fuzz_folder()
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder


def damaged_release(
    data: bytes, good: dict[str, bytes], card_text_of: Callable[[dict[str, bytes]], str]
) -> pathlib.Path:
    """Writes a release of good files, damaged as the data say; returns its folder."""
    choices = Choices(data)
    how = choices.number(4)
    files = dict(good)
    if how == 0:
        name = choices.one_of(sorted(files))
        files[name] = mutate_bytes(files[name], choices)
    parsed: Any = json.loads(card_text_of(files))
    card = json.dumps(parsed).encode()
    if how == 1:
        card = mutate_bytes(card, choices)
    elif how >= 2:
        card = mutate_json(parsed, choices).encode()
    return written_to_fuzz_folder({CARD: card, **files})

"""Releases that are changed on disk, and their error lines."""

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from executed_lines import lines_below

import beam_dp as dp


@contextlib.contextmanager
def edited_card(folder: pathlib.Path) -> Iterator[dict[str, Any]]:
    """Yields the card of a release, and writes it with its changes."""
    path = folder / "card.json"
    card = json.loads(path.read_text())
    yield card
    path.write_text(json.dumps(card))


def replace_file(path: pathlib.Path, data: bytes) -> None:
    """Replaces a file of a release, and its entry on the card."""
    path.write_bytes(data)
    with edited_card(path.parent) as card:
        card["files"][path.name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


def refusal_line(folder: pathlib.Path, max_lines: int | None = None) -> str:
    """Returns the error line of a release, which executes at most some lines of code."""
    limit = contextlib.nullcontext() if max_lines is None else lines_below(max_lines)
    with limit, pytest.raises(dp.ReleaseError) as caught:
        dp.read_release(folder)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 3000
    return line

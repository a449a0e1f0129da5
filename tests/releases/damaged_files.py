"""A release with one file, which is changed on disk, and its error line."""

from __future__ import annotations

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest

from beam_dp.releases.files.avro import file_name
from beam_dp.releases.files.card import ReleaseError
from beam_dp.releases.kinds import read_release, write_release
from beam_dp.releases.release import Release


def refusal_of(
    release: Release,
    purpose: str,
    folder: pathlib.Path,
    change_card: Callable[[dict[str, Any]], Any] = lambda card: None,
    change_data: Callable[[bytes], bytes] = lambda data: data,
    *,
    with_checksum: bool = True,
) -> str:
    """Writes a release with changed files, and returns the error line."""
    write_release(release, folder)
    card = json.loads((folder / "card.json").read_text())
    path = folder / file_name(release.draw_id, purpose)
    data = change_data(path.read_bytes())
    path.write_bytes(data)
    if with_checksum:
        entry = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
        card["files"] = {path.name: entry}
    change_card(card)
    (folder / "card.json").write_text(json.dumps(card))
    with pytest.raises(ReleaseError) as caught:
        read_release(folder)
    line = str(caught.value)
    assert "\n" not in line and len(line) < 3000
    return line

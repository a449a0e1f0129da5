"""Releases: their cards and files, what reads them, and schemas."""

from __future__ import annotations

import json

from surfaces import Surface
from verification.forgeries import forge
from verification.kinds_of_releases import written

from beam_dp.releases.files.commit import Draw
from beam_dp.releases.kinds import release_from_bytes, verify_release


def verify(name: str, changes: str) -> object:
    """Verifies a release of ``kinds_of_releases`` whose card was changed."""
    draw = written(f"{name}, add_or_remove_one")
    card = json.loads(draw.text)
    forge(card, changes)
    return verify_release(
        release_from_bytes(Draw(json.dumps(card).encode(), draw.payload).to_bytes())
    )


SURFACES: dict[str, Surface] = {"verify_release": {"verify": verify}}

"""Releases: their cards and files, what reads them, and schemas."""

from __future__ import annotations

import json
from typing import Any

import kind_examples
import numpy as np
from kind_examples import read, unpack
from release_examples import release_of
from surfaces import Surface
from verification.forgeries import forge
from verification.kinds_of_releases import written

import beam_dp as dp
from beam_dp.releases.files.commit import Draw, check_output
from beam_dp.releases.kinds import (
    read_release,
    release_from_bytes,
    verify_release,
    write_release,
)
from beam_dp.releases.leftovers import finish_writing


def verify(name: str, changes: str) -> object:
    """Verifies a release of ``kinds_of_releases`` whose card was changed."""
    draw = written(f"{name}, add_or_remove_one")
    card = json.loads(draw.text)
    forge(card, changes)
    forged = Draw(json.dumps(card).encode(), draw.payload)
    return verify_release(release_from_bytes(forged.to_bytes()))


STORES: dict[str, Any] = {
    "check_output": check_output,
    "finish_writing": finish_writing,
    "read_release": read_release,
    "write_release": write_release,
    "release": release_of(),
    "MWEM": dp.MWEM,
}
SURFACES: dict[str, Surface] = {
    "read_release": {
        **vars(kind_examples),
        **vars(dp),
        "read": read,
        "unpack": unpack,
        "dp": dp,
        "nan": np.nan,
        "inf": np.inf,
    },
    "verify_release": {"verify": verify},
    "stores": STORES,
}

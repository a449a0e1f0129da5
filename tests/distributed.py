"""What `make dist` has built."""

from __future__ import annotations

import os
import pathlib

from interpreters import ROOT

DIST = ROOT / "dist"
HERE = f"beam_dp-*-cp311-abi3-*_{os.uname().machine}.whl"


def built(pattern: str) -> pathlib.Path:
    """Returns the file in ``dist/`` that a pattern names."""
    found = list(DIST.glob(pattern))
    assert len(found) == 1, f"dist: {pattern} is there {len(found)} times; `make dist` makes it"
    return found[0]

"""What artifacts hold under a hash key, by the hash family that they name.

An artifact is read with the family of its card alone. Whoever changes what a family computes makes
every artifact that names it answer nonsense: a change needs a new `HASH_FAMILY`, and a new row.
"""

import hashlib

import numpy as np
import pytest

from beam_dp.hashing.evaluation import ENVIRONMENT_VARIABLE, available_backends
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.hashing.projections import BlockSigns, DenseSigns, cell_of, fold
from beam_dp.releases.sketches.files import HASH_FAMILY

ELEMENTS = ["alice@example.org", "", "é", b"alice@example.org", b"\xff\0", 0, 17, 2**64 - 1]
COUNTS = np.arange(1, len(ELEMENTS) + 1, dtype=np.int64)
GOLDEN = {
    "bivariate polynomials over GF(2^64), 1": {
        "elements": "9a33afc458f7b207",
        "dense signs, width 64": "fee4edd000085fa8",
        "3 blocks of 16, buckets": "ce42be612e2b9c62",
        "3 blocks of 16, signs": "f28473685ded5f6a",
        "3 blocks of 16, sums": "44d3b7b6f62a0166",
        "3 rows of 5 cells, sums": "bf75905119e2f3ad",
        "cells of a row of 5": "bb199fb853dc831b",
        "written key": "fb18e6327f501a48",
    }
}


def fixed_key() -> HashKey:
    """A key of independence 6, written out: it must not come from what is tested."""
    words = [
        int.from_bytes(hashlib.sha256(f"word {number}".encode()).digest()[:8], "little")
        for number in range(21)
    ]
    return HashKey(6, np.array(words, dtype=np.uint64), bytes(range(16)))


@pytest.fixture(params=available_backends())
def key(request, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, request.param)
    return fixed_key()


def parts(key: HashKey) -> dict[str, str]:
    """What the family computes: all that answers of an artifact depend on."""
    elements = universe_elements(ELEMENTS, key)
    blocks = BlockSigns(key, 3 * 16, 3)
    buckets, signs = blocks.buckets_and_signs(elements)
    sums = blocks.project(elements, COUNTS)
    computed = {
        "elements": elements.astype(np.int64),
        "dense signs, width 64": DenseSigns(key, 64).project(elements, COUNTS),
        "3 blocks of 16, buckets": buckets,
        "3 blocks of 16, signs": signs,
        "3 blocks of 16, sums": sums,
        "3 rows of 5 cells, sums": fold(sums, 3, 5),
        "cells of a row of 5": cell_of(np.arange(16), 5),
    }
    found = {name: array.astype("<i8").tobytes() for name, array in computed.items()}
    found["written key"] = key.to_bytes()
    return {name: hashlib.sha256(data).hexdigest()[:16] for name, data in found.items()}


def test_hash_values_are_the_same_as_in_existing_artifacts(key):
    assert parts(key) == GOLDEN[HASH_FAMILY]

"""Sparse releases that are damaged anywhere: refused in one line, or read and usable."""

from __future__ import annotations

from functools import cache

import numpy as np
from fuzz.damaged_releases import damaged_release
from fuzz.mutations import raised_by

from beam_dp.hashing.keys import HashKey
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases.files.card import ReleaseError, card_text
from beam_dp.releases.kinds import read_release
from beam_dp.releases.sketches.describe import describe_sparse_release
from beam_dp.releases.sketches.files import payload
from beam_dp.releases.sketches.release import NoisyCounts, NoisySketch, SparseRelease, key_type_of
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

DRAW = "0123456789abcdef0123456789abcdef"


@cache
def _good() -> tuple[SparseRelease, dict[str, bytes]]:
    elements = np.arange(20, dtype=np.uint64) * np.uint64(2**59)
    release = SparseRelease(
        draw_id=DRAW,
        mechanism="hybrid_sketch",
        guarantee=Guarantee(1.0, 1e-9, "add_or_remove_one", "person", 2),
        hash_key=HashKey(2, np.arange(3, dtype=np.uint64), bytes(16)),
        max_sparsity=10,
        max_weight=7,
        plan={"key": {"key": "email", "key_type": "text", "weight": None, "rule": 2}},
        sketch=NoisySketch("blocks", 3, np.arange(-9, 9), "discrete_laplace", 3.5, "median"),
        histogram=NoisyCounts(elements, np.arange(50, 70), 2.5, 50),
    )
    return release, payload(release)


def read_sparse_release_target(data: bytes) -> None:
    """A valid release, damaged in its card or in a file; checksums made to fit."""
    release, files = _good()
    folder = damaged_release(
        data, files, lambda damaged: card_text("sparse_release", DRAW, release.card, damaged)
    )
    raised_by(lambda: _use(read_release(folder)), ReleaseError)


def _use(release: SyntheticDatabase | SparseRelease) -> None:
    """What was read is a release: it can be described, asked, and written again."""
    assert isinstance(release, SparseRelease)
    repr(release)
    describe_sparse_release(release)
    key_type_of(release.plan)
    answer = release.answer(np.array([5], np.uint64), np.ones(1))
    assert np.isfinite([answer.value, answer.standard_error, answer.bound]).all()
    card_text("sparse_release", DRAW, release.card, payload(release)).encode()

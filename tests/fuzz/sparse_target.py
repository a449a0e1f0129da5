"""Sparse releases that are damaged anywhere: refused in one line, or read and usable."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
from fuzz.choices import Choices
from fuzz.mutations import mutate_bytes, mutate_json, raised_by

from beam_dp.cli.describe_sketches import describe_sparse
from beam_dp.hashing import HashKey
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.releases import (
    NoisyCounts,
    NoisySketch,
    ReleaseError,
    SparseRelease,
    SyntheticDatabase,
    read_release,
)
from beam_dp.releases.files.card import card_text
from beam_dp.releases.files.sketches import fields, payload
from beam_dp.releases.sketch_keys import key_type_of

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
        public={"key": {"key": "email", "key_type": "text", "weight": None}},
        sketch=NoisySketch("blocks", 3, np.arange(-9, 9), "discrete_laplace", 3.5, "median"),
        histogram=NoisyCounts(elements, np.arange(50, 70), 2.5, 50),
    )
    return release, payload(release)


def _card_of(files: dict[str, bytes]) -> Any:
    return json.loads(card_text("sparse_release", DRAW, fields(_good()[0]), files))


def read_sparse_release_target(data: bytes) -> None:
    """A valid release, damaged in its card or in a file; checksums made to fit."""
    from fuzz.targets import CARD, fuzz_folder

    choices = Choices(data)
    how = choices.number(4)
    files = dict(_good()[1])
    if how == 0:
        name = choices.one_of(sorted(files))
        files[name] = mutate_bytes(files[name], choices)
    card = json.dumps(_card_of(files)).encode()
    if how == 1:
        card = mutate_bytes(card, choices)
    elif how >= 2:
        card = mutate_json(_card_of(files), choices).encode()
    folder = fuzz_folder()
    for name, content in {CARD: card, **files}.items():
        (folder / name).write_bytes(content)
    raised_by(lambda: _use(read_release(folder)), ReleaseError)


def _use(release: SyntheticDatabase | SparseRelease) -> None:
    """What was read is a release: it can be described, asked, and written again."""
    assert isinstance(release, SparseRelease)
    repr(release)
    describe_sparse(release)
    key_type_of(release.public)
    answer = release.answer(np.array([5], np.uint64), np.ones(1))
    assert np.isfinite([answer.value, answer.standard_error, answer.bound]).all()
    card_text("sparse_release", DRAW, fields(release), payload(release)).encode()

"""Both projections, on every backend that this machine has."""

import functools
import hashlib
import pickle
from collections.abc import Callable

import hash_oracle
import numpy as np
import pytest

from beam_dp.hashing.backend import ENVIRONMENT_VARIABLE, available_backends
from beam_dp.hashing.keys import HashKey
from beam_dp.hashing.projections import BlockSigns, DenseSigns

Projection = DenseSigns | BlockSigns
KEY = hash_oracle.fixed_key(7)
EDGES = [0, 1, 2, 2**32, 2**63, 2**64 - 1]


@pytest.fixture(params=available_backends())
def backend(request, monkeypatch) -> str:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, request.param)
    return str(request.param)


def random_keys(size: int) -> np.ndarray:
    keys = np.random.default_rng(size).integers(0, 2**64, size=size, dtype=np.uint64)
    keys[: len(EDGES)] = EDGES[:size]
    return keys


@functools.cache
def oracle_columns(place: int) -> np.ndarray:
    """The matrix of a projection and 12 keys by definition, (keys, rows): Python integers."""
    projection, keys = MADE[place], random_keys(12)
    matrix = np.zeros((len(keys), projection.projection_width), dtype=object)
    for index, x in enumerate(keys.tolist()):
        if isinstance(projection, DenseSigns):
            for b in range(projection.projection_width // 64):
                word = hash_oracle.value(projection.key, b, x)
                for bit in range(64):
                    matrix[index, 64 * b + bit] = -1 if word >> bit & 1 else 1
            continue
        bits = projection.num_buckets.bit_length()
        for block in range(projection.num_blocks):
            word = hash_oracle.value(projection.key, block // (64 // bits), x)
            field = word >> (block % (64 // bits) * bits) & (2**bits - 1)
            row = block * projection.num_buckets + (field >> 1)
            matrix[index, row] = -1 if field & 1 else 1
    return matrix


PROJECTIONS: dict[str, Callable[[HashKey], Projection]] = {
    "dense 64": lambda key: DenseSigns(key, 64),
    "dense 192": lambda key: DenseSigns(key, 192),
    "blocks 8 x 512": lambda key: BlockSigns(key, 4096),
    "blocks 7 x 1": lambda key: BlockSigns(key, 7, 7),
    "blocks 7 x 1024": lambda key: BlockSigns(key, 7 * 1024, 7),
    "blocks 1 x 64": lambda key: BlockSigns(key, 64, 1),
}


MADE = [make(KEY) for make in PROJECTIONS.values()]


def exactly(sums: np.ndarray) -> list[int]:
    """Modulo 2^64, as signed numbers."""
    return [(int(total) + 2**63) % 2**64 - 2**63 for total in sums]


def test_sums_and_columns_match_the_definition(backend):
    keys = random_keys(12)
    weights = np.array([1, -1, 0, 5, -7, 2**62, -(2**63), 2**63 - 1, 1, 1, 3, 1000])
    for place, projection in enumerate(MADE):
        matrix = oracle_columns(place)
        expected = (matrix * weights.astype(object)[:, np.newaxis]).sum(0)
        assert projection.project(keys, weights).tolist() == exactly(expected)
        assert columns(projection, keys).tolist() == matrix.tolist()


def columns(projection: Projection, keys: np.ndarray) -> np.ndarray:
    """The matrix as answers to queries see it."""
    if isinstance(projection, DenseSigns):
        return projection.signs(keys).astype(np.int64)
    buckets, signs = projection.buckets_and_signs(keys)
    assert (buckets.dtype, signs.dtype) == (np.int64, np.int8)
    matrix = np.zeros((len(keys), projection.projection_width), dtype=np.int64)
    rows = buckets + np.arange(projection.num_blocks) * projection.num_buckets
    np.put_along_axis(matrix, rows, signs.astype(np.int64), axis=1)
    return matrix


def test_sums_equal_weighted_columns_for_every_batch_size(backend):
    """128 keys are a tile of the compiled kernel, 255 and 4096 are tiles in numpy."""
    for size in (0, 1, 2, 15, 16, 17, 127, 128, 129, 255, 256, 300, 4100):
        keys = random_keys(size)
        weights = np.random.default_rng(size).integers(-5, 100, size=size)
        # The last tiles of the largest batch are those of smaller ones.
        for projection in MADE if size < 4100 else MADE[1:3]:
            expected = np.zeros(projection.projection_width, dtype=np.int64)
            for start in range(0, size, 256):
                part = slice(start, start + 256)
                expected += weights[part] @ columns(projection, keys[part])
            assert np.array_equal(projection.project(keys, weights), expected), size


def test_order_and_split_do_not_change_the_sums(backend):
    keys = random_keys(200)
    weights = np.random.default_rng(0).integers(-3, 4, size=200)
    order = np.random.default_rng(1).permutation(200)
    for projection in MADE:
        whole = projection.project(keys, weights)
        merged = np.zeros_like(whole)
        for part in np.array_split(order, 7):
            merged += projection.project(keys[part], weights[part])
        assert np.array_equal(merged, whole)
        projection.add(merged, keys[::2], -weights[::2])  # arrays with strides
        projection.add(merged, keys[1::2], -weights[1::2])
        assert not merged.any()
        # A pickle has the key, and no tables.
        data = pickle.dumps(projection)
        assert len(data) < len(projection.key.to_bytes()) + 1000
        assert np.array_equal(pickle.loads(data).project(keys, weights), whole)


def test_byte_counters_do_not_overflow_if_all_keys_are_equal(backend):
    """The counters of a tile are bytes, and each of them is filled to its limit here."""
    keys, weights = np.full(1000, 123, dtype=np.uint64), np.full(1000, -7)
    for projection in MADE:
        expected = -7000 * columns(projection, keys[:1])[0]
        assert np.array_equal(projection.project(keys, weights), expected)


@pytest.mark.parametrize(
    "independence", [1, 2, 3, 49, *(pytest.param(r, marks=pytest.mark.part) for r in (8, 33, 48))]
)
def test_backends_agree_at_every_independence(monkeypatch, independence):
    """Chunks of coefficients, padded at their ends, differ from one independence to the next."""
    key = hash_oracle.fixed_key(independence)
    keys = random_keys(40)
    weights = np.arange(-20, 20)
    for make in PROJECTIONS.values():
        results = []
        for name in available_backends():
            monkeypatch.setenv(ENVIRONMENT_VARIABLE, name)
            results.append(make(key).project(keys, weights))
        assert all(np.array_equal(result, results[-1]) for result in results)


GOLDEN = {
    "dense": "cef1477bf2a89af7",
    "blocks": "2df0b71f4053a91c",
}


@pytest.mark.parametrize("name", GOLDEN)
def test_sums_are_the_same_on_every_machine(backend, name):
    """A change of these digests makes every artifact that was ever released unreadable."""
    key = hash_oracle.fixed_key(48)
    projection = DenseSigns(key, 1024) if name == "dense" else BlockSigns(key, 4096)
    keys = np.arange(1000, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    sums = projection.project(keys, np.arange(1000) - 300)
    assert hashlib.sha256(sums.astype("<i8").tobytes()).hexdigest()[:16] == GOLDEN[name]


def test_sign_tiles_together_equal_all_signs(monkeypatch):
    monkeypatch.setattr("beam_dp.hashing.projections._SIGN_TILE_BYTES", 1000)
    projection = DenseSigns(KEY, 192)
    keys = random_keys(23)
    tiles = list(projection.sign_tiles(keys))
    assert [part.stop - part.start for part, _ in tiles] == [5, 5, 5, 5, 3]
    assert np.array_equal(np.concatenate([signs for _, signs in tiles]), projection.signs(keys))

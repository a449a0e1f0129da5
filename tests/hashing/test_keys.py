"""Keys of hashes, both projections on every backend, and bounds on their distortion."""

import functools
import hashlib
import itertools
import math
import pickle
from collections.abc import Callable

import hash_oracle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from beam_dp.hashing.evaluation import (
    ENVIRONMENT_VARIABLE,
    GF64,
    PolynomialFamily,
    available_backends,
)
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.hashing.projections import (
    BlockSigns,
    DenseSigns,
    Distortion,
    cell_of,
    collisions,
    fold,
    num_buckets,
)


def test_key_round_trips_through_bytes():
    key = HashKey.draw(48)
    data = key.to_bytes()
    again = HashKey.from_bytes(data)
    assert again == key
    assert hash(again) == hash(key)
    assert np.array_equal(again.words, key.words)
    assert again.fingerprint_key == key.fingerprint_key
    assert 9400 < len(data) < 9500


def test_every_draw_gives_a_new_key():
    first, second = HashKey.draw(48), HashKey.draw(48)
    assert first != second
    assert first.fingerprint_key != second.fingerprint_key
    # Each bit is set in some of 1,176 uniform words, and not in others.
    assert int(np.bitwise_or.reduce(first.words)) == 2**64 - 1
    assert int(np.bitwise_and.reduce(first.words)) == 0


def test_key_cannot_be_changed():
    words = np.arange(3, dtype=np.uint64)
    key = HashKey(2, words, bytes(16))
    words[0] = 9
    assert key.words.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        key.words[0] = 1


def test_pickled_key_cannot_be_changed_either():
    key = HashKey.draw(3)
    again = pickle.loads(pickle.dumps(key))
    assert again == key
    assert not again.words.flags.writeable


@pytest.mark.parametrize("independence", [1, 2, 3, 6])
def test_values_match_the_definition(independence):
    key = hash_oracle.fixed_key(independence)
    family = PolynomialFamily(GF64, independence, key.words, 5)
    points = [0, 1, 2, 2**63, 2**64 - 1, 123456789]
    expected = [[hash_oracle.value(key, b, x) for b in range(5)] for x in points]
    assert family.values(np.array(points, dtype=np.uint64)).tolist() == expected


KEY = hash_oracle.fixed_key(2)


def fingerprint(value: str | bytes) -> int:
    """The definition, from the library alone."""
    kind = b"text" if isinstance(value, str) else b"bytes"
    data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    digest = hashlib.blake2b(data, digest_size=8, key=KEY.fingerprint_key, person=kind).digest()
    return int.from_bytes(digest, "little")


TEXTS = ["", "5", "alice@example.org", "\0", "a\0", "é", "e\u0301", "\ud800", "x" * 1000]
BINARY = [value.encode("utf-8", "surrogatepass") for value in TEXTS]
ARROW_TEXTS = [value for value in TEXTS if value != "\ud800"]


INTEGERS = [0, 5, 2**63 - 1]
FORMS = {
    "integers": [
        INTEGERS, tuple(INTEGERS), np.array(INTEGERS), np.array(INTEGERS, np.uint64),
        np.array(INTEGERS, object), pa.array(INTEGERS),
        pa.chunked_array([INTEGERS[:1], INTEGERS[1:]]), pa.array(INTEGERS).dictionary_encode(),
        [np.int64(0), np.uint8(5), 2**63 - 1],
    ],
    "64 bits": [[2**64 - 1]],
    "a narrow type": [np.array([3, 4], np.int8)],
    "text": [TEXTS, iter(TEXTS), np.array(TEXTS, object)],
    "Arrow's text": [
        pa.array(ARROW_TEXTS), pa.array(ARROW_TEXTS, pa.large_string()),
        pa.array(ARROW_TEXTS).dictionary_encode(), pa.chunked_array([ARROW_TEXTS]),
        pa.array(["", *ARROW_TEXTS])[1:],
    ],
    "numpy's text": [np.array(["5", "é", "alice@example.org"])],
    "bytes": [
        BINARY, np.array(BINARY, object), pa.array(BINARY), pa.array(BINARY, pa.large_binary()),
    ],
}  # fmt: skip
MEANT = {
    "integers": INTEGERS,
    "64 bits": [2**64 - 1],
    "a narrow type": [3, 4],
    "text": [*map(fingerprint, TEXTS)],
    "Arrow's text": [*map(fingerprint, ARROW_TEXTS)],
    "numpy's text": [*map(fingerprint, ["5", "é", "alice@example.org"])],
    "bytes": [*map(fingerprint, BINARY)],
}


@pytest.mark.parametrize("kind", FORMS)
def test_every_input_type_gives_the_expected_elements(kind):
    for values in FORMS[kind]:
        elements = universe_elements(values, KEY)
        assert elements.dtype == np.uint64
        assert elements.tolist() == MEANT[kind]


def test_equal_looking_values_of_different_types_are_distinct_elements():
    mixed = [5, "5", b"5", np.uint64(7)]
    expected = [5, fingerprint("5"), fingerprint(b"5"), 7]
    assert universe_elements(mixed, KEY).tolist() == expected
    assert len(set(expected)) == 4


def test_fingerprints_differ_if_the_key_differs():
    other = HashKey(KEY.independence, KEY.words, bytes(16))
    ours, theirs = universe_elements(TEXTS, KEY), universe_elements(TEXTS, other)
    assert not set(ours.tolist()) & set(theirs.tolist())


@pytest.mark.parametrize("values", [[], np.array([]).astype(np.int64), pa.array([], pa.string())])
def test_empty_input_has_no_elements(values):
    assert universe_elements(values, KEY).shape == (0,)


@given(st.integers(1, 300), st.integers(1, 4), st.integers(0, 2**32))
def test_fold_adds_each_bucket_to_its_cell(row_width, num_rows, seed):
    buckets = num_buckets(row_width)
    sums = np.random.default_rng(seed).integers(-(2**62), 2**62, num_rows * buckets)
    expected = np.zeros((num_rows, row_width), np.int64)
    where = cell_of(np.arange(buckets), row_width)
    for row in range(num_rows):
        np.add.at(expected[row], where, sums.reshape(num_rows, -1)[row])
    assert (fold(sums, num_rows, row_width) == expected.ravel()).all()


@given(st.integers(1, 5000))
def test_collision_probability_matches_the_bucket_counts(row_width):
    buckets = num_buckets(row_width)
    loads = np.bincount(cell_of(np.arange(buckets), row_width), minlength=row_width)
    assert loads.min() >= 1
    assert collisions(row_width) == pytest.approx(row_width * ((loads / buckets) ** 2).sum())
    assert 1 <= collisions(row_width) <= 1.05


# Both projections, on every backend that this machine has.


Projection = DenseSigns | BlockSigns
SEVENWISE = hash_oracle.fixed_key(7)
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


MADE = [make(SEVENWISE) for make in PROJECTIONS.values()]


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
    projection = DenseSigns(SEVENWISE, 192)
    keys = random_keys(23)
    tiles = list(projection.sign_tiles(keys))
    assert [part.stop - part.start for part, _ in tiles] == [5, 5, 5, 5, 3]
    assert np.array_equal(np.concatenate([signs for _, signs in tiles]), projection.signs(keys))


# Bounds on the distortion of a projection, against all outcomes of tiny independent hashes.
#
# An r-wise independent hash has the moments of independent ones up to the order r/2, and the bound
# for a probability of nearly 0 is that of the last of them: bounds tell what moments they are of.


Reals = NDArray[np.float64]
RARE = 1e-60


def distortions(num_rows: int, row_width: int, query: list[float], counts: list[float]) -> Reals:
    """Of all hashes of a few keys to cells and signs, alike likely."""
    buckets = np.arange(num_buckets(row_width))
    cells = cell_of(buckets, row_width)
    entries = [sign * np.eye(row_width)[cell] for cell in cells for sign in (1, -1)]
    found = [0.0]
    for _ in range(num_rows):
        row = []
        for places in itertools.product(entries, repeat=len(query)):
            columns = np.array(places)
            row.append((query @ columns) @ (counts @ columns) - np.dot(query, counts))
        found = [a + b for a in found for b in row]
    return np.array(found) / num_rows


# Rows, their cells, a query, counts: alike and not, with keys in common and without.
CASES = {
    "dense, in common": (2, 1, [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]),
    "dense, without": (2, 1, [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 3.0, 1.0]),
    "dense, some": (1, 1, [1.0, 1.0, 0.5, 0.0, 0.0], [4.0, 0.0, 1.0, 1.0, 2.0]),
    "dense, eight keys": (1, 1, [1.0] * 8, [5.0] * 8),
    "blocks, in common": (2, 2, [1.0, 1.0, 1.0], [2.0, 2.0, 2.0]),
    "blocks, without": (2, 2, [1.0, 1.0, 0.0], [0.0, 0.0, 5.0]),
    "blocks, some": (1, 2, [1.0, 1.0, 1.0, 0.0], [9.0, 1.0, 0.0, 2.0]),
    "folded": (1, 3, [1.0, 1.0, 0.0], [0.0, 3.0, 2.0]),
}


def tails_of(case: str, independence: int) -> tuple[Distortion, Reals, float, float]:
    rows, width, query, counts = CASES[case]
    sparsity = sum(value > 0 for value in query)
    tails = Distortion(rows * width, rows, independence, sparsity, 1)
    found = distortions(rows, width, query, counts)
    return tails, found, float(np.linalg.norm(counts)), max(counts)


@pytest.mark.parametrize("case", CASES)
def test_moments_and_tails_are_within_their_bounds(case):
    for order in (2, 4, 6):
        tails, found, norm, largest = tails_of(case, 2 * order)
        moment = tails.bound(norm, largest, RARE) ** order * RARE
        assert (found**order).mean() <= moment * (1 + 1e-12), order
    tails, found, norm, largest = tails_of(case, 48)
    for probability in (0.9, 0.5, 0.25, 0.1, 0.01):
        assert (np.abs(found) > tails.bound(norm, largest, probability)).mean() <= probability
        assert (np.abs(found) > norm * tails.coefficient(probability)).mean() <= probability


def test_fourth_moment_is_about_half_of_its_bound_if_data_equal_the_query():
    # Of W^2 - 8 for eight signs, against 8 times that of a chi-squared variable less its mean.
    tails, found, norm, largest = tails_of("dense, eight keys", 8)
    moment = tails.bound(norm, largest, RARE) ** 4 * RARE
    assert (found**4).mean() == pytest.approx(0.478 * moment, rel=0.01)
    assert moment == pytest.approx(60 * (8 * 5) ** 4)


def test_variance_is_exact_if_query_and_data_share_no_key():
    for rows, width in ((2, 1), (2, 2)):
        found = distortions(rows, width, [1.0, 1.0, 0.0], [0.0, 0.0, 5.0])
        assert found.var() == pytest.approx(2 * 25 / (rows * width))
    tails = Distortion(4, 2, 4, 2, 1)
    squares = tails.bound(5.0, 5.0, RARE) ** 2 * RARE
    assert found.var() <= squares <= 2 * found.var() * (1 + 1e-12)


def test_bounds_for_extreme_sizes_are_positive_and_finite():
    for sparsity, norm, largest in (
        (2**24, 2.0**50, 2.0**50),
        (1, 2.0**50, 1.0),
        (2**31, 1.0, 1.0),
    ):
        for width, rows in ((2**26, 8), (2**26, 2**26), (2**40, 1), (1, 1), (64, 64)):
            tails = Distortion(width, rows, 48, sparsity, 10**9)
            found = (
                tails.bound(norm, largest, 1e-100),
                tails.coefficient(1e-100),
                tails.squared_norm(1e-100),
                tails.largest_entry(1e-100),
            )
            assert all(0 < each < math.inf for each in found)

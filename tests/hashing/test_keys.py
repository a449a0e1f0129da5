"""Keys of hashes, the elements that they are of, and values against their definition."""

import hashlib
import pickle

import hash_oracle
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from beam_dp.hashing.evaluation import GF64, PolynomialFamily
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.hashing.projections import cell_of, collisions, fold, num_buckets


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

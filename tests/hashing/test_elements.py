from __future__ import annotations

import hashlib

import hash_oracle
import numpy as np
import pyarrow as pa
import pytest

from beam_dp.hashing.keys import HashKey, universe_elements

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

from __future__ import annotations

import hashlib
import re

import hash_oracle
import numpy as np
import pyarrow as pa
import pytest
from refusals import refusal

from beam_dp.errors import InputError
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


def test_integers_are_themselves():
    expected = [0, 5, 2**63 - 1]
    for values in [
        expected,
        tuple(expected),
        np.array(expected),
        np.array(expected, dtype=np.uint64),
        np.array(expected, dtype=object),
        pa.array(expected),
        pa.chunked_array([expected[:1], expected[1:]]),
        pa.array(expected).dictionary_encode(),
        [np.int64(0), np.uint8(5), 2**63 - 1],
    ]:
        elements = universe_elements(values, KEY)
        assert elements.dtype == np.uint64
        assert elements.tolist() == expected
    assert universe_elements([2**64 - 1], KEY).tolist() == [2**64 - 1]
    assert universe_elements(np.array([3, 4], dtype=np.int8), KEY).tolist() == [3, 4]


def test_text_has_the_fingerprint_of_the_definition():
    expected = [fingerprint(value) for value in TEXTS]
    for values in [TEXTS, iter(TEXTS), np.array(TEXTS, dtype=object)]:
        assert universe_elements(values, KEY).tolist() == expected
    expected = [fingerprint(value) for value in ARROW_TEXTS]
    for array in [
        pa.array(ARROW_TEXTS),
        pa.array(ARROW_TEXTS, pa.large_string()),
        pa.array(ARROW_TEXTS).dictionary_encode(),
        pa.chunked_array([ARROW_TEXTS]),
        pa.array(["", *ARROW_TEXTS])[1:],
    ]:
        assert universe_elements(array, KEY).tolist() == expected
    fixed_width = np.array(["5", "é", "alice@example.org"])
    assert universe_elements(fixed_width, KEY).tolist() == list(map(fingerprint, fixed_width))


def test_bytes_have_the_fingerprint_of_the_definition():
    expected = [fingerprint(value) for value in BINARY]
    for values in [
        BINARY,
        np.array(BINARY, dtype=object),
        pa.array(BINARY),
        pa.array(BINARY, pa.large_binary()),
    ]:
        assert universe_elements(values, KEY).tolist() == expected


def test_types_are_kept_apart_also_in_one_list():
    mixed = [5, "5", b"5", np.uint64(7)]
    expected = [5, fingerprint("5"), fingerprint(b"5"), 7]
    assert universe_elements(mixed, KEY).tolist() == expected
    assert len(set(expected)) == 4


def test_another_key_gives_other_fingerprints():
    other = HashKey(KEY.independence, KEY.words, bytes(16))
    ours, theirs = universe_elements(TEXTS, KEY), universe_elements(TEXTS, other)
    assert not set(ours.tolist()) & set(theirs.tolist())


@pytest.mark.parametrize("values", [[], np.array([]).astype(np.int64), pa.array([], pa.string())])
def test_empty_input_has_no_elements(values):
    assert universe_elements(values, KEY).shape == (0,)


NO_ELEMENTS = [5.0, float("nan"), True, None, -1, 2**64, np.float64(5), np.bool_(True), (5,)]


@pytest.mark.parametrize("value", NO_ELEMENTS)
def test_anything_else_is_refused_in_one_line(value):
    message = refusal(universe_elements, ["good", 5, value], KEY, "support")
    assert re.match(r"support: .* is refused; must be text, bytes", message)


@pytest.mark.parametrize(
    "values",
    [
        np.array([1.0]),
        np.array([True]),
        np.array([-1]),
        np.array([[1]]),
        pa.array([1.0]),
        pa.array([True]),
        pa.array([-1]),
        pa.array([None, "a"]),
        pa.array([None, "a"]).dictionary_encode(),
    ],
)
def test_arrays_of_anything_else_are_refused(values):
    with pytest.raises(InputError, match=r"^element: "):
        universe_elements(values, KEY)


@pytest.mark.parametrize("value", ["alice", b"alice"])
def test_one_text_is_not_a_list_of_letters(value):
    with pytest.raises(InputError, match=r"^support: .* not one element$"):
        universe_elements(value, KEY, "support")

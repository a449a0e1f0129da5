"""Keys of records: typed, each read independently of the others."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from beam_dp.encoding.batch import KeyBatch, merged_keys
from beam_dp.encoding.keys import clamped_numbers, key_elements
from beam_dp.encoding.units import arrow_column
from beam_dp.hashing.keys import HashKey, universe_elements
from beam_dp.queries.sparse import KEY_TYPES, KeyType

KEY = HashKey.draw(4)


def one_by_one(values: list[Any], key_type: KeyType) -> list[int | None]:
    return [each for value in values for each in together([value], key_type)]


def together(values: list[Any], key_type: KeyType) -> list[int | None]:
    return listed(*key_elements(arrow_column(values), key_type, KEY))


def listed(values: np.ndarray, valid: np.ndarray) -> list[int | None]:
    assert len(values) == len(valid)
    return [int(x) if there else None for x, there in zip(values, valid, strict=True)]


@pytest.mark.parametrize(("key_type", "element"), [("text", "7"), ("bytes", b"7"), ("integer", 7)])
def test_numbers_and_their_digits_are_one_key(key_type, element):
    (expected,) = universe_elements([element], KEY).tolist()
    values = [7, 7.0, "7", b"7", decimal.Decimal(7), np.uint8(7), "7.0", b"7.0"]
    assert one_by_one(values, key_type) == [expected] * len(values)


def test_text_keys_equal_the_elements_of_queries():
    texts = ["alice@example.org", "", "\u00e9", "alice@example.org", "\ud800"]
    assert together(texts, "text") == universe_elements(texts, KEY).tolist()
    assert together(["007", "7"], "integer") == [None, 7]


def test_only_integers_written_as_floats_are_read_as_integers():
    long = "1" * 30
    texts = ["-0.0", f"{long}.0", "007.0", "7.00", "1e3", "+7", "7.", "-7.0", "7.0\n", "-0"]
    plain = ["0", long, *texts[2:7], "-7", *texts[8:]]
    assert together(texts, "text") == universe_elements(plain, KEY).tolist()
    encoded = [text.encode() for text in plain]
    assert together(texts, "bytes") == universe_elements(encoded, KEY).tolist()
    assert together(texts, "integer") == [0, *[None] * 9]
    assert together([f"{2**64 - 1}.0", f"{2**64}.0", f"{2**53 + 1}.0"], "integer") == [
        *(2**64 - 1, None, 2**53 + 1)
    ]
    assert weights_of(pa.array(["3.0", "3.5", "-3.0"])) == [3, None, 0]


@pytest.mark.parametrize("key_type", KEY_TYPES)
def test_values_that_are_not_keys_are_dropped(key_type):
    values = [None, 0.5, float("nan"), float("inf"), datetime.date(2020, 1, 1), {"a": 1}]
    assert one_by_one(values, key_type) == [None] * len(values)
    nested = pa.array([[1], None], pa.list_(pa.int8()))
    assert listed(*key_elements(nested, key_type, KEY)) == [None, None]
    assert listed(*key_elements(pa.array([None, 1.5]), key_type, KEY)) == [None, None]


def test_integer_keys_have_up_to_64_bits():
    values = [-1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, "18446744073709551615", -(2**63)]
    expected = [None, 2**63 - 1, 2**63, 2**64 - 1, None, 2**64 - 1, None]
    assert one_by_one(values, "integer") == expected


def weights_of(column: pa.Array) -> list[int | None]:
    return listed(*clamped_numbers(column, 100))


def test_weights_are_clamped():
    column = pa.array([-(2**63), -1, 0, 5, 2**63 - 1, None])
    assert listed(*clamped_numbers(column, 9)) == [0, 0, 0, 5, 9, None]
    assert listed(*clamped_numbers(pa.array(["5", "x", "-5", "99"]), 9)) == [5, None, 0, 9]


@pytest.mark.parametrize("distinct", [1, 40, 90, 10**6])
@pytest.mark.parametrize("heaviest", [1, 9])
def test_merging_keeps_the_sum_of_each_key(distinct, heaviest):
    rng = np.random.default_rng(distinct)
    keys = rng.integers(0, distinct, 100).astype(np.uint64)
    batch = KeyBatch(keys, rng.integers(1, heaviest + 1, 100))
    merged = merged_keys(batch)
    assert sums(merged) == sums(batch)
    assert len(merged.keys) == (len(set(keys.tolist())) if distinct <= 40 else 100)
    assert not sums(merged_keys(KeyBatch(keys[:0], batch.weights[:0])))


def sums(batch: KeyBatch) -> dict[int, int]:
    found: dict[int, int] = {}
    for key, weight in zip(batch.keys.tolist(), batch.weights.tolist(), strict=True):
        found[key] = found.get(key, 0) + weight
    return found

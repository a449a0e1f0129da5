"""Sums by text and by name: equal texts are one, wherever they are, and all others are apart."""

from __future__ import annotations

import collections

import numpy as np
import pyarrow as pa
import pytest

from beam_dp.encoding.batch import KeyBatch
from beam_dp.encoding.units import unit_fingerprints
from beam_dp.summaries.element_counts import (
    MOST,
    merged_by_name,
    merged_by_text,
    split_by_text,
)

TEXTS = [
    b"",
    b"a",
    b"aa",
    b"a" * 8,
    b"a" * 9,
    b"a" * 300,
    b"b" * 300,
    b"abcdefgh" * 3,
    b"\xff\0",
    b"\0",
]
TEXTS += [b"a" * 20 + bytes((n,)) + b"a" * 30 for n in range(20)]  # their hashes are equal


def batch(texts: list[bytes], weights: list[int] | None = None) -> KeyBatch:
    ones = weights or [1] * len(texts)
    keys = np.array([len(text) for text in texts], np.uint64)
    return KeyBatch(keys, np.array(ones, np.int64), texts=pa.array(texts, pa.large_binary()))


def sums(merged: KeyBatch) -> dict[bytes, int]:
    assert merged.texts is not None
    texts = merged.texts.to_pylist()
    assert len(set(texts)) == len(texts)
    assert merged.keys.tolist() == [len(text) for text in texts]
    return dict(zip(texts, merged.weights.tolist(), strict=True))


def random_texts(seed: int, size: int) -> list[bytes]:
    generator = np.random.default_rng(seed)
    return [TEXTS[n] for n in generator.integers(0, len(TEXTS), size)] + [
        generator.bytes(n) for n in generator.integers(0, 4, size)
    ]


def test_texts_are_summed_over_batches():
    parts = [random_texts(seed, 200) for seed in range(3)]
    expected = collections.Counter(text for part in parts for text in part)
    assert sums(merged_by_text([batch(part) for part in parts])) == expected
    assert sums(merged_by_text([])) == {}


@pytest.mark.parametrize("start", [0, 3])
def test_equal_texts_are_in_the_same_partition_whatever_is_around_them(start):
    found = collections.defaultdict(set)
    rows = collections.Counter[bytes]()
    for seed in range(3):
        texts = random_texts(seed, 400)[start:]
        whole = batch([b"x"] * start + texts)
        assert whole.texts is not None
        sliced = KeyBatch(whole.keys[start:], whole.weights[start:], texts=whole.texts.slice(start))
        for number, part in split_by_text(sliced):
            assert 0 <= number < 256 and part.texts is not None
            for text in part.texts.to_pylist():
                found[text].add(number)
            rows.update(part.texts.to_pylist())
            assert part.keys.tolist() == [len(text) for text in part.texts.to_pylist()]
        rows.subtract(texts)
    assert {len(numbers) for numbers in found.values()} == {1}
    assert not any(rows.values())
    assert len(set.union(*found.values())) > 50


def test_empty_batch_has_no_partitions():
    assert list(split_by_text(batch([]))) == []


def named(texts: list[bytes], weights: list[int], *, with_texts: bool) -> KeyBatch:
    made = batch(texts, weights)
    names, _ = unit_fingerprints(pa.array(texts, pa.binary()))
    return KeyBatch(made.keys, made.weights, names=names, texts=made.texts if with_texts else None)


def test_weights_meet_their_texts_and_names_without_weight_are_kept():
    weights = named([b"a", b"bb", b"a"], [3, 4, 5], with_texts=False)
    texts = named([b"ccc", b"a", b"bb", b"a"], [0, 0, 0, 0], with_texts=True)
    for batches in ([weights, texts], [texts, weights]):
        assert sums(merged_by_name(batches)) == {b"a": 8, b"bb": 4, b"ccc": 0}
    alone = merged_by_name([weights])
    assert alone.texts is None and sorted(alone.weights.tolist()) == [4, 8]
    assert merged_by_name([]).num_rows == 0


def test_sums_are_capped_instead_of_wrapping():
    large = batch([b"a", b"a", b"a", b"b"], [MOST - 1, MOST - 1, MOST - 1, 2])
    assert sums(merged_by_text([large])) == {b"a": MOST, b"b": 2}

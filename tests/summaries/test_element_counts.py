"""Counts of elements: exact sums, also where they are larger than any number of 64 bits."""

from __future__ import annotations

import numpy as np
import pytest

from beam_dp.encoding.batch import KeyBatch
from beam_dp.summaries.element_counts import MOST, ElementCounts


def batch(*pairs: tuple[int, int]) -> KeyBatch:
    keys, weights = zip(*pairs, strict=True)
    return KeyBatch(np.array(keys, np.uint64), np.array(weights, np.int64))


def test_sums_are_exact_in_any_batches() -> None:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 50, 1000).astype(np.uint64)
    weights = rng.integers(0, 2**40, 1000)
    batches = [KeyBatch(keys[part], weights[part]) for part in np.array_split(np.arange(1000), 7)]
    counted = ElementCounts.of(batches)
    expected = {int(key): int(weights[keys == key].sum()) for key in np.unique(keys)}
    assert dict(zip(counted.elements.tolist(), counted.counts.tolist(), strict=True)) == expected


def test_elements_of_no_weight_have_no_place() -> None:
    assert ElementCounts.of([batch((3, 0), (4, 1))]).elements.tolist() == [4]
    assert len(ElementCounts.of([]).counts) == 0


@pytest.mark.parametrize("partial", [MOST - 2, MOST - 1, MOST])
def test_a_record_more_never_takes_an_element_away(partial: int) -> None:
    """A sum that wraps around would: its element would be gone, for one record more."""
    others = [batch((7, partial)), batch((7, partial)), batch((7, partial))]
    for parts in (others[:1], others):
        before = ElementCounts.of(parts).counts[0]
        after = ElementCounts.of([*parts, batch((7, 1))]).counts[0]
        assert 0 <= after - before <= 1
        assert after <= MOST


def test_partial_sums_are_summed_up_alike_in_any_order() -> None:
    parts = [batch((1, MOST - 5)), batch((1, 3)), batch((1, 4), (2, 9)), batch((1, MOST))]
    forms = {
        tuple(ElementCounts.of(order).counts.tolist())
        for order in (parts, parts[::-1], [parts[1], parts[2], parts[0], parts[3]])
    }
    first = ElementCounts.of(parts[:2])
    merged = ElementCounts.of([KeyBatch(first.elements, first.counts), *parts[2:]])
    assert forms == {(MOST, 9)} == {tuple(merged.counts.tolist())}

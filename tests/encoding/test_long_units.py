"""Of a unit with most of very many rows the same stays as where all rows are sorted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from beam_dp.encoding import contributions
from beam_dp.encoding.contributions import select_records
from beam_dp.encoding.units import mix

COUNTS = st.sampled_from([1, 1, 1, 2, 3, 40])
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), COUNTS), min_size=1, max_size=60)


def one_by_one(rows: list[tuple[int, int, int]], units: np.ndarray, k: int) -> list[list[int]]:
    """What stays by the definition: of each unit and record (unit, word), sorted."""
    totals: dict[tuple[int, int], int] = {}
    for unit, word, count in rows:
        totals[unit, word] = totals.get((unit, word), 0) + count
    ranked = []
    for (unit, word), count in totals.items():
        place = next(i for i, row in enumerate(rows) if row[0] == unit)
        high, low = units[:, place : place + 1]
        first = mix(mix(high ^ mix(low)) ^ np.array([word], np.uint64))
        for number in range(count):
            again = mix(first ^ mix(np.array([number], np.uint64)))
            ranked.append((unit, int((again if number else first)[0]), word))
    ranked.sort()
    kept = []
    for unit in {unit for unit, _, _ in ranked}:
        kept += [[unit, word] for other, _, word in ranked if other == unit][:k]
    return sorted(kept)


@settings(max_examples=60, deadline=None)
@given(rows=ROWS, k=st.integers(1, 6), seed=st.integers(0, 2**32 - 1))
def test_the_lowest_of_each_unit_stay(rows: list[tuple[int, int, int]], k: int, seed: int) -> None:
    names = np.random.default_rng(seed).integers(0, 2**64, (2, 4), np.uint64)
    unit, word, counts = map(np.array, zip(*rows, strict=True))
    units = names[:, unit]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(contributions, "_MANY_ROWS", 1)
        patch.setattr(contributions, "_HASHED_RECORDS", 5)  # runs of equal hashes cross its ends
        kept = select_records(units, [word.astype(np.uint32)], counts, k, None)
    assert sorted([int(unit[i]), int(word[i])] for i in kept) == one_by_one(rows, units, k)


@settings(max_examples=40, deadline=None)
@given(rows=ROWS, k=st.integers(1, 6))
def test_records_of_equal_hashes_stay_as_they_would(
    rows: list[tuple[int, int, int]], k: int
) -> None:
    """Every hash is one of three: rows of equal hashes are of several kinds."""
    unit, word, counts = map(np.array, zip(*rows, strict=True))
    units = np.stack((unit, unit)).astype(np.uint64)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            contributions, "_hashes", lambda units, words: words[0].astype(np.uint64) % np.uint64(3)
        )
        expected = select_records(units, [word], counts, k, None)
        patch.setattr(contributions, "_MANY_ROWS", 1)
        kept = select_records(units, [word], counts, k, None)
    as_rows = [sorted((int(unit[i]), int(word[i])) for i in each) for each in (kept, expected)]
    assert as_rows[0] == as_rows[1]


def test_few_rows_of_a_long_unit_are_left_to_be_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    select = contributions._select
    monkeypatch.setattr(
        contributions, "_select", lambda units, *rest: found.append(units) or select(units, *rest)
    )
    rng = np.random.default_rng(0)
    units = np.repeat(rng.integers(0, 2**64, (2, 1), np.uint64), 2**17, axis=1)
    words = [rng.integers(0, 2**40, 2**17).astype(np.uint64)]
    assert select_records(units, words, np.ones(2**17, np.int64), 3, None).size == 3
    assert found[0].shape[1] < 10

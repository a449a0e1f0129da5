"""The rule by which a record counts in a window, against the same rule for one record; blocks."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, strategies as st

import beam_dp as dp
from beam_dp.domain.horizon import Blocks, KeptWindows, block_weight, counted_windows, keep_windows

ENDS = st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1])
SECONDS = st.integers(-60, 160) | ENDS
HORIZONS = st.builds(
    dp.Horizon, st.integers(-30, 30), st.integers(1, 40), st.integers(1, 4), st.integers(0, 50)
)


def window_by_hand(horizon: dp.Horizon, event: int, arrival: int) -> int:
    for number in range(horizon.num_windows):
        start = horizon.start + number * horizon.window
        end = start + horizon.window
        if start <= event < end and event <= arrival < end + horizon.grace:
            return number
    return -1


@given(HORIZONS, st.lists(st.tuples(SECONDS, SECONDS), max_size=30))
def test_counted_windows_match_a_computation_record_by_record(horizon, records):
    events, arrivals = np.array(records, np.int64).reshape(-1, 2).T
    found = counted_windows(horizon, events, arrivals)
    assert found.tolist() == [window_by_hand(horizon, *record) for record in records]


def test_each_window_is_in_one_block_and_the_last_block_may_be_shorter():
    for num_windows in range(2, 9):
        for size in range(2, num_windows + 1):
            blocks = Blocks(num_windows, size)
            held = [list(blocks.windows(number)) for number in range(len(blocks))]
            assert [window for each in held for window in each] == list(range(num_windows))
            assert {len(each) for each in held[:-1]} <= {size} and 1 <= len(held[-1]) <= size


@pytest.mark.parametrize("variances", [(1.0, 1.0), (4.08, 22.2), (2.0, 0.01)])
def test_block_weight_equals_dense_least_squares(variances):
    window, block = variances
    for windows in range(1, 7):
        # What is measured: each window, and their total.
        design = np.vstack([np.eye(windows), np.ones(windows)])
        precisions = np.diag([1 / window] * windows + [1 / block])
        covariance = np.linalg.inv(design.T @ precisions @ design)
        estimator = covariance @ design.T @ precisions
        for summed in range(1, windows + 1):
            asked = np.arange(windows) < summed
            weight = block_weight(summed, windows, block / window)
            expected = np.append(asked - weight, weight)
            np.testing.assert_allclose(asked @ estimator, expected, atol=1e-12)
            least = summed * window - (summed * window) ** 2 / (windows * window + block)
            assert asked @ covariance @ asked == pytest.approx(least, rel=1e-12)


NUM_WINDOWS = 6
LIMITS = [(c, p) for p in range(1, NUM_WINDOWS + 1) for c in range(1, p + 1)]
# Each set of windows is that of one unit.
HELD = [frozenset(held) for size in range(NUM_WINDOWS + 1) for held in combinations(range(6), size)]


def limits_of(most: int, protected: int) -> dp.WindowUnit:
    return dp.WindowUnit("person", 1, most, protected)


def fingerprints(number: int, first_words: int) -> np.ndarray:
    """As many units, in order; several share a first word where there are fewer of these."""
    words = np.arange(number, dtype=np.uint64)
    words = np.stack([words * np.uint64(first_words) // np.uint64(number), words])
    return words + np.uint64(2**63)


def kept_in_order(
    held: list[frozenset[int]], units: np.ndarray, limits: dp.WindowUnit, skip_empty: bool = False
) -> list[set[int]]:
    """The windows that are kept of each unit, window by window."""
    remembered = KeptWindows.nothing()
    kept: list[set[int]] = [set() for _ in held]
    for number in range(NUM_WINDOWS):
        present = [place for place, windows in enumerate(held) if number in windows]
        if skip_empty and not present:
            continue
        mask, remembered = keep_windows(remembered, units[:, present], number, limits, NUM_WINDOWS)
        for place, is_kept in zip(present, mask.tolist(), strict=True):
            if is_kept:
                kept[place].add(number)
    return kept


def kept_by_hand(held: frozenset[int], most: int, protected: int) -> set[int]:
    kept: set[int] = set()
    for number in sorted(held):
        if sum(number - protected < other for other in kept) < most:
            kept.add(number)
    return kept


@pytest.mark.parametrize("first_words", [64, 5, 1])
@pytest.mark.parametrize(("most", "protected"), LIMITS)
def test_kept_windows_match_a_computation_unit_by_unit(most, protected, first_words):
    units = fingerprints(len(HELD), first_words)
    kept = kept_in_order(HELD, units, limits_of(most, protected))
    assert kept == [kept_by_hand(held, most, protected) for held in HELD]


@pytest.mark.parametrize(("most", "protected"), LIMITS)
def test_keeps_at_most_the_allowed_number_of_windows_in_any_run(most, protected):
    kept = kept_in_order(HELD, fingerprints(len(HELD), 64), limits_of(most, protected))
    for start in range(NUM_WINDOWS):
        span = set(range(start, start + protected))
        assert max(len(windows & span) for windows in kept) <= most
    if protected == NUM_WINDOWS:
        assert kept == [set(sorted(held)[:most]) for held in HELD]
    if most == protected:
        assert kept == [set(held) for held in HELD]


@given(st.lists(st.sampled_from(HELD), min_size=2, max_size=9), st.sampled_from(LIMITS), st.data())
def test_unit_does_not_change_the_windows_of_other_units(held, limits, data):
    units = fingerprints(len(held), data.draw(st.sampled_from([1, 3, len(held)])))
    gone = data.draw(st.integers(0, len(held) - 1))
    others = [place for place in range(len(held)) if place != gone]
    kept = kept_in_order(held, units, limits_of(*limits))
    without = kept_in_order(
        [held[place] for place in others], units[:, others], limits_of(*limits), skip_empty=True
    )
    assert without == [kept[place] for place in others]


def test_remembers_only_recent_windows():
    """Of a sliding budget what is recent; of the whole horizon a number a unit."""
    unit = fingerprints(1, 1)
    for limits, entries in (
        (limits_of(2, 3), [1, 2, 2, 2, 2, 2]),
        (limits_of(4, 6), [1] * 6),
        (limits_of(3, 3), [0] * 6),
    ):
        remembered, found = KeptWindows.nothing(), []
        for number in range(NUM_WINDOWS):
            _, remembered = keep_windows(remembered, unit, number, limits, NUM_WINDOWS)
            found.append(remembered.windows.size)
        assert found == entries
        assert repr(remembered) == "KeptWindows(secret)"


@given(st.lists(st.sampled_from(HELD), max_size=9), st.sampled_from(LIMITS))
def test_kept_windows_round_trip_through_bytes(held, limits):
    units, remembered = fingerprints(len(held), 3), KeptWindows.nothing()
    for number in range(NUM_WINDOWS):
        present = [place for place, windows in enumerate(held) if number in windows]
        _, remembered = keep_windows(
            remembered, units[:, present], number, limits_of(*limits), NUM_WINDOWS
        )
        read = KeptWindows.from_bytes(remembered.to_bytes())
        for name in ("units", "windows", "numbers"):
            np.testing.assert_array_equal(getattr(read, name), getattr(remembered, name))
        remembered = read


def test_arrivals_count_until_the_second_in_which_their_window_closes():
    windows = counted_windows(
        dp.Horizon(0, 10, 2, 5),
        np.array([0, 0, 9, 9, 10, 10]),
        np.array([14, 15, 14, 15, 24, 25]),
    )
    assert windows.tolist() == [0, -1, 0, -1, 1, -1]

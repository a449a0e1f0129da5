"""The rule by which a record counts in a window, against the same rule for one record; blocks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from beam_dp.windows.horizon import Blocks, Horizon, block_weight, counted_windows

ENDS = st.sampled_from([-(2**63), -(2**63) + 1, 2**63 - 2, 2**63 - 1])
SECONDS = st.integers(-60, 160) | ENDS
HORIZONS = st.builds(
    Horizon, st.integers(-30, 30), st.integers(1, 40), st.integers(1, 4), st.integers(0, 50)
)


def window_by_hand(horizon: Horizon, event: int, arrival: int) -> int:
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


@pytest.mark.parametrize(
    ("event", "arrival", "number"),
    [
        (99, 200, -1),  # before the horizon
        (100, 100, 0),
        (109, 114, 0),
        (109, 115, -1),  # too late by a second
        (110, 115, 1),
        (109, 108, -1),  # from the future
        (129, 134, 2),
        (130, 130, -1),  # after the horizon
    ],
)
def test_window_ends_are_exclusive(event, arrival, number):
    horizon = Horizon(100, 10, 3, 5)
    assert counted_windows(horizon, np.array([event]), np.array([arrival])).tolist() == [number]


def test_window_closes_after_its_grace():
    horizon = Horizon(100, 10, 3, 5)
    assert [horizon.closes(number) for number in range(3)] == [115, 125, 135]
    assert horizon.end == 130


@pytest.mark.parametrize(
    "start", ["2026-11-23T00:00Z", "2026-11-23T01:00+01:00", "2026-11-22T19:00:00-05:00"]
)
def test_start_is_read_with_its_time_zone(start):
    horizon = Horizon(start, "1h", 168, "30m")
    assert horizon == Horizon(1795392000, 3600, 168, 1800)
    assert hash(horizon) == hash(Horizon(1795392000, 3600, 168, 1800))


def test_each_window_is_in_one_block_and_the_last_block_may_be_shorter():
    for num_windows in range(2, 9):
        for size in range(2, num_windows + 1):
            blocks = Blocks(num_windows, size)
            held = [list(blocks.windows(number)) for number in range(len(blocks))]
            assert [window for each in held for window in each] == list(range(num_windows))
            assert {len(each) for each in held[:-1]} <= {size} and 1 <= len(held[-1]) <= size


def test_run_of_windows_is_split_at_block_ends():
    assert list(Blocks(10, 4).parts(2, 9)) == [
        (0, range(2, 4)),
        (1, range(4, 8)),
        (2, range(8, 9)),
    ]
    assert list(Blocks(10, 4).parts(9, 10)) == [(2, range(9, 10))]


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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(1, "1s"), (90, "90s"), (1800, "30m"), (3600, "1h"), (86400, "1d"), (604800, "7d")],
)
def test_duration_round_trips_as_text(seconds, text):
    assert Horizon(0, seconds, 1, seconds).window_text == text
    assert Horizon(0, text, 1, text) == Horizon(0, seconds, 1, seconds)

"""Blocks of windows, and the weight of a block's total against dense least squares."""

from __future__ import annotations

import numpy as np
import pytest

from beam_dp.errors import InputError
from beam_dp.windows.horizon import Blocks, Horizon, block_weight


def test_each_window_is_in_one_block_and_the_last_block_may_be_shorter() -> None:
    for num_windows in range(2, 9):
        for size in range(2, num_windows + 1):
            blocks = Blocks(num_windows, size)
            held = [list(blocks.windows(number)) for number in range(len(blocks))]
            assert [window for each in held for window in each] == list(range(num_windows))
            assert {len(each) for each in held[:-1]} <= {size} and 1 <= len(held[-1]) <= size


def test_parts_split_a_run_of_windows_at_block_ends() -> None:
    assert list(Blocks(10, 4).parts(2, 9)) == [
        (0, range(2, 4)),
        (1, range(4, 8)),
        (2, range(8, 9)),
    ]
    assert list(Blocks(10, 4).parts(9, 10)) == [(2, range(9, 10))]


@pytest.mark.parametrize("size", [1, 11, 2.0, True])
def test_rejects_block_size_out_of_range(size: int) -> None:
    with pytest.raises(InputError, match=r"block: .* must be an integer from 2 to 10, of windows"):
        Blocks(10, size)


@pytest.mark.parametrize("variances", [(1.0, 1.0), (4.08, 22.2), (2.0, 0.01)])
def test_block_weight_equals_dense_least_squares(
    variances: tuple[float, float],
) -> None:
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
    ("seconds", "text"), [(1, "1s"), (90, "90s"), (3600, "1h"), (86400, "1d"), (604800, "7d")]
)
def test_window_length_round_trips_as_text(seconds: int, text: str) -> None:
    assert Horizon(0, seconds, 1, 0).window_text == text
    assert Horizon(0, text, 1, 0).window == seconds

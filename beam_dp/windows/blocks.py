"""Blocks of consecutive windows, and how the total of a block improves sums of its windows."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from beam_dp.checks import checked_integer


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A horizon that is cut into blocks of as many windows each; the last one may have fewer.

    Args:
        num_windows: of the horizon.
        size: windows of a block, from 2 to all of them.

    Raises:
        InputError: if the size is out of range.

    Example:
        >>> [list(Blocks(5, 2).windows(number)) for number in range(len(Blocks(5, 2)))]
        [[0, 1], [2, 3], [4]]
    """

    num_windows: int
    size: int

    def __post_init__(self) -> None:
        checked_integer("block", self.size, 2, self.num_windows, note=", of windows")

    def __len__(self) -> int:
        return -(-self.num_windows // self.size)

    def windows(self, number: int) -> range:
        """Returns the windows of a block."""
        start = number * self.size
        return range(start, min(start + self.size, self.num_windows))

    def parts(self, first: int, stop: int) -> Iterator[tuple[int, range]]:
        """Yields the blocks that hold windows of a run, each with those that it holds."""
        for number in range(first // self.size, (stop - 1) // self.size + 1):
            windows = self.windows(number)
            yield number, range(max(first, windows.start), min(stop, windows.stop))


def block_weight(num_summed: int, num_windows: int, variance_ratio: float) -> float:
    """Returns how much of what a block's total differs by goes to a sum of some of its windows.

    Let n windows hold x_i, measured as y_i with noise of variance v, and let their total be
    measured as B with noise of variance u, all independent. Of j of these windows the estimate is
    P + w (B - S), where P and S are the sums of y_i over the j and over all n windows. It is
    unbiased for every w: only such combinations are, for the coefficients of x_i must be 1 in the
    sum and 0 outside. Its variance v (j (1 - w)^2 + (n - j) w^2) + u w^2 is least at
    w = j / (n + u / v), where it is j v - j^2 v^2 / (n v + u): the least squares estimate, which is
    the best unbiased one (Gauss and Markov).

    Returns:
        w.
    """
    return num_summed / (num_windows + variance_ratio)

"""The loss of the noise that finds bins, from the numbers of a card."""

from __future__ import annotations

from collections.abc import Sequence

from beam_dp.verification.steps import Step, noise_step


def bins_step(
    measured: str,
    *,
    num_moved: int,
    distribution: str,
    scale: float,
    grid: int,
    levels: Sequence[int],
) -> Step:
    """Returns the step that measures the leaves of one column by a tree of sums.

    A unit adds at most ``grid`` to the leaves in total, in one leaf or in several. Each leaf is in
    one node of each level. So the unit changes each level by at most ``grid`` in the L1 norm, and
    therefore in the L2 norm. No change is negative, so the difference between two units, of which
    one replaces the other, has at most twice the squared L2 norm of one unit.

    ``measured``: the name of the column.
    ``num_moved``: 1 if neighbours differ in the presence of a unit, 2 if a unit is replaced.
    ``grid``: how many steps of the noise are one unit.
    ``levels``: the number of nodes of each level; the last one is the number of leaves.
    """
    what = f"count {measured} in {levels[-1]:,} leaves, by {len(levels)} levels of sums"
    l1 = num_moved * len(levels) * grid
    return noise_step(what, distribution, l1, l1 * grid, scale)

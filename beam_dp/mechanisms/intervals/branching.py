"""The choice of branching factors of a tree for a number of cells."""

from __future__ import annotations

import functools
import math

from beam_dp.interval_strategies.hierarchy import Hierarchy, tree

# How much wider or narrower than the others the highest level may be.
_TOP_FACTORS = (0.6, 0.75, 0.9, 1.1, 1.3, 1.6, 2.0)


def error_of(strategy: Hierarchy, power: int) -> float:
    """Returns the mean squared error of a tree in units of its noise's calibration.

    Args:
        strategy: the tree.
        power: 1 where the noise scales with the L1 sensitivity, 2 with the L2 sensitivity.
    """
    if power == 1:
        return float(strategy.l1_sensitivity**2 * strategy.errors.mean())
    return strategy.l2_sensitivity_squared * strategy.errors.mean()


@functools.lru_cache(maxsize=64)
def best_tree(num_leaves: int, power: int) -> Hierarchy:
    """Returns the tree without a root that has the least error, all levels weighted equally.

    The sizes of levels are geometric but for the highest one, and trees of each depth are tried
    while they get better. Nothing is padded: node i of m has the cells that round to it, so that
    all sizes serve any number of cells.

    Args:
        num_leaves: the number of cells.
        power: 1 for Laplace noise, 2 for Gaussian noise.

    Cost: about 15 evaluations of O(d) a level: 3 s for 2^20 cells.
    """
    best = tree((num_leaves,))
    least = error_of(best, power)
    for depth in range(2, num_leaves.bit_length()):
        sizes = _sizes(num_leaves, depth, num_leaves ** (1 / depth))
        error = error_of(tree(sizes), power)
        if error > least:
            if depth > 4 or len(best.sizes) > 2:
                break
            continue
        best, least = tree(sizes), error
    depth = len(best.sizes) - 1
    if depth > 1:
        candidates = [
            tree(_sizes(num_leaves, depth, factor * num_leaves ** (1 / depth)))
            for factor in _TOP_FACTORS
        ]
        best = min([best, *candidates], key=lambda each: error_of(each, power))
    return best


def _sizes(num_leaves: int, depth: int, top: float) -> tuple[int, ...]:
    """Returns sizes of levels that grow from the top one by a constant factor."""
    first = min(max(round(top), 1), num_leaves)
    factor = (num_leaves / first) ** (1 / (depth - 1)) if depth > 1 else 1.0
    middle = [math.floor(first * factor**level + 0.5) for level in range(depth - 1)]
    return (*middle, num_leaves)

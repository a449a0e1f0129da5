"""Deterministic rounding of a junction tree to whole records.

Records that agree on what the tree knows about the next attribute are neighbours in one ordering.
A sequence of low discrepancy along it decides their codes, so that every run of neighbours gets
every code as often as its probability says, give or take a logarithm. The sequence of each
attribute is scrambled by a hash of its own: unscrambled ones keep step with each other, which ties
attributes together that the tree holds independent (Owen, 1995; Laine and Karras, 2011).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beam_dp.models.cascades import sum_to
from beam_dp.models.junction_tree import JunctionTree

# Multipliers of Laine and Karras's hash: even ones, so that no bit depends on a higher one.
_MULTIPLIERS = (0x6C50B47C, 0xB82F1E52, 0xC7AFE638, 0x8D22F6E6)
# Positions in rows of cumulated probability stay below their ends by more than rounding errors.
_BELOW_ONE = 1 - 1e-9


def tree_records(tree: JunctionTree, num_records: int) -> NDArray[np.int32]:
    """Returns records whose marginals inside cliques are close to the tree's.

    Returns:
        shape (number of attributes, num_records), int32: the codes of each attribute. No record
        is in a cell of probability 0. Their order means nothing.

    Cost: O(cells of the tree + records x attributes x log records).
    """
    codes = np.zeros((len(tree.shape), num_records), dtype=np.int32)
    order = np.arange(num_records)
    for clique in tree.cliques:
        decided = list(clique.separator)
        # Large attributes first: they leave fewer records to groups that are too small to balance.
        for axis in reversed(clique.axes):
            if axis in decided:
                continue
            table = sum_to(
                clique.belief, tuple(each in decided or each == axis for each in clique.axes)
            )
            kept = [each for each in clique.axes if each in decided or each == axis]
            known = [each for each in kept if each != axis]
            rows = np.moveaxis(table, kept.index(axis), -1).reshape(-1, tree.shape[axis])
            groups = np.zeros(num_records, dtype=np.int64)
            for each in known:
                groups = groups * tree.shape[each] + codes[each]
            order = order[np.argsort(groups[order], kind="stable")]
            codes[axis, order] = _codes(rows, groups[order], _positions(num_records, axis))
            decided.append(axis)
            # What is decided next is balanced over this code too, wherever groups leave a choice.
            order = order[np.argsort(codes[axis, order], kind="stable")]
    return codes


def _positions(length: int, seed: int) -> NDArray[np.float64]:
    """Returns a scrambled van der Corput sequence, in [0, 1)."""
    bits = np.arange(length, dtype=np.uint32) + np.uint32((seed + 1) * 0x9E3779B9 % 2**32)
    for multiplier in _MULTIPLIERS:
        bits ^= bits * np.uint32(multiplier)
    # The lowest bits of the number become the highest of the position.
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        low = (bits & np.uint32(mask)) << np.uint32(shift)
        bits = low | (bits >> np.uint32(shift)) & np.uint32(mask)
    bits = bits << np.uint32(16) | bits >> np.uint32(16)
    return bits.astype(np.float64) * (_BELOW_ONE / 2**32)


def _codes(
    rows: NDArray[np.float64], groups: NDArray[np.int64], positions: NDArray[np.float64]
) -> NDArray[np.int64]:
    """Returns for every record the code at its position among its group's probabilities.

    Args:
        rows: shape (num_groups, size): weights of the codes.
        groups: shape (num_records,), ascending.
        positions: same shape, in [0, 1).
    """
    used, ranks = np.unique(groups, return_inverse=True)
    ends = np.cumsum(rows[used], axis=1)
    # A group that lost its mass to underflow takes any code.
    lost = ends[:, -1] <= 0
    ends[lost] = np.arange(1, rows.shape[1] + 1)
    ends /= ends[:, -1:]
    # All rows are searched at once: row number r is what lies between r and r + 1.
    ends += np.arange(len(used))[:, None]
    found = np.searchsorted(ends.ravel(), ranks + positions, side="right")
    codes: NDArray[np.int64] = found - ranks * rows.shape[1]
    return codes

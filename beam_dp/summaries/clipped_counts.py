"""Exact counts, clipped so that no sum of them leaves 64 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MAX_TOTAL = 2**61


def clipped_counts(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns the counts of all cells of one table, each from 0 to 2^61 over their number.

    The limit is public, and far above what any table holds. It is there because sums that wrap
    are only private as long as nothing but sums and noise follows.

    Privacy: sensitivities that are proved for the counts hold after clipping, for both relations.
    Clipping a number is monotone and brings no two numbers further apart. Where a unit's records
    are added, cell x gains c_x >= 0 and all cells at most k; after clipping it gains from 0 to
    c_x: as if only some of these records had been added. Where they are replaced, some cells
    gain and others lose, each at most k together; after clipping each moves the same way and no
    further: as if fewer records had come or gone, which every sensitivity allows for, since a
    record may always lie outside the domain. This needs that all that is computed is computed of
    this one table: tables of several sets of attributes must not be clipped each by itself.

    Args:
        counts: any shape, int64.

    Returns:
        same shape; the same array where nothing was to be clipped.
    """
    most = MAX_TOTAL // max(counts.size, 1)
    if counts.size and not (int(counts.min()) >= 0 and int(counts.max()) <= most):
        return np.clip(counts, 0, most)
    return counts

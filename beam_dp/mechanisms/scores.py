"""How far a hypothesis is from exact tables: integers, so that their sensitivity is exact."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

# Scores saturate here: a clipped score has the same sensitivity, one that wraps has none.
MAX_SCORE = 2**61


def l1_score(exact: NDArray[np.int64], answer: NDArray[np.float64], grid: int) -> int:
    """Returns the L1 distance of a table and its hypothetical answer, in grid units.

    Privacy: one more record changes it by at most ``grid``, up or down; the answer must be public.

    Args:
        exact: counts, >= 0; secret.
        answer: same shape, in records.
        grid: units that make one record, an integer >= 1.

    Returns:
        From 0 to ``MAX_SCORE``.
    """
    # Clipped cell by cell, so that neither a difference nor their sum can wrap.
    largest = MAX_SCORE // exact.size
    on_grid = np.rint(np.clip(answer * grid, -largest, largest)).astype(np.int64)
    difference = np.minimum(exact, largest // grid) * grid - on_grid
    return int(np.minimum(np.abs(difference), largest).sum())

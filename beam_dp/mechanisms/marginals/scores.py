"""Integer scores of how far a distribution is from exact tables."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from beam_dp.releases.independent_tables import MAX_SCORE


def l1_score(exact: NDArray[np.int64], answer: NDArray[np.float64], grid: int) -> int:
    """Returns the L1 distance of a table and its hypothetical answer, in grid units.

    Privacy: one more record changes it by at most ``grid``, up or down; the answer must be public,
    and may be anything: what is no number counts as 0.

    Args:
        exact: counts, >= 0; secret.
        answer: same shape, in records.
        grid: units that make one record, an integer >= 1.

    Returns:
        From 0 to ``MAX_SCORE``.
    """
    # Clipped cell by cell, so that neither a difference nor their sum can wrap.
    largest = MAX_SCORE // exact.size
    difference = np.minimum(exact, largest // grid) * grid - answer_on_grid(answer, grid, largest)
    return int(np.minimum(np.abs(difference), largest).sum())


def answer_on_grid(answer: NDArray[np.float64], grid: int, largest: int) -> NDArray[np.int64]:
    """Returns a hypothetical answer in whole units of a grid, clipped, whatever a fit made of it.

    The integer that a processor makes of what is no number differs between them, and differences
    to it wrap: a record would then move a score by far more than its sensitivity.

    Args:
        answer: any shape, in records; public.
        grid: units that make one record, an integer >= 1.
        largest: that the result may be, up to 2^61.

    Returns:
        same shape, int64; 0 where the answer is no number.
    """
    with np.errstate(over="ignore"):
        on_grid = np.clip(answer * float(grid), -largest, largest)
    return np.rint(np.where(np.isnan(on_grid), 0.0, on_grid)).astype(np.int64)

"""Integer scores of how far a distribution is from exact tables."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from beam_dp.releases.synthetic_database.independent_tables import MAX_SCORE

# Scores are compared on a grid of which this many units are the noise of the selection, or nearly;
# hypothetical answers are rounded to it before subtraction.
_SCORE_UNITS = 2**20
_MAX_SCORE_GRID = 2**16


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


def largest_cell_score(exact: NDArray[np.int64], answer: NDArray[np.float64], grid: int) -> int:
    """Returns how far a cell of a table is from its hypothetical answer at most, in grid units.

    Privacy: one more record changes it by at most ``grid``, up or down, and so does a replacement,
    whose two cells move by one record each; the answer must be public, as in ``l1_score``.

    Args:
        exact: counts, >= 0, at least one cell; secret.
        answer: same shape, in records.
        grid: units that make one record, an integer >= 1.

    Returns:
        From 0 to ``MAX_SCORE``.
    """
    on_grid = np.minimum(exact, MAX_SCORE // grid) * grid
    difference = np.abs(on_grid - answer_on_grid(answer, grid, MAX_SCORE))
    return min(int(difference.max()), MAX_SCORE)


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


def score_grid(selection_scale: float) -> int:
    """Returns the number of units of a score that make one record, a power of two.

    Args:
        selection_scale: of the noise of the selection, in records.
    """
    units = _SCORE_UNITS / selection_scale
    return 1 << max(0, min(math.frexp(units)[1] - 1, _MAX_SCORE_GRID.bit_length() - 1))

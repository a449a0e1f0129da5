"""What is measured of one window and of one block of windows, with how much noise."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.strategies import (
    best_table_strategy,
    gaussian_table,
    residual_measurements,
)
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.rounding import root_down, up
from beam_dp.queries.workload import Workload
from beam_dp.windows.unit import WindowUnit

# Noise takes about 1e-5 s a cell, in every window: small tables are not united beyond this.
_MAX_UNITED_CELLS = 2**20


def most_squares(max_windows_per_unit: int, block: int | None = None) -> int:
    """Returns the largest sum of squares of numbers of windows that a unit has in each block.

    A unit is kept in c windows, at most n of them in one block. The sum of squares is convex, so
    it is largest at a corner of what is possible: all but one of the numbers are 0 or n. With
    c = q n + r and r < n that is q n^2 + r^2. Of windows alone, blocks of one, it is c.

    Args:
        max_windows_per_unit: c.
        block: n; None for windows.

    Example:
        >>> most_squares(7), most_squares(7, 24), most_squares(7, 3)
        (7, 49, 19)
    """
    whole, rest = divmod(max_windows_per_unit, block or 1)
    return whole * (block or 1) ** 2 + rest**2


def laplace_tables(workload: Workload, promise: Guarantee) -> tuple[Measurement, ...]:
    """Returns the best Laplace measurements of one window, for the whole budget.

    Args:
        workload: what is asked.
        promise: of which epsilon and the records of a unit are used.
    """
    domain = workload.domain
    largest = max(
        math.prod(domain.shape[axis] for axis in domain.axes(names)) for names in workload
    )
    return best_table_strategy(workload, promise, False, max(largest, _MAX_UNITED_CELLS))


def laplace_level(whole: tuple[Measurement, ...], part: Fraction) -> tuple[Measurement, ...]:
    """Returns Laplace measurements of each window, or of each block, for a part of the budget.

    Privacy: part x epsilon, pure, of all windows that are promised together, or of all blocks of a
    horizon. A unit has at most k c records in them, which their promise says, and each record
    counts in one cell of each table of one window, and of one block: the L1 sensitivity of a table
    is k c, wherever they lie, and all of them together have epsilon at the scales of the whole.
    Neighbours: one unit is added or removed.
    """
    return tuple(dataclasses.replace(each, scale=up(Fraction(each.scale) / part)) for each in whole)


def gaussian_level(
    workload: Workload, promise: Guarantee, unit: WindowUnit, part: Fraction, squares: int
) -> tuple[Measurement, ...]:
    """Returns Gaussian measurements of each window, or of each block, for a part of the budget.

    Privacy: the square root of part times the mu of (epsilon, delta), of all windows that are
    promised together, or of all blocks of a horizon. A unit that has records in a windows of a
    block moves what is measured there by at most k a times what one record does, in L2 norm, by
    the triangle inequality. Squares of several blocks add up: each may have mu / sqrt(squares) by
    itself, for k records. Neighbours: one unit is added or removed.

    One marginal is measured as a table, which no residuals of it beat; several as residuals.

    Args:
        workload: what is asked.
        promise: of all together.
        unit: of which k is used.
        part: of mu^2.
        squares: ``most_squares``, of windows or of blocks.
    """
    mu = discrete_gaussian_mu(promise.epsilon, promise.delta)
    own = root_down(Fraction(mu) ** 2 * part / squares)
    of_window = dataclasses.replace(
        promise, max_records_per_unit=unit.max_records_per_unit, allow_large_delta=True
    )
    if len(workload) == 1:
        return (gaussian_table(workload.marginals[0], of_window, own),)
    supports = [workload.domain.axes(names) for names in workload.closure()]
    return residual_measurements(workload, supports, of_window, own, is_fitted=False)

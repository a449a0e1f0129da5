"""Verifies interval counts: one integer matrix, measured with the same noise in every row."""

from __future__ import annotations

import numpy as np

from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.models.intervals.hierarchy import Hierarchy
from beam_dp.models.intervals.sine import SineStrategy
from beam_dp.models.intervals.strategy import Strategy, TextbookTree
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import noise_variance
from beam_dp.privacy.steps import Step, noise_step
from beam_dp.releases import verdict
from beam_dp.releases.domain.earlier import choice_figures
from beam_dp.releases.intervals.release import IntervalRelease
from beam_dp.releases.verdict import left_out_figures, left_out_steps, of_release


def verify(release: IntervalRelease) -> verdict.Verification:
    """Verifies the card and the payload's matrix of a release of interval counts."""
    figures = verdict.Figures()
    verdict.check_fields("parameters", release.plan, (), ("ledger_release", "records_per_unit"))
    name, distribution = release.choice
    guarantee = of_release(release.guarantee, release.left_out)
    steps = interval_steps(
        name, release.strategy, guarantee, distribution, release.scale, release.grid
    )
    beside: list[Step] = []
    if release.left_out is not None:
        domain = Domain((release.attribute,))
        beside = left_out_steps(release.left_out, release.guarantee, domain)
        left_out_figures(release.left_out, release.guarantee, domain, steps, figures)
    variance = noise_variance(distribution, release.scale)  # type: ignore[arg-type]
    figures.same("noise.variance", release.noise_variance, variance)
    error = variance / release.grid**2 * release.strategy.errors.mean()
    figures.same("mean_squared_error", release.mean_squared_error, error)
    if "records_per_unit" in release.plan:
        choice_figures(release, steps, figures)
    return verdict.judged("intervals", name, release.guarantee, steps, figures, beside)


def interval_steps(
    name: str, strategy: Strategy, guarantee: Guarantee, distribution: str, scale: float, grid: int
) -> list[Step]:
    """Returns the step that measures a matrix with noise whose scale is in grid units.

    One record adds a column of the matrix; a replacement adds the difference of two columns. No
    entry is negative, so the difference has at most twice the largest squared L2 norm of a column.
    All k records of a unit may be in one cell.
    """
    l1, l2_squared = column_norms(strategy)
    moved, k = guarantee.neighboring.num_moved, guarantee.max_records_per_unit
    what = f"measure {strategy.num_leaves:,} cells by the strategy {name}"
    l1, l2_squared = moved * k * l1 * grid, moved * (k * grid) ** 2 * l2_squared
    return [noise_step(what, distribution, l1, l2_squared, scale)]


def column_norms(strategy: Strategy) -> tuple[int, int]:
    """Returns the largest L1 norm and the largest squared L2 norm of a column, exactly."""
    if isinstance(strategy, Hierarchy):
        return _path_norms(strategy, 1), _path_norms(strategy, 2)
    if isinstance(strategy, TextbookTree):
        return len(strategy.node_sizes()), len(strategy.node_sizes())
    if isinstance(strategy, SineStrategy):
        half = strategy.kernel[: strategy.num_leaves + 2]
        if (np.diff(half) > 0).any():
            condition = "must not increase: otherwise entries are negative"
            raise InputError("kernel", int(half[0]), condition)
        return strategy.l1_sensitivity, strategy.l2_sensitivity_squared
    raise InputError("strategy", type(strategy).__name__, "must be one that this version knows")


def _path_norms(strategy: Hierarchy, power: int) -> int:
    """Returns the largest norm of a cell's weights, on its path of nodes and in the top matrix."""
    place = np.arange(strategy.num_leaves)
    total = np.zeros(strategy.num_leaves, np.int64)  # sums of at most 21 squares up to 2^52
    for level in range(len(strategy.sizes) - 1, 0, -1):
        total += strategy.weights[level - 1][place] ** power
        place = place * strategy.sizes[level - 1] // strategy.sizes[level]
    below = np.zeros(strategy.sizes[0], np.int64)
    np.maximum.at(below, place, total)
    above = np.zeros(strategy.sizes[0], object)  # Python's integers, as there may be many rows
    for row in strategy.top.astype(object):
        above = above + row**power
    return int((above + below.astype(object)).max())

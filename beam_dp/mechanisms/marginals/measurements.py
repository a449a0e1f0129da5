"""Noisy measurements of tables: what they cost, and how they are drawn.

A *table* measurement adds independent noise to every cell of a marginal. A *residual* measurement
adds it to what the marginal says that no smaller one does: its projection on the functions that
depend on all of its attributes. Residuals of different attribute sets are orthogonal, so that
nothing is paid for twice (Xiao, He, Zhang and Kifer, 2023, ResidualPlanner).
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.models.basis import subsets
from beam_dp.models.residual_basis import Support
from beam_dp.noise.source import NoiseSource
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable
from beam_dp.summaries.histogram import Marginals

Names = tuple[str, ...]


class Measurement(MeasuredTable):
    """One noisy measurement, and how it is drawn."""

    def draw(self, marginals: Marginals, noise: NoiseSource) -> NDArray[np.float64]:
        """Returns the noisy table, in records: the only step that sees exact counts.

        ``marginals``: exact tables that hold this marginal.
        ``noise``: where the noise comes from.

        Returns:
            one axis an attribute, float64.
        """
        exact = marginals.marginal(self.names)
        if self.kind == "residual":
            exact = residual_query(exact, self.grid)
        elif self.grid != 1:
            exact = exact * np.int64(self.grid)
        draw = noise.laplace if self.distribution == "discrete_laplace" else noise.gaussian
        return draw(exact, self.scale) / self.grid


def residual_query(table: NDArray[np.int64], grid: int) -> NDArray[np.int64]:
    """Returns ``grid`` times the residual of a table, exactly, in integers modulo 2^64.

    Noise is added modulo 2^64, too, so that a sum which wraps is the true one with its noise,
    reduced: as private as that, for any counts. Tables are not clipped here. Residuals of several
    tables are measured together, and what a replacement moves of all of them follows from where
    its two records agree; tables that were clipped each by itself would not know. Sums are right
    while ``grid`` times the records is below 2^63; a larger public number is refused when planning.

    Along an axis of size s the residual is the table less its mean; s times it is whole.

    Returns:
        same shape, int64. One more record changes it by ``grid^2 prod(1 - 1 / size)`` in squared
        L2 norm.
    """
    cells = math.prod(table.shape)
    if grid % cells:
        raise ValueError("the grid must be a multiple of the number of cells")
    for axis, size in enumerate(table.shape):
        table = size * table - table.sum(axis=axis, keepdims=True)
    return table * np.int64(grid // cells)


def residual_norm(shape: Iterable[int]) -> float:
    """Returns the squared L2 norm of one record's residual, in squared records."""
    return math.prod(1 - 1 / size for size in shape)


def freedoms(shape: Iterable[int]) -> int:
    """Returns the dimension of the residual of a table of this shape."""
    return math.prod(size - 1 for size in shape)


def closure_of(sets: Iterable[Support]) -> list[Support]:
    """Returns all subsets of attribute sets, the empty one included, smallest first.

    Example:
        >>> closure_of([(0, 2), (1,)])
        [(), (0,), (1,), (2,), (0, 2)]
    """
    inside = {subset for axes in sets for subset in subsets(axes)}
    return sorted(inside | {()}, key=lambda axes: (len(axes), axes))


def num_noisy_cells(domain: Domain, measurements: Iterable[Measurement]) -> int:
    """Returns how many cells get noise."""
    return sum(
        math.prod(domain.shape[axis] for axis in domain.axes(measurement.names))
        for measurement in measurements
    )

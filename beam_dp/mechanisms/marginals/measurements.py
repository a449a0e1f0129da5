"""Noisy measurements of tables, and the coefficients that they estimate.

A *table* measurement adds independent noise to every cell of a marginal. A *residual* measurement
adds it to what the marginal says that no smaller one does: its projection on the functions that
depend on all of its attributes. Residuals of different attribute sets are orthogonal, so that
nothing is paid for twice (Xiao, He, Zhang and Kifer, 2023, ResidualPlanner).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain import Domain
from beam_dp.hypotheses.basis import Coefficients, squared_scale, subsets
from beam_dp.hypotheses.maximum_entropy import NoisyCoefficients
from beam_dp.hypotheses.residual_basis import ResidualBasis, Support, table_coefficients
from beam_dp.noise.bound import Distribution, noise_variance
from beam_dp.noise.source import NoiseSource
from beam_dp.summaries import Marginals

Names = tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Measurement:
    """One measurement, described by public numbers.

    Args:
        names: attributes of the marginal, in domain order.
        kind: what of it is measured.
        distribution: of the noise of each cell.
        scale: of that noise, in grid units.
        grid: grid units that make one record, an integer >= 1.
    """

    names: Names
    kind: Literal["table", "residual"]
    distribution: Distribution
    scale: float
    grid: int = 1

    @property
    def variance(self) -> float:
        """Variance of the noise of one cell, in squared records."""
        return noise_variance(self.distribution, self.scale) / self.grid**2

    def draw(self, marginals: Marginals, noise: NoiseSource) -> NDArray[np.float64]:
        """Returns the noisy table, in records: the only step that sees exact counts.

        Args:
            marginals: exact tables that hold this marginal.
            noise: where the noise comes from.

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

    def to_json(self) -> dict[str, Any]:
        """Returns the measurement as the card states it."""
        return {
            "attributes": list(self.names),
            "measured": self.kind,
            "distribution": self.distribution,
            "scale": self.scale,
            "grid": self.grid,
            "standard_deviation": math.sqrt(self.variance),
        }


def residual_query(table: NDArray[np.int64], grid: int) -> NDArray[np.int64]:
    """Returns ``grid`` times the residual of a table, exactly, in integers modulo 2^64.

    Noise is added modulo 2^64, too, so that a sum which wraps is the true one with its noise,
    reduced: as private as that, for any counts. Tables are not clipped here. Residuals of several
    tables are measured together, and what a replacement moves of all of them follows from where
    its two records agree; tables that were clipped each by itself would not know. Sums are right
    while ``grid`` times the records is below 2^63; a larger public number is refused when planning.

    Along an axis of size s the residual is the table less its mean; s times it is whole.

    Args:
        table: counts, one axis an attribute.
        grid: a multiple of the number of cells.

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


def support_variances(
    domain: Domain,
    supports: Iterable[Support],
    measurements: Iterable[Measurement],
    total_is_public: bool,
) -> dict[Support, float]:
    """Returns the variance that measurements leave in each residual, were they all used best.

    Args:
        domain: the universe.
        supports: attribute sets, as ascending axes.
        measurements: the measurements.
        total_is_public: then the support () has variance 0.

    Returns:
        for each support the variance of an orthonormal coefficient of that marginal's table, in
        squared records; infinite where nothing measures it.
    """
    precisions = dict.fromkeys(supports, 0.0)
    for measurement in measurements:
        axes = domain.axes(measurement.names)
        if measurement.kind == "residual":
            precisions[axes] += 1 / measurement.variance
            continue
        for support in _inside(axes, precisions):
            summed = math.prod(domain.shape[axis] for axis in axes if axis not in support)
            precisions[support] += 1 / (measurement.variance * summed)
    variances = {
        support: 1 / precision if precision > 0 else math.inf
        for support, precision in precisions.items()
    }
    if total_is_public and () in variances:
        variances[()] = 0.0
    return variances


def cell_variance(domain: Domain, variances: Mapping[Support, float], axes: Support) -> float:
    """Returns the variance of one cell of a marginal's unbiased estimate, in squared records."""
    return query_variance(domain, variances, axes, [1] * len(axes))


def query_variance(
    domain: Domain,
    variances: Mapping[Support, float],
    axes: Support,
    held: Sequence[int],
    *,
    is_parity: bool = False,
) -> float:
    """Returns the variance of a query's unbiased estimate from a marginal, in squared records.

    The query is a product over attributes of vectors with sum s and squared norm n; of a residual
    it sees s^2 / d^2 of the attributes that were summed out, and n - s^2 / d of the others.

    Args:
        domain: the universe.
        variances: of orthonormal coefficients, see ``support_variances``.
        axes: of the marginal, ascending.
        held: for each axis, the number of codes where the query's literal holds.
        is_parity: whether the query is 1 where an odd number of literals hold, not all of them.
    """
    sizes = [domain.shape[axis] for axis in axes]
    if is_parity:
        # (1 - p) / 2, where p is a product of signs. The 1 is seen by the total alone.
        sums = [size - 2 * count for size, count in zip(sizes, held, strict=True)]
        squares = sizes
    else:
        sums = squares = list(held)
    seen = [(total / size) ** 2 for total, size in zip(sums, sizes, strict=True)]
    free = [
        square - total**2 / size for square, total, size in zip(squares, sums, sizes, strict=True)
    ]
    variance = 0.0
    for support in subsets(axes):
        factor = math.prod(
            within if axis in support else outside
            for axis, within, outside in zip(axes, free, seen, strict=True)
        )
        if is_parity and support:
            factor /= 4
        elif is_parity:
            mean = math.prod(total / size for total, size in zip(sums, sizes, strict=True))
            factor = ((1 - mean) / 2) ** 2
        if factor:
            variance += factor * variances[support]
    return variance


def closure_of(sets: Iterable[Support]) -> list[Support]:
    """Returns all subsets of attribute sets, the empty one included, smallest first.

    Example:
        >>> closure_of([(0, 2), (1,)])
        [(), (0,), (1,), (2,), (0, 2)]
    """
    inside = {subset for axes in sets for subset in subsets(axes)}
    return sorted(inside | {()}, key=lambda axes: (len(axes), axes))


class Combination:
    """The best unbiased estimate of every coefficient from noisy tables.

    Args:
        domain: the universe.
        basis: its coefficients.
        measurements: what was measured so far.
        tables: the noisy tables, in records, in the same order.
    """

    def __init__(
        self,
        domain: Domain,
        basis: Coefficients,
        measurements: Sequence[Measurement] = (),
        tables: Sequence[NDArray[np.float64]] = (),
    ) -> None:
        self._domain = domain
        self._basis = basis
        self._sums = np.zeros(basis.num_coefficients)
        self._precisions = np.zeros(basis.num_coefficients)
        for measurement, table in zip(measurements, tables, strict=True):
            self.add(measurement, table)

    def add(self, measurement: Measurement, table: NDArray[np.float64]) -> None:
        """Takes in one more noisy table."""
        basis, axes = self._basis, self._domain.axes(measurement.names)
        if measurement.kind == "residual" or not axes:
            parts = {axes: table_coefficients(table)}
        else:
            inside = _inside(axes, basis.slices)
            local = {support: tuple(axes.index(axis) for axis in support) for support in inside}
            own = ResidualBasis(table.shape, local.values())
            coefficients = own.analyse(table.ravel())
            parts = {support: coefficients[own.slices[local[support]]] for support in inside}
        variance = measurement.variance
        for support, coefficients in parts.items():
            where = basis.slices[support]
            ratio = squared_scale(basis, support, axes)
            precision = ratio / variance
            self._sums[where] += coefficients * (precision / math.sqrt(ratio))
            self._precisions[where] += precision

    def estimate(self) -> NoisyCoefficients:
        """Returns the coefficients with the variances of their noise, of all tables so far.

        It is independent between coefficients, because every measurement's noise is the same in
        all its cells.
        """
        sums, precisions = self._sums, self._precisions
        known = precisions > 0
        return NoisyCoefficients(
            values=np.divide(sums, precisions, out=np.zeros_like(sums), where=known),
            variances=np.divide(1, precisions, out=np.full_like(sums, np.inf), where=known),
        )


def importance_of(
    domain: Domain, basis: Coefficients, marginals: Sequence[Names], weights: Sequence[float]
) -> NDArray[np.float64]:
    """Returns the weight of each coefficient in the mean squared error of a cell.

    The mean over marginals, by their weights, of the mean squared error of a marginal's cells is
    the sum of these weights times the squared errors of the coefficients.

    Returns:
        shape (num_coefficients,), float64.
    """
    result = np.zeros(basis.num_coefficients)
    total = sum(weights)
    for names, weight in zip(marginals, weights, strict=True):
        axes = domain.axes(names)
        cells = math.prod(domain.shape[axis] for axis in axes)
        for support in subsets(axes):
            # What the basis does not hold cannot be told from its coefficients.
            where = basis.slices.get(support, slice(0, 0))
            ratio = squared_scale(basis, support, axes)
            result[where] += weight / total * ratio / cells
    return result


def num_noisy_cells(domain: Domain, measurements: Iterable[Measurement]) -> int:
    """Returns how many cells get noise."""
    return sum(
        math.prod(domain.shape[axis] for axis in domain.axes(measurement.names))
        for measurement in measurements
    )


def _inside(axes: Support, supports: Mapping[Support, Any]) -> list[Support]:
    """Returns the supports that lie inside some axes."""
    if len(axes) < 20 and 1 << len(axes) < len(supports):
        return [subset for subset in subsets(axes) if subset in supports]
    within = set(axes)
    return [support for support in supports if within.issuperset(support)]

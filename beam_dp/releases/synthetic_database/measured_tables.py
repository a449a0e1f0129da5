"""Noisy measurements of tables: public descriptions, variances, unbiased estimates and costs.

Everything here follows from public numbers and noisy tables: no exact count is seen.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_choice, checked_integer, checked_number
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.models.basis import (
    Coefficients,
    MarginalCoefficients,
    Support,
    marginal_of,
    squared_scale,
    subsets,
    supports_inside,
    table_coefficients,
)
from beam_dp.models.maximum_entropy import NoisyCoefficients
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.noise.bound import DISTRIBUTIONS, Distribution, noise_variance
from beam_dp.privacy.rounding import UNIT
from beam_dp.privacy.unit_costs import PARTS, UnitCosts
from beam_dp.queries.dense_tables import marginal_tables
from beam_dp.queries.linear import LiteralQuery, Product
from beam_dp.queries.workload import Workload

Names = tuple[str, ...]
Kind = Literal["table", "residual"]

_FIELDS = ("attributes", "measured", "distribution", "scale", "grid", "standard_deviation")
MAX_GRID = 2**62


@dataclasses.dataclass(frozen=True)
class MeasuredTable:
    """One noisy measurement, described by public numbers.

    ``kind`` says whether the whole table is measured or its residual. ``scale`` is that of each
    cell's noise, in grid units; ``grid`` units make one record.
    """

    names: Names
    kind: Kind
    distribution: Distribution
    scale: float
    grid: int = 1

    @property
    def variance(self) -> float:
        """Variance of the noise of one cell, in squared records."""
        return noise_variance(self.distribution, self.scale) / self.grid**2

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

    @classmethod
    def from_json(cls, parsed: Any, domain: Domain) -> Self:
        """Returns the measurement that a card states."""
        if not isinstance(parsed, dict) or set(parsed) != set(_FIELDS):
            condition = f"must have exactly the fields {', '.join(_FIELDS)}"
            raise InputError("noise", type(parsed).__name__, condition)
        names = parsed["attributes"]
        if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
            raise InputError("attributes", type(names).__name__, "must be a list of names")
        axes = domain.axes(names)
        if list(axes) != sorted(set(axes)):
            raise InputError("attributes", names, "must be distinct and in domain order")
        check_choice("measured", parsed["measured"], ("table", "residual"))
        check_choice("distribution", parsed["distribution"], DISTRIBUTIONS)
        scale = checked_number("scale", parsed["scale"], above=0)
        grid = checked_integer("grid", parsed["grid"], 1, MAX_GRID)
        kind, distribution = cast(Kind, parsed["measured"]), parsed["distribution"]
        return cls(tuple(names), kind, distribution, scale, grid)


def laplace_variance(measured: Iterable[MeasuredTable]) -> float | None:
    """Returns the smallest variance of a Laplace noise; None where all are Gaussian."""
    of_laplace = [each.variance for each in measured if each.distribution == "discrete_laplace"]
    return min(of_laplace, default=None)


def support_variances(
    domain: Domain,
    supports: Iterable[Support],
    measurements: Iterable[MeasuredTable],
    total_is_public: bool,
) -> dict[Support, float]:
    """Returns the variance that measurements leave in each residual, were they all used best.

    ``supports``: attribute sets, as ascending axes.
    ``total_is_public``: then the support () has variance 0.

    Returns:
        for each support the variance of an orthonormal coefficient of that marginal's table, in
        squared records; infinite where nothing measures it.
    """
    precisions = dict.fromkeys(supports, 0.0)
    for measurement in measurements:
        axes = domain.axes(measurement.names)
        if measurement.kind == "residual":
            if axes in precisions:
                precisions[axes] += 1 / measurement.variance
            continue
        for support in supports_inside(axes, precisions):
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
    kind: type[LiteralQuery] = Product,
) -> float:
    """Returns the variance of a query's unbiased estimate from a marginal, in squared records.

    The query is (constant + sign P) / divisor, where P is a product over attributes of vectors with
    sum s and squared norm n; of P a residual sees s^2 / d^2 of the attributes that were summed out,
    and n - s^2 / d of the others. The constant is seen by the total alone.

    ``axes``: of the marginal, ascending.
    ``held``: for each axis, the number of codes where the query's literal holds.
    """
    sizes = [domain.shape[axis] for axis in axes]
    constant, sign, divisor, inside, outside = kind.factors
    sums = [
        inside * count + outside * (size - count) for size, count in zip(sizes, held, strict=True)
    ]
    squares = [
        inside**2 * count + outside**2 * (size - count)
        for size, count in zip(sizes, held, strict=True)
    ]
    means = [total / size for total, size in zip(sums, sizes, strict=True)]
    free = [
        square - total**2 / size for square, total, size in zip(squares, sums, sizes, strict=True)
    ]
    variance = 0.0
    for support in subsets(axes):
        factor = math.prod(
            within if axis in support else mean**2
            for axis, within, mean in zip(axes, free, means, strict=True)
        )
        if not support:
            factor = (constant + sign * math.prod(means)) ** 2
        if factor:
            variance += factor / divisor**2 * variances[support]
    return variance


class Combination:
    """The best unbiased estimate of every coefficient from noisy tables.

    ``tables``: the noisy tables, in records, in the same order.
    """

    def __init__(
        self,
        domain: Domain,
        basis: Coefficients,
        measurements: Sequence[MeasuredTable] = (),
        tables: Sequence[NDArray[np.float64]] = (),
    ) -> None:
        self._domain = domain
        self._basis = basis
        self._sums = np.zeros(basis.num_coefficients)
        self._precisions = np.zeros(basis.num_coefficients)
        for measurement, table in zip(measurements, tables, strict=True):
            self.add(measurement, table)

    def add(self, measurement: MeasuredTable, table: NDArray[np.float64]) -> None:
        """Takes in one more noisy table: what it says of the coefficients of the basis."""
        basis, axes = self._basis, self._domain.axes(measurement.names)
        if measurement.kind == "residual" or not axes:
            parts = {axes: table_coefficients(table)} if axes in basis.slices else {}
        else:
            inside = supports_inside(axes, basis.slices)
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


def unbiased_tables(
    workload: Workload,
    measurements: Sequence[MeasuredTable],
    noisy: Sequence[NDArray[np.float64]],
    num_records: int | None = None,
) -> dict[Names, NDArray[np.float64]]:
    """Returns the best unbiased estimates of a workload's marginals from noisy tables.

    They are never clipped or rounded: sums of many of them stay unbiased.

    ``noisy``: the noisy tables, in records, in the same order.
    ``num_records``: the number of records, where it is public.

    Returns:
        one table a marginal, one axis an attribute.
    """
    if len(measurements) == 1 and measurements[0].kind == "table" and num_records is None:
        # Nothing to combine: sums of the one table, which may have very many marginals.
        return marginal_tables(noisy[0], measurements[0].names, workload.marginals)
    domain = workload.domain
    supports = [domain.axes(names) for names in workload.closure()]
    basis = MarginalCoefficients(domain.shape, supports)
    coefficients = Combination(domain, basis, measurements, noisy).estimate().values
    if num_records is not None:
        coefficients[basis.slices[()]] = num_records
    return {names: marginal_of(basis, coefficients, domain.axes(names)) for names in workload}


def unit_costs(
    domain: Domain, measurements: Sequence[MeasuredTable], max_unit_cost: float
) -> UnitCosts:
    """Returns the limit under which a unit moves residual measurements no more than C records do.

    Privacy: the measurements are one Gaussian mechanism. Let phi(x) be what a record x adds to all
    of them, each in units of its noise: their L2 norm. A unit adds the sum of its records' phi, so
    that mu^2 is at most the largest squared norm of such a sum, which is the sum over all ordered
    pairs of a unit's records of <phi(x), phi(y)>. That is a public function of where x and y agree:

        <phi(x), phi(y)> = sum over residuals S of precision_S
                           times the product over i in S of ([x_i = y_i] - 1 / size_i)

    It is ``one`` for x = y, whatever x is, and by Cauchy and Schwarz no more for any pair. What
    stays of a unit costs at most C^2 ``one``, by ``UnitCosts.keeps``: exactly, whatever the data,
    for costs are rounded up. Hence mu <= C sqrt(one), as of C equal records, under
    add-or-remove-one. (A replacement moves the difference of two such sums, at most twice as much;
    equal units would cancel, but none must, so it is refused.)
    """
    supports = [domain.axes(each.names) for each in measurements]
    # As ``discrete_gaussian_mu`` counts: the squared change over s^2 - 4, in grid units.
    precisions = np.array([each.grid**2 / (each.scale**2 - 4) for each in measurements])
    used = sorted({axis for support in supports for axis in support})
    # The pattern's first bit is of the first attribute, hence the fastest axis.
    overlaps = agreement_overlaps(domain, used, supports, precisions).transpose().ravel()
    # No more than the rounding of so many sums and products, whose terms are below their sum.
    slack = (len(supports) + 8 * len(used) + 16) * UNIT * float(precisions.sum())
    one = float(overlaps[-1])
    above = overlaps + slack
    shares = above / np.where(above > 0, one - slack, one + slack)
    pairs = np.minimum(np.ceil((shares + 8 * UNIT) * PARTS), PARTS).astype(np.int64)
    pairs[-1] = PARTS
    return UnitCosts(tuple(used), pairs, int(Fraction(max_unit_cost) ** 2 * PARTS))


def chance_cost(domain: Domain, measurements: Sequence[MeasuredTable], num_records: int) -> float:
    """Returns the limit C under which ``unit_costs`` keeps records that agree by chance alone.

    Two records with independent and uniform codes have, on average, nothing in common but what
    each adds to the total: the inner products of all other residuals average to 0.

    Returns:
        A whole number from 1 to K.
    """
    precisions = {domain.axes(each.names): 1 / each.variance for each in measurements}
    one = sum(
        precision * math.prod(1 - 1 / domain.shape[axis] for axis in support)
        for support, precision in precisions.items()
    )
    shared = precisions.get((), 0.0) / one
    cost = math.sqrt(num_records + num_records * (num_records - 1) * shared)
    return float(min(math.ceil(cost), num_records))


def agreement_overlaps(
    domain: Domain,
    used: Sequence[int],
    supports: Sequence[Support],
    precisions: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Returns the sum over residuals of precision x inner product of two records' residuals.

    Each attribute of a residual contributes 1 - 1/size where the records agree and -1/size where
    they differ.

    ``used``: axes of all supports, ascending.
    ``precisions``: one over their variances, shape (len(supports),).

    Returns:
        shape (2,) * len(used): of two records that agree exactly where the index is 1.
    """
    overlaps = np.zeros((2,) * len(used))
    for support, precision in zip(supports, precisions, strict=True):
        overlaps[tuple(int(axis in support) for axis in used)] += precision
    for position, axis in enumerate(used):
        size = domain.shape[axis]
        factors = np.array([[1.0, -1 / size], [1.0, 1 - 1 / size]])
        overlaps = np.moveaxis(np.tensordot(factors, overlaps, axes=(1, position)), 0, position)
    return overlaps

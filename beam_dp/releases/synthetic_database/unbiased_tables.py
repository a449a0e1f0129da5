"""The best unbiased estimates from noisy tables: post-processing, no exact count is seen here."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain
from beam_dp.models.basis import (
    Coefficients,
    MarginalCoefficients,
    marginal_of,
    squared_scale,
    supports_inside,
)
from beam_dp.models.maximum_entropy import NoisyCoefficients
from beam_dp.models.residual_basis import ResidualBasis, table_coefficients
from beam_dp.queries.dense_tables import marginal_tables
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable, Names


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

    Args:
        workload: the marginals.
        measurements: what was measured; of it all marginals follow.
        noisy: the noisy tables, in records, in the same order.
        num_records: the number of records, where it is public.

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

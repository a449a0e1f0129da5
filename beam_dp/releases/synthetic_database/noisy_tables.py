"""Answers from unbiased noisy tables: marginals and linear queries, with standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError
from beam_dp.models.basis import Support
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY, noise_bound
from beam_dp.privacy.rounding import UNIT
from beam_dp.privacy.unit_costs import PARTS, UnitCosts
from beam_dp.queries.dense_tables import batches_of, marginal_tables
from beam_dp.queries.linear import LinearQuery, LiteralQuery
from beam_dp.queries.workload import OfWorkload, Workload
from beam_dp.releases.error_bars import Estimate, MarginalAnswer
from beam_dp.releases.synthetic_database.measured_tables import (
    MeasuredTable,
    cell_variance,
    query_variance,
)

Table = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoisyTables(OfWorkload):
    """Unbiased and mutually consistent tables of a workload's marginals.

    A query about the attributes of one table is answered by summing cells of the table. If several
    tables can answer a query, all give the same answer, except for rounding.
    """

    workload: Workload
    tables: Mapping[Names, Table]  # one axis per attribute, in records
    variances: Mapping[Support, float]  # see ``measured_tables.support_variances``
    laplace_variance: float | None  # the smallest variance of a summed noise; None if Gaussian

    def answer(self, workload: Workload) -> list[MarginalAnswer]:
        """Returns the marginals of a workload; a bound is for all cells of a marginal together."""
        condition = "must be of the release's domain"
        self.domain.check_same(workload.domain, "workload", len(workload), condition)
        tables = self._inside(workload)
        answers = []
        for names in workload:
            variance = cell_variance(self.domain, self.variances, self.domain.axes(names))
            bound = self._bound(variance, tables[names].size)
            answers.append(
                MarginalAnswer(
                    names, tables[names], math.sqrt(variance), bound, FAILURE_PROBABILITY
                )
            )
        return answers

    def answer_queries(self, queries: Iterable[LinearQuery]) -> list[Estimate]:
        """Returns the answers of linear queries; all bounds are true together."""
        # The attributes of a query must all be in one table; explicit values are not supported.
        asked = self._checked(queries)
        names_of = {query.axes: self._names(query) for query in asked}
        inside = self._inside(names_of.values())
        tables = {axes: inside[names] for axes, names in names_of.items()}
        values = np.zeros(len(asked))
        for part in batches_of(asked):
            for batch in part:
                values[batch.positions] = batch.answers(tables)
        variances: dict[object, float] = {}
        estimates = []
        for query, value in zip(asked, values.tolist(), strict=True):
            counts = tuple(sum(stop - start for start, stop in ranges) for ranges in query.ranges)
            kind = query.axes, counts, type(query)
            if kind not in variances:
                variances[kind] = query_variance(
                    self.domain, self.variances, query.axes, counts, kind[2]
                )
            variance = variances[kind]
            bound = self._bound(variance, len(asked))
            estimates.append(
                Estimate(
                    value, math.sqrt(variance), bound=bound, failure_probability=FAILURE_PROBABILITY
                )
            )
        return estimates

    def _bound(self, variance: float, number: int) -> float:
        return noise_bound(variance, number, self.laplace_variance, FAILURE_PROBABILITY)

    def _checked(self, queries: Iterable[LinearQuery]) -> list[LiteralQuery]:
        literals: list[LiteralQuery] = []
        for query in queries:
            if query.shape != self.domain.shape:
                condition = f"must be over a domain of shape {self.domain.shape}"
                raise InputError("queries", query.shape, condition)
            if not isinstance(query, LiteralQuery):
                condition = "must not have: these tables answer sums of cells of their marginals"
                raise InputError("queries", "explicit values", condition)
            literals.append(query)
        return literals

    def _names(self, query: LiteralQuery) -> Names:
        return tuple(self.domain.names[axis] for axis in query.axes)

    def _inside(self, wanted: Iterable[Names]) -> dict[Names, Table]:
        """Returns marginals, each summed from the smallest table with all its attributes."""
        from_table: dict[Names, list[Names]] = {}
        for names in dict.fromkeys(wanted):
            holders = [marginal for marginal in self.workload if set(marginal) >= set(names)]
            if not holders:
                examples = "; ".join(",".join(marginal) for marginal in self.workload.marginals[:3])
                condition = f"must lie inside a marginal of the release, such as {examples}"
                raise InputError("marginal", ",".join(names), condition)
            smallest = min(holders, key=lambda marginal: self.tables[marginal].size)
            from_table.setdefault(smallest, []).append(names)
        marginals: dict[Names, Table] = {}
        for source, inside in from_table.items():
            marginals |= marginal_tables(self.tables[source], source, inside)
        return marginals


# Limits how much the records of one privacy unit together may move residual measurements.


def unit_costs(
    domain: Domain, measurements: Sequence[MeasuredTable], max_unit_cost: float
) -> UnitCosts:
    """Returns the limit under which a unit moves residual measurements no more than C records do.

    Privacy: the measurements are one Gaussian mechanism. Let phi(x) be the vector that a record x
    adds to all measurements, each in units of its noise. A unit adds the sum of phi(x) over its
    records, so mu^2 is at most the largest squared norm of such a sum, which is the sum of
    <phi(x), phi(y)> over all ordered pairs of the unit's records. The inner product is a public
    function of the attributes in which x and y agree:

        <phi(x), phi(y)> = sum over residuals S of precision_S
                           times the product over i in S of ([x_i = y_i] - 1 / size_i)

    The inner product is ``one`` for x = y and any x; by Cauchy and Schwarz it is at most ``one``
    for any pair. The kept records of a unit cost at most C^2 ``one``, by ``UnitCosts.keeps``. This
    is exact for any data, because costs are rounded up. So mu <= C sqrt(one), as for C equal
    records, under add-or-remove-one. (A replacement moves the difference of two such sums, at most
    twice as much; equal units would cancel, but need not, so replacements are refused.)
    """
    supports = [domain.axes(table.names) for table in measurements]
    # As in ``discrete_gaussian_mu``: the squared change divided by s^2 - 4, for scale s in grid
    # units.
    precisions = np.array([table.grid**2 / (table.scale**2 - 4) for table in measurements])
    used = sorted({axis for support in supports for axis in support})
    # The first bit of a pattern belongs to the first attribute, which must be the fastest axis.
    overlaps = agreement_overlaps(domain, used, supports, precisions).transpose().ravel()
    # An upper bound on the rounding error of these sums and products, in which no term exceeds
    # the sum.
    slack = (len(supports) + 8 * len(used) + 16) * UNIT * float(precisions.sum())
    one = float(overlaps[-1])
    above = overlaps + slack
    shares = above / np.where(above > 0, one - slack, one + slack)
    pairs = np.minimum(np.ceil((shares + 8 * UNIT) * PARTS), PARTS).astype(np.int64)
    pairs[-1] = PARTS
    return UnitCosts(tuple(used), pairs, int(Fraction(max_unit_cost) ** 2 * PARTS))


def chance_cost(domain: Domain, measurements: Sequence[MeasuredTable], num_records: int) -> float:
    """Returns the limit C under which ``unit_costs`` keeps records that agree by chance alone.

    For two records with independent, uniform codes, the total adds a constant to the inner product
    of their measurement vectors; every other residual adds 0 on average. C is an integer from 1 to
    ``num_records``.
    """
    precisions = {domain.axes(table.names): 1 / table.variance for table in measurements}
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

    An attribute of a residual contributes a factor 1 - 1/size if the records agree, else -1/size.

    ``used``: the axes of all supports, ascending.
    ``precisions``: one over the variance of each support, shape (len(supports),).

    Returns:
        The sums, shape (2,) * len(used), indexed by 1 for each axis in which the records agree.
    """
    overlaps = np.zeros((2,) * len(used))
    for support, precision in zip(supports, precisions, strict=True):
        overlaps[tuple(int(axis in support) for axis in used)] += precision
    for position, axis in enumerate(used):
        size = domain.shape[axis]
        factors = np.array([[1.0, -1 / size], [1.0, 1 - 1 / size]])
        overlaps = np.moveaxis(np.tensordot(factors, overlaps, axes=(1, position)), 0, position)
    return overlaps

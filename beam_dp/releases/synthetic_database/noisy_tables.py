"""Answers from unbiased noisy tables: marginals and linear queries, with standard errors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError
from beam_dp.models.basis import Support
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY, noise_bound
from beam_dp.queries.dense_tables import batches_of, marginal_tables
from beam_dp.queries.linear import LinearQuery, LiteralQuery
from beam_dp.queries.workload import Workload
from beam_dp.releases.error_bars import Estimate, MarginalAnswer
from beam_dp.releases.synthetic_database.measured_tables import cell_variance, query_variance

Table = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NoisyTables:
    """Unbiased and mutually consistent tables of a workload's marginals.

    A query about the attributes of one table is answered by summing cells of the table. If several
    tables can answer a query, all give the same answer, except for rounding.
    """

    workload: Workload
    tables: Mapping[Names, Table]  # one axis per attribute, in records
    variances: Mapping[Support, float]  # see ``measured_tables.support_variances``
    laplace_variance: float | None  # the smallest variance of a summed noise; None if Gaussian

    @property
    def domain(self) -> Domain:
        """The domain."""
        return self.workload.domain

    def answer(self, workload: Workload) -> list[MarginalAnswer]:
        """Returns the marginals of a workload; a bound is for all cells of a marginal together."""
        condition = "must be of the release's domain"
        self.domain.check_same(workload.domain, "workload", len(workload), condition)
        tables = self._inside(workload)
        found = []
        for names in workload:
            variance = cell_variance(self.domain, self.variances, self.domain.axes(names))
            bound = self._bound(variance, tables[names].size)
            found.append(
                MarginalAnswer(
                    names, tables[names], math.sqrt(variance), bound, FAILURE_PROBABILITY
                )
            )
        return found

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
        found = []
        for query, value in zip(asked, values.tolist(), strict=True):
            held = tuple(sum(stop - start for start, stop in ranges) for ranges in query.ranges)
            kind = query.axes, held, type(query)
            if kind not in variances:
                variances[kind] = query_variance(
                    self.domain, self.variances, query.axes, held, kind[2]
                )
            variance = variances[kind]
            bound = self._bound(variance, len(asked))
            found.append(
                Estimate(
                    value, math.sqrt(variance), bound=bound, failure_probability=FAILURE_PROBABILITY
                )
            )
        return found

    def _bound(self, variance: float, number: int) -> float:
        return noise_bound(variance, number, self.laplace_variance, FAILURE_PROBABILITY)

    def _checked(self, queries: Iterable[LinearQuery]) -> list[LiteralQuery]:
        found: list[LiteralQuery] = []
        for query in queries:
            if query.shape != self.domain.shape:
                condition = f"must be over a domain of shape {self.domain.shape}"
                raise InputError("queries", query.shape, condition)
            if not isinstance(query, LiteralQuery):
                condition = "must not have: these tables answer sums of cells of their marginals"
                raise InputError("queries", "explicit values", condition)
            found.append(query)
        return found

    def _names(self, query: LiteralQuery) -> Names:
        return tuple(self.domain.names[axis] for axis in query.axes)

    def _inside(self, wanted: Iterable[Names]) -> dict[Names, Table]:
        """Returns marginals, each summed from the smallest table with all its attributes."""
        from_table: dict[Names, list[Names]] = {}
        for names in dict.fromkeys(wanted):
            holders = [held for held in self.workload if set(held) >= set(names)]
            if not holders:
                known = "; ".join(",".join(held) for held in self.workload.marginals[:3])
                condition = f"must lie inside a marginal of the release, such as {known}"
                raise InputError("marginal", ",".join(names), condition)
            smallest = min(holders, key=lambda held: self.tables[held].size)
            from_table.setdefault(smallest, []).append(names)
        found: dict[Names, Table] = {}
        for held, inside in from_table.items():
            found |= marginal_tables(self.tables[held], held, inside)
        return found

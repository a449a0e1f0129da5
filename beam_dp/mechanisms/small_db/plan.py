"""The plan of SmallDB, and the release that it makes."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from beam_dp.domain.universe import Domain
from beam_dp.errors import magnitude
from beam_dp.mechanisms.contract import (
    MAX_RECORDS,
    Progress,
)
from beam_dp.mechanisms.marginals.measurements import Names
from beam_dp.mechanisms.marginals.plan import MarginalsPlan
from beam_dp.mechanisms.resources import choice_bytes
from beam_dp.mechanisms.small_db.choice import ChoiceFacts, MultisetChoice, SamplerName
from beam_dp.mechanisms.small_db.law import MAX_ANSWER
from beam_dp.mechanisms.small_db.size import (
    small_db_error,
)
from beam_dp.noise.source import NoiseSource
from beam_dp.queries.linear import LinearQuery, Product
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.query_matrix import query_matrix
from beam_dp.queries.vc_dimension import VCDimension
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.summaries.histogram import clipped_counts
from beam_dp.summaries.marginals import Marginals


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallDBPlan(MarginalsPlan):
    """The plan of ``SmallDB``.

    Args: as of ``MarginalsPlan``, where ``workload`` holds the marginals from which all queries
        can be read, and
        queries: what the release must answer.
        size: m, how many records are released.
        error_fraction: some database of this size misses no query by more, a share of N.
        selection_epsilon: for the choice of the database.
        total_scale: of the noise of the number of records; None where that is public.
        sampler: what was asked for; ``choice`` says which one was taken.
        choice: how the database will be chosen.
        calibration: of the size, ``tight`` or ``textbook``.
        sized_by: the rule that gave the size, or ``explicit``.
        failure_probability: of the stated error.
        bound: of the error of all queries, in records; None where the number of them is not public.
        vc_dimension: of the queries; None where some have other values than 0 and 1.
    """

    strategy: ClassVar[str] = "small_db"
    fits_tables: ClassVar[bool] = False

    mechanism: str = "small_db"
    queries: LinearWorkload
    size: int
    error_fraction: float
    selection_epsilon: float
    total_scale: float | None
    sampler: SamplerName
    choice: ChoiceFacts
    calibration: str
    sized_by: str
    failure_probability: float
    bound: float | None = None
    vc_dimension: VCDimension | None = None

    def _stated(self) -> dict[str, Any]:
        choice = dataclasses.asdict(self.choice)
        del choice["num_records"]
        # An integer of any length is not for a card.
        choice["num_multisets"] = magnitude(self.choice.num_multisets)
        stated: dict[str, Any] = {
            "calibration": self.calibration,
            "strategy": self.strategy,
            "sized_by": self.sized_by,
            "max_error_fraction": self.error_fraction,
            "num_queries": len(self.queries),
            **choice,
            "selection_epsilon": self.selection_epsilon,
            "total_scale": self.total_scale,
            "failure_probability": self.failure_probability,
        }
        if self.vc_dimension is not None:
            stated["vc_dimension"] = self.vc_dimension.most
            stated["vc_dimension_at_least"] = self.vc_dimension.least
            stated["vc_dimension_by"] = self.vc_dimension.found_by
        if self.bound is not None:
            stated["bound"] = self.bound
            stated["bound_is_vacuous"] = self.bound >= int(self.num_records)
        return stated

    def _declared_noise(self) -> list[dict[str, Any]]:
        return self._noise()

    def _declared_queries(self) -> Sequence[LinearQuery]:
        return self.queries.queries

    @property
    def memory_bytes(self) -> float:
        """Memory of the worker that draws, without the histogram."""
        size = self.size if self.choice.sampler == "nested" else 0
        return choice_bytes(len(self.queries), self.domain.num_cells, size)

    @property
    def time_depends_on_data(self) -> bool:
        """Whether the records are searched for."""
        return self.choice.sampler_time_depends_on_data

    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: Progress | None = None
    ) -> SyntheticDatabase:
        """Returns a release that keeps ``guarantee``."""
        domain = self.domain
        cells, matrix, denominator = query_matrix(self.queries)
        counts = clipped_counts(marginals.marginal(domain.names)).ravel()[cells]
        if self.total_scale is None:
            total = int(self.num_records)
        else:
            noisy = noise.laplace(counts.sum(keepdims=True), self.total_scale)
            most = min(MAX_RECORDS, MAX_ANSWER // (self.size * denominator))
            total = min(max(int(noisy[0]), 1), most)
        if progress is not None:
            progress("records", 1, 1)
        mechanism = MultisetChoice(
            matrix,
            self.selection_epsilon,
            total,
            self.size,
            denominator,
            self.guarantee.max_records_per_unit,
            self.sampler,
        )
        drawn = cells[mechanism.draw(counts, noise)]
        records, copies = np.unique(drawn, return_counts=True)
        error = {
            "bound": self.error_bound(total, len(cells)),
            "failure_probability": self.failure_probability,
        }
        return SyntheticDatabase(
            domain=domain,
            workload=self.workload,
            guarantee=self.guarantee,
            mechanism=self.mechanism,
            num_records=self.size,
            num_records_is_public=True,
            num_represented=total,
            codes=domain.codes(records),
            counts=copies,
            potentials=(),
            record_tables=((),),
            draw_id=noise.draw_id(),
            noise=self._noise(),
            errors=dict.fromkeys(answered_tables(domain, self.queries.queries), error),
            queries=self.queries.queries,
            query_error=error,
            plan=self.public,
        )

    def error_bound(self, total: int, num_cells: int) -> float:
        """Returns what no query's error exceeds, in records, but with ``failure_probability``."""
        beta, epsilon = self.failure_probability, self.selection_epsilon
        if self.total_scale is not None:
            beta /= 2
        each = epsilon / self.guarantee.max_records_per_unit
        bound = small_db_error(num_cells, self.size, each, total, self.error_fraction, beta)
        if self.total_scale is not None:
            # As far as the noisy number may be off; the share a is of the true one.
            away = math.ceil(self.total_scale * math.log(1 / beta))
            bound += (1 + self.error_fraction) * away
        return bound

    def _noise(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [
            {
                "what": "choice of the records",
                "distribution": "exponential",
                "scale": self.choice.selection_scale,
            }
        ]
        if self.total_scale is not None:
            found.append(
                {
                    "what": "number of records",
                    "distribution": "discrete_laplace",
                    "scale": self.total_scale,
                }
            )
        return found


def answered_tables(domain: Domain, queries: Sequence[LinearQuery]) -> list[Names]:
    """Returns the marginals whose every cell is a query."""
    cells: dict[tuple[int, ...], set[LinearQuery]] = {}
    for query in queries:
        if isinstance(query, Product) and all(
            len(ranges) == 1 and ranges[0][1] - ranges[0][0] == 1 for ranges in query.ranges
        ):
            cells.setdefault(query.axes, set()).add(query)
    return [
        tuple(domain.names[axis] for axis in axes)
        for axes, found in sorted(cells.items())
        if axes and len(found) == math.prod(domain.shape[axis] for axis in axes)
    ]

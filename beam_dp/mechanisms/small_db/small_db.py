"""SmallDB: its parameters, its plan, and the release that is drawn from the plan."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar, get_args

import numpy as np
from numpy.typing import NDArray

from beam_dp.checks import check_is, checked_number
from beam_dp.domain.universe import Domain, Names
from beam_dp.errors import InputError, magnitude
from beam_dp.flags import shared
from beam_dp.flags.flag import check_options, integer, number, option
from beam_dp.mechanisms import checks
from beam_dp.mechanisms.checks import Calibration
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism, check_request
from beam_dp.mechanisms.resources import choice_bytes
from beam_dp.mechanisms.small_db.choice import MAX_SIZE, MultisetChoice, SamplerName
from beam_dp.mechanisms.small_db.size import (
    MAX_ANSWER,
    num_multisets,
    size_of_workload,
    small_db_error,
    small_db_error_fraction,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import lowered, up
from beam_dp.queries.linear import LinearQuery, LiteralQuery, Product
from beam_dp.queries.linear_workload import MAX_MATRIX_VALUES, LinearWorkload, query_matrix
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.vc_dimension import (
    VCDimension,
    matrix_vc_dimension,
    products_bound,
    sets_of_products,
)
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.releases.synthetic_database.strategies import Drawn, SmallDatabase
from beam_dp.secret.summaries.histogram import Marginals, clipped_counts


@dataclasses.dataclass(frozen=True, kw_only=True)
class SmallDBPlan(MarginalsPlan):
    """The plan of ``SmallDB``; the marginals of ``workload`` answer all ``queries``."""

    sets_num_rows: ClassVar[bool] = True
    fits_tables: ClassVar[bool] = False

    mechanism: str = "small_db"
    parameters: SmallDatabase
    queries: LinearWorkload
    sampler: SamplerName  # as requested; ``parameters`` name the sampler that is used
    vc_dimension: VCDimension | None  # of the queries; None if some values are not 0 or 1

    @property
    def facts(self) -> dict[str, str]:
        """See ``MarginalsPlan``."""
        return {} if self.vc_dimension is None else {"vc dimension": str(self.vc_dimension)}

    @property
    def memory_bytes(self) -> float:
        """The worker's memory for a draw, without the histogram."""
        size = self.parameters.size if self.parameters.sampler == "nested" else 0
        return choice_bytes(len(self.queries), self.domain.num_cells, size)

    @property
    def time_depends_on_data(self) -> bool:
        """Whether the search sampler draws the records."""
        return self.parameters.sampler_time_depends_on_data

    def release(
        self, marginals: Marginals, noise: NoiseSource, progress: checks.Progress | None = None
    ) -> SyntheticDatabase:
        """Returns a release that keeps ``guarantee``."""
        domain, parameters = self.domain, self.parameters
        cells, matrix, denominator = query_matrix(self.queries)
        counts = clipped_counts(marginals.marginal(domain.names)).ravel()[cells]
        if parameters.total_scale is None:
            total = int(self.num_records)
        else:
            noisy = noise.laplace(counts.sum(keepdims=True), parameters.total_scale)
            limit = min(shared.MAX_RECORDS, MAX_ANSWER // (parameters.size * denominator))
            total = min(max(int(noisy[0]), 1), limit)
        if progress is not None:
            progress("records", 1, 1)
        mechanism = MultisetChoice(
            matrix,
            parameters.selection_epsilon,
            total,
            parameters.size,
            denominator,
            self.guarantee.max_records_per_unit,
            self.sampler,
        )
        drawn = cells[mechanism.draw(counts, noise)]
        records, copies = np.unique(drawn, return_counts=True)
        error = {
            "bound": self.error_bound(total, len(cells)),
            "failure_probability": parameters.failure_probability,
        }
        return SyntheticDatabase(
            domain=domain,
            workload=self.workload,
            guarantee=self.guarantee,
            mechanism=self.mechanism,
            num_records=parameters.size,
            num_records_is_public=True,
            num_represented=total,
            codes=domain.codes(records),
            counts=copies,
            potentials=(),
            record_tables=((),),
            draw_id=noise.draw_id(),
            noise=parameters.noise,
            errors=dict.fromkeys(answered_tables(domain, self.queries.queries), error),
            queries=self.queries.queries,
            query_error=error,
            plan=self.public,
        )

    def error_bound(self, total: int, num_cells: int) -> float:
        """Returns a bound on all errors, in records, for this ``failure_probability``."""
        parameters = self.parameters
        beta, fraction = parameters.failure_probability, parameters.max_error_fraction
        if parameters.total_scale is not None:
            beta /= 2
        epsilon = parameters.selection_epsilon / self.guarantee.max_records_per_unit
        bound = small_db_error(num_cells, parameters.size, epsilon, total, fraction, beta)
        if parameters.total_scale is not None:
            # ``away`` is a bound on the error of the noisy number.
            away = math.ceil(parameters.total_scale * math.log(1 / beta))
            bound += (1 + fraction) * away
        return bound

    def _drawn(self) -> Drawn:
        queries = self.queries.queries
        return Drawn(self.domain, self.guarantee, self.parameters.noise, queries)


def answered_tables(domain: Domain, queries: Sequence[LinearQuery]) -> list[Names]:
    """Returns the marginals for which every cell is one of the queries."""
    cells: dict[tuple[int, ...], set[LinearQuery]] = {}
    for query in queries:
        if isinstance(query, Product) and all(
            len(ranges) == 1 and ranges[0][1] - ranges[0][0] == 1 for ranges in query.ranges
        ):
            cells.setdefault(query.axes, set()).add(query)
    return [
        tuple(domain.names[axis] for axis in axes)
        for axes, asked in sorted(cells.items())
        if axes and len(asked) == math.prod(domain.shape[axis] for axis in axes)
    ]


@dataclasses.dataclass(frozen=True)
class SmallDB(Mechanism):
    """Releases a few records that answer a whole workload, chosen by ``MultisetChoice``.

    Privacy: epsilon, pure, for both relations, any size, and k records per unit, as
    ``MultisetChoice`` proves; a delta is left unspent. Under add-or-remove-one, a noisy number of
    records is the exact number plus discrete Laplace noise of scale k / epsilon_1; the records are
    chosen with the rest of epsilon. Public numbers determine how epsilon is split.

    Accuracy: with probability 1 - beta no answer is wrong by more than a N + (2 k / epsilon)
    (ln C(U + m - 1, m) + ln(1 / beta)) records, where N is the true number of records: see
    ``small_db_error``. The best database of this size has errors of at most a N.

    Args:
        size: m, the number of records that are released.
        max_error_fraction: a, which determines the size; give either ``size`` or this.
        vc_dimension: an upper bound on the VC dimension of the workload's 0/1 queries, for the
            card. By default ``matrix_vc_dimension`` computes the dimension or a bound; a smaller
            value is refused. For workloads that fit here, Sauer's bound never gives a smaller size
            than the number of queries does.
        sampler: ``auto`` decides by public sizes and never selects ``search``.
        calibration: ``tight``, or ``textbook`` for ceil(ln|Q| / a^2) records.
        failure_probability: beta of the stated error.

    Reference: Blum, Ligett and Roth (2013); Dwork and Roth (2014), Algorithm 4, Proposition 4.4.

    Example:
        >>> SmallDB(size=16).name
        'small_db'
    """

    size: int | None = dataclasses.field(
        default=None,
        metadata=option(
            "small_db: the number of released records; or give --max_error_fraction",
            "M",
            integer,
            limits={"least": 1, "most": MAX_SIZE},
        ),
    )
    max_error_fraction: float | None = dataclasses.field(
        default=None,
        metadata=option(
            "small_db: release enough records to keep errors below this share of all records,"
            " 0 < A <= 1",
            "A",
            number,
            limits={"above": 0, "most": 1},
        ),
    )
    vc_dimension: int | None = dataclasses.field(
        default=None,
        metadata=option(
            "small_db: the VC dimension of 0/1 queries; by default it is computed or bounded",
            "V",
            integer,
            limits={"least": 0},
        ),
    )
    sampler: SamplerName = dataclasses.field(
        default="auto",
        metadata=option(
            "small_db: how records are drawn; all ways are exact. auto never uses search,"
            " whose running time depends on the data",
            choices=get_args(SamplerName),
        ),
    )
    calibration: Calibration = dataclasses.field(default="tight", metadata=checks.CALIBRATION)
    failure_probability: float = 0.05
    name: ClassVar[str] = "small_db"
    summary: ClassVar[str] = "releases a few records that answer any linear queries"
    answers_linear_queries: ClassVar[bool] = True

    def __post_init__(self) -> None:
        checks.check_calibration(self.calibration)
        if (self.size is None) == (self.max_error_fraction is None):
            given = "nothing" if self.size is None else self.size
            condition = "must be given, or max_error_fraction, but not both"
            raise InputError("size", given, condition)
        check_options(self)
        checked_number("failure_probability", self.failure_probability, above=0, below=1)

    def plan(
        self,
        domain: Domain,
        workload: Workload | LinearWorkload,
        guarantee: Guarantee,
        num_records: checks.NumRecords,
    ) -> SmallDBPlan:
        """Returns the plan, from public numbers alone."""
        check_is("domain", domain, Domain)
        check_is("workload", workload, Workload, LinearWorkload)
        queries = workload if isinstance(workload, LinearWorkload) else cells_of(workload)
        _check_queries(queries, domain)
        tables = Workload(domain, concerned_tables(domain, queries.queries))
        check_request(domain, tables, guarantee, num_records)
        if num_records == "noisy" and self.sampler == "search":
            condition = "must be a number for sampler 'search', whose time grows with it"
            raise InputError("num_records", num_records, condition)
        cells, matrix, denominator = query_matrix(queries)
        dimension = self._dimension(queries, matrix) if denominator == 1 else None
        if dimension is None and self.vc_dimension is not None:
            condition = "requires queries with values 0 and 1; for other queries leave it out"
            raise InputError("vc_dimension", self.vc_dimension, condition)
        size, sized_by, fraction = self._size(queries, matrix, dimension)
        epsilon, total_scale = guarantee.epsilon, None
        if num_records == "noisy":
            epsilon, total_scale = self._shares(guarantee, len(cells), size)
            checks.check_noise(guarantee, [total_scale])
        public_number = 1 if num_records == "noisy" else num_records
        limit = guarantee.max_records_per_unit
        mechanism = self._choice(matrix, epsilon, public_number, size, denominator, limit)
        # The number of multisets may have too many digits for a card.
        facts = mechanism.public
        facts["num_multisets"] = magnitude(facts["num_multisets"])
        parameters = SmallDatabase(
            calibration=self.calibration,
            sized_by=sized_by,
            max_error_fraction=fraction,
            num_queries=len(queries),
            **facts,
            selection_epsilon=epsilon,
            total_scale=total_scale,
            failure_probability=self.failure_probability,
            vc_dimension=None if dimension is None else dimension.most,
            vc_dimension_at_least=None if dimension is None else dimension.least,
            vc_dimension_by=None if dimension is None else dimension.found_by,
        )
        plan = SmallDBPlan(
            workload=tables,
            guarantee=guarantee,
            num_records=num_records,
            summary_tables=(domain.names,),
            measurements=(),
            loss=Loss.pure(guarantee.epsilon),
            queries=queries,
            sampler=self.sampler,
            parameters=parameters,
            vc_dimension=dimension,
        )
        if num_records == "noisy":
            return plan
        bound = plan.error_bound(num_records, len(cells))
        parameters = dataclasses.replace(
            parameters, bound=bound, bound_is_vacuous=bound >= num_records
        )
        return dataclasses.replace(plan, parameters=parameters)

    def _dimension(self, queries: LinearWorkload, matrix: NDArray[np.int64]) -> VCDimension:
        """Returns the given VC dimension of 0/1 queries, or else a computed VC dimension."""
        dimension = matrix_vc_dimension(matrix, products_bound(queries.queries))
        if self.vc_dimension is None:
            return dimension
        if self.vc_dimension < dimension.least:
            condition = f"must be >= {dimension.least}, a lower bound for these queries"
            raise InputError("vc_dimension", self.vc_dimension, condition)
        return dataclasses.replace(dimension, most=self.vc_dimension, found_by="given")

    def _choice(
        self, matrix: NDArray[np.int64], epsilon: float, total: int, size: int, top: int, limit: int
    ) -> MultisetChoice:
        """Returns the choice; an error about the size names the argument that set the size."""
        try:
            return MultisetChoice(matrix, epsilon, total, size, top, limit, self.sampler)
        except InputError as error:
            if error.name != "size" or self.size is not None:
                raise
            condition = f"requires {size} records, which {error.condition}"
            raise InputError("max_error_fraction", self.max_error_fraction, condition) from None

    def _size(
        self, queries: LinearWorkload, matrix: NDArray[np.int64], dimension: VCDimension | None
    ) -> tuple[int, str, float]:
        """Returns the number of records, the rule behind the number, and the error fraction."""
        num_distinct = len(np.unique(matrix, axis=0))

        def size_for(fraction: float) -> tuple[int, str]:
            return size_of_workload(
                num_distinct,
                fraction,
                self.calibration,
                vc_dimension=None if dimension is None else dimension.most,
                num_cells=matrix.shape[1],
                are_intervals=are_intervals(queries.queries),
            )

        if self.max_error_fraction is not None:
            return *size_for(self.max_error_fraction), self.max_error_fraction
        assert self.size is not None
        fraction = small_db_error_fraction(self.size, lambda size: size_for(size)[0])
        return self.size, "explicit", fraction

    def _shares(self, guarantee: Guarantee, num_cells: int, size: int) -> tuple[float, float]:
        """Returns the epsilon of the choice, and the scale of the noise on the number of records.

        If the number gets the share x, the error a / x + b / (1 - x) is smallest at x = sqrt a /
        (sqrt a + sqrt b).
        """
        count = math.log(2 / self.failure_probability)
        choice = 2 * (math.log(num_multisets(num_cells, size)) + count)
        share = math.sqrt(count) / (math.sqrt(count) + math.sqrt(choice))
        epsilon = lowered(guarantee.epsilon)
        scale = up(guarantee.max_records_per_unit / Fraction(share * epsilon))
        return (1 - share) * epsilon, scale


def _check_queries(queries: LinearWorkload, domain: Domain) -> None:
    """Refuses queries of another domain, and workloads that are too large."""
    condition = "must be of the release's domain"
    domain.check_same(queries.domain, "workload", len(queries), condition)
    if len(queries) * domain.num_cells > MAX_MATRIX_VALUES:
        condition = (
            f"must be at most {MAX_MATRIX_VALUES:,} for small_db: declare only the"
            " attributes that the queries concern, in fewer and wider bins, or ask fewer"
        )
        given = f"{len(queries):,} queries times {magnitude(domain.num_cells)} cells"
        raise InputError("workload", given, condition)


def cells_of(workload: Workload) -> LinearWorkload:
    """Returns one query per cell of the marginals."""
    make = LinearQueries(workload.domain)
    queries = [query for names in workload for query in make.marginal_cells(names)]
    return LinearWorkload(workload.domain, tuple(dict.fromkeys(queries)))


def concerned_tables(domain: Domain, queries: Sequence[LinearQuery]) -> tuple[Names, ...]:
    """Returns the maximal sets of attributes among the attribute sets of the queries."""
    everything = tuple(range(domain.num_attributes))
    sets = {query.axes if isinstance(query, LiteralQuery) else everything for query in queries}
    largest = [axes for axes in sets if axes and not any(set(axes) < set(other) for other in sets)]
    # A query without attributes asks for the number of records, which any table gives.
    return tuple(tuple(domain.names[axis] for axis in axes) for axes in sorted(largest) or [(0,)])


def are_intervals(queries: Sequence[LinearQuery]) -> bool:
    """Returns whether each query is an interval of one common attribute, or counts all records."""
    sets = sets_of_products(queries)
    return sets is not None and len(sets) <= 1 and "any" not in sets.values()

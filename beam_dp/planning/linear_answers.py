"""What the mechanisms that answer linear queries would make of a job."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.multisets_nested import num_products
from beam_dp.mechanisms.plan import check_array
from beam_dp.mechanisms.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.small_db import MAX_SIZE, SmallDB
from beam_dp.mechanisms.small_db_size import log_num_multisets, num_multisets
from beam_dp.planning.bound import Calibration, Theorem, constant
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.noise_theorems import gaussian_deviation, gaussian_theorem, laplace_error
from beam_dp.planning.resources import (
    Resources,
    answers_resources,
    enumeration_resources,
    nested_resources,
    online_resources,
)
from beam_dp.planning.synthesis_theorems import (
    best_small_db_size,
    private_mw_theorem,
    run_error,
    small_db_theorem,
)
from beam_dp.planning.synthetic_databases import needed
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.queries.linear import VALUE_BITS, LinearQuery
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.workload import Workload

# Values of queries at cells that are looked at to plan a small database.
MAX_MATRIX_VALUES = 2**22
_GRID = 1 << VALUE_BITS


def linear_sensitivities(
    queries: Iterable[LinearQuery], domain: Domain, neighboring: Neighboring
) -> tuple[float, float]:
    """Returns how much one record moves all answers together, in L1 and in L2, at most.

    Exact under add-or-remove-one: the largest column. Under replace-one twice the L1 norm and
    sqrt(2) times the L2 norm of it, as values are never negative, and no more than a change of
    every query by one.

    Cost: one pass over the cells for each query.
    """
    sums = np.zeros(domain.num_cells)
    squares = np.zeros(domain.num_cells)
    count = 0
    for query in queries:
        values = query.values()
        sums += values
        squares += values * values
        count += 1
    l1, l2 = float(sums.max()), math.sqrt(float(squares.max()))
    if neighboring is Neighboring.REPLACE_ONE:
        l1, l2 = min(2 * l1, count), min(math.sqrt(2) * l2, math.sqrt(count))
    return l1, l2


def laplace_answers_option(job: PlanningJob) -> Option:
    """Returns what discrete Laplace noise on every answer would do."""
    name = "laplace_answers"
    if isinstance(job.workload, Workload):
        return Option(name, "tight", None, "answers linear queries; for marginals see laplace")
    l1, _ = _sensitivities(job, job.workload)
    if l1 == 0:
        return _exact(job, name)
    beta = job.failure_probability
    error = laplace_error(job.num_queries, l1, job.guarantee.epsilon, beta, grid=_GRID)
    source = "Laplace: Dwork and Roth (2014), Theorem 3.8"
    theorem = Theorem(source, constant(beta), constant(error))
    deviation = math.sqrt(2) * l1 / job.guarantee.epsilon
    return _answers(job, name, deviation, theorem)


def gaussian_answers_option(job: PlanningJob) -> Option:
    """Returns what Gaussian noise on every answer would do."""
    name = "gaussian_answers"
    guarantee = job.guarantee
    if isinstance(job.workload, Workload):
        return Option(name, "tight", None, "answers linear queries; for marginals see gaussian")
    if guarantee.delta == 0:
        return Option(name, "tight", None, "delta: 0.0 is refused; must be > 0 for Gaussian noise")
    _, l2 = _sensitivities(job, job.workload)
    if l2 == 0:
        return _exact(job, name)
    theorem = gaussian_theorem(
        job.num_queries, l2, guarantee.epsilon, guarantee.delta, job.failure_probability
    )
    deviation = l2 * gaussian_deviation(guarantee.epsilon, guarantee.delta)
    return _answers(job, name, deviation, theorem)


def private_mw_option(job: PlanningJob, calibration: Calibration = "tight") -> Option:
    """Returns what online multiplicative weights would do with the workload's queries."""
    name, program = "private_mw", "answer_queries"
    num_questions = (
        job.num_queries if isinstance(job.workload, Workload) else job.workload.num_distinct
    )
    try:
        plan = plan_private_mw(
            job.domain,
            job.guarantee,
            job.given_num_records,
            num_questions=num_questions,
            failure_probability=job.failure_probability,
            calibration=calibration,
        )
        settings = plan.settle(job.num_records)
        theorem = private_mw_theorem(
            job.domain,
            num_questions,
            job.guarantee,
            job.failure_probability,
            calibration,
            num_records_is_public=job.num_records_is_public,
        )
    except InputError as error:
        return Option(name, calibration, program, str(error))
    # The textbook's run is on integers, and for whole updates: its bound is a little more.
    planned = Theorem(theorem.name, theorem.failure_probability, constant(run_error(settings)))
    return Option(
        name,
        calibration,
        program,
        measured_error=settings.noise.answer_deviation,
        bound=planned.bound(job.num_records),
        records_needed=needed(job, theorem),
        resources=online_resources(job.domain.num_cells, num_questions, settings.noise.max_above),
        parameters=(("num_questions", str(num_questions)),),
        note="what is not measured comes from a hypothesis: its error depends on the data",
    )


def small_db_option(job: PlanningJob) -> Option:
    """Returns what ``SmallDB`` would do, with the best size that can be drawn."""
    name, program = "small_db", "release_synthetic_database"
    guarantee, beta = job.guarantee, job.failure_probability
    num_cells = job.domain.num_cells
    try:
        check_array(job.domain)
        if job.num_queries * num_cells > MAX_MATRIX_VALUES:
            raise InputError(
                "workload",
                f"{job.num_queries:,} queries times {num_cells:,} cells",
                f"must be at most {MAX_MATRIX_VALUES:,} for a small database",
            )
        columns, denominator = _matrix(linear_queries(job.workload))
        largest = _largest_size(job, columns, denominator)
        arguments = (num_cells, len(columns), guarantee.epsilon, beta)
        records = guarantee.max_records_per_unit
        best = best_small_db_size(*arguments, job.num_records, records, largest)
        theorem = small_db_theorem(*arguments, "tight", records, largest)
        mechanism = _mechanism(job, columns, denominator, best)
    except InputError as refused:
        return Option(name, "tight", program, str(refused))
    public = mechanism.public
    note = f"{best:,} records, drawn by {public['sampler']}"
    if best == largest < MAX_SIZE:
        note += ", and more cannot be drawn"
    if not job.num_records_is_public:
        note += "; without the cost of a noisy number of records"
    return Option(
        name,
        "tight",
        program,
        bound=theorem.bound(job.num_records),
        records_needed=needed(job, theorem),
        resources=_small_db_resources(mechanism, columns),
        parameters=(("size", str(best)),),
        note=note,
    )


def linear_queries(workload: Workload | LinearWorkload) -> tuple[LinearQuery, ...]:
    """Returns the distinct queries of a workload: of marginals every cell."""
    if isinstance(workload, LinearWorkload):
        return tuple(dict.fromkeys(workload.queries))
    make = LinearQueries(workload.domain)
    cells = (query for names in workload for query in make.marginal_cells(names))
    return tuple(dict.fromkeys(cells))


def _sensitivities(job: PlanningJob, workload: LinearWorkload) -> tuple[float, float]:
    l1, l2 = linear_sensitivities(workload, job.domain, job.guarantee.neighboring)
    records = job.guarantee.max_records_per_unit
    return l1 * records, l2 * records


def _exact(job: PlanningJob, name: str) -> Option:
    theorem = Theorem("no record moves any answer", constant(0.0), constant(0.0))
    return _answers(job, name, 0.0, theorem)


def _answers(job: PlanningJob, name: str, deviation: float, theorem: Theorem) -> Option:
    return Option(
        name,
        "tight",
        None,
        expected_error=deviation,
        bound=theorem.bound(job.num_records),
        records_needed=needed(job, theorem),
        resources=answers_resources(job.domain.num_cells, job.num_queries),
        note="every answer has noise of its own",
    )


def _matrix(queries: tuple[LinearQuery, ...]) -> tuple[NDArray[np.int64], int]:
    """The distinct queries at the distinct cells, in integers, and what stands for 1."""
    rows = np.array([np.rint(query.values() * _GRID) for query in queries]).astype(np.int64)
    common = math.gcd(int(np.gcd.reduce(rows, axis=None)), _GRID)
    distinct = np.unique(np.unique(rows // common, axis=0), axis=1)
    return distinct, _GRID // common


def _mechanism(
    job: PlanningJob, columns: NDArray[np.int64], denominator: int, size: int
) -> SmallDB:
    return SmallDB(
        columns,
        job.guarantee.epsilon,
        job.num_records,
        size,
        denominator,
        job.guarantee.max_records_per_unit,
    )


def _small_db_resources(mechanism: SmallDB, columns: NDArray[np.int64]) -> Resources:
    size = mechanism.size
    if mechanism.public["sampler"] == "nested":
        bits = log_num_multisets(columns.shape[1], size) / math.log(2) * (size + 1)
        return nested_resources(num_products(len(columns), size), bits, columns.size)
    multisets = float(num_multisets(columns.shape[1], size))
    return enumeration_resources(multisets, len(columns), columns.size)


def _largest_size(job: PlanningJob, columns: NDArray[np.int64], denominator: int) -> int:
    """The largest size that can be drawn."""
    _mechanism(job, columns, denominator, 1)
    low, high = 1, MAX_SIZE + 1
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _mechanism(job, columns, denominator, middle)
            low = middle
        except InputError:
            high = middle
    return low

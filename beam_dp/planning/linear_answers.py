"""Planning options for mechanisms that answer linear queries or intervals."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError, magnitude
from beam_dp.mechanisms import resources
from beam_dp.mechanisms.intervals.plan import plan_intervals
from beam_dp.mechanisms.linear_answers.answers import WorkloadAnswersPlan, plan_workload_answers
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.small_db.choice import MAX_SIZE, MultisetChoice
from beam_dp.mechanisms.small_db.nested import num_products
from beam_dp.mechanisms.small_db.size import log_num_multisets, num_multisets
from beam_dp.mechanisms.small_db.small_db import SmallDB, SmallDBPlan, cells_of
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.theorems import synthesis
from beam_dp.planning.theorems.noise import intervals_theorem
from beam_dp.planning.theorems.theorem import Calibration, Theorem, constant
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.queries.linear import Product
from beam_dp.queries.linear_workload import LinearWorkload, query_matrix
from beam_dp.queries.workload import Workload
from beam_dp.releases.intervals.release import check_ordered

_Ends = NDArray[np.int64]
# The largest query matrix, in queries times cells, for which small databases are planned.
MAX_MATRIX_VALUES = 2**22


def answers_theorem(plan: WorkloadAnswersPlan) -> Theorem:
    """Returns the bound of noisy answers, ``WorkloadAnswersPlan.bound``, as a theorem."""
    name = f"{plan.distribution.replace('_', ' ')} noise: union bound over answers"
    return Theorem(name, constant(plan.failure_probability), constant(plan.bound()))


def private_mw_option(job: PlanningJob, calibration: Calibration = "tight") -> Option:
    """Plans online multiplicative weights for the workload's queries."""
    option = Option("private_mw", calibration, "answer_queries")
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
    except InputError as error:
        return dataclasses.replace(option, refusal=str(error))
    theorem = synthesis.online_theorem(plan)
    # A textbook run rounds its threshold and number of updates, so its bound is slightly larger.
    planned = Theorem(
        theorem.name, theorem.failure_probability, constant(synthesis.run_error(settings))
    )
    return dataclasses.replace(
        option,
        measured_error=settings.noise.answer_deviation,
        bound=planned.bound(job.num_records),
        records_needed=job.needed(theorem),
        resources=resources.online_resources(
            job.domain.num_cells, num_questions, settings.noise.max_above
        ),
        parameters=(("num_questions", str(num_questions)),),
        note="unmeasured answers come from a hypothesis: their error depends on the data",
    )


def small_db_option(job: PlanningJob) -> Option:
    """Plans ``SmallDB`` with the best size that can be drawn."""
    option = Option("small_db", "tight", "release_synthetic_database")
    guarantee, beta = job.guarantee, job.failure_probability
    num_cells = job.domain.num_cells
    try:
        if job.num_queries * num_cells > MAX_MATRIX_VALUES:
            raise InputError(
                "workload",
                f"{job.num_queries:,} queries times {magnitude(num_cells)} cells",
                f"must be at most {MAX_MATRIX_VALUES:,} for a small database to be planned",
            )
        asked = job.workload
        queries = asked if isinstance(asked, LinearWorkload) else cells_of(asked)
        _, matrix, denominator = query_matrix(queries)
        columns = np.unique(np.unique(matrix, axis=0), axis=1)
        largest = _largest_size(job, columns, denominator)
        records = guarantee.max_records_per_unit
        best = synthesis.best_small_db_size(
            num_cells, len(columns), guarantee.epsilon, beta, job.num_records, records, largest
        )
        plan = SmallDB(size=best, failure_probability=beta).plan(
            job.domain, job.workload, guarantee, job.given_num_records
        )
    except InputError as error:
        return dataclasses.replace(option, refusal=str(error))
    theorem = small_database_theorem(job, plan, len(columns), largest)
    bound = theorem.bound(job.num_records)
    if plan.bound is not None:
        # For intervals, a small database needs fewer records than the theorem states.
        bound = dataclasses.replace(bound, max_error=min(bound.max_error, plan.bound))
    note = f"{best:,} record{'' if best == 1 else 's'}, drawn by {plan.choice.sampler}"
    if best * 1.1 >= largest and largest < MAX_SIZE:
        note += ", and more cannot be drawn"
    return dataclasses.replace(
        option,
        bound=bound,
        records_needed=job.needed(theorem),
        resources=_small_db_resources(plan.choice.sampler, best, columns),
        parameters=(("size", str(best)),),
        note=note,
    )


def small_database_theorem(
    job: PlanningJob, plan: SmallDBPlan, num_queries: int, max_size: int
) -> Theorem:
    """Returns the error bound of a small database, at the best size up to ``max_size``.

    Accuracy: ``small_db_theorem`` for the epsilon of the choice. If the number of records is
    private, half of beta is for the noise of this number, which moves the answers by at most
    (1 + a) <= 2 times the noise. Only the plan's split of the budget is used; ``num_queries``
    counts distinct queries.
    """
    guarantee, beta, away = job.guarantee, job.failure_probability, 0
    if plan.total_scale is not None:
        beta /= 2
        away = 2 * math.ceil(plan.total_scale * math.log(1 / beta))
    choice = synthesis.small_db_theorem(
        job.domain.num_cells,
        num_queries,
        plan.selection_epsilon,
        beta,
        "tight",
        guarantee.max_records_per_unit,
        max_size,
    )
    return Theorem(
        choice.name,
        constant(job.failure_probability),
        lambda num_records: choice.error(num_records) + away,
    )


def answers_option(job: PlanningJob, distribution: Distribution) -> Option:
    """Plans discrete noise on every answer."""
    mechanism = distribution.removeprefix("discrete_")
    option = Option(f"{mechanism}_answers", "tight", "answer_queries")
    if isinstance(job.workload, Workload):
        refusal = "answers linear queries; this job asks for marginals"
        return dataclasses.replace(option, refusal=refusal)
    try:
        # The program answers repeated queries only once.
        workload = LinearWorkload(job.domain, tuple(dict.fromkeys(job.workload)))
        plan = plan_workload_answers(
            workload, job.guarantee, job.given_num_records, distribution, job.failure_probability
        )
    except InputError as error:
        return dataclasses.replace(option, refusal=str(error))
    theorem = answers_theorem(plan)
    return dataclasses.replace(
        option,
        expected_error=plan.standard_error,
        bound=theorem.bound(job.num_records),
        records_needed=job.needed(theorem),
        resources=resources.answers_resources(job.domain.num_cells, job.num_queries),
        parameters=(("mechanism", mechanism),),
        note="every answer has its own noise",
    )


def intervals_option(job: PlanningJob) -> Option:
    """Plans the release of all intervals of an attribute; the expected error is exact."""
    option = Option("intervals", "tight", "release_intervals")
    try:
        attribute, low, high = asked_intervals(job)
        plan = plan_intervals(job.domain[attribute].num_levels, job.guarantee)
    except InputError as error:
        return dataclasses.replace(option, refusal=str(error))
    variances = plan.noise_variance * plan.strategy.errors.variances(low, high)
    theorem = intervals_theorem(plan, variances, job.failure_probability)
    return dataclasses.replace(
        option,
        expected_error=math.sqrt(float(variances.mean())),
        bound=theorem.bound(job.num_records),
        records_needed=job.needed(theorem),
        resources=resources.intervals_resources(plan.num_leaves),
        parameters=(("attribute", attribute), ("strategy", plan.choice[0])),
        note="all intervals of one attribute, each with its standard error; no records",
    )


def asked_intervals(job: PlanningJob) -> tuple[str, _Ends, _Ends]:
    """Returns the attribute of a job's intervals, and each interval's first and last cell."""
    refusal = InputError("workload", job.num_queries, "must be intervals of one ordered attribute")
    if isinstance(job.workload, Workload):
        raise refusal
    queries = [query for query in job.workload if isinstance(query, Product)]
    axes = {query.axes for query in queries if query.axes}
    if len(queries) < job.num_queries or len(axes) != 1:
        raise refusal
    (axis, *others) = axes.pop()
    attribute = job.domain.attributes[axis]
    # A query without ranges counts the whole domain, with "other" and null.
    ends = [query.ranges[0] if query.axes else ((0, attribute.size),) for query in queries]
    if others or any(len(each) > 1 or each[0][1] > attribute.num_levels for each in ends):
        raise refusal
    check_ordered(attribute)
    low, stop = np.array([each[0] for each in ends], np.int64).T
    return attribute.name, low, stop - 1


def _small_db_resources(sampler: str, size: int, columns: NDArray[np.int64]) -> resources.Resources:
    if sampler == "nested":
        bits = log_num_multisets(columns.shape[1], size) / math.log(2) * (size + 1)
        return resources.nested_resources(num_products(len(columns), size), bits, columns.size)
    multisets = float(num_multisets(columns.shape[1], size))
    return resources.enumeration_resources(multisets, len(columns), columns.size)


def _largest_size(job: PlanningJob, columns: NDArray[np.int64], denominator: int) -> int:
    """Returns the largest size that can be drawn; raises InputError if size 1 can't be drawn."""
    guarantee, num_records = job.guarantee, job.num_records
    records = guarantee.max_records_per_unit

    def build(size: int) -> None:
        MultisetChoice(columns, guarantee.epsilon, num_records, size, denominator, records)

    def is_too_large(size: int) -> bool:
        try:
            build(size)
        except InputError:
            return True
        return False

    build(1)
    return bisect_left(range(1, MAX_SIZE + 1), True, key=is_too_large)

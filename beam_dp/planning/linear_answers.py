"""Planning options: mechanisms that answer linear queries."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError, magnitude
from beam_dp.mechanisms.linear_answers.answers import WorkloadAnswersPlan, plan_workload_answers
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.resources import (
    Resources,
    answers_resources,
    enumeration_resources,
    nested_resources,
    online_resources,
)
from beam_dp.mechanisms.small_db.choice import MAX_SIZE, MultisetChoice
from beam_dp.mechanisms.small_db.nested import num_products
from beam_dp.mechanisms.small_db.size import log_num_multisets, num_multisets
from beam_dp.mechanisms.small_db.small_db import SmallDB, SmallDBPlan, cells_of
from beam_dp.noise.bound import Distribution
from beam_dp.planning.job import Option, PlanningJob
from beam_dp.planning.synthetic_databases import needed
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.query_matrix import query_matrix
from beam_dp.queries.workload import Workload
from beam_dp.theorems.synthesis import (
    best_small_db_size,
    online_theorem,
    run_error,
    small_db_theorem,
)
from beam_dp.theorems.theorem import Calibration, Theorem, constant

# Values of queries at cells that are looked at to plan a small database.
MAX_MATRIX_VALUES = 2**22


def answers_theorem(plan: WorkloadAnswersPlan) -> Theorem:
    """Returns how wrong noisy answers can be, ``WorkloadAnswersPlan.bound``, as a theorem."""
    name = f"{plan.distribution.replace('_', ' ')} noise: union bound over answers"
    return Theorem(name, constant(plan.failure_probability), constant(plan.bound()))


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
    except InputError as error:
        return Option(name, calibration, program, str(error))
    theorem = online_theorem(plan)
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
        best = best_small_db_size(
            num_cells, len(columns), guarantee.epsilon, beta, job.num_records, records, largest
        )
        plan = SmallDB(size=best, failure_probability=beta).plan(
            job.domain, job.workload, guarantee, job.given_num_records
        )
    except InputError as error:
        return Option(name, "tight", program, str(error))
    theorem = small_database_theorem(job, plan, len(columns), largest)
    bound = theorem.bound(job.num_records)
    if plan.bound is not None:
        # A small database of intervals needs fewer records than the theorem knows of.
        bound = dataclasses.replace(bound, max_error=min(bound.max_error, plan.bound))
    note = f"{best:,} record{'' if best == 1 else 's'}, drawn by {plan.choice.sampler}"
    if best * 1.1 >= largest and largest < MAX_SIZE:
        note += ", and more cannot be drawn"
    return Option(
        name,
        "tight",
        program,
        bound=bound,
        records_needed=needed(job, theorem),
        resources=_small_db_resources(plan.choice.sampler, best, columns),
        parameters=(("size", str(best)),),
        note=note,
    )


def small_database_theorem(
    job: PlanningJob, plan: SmallDBPlan, num_queries: int, max_size: int
) -> Theorem:
    """Returns how wrong a small database can be, of the best size that can be drawn.

    Accuracy: ``small_db_theorem`` for the epsilon of the choice. Where the number of records is
    private, half of beta is for its noise, which moves the answers by (1 + a) <= 2 times as much.

    Args:
        job: the job.
        plan: of some size; its shares of the budget are used.
        num_queries: |Q|, distinct ones.
        max_size: the largest size that can be drawn.
    """
    guarantee, beta, away = job.guarantee, job.failure_probability, 0
    if plan.total_scale is not None:
        beta /= 2
        away = 2 * math.ceil(plan.total_scale * math.log(1 / beta))
    choice = small_db_theorem(
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
    """Returns what discrete noise on every answer would do."""
    mechanism = distribution.removeprefix("discrete_")
    name, program = f"{mechanism}_answers", "answer_queries"
    if isinstance(job.workload, Workload):
        refusal = "answers linear queries; this job asks for marginals"
        return Option(name, "tight", program, refusal)
    try:
        # As the program does, which answers a query once, however often it is asked.
        workload = LinearWorkload(job.domain, tuple(dict.fromkeys(job.workload)))
        plan = plan_workload_answers(
            workload,
            job.guarantee,
            job.given_num_records,
            distribution,
            job.failure_probability,
        )
    except InputError as error:
        return Option(name, "tight", program, str(error))
    theorem = answers_theorem(plan)
    return Option(
        name,
        "tight",
        program,
        expected_error=plan.standard_error,
        bound=theorem.bound(job.num_records),
        records_needed=needed(job, theorem),
        resources=answers_resources(job.domain.num_cells, job.num_queries),
        parameters=(("mechanism", mechanism),),
        note="every answer has noise of its own",
    )


def _small_db_resources(sampler: str, size: int, columns: NDArray[np.int64]) -> Resources:
    if sampler == "nested":
        bits = log_num_multisets(columns.shape[1], size) / math.log(2) * (size + 1)
        return nested_resources(num_products(len(columns), size), bits, columns.size)
    multisets = float(num_multisets(columns.shape[1], size))
    return enumeration_resources(multisets, len(columns), columns.size)


def _largest_size(job: PlanningJob, columns: NDArray[np.int64], denominator: int) -> int:
    """Returns the largest size that can be drawn; raises InputError where none can."""
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

"""Planning options for mechanisms that answer queries, at once or one at a time."""

from __future__ import annotations

import dataclasses

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms import resources
from beam_dp.mechanisms.linear_answers.answers import WorkloadAnswersPlan, plan_workload_answers
from beam_dp.mechanisms.online.plan import OnlinePlan
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
from beam_dp.planning.job import (
    AllowedQueries,
    Option,
    PlanningJob,
    QueryCountJob,
    SparseOption,
    SparsePlanningJob,
)
from beam_dp.planning.theorems.online import online_theorem, run_error
from beam_dp.planning.theorems.theorem import Calibration, Theorem, constant
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload

_PROGRAM = "answer_queries"
_SPARSE_NOTE = "answers one query at a time; all answers together are within the bound"


def answers_theorem(plan: WorkloadAnswersPlan) -> Theorem:
    """Returns the bound of noisy answers, ``WorkloadAnswersPlan.bound``, as a theorem."""
    name = f"{plan.distribution.replace('_', ' ')} noise: union bound over answers"
    return Theorem(name, constant(plan.failure_probability), constant(plan.bound()))


def private_mw_option(job: PlanningJob, calibration: Calibration = "tight") -> Option:
    """Plans online multiplicative weights for the workload's queries."""
    option = Option("private_mw", calibration, _PROGRAM)
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
    theorem = online_theorem(plan)
    # A textbook run rounds its threshold and number of updates, so its bound is slightly larger.
    planned = Theorem(theorem.name, theorem.failure_probability, constant(run_error(settings)))
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


def answers_option(job: PlanningJob, distribution: Distribution) -> Option:
    """Plans discrete noise on every answer."""
    mechanism = distribution.removeprefix("discrete_")
    option = Option(f"{mechanism}_answers", "tight", _PROGRAM)
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


def sparse_mw_option(job: SparsePlanningJob) -> SparseOption:
    """Plans online multiplicative weights for sparse queries."""
    option = SparseOption("sparse_mw", "tight", _PROGRAM)
    if job.num_questions is None:
        reason = "--num_questions must be given: the number of queries with error bounds"
        return dataclasses.replace(option, refusal=reason)
    number = job.profile.num_records
    try:
        plan = plan_sparse_mw(
            job.guarantee,
            job.given_num_records,
            max_sparsity=job.max_sparsity,
            num_questions=job.num_questions,
            failure_probability=job.failure_probability,
        )
        settings = plan.settle(number)
    except InputError as error:
        return dataclasses.replace(option, refusal=str(error))
    return dataclasses.replace(
        option,
        measured_error=settings.noise.answer_deviation,
        bound=online_theorem(plan).bound(number),
        parameters=(("num_questions", str(job.num_questions)),),
        note=_SPARSE_NOTE,
        is_pure=plan.loss.kind == "pure",
    )


def private_mw_queries(job: QueryCountJob, calibration: Calibration) -> AllowedQueries:
    """Returns how many queries online multiplicative weights answer."""
    domain = Domain((IntegerAttribute("cell", 0, job.cells - 1),))
    plan = plan_private_mw(
        domain,
        job.guarantee,
        job.given_num_records,
        num_questions=1,
        failure_probability=job.failure_probability,
        calibration=calibration,
    )
    return _of_run(job, plan, job.universe)


def sparse_mw_queries(job: QueryCountJob, calibration: Calibration) -> AllowedQueries:
    """Returns how many sparse queries online multiplicative weights answer."""
    if job.max_sparsity is None:
        raise InputError("max_sparsity", None, "must be given")
    plan = plan_sparse_mw(
        job.guarantee,
        job.given_num_records,
        max_sparsity=job.max_sparsity,
        num_questions=1,
        failure_probability=job.failure_probability,
        calibration=calibration,
    )
    return _of_run(job, plan, f"queries of at most {job.max_sparsity:,} keys, any universe")


def _of_run(job: QueryCountJob, plan: OnlinePlan, queries: str) -> AllowedQueries:
    def theorem_of(count: int) -> Theorem:
        # A plan would refuse more than 2^31 questions.
        return online_theorem(dataclasses.replace(plan, num_questions=count))

    assumes = f"{queries}, one query at a time"
    if plan.calibration == "textbook" and job.guarantee.delta > 0:
        assumes += ", as published: not proved for few queries"
    return job.allowed(theorem_of, assumes)

"""Planning options for mechanisms that answer queries, at once or one at a time."""

from __future__ import annotations

import dataclasses
import math
from functools import partial
from typing import Any

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms import resources
from beam_dp.mechanisms.linear_answers import WorkloadAnswersPlan, plan_workload_answers
from beam_dp.mechanisms.online.plan import OnlinePlan, Settings, published_error
from beam_dp.mechanisms.online.private_mw import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
from beam_dp.planning.job import (
    Planner,
    PlanningJob,
    QueryCountJob,
    SparseOption,
    SparsePlanningJob,
)
from beam_dp.planning.theorems.theorem import Calibration, Theorem, constant
from beam_dp.privacy.noise.bound import Distribution
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload

PROGRAM = "answer_queries"
_SPARSE_NOTE = "answers one query at a time; all answers together are within the bound"


def answers_theorem(plan: WorkloadAnswersPlan) -> Theorem:
    """Returns the bound of noisy answers, ``WorkloadAnswersPlan.bound``, as a theorem."""
    name = f"{plan.distribution.replace('_', ' ')} noise: union bound over answers"
    return Theorem(name, constant(plan.failure_probability), constant(plan.bound()))


def online_theorem(plan: OnlinePlan) -> Theorem:
    """Returns an error bound for the answers of online multiplicative weights, sparse or not.

    ``plan``: the plan of a run, which contains the mechanism, calibration and failure probability.

    Accuracy: with probability 1 - beta, the bound is true for all answers to the first K different
    queries. ``tight`` is the largest bound of any answer in a run as planned, which includes the
    cost and the error of a noisy number of records. ``textbook`` is 3 alpha N for the smallest
    alpha of the published theorem, with continuous noise and, for sparse queries, with ln s + 1
    instead of ln|X|.

    Reference: Dwork and Roth (2014), Theorems 3.28, 4.14 and 4.15, with 36 instead of the printed
    32; Hardt and Rothblum (2010); Blum and Roth (2011), Theorem 3.8, corrected.

    Example:
        >>> from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
        >>> from beam_dp.privacy.guarantee import Guarantee
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> plan = plan_sparse_mw(promise, 1, max_sparsity=2, num_questions=30)
        >>> round(online_theorem(plan).bound(10**5).max_error_fraction, 2)
        0.19
    """
    is_textbook = plan.calibration == "textbook"

    def published(num_records: int) -> float:
        divergence, questions = plan.published_divergence, plan.num_questions
        return (
            3
            * num_records
            * published_error(
                plan.guarantee, divergence, num_records, questions, plan.failure_probability
            )
        )

    def of_run(num_records: int) -> float:
        return run_error(plan.settle(num_records))

    if plan.mechanism == "sparse_mw":
        name = "SMW: Blum and Roth (2011), corrected, with the run's own noise"
        if is_textbook:
            name = "SMW: Blum and Roth (2011), Theorem 3.8, with NumericSparse's accuracy"
    else:
        name = "PrivateMW: Hoeffding's steps, union bound over its noises"
        if is_textbook:
            number = "4.14" if plan.guarantee.delta == 0 else "4.15"
            name = f"PrivateMW: Dwork and Roth (2014), Theorem {number}"
    return Theorem(name, constant(plan.failure_probability), published if is_textbook else of_run)


def run_error(settings: Settings) -> float:
    """Returns the largest bound of any answer in a run; infinity if updates may run out."""
    if settings.exhausted_bound is None:
        return math.inf
    return max(settings.hypothesis_bound, settings.update_bound, settings.exhausted_bound)


def predict_private_mw(job: PlanningJob, calibration: Calibration) -> dict[str, Any]:
    """Plans online multiplicative weights for the workload's queries."""
    num_questions = (
        job.num_queries if isinstance(job.workload, Workload) else job.workload.num_distinct
    )
    plan = plan_private_mw(
        job.domain,
        job.guarantee,
        job.given_num_records,
        num_questions=num_questions,
        failure_probability=job.failure_probability,
        calibration=calibration,
    )
    settings = plan.settle(job.num_records)
    theorem = online_theorem(plan)
    # A textbook run rounds its threshold and number of updates, so its bound is slightly larger.
    planned = Theorem(theorem.name, theorem.failure_probability, constant(run_error(settings)))
    return {
        **job.proved(theorem),
        "measured_error": settings.noise.answer_deviation,
        "bound": planned.bound(job.num_records),
        "resources": resources.online_resources(
            job.domain.num_cells, num_questions, settings.noise.max_above
        ),
        "parameters": (("num_questions", str(num_questions)),),
        "note": "unmeasured answers come from a hypothesis: their error depends on the data",
    }


def predict_answers(job: PlanningJob, distribution: Distribution) -> dict[str, Any]:
    """Plans discrete noise on every answer."""
    if isinstance(job.workload, Workload):
        return {"refusal": "answers linear queries; this job asks for marginals"}
    # The program answers repeated queries only once.
    workload = LinearWorkload(job.domain, tuple(dict.fromkeys(job.workload)))
    plan = plan_workload_answers(
        workload, job.guarantee, job.given_num_records, distribution, job.failure_probability
    )
    return {
        **job.proved(answers_theorem(plan)),
        "expected_error": plan.standard_error,
        "resources": resources.answers_resources(job.domain.num_cells, job.num_queries),
        "parameters": (("mechanism", distribution.removeprefix("discrete_")),),
        "note": "every answer has its own noise",
    }


def predict_sparse_mw(job: SparsePlanningJob) -> dict[str, Any]:
    """Plans online multiplicative weights for sparse queries."""
    if job.num_questions is None:
        condition = "--num_questions must be given: the number of queries with error bounds"
        return {"refusal": condition}
    number = job.profile.num_records
    plan = plan_sparse_mw(
        job.guarantee,
        job.given_num_records,
        max_sparsity=job.max_sparsity,
        num_questions=job.num_questions,
        failure_probability=job.failure_probability,
    )
    return {
        "measured_error": plan.settle(number).noise.answer_deviation,
        "bound": online_theorem(plan).bound(number),
        "parameters": (("num_questions", str(job.num_questions)),),
        "note": _SPARSE_NOTE,
        "is_pure": plan.loss.kind == "pure",
    }


PLANNERS = (
    Planner("private_mw", PROGRAM, partial(predict_private_mw, calibration="tight")),
    Planner("private_mw", PROGRAM, partial(predict_private_mw, calibration="textbook"), "textbook"),
    Planner("laplace_answers", PROGRAM, partial(predict_answers, distribution="discrete_laplace")),
    Planner(
        "gaussian_answers", PROGRAM, partial(predict_answers, distribution="discrete_gaussian")
    ),
)
SPARSE_PLANNER = Planner("sparse_mw", PROGRAM, predict_sparse_mw, option=SparseOption)


def private_mw_queries(job: QueryCountJob, calibration: Calibration) -> dict[str, Any]:
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


def sparse_mw_queries(job: QueryCountJob, calibration: Calibration) -> dict[str, Any]:
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


def _of_run(job: QueryCountJob, plan: OnlinePlan, queries: str) -> dict[str, Any]:
    def theorem_of(count: int) -> Theorem:
        # A plan would refuse more than 2^31 questions.
        return online_theorem(dataclasses.replace(plan, num_questions=count))

    assumes = f"{queries}, one query at a time"
    if plan.calibration == "textbook" and job.guarantee.delta > 0:
        assumes += ", as published: not proved for few queries"
    return job.allowed(theorem_of, assumes)

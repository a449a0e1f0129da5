"""Planning options for SmallDB and textbook MWEM."""

from __future__ import annotations

import dataclasses
import math
from bisect import bisect_left
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError, magnitude
from beam_dp.mechanisms import resources
from beam_dp.mechanisms.marginals.measurements import Measurement
from beam_dp.mechanisms.marginals.textbook_mwem import TextbookPlan
from beam_dp.mechanisms.small_db.choice import MAX_SIZE, MultisetChoice
from beam_dp.mechanisms.small_db.nested import num_products
from beam_dp.mechanisms.small_db.size import log_num_multisets, num_multisets
from beam_dp.mechanisms.small_db.small_db import SmallDB, SmallDBPlan, cells_of
from beam_dp.planning.job import Planner, PlanningJob, QueryCountJob
from beam_dp.planning.synthetic_databases import PROGRAM, of_selection, predicted
from beam_dp.planning.theorems.synthesis import (
    best_early_stop,
    best_small_db_size,
    mwem_queries_allowed,
    mwem_theorem,
    small_db_theorem,
)
from beam_dp.planning.theorems.theorem import Calibration, Theorem, constant
from beam_dp.queries.linear_workload import LinearWorkload, query_matrix

# The largest query matrix, in queries times cells, for which small databases are planned.
MAX_MATRIX_VALUES = 2**22


def predict_small_db(job: PlanningJob) -> dict[str, Any]:
    """Plans ``SmallDB`` with the best size that can be drawn."""
    guarantee, beta = job.guarantee, job.failure_probability
    num_cells = job.domain.num_cells
    if job.num_queries * num_cells > MAX_MATRIX_VALUES:
        raise InputError(
            "workload",
            f"{job.num_queries:,} queries times {magnitude(num_cells)} cells",
            f"must be at most {MAX_MATRIX_VALUES:,} for a small database to be planned",
        )
    queries = job.workload
    queries = queries if isinstance(queries, LinearWorkload) else cells_of(queries)
    _, matrix, denominator = query_matrix(queries)
    columns = np.unique(np.unique(matrix, axis=0), axis=1)
    largest = _largest_size(job, columns, denominator)
    records = guarantee.max_records_per_unit
    _, best = best_small_db_size(
        num_cells, len(columns), guarantee.epsilon, beta, job.num_records, records, largest
    )
    plan = SmallDB(size=best, failure_probability=beta).plan(
        job.domain, job.workload, guarantee, job.given_num_records
    )
    theorem = small_database_theorem(job, plan, len(columns), largest)
    fields = job.proved(theorem)
    if plan.parameters.bound is not None:
        # For intervals, a small database needs fewer records than the theorem states.
        least = min(fields["bound"].max_error, plan.parameters.bound)
        fields["bound"] = dataclasses.replace(fields["bound"], max_error=least)
    sampler = plan.parameters.sampler
    note = f"{best:,} record{'' if best == 1 else 's'}, drawn by {sampler}"
    if best * 1.1 >= largest and largest < MAX_SIZE:
        note += ", and more cannot be drawn"
    return {
        **fields,
        "resources": _small_db_resources(sampler, best, columns),
        "parameters": (("size", str(best)),),
        "note": note,
    }


PLANNER = Planner("small_db", PROGRAM, predict_small_db)


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
    total_scale = plan.parameters.total_scale
    if total_scale is not None:
        beta /= 2
        away = 2 * math.ceil(total_scale * math.log(1 / beta))
    choice = small_db_theorem(
        job.domain.num_cells,
        num_queries,
        plan.parameters.selection_epsilon,
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


@predicted.register
def _of_rounds(plan: TextbookPlan, job: PlanningJob) -> dict[str, Any]:
    """Returns the fields of the option for MWEM as published."""
    if isinstance(job.workload, LinearWorkload):
        return of_selection(plan, job)
    parameters = plan.parameters
    measured = Measurement((), "table", parameters.distribution, parameters.measurement_scale)
    fields: dict[str, Any] = {}
    note = "no bound is proved for the last hypothesis, which is released"
    if job.guarantee.delta == 0:
        theorem = mwem_theorem(
            job.domain.num_cells,
            job.num_queries,
            job.guarantee.epsilon,
            job.guarantee.max_records_per_unit,
        )
        fields = job.proved(theorem)
        note = "the bound is for the average of all hypotheses; the last one is released"
    best = best_early_stop(
        job.domain.num_cells,
        job.num_queries,
        job.guarantee,
        job.failure_probability,
        job.num_records,
    )
    if best.stop_below <= 1:
        note += (
            f"; with --num_rounds {best.num_rounds} --stop_below {best.stop_below:g} its bound is"
            f" {best.max_error:,.0f} records, except with probability {job.failure_probability:g}"
        )
    return {
        **fields,
        "measured_error": math.sqrt(measured.variance),
        "resources": resources.rounds_resources(job.domain.num_cells, parameters.num_rounds),
        "parameters": (("num_rounds", str(parameters.num_rounds)),),
        "note": note,
    }


def small_db_queries(job: QueryCountJob, calibration: Calibration) -> dict[str, Any]:
    """Returns how many queries a small database answers."""
    cells, guarantee, beta = job.cells, job.guarantee, job.failure_probability
    units = guarantee.max_records_per_unit

    def theorem_of(count: int) -> Theorem:
        return small_db_theorem(cells, count, guarantee.epsilon, beta, calibration, units)

    if calibration == "textbook":
        return job.allowed(theorem_of, f"{job.known_beforehand}, a size without limit", least=3)
    return job.allowed(theorem_of, f"{job.known_beforehand}, a size up to {MAX_SIZE:,}")


def mwem_queries(job: QueryCountJob, calibration: Calibration) -> dict[str, Any]:
    """Returns how many queries textbook MWEM answers."""
    cells, guarantee = job.cells, job.guarantee
    if guarantee.delta > 0:
        raise InputError(
            "delta", guarantee.delta, "must be 0: the bound is published for pure privacy only"
        )
    epsilon, units = guarantee.epsilon, guarantee.max_records_per_unit
    number, rounds = mwem_queries_allowed(
        cells, epsilon, job.num_records, job.target_error, job.failure_probability, units
    )
    return {
        "num_queries": number,
        "theorem": mwem_theorem(cells, max(1, number), epsilon, units, rounds).name,
        "assumes": f"{rounds:,} round{'' if rounds == 1 else 's'}, {job.known_beforehand}",
    }

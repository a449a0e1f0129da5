"""Planning options for mechanisms that release synthetic databases."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from typing import Any

from beam_dp.domain.discover import OpenDomain
from beam_dp.errors import InputError
from beam_dp.mechanisms.bin_sums import with_bin_sums
from beam_dp.mechanisms.marginals.measure_all import MeasureAllPlan
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism, check_num_rows
from beam_dp.mechanisms.marginals.selection import SelectionPlan
from beam_dp.mechanisms.registry import SYNTHETIC, ReleaseOptions
from beam_dp.mechanisms.resources import records_bytes
from beam_dp.mechanisms.stages import Stages
from beam_dp.planning.job import Planner, PlanningJob
from beam_dp.planning.selected_pairs import range_of, selection_errors, selection_seconds
from beam_dp.planning.theorems.theorem import Calibration, Theorem, constant, laplace_theorem
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.noise.bound import (
    FAILURE_PROBABILITY,
    NOISY_SHARE,
    noise_bound,
    normal_quantile,
)
from beam_dp.queries.linear import LiteralQuery
from beam_dp.queries.linear_workload import LinearWorkload
from beam_dp.queries.workload import Workload
from beam_dp.releases.synthetic_database.measured_tables import (
    NoiseBounds,
    cell_variance,
    query_variance,
    support_variances,
)

PROGRAM = "release_synthetic_database"
# In command lines, a placeholder replaces a workload string longer than this.
_MAX_SPECIFICATION = 2000
_OF_TABLES = "of the noisy tables before the fit; the card states the fit's part"


def synthetic_planners(calibration: Calibration) -> list[Planner]:
    """Returns how mechanisms that measure marginals, such as ``MWEM``, are planned."""

    def predict(mechanism: type[Mechanism], job: PlanningJob) -> dict[str, Any]:
        marginals = job.workload
        if isinstance(marginals, LinearWorkload):
            marginals = covering_marginals(marginals)
        options: dict[str, Any] = {} if calibration == "tight" else {"calibration": calibration}
        chosen, number = mechanism(**options), job.given_num_records

        def alone(guarantee: Guarantee) -> MarginalsPlan:
            return chosen.plan(job.domain, marginals, guarantee, number)

        plan = with_bin_sums(alone, job.domain, job.guarantee)
        check_num_rows(plan)
        rows = plan.num_rows(job.num_records) + plan.num_rows_from_noise
        return {"disk_bytes": records_bytes(plan.domain, rows), **predicted(plan, job)}

    return [
        Planner(mechanism.name, PROGRAM, functools.partial(predict, mechanism), calibration)
        for mechanism in _measuring()
        if calibration == "tight" or hasattr(mechanism, "calibration")
    ]


def discovering_planners(domain: OpenDomain) -> list[Planner]:
    """Returns how mechanisms are planned for the largest domain that may be found."""

    def predict(mechanism: type[Mechanism], job: PlanningJob) -> dict[str, Any]:
        options = ReleaseOptions(num_records=job.given_num_records)
        plan = Stages(
            mechanism=mechanism(),
            domain=domain,
            guarantee=job.guarantee,
            request=lambda _: (job.workload, options),
        ).last
        return predicted(plan, dataclasses.replace(job, guarantee=plan.guarantee))

    return [
        Planner(mechanism.name, PROGRAM, functools.partial(predict, mechanism))
        for mechanism in _measuring()
    ]


def _measuring() -> list[type[Mechanism]]:
    return [mechanism for mechanism in SYNTHETIC.values() if not mechanism.answers_linear_queries]


def tables_theorem(job: PlanningJob, plan: MarginalsPlan) -> Theorem:
    """Returns the error bound of the unbiased estimates from all measurements of a plan.

    Accuracy: with probability 1 - beta no cell of any marginal of the workload is off by more than
    the bound. If every marginal is a table with Laplace noise, the bound is the published bound;
    otherwise the tail bound of a weighted sum of noises is used (``noise.bound.noise_bound``).

    Reference: Dwork and Roth (2014), Theorem 3.8; Chernoff's bound.
    """
    domain, beta = job.domain, job.failure_probability
    measured = {measurement.names for measurement in plan.measurements}
    first = plan.measurements[0] if plan.measurements else None
    if (
        first is not None
        and first.distribution == "discrete_laplace"
        and measured == set(plan.workload)
    ):
        theorem = laplace_theorem(plan.workload.num_cells(), first.scale, 1.0, beta)
        return Theorem(f"{theorem.name}, {_OF_TABLES}", constant(beta), theorem.error)
    variances = _variances(plan)
    largest = max(cell_variance(domain, variances, domain.axes(names)) for names in plan.workload)
    return _union_bound("cells", plan, largest, plan.workload.num_cells(), beta)


def _variances(plan: MarginalsPlan) -> dict[tuple[int, ...], float]:
    """Returns the variances of the unbiased estimates from all measurements of a plan."""
    supports = [plan.domain.axes(names) for names in plan.workload.closure()]
    return support_variances(plan.domain, supports, plan.measurements, plan.total_is_public)


def noisy_cells(job: PlanningJob, plan: MarginalsPlan) -> int:
    """Returns the number of cells of a job's marginals that would be too noisy to use.

    As in reports, a cell is too noisy if its 95 % error bar before the fit exceeds half its count.
    The real counts are private, so records are assumed to be spread evenly over each marginal.
    """
    domain, variances = job.domain, _variances(plan)
    bar = -normal_quantile(math.log(FAILURE_PROBABILITY / 2))
    num_noisy = 0
    for names in plan.workload:
        axes = domain.axes(names)
        num_cells = math.prod(domain.shape[axis] for axis in axes)
        margin = bar * math.sqrt(cell_variance(domain, variances, axes))
        num_noisy += num_cells if margin > NOISY_SHARE * job.num_records / num_cells else 0
    return num_noisy


def selected_tables_theorem(plan: SelectionPlan, failure_probability: float) -> Theorem:
    """Returns the error bound of the unbiased estimates of the pairs that a selection measures.

    Accuracy: with probability 1 - beta no cell of any measured pair or of any attribute is off by
    more than the bound, whichever pairs the data and noise select: ``chosen_noise_bound``, with the
    noise for the case that all pairs are selected. For the remaining pairs no bound is known in
    advance; the noisy score of such a pair bounds its error.

    Reference: Scheffe (1959), section 3.5; Chernoff's bound.
    """
    domain, public = plan.domain, plan.total_is_public
    axes = range(domain.num_attributes)
    supports = [(), *((axis,) for axis in axes), *plan.pairs]
    variances = support_variances(domain, supports, plan.most_measured, public)
    bounds = NoiseBounds(domain, plan.most_measured, "once", public)
    cells = sum(math.prod(domain.shape[axis] for axis in support) for support in supports[1:])
    error = max(
        bounds.of(support, cell_variance(domain, variances, support), cells, failure_probability)
        for support in supports[1:]
    )
    beta = constant(failure_probability)
    return Theorem(f"bound for selected pairs, {_OF_TABLES}", beta, constant(error))


def _union_bound(
    what: str, plan: MarginalsPlan, variance: float, answers: int, beta: float
) -> Theorem:
    laplace = [
        table.variance for table in plan.measurements if table.distribution == "discrete_laplace"
    ]
    error = 0.0
    if variance > 0:
        error = noise_bound(variance, answers, min(laplace) if laplace else None, beta)
    return Theorem(f"union bound over {what}, {_OF_TABLES}", constant(beta), constant(error))


def of_selection(plan: MarginalsPlan, job: PlanningJob) -> dict[str, Any]:
    """Returns the fields of an option whose mechanism selects the marginals to measure."""
    if isinstance(job.workload, LinearWorkload):
        return {"refusal": "selects marginals; answers no linear queries"}
    note = "selects marginals by noisy scores, so the error is not known in advance"
    return {"resources": plan.resources, "note": note}


# From a plan and its job to the fields of the option, by the type of the plan.
predicted = functools.singledispatch(of_selection)


@predicted.register
def _by_scores(plan: SelectionPlan, job: PlanningJob) -> dict[str, Any]:
    fields = of_selection(plan, job)
    if "refusal" in fields or not plan.pairs:
        return fields
    beta = job.failure_probability
    bound = selected_tables_theorem(plan, beta).bound(job.num_records).max_error
    error, distance = selection_errors(plan, job.num_records)
    low, high = range_of(distance, 1.0)
    note = (
        "selects marginals by noisy scores, so the error depends on the data: usual tables have a"
        f" total variation of {low:.2g} to {high:.2g}, averaged over marginals; before the fit, no"
        f" cell of a measured pair is off by more than {bound:,.0f} records, except with"
        f" probability {beta:g}"
    )
    seconds = selection_seconds(plan, job.num_records)
    return {
        "resources": dataclasses.replace(plan.resources, seconds=seconds),
        "expected_error": error,
        "error_range": range_of(error),
        "total_variation_range": (low, high),
        "note": note,
    }


@predicted.register
def _measured(plan: MeasureAllPlan, job: PlanningJob) -> dict[str, Any]:
    note = "errors of the noisy tables; the fit lowers these if many cells are empty"
    if isinstance(job.workload, LinearWorkload):
        mean, largest = query_errors(job.workload, plan)
        theorem = _union_bound("answers", plan, largest, len(job.workload), job.failure_probability)
        note = f"measures the marginals of the queries, which the release then answers; {note}"
        parameters = (("workload", specification(plan.workload)),)
        fields = {"expected_error": math.sqrt(mean), "parameters": parameters}
    else:
        theorem = tables_theorem(job, plan)
        fields = {
            "expected_error": plan.parameters.predicted_cell_error,
            "noisy_cells": noisy_cells(job, plan),
        }
    return {**fields, **job.proved(theorem), "resources": plan.resources, "note": note}


def covering_marginals(queries: LinearWorkload) -> Workload:
    """Returns marginals whose cells sum to the queries, each weighted by its number of queries."""
    if queries.explicit:
        condition = "must not have explicit values: a release answers only sums of marginal cells"
        raise InputError("workload", "explicit values", condition)
    weights = Counter(
        query.axes for query in queries if isinstance(query, LiteralQuery) and query.axes
    )
    names = queries.domain.names
    return Workload(
        queries.domain,
        tuple(tuple(names[axis] for axis in axes) for axes in weights),
        tuple(float(weight) for weight in weights.values()),
    )


def specification(marginals: Workload) -> str:
    """Returns marginals as a string for ``parse_workload``, or a placeholder for a long string."""
    written = [",".join(names) for names in marginals.marginals]
    is_plain = not any(mark in name for name in marginals.domain.names for mark in ",;")
    text = "marginals:" + ";".join(written)
    return text if is_plain and len(text) <= _MAX_SPECIFICATION else "MARGINALS"


def query_errors(queries: LinearWorkload, plan: MarginalsPlan) -> tuple[float, float]:
    """Returns the mean and largest variance of the queries' unbiased estimates, in records^2."""
    domain, variances = plan.domain, _variances(plan)
    kinds = Counter(
        (
            query.axes,
            tuple(sum(stop - start for start, stop in ranges) for ranges in query.ranges),
            type(query),
        )
        for query in queries
        if isinstance(query, LiteralQuery)
    )
    of_kinds = {kind: query_variance(domain, variances, *kind) for kind in kinds}
    mean = sum(of_kinds[kind] * times for kind, times in kinds.items()) / kinds.total()
    return mean, max(of_kinds.values())

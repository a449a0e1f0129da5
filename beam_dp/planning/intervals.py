"""The planning option for the release of all intervals of an attribute, and its theorem."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.mechanisms import resources
from beam_dp.mechanisms.intervals import IntervalPlan, plan_intervals
from beam_dp.models.intervals.strategy import Values
from beam_dp.planning.job import Planner, PlanningJob
from beam_dp.planning.theorems.theorem import Theorem, constant
from beam_dp.privacy.noise.bound import noise_bound, noise_variance
from beam_dp.queries.linear import Product
from beam_dp.queries.workload import Workload
from beam_dp.releases.intervals.release import check_ordered

_Ends = NDArray[np.int64]


def intervals_theorem(plan: IntervalPlan, variances: Values, failure_probability: float) -> Theorem:
    """Returns an error bound for several intervals: a union bound over the noise.

    ``variances``: the variances of the requested intervals, in squared records:
    ``plan.noise_variance`` times ``plan.strategy.errors.variances``.

    Accuracy: with probability 1 - beta, the bound is true for all intervals together. The proof
    uses tail bounds for weighted sums of the strategy's noise. For ``textbook_tree``, the published
    binary tree over 2^h cells, a sum has at most max(2, 2h - 2) nodes.

    Reference: Dwork, Naor, Pitassi and Rothblum (2010) and Chan, Shi and Song (2011) for the tree.
    """
    name, distribution = plan.choice
    is_laplace = distribution == "discrete_laplace"
    laplace_variance = noise_variance(distribution, plan.scale) if is_laplace else None
    error = noise_bound(
        float(variances.max()), len(variances), laplace_variance, failure_probability
    )
    return Theorem(
        f"{name} strategy: union bound over intervals",
        constant(failure_probability),
        constant(error),
    )


def _predict(job: PlanningJob) -> dict[str, Any]:
    """Plans the release of all intervals of an attribute; the expected error is exact."""
    attribute, low, high = asked_intervals(job)
    plan = plan_intervals(job.domain[attribute].num_levels, job.guarantee)
    variances = plan.noise_variance * plan.strategy.errors.variances(low, high)
    return {
        **job.proved(intervals_theorem(plan, variances, job.failure_probability)),
        "expected_error": math.sqrt(float(variances.mean())),
        "resources": resources.intervals_resources(plan.num_leaves),
        "parameters": (("attribute", attribute), ("strategy", plan.choice[0])),
        "note": "all intervals of one attribute, each with its standard error; no records",
    }


PLANNER = Planner("intervals", "release_intervals", _predict)


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
    if others or any(len(end) > 1 or end[0][1] > attribute.num_levels for end in ends):
        raise refusal
    check_ordered(attribute)
    low, stop = np.array([end[0] for end in ends], np.int64).T
    return attribute.name, low, stop - 1

"""All intervals of several ordered attributes, each released from a share of one budget."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from beam_dp.errors import InputError
from beam_dp.interval_strategies.strategy import checked_num_leaves
from beam_dp.mechanisms.contract import check_noise
from beam_dp.mechanisms.intervals.plan import (
    IntervalPlan,
    choices,
    planned,
    release_intervals,
)
from beam_dp.mechanisms.marginals.measurements import Distribution
from beam_dp.noise.source import MAX_SCALE, NoiseSource
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import lowered, raised
from beam_dp.releases.intervals import IntervalRelease

Objective = Literal["mean", "max"]

_OBJECTIVES: Mapping[Objective, Callable[[Sequence[float]], float]] = {
    "mean": lambda errors: math.fsum(errors) / len(errors),
    "max": max,
}


@dataclasses.dataclass(frozen=True, eq=False)
class SeveralIntervalsPlan:
    """The public parameters of one release of the intervals of several attributes.

    Args:
        guarantee: what is promised of all of it together.
        plans: by the names of attributes; each states the joint guarantee and its own loss.
        loss: what the whole release may reveal, for a ledger: not to be added to those of plans.
    """

    guarantee: Guarantee
    plans: Mapping[str, IntervalPlan]
    loss: Loss

    @property
    def mean_squared_errors(self) -> Mapping[str, float]:
        """For each attribute the exact mean over all its intervals, in squared records."""
        return {name: plan.mean_squared_error for name, plan in self.plans.items()}


def plan_several_intervals(
    num_leaves: Mapping[str, int],
    guarantee: Guarantee,
    minimise: Objective = "mean",
    distribution: Distribution | None = None,
) -> SeveralIntervalsPlan:
    """Returns how the intervals of several attributes of the same records will be measured.

    Privacy: the releases together keep the guarantee. Epsilons of Laplace noise add up to
    epsilon; squares of mu of Gaussian noise add up to that of ``discrete_gaussian_mu``, whose
    claim is of the vector of all measurements. A record changes every attribute's measurements,
    as k records of a unit do: see ``calibrate``.

    Accuracy: attribute i has the error c_i / s_i^p, where s_i is its share of epsilon (p = 2,
    Laplace) or of mu^2 (p = 1, Gaussian), and c_i that of its best strategy with all of the
    budget. Where shares add up to 1 the mean is least for s_i ~ c_i^(1/(p+1)), by Lagrange's
    multipliers, and the largest for s_i ~ c_i^(1/p), which makes all of them equal. The noise is
    of one kind for all attributes: the better one. That discrete noise has slightly less
    variance is left out of the shares; predicted errors are exact all the same.

    Args:
        num_leaves: the number of cells of each attribute, from 1 to 2^20; at least one attribute.
        guarantee: of all releases together; with delta 0, Laplace noise only.
        minimise: ``mean``, the mean over attributes of the mean squared error over intervals; or
            ``max``, the largest of them.
        distribution: of the noise; by default the better.

    Returns:
        A plan.

    Raises:
        InputError: if an argument is not as described, or if epsilon is so small that noise would
            not fit 64 bits.

    Cost: that of ``plan_intervals`` for each attribute.

    Example:
        >>> promise = Guarantee(1.0, 0.0, "add_or_remove_one", "record", 1)
        >>> plan = plan_several_intervals({"age": 70, "hour": 24}, promise)
        >>> {name: round(each.loss.epsilon, 2) for name, each in plan.plans.items()}
        {'age': 0.56, 'hour': 0.44}
    """
    if not isinstance(num_leaves, Mapping) or not num_leaves:
        raise InputError("num_leaves", num_leaves, "must name at least one attribute")
    for size in num_leaves.values():
        checked_num_leaves(size)
    if minimise not in _OBJECTIVES:
        raise InputError("minimise", minimise, "must be 'mean' or 'max'")
    kinds = [kind for kind in get_args(Distribution) if distribution in (None, kind)]
    if guarantee.delta == 0:
        kinds = [kind for kind in kinds if kind == "discrete_laplace"]
    if not kinds:
        condition = f"must be 'discrete_laplace' for a delta of {guarantee.delta:g}"
        if guarantee.delta > 0:
            condition = "must be 'discrete_laplace' or 'discrete_gaussian'"
        raise InputError("distribution", distribution, condition)
    found = [_planned(num_leaves, guarantee, minimise, kind) for kind in kinds]
    scales = [max(plan.scale for plan in each.plans.values()) for each in found]
    check_noise(guarantee, [min(scales)])
    fitting = [each for each, scale in zip(found, scales, strict=True) if scale <= MAX_SCALE]
    objective = _OBJECTIVES[minimise]
    return min(fitting, key=lambda each: objective([*each.mean_squared_errors.values()]))


def release_several_intervals(
    plan: SeveralIntervalsPlan, counts: Mapping[str, NDArray[np.int64]], noise: NoiseSource
) -> Mapping[str, IntervalRelease]:
    """Returns one release an attribute; together they keep ``plan.guarantee``.

    Args:
        plan: what is measured, with how much noise.
        counts: for each attribute the exact number of records in each of its cells, int64.
        noise: where the noise comes from; one call an attribute.

    Returns:
        By the names of attributes; each release states the joint guarantee.

    Raises:
        InputError: if the counts of an attribute are missing, or have another shape or type.

    Cost: that of ``release_intervals`` for each attribute.
    """
    if set(counts) != set(plan.plans):
        raise InputError("counts", sorted(counts), f"must have the names {sorted(plan.plans)}")
    return {name: release_intervals(each, counts[name], noise) for name, each in plan.plans.items()}


def shares_of(
    errors: Sequence[float], distribution: Distribution, minimise: Objective
) -> list[float]:
    """Returns the best shares of a budget, which add up to less than 1.

    Args:
        errors: of each attribute, were all of the budget its own.
        distribution: of the noise: the budget is epsilon, or mu^2.
        minimise: what to minimise.
    """
    power = 2 if distribution == "discrete_laplace" else 1
    exponent = 1 / power if minimise == "max" else 1 / (power + 1)
    # Relative to the largest, so that no power over- or underflows.
    largest = max(errors)
    parts = [(error / largest) ** exponent for error in errors]
    total = raised(math.fsum(parts))  # so that the shares add up to less than 1
    return [part / total for part in parts]


def _planned(
    num_leaves: Mapping[str, int],
    guarantee: Guarantee,
    minimise: Objective,
    distribution: Distribution,
) -> SeveralIntervalsPlan:
    """Returns the best plan with noise of one kind, whether or not that noise fits 64 bits."""
    power = 2 if distribution == "discrete_laplace" else 1
    equal = lowered(1 / len(num_leaves))
    alone = {name: _best(size, guarantee, distribution, equal) for name, size in num_leaves.items()}
    errors = [plan.mean_squared_error * equal**power for plan in alone.values()]
    shares = shares_of(errors, distribution, minimise)
    plans = {
        name: planned(plan.num_leaves, guarantee, plan.choice, share)
        for (name, plan), share in zip(alone.items(), shares, strict=True)
    }
    if distribution == "discrete_laplace":
        loss = Loss.pure(guarantee.epsilon)
    else:
        loss = Loss.gaussian(discrete_gaussian_mu(guarantee.epsilon, guarantee.delta))
    return SeveralIntervalsPlan(guarantee, plans, loss)


def _best(
    num_leaves: int, guarantee: Guarantee, distribution: Distribution, share: float
) -> IntervalPlan:
    """Returns the best strategy of one attribute whose noise fits 64 bits, if one does."""
    plans = [
        planned(num_leaves, guarantee, choice, share)
        for choice in choices(guarantee)
        if choice[1] == distribution
    ]
    return min(plans, key=lambda plan: (plan.scale > MAX_SCALE, plan.mean_squared_error))

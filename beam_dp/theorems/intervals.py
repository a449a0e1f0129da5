"""Theorems on counts of intervals that are measured by a strategy."""

from __future__ import annotations

from beam_dp.interval_strategies.strategy import Values
from beam_dp.mechanisms.intervals.plan import IntervalPlan
from beam_dp.noise.bound import noise_bound, noise_variance
from beam_dp.theorems.theorem import Theorem, constant


def intervals_theorem(plan: IntervalPlan, variances: Values, failure_probability: float) -> Theorem:
    """Returns how wrong some intervals can be: a union bound over their noise.

    Accuracy: with probability 1 - beta over all of them at once, by the tails of weighted sums of
    the strategy's noises. For ``textbook_tree``, the binary tree as published, these are sums of
    at most 2h - 2 nodes.

    Args:
        plan: of the release.
        variances: of the intervals that are asked for, in squared records:
            ``plan.noise_variance`` times ``plan.strategy.errors.variances``.
        failure_probability: beta.

    Reference: Dwork, Naor, Pitassi and Rothblum (2010) and Chan, Shi and Song (2011) for the tree.
    """
    name, distribution = plan.choice
    is_laplace = distribution == "discrete_laplace"
    laplace_variance = noise_variance(distribution, plan.scale) if is_laplace else None
    error = noise_bound(
        float(variances.max()), len(variances), laplace_variance, failure_probability
    )
    told = f"{name} strategy: union bound over intervals"
    return Theorem(told, constant(failure_probability), constant(error))

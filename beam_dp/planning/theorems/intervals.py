"""The theorem on the noise in interval counts."""

from __future__ import annotations

from beam_dp.mechanisms.intervals.plan import IntervalPlan
from beam_dp.models.intervals.strategy import Values
from beam_dp.planning.theorems.theorem import Theorem, constant
from beam_dp.privacy.noise.bound import noise_bound, noise_variance


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
    told = f"{name} strategy: union bound over intervals"
    return Theorem(told, constant(failure_probability), constant(error))

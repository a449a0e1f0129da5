"""Theorems on the noise in answers, intervals and projections; errors are in records."""

from __future__ import annotations

import math

from beam_dp.mechanisms.intervals.plan import IntervalPlan
from beam_dp.mechanisms.sketches.plan import SparsePlan
from beam_dp.models.intervals.strategy import Values
from beam_dp.planning.theorems.theorem import Theorem, checked_parameters, constant
from beam_dp.privacy.noise.bound import noise_bound, noise_variance


def laplace_theorem(
    num_queries: int, l1_sensitivity: float, epsilon: float, failure_probability: float
) -> Theorem:
    """Returns an error bound for discrete Laplace noise on whole records.

    ``l1_sensitivity``: D > 0, the most that one privacy unit changes all answers, in L1 norm.
    ``epsilon``: the epsilon spent on all answers together, finite and > 0.
    ``failure_probability``: the probability beta, in (0, 1).

    Accuracy: each of k answers gets noise of scale b = D / epsilon; with probability at least 1 -
    beta, every answer is within b ln(k / beta) of the truth, rounded up: P(|DLap(s)| > ceil(t)) <=
    exp(-t / s).

    Reference: Dwork and Roth (2014), Theorem 3.8.
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_queries": num_queries},
        reals={"sensitivity": l1_sensitivity, "epsilon": epsilon},
    )
    error = float(math.ceil(l1_sensitivity / epsilon * math.log(num_queries / failure_probability)))
    name = "Laplace: Dwork and Roth (2014), Theorem 3.8"
    return Theorem(name, constant(failure_probability), constant(error))


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


def projection_theorem(
    plan: SparsePlan, largest_count: float, num_queries: int, failure_probability: float
) -> Theorem | None:
    """Returns an error bound for the answers of a sketch, if no key has too many records.

    ``largest_count``: an upper limit on the number of records per key; public, or a guess.
    ``failure_probability``: the probability beta, in (0, 1).

    Accuracy: the bound is for k queries together, with at most ``plan.max_sparsity`` keys per
    query; see ``ProjectionBounds``.

    Returns: The theorem; None for medians and for sketches next to a histogram.

    Reference: Blum and Roth (2011), Theorem 4.9, for any width.

    Example:
        >>> from beam_dp.mechanisms.sketches.mechanisms import SparseProject
        >>> from beam_dp.privacy.guarantee import Guarantee
        >>> promise = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
        >>> plan = SparseProject(2**16).plan(promise, max_sparsity=100)
        >>> theorem = projection_theorem(plan, 1, 1000, 0.05)
        >>> round(theorem.bound(10**6).max_error)
        459
    """
    checked_parameters(
        failure_probability=failure_probability,
        counts={"num_queries": num_queries},
        reals={"largest_count": largest_count},
    )
    bounds = plan.bounds(num_queries, failure_probability)
    if bounds is None:
        return None
    return Theorem(
        f"{plan.mechanism}: Blum and Roth (2011), with moments of the hash",
        constant(failure_probability),
        lambda num_records: bounds.error(num_records, largest_count),
    )

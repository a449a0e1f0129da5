"""The theorem on online multiplicative weights, sparse or not."""

from __future__ import annotations

import math

from beam_dp.mechanisms.online.plan import OnlinePlan, Settings, published_error
from beam_dp.planning.theorems.theorem import Theorem, constant


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

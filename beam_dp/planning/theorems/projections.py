"""The theorem on the errors of sketches."""

from __future__ import annotations

from beam_dp.mechanisms.sketches.plan import SparsePlan
from beam_dp.planning.theorems.theorem import Theorem, checked_parameters, constant


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

"""Plans releases for sparse queries: predicts the error and the size of each sketch."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from beam_dp.checks import check_is
from beam_dp.errors import InputError, magnitude
from beam_dp.flags.flag import texts_of
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.registry import SKETCHES
from beam_dp.mechanisms.sketches import errors, mechanisms
from beam_dp.mechanisms.sketches.plan import INDEPENDENCE, SparseMechanism, SparsePlan, check_width
from beam_dp.planning.job import Planner, SparseOption, SparsePlanningJob
from beam_dp.planning.theorems.theorem import Theorem, checked_parameters, constant
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss

_HISTOGRAM_NOTE = "names the keys that have enough records; private except with probability delta"
_BOUND_NOTE = "bound: for noise and hashing; number of queries chosen without the hash key: {}"
_ROWS = (1, 3, 5, 7)
# Even the smallest share is enough to remove the few heaviest keys from a sketch.
_HISTOGRAM_SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_LEAST_WIDTH = 64
_NUMBERS_A_KEY = 2  # a histogram stores an element and a count per key


@dataclasses.dataclass(frozen=True)
class SparseChoice:
    """A mechanism, its loss, and its predicted error for the planned sparsity."""

    mechanism: SparseMechanism
    error: float
    error_of_one: float
    size: int
    loss: Loss

    @property
    def is_pure(self) -> bool:
        """Whether the release is purely private and leaves any delta unspent."""
        return self.loss.kind == "pure" and not self.loss.slack


def plan_sparse_release(
    guarantee: Guarantee,
    profile: errors.KeyProfile,
    *,
    max_sparsity: int,
    max_size: int,
    max_weight: int = 1,
    sparsity: int | None = None,
    is_wanted: Callable[[SparseMechanism], bool] = lambda _: True,
) -> list[SparseChoice]:
    """Returns the mechanisms whose releases store at most ``max_size`` numbers, best first.

    Compare the error of the first mechanism with ``error_of_nothing``: for queries about few
    elements with few records, always answering 0 may be more accurate than any mechanism.

    ``profile``: public assumptions about the keys; counts are weights.
    ``max_size``: the largest number of stored numbers in a release, at least 64.
    ``sparsity``: the sparsity of the queries whose error is minimised; default ``max_sparsity``.
    """
    check_is("guarantee", guarantee, Guarantee)
    check_is("profile", profile, errors.KeyProfile)
    check_width(max_size)
    if max_size < _LEAST_WIDTH:
        raise InputError("max_size", max_size, f"must be at least {_LEAST_WIDTH}")
    if sparsity is None:
        sparsity = max_sparsity
    if not 1 <= sparsity <= max_sparsity:
        raise InputError("sparsity", sparsity, "must be from 1 to max_sparsity")
    choices = []
    # The predicted errors do not depend on the hash key.
    key = HashKey.draw(INDEPENDENCE)
    for mechanism, histogram_size in _candidates(guarantee, profile, max_size, max_weight):
        if not is_wanted(mechanism):
            continue
        plan = mechanism.plan(
            guarantee, max_sparsity=max_sparsity, max_weight=max_weight, hash_key=key
        )
        law = errors.sparse_error(plan, profile)
        size = plan.num_cells + histogram_size
        choices.append(SparseChoice(mechanism, law.error(sparsity), law.error(1), size, plan.loss))
    return sorted(choices, key=lambda choice: choice.error)


def error_of_nothing(profile: errors.KeyProfile, sparsity: int) -> float:
    """Returns the root mean square of the true answers: the error of always answering 0."""
    counts, keys = profile.groups
    squares = float(keys @ counts**2) / profile.num_keys
    return errors.ErrorLaw(squares, errors.mean_product(keys, counts), profile.num_keys).error(
        sparsity
    )


def _candidates(
    guarantee: Guarantee, profile: errors.KeyProfile, max_size: int, max_weight: int
) -> Iterator[tuple[SparseMechanism, int]]:
    """Yields mechanisms within ``max_size``, each with the expected size of its histogram."""
    for rows in _ROWS:
        yield mechanisms.CountSketch(max_size // rows * rows, rows), 0
    if guarantee.delta == 0:
        return
    for rows in _ROWS:
        yield mechanisms.CountSketch(max_size // rows * rows, rows, noise="gaussian"), 0
    yield mechanisms.SparseProject(max_size // 8 * 8), 0
    counts, keys = profile.groups
    for share in (1.0, *_HISTOGRAM_SHARES):
        noise = mechanisms.histogram_noise(guarantee, max_weight, share * guarantee.epsilon)
        size = _NUMBERS_A_KEY * math.ceil(float(keys @ errors.held_keys(noise, counts).share))
        if share == 1.0:
            if size <= max_size:
                yield mechanisms.StabilityHistogram(), size
        elif max_size - size >= _LEAST_WIDTH:
            for rows in _ROWS:
                width = (max_size - size) // rows * rows
                yield mechanisms.HybridSketch(width, rows, histogram_share=share), size


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


def _predict(job: SparsePlanningJob, name: str, noise: str | None) -> dict[str, Any]:
    """Returns the fields of the option for the best parameters of one mechanism."""
    choices = plan_sparse_release(
        job.guarantee,
        job.profile,
        max_sparsity=job.max_sparsity,
        max_size=job.max_size,
        is_wanted=lambda option: (
            isinstance(option, SKETCHES[name]) and texts_of(option).get("noise") == noise
        ),
    )
    if not choices:
        refusal = f"its keys do not fit into {magnitude(job.max_size)} numbers"
        if job.guarantee.delta == 0:
            refusal = "it needs a delta above 0"
        return {"refusal": refusal, "parameters": (("noise", noise),) if noise else ()}
    choice = choices[0]
    # The proved bound depends on the independence that the mechanism asks of its hash key.
    plan = choice.mechanism.plan(job.guarantee, max_sparsity=job.max_sparsity)
    theorem = projection_theorem(
        plan, job.profile.largest_count, job.num_bounded, job.failure_probability
    )
    note = _HISTOGRAM_NOTE if plan.histogram is not None else ""
    if theorem is not None:
        note = _BOUND_NOTE.format(magnitude(job.num_bounded))
    return {
        "expected_error": choice.error,
        "bound": None if theorem is None else theorem.bound(job.profile.num_records),
        "parameters": tuple(texts_of(choice.mechanism).items()),
        "note": note,
        "error_of_one": choice.error_of_one,
        "size": choice.size,
        "is_pure": choice.is_pure,
    }


# In the order of docs/sparse_queries.md.
PLANNERS = tuple(
    Planner(
        name,
        "release_projection",
        partial(_predict, name=name, noise=noise),
        option=SparseOption,
        refusals=(),
    )
    for name, noise in (
        ("count_sketch", "laplace"),
        ("count_sketch", "gaussian"),
        ("sparse_project", None),
        ("stability_histogram", None),
        ("hybrid", None),
    )
)

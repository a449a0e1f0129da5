"""The choice among mechanisms for sparse queries, by predicted errors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator

from beam_dp.checks import check_is
from beam_dp.errors import InputError
from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.sketches.errors import (
    ErrorLaw,
    KeyProfile,
    held_keys,
    mean_product,
    sparse_error,
)
from beam_dp.mechanisms.sketches.mechanisms import (
    CountSketch,
    HybridSketch,
    SparseProject,
    StabilityHistogram,
    histogram_noise,
)
from beam_dp.mechanisms.sketches.plan import (
    INDEPENDENCE,
    SparseMechanism,
    check_width,
)
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss

_ROWS = (1, 3, 5, 7)
# The least ones are enough to take the few heaviest keys out of a sketch.
_HISTOGRAM_SHARES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
_LEAST_WIDTH = 64
_NUMBERS_A_KEY = 2  # of a histogram: the element and its count


@dataclasses.dataclass(frozen=True)
class SparseChoice:
    """One row of the planner's table.

    Args:
        mechanism: with its parameters; ``mechanism.plan`` gives the plan.
        error: predicted root mean squared error of queries of the planned sparsity, in weight.
        error_of_one: of queries of one element.
        size: numbers in the artifact; of a histogram as many as are expected.
        loss: what it would reveal, for a ledger.
        has_histogram: whether it names keys that have many records.
    """

    mechanism: SparseMechanism
    error: float
    error_of_one: float
    size: int
    loss: Loss
    has_histogram: bool

    @property
    def is_pure(self) -> bool:
        """Whether a delta would be left unspent."""
        return self.loss.kind == "pure" and self.loss.slack is None


def plan_sparse_release(
    guarantee: Guarantee,
    profile: KeyProfile,
    *,
    max_sparsity: int,
    max_size: int,
    max_weight: int = 1,
    sparsity: int | None = None,
    is_wanted: Callable[[SparseMechanism], bool] = lambda _: True,
) -> list[SparseChoice]:
    """Returns what could be released, best first.

    The first one's error is to be compared with ``error_of_nothing``, too: for queries of few
    elements with few records nothing beats the answer 0.

    Args:
        guarantee: what is promised.
        profile: what is publicly assumed of the keys, in weight.
        max_sparsity: the most elements that a query may have.
        max_size: the most numbers that an artifact may hold, at least 64.
        max_weight: the most that one record weighs.
        sparsity: of the queries whose error is to be least; the largest one by default.
        is_wanted: whether a mechanism is to be looked at; all are by default.

    Raises:
        InputError: naming the argument that is refused.

    Cost: about a second.
    """
    check_is("guarantee", guarantee, Guarantee)
    check_is("profile", profile, KeyProfile)
    check_width(max_size)
    if max_size < _LEAST_WIDTH:
        raise InputError("max_size", max_size, f"must be at least {_LEAST_WIDTH}")
    asked = max_sparsity if sparsity is None else sparsity
    if not 1 <= asked <= max_sparsity:
        raise InputError("sparsity", asked, "must be from 1 to max_sparsity")
    found = []
    # The errors do not depend on it: one key for all.
    key = HashKey.draw(INDEPENDENCE)
    for mechanism, held in _candidates(guarantee, profile, max_size, max_weight):
        if not is_wanted(mechanism):
            continue
        plan = mechanism.plan(
            guarantee, max_sparsity=max_sparsity, max_weight=max_weight, hash_key=key
        )
        law = sparse_error(plan, profile)
        found.append(
            SparseChoice(
                mechanism=mechanism,
                error=law.error(asked),
                error_of_one=law.error(1),
                size=plan.num_cells + held,
                loss=plan.loss,
                has_histogram=plan.histogram is not None,
            )
        )
    return sorted(found, key=lambda choice: choice.error)


def error_of_nothing(profile: KeyProfile, sparsity: int) -> float:
    """Returns the root mean square of the queries themselves: the error of answering 0."""
    counts, keys = profile.groups
    squares = float(keys @ counts**2) / profile.num_keys
    return ErrorLaw(squares, mean_product(keys, counts), profile.num_keys).error(sparsity)


def _candidates(
    guarantee: Guarantee, profile: KeyProfile, max_size: int, max_weight: int
) -> Iterator[tuple[SparseMechanism, int]]:
    """Yields mechanisms that fit the size, and how many numbers their histograms should hold."""
    for rows in _ROWS:
        yield CountSketch(max_size // rows * rows, rows), 0
    if guarantee.delta == 0:
        return
    for rows in _ROWS:
        yield CountSketch(max_size // rows * rows, rows, noise="gaussian"), 0
    yield SparseProject(max_size // 8 * 8), 0
    counts, keys = profile.groups
    for share in (1.0, *_HISTOGRAM_SHARES):
        noise = histogram_noise(guarantee, max_weight, share * guarantee.epsilon)
        held = _NUMBERS_A_KEY * math.ceil(float(keys @ held_keys(noise, counts).share))
        if share == 1.0:
            if held <= max_size:
                yield StabilityHistogram(), held
        elif max_size - held >= _LEAST_WIDTH:
            for rows in _ROWS:
                width = (max_size - held) // rows * rows
                yield HybridSketch(width, rows, histogram_share=share), held

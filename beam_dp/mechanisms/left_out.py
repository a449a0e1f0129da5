"""Counts the records outside the domain, with noise, for a part of the release's budget."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import check_noise
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.filters import cost
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.noise.bound import (
    FAILURE_PROBABILITY,
    laplace_bound,
    noise_bound,
    noise_variance,
)
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.releases.kinds import ReleaseT
from beam_dp.releases.release import LeftOut

# The share of epsilon for the counts; the release gets the rest.
LEFT_OUT_SHARE = 0.05
# The fields that differ between two draws.
_DRAWN = ("sum", "counts", "impossible")


@dataclasses.dataclass(frozen=True)
class LeftOutPlan:
    """The plan for counting the records outside the domain; public.

    Privacy: pure epsilon, for the relation and the unit of the guarantee. Every record outside the
    domain is counted once, at the first attribute that the record fails, or as impossible. At most
    k = ``max_records_per_unit`` such records of a unit are counted, and which of these records are
    counted depends on that unit's own records alone. So adding or removing a unit changes the
    vector of counts by at most k in L1 norm. Replacing a unit's records changes the vector by at
    most 2k, if all k records move from one count to another, and by at most k if there is only one
    count, to which the unit contributes between 0 and k. Noise of scale (L1 sensitivity) / epsilon
    on each count gives pure privacy. The counts are exact integers, and all counts get noise, so
    the number of counts reveals nothing.

    This is true under either relation and for any ``num_records``. A public number of records
    counts the records inside the domain and does not bound the records outside. Under replace-one
    the number of records of the input is public, but the number inside the domain is not: a
    replacement may be outside, which the sensitivities of all mechanisms take into account.
    """

    names: tuple[str, ...]
    counts_impossible: bool
    guarantee: Guarantee
    main: Guarantee
    epsilon: float
    loss: Loss

    @property
    def num_counts(self) -> int:
        """The number of counts."""
        return len(self.names) + self.counts_impossible

    @property
    def domain(self) -> Domain:
        """The counted values: the number of the first attribute that fails, or impossible."""
        return Domain((IntegerAttribute("left out at", 0, self.num_counts - 1),))

    @property
    def sensitivity(self) -> int:
        """The largest change of the counts by one unit, in L1 norm."""
        moved = self.guarantee.neighboring.num_moved if self.num_counts > 1 else 1
        return self.guarantee.max_records_per_unit * moved

    @property
    def scale(self) -> float:
        """The scale of the noise of each count, in records."""
        return math.nextafter(self.sensitivity / self.epsilon, math.inf)

    def to_json(self) -> dict[str, Any]:
        """Returns the fields of the card that are known before any record is read."""
        drawn = self._stated(np.zeros(self.num_counts, np.int64)).to_json()
        return {name: value for name, value in drawn.items() if name not in _DRAWN}

    def release(self, counts: NDArray[np.int64], noise: NoiseSource) -> LeftOut:
        """Returns noisy counts; no other step sees the exact counts.

        ``counts``: exact counts of at most k records per unit, shape (num_counts,), int64; secret.
        """
        return self._stated(noise.laplace(counts, self.scale))

    def _stated(self, noisy: NDArray[np.int64]) -> LeftOut:
        values = noisy.tolist()
        variance = noise_variance("discrete_laplace", self.scale)
        sum_variance = self.num_counts * variance
        bound = laplace_bound(self.scale, self.num_counts, FAILURE_PROBABILITY)
        sum_bound = noise_bound(sum_variance, 1, variance, FAILURE_PROBABILITY)
        return LeftOut(
            counts=dict(zip(self.names, values, strict=False)),
            impossible=values[-1] if self.counts_impossible else None,
            scale=self.scale,
            standard_error=math.sqrt(variance),
            bound=bound,
            sum_standard_error=math.sqrt(sum_variance),
            sum_bound=bound if self.num_counts == 1 else sum_bound,
            failure_probability=FAILURE_PROBABILITY,
            budget={
                "release": {"epsilon": self.main.epsilon, "delta": self.main.delta},
                "left_out": {"epsilon": self.epsilon, "delta": 0.0},
            },
        )


def plan_left_out(domain: Domain, guarantee: Guarantee, main_loss: Loss) -> LeftOutPlan:
    """Returns the plan for counting the records that a domain leaves out of a release.

    Privacy: the release, planned for 95 % of epsilon, and the counts keep the guarantee
    together, by basic composition: the release is (0.95 epsilon, delta)-private, the counts are
    purely private with at most the rest of epsilon, and both read the same records.

    A ledger adds up mu or rho as well as epsilon. If the release has a mu or a rho and no pure
    epsilon, pure noise with 5 % of epsilon may cost more mu or rho than the release leaves. The
    counts then get only the part that is left: the loss of both together is at most the loss of a
    release that spends the whole guarantee in the same way, and paying for that covers both.
    """
    main, rest = Budget.of(guarantee, "pure").split(LEFT_OUT_SHARE)
    epsilon = _largest_within(Budget.of(guarantee, main_loss.kind), main_loss, rest.level)
    if not epsilon > 0:
        condition = "is too small to also count records that are left out: use a larger one"
        raise InputError("epsilon", guarantee.epsilon, condition)
    plan = LeftOutPlan(
        names=domain.names,
        counts_impossible=bool(domain.impossible),
        guarantee=guarantee,
        main=main,
        epsilon=epsilon,
        loss=composed([main_loss, Loss.pure(epsilon)]),
    )
    check_noise(guarantee, [plan.scale])
    return plan


def with_left_out(
    release: ReleaseT, plan: LeftOutPlan, counts: NDArray[np.int64], noise: NoiseSource
) -> ReleaseT:
    """Returns a release together with noisy counts of the records left out, from the same draw."""
    fields: dict[str, Any] = {"left_out": plan.release(counts, noise)}
    return dataclasses.replace(release, guarantee=plan.guarantee, **fields)


def _largest_within(whole: Budget, main: Loss, limit: float) -> float:
    """Returns the largest pure epsilon <= ``limit`` whose sum with ``main`` stays in ``whole``."""

    def fits(epsilon: float) -> bool:
        both = cost(whole.kind, composed([main, Loss.pure(epsilon)]))
        return both is not None and both <= whole.amount

    if fits(limit):
        return limit
    low, high = 0.0, limit
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and fits(middle) else (low, middle)
    return low

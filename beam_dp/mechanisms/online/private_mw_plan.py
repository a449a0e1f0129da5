"""Plans of online private multiplicative weights over a domain."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.checks import check_is
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.mechanisms.checks import NumRecords
from beam_dp.mechanisms.marginals.plan import check_array
from beam_dp.mechanisms.online.plan import Calibration, OnlinePlan, ready
from beam_dp.mechanisms.resources import online_resources
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY
from beam_dp.queries.workload import marginals
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

Start = SyntheticDatabase | ArrayLike

# The share of the uniform distribution in a hypothesis that starts from a release. It adds to the
# error of the release's answers, and its negative logarithm adds to the relative entropy.
START_SHARE = 0.001


@dataclasses.dataclass(frozen=True, kw_only=True)
class PrivateMWPlan(OnlinePlan):
    """The public parameters of online private multiplicative weights; see ``plan_private_mw``."""

    rounds_up: ClassVar[bool] = True

    mechanism: str = "private_mw"
    domain: Domain
    starts_from_release: bool

    def __post_init__(self) -> None:
        if self.calibration == "textbook" and self.starts_from_release:
            condition = "must be 'tight' with a start from a release"
            raise InputError("calibration", self.calibration, condition)

    @property
    def universe(self) -> Domain:
        """The domain of the queries."""
        return self.domain

    @property
    def memory_bytes(self) -> float:
        """The worker's memory for a run, without the histogram."""
        return online_resources(self.domain.num_cells, self.num_questions, 1).memory_bytes

    def _stated_more(self) -> dict[str, Any]:
        return {"starts_from_release": self.starts_from_release}

    def divergence_at(self, max_error: float) -> float:
        """Returns ln|X|, plus -ln(START_SHARE) for a start from a release."""
        start = -math.log(START_SHARE) if self.starts_from_release else 0.0
        return math.log(self.domain.num_cells) + start

    def least_error(self, updates: int) -> float:
        """Returns the least alpha for which ``updates`` updates suffice; 0 for a single cell."""
        divergence = self.divergence_at(0.0)
        if self.calibration == "tight":
            return math.sqrt(divergence / (2 * (updates + 1))) * (1 + 1e-9)
        return math.sqrt(4 * divergence / updates)


def plan_private_mw(
    domain: Domain,
    guarantee: Guarantee,
    num_records: NumRecords,
    *,
    num_questions: int,
    failure_probability: float = FAILURE_PROBABILITY,
    calibration: Calibration = "tight",
    max_error: float | None = None,
    max_updates: int | None = None,
    starts_from_release: bool = False,
) -> PrivateMWPlan:
    """Returns the plan of a run of ``PrivateMW``.

    Args:
        domain: the universe, at most 2^26 cells, without impossible combinations.
        guarantee: the guarantee of all answers together.
        num_records: the number of records, or ``"noisy"``, which costs at most a twentieth of
            epsilon. Accuracy, not privacy, assumes that a given number is right.
        num_questions: K; answers after the first K queries stay private but have no error bound.
        failure_probability: the probability that some stated bound is wrong, in (0, 1).
        calibration: ``tight`` or ``textbook``.
        max_error: alpha in (0, 1); by default the alpha with the least error bound.
        max_updates: a number of updates below the number that alpha needs, for less noise; answers
            after the last update then have no bound. Only with the tight calibration.
        starts_from_release: whether the first hypothesis comes from a release.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> domain = read_domain('{"a": 32, "b": 32}')
        >>> plan = plan_private_mw(domain, promise, 10**6, num_questions=1000, max_error=0.1)
        >>> settings = plan.settle(10**6)
        >>> settings.noise.max_above, settings.noise.method, settings.is_vacuous
        (346, 'pure', False)
    """
    check_is("domain", domain, Domain)
    check_is("guarantee", guarantee, Guarantee)
    check_array(domain)
    plan = PrivateMWPlan(
        domain=domain,
        guarantee=guarantee,
        num_records=num_records,
        num_questions=num_questions,
        failure_probability=failure_probability,
        calibration=calibration,
        max_error=max_error,
        max_updates=max_updates,
        starts_from_release=starts_from_release,
        loss=Loss.pure(guarantee.epsilon),
    )
    return ready(plan)


def start_weights(plan: PrivateMWPlan, start: Start | None) -> NDArray[np.float64]:
    """Returns the logarithms of the first hypothesis, shape (num_cells,)."""
    num_cells = plan.domain.num_cells
    if start is None:
        return np.zeros(num_cells)
    if isinstance(start, SyntheticDatabase):
        (table,) = start.answer(marginals(plan.domain, attributes=plan.domain.names))
        start = table.values
    try:
        weights = np.asarray(start, np.float64).ravel()
    except (TypeError, ValueError):
        raise InputError("start", type(start).__name__, "must be weights, one per cell") from None
    if weights.shape != (num_cells,):
        raise InputError("start", weights.shape, f"must be {num_cells} weights, one per cell")
    total = float(weights.sum())
    if not (bool((weights >= 0).all()) and 0 < total < np.inf):
        raise InputError("start", total, "weights must be finite and >= 0, and not all 0")
    mixed = (1 - START_SHARE) * weights / total + START_SHARE / num_cells
    return np.asarray(np.log(mixed), np.float64)

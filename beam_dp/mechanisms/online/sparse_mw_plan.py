"""Plans of sparse online multiplicative weights."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, ClassVar

from beam_dp.checks import check_is, checked_integer
from beam_dp.flags.numbers import integer
from beam_dp.flags.options import option
from beam_dp.mechanisms.contract import NumRecords
from beam_dp.mechanisms.online.plan import Calibration, OnlinePlan, ready
from beam_dp.mechanisms.resources import sketch_bytes
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss

MAX_SPARSITY = 2**31


@dataclasses.dataclass(frozen=True, kw_only=True)
class SparseMWPlan(OnlinePlan):
    """The public parameters of sparse online multiplicative weights.

    Made by ``plan_sparse_mw``. Other arguments: as of ``OnlinePlan``.

    Args:
        max_sparsity: m, the most elements that a query may be other than 0 at.
    """

    rounds_up: ClassVar[bool] = False

    mechanism: str = "sparse_mw"
    max_sparsity: int = dataclasses.field(
        metadata=option("sparse_mw: the most keys that a query may name", "M", integer)
    )

    @property
    def universe(self) -> None:
        """None: keys without end, which need no domain."""

    @property
    def memory_bytes(self) -> float:
        """Memory of the worker that answers, without the counts of keys."""
        return sketch_bytes(0)

    def _stated_besides(self) -> dict[str, Any]:
        return {"max_sparsity": self.max_sparsity}

    def num_slots(self, max_error: float) -> int:
        """Returns s: how many slots the hypothesis has for an error alpha.

        The least that leaves a slot free after one update more than ln s allows; with
        ``max_updates``, after those too. See ``num_slots``.
        """
        least = 2 if self.max_updates is None else self.max_sparsity * self.max_updates + 1
        return num_slots(self.max_sparsity, max_error, self.calibration, least)

    def divergence_at(self, max_error: float) -> float:
        """Returns ln s: data are as if on one slot at worst, the hypothesis starts uniform."""
        return math.log(self.num_slots(max_error))

    def published_divergence(self, max_error: float) -> float:
        """Returns ln s + 1."""
        return self.divergence_at(max_error) + 1

    def least_error(self, updates: int) -> float:
        """Returns an alpha that needs no more updates than these: s = m (c + 1) + 1, or m c."""
        if self.calibration == "tight":
            divergence = math.log(self.max_sparsity * (updates + 1) + 1)
            return math.sqrt(divergence / (2 * (updates + 1))) * (1 + 1e-9)
        return math.sqrt(4 * (math.log(self.max_sparsity * updates) + 1) / updates)


def plan_sparse_mw(
    guarantee: Guarantee,
    num_records: NumRecords,
    *,
    max_sparsity: int,
    num_questions: int,
    failure_probability: float = 0.05,
    calibration: Calibration = "tight",
    max_error: float | None = None,
    max_updates: int | None = None,
) -> SparseMWPlan:
    """Returns the plan of a run of ``SparseMW``.

    Args:
        guarantee: what is promised of all answers together.
        num_records: the number of records, or ``"noisy"``, for which a twentieth of epsilon is
            spent at most. Accuracy, not privacy, assumes that a given number is right.
        max_sparsity: m, from 1 to 2^31; queries with more elements are refused.
        num_questions: K; beyond, answers go on and are as private, but no bound is stated.
        failure_probability: of any stated bound being wrong, in (0, 1).
        calibration: ``tight`` or ``textbook``.
        max_error: alpha in (0, 1); by default the best one.
        max_updates: other than alpha needs; no bound is then stated for what is answered when
            they are used up, if they are fewer. With the tight calibration only.

    Raises:
        InputError: naming the argument that is refused.

    Example:
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> plan = plan_sparse_mw(
        ...     promise, 10**6, max_sparsity=100, num_questions=1000, max_error=0.1)
        >>> plan.num_slots(0.1), plan.settle(10**6).noise.max_above
        (54601, 545)
    """
    check_is("guarantee", guarantee, Guarantee)
    checked_integer("max_sparsity", max_sparsity, 1, MAX_SPARSITY)
    plan = SparseMWPlan(
        guarantee=guarantee,
        num_records=num_records,
        num_questions=num_questions,
        failure_probability=failure_probability,
        calibration=calibration,
        max_error=max_error,
        max_updates=max_updates,
        loss=Loss.pure(guarantee.epsilon),
        max_sparsity=max_sparsity,
    )
    return ready(plan)


def num_slots(max_sparsity: int, max_error: float, calibration: Calibration, least: int = 2) -> int:
    """Returns s, the number of slots of a sparse hypothesis.

    Accuracy: updates that are each wrong by alpha lower a relative entropy of at most ln s by
    2 alpha^2 (``textbook``: alpha^2 / 4), so that B = floor(ln s / (2 alpha^2)) of them are enough.
    For the proof to hold one slot must be free even after B + 1 updates of m elements: without
    that room the claim is false. ``tight``: the least s with s >= m (B + 1) + 1. ``textbook``:
    the least with s / (ln s + 1) >= 4 m / alpha^2, where B = 4 (ln s + 1) / alpha^2.

    Args:
        max_sparsity: m.
        max_error: alpha.
        calibration: ``tight`` or ``textbook``.
        least: that s must be at least.

    Reference: Blum and Roth (2011), Lemma 3.7, corrected: their potential leaves out the data that
    no query has asked about.

    Example:
        >>> num_slots(10, 0.1, "tight"), num_slots(10, 0.1, "textbook")
        (4171, 47035)
    """
    slots = max(2, least)
    while True:
        # What is needed never falls as s grows, so that going up stops at the least s.
        if calibration == "tight":
            updates = math.floor(math.log(slots) / (2 * max_error**2))
            needed = max_sparsity * (updates + 1) + 1
        else:
            needed = math.ceil(4 * max_sparsity / max_error**2 * (math.log(slots) + 1))
        if needed <= slots:
            return slots
        slots = needed

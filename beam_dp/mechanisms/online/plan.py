"""Plans of online mechanisms that answer queries from a learned hypothesis."""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any, ClassVar, TypeVar

import numpy as np

from beam_dp.errors import InputError
from beam_dp.flags import shared
from beam_dp.flags.flag import check_options, integer, number, option
from beam_dp.mechanisms import checks
from beam_dp.mechanisms.contract import AnswersPlan
from beam_dp.mechanisms.sparse_vector import (
    MAX_ABOVE,
    SparseVectorNoise,
    check_accuracy,
    noise_candidates,
    published_accuracy,
)
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.rounding import lowered, root_down, up
from beam_dp.privacy.steps import Step
from beam_dp.queries.linear import VALUE_BITS
from beam_dp.releases.answers.verify import online_steps

GRID = 1 << VALUE_BITS

PlanT = TypeVar("PlanT", bound="OnlinePlan")

_COUNT_SHARE = 0.05  # the share of epsilon for a noisy number of records
_COUNT_FAILURE = 0.25  # the share of the failure probability for a noisy number of records
_MAX_UPDATES = 2**20
_MAX_COUNT = 2**62  # noise is added to 64-bit integers, for any data
_GROWTH = 1.2


@dataclasses.dataclass(frozen=True, kw_only=True)
class OnlinePlan(AnswersPlan):
    """The public parameters of a run that answers queries from a hypothesis that it updates.

    ``settle`` adds the settings that depend on the number of records. The guarantee and the loss
    are for all answers together.

    ``num_questions``: K, the number of different queries for which error bounds are stated.
    ``failure_probability``: beta, the probability that some stated bound is wrong.
    ``max_error``: alpha, a fraction of the records; None for the alpha with the smallest bound.
    ``max_updates``: the largest number of updates; None for the number that alpha requires.
    """

    rounds_up: ClassVar[bool]  # whether the published number of updates is rounded up

    num_questions: int = dataclasses.field(
        metadata=option(
            "the number of distinct queries that get error bounds; by default all of --queries",
            "K",
            integer,
            limits={"least": 1, "most": MAX_ABOVE},
        )
    )
    failure_probability: float = dataclasses.field(metadata=checks.FAILURE_PROBABILITY)
    calibration: checks.Calibration = dataclasses.field(metadata=checks.CALIBRATION)
    max_error: float | None = dataclasses.field(
        metadata=option(
            "alpha, a share of the records, > 0 and < 1; by default the value with the"
            " smallest bound",
            "A",
            number,
            limits={"least": 1e-9, "below": 1, "note": ", a share of the records"},
        )
    )
    max_updates: int | None = dataclasses.field(
        metadata=option(
            "the largest number of updates; by default the number that --max_error needs",
            "C",
            integer,
            limits={"least": 1, "most": MAX_ABOVE},
        )
    )

    @property
    def count_scale(self) -> float | None:
        """The scale of the noise on the number of records; None if the number is public."""
        if self.num_records != "noisy":
            return None
        epsilon = _count_epsilon(self.guarantee)
        # If epsilon underflows to 0, the check of the noise refuses the infinite scale.
        if not epsilon > 0:
            return math.inf
        return up(self.guarantee.max_records_per_unit / Fraction(epsilon))

    @property
    def steps(self) -> Sequence[Step]:
        """The noisy draws; assumes the largest number of records if the number is drawn later.

        The number of records changes how the budget is split, but not the total loss.
        """
        number = shared.MAX_RECORDS if self.num_records == "noisy" else self.num_records
        noise = self.settle(number).noise.to_json()
        return online_steps(self.guarantee, noise, self.count_scale)

    @abstractmethod
    def divergence_at(self, max_error: float) -> float:
        """Returns the largest relative entropy from any data to the first hypothesis."""

    def published_divergence(self, max_error: float) -> float:
        """Returns the published number of updates divided by 4 / alpha^2."""
        return self.divergence_at(max_error)

    def updates_at(self, max_error: float) -> int:
        """Returns the number of updates that suffices for an error, at least 1."""
        if self.calibration == "tight":
            needed = self.divergence_at(max_error) / 2 / max_error**2
        else:
            needed = 4 * self.published_divergence(max_error) / max_error**2
        if not needed <= MAX_ABOVE:
            condition = "is so small that it needs more than 2^31 updates"
            raise InputError("max_error", max_error, condition)
        rounds_up = self.rounds_up and self.calibration == "textbook"
        return max(1, math.ceil(needed) if rounds_up else math.floor(needed))

    @abstractmethod
    def least_error(self, updates: int) -> float:
        """Returns the least alpha for which ``updates`` updates suffice; 0 if every alpha works."""

    def settle(self, num_records: int) -> Settings:
        """Returns the noise and the thresholds for a number of records, public or noisy."""
        return _settle(self, num_records)

    def draw_total(self, exact: int, noise: NoiseSource) -> int:
        """Returns N: the public number of records, or the exact number with noise.

        ``exact``: the exact number; secret. Clipping it at 2^62 doesn't increase the sensitivity.
        """
        if self.count_scale is None:
            assert isinstance(self.num_records, int)
            return self.num_records
        return int(noise.laplace(np.array([min(exact, _MAX_COUNT)], np.int64), self.count_scale)[0])

    @property
    def is_vacuous(self) -> bool:
        """Whether the error bound is known in advance to be too large to be useful."""
        return self.num_records != "noisy" and self.settle(self.num_records).is_vacuous

    def _stated(self) -> dict[str, Any]:
        return {
            "guarantee": self.guarantee.to_json(),
            "num_records": self.num_records,
            "num_questions": self.num_questions,
            "failure_probability": self.failure_probability,
            "calibration": self.calibration,
            "max_error": self.max_error,
            "max_updates": self.max_updates,
            **({} if self.count_scale is None else {"count_scale": self.count_scale}),
            "loss": self.loss.to_json(),
            **self._stated_more(),
        }

    @abstractmethod
    def _stated_more(self) -> dict[str, Any]:
        """Returns the fields of the card that are specific to the subclass."""

    def _stated_number(self, num_records: int | None) -> dict[str, int | None]:
        return {"noisy" if self.num_records == "noisy" else "public": num_records}

    def _settled(self, num_records: int | None) -> dict[str, Any]:
        settings = None if num_records is None else self.settle(num_records).to_json()
        return {"settings": settings}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The public settings of a run, derived from the number of records. Bounds are in records."""

    total: int  # N; an answer from the hypothesis is N times the query's mean
    total_bound: float  # a bound on the error of N
    max_error: float
    learning_rate: float
    noise: SparseVectorNoise
    threshold: int  # of the noisy comparison, in units of 2^-16 records
    gap: float  # the least error of the hypothesis that causes an update, in records
    hypothesis_bound: float  # a bound on the error of an answer from the hypothesis
    update_bound: float  # a bound on the error of an answer that causes an update
    exhausted_bound: float | None  # when no updates are left; None if updates may run out

    @property
    def is_vacuous(self) -> bool:
        """Whether the error bound is at least N."""
        return self.hypothesis_bound >= self.total

    def to_json(self) -> dict[str, Any]:
        """Returns the settings as JSON values."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        return {**fields, "noise": self.noise.to_json(), "is_vacuous": self.is_vacuous}


def ready(plan: PlanT) -> PlanT:
    """Returns the plan with its privacy loss; refuses a plan that can't be carried out."""
    checks.check_calibration(plan.calibration)
    check_accuracy(1, plan.num_questions, plan.failure_probability)
    check_options(plan)
    if plan.calibration == "textbook" and plan.max_updates is not None:
        condition = "must be 'tight' with max_updates"
        raise InputError("calibration", plan.calibration, condition)
    checks.check_num_records(plan.num_records, plan.guarantee)
    # Calculating the settings here refuses impossible settings before a run starts.
    settings = plan.settle(shared.MAX_RECORDS if plan.num_records == "noisy" else plan.num_records)
    if plan.num_records != "noisy":
        return dataclasses.replace(plan, loss=settings.noise.loss)
    plan.settle(1)
    if plan.guarantee.delta > 0:
        of_count = Fraction(_count_epsilon(plan.guarantee)) ** 2 / 2
        rho = up(Budget.of(_of_answers(plan), "zcdp").amount + of_count)
        return dataclasses.replace(plan, loss=Loss.zcdp(rho))
    return plan


def published_error(
    guarantee: Guarantee,
    divergence: Callable[[float], float],
    num_records: int,
    num_questions: int,
    failure_probability: float,
) -> float:
    """Returns the least alpha for which the published theorem is valid.

    ``divergence``: maps alpha to (number of updates) / (4 / alpha^2), which is ln|X|.

    Accuracy: answers are within 3 alpha, as a fraction of the records. alpha is the solution of
    alpha = 36 ln|X| (ln|Q| + ln(32 ln|X|/(alpha^2 beta)))/(eps alpha^2 n) or, with delta > 0, of (2
    + 32 sqrt 2) sqrt(ln|X| ln(2/delta)) (...)/(alpha eps n). alpha may be >= 1: vacuous.
    """
    if divergence(1.0) == 0:  # there is a single cell
        return 0.0
    low, high = 1e-9, 1e9
    for _ in range(200):
        alpha = math.sqrt(low * high)
        log_cells = divergence(alpha)
        log_term = math.log(num_questions) + math.log(
            32 * log_cells / (alpha**2 * failure_probability)
        )
        if guarantee.delta == 0:
            error = 36 * log_cells * log_term / (guarantee.epsilon * alpha**2 * num_records)
        else:
            factor = (2 + 32 * math.sqrt(2)) * math.sqrt(log_cells * math.log(2 / guarantee.delta))
            error = factor * log_term / (alpha * guarantee.epsilon * num_records)
        low, high = (
            (alpha, high) if error * guarantee.max_records_per_unit > alpha else (low, alpha)
        )
    return high


@functools.lru_cache(maxsize=64)
def _count_epsilon(guarantee: Guarantee) -> float:
    """Returns the epsilon of a noisy number of records: 5 %, or less if the answers need more."""
    # For a large epsilon, pure noise costs a larger rho than the same share of (epsilon, delta).
    epsilon, delta = guarantee.epsilon, guarantee.delta
    share = lowered(epsilon * _COUNT_SHARE, 64)  # the margin allows for rounding of the remainder
    if delta > 0:
        main, _ = Budget.of(guarantee, "pure").split(_COUNT_SHARE)
        rest = Budget.of(guarantee, "zcdp") - Budget.of(main, "zcdp")
        share = min(share, root_down(2 * max(rest.amount, Fraction(0))))
    return share


def _of_answers(plan: OnlinePlan) -> Guarantee:
    """Returns the guarantee that remains for the sparse vector technique."""
    share = _COUNT_SHARE if plan.num_records == "noisy" else 0
    return Budget.of(plan.guarantee, "pure").split(share)[0]


@dataclasses.dataclass(frozen=True)
class _Choice:
    """The parameters that a calibration chose; the threshold and the gap are in records."""

    alpha: float
    rate: float
    threshold: float
    gap: float
    noise: SparseVectorNoise
    num_asked: int


@functools.lru_cache(maxsize=64)
def _settle(plan: OnlinePlan, num_records: int) -> Settings:
    total = min(max(1, num_records), shared.MAX_RECORDS)
    guarantee = _of_answers(plan)
    beta, total_bound = plan.failure_probability, 0.0
    if plan.count_scale is not None:
        checks.check_noise(guarantee, [plan.count_scale * GRID])
        total_bound = float(math.ceil(plan.count_scale * math.log(1 / (beta * _COUNT_FAILURE))))
        beta *= 1 - _COUNT_FAILURE
    is_tight = plan.calibration == "tight"
    chosen = (_tight if is_tight else _textbook)(plan, guarantee, total, total_bound, beta)
    alpha, gap, noise = chosen.alpha, chosen.gap, chosen.noise
    checks.check_noise(guarantee, [scale * GRID for scale in noise.scales])
    drop = 2 * (gap / (total + total_bound)) ** 2 if is_tight else alpha**2 / 4
    is_enough = noise.max_above >= math.floor(plan.divergence_at(alpha) / drop)
    return Settings(
        total=total,
        total_bound=total_bound,
        max_error=alpha,
        learning_rate=chosen.rate,
        noise=noise,
        threshold=math.ceil(chosen.threshold * GRID),
        gap=gap,
        # The term 2 / GRID allows for rounding questions and the threshold to the grid.
        hypothesis_bound=chosen.threshold + noise.margin(chosen.num_asked, beta, GRID) + 2 / GRID,
        update_bound=noise.answer_bound(beta, GRID),
        exhausted_bound=gap + total_bound + 2 / GRID if is_enough else None,
    )


def _textbook(
    plan: OnlinePlan, guarantee: Guarantee, total: int, total_bound: float, beta: float
) -> _Choice:
    """Returns the published parameters: two questions per round, learning rate alpha / 2."""
    alpha = plan.max_error or 0.0
    if plan.max_error is None:
        least = published_error(
            guarantee, plan.published_divergence, total, plan.num_questions, beta
        )
        # A larger alpha than the published one limits the updates; alpha > 1 would bound nothing.
        alpha = min(1.0, max(least, plan.least_error(_MAX_UPDATES), 1e-9))
    updates = plan.updates_at(alpha)
    (noise,) = noise_candidates(guarantee, updates, answers=True, calibration="textbook")
    asked = 2 * plan.num_questions
    published = published_accuracy(guarantee, updates, asked, beta, answers=True)
    gap = alpha * (total + total_bound)
    threshold = max(2 * published, 2 * gap) + total_bound
    return _Choice(alpha, alpha / 2, threshold, gap, noise, asked)


def _tight(
    plan: OnlinePlan, guarantee: Guarantee, total: int, total_bound: float, beta: float
) -> _Choice:
    """Returns the alpha, updates and noise with the least bound, for one question per round."""
    asked, largest = plan.num_questions, total + total_bound
    best: tuple[tuple[float, int], _Choice] | None = None
    for least, updates in _choices(plan):
        for noise, margin, answer_bound in _candidates(guarantee, updates, asked, beta):
            if plan.num_records == "noisy" and plan.guarantee.delta > 0 and noise.method != "zcdp":
                continue  # a plan states its loss before the number of records is known
            # The gap must exceed the noise, so that an update moves in the right direction.
            gap = max(least * largest, answer_bound + 1 / GRID)
            threshold = gap + total_bound + margin
            rank = threshold + margin, noise.max_above
            if best is None or rank < best[0]:
                rate = 4 * min(1.0, gap / largest)
                best = rank, _Choice(least or gap / largest, rate, threshold, gap, noise, asked)
    assert best is not None
    return best[1]


@functools.lru_cache(maxsize=256)
def _candidates(
    guarantee: Guarantee, updates: int, asked: int, beta: float
) -> tuple[tuple[SparseVectorNoise, float, float], ...]:
    """Returns candidate noise settings with their question margins and answer bounds; cached."""
    return tuple(
        (noise, noise.margin(asked, beta, GRID), noise.answer_bound(beta, GRID))
        for noise in _noises(guarantee, updates)
    )


@functools.lru_cache(maxsize=256)
def _noises(guarantee: Guarantee, updates: int) -> tuple[SparseVectorNoise, ...]:
    """Returns the candidate noise settings, for any number of questions; cached."""
    return tuple(noise_candidates(guarantee, updates, answers=True))


def _choices(plan: OnlinePlan) -> Iterator[tuple[float, int]]:
    """Yields pairs (alpha, updates): each update lowers the relative entropy by 2 alpha^2."""
    # An alpha of 0 means that the noise of answers determines alpha.
    if plan.max_error is None and plan.max_updates is not None:
        # A larger alpha would need fewer updates, but the number of updates is fixed.
        yield 0.0, plan.max_updates
        return
    if plan.max_error is not None:
        yield plan.max_error, plan.max_updates or plan.updates_at(plan.max_error)
        return
    updates = 1
    while updates <= _MAX_UPDATES:
        alpha = plan.least_error(updates)
        if 0 < alpha < 1:
            yield alpha, updates
        elif alpha == 0:  # a single cell: there is nothing to learn
            yield 1e-9, 1
            return
        updates = max(updates + 1, round(updates * _GROWTH))

"""Online private multiplicative weights over a domain: plans, the base class of runs, and runs."""

from __future__ import annotations

import dataclasses
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from beam_dp.checks import check_is
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError, shown
from beam_dp.mechanisms.checks import Calibration, NumRecords
from beam_dp.mechanisms.marginals.plan import check_array
from beam_dp.mechanisms.online.plan import GRID, OnlinePlan, Settings, ready
from beam_dp.mechanisms.resources import online_resources
from beam_dp.mechanisms.sparse_vector import Live, NumericSparse, SparseState
from beam_dp.privacy.guarantee import Guarantee, warn_of_epsilon
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.bound import FAILURE_PROBABILITY
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear import LinearQuery
from beam_dp.queries.workload import marginals
from beam_dp.releases.synthetic_database.release import SyntheticDatabase
from beam_dp.secret.summaries.histogram import Histogram

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


Route = Literal["hypothesis", "update", "exhausted"]
QueryT = TypeVar("QueryT")


@dataclasses.dataclass(frozen=True)
class PrivateAnswer:
    """The answer to one query. It is safe to publish.

    ``value``: an estimate of the sum of the query over the records.
    ``standard_error``: the standard error of the noise; None for an answer from the hypothesis.
    ``bound``: an error bound; the bounds of all answers together fail with at most the plan's
    failure probability. None if no bound is proved.
    """

    value: float
    standard_error: float | None
    bound: float | None
    route: Route
    updates_left: int
    questions_left: int


@dataclasses.dataclass(frozen=True)
class Payment:
    """The ledger entry that paid for a run; ``state_number``: the resumed state's number, or 0."""

    token: Token
    state_number: int = 0


def pay(plan: OnlinePlan, token: Token | None) -> Payment | None:
    """Returns the payment for a new run, and warns about a large epsilon."""
    warn_of_epsilon(plan.promised.epsilon)
    if token is None:
        return None
    token.check(plan.mechanism, plan.guarantee, plan.loss)
    return Payment(token)


@dataclasses.dataclass(frozen=True)
class SavedRun:
    """The state of a run of ``PrivateMW``, from which exactly one object can continue the run.

    Everything is public except the noisy threshold in ``sparse``, which can be used once.
    """

    settings: Mapping[str, Any]  # the settings of the run, as JSON values
    total: int
    answers: tuple[tuple[LinearQuery, PrivateAnswer], ...]
    sparse: SparseState = dataclasses.field(repr=False)
    payment: Payment | None  # the ledger entry that paid; None without a ledger
    log_weights: NDArray[np.float64]  # the logarithms of the hypothesis, shape (num_cells,)
    num_earlier: int = 0  # how many of the first answers come from an earlier run


class OnlineMW(Live, ABC, Generic[QueryT]):
    """Answers queries from a hypothesis, which is updated after a wrong answer.

    Privacy: ``plan.guarantee``, if one record changes ``_exact`` by at most one record. The
    constructor spends the plan's loss at once. Only one object of each run is alive: a run can be
    handed over once, can't be copied or pickled, and answers nothing in a forked child. Queries
    from several threads are answered one after another.
    """

    _hypothesis: Any  # the weights object of the subclass, with methods ``mean`` and ``update``

    def __init__(
        self,
        plan: OnlinePlan,
        num_records: int,
        noise: NoiseSource,
        ledger_token: Token | None,
        saved: SavedRun | None = None,
    ) -> None:
        super().__init__()
        if saved is None:
            self.payment = pay(plan, ledger_token)
            total = plan.draw_total(num_records, noise)
        else:
            check_settings("saved", "a run", saved.settings, plan.settle(saved.total))
            self.payment, total = saved.payment, saved.total
        self.settings: Settings = plan.settle(total)
        self.plan = plan
        self._sparse = NumericSparse(self.settings.threshold, self.settings.noise, noise, grid=GRID)
        self._answers: dict[QueryT, PrivateAnswer] = {}
        self._num_earlier = 0
        self._steps: dict[QueryT, float] = {}
        if saved is not None:
            self._sparse._resume(saved.sparse)

    @abstractmethod
    def _exact(self, query: QueryT) -> int:
        """Returns 2^16 times the sum of a query over the records; secret."""

    @abstractmethod
    def _check(self, query: Any) -> None:
        """Raises InputError if the query can't be answered."""

    @property
    def updates_left(self) -> int:
        """The number of remaining updates; public."""
        return self._sparse.num_left

    @property
    def questions_left(self) -> int:
        """The number of further different queries that will get an error bound; public."""
        return max(0, self.plan.num_questions + self._num_earlier - len(self._answers))

    @property
    def num_answered(self) -> int:
        """The number of different queries that were already answered; public."""
        return len(self._answers)

    @property
    def transcript(self) -> tuple[tuple[QueryT, PrivateAnswer], ...]:
        """The different queries and their answers, in the order asked; public."""
        return tuple(self._answers.items())

    def answer(self, query: QueryT) -> PrivateAnswer:
        """Returns the answer to a query; a repeated query gets its earlier answer at no cost."""
        self._check(query)
        with self._turn():
            return self._answer(query)

    def _answer(self, query: QueryT) -> PrivateAnswer:
        earlier = self._answers.get(query)
        if earlier is not None:
            return dataclasses.replace(
                earlier, updates_left=self.updates_left, questions_left=self.questions_left
            )
        has_bound = self.questions_left > 0
        settings = self.settings
        mean = self._hypothesis.mean(query)
        value, error, bound, route = settings.total * mean, None, None, "hypothesis"
        if self.updates_left <= 0:
            route, bound = "exhausted", settings.exhausted_bound
        else:
            released = self._ask(query, round(value * GRID))
            bound = settings.hypothesis_bound
            if released is not None:
                route, bound = "update", settings.update_bound
                value, error = self._learn(query, mean, *released)
        answer = PrivateAnswer(
            value,
            error,
            bound if has_bound else None,
            route,  # type: ignore[arg-type]  # one of the three
            self.updates_left,
            max(0, self.questions_left - 1),
        )
        self._answers[query] = answer
        return answer

    def step(self, query: QueryT) -> float:
        """Returns the step by which a query updated the hypothesis; 0 without an update; public."""
        return self._steps.get(query, 0.0)

    def _ask(self, query: QueryT, guess: int) -> tuple[int, int] | None:
        """Returns None if the guess is close enough, or else a noisy sum and the update's sign."""
        exact = self._exact(query)
        if self.plan.calibration == "tight":
            noisy = self._sparse.ask(abs(exact - guess), exact)
            return None if noisy is None else (noisy, 1 if noisy >= guess else -1)
        for sign in (1, -1):
            # The sign comes from the question that is above the threshold, not from the answer.
            noisy = self._sparse.ask(sign * (exact - guess))
            if noisy is not None:
                return guess + sign * noisy, sign
        return None

    def _learn(self, query: QueryT, mean: float, noisy: int, sign: int) -> tuple[float, float]:
        """Updates the hypothesis; returns the answer and its standard error."""
        settings = self.settings
        step = settings.learning_rate
        measured = noisy / GRID
        if self.plan.calibration == "tight":
            # If the noise is within its bound, the true difference is at least ``surely``.
            surely = abs(measured - settings.total * mean) - settings.update_bound
            largest = settings.total + settings.total_bound
            step = max(step, 4 * min(1.0, (surely - settings.total_bound) / largest))
        self._hypothesis.update(query, sign * step)
        self._steps[query] = sign * step
        value = min(max(measured, 0.0), settings.total + settings.total_bound)
        return value, settings.noise.answer_deviation


class DenseWeights:
    """A public distribution, kept as logarithms.

    ``log_weights``: logarithms up to a constant, shape (num_cells,), float64, finite; not copied.
    """

    def __init__(self, log_weights: NDArray[np.float64]) -> None:
        self.log_weights = log_weights
        self.weights = np.empty_like(log_weights)
        self._normalise()

    def mean(self, query: LinearQuery) -> float:
        """Returns the mean of a query, in [0, 1]. Cost: that of ``query.mean``."""
        return query.mean(self.weights)

    def update(self, query: LinearQuery, step: float) -> None:
        """Multiplies each weight by exp(step q) and normalises; a step > 0 raises the mean of q.

        For q in [0, 1], a step of -eta multiplies weights by exp(-eta q). A step of eta is
        equivalent to multiplying weights by exp(-eta (1 - q)).

        Reference: Dwork and Roth (2014), Algorithm 5.
        """
        query.add_to(self.log_weights, step)
        self._normalise()

    def _normalise(self) -> None:
        self.log_weights -= self.log_weights.max()
        np.exp(self.log_weights, out=self.weights)
        self.weights /= self.weights.sum()


class PrivateMW(OnlineMW[LinearQuery]):
    """Answers adaptively chosen linear queries from a hypothesis, updated after a wrong answer.

    Privacy: ``plan.guarantee``, for any number of answers together and for any alpha, thresholds,
    learning rate and given number of records. The guarantee is that of ``NumericSparse``: a record
    changes a query's sum by at most one, and so the difference from the hypothesis's public sum,
    and the absolute value of this difference. A noisy number of records costs a twentieth of
    epsilon. Everything else is computed from released values.

    Accuracy: with probability at least 1 - beta, every answer to the first K different queries is
    within its ``bound``, which is known at construction: ``settings.hypothesis_bound`` and
    ``update_bound``. ``tight``: one question |S - N w(q)| per round, for a query q with the exact
    sum S and the mean w(q) in the hypothesis. An update happens only if |S/n - w(q)| is at least
    the gap g (>= alpha). The update's step 4g' lowers the relative entropy of the data to the
    hypothesis by at least 2g^2 (Hoeffding's lemma), for any g' from g to the true difference; g' is
    the measured difference minus a noise bound. So ln|X| / (2 alpha^2) updates are enough.
    ``textbook``: Dwork and Roth's Algorithm 6 with the threshold max(T, 2 alpha): two questions per
    round, steps of alpha / 2, 4 ln|X| / alpha^2 updates, errors within 3 alpha N.

    Edge cases: with one cell the hypothesis never changes. Empty data take the same code path.
    After K questions, answers stay private but have no bound. After the last update, answers come
    from the hypothesis and the data are not read again.

    Args:
        plan: see ``plan_private_mw``. The constructor spends the whole ``plan.loss``.
        histogram: the exact counts; secret.
        noise: the source of all noise.
        start: a release to start from, or public weights, one per cell, not all 0. A thousandth of
            the first hypothesis is uniform, so that updates can reach any data.
        ledger_token: the token of the ledger entry that paid, if any. A token pays for one run: the
            constructor does not refuse a second run with the same token.
        earlier: public answers of an earlier run, which are repeated at no cost. Their bounds are
            valid with the failure probability of the earlier run.
        saved: the result of ``hand_over`` of an earlier run of this plan. The constructor then
            spends no budget. Only one object may continue the saved run.

    Raises:
        InputError: if the histogram or the start has another domain, if the token paid for
            another plan, or if the saved run has other settings.
        HaltedError: if another object already continued the saved run.

    Cost: O(num_cells) memory; twice the cost of a ``LinearQuery`` per query; O(num_cells) per
    update.
    Reference: Hardt and Rothblum (2010); Dwork and Roth (2014), Algorithm 6; Lyu, Su and Li
    (2017) for the noise.

    Example:
        >>> from beam_dp.domain.files import read_domain
        >>> from beam_dp.mechanisms.online.private_mw import plan_private_mw
        >>> from beam_dp.privacy.guarantee import Guarantee
        >>> from beam_dp.queries.reader import LinearQueries
        >>> domain = read_domain('{"a": 4, "b": 2}')
        >>> promise = Guarantee(1.0, 0, "replace_one", "record", 1)
        >>> plan = plan_private_mw(domain, promise, 80_000, num_questions=10)
        >>> counts = np.array([80_000, 0, 0, 0, 0, 0, 0, 0])
        >>> run = PrivateMW(plan, Histogram(domain, counts), NoiseSource())
        >>> query = LinearQueries(domain).conjunction({"a": 0})
        >>> answer = run.answer(query)
        >>> answer.route, abs(answer.value - 80_000) < answer.bound, run.answer(query) == answer
        ('update', True, True)
    """

    plan: PrivateMWPlan
    _hypothesis: DenseWeights

    def __init__(
        self,
        plan: PrivateMWPlan,
        histogram: Histogram,
        noise: NoiseSource,
        start: Start | None = None,
        *,
        ledger_token: Token | None = None,
        earlier: Sequence[tuple[LinearQuery, PrivateAnswer]] = (),
        saved: SavedRun | None = None,
    ) -> None:
        condition = "must be of the plan's domain"
        plan.domain.check_same(histogram.domain, "histogram", histogram, condition)
        if saved is None and (start is not None) != plan.starts_from_release:
            condition = "must be given if the plan starts from a release, and only then"
            raise InputError("start", type(start).__name__, condition)
        first = start_weights(plan, start) if saved is None else saved.log_weights
        super().__init__(plan, int(histogram.counts.sum()), noise, ledger_token, saved)
        self._hypothesis = DenseWeights(first)
        self._shape = plan.domain.shape
        self._counts = histogram.counts
        self._answers = dict(earlier if saved is None else saved.answers)
        self._num_earlier = len(self._answers) if saved is None else saved.num_earlier

    @property
    def weights(self) -> NDArray[np.float64]:
        """A copy of the hypothesis, shape (num_cells,); the weights sum to 1; public."""
        return self._hypothesis.weights.copy()

    def hand_over(self) -> SavedRun:
        """Ends this object and returns its partly secret state, from which one object can continue.

        Raises HaltedError after an earlier hand-over and in a forked process.
        """
        with self._turn():
            state = self._sparse._hand_over()
            self._end("the run was saved: resume it from there")
            return SavedRun(
                settings=self.settings.to_json(),
                total=self.settings.total,
                answers=self.transcript,
                sparse=state,
                payment=self.payment,
                log_weights=self._hypothesis.log_weights.copy(),
                num_earlier=self._num_earlier,
            )

    def _exact(self, query: LinearQuery) -> int:
        return query.count(self._counts)

    def _check(self, query: Any) -> None:
        if not isinstance(query, LinearQuery):
            raise InputError("query", query, "must be a LinearQuery: see LinearQueries")
        if query.shape != self._shape:
            raise InputError("query", query.shape, f"must be of a domain of shape {self._shape}")


def check_settings(name: str, value: str, saved: Any, settings: Settings) -> None:
    """Refuses a state with settings that this version of the package would not choose."""
    given = json.loads(json.dumps(settings.to_json()))
    stored = json.loads(json.dumps(saved))
    if stored != given:
        condition = "must have the settings that this version of beam_dp chooses for the plan"
        raise InputError(name, value, f"{condition}: {difference('settings', stored, given)}")


def difference(part: str, saved: Any, given: Any) -> str:
    """Returns a short description of the first difference between two plans or settings."""
    if part != "domain" and isinstance(saved, dict):
        for name in given:
            old, new = saved.get(name), given[name]
            if old != new and isinstance(old, dict) and isinstance(new, dict):
                return f"{name}.{difference(name, old, new)}"
            if old != new:
                return f"{name} was {shown(old)}, and is {shown(new)}"
    return f"its {part} is different"

"""Black-box audits: a lower bound on epsilon from runs of a mechanism on two neighbours."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from beam_dp.testing.laws import Law

FALSE_ALARM = 1e-6
# An audit that sees less than this share of what it should see is blind.
POWER = 0.8
# A pilot of a quarter of the runs judges events about as an audit at 1e-6 will.
_PILOT_ALARM = 0.02

Sample = Callable[[int], Iterable[Any]]
Score = Callable[[Any], float]


@dataclasses.dataclass(frozen=True)
class Event:
    """Outcomes that one of two data sets makes likelier: the second, if ``is_reversed``."""

    is_in: Callable[[Any], bool]
    is_reversed: bool

    def count(self, outcomes: Iterable[Any]) -> int:
        """Returns how many outcomes belong to it."""
        return sum(map(self.is_in, outcomes))


@dataclasses.dataclass(frozen=True)
class ForeseenEvent:
    """An event that is known before any run, and how likely it should be.

    ``predicted``: a bound to expect that allows for errors of these probabilities, where they
    are estimates; None where the bound that follows from them is to be expected.
    """

    event: Event
    likelier: float
    other: float
    predicted: float | None = None


@dataclasses.dataclass(frozen=True)
class BlackBoxAudit:
    """What a black-box audit found.

    ``lower_bound``: epsilon is at least this, except with the probability of a false alarm.
    ``predicted``: the expected bound by the exact law, with the same number of runs; None without
    a prediction, where the power of the audit is unknown.
    ``limit``: the largest bound that the exact law allows on the used event; None without a law.
    ``blind_by_chance``: upper bound of the probability that a mechanism that follows its law is
    called blind; None without a prediction.
    """

    claimed: float
    lower_bound: float
    predicted: float | None
    runs: int
    limit: float | None = None
    blind_by_chance: float | None = None

    @property
    def is_refuted(self) -> bool:
        """Whether the claim is false, except with the probability of a false alarm."""
        return self.lower_bound > self.claimed

    @property
    def is_blind(self) -> bool:
        """Whether the audit saw less than 0.8 of what it should have seen.

        Either the audit could not have found a leak, or the mechanism adds more noise than stated.
        """
        return self.predicted is not None and not self.lower_bound > POWER * self.predicted

    @property
    def is_off_its_law(self) -> bool:
        """Whether it leaks more than its own law allows, although perhaps less than is claimed."""
        return self.limit is not None and self.lower_bound > self.limit

    @property
    def passes(self) -> bool:
        """Whether the audit could have found a leak, and found none."""
        return not (self.is_refuted or self.is_blind or self.is_off_its_law)


def epsilon_lower_bound(
    first: NDArray[np.float64] | float,
    second: NDArray[np.float64] | float,
    runs: float,
    delta: float = 0.0,
    false_alarm: float = FALSE_ALARM,
) -> NDArray[np.float64]:
    """Returns a lower bound of epsilon, from how often an event happened on each data set.

    With probability at least ``1 - false_alarm`` the bound is true: each side's probability is
    bounded by Clopper and Pearson at half of it.

    ``first``: how often it happened on the data that makes it likelier; of an array of events only
    one may be used, or the bound does not hold.

    It is ln((lower bound of P - delta) / upper bound of Q), or 0 where that is negative.

    Reference: Clopper and Pearson (1934); Jagielski, Ullman and Oprea (2020).

    Example:
        >>> round(float(epsilon_lower_bound(7311, 2689, 10_000)), 3)
        0.891
    """
    first, second = np.asarray(first, np.float64), np.asarray(second, np.float64)
    low, high = _enclosed(first, second, runs, false_alarm / 2)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.maximum(low - delta, 0.0) / high
        bound: NDArray[np.float64] = np.where(ratio > 1, np.log(np.maximum(ratio, 1.0)), 0.0)
    return bound


def _enclosed(
    first: NDArray[Any], second: NDArray[Any], runs: float, share: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns Clopper and Pearson's lower bounds of one probability, upper ones of another."""
    with np.errstate(invalid="ignore"):
        low = np.where(first > 0, stats.beta.ppf(share, first, runs - first + 1), 0.0)
        high = np.where(second < runs, stats.beta.isf(share, second + 1, runs - second), 1.0)
    return low, high


def choose_event(
    first: Iterable[Any], second: Iterable[Any], delta: float = 0.0, *, score: Score | None = None
) -> Event:
    """Returns the event that promises the largest bound, by a separate pilot sample.

    ``first``: outcomes on the first data set.
    ``score``: of an outcome: events are then thresholds of it. Otherwise they are the sets of
    those outcomes whose frequencies differ most.
    """
    counts = [Counter(first), Counter(second)]
    pilot = sum(counts[0].values())
    if not pilot or pilot != sum(counts[1].values()):
        raise ValueError("a pilot needs outcomes, the same number on both sides")
    return _best(counts[0], counts[1], pilot, delta, score, _PILOT_ALARM, prior=1.0)


def audit_black_box(
    first: Sample,
    second: Sample,
    epsilon: float,
    delta: float = 0.0,
    *,
    runs: int,
    pilot_runs: int | None = None,
    score: Score | None = None,
    laws: tuple[Law, Law] | None = None,
    foreseen: ForeseenEvent | None = None,
    false_alarm: float = FALSE_ALARM,
) -> BlackBoxAudit:
    """Bounds epsilon from below by running a mechanism on two neighbouring data sets.

    One event is chosen on separate pilot runs. Where the law is known, another one is foreseen,
    whose bound does not depend on the luck of a pilot. The larger of their two bounds counts, each
    with half of the false alarms. A correct mechanism is refuted with probability at most
    ``false_alarm``. An audit that finds nothing proves nothing unless it could have found
    something: give the exact laws, or an event and its probabilities, and ``is_blind`` says whether
    it saw less than 0.8 of what they predict.

    ``first``: runs the mechanism a number of times on the first data set; returns the outcomes,
    which are hashable, or anything with a score.
    ``second``: the same on a neighbouring data set.
    ``epsilon``: that is promised, > 0.
    ``delta``: that is promised, in [0, 1).
    ``pilot_runs``: to choose the event; a quarter of ``runs`` where not given.
    ``score``: of an outcome: events are then thresholds of it. The log-likelihood ratio of the
    two exact laws is the best one.
    ``laws``: the exact laws of the outcome on both data sets.
    ``foreseen``: an event and its probabilities, where laws are not given or were sampled
    themselves; the best event of the laws where it is not given.

    Reference: Ding, Wang, Wang, Zhang and Kifer (2018) for the separate choice of events.

    Example:
        >>> from beam_dp.noise.source import NoiseSource
        >>> def draw(count):
        ...     def run(runs):
        ...         values = np.full(runs, count, np.int64)
        ...         return (NoiseSource().laplace(values, scale=1.0) >= 1).tolist()
        ...     return run
        >>> low = 1 / (1 + math.e)
        >>> laws = {True: 1 - low, False: low}, {True: low, False: 1 - low}
        >>> audit = audit_black_box(draw(1), draw(0), 1.0, runs=4000, laws=laws)
        >>> audit.is_refuted, audit.is_blind
        (False, False)
    """
    if laws is not None and foreseen is None:
        foreseen = _foresee(laws, runs, delta, score, false_alarm / 2)
    pilot = pilot_runs or max(1, runs // 4)
    events = [choose_event(first(pilot), second(pilot), delta, score=score)]
    if foreseen is not None:
        events.append(foreseen.event)
    alarm = false_alarm / len(events)
    outcomes = [list(sample(runs)) for sample in (first, second)]
    bounds = [_bound_by(event, outcomes, runs, delta, alarm) for event in events]
    bound = max(bounds)
    limit = None if laws is None else _allowed(laws, events[bounds.index(bound)], delta)
    if foreseen is None:
        return BlackBoxAudit(epsilon, bound, None, runs, limit)
    predicted = foreseen.predicted
    if predicted is None:
        hits = runs * foreseen.likelier, runs * foreseen.other
        predicted = float(epsilon_lower_bound(*hits, runs, delta, alarm))
    chance = _probability_of_at_most(POWER * predicted, foreseen, runs, delta, alarm)
    return BlackBoxAudit(epsilon, bound, predicted, runs, limit, chance)


def _bound_by(
    event: Event, outcomes: Sequence[Sequence[Any]], runs: int, delta: float, false_alarm: float
) -> float:
    """Returns the bound that one event gives."""
    first, second = (event.count(side) for side in outcomes)
    likelier, other = (second, first) if event.is_reversed else (first, second)
    return float(epsilon_lower_bound(likelier, other, runs, delta, false_alarm))


def _foresee(
    laws: tuple[Law, Law], runs: int, delta: float, score: Score | None, false_alarm: float
) -> ForeseenEvent:
    """Returns the event of the largest bound, were outcomes as frequent as the laws say."""
    first, second = ({x: runs * p for x, p in law.items()} for law in laws)
    event = _best(first, second, runs, delta, score, false_alarm)
    return ForeseenEvent(event, *_probabilities(laws, event))


def _probability_of_at_most(
    bound: float, foreseen: ForeseenEvent, runs: int, delta: float, false_alarm: float
) -> float:
    """Returns how likely the bound by a foreseen event is at most this, with an error of 1e-20.

    Both hits are binomial. For each number of hits on the other side, the bound grows with those
    on the likelier one, so a least number of these is needed for more.
    """
    first, second = (_likely_hits(runs, p) for p in (foreseen.likelier, foreseen.other))
    low, high = _enclosed(first, second, runs, false_alarm / 2)
    needed = first[0] + np.searchsorted(low, delta + high * math.exp(bound), side="right")
    missed = stats.binom.cdf(needed - 1, runs, foreseen.likelier)
    return float(stats.binom.pmf(second, runs, foreseen.other) @ missed)


def _likely_hits(runs: int, probability: float) -> NDArray[np.int64]:
    """Returns all numbers of hits, except practically impossible ones."""
    mean = runs * probability
    # By Bernstein's inequality both tails together have less than 1e-20.
    reach = 12 * math.sqrt(mean * (1 - min(1.0, probability))) + 40
    return np.arange(max(0, math.floor(mean - reach)), min(runs, math.ceil(mean + reach)) + 1)


def _allowed(laws: tuple[Law, Law], event: Event, delta: float) -> float:
    """Returns ln((P - delta) / Q) of one event by two laws, at least 0."""
    first, second = _probabilities(laws, event)
    if first - delta <= second:
        return 0.0
    return math.log((first - delta) / second) if second > 0 else math.inf


def _probabilities(laws: tuple[Law, Law], event: Event) -> tuple[float, float]:
    """Returns the probabilities of an event, first on the data set that makes it likelier."""
    first, second = (
        min(1.0, sum(p for outcome, p in law.items() if event.is_in(outcome))) for law in laws
    )
    return (second, first) if event.is_reversed else (first, second)


def _best(
    first: Mapping[Any, float],
    second: Mapping[Any, float],
    runs: float,
    delta: float,
    score: Score | None,
    false_alarm: float,
    prior: float = 0.0,
) -> Event:
    """Returns the event that has the largest bound at some frequencies."""
    outcomes = list({**first, **second})
    weights = np.array([[law.get(x, 0.0) for x in outcomes] for law in (first, second)])
    if score is None:
        with np.errstate(divide="ignore"):
            ranks = np.diff(np.log(weights[::-1] + prior), axis=0)[0]
    else:
        ranks = np.array([score(outcome) for outcome in outcomes], np.float64)
    found: list[tuple[float, bool, float]] = []
    for is_reversed in (False, True):
        # Likely on the first data set to likely on the second, or the other way round.
        by_rank, last = _cumulated(ranks if is_reversed else -ranks, weights)
        likelier, other = by_rank[::-1] if is_reversed else by_rank
        bounds = epsilon_lower_bound(
            np.minimum(likelier, runs), np.minimum(other, runs), runs, delta, false_alarm
        )
        best = int(np.argmax(bounds))
        found.append((float(bounds[best]), is_reversed, float(last[best])))
    _, is_reversed, limit = max(found, key=lambda each: each[0])
    if score is None:
        sign = 1.0 if is_reversed else -1.0
        chosen = {x for x, rank in zip(outcomes, ranks, strict=True) if sign * rank <= limit}
        return Event(chosen.__contains__, is_reversed)
    if is_reversed:
        return Event(lambda outcome: score(outcome) <= limit, True)
    return Event(lambda outcome: -score(outcome) <= limit, False)


def _cumulated(
    ranks: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns how often outcomes up to each rank happen on either side, and these ranks."""
    order = np.argsort(ranks, kind="stable")
    summed = np.cumsum(weights[:, order], axis=1)
    ordered = ranks[order]
    with np.errstate(invalid="ignore"):
        ends = np.append(ordered[1:] != ordered[:-1], True)
    return summed[:, ends], ordered[ends]

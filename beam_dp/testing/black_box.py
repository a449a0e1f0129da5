"""Black-box audits: lower bounds on epsilon from runs of a mechanism on two neighbours."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

FALSE_ALARM = 1e-6
# An audit is blind if its bound is below this fraction of the predicted bound.
POWER = 0.8
# At this level, a pilot with a quarter of the runs ranks events about as well as an audit at 1e-6.
_PILOT_ALARM = 0.02

# The probability of each outcome; the probabilities sum to 1, up to rounding.
Law = Mapping[Any, float]
Sample = Callable[[int], Iterable[Any]]
Score = Callable[[Any], float]


@dataclasses.dataclass(frozen=True)
class Event:
    """A set of outcomes that is likelier on the first data set, or if reversed, on the second."""

    is_in: Callable[[Any], bool]
    is_reversed: bool

    def count(self, outcomes: Iterable[Any]) -> int:
        """Returns the number of outcomes that are in this event."""
        return sum(map(self.is_in, outcomes))


@dataclasses.dataclass(frozen=True)
class ForeseenEvent:
    """An event that is chosen before any run, with its expected probabilities.

    ``likelier``: the event's probability on the data set that makes the event likelier.
    ``other``: the event's probability on the other data set.
    ``predicted``: the expected bound, with an allowance for errors if the probabilities are only
    estimates; None to compute the expected bound from the probabilities.
    """

    event: Event
    likelier: float
    other: float
    predicted: float | None = None


@dataclasses.dataclass(frozen=True)
class BlackBoxAudit:
    """The result of a black-box audit.

    ``lower_bound``: epsilon is at least this, except with the probability of a false alarm.
    ``predicted``: the lower bound expected from the exact law for this number of runs; None without
    a prediction: the power of the audit is then unknown.
    ``limit``: the largest bound that the exact law allows for the used event; None without a law.
    ``blind_by_chance``: an upper bound on the probability that ``is_blind`` is true for a mechanism
    that follows its law; None without a prediction.
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
        """Whether the lower bound is at most 0.8 of the predicted bound.

        Either the audit could not have found a leak, or the mechanism adds more noise than stated.
        """
        return self.predicted is not None and not self.lower_bound > POWER * self.predicted

    @property
    def is_off_its_law(self) -> bool:
        """Whether the mechanism leaks more than its law allows, even if less than it claims."""
        return self.limit is not None and self.lower_bound > self.limit

    @property
    def passes(self) -> bool:
        """Whether the audit could have found a leak, but found no leak."""
        return not (self.is_refuted or self.is_blind or self.is_off_its_law)


def epsilon_lower_bound(
    first: NDArray[np.float64] | float,
    second: NDArray[np.float64] | float,
    runs: float,
    delta: float = 0.0,
    false_alarm: float = FALSE_ALARM,
) -> NDArray[np.float64]:
    """Returns a lower bound on epsilon from the counts of an event on two neighbouring data sets.

    The bound is true with probability at least ``1 - false_alarm``: the event's probability on each
    data set gets a Clopper-Pearson bound at half of ``false_alarm``. The result is
    ln((lower bound of P - delta) / upper bound of Q), or 0 if this is negative.

    ``first``: the event's count on the data set that makes the event likelier. With an array of
    events, only one event's bound may be used; choosing the largest would invalidate the bound.

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
    """Returns Clopper-Pearson lower bounds for ``first`` and upper bounds for ``second``."""
    with np.errstate(invalid="ignore"):
        low = np.where(first > 0, stats.beta.ppf(share, first, runs - first + 1), 0.0)
        high = np.where(second < runs, stats.beta.isf(share, second + 1, runs - second), 1.0)
    return low, high


def choose_event(
    first: Iterable[Any], second: Iterable[Any], delta: float = 0.0, *, score: Score | None = None
) -> Event:
    """Returns the event with the largest expected bound, from a separate pilot sample.

    ``first``: the outcomes on the first data set.
    ``score``: a function of an outcome; events are then thresholds of the score. By default, events
    are sets of the outcomes whose frequencies differ most.
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

    One event is chosen from separate pilot runs. If the laws are known, a second event is chosen
    from the laws, so that its bound does not depend on the luck of a pilot. The result is the
    larger of the two bounds; each event gets half of ``false_alarm``. A correct mechanism is
    refuted with probability at most ``false_alarm``. An audit that finds no leak proves nothing
    unless the audit could have found a leak. To check this, give the exact laws, or an event and
    its probabilities: ``is_blind`` then shows whether the bound is at most 0.8 of the predicted
    bound.

    ``first``: runs the mechanism a number of times on the first data set and returns the outcomes.
    Outcomes must be hashable unless there is a score.
    ``second``: runs the mechanism on a neighbouring data set.
    ``epsilon``: the epsilon of the guarantee, > 0.
    ``delta``: the delta of the guarantee, in [0, 1).
    ``pilot_runs``: the number of runs for choosing an event; by default a quarter of ``runs``.
    ``score``: a function of an outcome; events are then thresholds of the score. The best score is
    the log-likelihood ratio of the two exact laws.
    ``laws``: the exact laws of the outcome on both data sets.
    ``foreseen``: an event and its probabilities, if there are no laws or if the laws were sampled;
    by default the best event under the laws.

    Reference: Ding, Wang, Wang, Zhang and Kifer (2018) for the separate choice of events.

    Example:
        >>> from beam_dp.privacy.noise.source import NoiseSource
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
        hits, others = runs * foreseen.likelier, runs * foreseen.other
        predicted = float(epsilon_lower_bound(hits, others, runs, delta, alarm))
    chance = _probability_of_at_most(POWER * predicted, foreseen, runs, delta, alarm)
    return BlackBoxAudit(epsilon, bound, predicted, runs, limit, chance)


def _bound_by(
    event: Event, outcomes: Sequence[Sequence[Any]], runs: int, delta: float, false_alarm: float
) -> float:
    """Returns the lower bound on epsilon from one event."""
    first, second = (event.count(side) for side in outcomes)
    likelier, other = (second, first) if event.is_reversed else (first, second)
    return float(epsilon_lower_bound(likelier, other, runs, delta, false_alarm))


def _foresee(
    laws: tuple[Law, Law], runs: int, delta: float, score: Score | None, false_alarm: float
) -> ForeseenEvent:
    """Returns the event with the largest bound if outcomes occur as often as the laws predict."""
    first, second = ({x: runs * p for x, p in law.items()} for law in laws)
    event = _best(first, second, runs, delta, score, false_alarm)
    return ForeseenEvent(event, *_probabilities(laws, event))


def _probability_of_at_most(
    bound: float, foreseen: ForeseenEvent, runs: int, delta: float, false_alarm: float
) -> float:
    """Returns the probability, to 1e-20, that a foreseen event gives a bound of at most ``bound``.

    The numbers of hits on both data sets are binomial. For a fixed number of hits on the other data
    set, the lower bound grows with the hits on the likelier data set, so the lower bound exceeds
    ``bound`` from some number of hits on.
    """
    first, second = (_likely_hits(runs, p) for p in (foreseen.likelier, foreseen.other))
    low, high = _enclosed(first, second, runs, false_alarm / 2)
    needed = first[0] + np.searchsorted(low, delta + high * math.exp(bound), side="right")
    missed = stats.binom.cdf(needed - 1, runs, foreseen.likelier)
    return float(stats.binom.pmf(second, runs, foreseen.other) @ missed)


def _likely_hits(runs: int, probability: float) -> NDArray[np.int64]:
    """Returns the likely numbers of hits; all other numbers have total probability < 1e-20."""
    mean = runs * probability
    # By Bernstein's inequality both tails together have a probability below 1e-20.
    reach = 12 * math.sqrt(mean * (1 - min(1.0, probability))) + 40
    return np.arange(max(0, math.floor(mean - reach)), min(runs, math.ceil(mean + reach)) + 1)


def _allowed(laws: tuple[Law, Law], event: Event, delta: float) -> float:
    """Returns ln((P - delta) / Q) for one event under two laws, at least 0."""
    first, second = _probabilities(laws, event)
    if first - delta <= second:
        return 0.0
    return math.log((first - delta) / second) if second > 0 else math.inf


def _probabilities(laws: tuple[Law, Law], event: Event) -> tuple[float, float]:
    """Returns the event's probability on each of the two data sets, the larger first."""
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
    """Returns the event with the largest bound for the given frequencies."""
    outcomes = list({**first, **second})
    weights = np.array([[law.get(x, 0.0) for x in outcomes] for law in (first, second)])
    if score is None:
        with np.errstate(divide="ignore"):
            ranks = np.diff(np.log(weights[::-1] + prior), axis=0)[0]
    else:
        ranks = np.array([score(outcome) for outcome in outcomes], np.float64)
    splits: list[tuple[float, bool, float]] = []
    for is_reversed in (False, True):
        # Outcomes are ranked from likely on the first data set to likely on the second data set, or
        # in reverse order.
        by_rank, last = _cumulated(ranks if is_reversed else -ranks, weights)
        likelier, other = by_rank[::-1] if is_reversed else by_rank
        bounds = epsilon_lower_bound(
            np.minimum(likelier, runs), np.minimum(other, runs), runs, delta, false_alarm
        )
        best = int(np.argmax(bounds))
        splits.append((float(bounds[best]), is_reversed, float(last[best])))
    _, is_reversed, limit = max(splits, key=lambda split: split[0])
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
    """Returns the cumulative frequencies up to each rank, on each data set, and the ranks."""
    order = np.argsort(ranks, kind="stable")
    summed = np.cumsum(weights[:, order], axis=1)
    ordered = ranks[order]
    with np.errstate(invalid="ignore"):
        ends = np.append(ordered[1:] != ordered[:-1], True)
    return summed[:, ends], ordered[ends]

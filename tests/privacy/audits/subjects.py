"""Mechanisms that add noise to vectors: their price, and their exact law."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import auditing
import numpy as np
from auditing import Finding
from noise_sources import Draw, NoNoise
from tiny import promise, share_spent

from beam_dp.privacy.guarantee import Guarantee
from beam_dp.testing import audit


class Answered(NoNoise):
    """Answers the first draws with given noisy values, and the others without noise."""

    def __init__(self, answers: Sequence[Sequence[int]]) -> None:
        super().__init__()
        self._answers = answers

    def noisy(self, values: np.ndarray) -> np.ndarray:
        number = len(self.draws)
        is_answered = number <= len(self._answers)
        return np.array(self._answers[number - 1] if is_answered else values, np.int64)


Pairs = Iterable[tuple[Hashable, Hashable]]


@dataclasses.dataclass(frozen=True)
class Subject:
    """A mechanism on tiny data.

    Args:
        guarantee: what it promises.
        plan: its plan for a guarantee.
        release: of a plan and of data, with a source of noise.
        pairs: all neighbours, hashable.
        least: share of the guarantee that the worst neighbours spend.
        sources: that answer alike for all data, where later draws depend on what is answered.
    """

    guarantee: Guarantee
    plan: Callable[[Guarantee], Any]
    release: Callable[[Any, Any, Any], Any]
    pairs: Callable[[], Pairs]
    least: float = 0.9
    sources: Sequence[Callable[[], NoNoise]] = (NoNoise,)

    def planned(self) -> Any:
        return self.plan(auditing.planned_for(self.guarantee))

    def draws(self, plan: Any, data: Any, source: Callable[[], NoNoise] = NoNoise) -> list[Draw]:
        """What is handed to the noise."""
        noise = source()
        self.release(plan, data, noise)
        return noise.draws


def price(subject: Subject) -> Finding:
    """The share of the guarantee that the worst neighbours spend, of all."""
    plan, worst = subject.planned(), 0.0
    for source in subject.sources:
        draws = functools.cache(lambda data, source=source: subject.draws(plan, data, source))
        for one, other in subject.pairs():
            worst = max(worst, share_spent(subject.guarantee, draws(one), draws(other)))
            if worst > 1 + 1e-12:
                return Finding(False)
    return Finding(bool(worst > subject.least))


def records_per_unit(guarantee: Guarantee) -> list[Guarantee]:
    """The same guarantee with one record a unit, and with two."""
    limits = guarantee.neighboring.value, guarantee.delta, guarantee.epsilon
    return [promise(*limits, most) for most in (1, 2)]


def exact_law(
    subject: Subject,
    seen: Callable[[Any], Hashable],
    *,
    least: float,
    ends: tuple[int, int],
) -> Finding:
    """The law of what is seen of a release, over all neighbours; noisy values are clipped.

    ``least``: share of the guarantee that some neighbours spend. ``ends``: of noisy values.
    """
    plan = subject.planned()

    @functools.cache
    def law(data: Any) -> dict[Hashable, float]:
        found: dict[Hashable, float] = {}
        waiting: list[tuple[tuple[Any, ...], float]] = [((), 1.0)]
        while waiting:
            answered, share = waiting.pop()
            source = Answered(answered)
            outcome = seen(subject.release(plan, data, source))
            if len(source.draws) == len(answered):
                found[outcome] = found.get(outcome, 0.0) + share
                continue
            draw = source.draws[len(answered)]
            laws = [audit.discrete_laplace(draw.scale, int(each), *ends) for each in draw.exact]
            for noisy, chance in audit.product_law(laws).items():
                waiting.append(((*answered, noisy), share * chance))
        return found

    largest = max(audit.largest_log_ratio(law(one), law(other)) for one, other in subject.pairs())
    epsilon = subject.guarantee.epsilon
    return Finding(least * epsilon < largest <= epsilon * (1 + 1e-9))


def beside(others: Iterable[tuple[Any, ...]], units: Pairs) -> Pairs:
    """Neighbours: data of others, with either of what one unit may have."""
    for base, (one, other) in itertools.product(others, units):
        yield (*base, one), (*base, other)


def counts_beside(bases: Sequence[Sequence[int]], units: Pairs) -> Pairs:
    """The same as counts of records in each cell, from the cells of a unit's records."""
    for base, pair in itertools.product(bases, units):
        counts = [np.array(base, np.int64), np.array(base, np.int64)]
        for each, unit in zip(counts, pair, strict=True):
            np.add.at(each, list(unit), 1)
        yield tuple(counts[0].tolist()), tuple(counts[1].tolist())

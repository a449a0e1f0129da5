"""A ledger keeps its budget where online runs stay open while other releases are made.

The worst analyst is computed exactly: who opens runs and asks for randomised responses wherever the
ledger admits them, asks any open run next, and sees every answer.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import pathlib
from collections.abc import Iterator
from typing import Protocol

import numpy as np
import pytest
from tiny import domain_of

from beam_dp.mechanisms import PrivateMW, plan_private_mw
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger import Ledger, LedgerError
from beam_dp.privacy.ledger.filters import Account, Composition
from beam_dp.privacy.loss import Loss
from beam_dp.queries.reader import LinearQueries
from beam_dp.summaries import Histogram

NUM_ANSWERS = 2  # of a run, each 0 or 1
History = tuple[int, ...]

# The answers of the runs, sorted; and how many randomised responses pointed to the first of the
# two neighbours and to the second.
State = tuple[tuple[History, ...], int, int]


def is_open(history: History) -> bool:
    """Whether one more question may be asked."""
    return len(history) < NUM_ANSWERS


class Run(Protocol):
    """An interactive mechanism that is purely private as a whole."""

    epsilon: float

    def law(self, history: History, neighbour: int) -> float:
        """The probability of some answers, all or the first of them."""


class TwoResponses:
    """Both questions are answered by randomised response, with half of epsilon each."""

    def __init__(self, epsilon: float) -> None:
        self.epsilon, self.true = epsilon, 1 / (1 + math.exp(-epsilon / 2))

    def law(self, history: History, neighbour: int) -> float:
        return math.prod(self.true if each == neighbour else 1 - self.true for each in history)


class Masked:
    """A randomised response is drawn, and a mask of it; the answers are the mask and the sum.

    Either answer alone tells nothing, and is no release of its own.
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon, self.true = epsilon, 1 / (1 + math.exp(-epsilon))

    def law(self, history: History, neighbour: int) -> float:
        if len(history) < 2:
            return 0.5 ** len(history)
        response = history[0] ^ history[1]
        return 0.5 * (self.true if response == neighbour else 1 - self.true)


class Analyst:
    """Whoever makes the most of a budget.

    Args:
        account: what admits a run or a response.
        run: as many of them as it admits.
        of_response: the epsilon of a randomised response.
        most_runs: open or ended, so that there are few enough states.
    """

    def __init__(self, account: Account, run: Run, of_response: float, most_runs: int = 4) -> None:
        self.account, self.run, self.most_runs = account, run, most_runs
        self.response = Loss.pure(of_response)
        self.true = 1 / (1 + math.exp(-of_response))
        self.most_open = 0
        self._best = functools.cache(self._value)

    def reached(self) -> float:
        """The largest sum of (P - e^epsilon Q)+."""
        return self._best(((), 0, 0))

    def probability(self, state: State, neighbour: int) -> float:
        histories, *responses = state
        runs = math.prod(self.run.law(each, neighbour) for each in histories)
        return (
            runs * self.true ** responses[neighbour] * (1 - self.true) ** responses[1 - neighbour]
        )

    def is_paid(self, history: History) -> bool:
        """Whether a run counts, as it stands."""
        return True

    def admits(self, state: State, loss: Loss) -> bool:
        histories, first, second = state
        paid = [Loss.pure(self.run.epsilon) for each in histories if self.is_paid(each)]
        paid += [self.response] * (first + second)
        account = self.account
        return Account(account.epsilon, account.delta, account.composition, tuple(paid)).fits(loss)

    def moves(self, state: State) -> Iterator[list[State]]:
        """What may be done next, as all that may follow of it."""
        histories, first, second = state
        self.most_open = max(self.most_open, sum(map(is_open, histories)))
        if self.admits(state, self.response):
            yield [(histories, first + 1, second), (histories, first, second + 1)]
        if len(histories) < self.most_runs and self.admits(state, Loss.pure(self.run.epsilon)):
            yield [(tuple(sorted([*histories, ()])), first, second)]
        for place, history in enumerate(histories):
            others = histories[:place] + histories[place + 1 :]
            if is_open(history):
                longer = [(*history, answer) for answer in (0, 1)]
                yield [(tuple(sorted([*others, each])), first, second) for each in longer]

    def _value(self, state: State) -> float:
        scale = math.exp(self.account.epsilon)
        stop = max(0.0, self.probability(state, 0) - scale * self.probability(state, 1))
        return max([stop, *(sum(map(self._best, after)) for after in self.moves(state))])


class PaidAtTheEnd(Analyst):
    """A ledger that is told of a run when it has ended."""

    def is_paid(self, history: History) -> bool:
        return not is_open(history)


RUNS = [TwoResponses(0.2), Masked(0.2)]


@pytest.mark.parametrize("run", RUNS)
def test_the_answers_of_a_run_are_as_private_as_it_says(run: Run) -> None:
    ends = list(itertools.product((0, 1), repeat=NUM_ANSWERS))
    for neighbour in (0, 1):
        assert sum(run.law(each, neighbour) for each in ends) == pytest.approx(1)
    most = max(run.law(each, 0) / run.law(each, 1) for each in ends)
    assert most == pytest.approx(math.exp(run.epsilon))


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("composition", ["auto", "zcdp", "gaussian"])
def test_the_best_analyst_of_interleaved_runs_stays_within_delta(
    run: Run, composition: Composition
) -> None:
    account = Account(0.7, 0.1, composition)
    analyst, without = (Analyst(account, run, 0.3, most_runs) for most_runs in (4, 0))
    assert without.reached() < analyst.reached() <= account.delta
    assert analyst.most_open >= 3


@pytest.mark.slow
@pytest.mark.parametrize("composition", ["zcdp", "gaussian"])
def test_that_analyst_catches_runs_that_are_paid_for_when_they_end(
    composition: Composition,
) -> None:
    """Runs that never end cost nothing."""
    account = Account(0.7, 0.1, composition)
    assert PaidAtTheEnd(account, TwoResponses(0.6), 0.3, most_runs=6).reached() > account.delta


def test_a_run_is_paid_for_as_a_whole_while_others_come_and_go(tmp_path: pathlib.Path) -> None:
    domain = domain_of(4)
    guarantee = Guarantee(0.5, 0.0, "replace_one", "person", 1)
    plan = plan_private_mw(domain, guarantee, 100, num_questions=10)
    ledger = Ledger(str(tmp_path / "budgets.sqlite"))
    ledger.declare("visits", 1.0, 0.0, "person", "replace_one")
    token = ledger.spend("visits", guarantee, plan.loss, "private_mw")
    histogram = Histogram(domain, np.array([40, 30, 20, 10]))
    run = PrivateMW(plan, histogram, NoiseSource(), ledger_token=token)
    queries = LinearQueries(domain)
    for code, epsilon in enumerate((0.2, 0.3)):
        release = dataclasses.replace(guarantee, epsilon=epsilon)
        ledger.spend("visits", release, Loss.pure(epsilon), "laplace")
        run.answer(queries.conjunction({"a0": [code]}))
    assert ledger.total("visits") == pytest.approx(1.0)
    with pytest.raises(LedgerError, match="nothing is left"):
        ledger.spend("visits", guarantee, Loss.pure(0.1), "laplace")
    run.answer(queries.conjunction({"a0": [3]}))

"""What composition over several releases rests on: a worst analyst, computed exactly."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from typing import Protocol

from claim_rows.claim import Claim, Slack

from beam_dp.privacy.ledger.filters import Account
from beam_dp.privacy.loss import Loss

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
        """The probability of answers that are independent."""
        return math.prod(self.true if each == neighbour else 1 - self.true for each in history)


class Masked:
    """A randomised response is drawn, and a mask of it; the answers are the mask and the sum.

    Either answer alone tells nothing, and is no release of its own.
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon, self.true = epsilon, 1 / (1 + math.exp(-epsilon))

    def law(self, history: History, neighbour: int) -> float:
        """The probability of answers that only together tell anything."""
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

    @property
    def num_states(self) -> int:
        """How many states can be reached."""
        return self._best.cache_info().currsize

    def probability(self, state: State, neighbour: int) -> float:
        """The probability of all answers."""
        histories, *responses = state
        runs = math.prod(self.run.law(each, neighbour) for each in histories)
        return (
            runs * self.true ** responses[neighbour] * (1 - self.true) ** responses[1 - neighbour]
        )

    def is_paid(self, history: History) -> bool:
        """Whether a run counts, as it stands."""
        return True

    def admits(self, state: State, loss: Loss) -> bool:
        """Whether the account lets one more release or run begin."""
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


def _interleaved(trials: int) -> list[Slack]:
    del trials  # it is exact
    found = []
    for run, composition in itertools.product(
        (TwoResponses(0.2), Masked(0.2)), ("zcdp", "gaussian")
    ):
        analyst = Analyst(Account(0.7, 0.1, composition), run, 0.3)
        found.append(Slack(analyst.reached(), 0.1, analyst.num_states, "of mass above e^epsilon"))
    return found


CLAIMS = [
    Claim(
        key="composition.open_runs",
        source="Lyu 2022; Vadhan and Wang 2021",
        statement="interactive mechanisms that are asked in turns cost together what they cost one "
        "after the other: the sum of (P - e^epsilon Q)+ over transcripts stays within delta",
        here="`privacy.ledger.filters`: a run is paid for as a whole before its first answer; "
        "the best of all analysts who open runs and ask for releases, at delta 0.1",
        measure=_interleaved,
    ),
]

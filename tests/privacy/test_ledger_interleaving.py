"""A ledger keeps its budget where online runs stay open while other releases are made.

The worst analyst is computed exactly: who opens runs and asks for randomised responses wherever the
ledger admits them, asks any open run next, and sees every answer.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib

import numpy as np
import pytest
from claim_rows.composition import (
    NUM_ANSWERS,
    Analyst,
    History,
    Masked,
    Run,
    TwoResponses,
    is_open,
)
from tiny import domain_of

from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.privacy.ledger.entries import LedgerError
from beam_dp.privacy.ledger.filters import Account, Composition
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.privacy.loss import Loss
from beam_dp.queries.reader import LinearQueries
from beam_dp.summaries.histogram import Histogram


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


@pytest.mark.mostly_slow(one_in=5)
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

"""A ledger's token pays for one thing: every step that draws or writes answers checks it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import beam_dp as dp
from beam_dp.mechanisms.contract import Plan
from beam_dp.privacy.ledger.entries import Token
from beam_dp.privacy.loss import Loss
from beam_dp.transforms.drawing.answer_queries import AnswerWorkload
from beam_dp.transforms.drawing.release import ReleasePlannedIntervals, plan_attribute

DOMAIN = dp.Domain((dp.IntegerAttribute("age", 0, 9),))
MARGINALS = dp.marginals(DOMAIN, ways=1)
QUERIES = dp.parse_linear_workload('{"marginal": ["age"]}', DOMAIN)
PROMISE = dp.Guarantee(1.0, 1e-9, dp.Neighboring.REPLACE_ONE, "record", 1)
KEY = dp.KeyColumns("age")
N = 10**6
SKETCH = dp.SparseProject().plan(PROMISE, max_sparsity=3)
INTERVALS = plan_attribute(DOMAIN, "age", PROMISE)
MARGINALS_PLAN = dp.MWEM(num_rounds=1).plan(DOMAIN, MARGINALS, PROMISE, N)
DENSE = dp.plan_private_mw(DOMAIN, PROMISE, N, num_questions=2)
SPARSE = dp.plan_sparse_mw(PROMISE, N, max_sparsity=2, num_questions=2)
ANSWERS = dp.plan_workload_answers(QUERIES, PROMISE, N)

Door = Callable[[Token | None, Path], Any]
# Each with the plan of what it draws.
DOORS: dict[str, tuple[Plan, Door]] = {
    "synthetic": (
        MARGINALS_PLAN,
        lambda token, _: dp.ReleaseSyntheticDatabase(
            DOMAIN, MARGINALS, PROMISE, dp.MWEM(num_rounds=1), N, ledger_token=token
        ),
    ),
    "projection": (SKETCH, lambda token, _: dp.ReleaseProjection(SKETCH, KEY, token)),
    "intervals": (
        INTERVALS,
        lambda token, _: ReleasePlannedIntervals(INTERVALS, token),
    ),
    "online": (DENSE, lambda token, _: dp.AnswerQueries(DENSE, None, ledger_token=token)),
    "sparse online": (SPARSE, lambda token, _: dp.AnswerSparseQueries(SPARSE, KEY, None, token)),
    "linear": (ANSWERS, lambda token, _: AnswerWorkload(ANSWERS, [], token)),
    "written answers": (
        ANSWERS,
        lambda token, folder: dp.WriteAnswers(folder / "out", ANSWERS, token),
    ),
}


def paid(plan: Plan) -> Token:
    return Token("visits", 1, plan.mechanism, plan.promised, plan.loss)


def others(token: Token) -> list[Token]:
    """Tokens that paid for something else: another promise, relation, mechanism or loss."""
    promise = token.guarantee
    relation = dp.Neighboring.ADD_OR_REMOVE_ONE
    return [
        dataclasses.replace(token, guarantee=dataclasses.replace(promise, epsilon=0.5)),
        dataclasses.replace(token, guarantee=dataclasses.replace(promise, neighboring=relation)),
        dataclasses.replace(token, mechanism="another"),
        dataclasses.replace(token, loss=Loss.pure(0.001)),
    ]


@pytest.mark.parametrize("name", DOORS)
def test_accepts_only_the_token_that_paid_for_this_or_none(name, tmp_path):
    plan, door = DOORS[name]
    door(paid(plan), tmp_path)
    door(None, tmp_path)
    for other in others(paid(plan)):
        with pytest.raises(dp.InputError, match="ledger_token: 'visits/1' is not valid"):
            door(other, tmp_path)

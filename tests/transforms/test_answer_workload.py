"""Answers to a workload in a pipeline: what was paid for is what is drawn."""

from __future__ import annotations

import pytest
from tiny import ADD, domain_of, promise

from beam_dp.mechanisms.linear_answers.answers import plan_workload_answers
from beam_dp.privacy.ledger.ledger import Ledger
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.transforms import AnswerWorkload, WriteAnswers

PAIRS = parse_linear_workload("conjunctions:2", domain_of(4, 2, 3))


@pytest.mark.parametrize("delta, name", [(0.0, "laplace"), (1e-9, "gaussian")])
def test_what_a_ledger_was_paid_for_by_the_public_name_is_accepted(delta, name, tmp_path):
    plan = plan_workload_answers(PAIRS, promise(ADD, delta), "noisy", f"discrete_{name}")
    assert plan.mechanism == plan.public["mechanism"] == name
    ledger = Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("people", 10.0, 1e-6, "record", ADD)
    token = ledger.spend("people", plan.guarantee, plan.loss, plan.mechanism, plan.public)
    AnswerWorkload(plan, [], token)
    WriteAnswers(tmp_path / "out", plan, token)

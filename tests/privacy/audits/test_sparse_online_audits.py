"""Whole runs of sparse online multiplicative weights, with the production noise, on neighbours.

A correct mechanism is refuted with probability 1e-6 at most.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from private_mw_laws import whole_records
from sparse_mw_laws import member, records, tiny_plan
from tiny import ADD, REPLACE

from beam_dp.hypotheses.sparse_weights import SparseWeights
from beam_dp.mechanisms.sparse_mw import SparseMW
from beam_dp.noise import NoiseSource
from beam_dp.testing.audit import audit_black_box

pytestmark = pytest.mark.audit

RUNS = 1000
RUNS_OF_BUGS = 300  # that tell everything


class ReadsTheData(SparseMW):
    """A bug: without a measurement, the exact sum is told."""

    def answer(self, query):
        answer = super().answer(query)
        exact = float(self._exact(query))
        return answer if answer.route == "update" else dataclasses.replace(answer, value=exact)


class SlotsForTheData(SparseMW):
    """A bug: the number of slots is that of the keys of the data."""

    def __init__(self, plan, records, noise):
        super().__init__(plan, records, noise)
        self._hypothesis = SparseWeights(1 + len(records.counts))


def outcomes_of(kind, plan, data):
    def run(runs: int) -> list[Any]:
        outcomes = []
        for _ in range(runs):
            fresh = kind(plan, records(data), NoiseSource())
            answers = [fresh.answer(member(keys)) for keys in ("a", "ab")]
            outcomes.append(
                tuple((answer.route, min(max(round(answer.value), -1), 3)) for answer in answers)
            )
        return outcomes

    return run


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("calibration", ["tight", "textbook"])
def test_sparse_mw_is_not_refuted_and_one_that_reads_the_data_is(neighboring, calibration):
    pair = ((0, 0, 0), (0, 0)) if neighboring == ADD else ((0, 0, 0), (0, 0, 1))
    with whole_records():
        plan = tiny_plan(neighboring, 0.0, calibration, max_sparsity=2)
        found = [
            audit_black_box(
                *(outcomes_of(kind, plan, data) for data in pair),
                plan.guarantee.epsilon,
                runs=runs,
            )
            for kind, runs in ((SparseMW, RUNS), (ReadsTheData, RUNS_OF_BUGS))
        ]
    assert not found[0].is_refuted
    assert found[1].is_refuted


def test_slots_for_keys_of_the_data_are_refuted():
    with whole_records():
        plan = tiny_plan(ADD, 0.0, "tight", max_updates=1)
        found = audit_black_box(
            *(outcomes_of(SlotsForTheData, plan, data) for data in ((0, 0, 1), (0, 0))),
            plan.guarantee.epsilon,
            runs=RUNS_OF_BUGS,
        )
    assert found.is_refuted

"""Whole runs of online mechanisms, with the production noise, on two neighbouring data sets.

A correct mechanism is refuted with probability 1e-6 at most; the exact law says what each audit
should see, and the floor of 0.8 lies far below that.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from private_mw_laws import cells, tiny_plan, whole_records
from sparse_vector_laws import transcript_law
from tiny import ADD, REPLACE, promise

from beam_dp.mechanisms.private_mw import PrivateMW
from beam_dp.mechanisms.sparse_vector import NumericSparse
from beam_dp.mechanisms.sparse_vector_noise import sparse_vector_noise
from beam_dp.noise import NoiseSource
from beam_dp.summaries import Histogram
from beam_dp.testing.audit import audit_black_box

pytestmark = pytest.mark.audit

EPSILON = 6.0  # so that a few thousand runs see much of it
RUNS = 4000
LENGTH = 4
# Questions that all move by one with a record, the last of them the other way.
SIGNS = (1, 1, 1, -1)


def questions(data: int, transcript: tuple[Any, ...]) -> tuple[int, int] | None:
    if len(transcript) == LENGTH:
        return None
    value = SIGNS[len(transcript)] * data
    return value, value


def numeric_sparse(noise, data: int, threshold: int = 1, **named):
    def run(runs: int) -> list[tuple[Any, ...]]:
        outcomes = []
        for _ in range(runs):
            mechanism = NumericSparse(threshold, noise, NoiseSource())
            transcript: tuple[Any, ...] = ()
            while not mechanism.has_halted and (asked := questions(data, transcript)) is not None:
                said = mechanism.ask(*asked)
                clipped = False if said is None else min(max(said, -2), 2)
                transcript = (*transcript, clipped)
            outcomes.append(transcript)
        return outcomes

    return run


def audit_sparse(noise, claimed):
    laws = tuple(transcript_law(noise, 1, data, questions, low=-2, high=2) for data in (0, 1))
    samples = [numeric_sparse(claimed, data) for data in (0, 1)]

    def likelihood_ratio(transcript: tuple[Any, ...]) -> float:
        return math.log(laws[0][transcript]) - math.log(laws[1][transcript])

    return audit_black_box(*samples, EPSILON, runs=RUNS, laws=laws, score=likelihood_ratio)


def test_numeric_sparse_passes_and_with_half_its_noise_does_not():
    noise = sparse_vector_noise(promise(ADD, 0.0, EPSILON), 1, answers=True, answer_share=0.5)
    found = audit_sparse(noise, noise)
    assert found.passes, found
    half = dataclasses.replace(
        noise,
        threshold_scale=noise.threshold_scale / 2,
        question_scale=noise.question_scale / 2,
        answer_scale=noise.answer_scale / 2,
    )
    assert not audit_sparse(noise, half).passes


class ReadsTheData(PrivateMW):
    """A bug: without a measurement, the exact sum is told."""

    def answer(self, query):
        answer = super().answer(query)
        exact = float(query.count(self._counts))
        return answer if answer.route == "update" else dataclasses.replace(answer, value=exact)


def private_mw(kind, plan, data):
    def run(runs: int) -> list[Any]:
        outcomes = []
        for _ in range(runs):
            counts = np.bincount(data, minlength=plan.domain.num_cells).astype(np.int64)
            fresh = kind(plan, Histogram(plan.domain, counts), NoiseSource())
            answers = [fresh.answer(cells(plan.domain, code)) for code in (0, 1)]
            outcomes.append(
                tuple((answer.route, min(max(round(answer.value), -1), 3)) for answer in answers)
            )
        return outcomes

    return run


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_private_mw_is_not_refuted_and_one_that_reads_the_data_is(neighboring):
    pair = ((0, 0, 0), (0, 0)) if neighboring == ADD else ((0, 0, 0), (0, 0, 1))
    with whole_records():
        plan = tiny_plan(neighboring, 0.0, "tight", max_updates=1)
        good, bad = (
            audit_black_box(
                *(private_mw(kind, plan, data) for data in pair), plan.guarantee.epsilon, runs=1500
            )
            for kind in (PrivateMW, ReadsTheData)
        )
    assert not good.is_refuted
    assert bad.is_refuted

"""The exact law of online multiplicative weights on tiny neighbours.

The law is that of the real code: its sparse vector is replaced by a probe that plays back a
transcript and catches the next question.
"""

from __future__ import annotations

import dataclasses

import pytest
from noise_sources import NoNoise
from private_mw_laws import cells, law_of, probed, run_of, tiny_plan, whole_records
from tiny import ADD, REPLACE, domain_of, promise

from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.testing.audit import audit_law

PLANS = [
    (REPLACE, 0.0, "tight", {}),
    (ADD, 0.0, "tight", {}),
    (ADD, 1e-6, "tight", {"most": 2}),
    (REPLACE, 0.0, "tight", {"most": 2, "max_updates": 2}),
    (ADD, 0.0, "tight", {"max_updates": 2, "max_error": 0.3}),
    (ADD, 0.0, "textbook", {"max_error": 0.99}),
    (REPLACE, 1e-6, "textbook", {"max_error": 0.99}),
]


@pytest.mark.mostly_slow(one_in=3, start=1)
@pytest.mark.parametrize("neighboring, delta, calibration, named", PLANS)
def test_exact_law_keeps_the_promise(neighboring, delta, calibration, named):
    with whole_records():
        plan = tiny_plan(neighboring, delta, calibration, **named)
        found = audit_law(law_of(plan), range(3), plan.guarantee, num_others=2)
    assert found.is_private, found
    assert found.epsilon > 0.02


def test_exact_law_with_a_noisy_number_of_records():
    with whole_records():
        plan = tiny_plan(ADD, 0.0, "tight", num_records="noisy")
        found = audit_law(law_of(plan), range(3), plan.guarantee, num_others=1)
    assert found.is_private and found.epsilon > 0.1, found


class DirectionFromTheData(PrivateMW):
    """A bug: the exact sum says where the hypothesis goes."""

    def _learn(self, query, mean, noisy, sign):
        exact = query.count(self._counts)
        return super()._learn(query, mean, noisy, 1 if exact > mean * self.settings.total else -1)


class TellsTheSum(PrivateMW):
    """A bug: what the hypothesis answers is nearly the exact sum."""

    def answer(self, query):
        answer = super().answer(query)
        exact = query.count(self._counts) / GRID
        return dataclasses.replace(answer, value=answer.value + 1e-9 * exact)


class KnowsTheNumberOfRecords(PrivateMW):
    """A bug: N is counted."""

    def __init__(self, plan, histogram, noise, **named):
        super().__init__(plan, histogram, noise, **named)
        total = int(histogram.counts.sum())
        self.settings = dataclasses.replace(self.settings, total=max(1, total))


def public_outputs(kind, plan, data, transcript) -> list:
    run = probed(kind, plan, data, transcript, 3)
    queries = [cells(plan.domain, *codes) for codes in ((0,), (1,), (0, 1), (1, 2))]
    return [
        [(run.answer(query), run._hypothesis.mean(query)) for query in queries],
        run.weights.tolist(),
        [answer for _, answer in run.transcript],
    ]


TRANSCRIPTS = [
    (False, False, False, False),
    (False, 40000, False, False),
    (200000, False, False, False),
    (-7, 90000),
]


def is_post_processing(kind) -> bool:
    plan = tiny_plan(ADD, 0.0, "tight", max_updates=2)
    data = [(), (0,), (0, 1, 2), (1, 1, 1), (0, 0, 0, 0, 2)]
    return all(
        public_outputs(kind, plan, data[0], transcript)
        == public_outputs(kind, plan, each, transcript)
        for transcript in TRANSCRIPTS
        for each in data
    )


def test_output_is_post_processing_of_the_sparse_vector():
    assert is_post_processing(PrivateMW)


@pytest.mark.parametrize("bug", [DirectionFromTheData, TellsTheSum, KnowsTheNumberOfRecords])
def test_runs_that_leak_data_are_caught(bug):
    assert not is_post_processing(bug)


class ScaledQuestion(PrivateMW):
    """A bug: the difference is asked at twice its size."""

    def _ask(self, query, guess):
        noisy = self._sparse.ask(
            2 * abs(query.count(self._counts) - guess), 2 * query.count(self._counts)
        )
        return None if noisy is None else (noisy, 1)


def test_question_of_twice_the_sensitivity_is_caught():
    with whole_records():
        plan = tiny_plan(ADD, 0.0, "tight", max_updates=1)
        assert audit_law(law_of(plan), range(3), plan.guarantee).is_private
        half = dataclasses.replace(plan.guarantee, epsilon=0.5)
        wasteful = dataclasses.replace(plan, guarantee=half)
        epsilons = [
            audit_law(law_of(wasteful, kind), range(3), plan.guarantee).epsilon
            for kind in (PrivateMW, ScaledQuestion)
        ]
    assert epsilons[0] <= 0.5 * (1 + 1e-9) and epsilons[1] > 1.5 * epsilons[0]


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("most", [1, 3])
def test_noise_that_is_drawn_is_that_of_the_plan(neighboring, delta, most):
    plan = plan_private_mw(
        domain_of(4), promise(neighboring, delta, 1.0, most), 1000, num_questions=5
    )
    source = NoNoise()
    run = run_of(plan, [900, 0, 0, 100], source)
    run.answer(cells(plan.domain, 0))
    settings = plan.settle(1000)
    needed = {settings.noise.threshold_scale, settings.noise.question_scale}
    for scale in needed:
        assert any(draw.scale >= scale * GRID * (1 - 1e-12) for draw in source.draws)
    smallest = min(settings.noise.threshold_scale, settings.noise.question_scale)
    assert all(draw.scale >= smallest * GRID for draw in source.draws if draw.kind == "laplace")
    guarantee = dataclasses.replace(plan.guarantee, max_records_per_unit=1, privacy_unit="record")
    one = plan_private_mw(domain_of(4), guarantee, 1000, num_questions=5, max_error=0.2)
    many = dataclasses.replace(one, guarantee=plan.guarantee)
    assert (
        many.settle(1000).noise.question_scale >= most * one.settle(1000).noise.question_scale / 3
    )


def test_privacy_depends_on_no_accuracy_parameter():
    """The epsilon of the noise is the same, whatever alpha, beta, K and N are."""
    for alpha, beta, questions, total in ((0.1, 0.05, 10, 10**6), (0.3, 0.5, 10**6, 7)):
        plan = plan_private_mw(
            domain_of(64),
            promise(REPLACE),
            total,
            num_questions=questions,
            failure_probability=beta,
            max_error=alpha,
        )
        noise = plan.settle(total).noise
        spent = 1 / noise.threshold_scale + noise.max_above * (
            2 / noise.question_scale + 1 / noise.answer_scale
        )
        assert noise.method == "pure" and 0.999999 < spent <= 1
        assert plan.loss.epsilon == 1.0

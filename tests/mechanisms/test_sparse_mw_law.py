"""The exact law of sparse online multiplicative weights on tiny neighbours.

The law is that of the real code, as in ``test_private_mw_law``.
"""

from __future__ import annotations

import dataclasses
import json

import pytest
from noise_sources import NoNoise
from private_mw_laws import law_of, whole_records
from sparse_mw_laws import interact, member, probed, run_of, simple_plan, tiny_plan
from tiny import ADD, REPLACE, promise

from beam_dp.errors import InputError
from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.sparse_mw import SparseMW, plan_sparse_mw
from beam_dp.models.weights import SparseWeights
from beam_dp.queries.sparse import SparseQuery
from beam_dp.summaries.element_counts import KeyCounts
from beam_dp.testing.audit import audit_law

PLANS = [
    (REPLACE, 0.0, "tight", {}),
    (ADD, 0.0, "tight", {}),
    (ADD, 1e-6, "tight", {"most": 2}),
    (REPLACE, 0.0, "tight", {"most": 2, "max_updates": 2}),
    (ADD, 0.0, "tight", {"max_updates": 2, "max_error": 0.3}),
    (ADD, 0.0, "textbook", {"max_sparsity": 1}),
    (REPLACE, 1e-6, "textbook", {"max_sparsity": 1}),
]


def sparse_law(plan, kind=SparseMW, **named):
    return law_of(plan, kind, probed=probed, interact=interact, **named)


@pytest.mark.mostly_slow(one_in=3, start=1)
@pytest.mark.parametrize("neighboring, delta, calibration, named", PLANS)
def test_exact_law_keeps_the_promise(neighboring, delta, calibration, named):
    if calibration == "textbook":
        named = {**named, "max_sparsity": 2}
    with whole_records():
        plan = tiny_plan(neighboring, delta, calibration, **named)
        found = audit_law(sparse_law(plan), range(3), plan.guarantee, num_others=2)
    assert found.is_private, found
    assert found.epsilon > 0.01


def test_exact_law_with_a_noisy_number_of_records():
    with whole_records():
        plan = tiny_plan(ADD, 0.0, "tight", num_records="noisy")
        found = audit_law(sparse_law(plan), range(3), plan.guarantee, num_others=1)
    assert found.is_private and found.epsilon > 0.1, found


class ScaledQuestion(SparseMW):
    """A bug: the sum is asked at twice its size."""

    def _exact(self, query):
        return 2 * super()._exact(query)


def test_question_of_twice_the_sensitivity_is_caught():
    with whole_records():
        plan = tiny_plan(ADD, 0.0, "tight", max_updates=1)
        assert audit_law(sparse_law(plan), range(3), plan.guarantee).is_private
        half = dataclasses.replace(plan.guarantee, epsilon=0.5)
        wasteful = dataclasses.replace(plan, guarantee=half)
        epsilons = [
            audit_law(sparse_law(wasteful, kind), range(3), plan.guarantee).epsilon
            for kind in (SparseMW, ScaledQuestion)
        ]
    assert epsilons[0] <= 0.5 * (1 + 1e-9) and epsilons[1] > 1.5 * epsilons[0]


def many_questions(run):
    """Eight that a record of a moves up, then one that it moves down when it becomes b."""
    for number in range(8):
        run.answer(SparseQuery.of_list(["a", number]))
    return run.answer(member("b"))


def test_comparison_noise_in_the_answer_is_caught():
    with whole_records():
        plan = tiny_plan(REPLACE, 0.0, "tight", max_updates=1, epsilon=2.0)

        def found(**named):
            law = law_of(
                plan, SparseMW, probed=probed, interact=many_questions, low=-9, high=0, **named
            )
            return audit_law(law, range(2), plan.guarantee, num_others=0)

        assert found().is_private
        assert not found(reuses_comparison_noise=True).is_private


# Everything else is computed from what the sparse vector said.


class SlotsFromTheData(SparseMW):
    """A bug: updates give slots only to keys that have records."""

    def _learn(self, query, mean, noisy, sign):
        held = [key for key in query.elements if key in self._counts]
        return super()._learn(member(held), mean, noisy, sign)


class SlotsForTheData(SparseMW):
    """A bug: every key of the data has a slot from the start."""

    def __init__(self, plan, records, noise):
        super().__init__(plan, records, noise)
        self._hypothesis = SparseWeights(self.num_slots + len(records.counts))


class DirectionFromTheData(SparseMW):
    """A bug: the exact sum says where the hypothesis goes."""

    def _learn(self, query, mean, noisy, sign):
        exact = self._exact(query) / GRID
        return super()._learn(query, mean, noisy, 1 if exact > mean * self.settings.total else -1)


class TellsTheSum(SparseMW):
    """A bug: what the hypothesis answers is nearly the exact sum."""

    def answer(self, query):
        answer = super().answer(query)
        return dataclasses.replace(answer, value=answer.value + 1e-9 * self._exact(query) / GRID)


class KnowsTheNumberOfRecords(SparseMW):
    """A bug: N is counted."""

    def __init__(self, plan, records, noise):
        super().__init__(plan, records, noise)
        self.settings = dataclasses.replace(self.settings, total=max(1, records.num_records))


class RefusesUnknownKeys(SparseMW):
    """A bug: a key without records is refused."""

    def _check(self, query):
        super()._check(query)
        if not any(key in self._counts for key in query.elements):
            raise InputError("query", query.elements, "must have a known key")


TRANSCRIPTS = [
    (False, False, False, False),
    (False, 40000, False, False),
    (200000, False, False, False),
    (-7, 90000),
]


def public_outputs(kind, plan, data, transcript) -> list:
    run = probed(kind, plan, data, transcript, 3)
    answers = []
    for keys in ("a", "b", "ab", "bz"):
        try:
            answers.append((run.answer(member(keys)), run._hypothesis.mean(member(keys))))
        except InputError as error:
            answers.append(str(error))
    told = [answer for _, answer in run.transcript]
    return [answers, run.weights, run.common_weight, run.num_slots, run.updates_left, told]


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
    assert is_post_processing(SparseMW)


@pytest.mark.parametrize(
    "bug",
    [
        SlotsFromTheData,
        SlotsForTheData,
        DirectionFromTheData,
        TellsTheSum,
        KnowsTheNumberOfRecords,
        RefusesUnknownKeys,
    ],
)
def test_runs_that_leak_data_are_caught(bug):
    assert not is_post_processing(bug)


def test_text_never_contains_data_keys():
    run = run_of(simple_plan(), KeyCounts({"secret@example.org": 5, b"secret": 1}))
    run.answer(member("ab"))
    shown = [repr(run), repr(run.transcript), repr(run.settings), repr(run.weights)]
    shown += [repr(KeyCounts({"secret": 5})), json.dumps(run.settings.to_json())]
    shown.append(json.dumps(run.plan.public))
    for query in (SparseQuery.of_list("abcd"), "secret", None):
        with pytest.raises(InputError) as caught:
            run.answer(query)
        shown.append(str(caught.value) if query != "secret" else "")
    assert not any("secret" in text for text in shown)


@pytest.mark.mostly_slow(one_in=2, start=1)
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("most", [1, 3])
def test_noise_that_is_drawn_is_that_of_the_plan(neighboring, delta, most):
    num_records = "noisy" if neighboring == ADD else 1000
    plan = plan_sparse_mw(
        promise(neighboring, delta, 1.0, most), num_records, max_sparsity=3, num_questions=5
    )
    source = NoNoise()
    run = run_of(plan, KeyCounts({"a": 900, "b": 100}), source)
    run.answer(member("a"))
    noise = run.settings.noise
    scales = {round(draw.scale, 3) for draw in source.draws}
    expected = [scale * GRID for scale in (noise.threshold_scale, noise.question_scale)]
    if num_records == "noisy":
        expected.append(plan.count_scale)
    assert {round(scale, 3) for scale in expected} <= scales
    assert all(draw.scale >= min(expected) for draw in source.draws if draw.kind == "laplace")

"""The exact law of online multiplicative weights on tiny neighbours, dense and sparse.

The law is that of the real code: its sparse vector is replaced by a probe that plays back a
transcript and catches the next question.
"""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import private_mw_laws
import pytest
import sparse_mw_laws
from noise_sources import NoNoise
from private_mw_laws import cells, law_of, whole_records
from sparse_mw_laws import member, run_of, simple_plan
from tiny import ADD, REPLACE, domain_of, promise

from beam_dp.errors import InputError
from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import SparseMW, plan_sparse_mw
from beam_dp.models.weights import SparseWeights
from beam_dp.queries.sparse import SparseQuery
from beam_dp.summaries.element_counts import KeyCounts
from beam_dp.testing.audit import audit_law

LAWS: dict[Any, Any] = {PrivateMW: private_mw_laws, SparseMW: sparse_mw_laws}
RUNS = pytest.mark.parametrize("run", LAWS)
PLANS = [
    (REPLACE, 0.0, "tight", {}),
    (ADD, 0.0, "tight", {}),
    (ADD, 1e-6, "tight", {"most": 2}),
    (REPLACE, 0.0, "tight", {"most": 2, "max_updates": 2}),
    (ADD, 0.0, "tight", {"max_updates": 2, "max_error": 0.3}),
    (ADD, 0.0, "textbook", {"max_error": 0.99}),
    (REPLACE, 1e-6, "textbook", {"max_error": 0.99}),
]


def audited(run, plan, kind=None, num_others=2, promised=None):
    laws = LAWS[run]
    law = law_of(plan, kind or run, probed=laws.probed, interact=laws.interact)
    return audit_law(law, range(3), promised or plan.guarantee, num_others=num_others)


@pytest.mark.part
@RUNS
@pytest.mark.parametrize("neighboring, delta, calibration, named", PLANS)
def test_exact_output_distribution_is_private(neighboring, delta, calibration, named, run):
    with whole_records():
        found = audited(run, LAWS[run].tiny_plan(neighboring, delta, calibration, **named))
    assert found.is_private, found
    assert found.epsilon > (0.02 if run is PrivateMW else 0.01)


@RUNS
def test_exact_distribution_with_noisy_number_of_records_is_private(run):
    with whole_records():
        plan = LAWS[run].tiny_plan(ADD, 0.0, "tight", num_records="noisy")
        found = audited(run, plan, num_others=1)
    assert found.is_private and found.epsilon > 0.1, found


class ScaledQuestion:
    """A bug: the difference is asked at twice its size."""

    def _ask(self: Any, query, guess):
        exact = self._exact(query)
        noisy = self._sparse.ask(2 * abs(exact - guess), 2 * exact)
        return None if noisy is None else (noisy, 1)


class ScaledSum:
    """A bug: the sum is asked at twice its size."""

    def _exact(self, query):
        return 2 * super()._exact(query)  # type: ignore[misc]


class DirectionFromTheData:
    """A bug: the exact sum says where the hypothesis goes."""

    def _learn(self: Any, query, mean, noisy, sign):
        exact = self._exact(query) / GRID
        sign = 1 if exact > mean * self.settings.total else -1
        return super()._learn(query, mean, noisy, sign)  # type: ignore[misc]


class TellsTheSum:
    """A bug: what the hypothesis answers is nearly the exact sum."""

    def answer(self: Any, query):
        answer = super().answer(query)  # type: ignore[misc]
        return dataclasses.replace(answer, value=answer.value + 1e-9 * self._exact(query) / GRID)


class KnowsTheNumberOfRecords:
    """A bug: N is counted."""

    def __init__(self, plan, held, noise, **named):
        super().__init__(plan, held, noise, **named)  # type: ignore[call-arg]
        is_sparse = isinstance(held, KeyCounts)
        total = held.num_records if is_sparse else int(held.counts.sum())
        self.settings = dataclasses.replace(self.settings, total=max(1, total))  # type: ignore[has-type]


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


class RefusesUnknownKeys(SparseMW):
    """A bug: a key without records is refused."""

    def _check(self, query):
        super()._check(query)
        if not any(key in self._counts for key in query.elements):
            raise InputError("query", query.elements, "must have a known key")


def with_bug(bug, run):
    return type(bug.__name__, (bug, run), {})


@RUNS
@pytest.mark.parametrize("bug", [ScaledQuestion, ScaledSum])
def test_detects_questions_with_twice_the_sensitivity(bug, run):
    with whole_records():
        plan = LAWS[run].tiny_plan(ADD, 0.0, "tight", max_updates=1)
        assert audited(run, plan).is_private
        half = dataclasses.replace(plan.guarantee, epsilon=0.5)
        wasteful = dataclasses.replace(plan, guarantee=half)
        right, wrong = (
            audited(run, wasteful, kind, promised=plan.guarantee).epsilon
            for kind in (run, with_bug(bug, run))
        )
    assert right <= 0.5 * (1 + 1e-9) and wrong > 1.5 * right


def many_questions(run):
    """Eight that a record of a moves up, then one that it moves down when it becomes b."""
    for number in range(8):
        run.answer(SparseQuery.of_list(["a", number]))
    return run.answer(member("b"))


def test_detects_answers_that_reuse_the_comparison_noise():
    with whole_records():
        plan = sparse_mw_laws.tiny_plan(REPLACE, 0.0, "tight", max_updates=1, epsilon=2.0)
        playing = {"probed": sparse_mw_laws.probed, "interact": many_questions}

        def found(**named):
            law = law_of(plan, SparseMW, **playing, low=-9, high=0, **named)
            return audit_law(law, range(2), plan.guarantee, num_others=0)

        assert found().is_private
        assert not found(reuses_comparison_noise=True).is_private


# Everything else is computed from what the sparse vector said.


TRANSCRIPTS = [
    (False, False, False, False),
    (False, 40000, False, False),
    (200000, False, False, False),
    (-7, 90000),
]


def public_outputs(run, kind, plan, data, transcript) -> list:
    made = LAWS[run].probed(kind, plan, data, transcript, 3)
    if run is PrivateMW:
        queries = [cells(plan.domain, *codes) for codes in ((0,), (1,), (0, 1), (1, 2))]
        weights = [made.weights.tolist()]
    else:
        queries = [member(keys) for keys in ("a", "b", "ab", "bz")]
        weights = [made.weights, made.common_weight, made.num_slots]
    answers = []
    for query in queries:
        try:
            answers.append((made.answer(query), made._hypothesis.mean(query)))
        except InputError as error:
            answers.append(str(error))
    said = [answer for _, answer in made.transcript]
    return [answers, *weights, made.updates_left, said]


def is_post_processing(run, kind) -> bool:
    plan = LAWS[run].tiny_plan(ADD, 0.0, "tight", max_updates=2)
    data = [(), (0,), (0, 1, 2), (1, 1, 1), (0, 0, 0, 0, 2)]
    return all(
        public_outputs(run, kind, plan, data[0], transcript)
        == public_outputs(run, kind, plan, each, transcript)
        for transcript in TRANSCRIPTS
        for each in data
    )


@RUNS
def test_output_depends_on_data_only_through_the_sparse_vector(run):
    assert is_post_processing(run, run)


@RUNS
@pytest.mark.parametrize("bug", [DirectionFromTheData, TellsTheSum, KnowsTheNumberOfRecords])
def test_detects_runs_that_leak_data(bug, run):
    assert not is_post_processing(run, with_bug(bug, run))


@pytest.mark.parametrize("bug", [SlotsFromTheData, SlotsForTheData, RefusesUnknownKeys])
def test_detects_sparse_runs_that_leak_keys(bug):
    assert not is_post_processing(SparseMW, bug)


def test_representations_and_errors_never_contain_data_keys():
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


@RUNS
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("most", [1, 3])
def test_drawn_noise_has_the_planned_scales(neighboring, delta, most, run):
    guarantee, source = promise(neighboring, delta, 1.0, most), NoNoise()
    num_records = "noisy" if neighboring == ADD else 1000
    plan: Any
    if run is PrivateMW:
        plan = plan_private_mw(domain_of(4), guarantee, num_records, num_questions=5)
        made = private_mw_laws.run_of(plan, [900, 0, 0, 100], source)
        made.answer(cells(plan.domain, 0))
    else:
        plan = plan_sparse_mw(guarantee, num_records, max_sparsity=3, num_questions=5)
        made = run_of(plan, KeyCounts({"a": 900, "b": 100}), source)
        made.answer(member("a"))
    noise = made.settings.noise
    scales = {round(draw.scale, 3) for draw in source.draws}
    expected = [scale * GRID for scale in (noise.threshold_scale, noise.question_scale)]
    if num_records == "noisy":
        expected.append(plan.count_scale)
    assert {round(scale, 3) for scale in expected} <= scales
    assert all(draw.scale >= min(expected) for draw in source.draws if draw.kind == "laplace")


def test_privacy_does_not_depend_on_accuracy_parameters():
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

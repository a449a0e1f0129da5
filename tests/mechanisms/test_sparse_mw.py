"""Sparse online multiplicative weights: printed numbers, the exact law on tiny neighbours, slots.

The law is that of the real code, as in ``test_private_mw``. Seeded noise never fails by chance on
unchanged code.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from private_mw_laws import law_of, whole_records
from sparse_mw_laws import interact, member, probed, records, tiny_plan
from tiny import ADD, REPLACE, promise

from beam_dp.errors import InputError
from beam_dp.hypotheses.sparse_weights import SparseWeights
from beam_dp.mechanisms.online_plan import GRID
from beam_dp.mechanisms.sparse_mw import SparseMW
from beam_dp.mechanisms.sparse_mw_plan import num_slots, num_updates, plan_sparse_mw
from beam_dp.mechanisms.sparse_mw_state import resume_sparse_mw, save_sparse_mw
from beam_dp.mechanisms.sparse_vector import HaltedError
from beam_dp.noise import NoiseSource
from beam_dp.queries.sparse import SparseQuery
from beam_dp.summaries import KeyCounts
from beam_dp.testing.audit import audit_law

CALIBRATIONS = ["tight", "textbook"]

# Printed numbers.


@pytest.mark.parametrize(
    "sparsity, alpha, textbook, tight",
    [
        (1, 0.5, (88, 87), (4, 2)),
        (4, 0.25, (2230, 557), (165, 40)),
        (10, 0.1, (47035, 4703), (4171, 416)),
        (100, 0.1, (570146, 5701), (54601, 545)),
        (1000, 0.05, (29097882, 29097), (2982001, 2981)),
    ],
)
def test_known_slots_and_updates(sparsity, alpha, textbook, tight):
    for calibration, expected in (("textbook", textbook), ("tight", tight)):
        slots = num_slots(sparsity, alpha, calibration)
        assert (slots, num_updates(slots, alpha, calibration)) == expected
        plan = plan_sparse_mw(
            promise(REPLACE),
            10**9,
            max_sparsity=sparsity,
            num_questions=1000,
            max_error=alpha,
            calibration=calibration,
        )
        settings = plan.settle(10**9)
        assert (plan.num_slots(alpha), settings.noise.max_above) == expected
        assert settings.exhausted_bound is not None


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("sparsity, alpha", [(1, 0.9), (1, 0.5), (2, 0.37), (7, 0.2)])
def test_slots_are_the_least_that_do(calibration, sparsity, alpha):
    def is_enough(slots):
        if calibration == "textbook":
            return slots / (math.log(slots) + 1) >= 4 * sparsity / alpha**2
        return slots >= sparsity * (math.floor(math.log(slots) / (2 * alpha**2)) + 1) + 1

    found = num_slots(sparsity, alpha, calibration)
    assert found == next(slots for slots in itertools.count(2) if is_enough(slots))
    for least in (found - 1, found + 1, 5 * found):
        slots = num_slots(sparsity, alpha, calibration, max(2, least))
        assert slots >= least and is_enough(slots)


def test_the_step_and_the_thresholds_are_those_of_dense_weights():
    plan = plan_sparse_mw(
        promise(REPLACE), 10**6, max_sparsity=10, num_questions=1000, max_error=0.1
    )
    settings = plan.settle(10**6)
    assert settings.learning_rate == pytest.approx(4 * settings.gap / 10**6)
    textbook = dataclasses.replace(plan, calibration="textbook").settle(10**8)
    assert textbook.learning_rate == 0.05 and textbook.threshold == 0.2 * 10**8 * GRID
    # The textbook's theorem has 4 (ln s + 1) / alpha^2 updates for 4 ln|X| / alpha^2.
    best = dataclasses.replace(plan, calibration="textbook", max_error=None)
    total = 10**8
    alpha = best.settle(total).max_error
    divergence = math.log(plan_slots := best.num_slots(alpha)) + 1
    log_term = math.log(1000) + math.log(32 * divergence / (alpha**2 * 0.05))
    assert plan_slots > 1000
    assert alpha == pytest.approx(36 * divergence * log_term / (alpha**2 * total), rel=1e-6)


# The hypothesis.


@pytest.mark.parametrize("rate", [0.25, 2.0])
def test_the_sparse_hypothesis_is_a_dense_one_on_slots(rate):
    generator = np.random.default_rng(0)
    num_elements, slots = 12, 40
    sparse, dense = SparseWeights(slots), np.zeros(slots)
    for _ in range(300):
        chosen = generator.choice(num_elements, 3, replace=False).tolist()
        values = generator.integers(1, 2**16 + 1, 3) / 2**16
        query = SparseQuery(dict(zip(chosen, values.tolist(), strict=True)))
        step = rate * generator.choice([-1, 1])
        sparse.update(query, step)
        dense[chosen] += step * values
        weights = np.exp(dense - dense.max())
        weights /= weights.sum()
        assert sparse.mean(query) == pytest.approx(float(values @ weights[chosen]), rel=1e-9)
        assert sparse.common_weight == pytest.approx(weights[-1], rel=1e-9)
        partly = SparseQuery({chosen[0]: 1, "new": 0.5})
        assert sparse.mean(partly) == pytest.approx(weights[chosen[0]] + weights[-1] / 2, rel=1e-9)
        assert sparse.weights == pytest.approx(
            {element: weights[element] for element in sparse.weights}, rel=1e-9
        )


def test_weights_stay_exact_where_they_would_overflow_or_vanish():
    hypothesis = SparseWeights(10)
    for _ in range(500):
        hypothesis.update(member("a"), 4.0)
        hypothesis.update(member("b"), -4.0)
    assert hypothesis.mean(member("a")) == 1.0
    assert hypothesis.mean(member("b")) == hypothesis.common_weight == 0.0
    for _ in range(500):
        hypothesis.update(member("a"), -4.0)
        hypothesis.update(member("b"), 4.0)
    assert hypothesis.mean(member("a")) == pytest.approx(0.1, rel=1e-6)
    assert hypothesis.mean(member("b")) == pytest.approx(0.1, rel=1e-6)
    assert hypothesis.common_weight == pytest.approx(0.1, rel=1e-6)


def test_a_hypothesis_with_too_few_slots_goes_on():
    hypothesis = SparseWeights(3)
    for number in range(20):
        hypothesis.update(SparseQuery.of_list([number, -1]), 0.3)
        total = sum(hypothesis.weights.values()) + hypothesis.num_free * hypothesis.common_weight
        assert total == pytest.approx(1) and hypothesis.num_free >= 1


# The exact law of the code.


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


@pytest.mark.parametrize("neighboring, delta, calibration, named", PLANS)
def test_the_exact_law_keeps_the_promise(neighboring, delta, calibration, named):
    if calibration == "textbook":
        named = {**named, "max_sparsity": 2}
    with whole_records():
        plan = tiny_plan(neighboring, delta, calibration, **named)
        found = audit_law(sparse_law(plan), range(3), plan.guarantee, num_others=2)
    assert found.is_private, found
    assert found.epsilon > 0.01


def test_the_exact_law_with_a_noisy_number_of_records():
    with whole_records():
        plan = tiny_plan(ADD, 0.0, "tight", num_records="noisy")
        found = audit_law(sparse_law(plan), range(3), plan.guarantee, num_others=1)
    assert found.is_private and found.epsilon > 0.1, found


class ScaledQuestion(SparseMW):
    """A bug: the sum is asked at twice its size."""

    def _exact(self, query):
        return 2 * super()._exact(query)


def test_a_question_of_twice_the_sensitivity_is_caught():
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
            answers.append((run.answer(member(keys)), run.explain(member(keys))))
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


def test_everything_else_is_computed_from_what_the_sparse_vector_said():
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
def test_what_depends_on_the_data_otherwise_is_caught(bug):
    assert not is_post_processing(bug)


def test_keys_of_the_data_are_in_no_text():
    run = run_of(simple_plan(), KeyCounts({"secret@example.org": 5, b"secret": 1}))
    run.answer(member("ab"))
    shown = [repr(run), repr(run.transcript), repr(run.explain(member("a"))), repr(run.weights)]
    shown += [repr(KeyCounts({"secret": 5})), json.dumps(run.settings.to_json())]
    shown.append(json.dumps(run.plan.to_json()))
    for query in (SparseQuery.of_list("abcd"), "secret", None):
        with pytest.raises(InputError) as caught:
            run.answer(query)
        shown.append(str(caught.value) if query != "secret" else "")
    assert not any("secret" in text for text in shown)


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("most", [1, 3])
def test_the_noise_that_is_drawn_is_that_of_the_plan(neighboring, delta, most):
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


# Accuracy.


def run_of(plan, held, noise=None, kind=SparseMW) -> SparseMW:
    return kind(plan, held, noise or NoNoise())


def simple_plan(**named):
    named = {"max_sparsity": 3, "num_questions": 4, "max_updates": 2, **named}
    return plan_sparse_mw(promise(REPLACE, 0.0, 5.0), 80_000, **named)


def test_without_a_slot_that_is_never_taken_the_claim_is_false():
    """m = 1, alpha = 1/2: two slots would allow one update, and an adversary needs two."""

    def worst_after(slots, updates):
        hypothesis = SparseWeights(slots)  # of data that hold no key of any query
        for number in range(updates):
            query = SparseQuery.of_list([number])
            if hypothesis.mean(query) < 0.5:
                return hypothesis.mean(query)
            hypothesis.update(query, -2.0)
        return hypothesis.mean(SparseQuery.of_list(["new"]))

    assert num_updates(2, 0.5, "tight") == 1
    assert worst_after(2, 1) == pytest.approx(0.8808, abs=1e-4)
    slots = num_slots(1, 0.5, "tight")
    assert worst_after(slots, num_updates(slots, 0.5, "tight")) < 0.5


@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_slots_never_run_out(calibration):
    """Fresh elements after every update, that no record has, in 1,000 runs; noise at its worst."""
    generator = np.random.default_rng(3)
    for attempt in range(1000):
        sparsity = int(generator.integers(1, 6))
        alpha = float(generator.uniform(0.4 if calibration == "tight" else 0.9, 0.99))
        updates = None
        if calibration == "tight" and attempt % 2:
            updates = int(generator.integers(1, 12))
        plan = plan_sparse_mw(
            promise(REPLACE),
            1000,
            max_sparsity=sparsity,
            num_questions=50,
            max_error=alpha,
            max_updates=updates,
            calibration=calibration,
        )
        run = run_of(plan, KeyCounts({"elsewhere": 1000}), Seeded(attempt))
        slots = run.num_slots
        if attempt % 3:
            # Whatever is asked is found wrong: no more updates are possible.
            run._sparse._threshold = run._sparse._noisy_threshold = -(2**60)
        names = itertools.count()
        query = SparseQuery.of_list(next(names) for _ in range(sparsity))
        for _ in range(run.updates_left + 20):
            if run.answer(query).route != "hypothesis":
                query = SparseQuery.of_list(next(names) for _ in range(sparsity))
        assert run.num_slots == slots and run._hypothesis.num_free >= 1
        assert attempt % 3 == 0 or run.updates_left == 0


def hard_queries(run, held, sparsity, rounds):
    """What is most wrong of new keys and random sets of known ones, then any of these."""
    generator = np.random.default_rng(5)
    total = held.num_records
    popular = sorted(held.counts, key=held.counts.get, reverse=True)[: 4 * sparsity]
    for number in range(rounds):
        asked = [SparseQuery.of_list(f"new{number}.{each}" for each in range(sparsity))]
        known = popular + list(run.weights)
        for _ in range(100):
            size = int(generator.integers(1, sparsity + 1))
            chosen = generator.choice(len(known), size).tolist()
            asked.append(SparseQuery.of_list({known[each] for each in chosen}))
        fresh = [query for query in asked if query not in run._answers]
        yield max(
            fresh if number % 2 == 0 else fresh[-1:],
            key=lambda query: abs(
                query.count(held.counts) / GRID / total - run._hypothesis.mean(query)
            ),
        )


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("mass", [1.0, 0.6])
def test_updates_without_noise_stay_within_their_bound(calibration, mass):
    total, alpha, sparsity = 1_000_000, 0.15, 3
    counts = {f"key{each}": int(total * mass / 5) for each in range(5)}
    counts["elsewhere"] = total - sum(counts.values())
    held = KeyCounts(counts)
    plan = plan_sparse_mw(
        promise(REPLACE, 0.0, 500.0),
        total,
        max_sparsity=sparsity,
        num_questions=10**4,
        max_error=alpha,
        calibration=calibration,
    )
    run = run_of(plan, held)
    # Without noise the threshold can be the error itself.
    gap = math.ceil((2 if calibration == "textbook" else 1) * alpha * total * GRID)
    run._sparse._threshold = run._sparse._noisy_threshold = gap
    rate = 4 * alpha if calibration == "tight" else alpha / 2
    run.settings = dataclasses.replace(run.settings, learning_rate=rate)
    for query in hard_queries(run, held, sparsity, 60 if calibration == "tight" else 300):
        run.answer(query)
    used = run.settings.noise.max_above - run.updates_left
    drop = 2 * alpha**2 if calibration == "tight" else alpha**2 / 4
    assert 3 <= used <= math.log(run.num_slots) / drop


@pytest.mark.parametrize("neighboring, num_records", [(REPLACE, 2_000_000), (ADD, "noisy")])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("calibration", CALIBRATIONS)
def test_every_answer_is_within_its_bound(neighboring, num_records, delta, calibration):
    generator = np.random.default_rng(2)
    drawn = generator.zipf(1.5, 2_000_000)
    keys, counts = np.unique(drawn, return_counts=True)
    names = [f"user{each}@example.org" for each in keys.tolist()]
    held = KeyCounts(dict(zip(names, counts.tolist(), strict=True)))
    plan = plan_sparse_mw(
        promise(neighboring, delta, 20.0),
        num_records,
        max_sparsity=5,
        num_questions=100,
        calibration=calibration,
    )
    run = run_of(plan, held, Seeded(4))
    routes = set()
    for query in hard_queries(run, held, 5, 100):
        answer = run.answer(query)
        routes.add(answer.route)
        assert answer.bound is not None
        assert abs(answer.value - query.count(held.counts) / GRID) <= answer.bound
    if calibration == "tight":
        assert routes == {"hypothesis", "update"} and not run.settings.is_vacuous
    assert run.questions_left == 0
    assert run.answer(member("a")).bound is None


# Behaviour.


def test_repeats_are_free_and_explained():
    run = run_of(simple_plan(), KeyCounts({"a": 80_000}))
    before = run.explain(member("ab"))
    assert before.routes == ("hypothesis", "update") and not before.is_repeat
    first = run.answer(member("ab"))
    assert first.route == "update" and first.value == 80_000 and first.updates_left == 1
    run._counts = None  # data that cannot be read
    assert run.explain(member("ba")).is_repeat
    assert run.answer(member("ba")) == first
    with pytest.raises(AttributeError):
        run.answer(member("a"))


def test_exhausted_runs_leave_the_data_alone():
    run = run_of(simple_plan(max_updates=1), KeyCounts({"a": 80_000}))
    run.answer(member("a"))
    run._counts = None
    answer = run.answer(member("b"))
    assert answer.route == "exhausted" and answer.bound is None


def test_no_records_no_elements_and_any_type():
    plan = plan_sparse_mw(promise(ADD, 1e-9), "noisy", max_sparsity=2, num_questions=3)
    run = run_of(plan, KeyCounts({}), NoiseSource())
    assert run.settings.total >= 1
    assert math.isfinite(run.answer(SparseQuery({})).value)
    assert abs(run.answer(SparseQuery({1: 1, b"1": 0.5})).value) <= run.settings.hypothesis_bound
    held = KeyCounts.of(["1", 1, b"1", "1", True, 1.0, None, ["1"], {}, math.nan])
    assert held.counts == {"1": 2, 1: 1, b"1": 1} and held.num_records == 4
    assert records((0, 0, 2)).counts == {"a": 2, "c": 1}


def test_refusals():
    def refused(match, num_records=100, guarantee=None, **named):
        named = {"num_questions": 10, "max_sparsity": 4, **named}
        with pytest.raises(InputError, match=match):
            plan_sparse_mw(guarantee or promise(REPLACE), num_records, **named)

    for sparsity in (0, -1, 2.0, True, 2**31 + 1, math.nan):
        refused("max_sparsity", max_sparsity=sparsity)
    refused("public under replace_one", num_records="noisy")
    refused("num_records", num_records=0)
    refused("num_questions", num_questions=0)
    for value in (0.0, 1.0, math.nan):
        refused("failure_probability", failure_probability=value)
    for value in (0.0, 1.0, math.nan, 1e-300):
        refused("max_error", max_error=value)
    refused("more than 2\\^31 updates", max_error=1e-6)
    refused("max_updates", max_updates=0)
    refused("must be 'tight'", calibration="textbook", max_updates=3)
    refused("calibration", calibration="best")
    run = run_of(simple_plan(), KeyCounts({"a": 5}))
    for ask in (run.answer, run.explain):
        with pytest.raises(InputError, match="'4 elements' is refused; must have at most"):
            ask(member("abcd"))
        for query in ({"a": 1}, "a", None):
            with pytest.raises(InputError, match="must be a SparseQuery"):
                ask(query)
    # Zeros do not count.
    run.answer(SparseQuery({"a": 1, "b": 1, "c": 1, "d": 0}))
    assert run.questions_left == 3


def test_the_loss_is_known_before_the_number_of_records():
    plan = plan_sparse_mw(promise(ADD, 1e-9), "noisy", max_sparsity=10, num_questions=100)
    for total in (1, 10**3, 10**6, 2**40):
        settings = plan.settle(total)
        assert settings.noise.loss.rho + 1 / (2 * plan.count_scale**2) <= plan.loss.rho
    json.dumps([plan.to_json(), plan.settle(5).to_json()], allow_nan=False)


# Saved runs.


def test_a_saved_run_goes_on_as_if_nothing_had_happened(tmp_path):
    held = KeyCounts({"a": 50_000, b"b": 30_000})
    whole, saved = (run_of(simple_plan(max_updates=4), held) for _ in range(2))
    queries = [
        SparseQuery({"a": 1, b"b": 0.25}),
        SparseQuery({b"b": 1}),
        SparseQuery({1: 1}),
        SparseQuery({"a": 1, 1: 1}),
        SparseQuery({"a": 0.5}),
    ]
    expected = [whole.answer(query) for query in queries]
    found = [saved.answer(query) for query in queries[:3]]
    save_sparse_mw(saved, tmp_path / "run")
    with pytest.raises(HaltedError, match="was saved"):
        saved.answer(queries[0])
    resumed = resume_sparse_mw(tmp_path / "run", saved.plan, held, NoNoise())
    assert resumed.transcript == saved.transcript and resumed.weights == saved.weights
    assert resumed.secret_state() == saved.secret_state()
    found += [resumed.answer(query) for query in queries[3:]]
    assert found == expected and {answer.route for answer in found} == {"update", "hypothesis"}
    # Only once, but a resumed run can be saved again.
    with pytest.raises(InputError, match="resumed once"):
        resume_sparse_mw(tmp_path / "run", saved.plan, held, NoNoise())
    with pytest.raises(InputError, match="must not exist"):
        save_sparse_mw(resumed, tmp_path / "run")
    save_sparse_mw(resumed, tmp_path / "again")
    again = resume_sparse_mw(tmp_path / "again", saved.plan, held, NoNoise())
    assert again.weights == whole.weights


def test_saved_runs_hold_no_key_of_the_data_and_refuse_what_is_not_theirs(tmp_path):
    run = run_of(simple_plan(), KeyCounts({"secret@example.org": 80_000}), Seeded(3))
    run.answer(member("ab"))
    threshold = run.secret_state()["noisy_threshold"]
    save_sparse_mw(run, tmp_path / "run")
    text = (tmp_path / "run" / "transcript.json").read_text()
    assert "secret" not in text and str(threshold) not in text
    with pytest.raises(InputError, match="plan of the saved run"):
        resume_sparse_mw(tmp_path / "run", simple_plan(max_sparsity=4), KeyCounts({}), NoNoise())
    with pytest.raises(InputError, match="must hold a saved run"):
        resume_sparse_mw(tmp_path / "none", run.plan, KeyCounts({}), NoNoise())
    changed = text.replace('"total": 8', '"total": 9')
    (tmp_path / "run" / "transcript.json").write_text(changed)
    with pytest.raises(InputError, match="undamaged"):
        resume_sparse_mw(tmp_path / "run", run.plan, KeyCounts({}), NoNoise())

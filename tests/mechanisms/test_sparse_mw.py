"""Sparse online multiplicative weights: its hypothesis, slots, errors, and how a run behaves."""

import dataclasses
import itertools
import json
import math

import pytest
from noise_sources import NoNoise, Seeded
from sparse_mw_laws import member, records, run_of, simple_plan
from tiny import ADD, REPLACE, domain_of, promise

import beam_dp as dp
from beam_dp.mechanisms.online import sparse_mw as module
from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.sparse_mw import SparseMW, num_slots, plan_sparse_mw
from beam_dp.models.weights import SparseWeights
from beam_dp.queries.row_families import RowConjunctions, conjunction_of_text
from beam_dp.summaries.element_counts import KeyCounts

CALIBRATIONS = ["tight", "textbook"]


# The hypothesis.


def test_weights_stay_exact_beyond_the_range_of_floats():
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


def test_weights_sum_to_one_and_a_slot_stays_free_if_slots_are_added():
    hypothesis = SparseWeights(3)
    for number in range(20):
        hypothesis.update(dp.SparseQuery.of_list([number, -1]), 0.3)
        total = sum(hypothesis.weights.values()) + hypothesis.num_free * hypothesis.common_weight
        assert total == pytest.approx(1) and hypothesis.num_free >= 1


# Accuracy.


def test_error_bound_fails_without_a_free_slot():
    """m = 1, alpha = 1/2: two slots would allow one update, and an adversary needs two."""

    def worst_after(slots, updates):
        hypothesis = SparseWeights(slots)  # of data that hold no key of any query
        for number in range(updates):
            query = dp.SparseQuery.of_list([number])
            if hypothesis.mean(query) < 0.5:
                return hypothesis.mean(query)
            hypothesis.update(query, -2.0)
        return hypothesis.mean(dp.SparseQuery.of_list(["new"]))

    assert math.floor(math.log(2) / (2 * 0.5**2)) == 1
    assert worst_after(2, 1) == pytest.approx(0.8808, abs=1e-4)
    slots = num_slots(1, 0.5, "tight")
    plan = plan_sparse_mw(promise(), 10, max_sparsity=1, num_questions=10, max_error=0.5)
    assert worst_after(slots, plan.updates_at(0.5)) < 0.5


# Behaviour.


def test_handles_empty_data_and_any_element_type():
    plan = plan_sparse_mw(promise(ADD, 1e-9), "noisy", max_sparsity=2, num_questions=3)
    run = run_of(plan, KeyCounts({}), Seeded(0))
    assert run.settings.total >= 1
    assert math.isfinite(run.answer(dp.SparseQuery({})).value)
    assert abs(run.answer(dp.SparseQuery({1: 1, b"1": 0.5})).value) <= run.settings.hypothesis_bound
    held = KeyCounts.of(["1", 1, b"1", "1", True, 1.0, None, ["1"], {}, math.nan])
    assert held.counts == {"1": 2, 1: 1, b"1": 1} and held.num_records == 4
    assert records((0, 0, 2)).counts == {"a": 2, "c": 1}


def test_refused_queries_use_no_question_and_zeros_do_not_count():
    run = run_of(simple_plan(), KeyCounts({"a": 5}))
    for query in (member("abcd"), {"a": 1}, None):
        with pytest.raises(dp.InputError, match="query"):
            run.answer(query)
    assert run.questions_left == 4
    run.answer(dp.SparseQuery({"a": 1, "b": 1, "c": 1, "d": 0}))
    assert run.questions_left == 3


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
def test_numbers_of_slots_and_updates_match_known_values(sparsity, alpha, textbook, tight):
    for calibration, expected in (("textbook", textbook), ("tight", tight)):
        plan = plan_sparse_mw(
            promise(REPLACE),
            10**9,
            max_sparsity=sparsity,
            num_questions=1000,
            max_error=alpha,
            calibration=calibration,
        )
        assert (plan.num_slots(alpha), plan.updates_at(alpha)) == expected
        settings = plan.settle(10**9)
        assert (plan.num_slots(alpha), settings.noise.max_above) == expected
        assert settings.exhausted_bound is not None


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("sparsity, alpha", [(1, 0.9), (1, 0.5), (2, 0.37), (7, 0.2)])
def test_num_slots_is_the_smallest_sufficient_number(calibration, sparsity, alpha):
    def is_enough(slots):
        if calibration == "textbook":
            return slots / (math.log(slots) + 1) >= 4 * sparsity / alpha**2
        return slots >= sparsity * (math.floor(math.log(slots) / (2 * alpha**2)) + 1) + 1

    found = num_slots(sparsity, alpha, calibration)
    assert found == next(slots for slots in itertools.count(2) if is_enough(slots))
    for least in (found - 1, found + 1, 5 * found):
        slots = num_slots(sparsity, alpha, calibration, max(2, least))
        assert slots >= least and is_enough(slots)


def test_learning_rate_and_threshold_follow_the_theorems():
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


FAMILY = RowConjunctions(6, 5, is_monotone=True)
ROWS = ["111111"] * 40_000 + ["011111"] * 9_000 + ["110000", "", "1x1111"]


def test_released_conjunctions_equal_a_run_that_asks_them_in_order():
    released = dp.release_conjunctions(
        ROWS, FAMILY, promise(ADD, 1e-9, 1.0), "noisy", noise=Seeded(3)
    )
    plan = dp.plan_conjunctions(FAMILY, promise(ADD, 1e-9, 1.0), "noisy")
    assert (plan.num_questions, plan.max_sparsity) == (len(FAMILY), 2) == (6, 2)
    run = SparseMW(plan, KeyCounts.of(ROWS), Seeded(3))
    assert released.plan == plan and released.settings == run.settings
    expected = [(text, run.answer(conjunction_of_text(text))) for text in FAMILY]
    assert list(released.items()) == expected and len(released) == 6


@pytest.mark.parametrize("rows", [[], ROWS, ["000000"] * 9])
def test_questions_about_conjunctions_do_not_depend_on_the_rows(rows, monkeypatch):
    asked = []

    class Watched(SparseMW):
        def answer(self, query):
            asked.append(query)
            return super().answer(query)

    monkeypatch.setattr(module, "SparseMW", Watched)
    dp.release_conjunctions(rows, FAMILY, promise(REPLACE, 0, 1.0), 50_000, noise=NoNoise())
    assert asked == [conjunction_of_text(text) for text in FAMILY]


@pytest.mark.parametrize("delta", [0, 1e-9])
@pytest.mark.parametrize("family", [FAMILY, RowConjunctions(5, 4), RowConjunctions(6, 6)])
def test_without_noise_every_answer_is_within_its_bound(family, delta):
    rows = [row[: family.num_bits] for row in ROWS]
    released = dp.release_conjunctions(
        rows, family, promise(REPLACE, delta, 4.0), len(rows), noise=NoNoise()
    )
    counts = KeyCounts.of(rows).counts
    for text, answer in released.items():
        exact = conjunction_of_text(text).count(counts) / 2**16
        assert abs(answer.value - exact) <= answer.bound < len(rows)
        assert answer.questions_left >= 0


def test_ledger_pays_once_before_noise_is_drawn(tmp_path):
    guarantee = promise(REPLACE, 0, 1.0)
    ledger = dp.Ledger(str(tmp_path / "ledger.sqlite"))
    ledger.declare("visits", 1.5, 0.0, guarantee.privacy_unit, REPLACE)
    given = {"ledger": ledger, "dataset_id": "visits"}
    with pytest.raises(dp.InputError, match="must be given with a ledger"):
        dp.release_conjunctions(ROWS, FAMILY, guarantee, 49_003, ledger=ledger)
    dp.release_conjunctions(ROWS, FAMILY, guarantee, 49_003, **given)
    drawn = NoNoise()
    with pytest.raises(dp.LedgerError):
        dp.release_conjunctions(ROWS, FAMILY, guarantee, 49_003, **given, noise=drawn)
    assert drawn.draws == []


# Everything else is computed from what the sparse vector said.


def test_representations_and_errors_never_contain_data_keys():
    run = run_of(simple_plan(), KeyCounts({"secret@example.org": 5, b"secret": 1}))
    run.answer(member("ab"))
    shown = [repr(run), repr(run.transcript), repr(run.settings), repr(run.weights)]
    shown += [repr(KeyCounts({"secret": 5})), json.dumps(run.settings.to_json())]
    shown.append(json.dumps(run.plan.public))
    for query in (dp.SparseQuery.of_list("abcd"), "secret", None):
        with pytest.raises(dp.InputError) as caught:
            run.answer(query)
        shown.append(str(caught.value) if query != "secret" else "")
    assert not any("secret" in text for text in shown)


def test_privacy_does_not_depend_on_accuracy_parameters():
    """The epsilon of the noise is the same, whatever alpha, beta, K and N are."""
    for alpha, beta, questions, total in ((0.1, 0.05, 10, 10**6), (0.3, 0.5, 10**6, 7)):
        plan = dp.plan_private_mw(
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

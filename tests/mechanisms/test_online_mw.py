"""Online multiplicative weights, dense and sparse, and the sparse vectors that they ask."""

import dataclasses
import itertools
import json
import math

import numpy as np
import private_mw_laws
import pytest
import sparse_mw_laws
from noise_sources import NoNoise, Seeded
from private_mw_laws import cells, hard_queries, run_of, small_run
from sparse_mw_laws import member, records, simple_plan
from tiny import ADD, REPLACE, domain_of, promise

import beam_dp as dp
from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.sparse_mw import SparseWeights, num_slots
from beam_dp.mechanisms.sparse_vector import (
    AboveThreshold,
    HaltedError,
    NumericSparse,
    sparse_vector_noise,
)
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.queries.linear import Product
from beam_dp.queries.sparse import RowConjunctions, conjunction_of_text
from beam_dp.secret.summaries.histogram import Histogram
from beam_dp.secret.summaries.sparse_counts import KeyCounts

CALIBRATIONS = pytest.mark.parametrize("calibration", ["tight", "textbook"])
SPARSE = pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])


def plan_of(is_sparse, guarantee, num_records, max_sparsity=4, size=64, **named):
    named = {"num_questions": 10, **named}
    if is_sparse:
        return dp.plan_sparse_mw(guarantee, num_records, max_sparsity=max_sparsity, **named)
    return dp.plan_private_mw(domain_of(size), guarantee, num_records, **named)


def hard_sparse_queries(run, held, sparsity, rounds):
    """What is most wrong of new keys and random sets of known ones, then any of these."""
    generator = np.random.default_rng(5)
    total = held.num_records
    popular = sorted(held.counts, key=held.counts.get, reverse=True)[: 4 * sparsity]
    for number in range(rounds):
        asked = [dp.SparseQuery.of_list(f"new{number}.{each}" for each in range(sparsity))]
        known = popular + list(run.weights)
        for _ in range(100):
            size = int(generator.integers(1, sparsity + 1))
            chosen = generator.choice(len(known), size).tolist()
            asked.append(dp.SparseQuery.of_list({known[each] for each in chosen}))
        fresh = [query for query in asked if query not in run._answers]
        yield max(
            fresh if number % 2 == 0 else fresh[-1:],
            key=lambda query: abs(
                query.count(held.counts) / GRID / total - run._hypothesis.mean(query)
            ),
        )


@pytest.mark.part
@pytest.mark.parametrize("neighboring, num_records", [(REPLACE, 2_000_000), (ADD, "noisy")])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@CALIBRATIONS
@SPARSE
def test_every_answer_is_within_its_bound(neighboring, num_records, delta, calibration, is_sparse):
    generator = np.random.default_rng(2)
    questions, epsilon = (100, 20.0) if is_sparse else (200, 4.0)
    plan = plan_of(
        is_sparse,
        promise(neighboring, delta, epsilon),
        num_records,
        max_sparsity=5,
        num_questions=questions,
        calibration=calibration,
    )
    if is_sparse:
        keys, numbers = np.unique(generator.zipf(1.5, 2_000_000), return_counts=True)
        names = [f"user{each}@example.org" for each in keys.tolist()]
        held = KeyCounts(dict(zip(names, numbers.tolist(), strict=True)))
        run, counts = sparse_mw_laws.run_of(plan, held, Seeded(4)), held.counts
        queries, another = hard_sparse_queries(run, held, 5, questions), member("a")
    else:
        counts = generator.multinomial(2_000_000, generator.dirichlet(np.full(64, 0.05)))
        run = private_mw_laws.run_of(plan, counts, Seeded(4))
        queries, another = (
            private_mw_laws.hard_queries(run, counts, questions),
            cells(plan.domain, 0),
        )
    routes = set()
    for query in queries:
        answer = run.answer(query)
        routes.add(answer.route)
        assert answer.bound is not None
        assert abs(answer.value - query.count(counts) / GRID) <= answer.bound
    if calibration == "tight":
        assert routes == {"hypothesis", "update"} and not run.settings.is_vacuous
    assert run.questions_left == 0
    assert run.answer(another).bound is None


@SPARSE
def test_question_is_the_exact_difference_and_its_answer_the_exact_sum(is_sparse):
    laws, kind = (sparse_mw_laws, dp.SparseMW) if is_sparse else (private_mw_laws, dp.PrivateMW)
    plan, asked = laws.tiny_plan(ADD, 0.0, "tight"), []
    for data in ((0, 0, 1), (0, 1)):
        with pytest.raises(private_mw_laws.Caught) as caught:
            laws.probed(kind, plan, data, (), 3).answer(
                member("a") if is_sparse else cells(plan.domain, 0)
            )
        asked.append(caught.value.args)
    (first, exact), (second, other) = asked
    assert (exact, other) == (2 * GRID, GRID) and abs(first - second) == GRID


def sparse_run(**named):
    return sparse_mw_laws.run_of(simple_plan(**named), KeyCounts({"a": 80_000}))


@pytest.mark.parametrize(
    "make, query, repeated, other",
    [
        (small_run, lambda run: cells(run.plan.domain, 0), None, [1, 0, 0, 0, 0, 0, 0, 0]),
        (sparse_run, lambda run: member("ab"), "ba", "a"),
    ],
    ids=["dense", "sparse"],
)
def test_repeated_query_is_free_and_reads_no_data(make, query, repeated, other):
    run = make()
    asked = query(run)
    first = run.answer(asked)
    assert first.route == "update" and first.value == 80_000 and first.updates_left == 1
    assert first.standard_error == pytest.approx(run.settings.noise.answer_deviation)
    run._counts = None  # data that cannot be read
    assert run.answer(asked if repeated is None else member(repeated)) == first
    new = member(other) if repeated else dp.LinearQueries(run.plan.domain).explicit(other)
    with pytest.raises((TypeError, ValueError, AttributeError)):
        run.answer(new)  # another query, to the object


@SPARSE
def test_exhausted_runs_do_not_read_the_data(is_sparse):
    run = (sparse_run if is_sparse else small_run)(max_updates=1)
    first, second = (
        member(keys) if is_sparse else cells(run.plan.domain, code)
        for keys, code in (("a", 0), ("b", 3))
    )
    run.answer(first)
    assert run.updates_left == 0
    run._counts = None
    answer = run.answer(second)
    assert answer.route == "exhausted" and answer.standard_error is None
    assert answer.bound is None  # one update was too few to promise anything


@pytest.mark.part
@SPARSE
def test_loss_is_known_before_the_number_of_records(is_sparse):
    plan = plan_of(is_sparse, promise(ADD, 1e-9), "noisy", max_sparsity=10, num_questions=100)
    for total in (1, 10**3, 10**6, 2**40):
        settings = plan.settle(total)
        assert settings.noise.loss.rho + 1 / (2 * plan.count_scale**2) <= plan.loss.rho
        assert settings.noise.guarantee.neighboring == ADD
    json.dumps([plan.public, plan.settle(5).to_json()], allow_nan=False)


def test_starting_from_a_release_saves_updates():
    domain = domain_of(64)
    counts = np.zeros(64, np.int64)
    counts[:3] = 500_000
    used = []
    for start in (None, counts + 1):
        plan = dp.plan_private_mw(
            domain,
            promise(REPLACE, 0.0, 50.0),
            1_500_000,
            num_questions=200,
            starts_from_release=start is not None,
        )
        run = run_of(plan, counts, Seeded(1), start=start)
        for query in hard_queries(run, counts, 100):
            run.answer(query)
        used.append(run.settings.noise.max_above - run.updates_left)
    assert used[1] < 0.75 * used[0], used


def test_start_mixes_in_a_thousandth_of_the_uniform_distribution():
    domain = domain_of(1000)
    plan = dp.plan_private_mw(
        domain, promise(REPLACE), 10**6, num_questions=4, starts_from_release=True
    )
    counts = np.zeros(1000, np.int64)
    counts[0] = 10**6
    run = dp.PrivateMW(plan, Histogram(domain, counts), NoiseSource(), counts)
    guess = 10**6 * run.weights[0]
    assert 10**6 * 0.999 <= guess < 10**6


def test_no_bound_is_stated_after_the_last_question():
    run = small_run(max_updates=4)
    domain = run.plan.domain
    bounds = [run.answer(cells(domain, code)).bound for code in range(6)]
    assert None not in bounds[:4] and bounds[4:] == [None, None]
    assert run.questions_left == 0


def test_single_cell_and_empty_data_are_answered():
    plan = dp.plan_private_mw(domain_of(1), promise(ADD), "noisy", num_questions=3)
    run = run_of(plan, [0], Seeded(0))
    answer = run.answer(Product((1,), (), ()))
    assert math.isfinite(answer.value) and run.settings.noise.max_above == 1
    empty = dp.plan_private_mw(domain_of(4), promise(ADD, 1e-9), "noisy", num_questions=3)
    run = run_of(empty, [0, 0, 0, 0], Seeded(0))
    assert run.settings.total >= 1
    assert abs(run.answer(cells(empty.domain, 0)).value) <= run.settings.hypothesis_bound


@pytest.mark.parametrize("calibration", ["tight", "textbook"])
def test_steps_assume_the_largest_possible_number_of_records(calibration):
    """An update is of an error that is a share of the true number, which N may be below."""
    plan = dp.plan_private_mw(
        domain_of(64),
        promise(ADD),
        "noisy",
        num_questions=100,
        max_error=0.3,
        calibration=calibration,
    )
    settings = plan.settle(10_000)
    most = 10_000 + settings.total_bound
    assert settings.total_bound > 50 and settings.gap >= 0.3 * most
    least = 4 * min(1.0, settings.gap / most) if calibration == "tight" else 0.15
    assert settings.learning_rate == pytest.approx(least, rel=1e-12)
    assert settings.exhausted_bound is not None


# For sparse queries: the hypothesis, slots, and releases of conjunctions.


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
    plan = dp.plan_sparse_mw(promise(), 10, max_sparsity=1, num_questions=10, max_error=0.5)
    assert worst_after(slots, plan.updates_at(0.5)) < 0.5


def test_counts_keys_of_texts_bytes_and_integers_alone():
    held = KeyCounts.of(["1", 1, b"1", "1", True, 1.0, None, ["1"], {}, math.nan])
    assert held.counts == {"1": 2, 1: 1, b"1": 1} and held.num_records == 4
    assert records((0, 0, 2)).counts == {"a": 2, "c": 1}


def test_refused_queries_use_no_question_and_zeros_do_not_count():
    run = sparse_mw_laws.run_of(simple_plan(), KeyCounts({"a": 5}))
    for query in (member("abcd"), {"a": 1}, None):
        with pytest.raises(dp.InputError, match="query"):
            run.answer(query)
    assert run.questions_left == 4
    run.answer(dp.SparseQuery({"a": 1, "b": 1, "c": 1, "d": 0}))
    assert run.questions_left == 3


@CALIBRATIONS
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
    plan = dp.plan_sparse_mw(
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


@pytest.mark.parametrize("rows", [[], ROWS, ["000000"] * 9])
def test_released_conjunctions_equal_a_run_that_asks_them_in_order(rows):
    released = dp.release_conjunctions(
        rows, FAMILY, promise(ADD, 1e-9, 1.0), "noisy", noise=Seeded(3)
    )
    plan = dp.plan_conjunctions(FAMILY, promise(ADD, 1e-9, 1.0), "noisy")
    assert (plan.num_questions, plan.max_sparsity) == (len(FAMILY), 2) == (6, 2)
    run = dp.SparseMW(plan, KeyCounts.of(rows), Seeded(3))
    assert released.plan == plan and released.settings == run.settings
    expected = [(text, run.answer(conjunction_of_text(text))) for text in FAMILY]
    assert list(released.items()) == expected and len(released) == 6


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


def test_representations_and_errors_never_contain_data_keys():
    run = sparse_mw_laws.run_of(simple_plan(), KeyCounts({"secret@example.org": 5, b"secret": 1}))
    run.answer(member("ab"))
    shown = [repr(run), repr(run.transcript), repr(run.settings), repr(run.weights)]
    shown += [repr(KeyCounts({"secret": 5})), json.dumps(run.settings.to_json())]
    shown.append(json.dumps(run.plan.public))
    for query in (dp.SparseQuery.of_list("abcd"), "secret", None):
        with pytest.raises(dp.InputError) as caught:
            run.answer(query)
        shown.append(str(caught.value) if query != "secret" else "")
    assert not any("secret" in text for text in shown)


# Sparse vectors.


def test_mechanism_halts_after_its_last_answer():
    noise = sparse_vector_noise(promise(), 2, answers=True)
    mechanism = NumericSparse(10, noise, NoNoise())
    assert [mechanism.ask(each) for each in (3, 10, 9)] == [None, 10, None]
    assert mechanism.num_left == 1 and not mechanism.has_halted
    assert mechanism.ask(20, value=7) == 7
    assert mechanism.has_halted
    with pytest.raises(HaltedError, match="were paid for, and all were given"):
        mechanism.ask(0)


def test_questions_beyond_64_bits_are_compared():
    noise = sparse_vector_noise(promise(), 1, answers=False)
    assert not AboveThreshold(0, noise, NoiseSource()).ask(-(10**30))
    assert AboveThreshold(0, noise, NoiseSource()).ask(10**30)


def test_calibration_with_smallest_margin_is_used():
    few = sparse_vector_noise(promise(ADD, 1e-9), 10, answers=True)
    many = sparse_vector_noise(promise(ADD, 1e-9), 346, answers=True)
    assert (few.method, many.method) == ("pure", "zcdp")
    textbook = sparse_vector_noise(promise(ADD, 1e-9), 346, answers=True, calibration="textbook")
    assert many.margin(1000, 0.05) < textbook.margin(1000, 0.05) / 2
    assert many.answer_scale < textbook.answer_scale / 9
    # The pure one does without the composition that the textbook states for small epsilon.
    assert sparse_vector_noise(promise(ADD, 1e-9, 60.0), 1, answers=False).method == "pure"


@pytest.mark.parametrize(
    "times, delta, epsilon", [(1, 1e-9, 25.8), (10, 1e-9, 45), (1, 1e-3, 11.5)]
)
def test_epsilon_too_large_for_published_composition_is_refused(times, delta, epsilon):
    """It is stated for epsilon < 1, and holds up to these."""

    def plan(scale: float) -> None:
        guarantee = dp.Guarantee(epsilon * scale, delta, ADD, "record", 1, allow_large_delta=True)
        sparse_vector_noise(guarantee, times, answers=False, calibration="textbook")

    plan(1.0)
    with pytest.raises(dp.InputError, match="textbook's composition"):
        plan(1.01)

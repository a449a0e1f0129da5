"""Online multiplicative weights, dense and sparse: errors within bounds, and how a run behaves.

Seeded noise never fails by chance on unchanged code.
"""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import private_mw_laws
import pytest
import sparse_mw_laws
from noise_sources import Seeded
from private_mw_laws import cells, small_run
from sparse_mw_laws import member, simple_plan
from tiny import ADD, REPLACE, domain_of, promise

from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sparse import SparseQuery
from beam_dp.summaries.element_counts import KeyCounts

CALIBRATIONS = pytest.mark.parametrize("calibration", ["tight", "textbook"])
SPARSE = pytest.mark.parametrize("is_sparse", [False, True], ids=["dense", "sparse"])


def plan_of(is_sparse, guarantee, num_records, max_sparsity=4, size=64, **named):
    named = {"num_questions": 10, **named}
    if is_sparse:
        return plan_sparse_mw(guarantee, num_records, max_sparsity=max_sparsity, **named)
    return plan_private_mw(domain_of(size), guarantee, num_records, **named)


def hard_sparse_queries(run, held, sparsity, rounds):
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


@pytest.mark.part
@CALIBRATIONS
@pytest.mark.parametrize("mass", [None, 1.0, 0.6], ids=["dense", "sparse", "unasked keys"])
def test_updates_without_noise_stay_within_their_bound(calibration, mass):
    is_tight = calibration == "tight"
    alpha, total = (0.1, 1_500_000) if mass is None else (0.15, 1_000_000)
    plan = plan_of(
        mass is not None,
        promise(REPLACE, 0.0, 50.0 if mass is None else 500.0),
        total,
        max_sparsity=3,
        num_questions=10**4,
        max_error=alpha,
        calibration=calibration,
    )
    if mass is None:
        counts = np.zeros(64, np.int64)
        counts[:3] = total // 3
        run = private_mw_laws.run_of(plan, counts)
        queries = private_mw_laws.hard_queries(run, counts, 400 if is_tight else 1200)
        num_weights = 64
    else:
        held = {f"key{each}": int(total * mass / 5) for each in range(5)}
        held["elsewhere"] = total - sum(held.values())
        run = sparse_mw_laws.run_of(plan, KeyCounts(held))
        queries = hard_sparse_queries(run, KeyCounts(held), 3, 60 if is_tight else 300)
        num_weights = run.num_slots
    # Without noise the threshold can be the error itself.
    gap = math.ceil((1 if is_tight else 2) * alpha * total * GRID)
    run._sparse._threshold = run._sparse._noisy_threshold = gap
    rate = 4 * alpha if is_tight else alpha / 2
    run.settings = dataclasses.replace(run.settings, learning_rate=rate)
    for query in queries:
        run.answer(query)
    used = run.settings.noise.max_above - run.updates_left
    drop = 2 * alpha**2 if is_tight else alpha**2 / 4
    assert 3 <= used <= math.log(num_weights) / drop


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
    new = member(other) if repeated else LinearQueries(run.plan.domain).explicit(other)
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

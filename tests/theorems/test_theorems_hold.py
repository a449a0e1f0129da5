"""No theorem is violated more often than its failure probability allows.

Each test runs a mechanism 1,000 times and counts the runs in which some answer is wrong by more
than its bound. The noise is real, never seeded; a correct theorem fails a test with probability
1e-9. The controls at the end check that half of a tight bound is exceeded too often.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from claim_rows.published import (
    gaussian_error,
    selection_shortfall,
    sharper_small_db_theorem,
    sparse_vector_theorem,
)
from intervals import all_intervals
from noise_sources import Batched
from planning_estimates import table_errors
from scipy.stats import binom
from tiny import REPLACE, domain_of, plan_of, promise, workload_of
from top_choice_laws import PICKS

from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.intervals.plan import plan_intervals, release_intervals
from beam_dp.mechanisms.linear_answers.answers import draw_workload_answers, plan_workload_answers
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import SparseMW, plan_sparse_mw
from beam_dp.mechanisms.sketches.mechanisms import SparseProject
from beam_dp.mechanisms.sketches.plan import SparseSummary, release_sparse
from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.size import small_db_size
from beam_dp.mechanisms.sparse_vector.mechanisms import HaltedError, NumericSparse, Sparse
from beam_dp.mechanisms.sparse_vector.noise import SparseVectorNoise, sparse_vector_noise
from beam_dp.noise.source import NoiseSource
from beam_dp.planning.job import PlanningJob
from beam_dp.planning.linear_answers import answers_theorem
from beam_dp.planning.synthetic_databases import tables_theorem
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.queries.reader import LinearQueries
from beam_dp.queries.sparse import SparseQuery
from beam_dp.summaries.element_counts import KeyCounts
from beam_dp.summaries.histogram import Histogram
from beam_dp.summaries.projection import Projection
from beam_dp.theorems.noise import intervals_theorem, laplace_theorem, projection_theorem
from beam_dp.theorems.synthesis import (
    best_early_stop,
    best_small_db_size,
    run_error,
    small_db_theorem,
)

RUNS = 1000
BETA = 0.05
ALARM = 1e-9
DELTA = 1e-9

Violated = Callable[[float], bool]


def most_failures() -> int:
    """The number of failures that a true theorem exceeds with probability at most 1e-9."""
    return int(binom.isf(ALARM, RUNS, BETA))


def failures(violated: Violated, factor: float = 1.0) -> int:
    """Counts the runs in which a bound, times a factor, is exceeded."""
    return sum(violated(factor) for _ in range(RUNS))


def laplace(factor: float) -> bool:
    bound = factor * laplace_theorem(100, 100.0, 1.0, BETA).bound(1).max_error
    return bool(np.abs(NoiseSource().laplace(np.zeros(100, np.int64), 100.0)).max() > bound)


def gaussian(factor: float) -> bool:
    sigma = 10 / math.sqrt(2 * zcdp_rho(1.0, DELTA))
    bound = factor * gaussian_error(100, 10.0, 1.0, DELTA, BETA, "textbook")
    return bool(np.abs(NoiseSource().gaussian(np.zeros(100, np.int64), sigma)).max() > bound)


def selection(method: str, slack: int = 0) -> Violated:
    """All candidates except one are slightly worse than the bound allows."""

    def violated(factor: float) -> bool:
        bound = factor * (selection_shortfall(200, 1, 0.5, BETA) + slack)
        scores = np.full(200, -math.floor(bound) - 1, np.int64)
        scores[17] = 0
        return PICKS[method](scores, 1, 0.5, NoiseSource()) != 17

    return violated


def tree(delta: float) -> Violated:
    """All intervals of 16 cells by the binary tree; all true counts are 0."""
    distribution = "discrete_gaussian" if delta else "discrete_laplace"
    plan = plan_intervals(16, promise(delta=delta), "textbook_tree", distribution)
    low, high = all_intervals(16)
    variances = plan.noise_variance * plan.strategy.errors.variances(low, high)
    bound = intervals_theorem(plan, variances, BETA).bound(10**6).max_error

    def violated(factor: float) -> bool:
        release = release_intervals(plan, np.zeros(16, np.int64), NoiseSource())
        return bool(np.abs(release.estimate.answer(low, high)).max() > factor * bound)

    return violated


def tables(mechanism: Laplace | Gaussian, delta: float) -> Violated:
    domain = domain_of(4, 3, 2)
    workload = workload_of(domain, 2)
    guarantee = promise(delta=delta)
    plan = plan_of(mechanism, workload, guarantee, 10_000)
    job = PlanningJob(workload, guarantee, 10_000, True, BETA)
    bound = tables_theorem(job, plan).bound(10_000).max_error
    counts = np.random.default_rng().multinomial(10_000, np.ones(24) / 24).astype(np.int64)
    return lambda factor: bool(np.abs(table_errors(plan, counts)).max() > factor * bound)


def sparse_vector(noise: SparseVectorNoise) -> Violated:
    """Half of the questions are slightly below the threshold, and c slightly above it."""
    asked, above = 200, noise.max_above
    bound = sparse_vector_theorem(noise, asked, BETA).bound(10**6).max_error
    is_high = np.zeros(asked, bool)
    is_high[np.random.default_rng().choice(asked, above, replace=False)] = True
    source = Batched()

    def violated(factor: float) -> bool:
        kind = Sparse if noise.answer_scale is None else NumericSparse
        run = kind(0, noise, source)
        distance = math.floor(factor * bound) + 1
        for high in is_high:
            question = distance if high else -distance
            try:
                said = run.ask(question)
            except HaltedError:
                return bool(high)
            if kind is Sparse:
                if said != high:
                    return True
            elif (said is not None) != high or (high and abs(said - question) > factor * bound):
                return True
        return False

    return violated


def small_db_tight() -> Violated:
    rng = np.random.default_rng()
    queries = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1]], np.int64)
    total = 3000
    size = best_small_db_size(3, len(queries), 1.0, BETA, total, max_size=60)
    theorem = small_db_theorem(3, len(queries), 1.0, BETA, max_size=60)
    bound = theorem.bound(total).max_error
    counts = rng.multinomial(total, rng.dirichlet(np.ones(3))).astype(np.int64)
    return _small_db(queries, counts, size, bound)


def small_db_published(is_sharper: bool) -> Violated:
    """Dwork and Roth's Theorem 4.5, or its proof, with as many records as it requires."""
    rng = np.random.default_rng()
    queries = np.array([[1, 0], [0, 1], [1, 1]], np.int64)
    total = small_db_theorem(2, 3, 1.0, BETA, "textbook").records_needed(0.5)
    assert total is not None
    if is_sharper:
        fewer = sharper_small_db_theorem(2, 3, 1.0, BETA).records_needed(0.5)
        assert fewer is not None and fewer < total
        total = fewer
    size = small_db_size(3, 0.25, "textbook")
    counts = rng.multinomial(total, rng.dirichlet(np.ones(2))).astype(np.int64)
    return _small_db(queries, counts, size, 0.5 * total)


def _small_db(queries: np.ndarray, counts: np.ndarray, size: int, bound: float) -> Violated:
    total = int(counts.sum())
    mechanism = MultisetChoice(queries, 1.0, total, size)

    def violated(factor: float) -> bool:
        drawn = np.bincount(mechanism.draw(counts, NoiseSource()), minlength=len(counts))
        errors = queries @ (counts - drawn * total / size)
        return bool(np.abs(errors).max() > factor * bound)

    return violated


def early_stop(delta: float) -> Violated:
    """Published MWEM must stop, and no cell may then be wrong by more; all records are alike."""
    workload, total = workload_of(domain_of(16), 1), 10_000
    guarantee = promise(REPLACE, delta)
    best = best_early_stop(16, 16, guarantee, BETA, total, num_rounds=30)
    mechanism = MWEM(30, "textbook", stop_below=best.stop_below)
    plan = plan_of(mechanism, workload, guarantee, total)
    counts = np.zeros(16, np.int64)
    counts[3] = total
    held = Histogram(plan.domain, counts).marginals(plan.summary_tables)

    def violated(factor: float) -> bool:
        release = mechanism.release(plan, held, NoiseSource())
        (answer,) = release.answer(workload)
        is_wrong = np.abs(answer.values - counts).max() > factor * best.max_error
        return bool(is_wrong) or release.plan["num_updates"] == 30

    return violated


def private_mw(delta: float, calibration: str) -> Violated:
    rng = np.random.default_rng()
    domain = domain_of(4, 2)
    total = 20_000
    plan = plan_private_mw(
        domain,
        promise(REPLACE, delta),
        total,
        num_questions=14,
        failure_probability=BETA,
        calibration=calibration,  # type: ignore[arg-type]
    )
    largest = run_error(plan.settle(total))
    make = LinearQueries(domain)
    queries = [*make.marginal_cells(["a0", "a1"]), *make.marginal_cells(["a0"])]
    queries += make.marginal_cells(["a1"])
    # Most records in one cell: the uniform hypothesis is far off, and must learn.
    counts = rng.multinomial(total, [0.86, *[0.02] * 7]).astype(np.int64)
    histogram = Histogram(domain, counts)
    exact = {query: query.count(counts) / 2**16 for query in queries}

    return online(lambda: PrivateMW(plan, histogram, NoiseSource()), exact, largest)


def online(start: Callable[[], Any], exact: dict[Any, float], largest: float) -> Violated:
    """Every answer of a run is within its own bound, which is within the theorem's."""

    def violated(factor: float) -> bool:
        run = start()
        for query, value in exact.items():
            answer = run.answer(query)
            assert answer.bound is not None and answer.bound <= largest
            if abs(answer.value - value) > factor * answer.bound:
                return True
        return False

    return violated


def sparse_mw(delta: float, calibration: str) -> Violated:
    """Like ``private_mw``; most records have one key, which the hypothesis does not know."""
    total = 20_000
    counts = {"a": 17_000, "b": 2_000, "c": 1_000}
    queries = [SparseQuery.of_list(keys) for keys in ("a", "b", "c", "ab", "bc", "ad", "e")]
    plan = plan_sparse_mw(
        promise(REPLACE, delta),
        total,
        max_sparsity=2,
        num_questions=len(queries),
        failure_probability=BETA,
        calibration=calibration,  # type: ignore[arg-type]
    )
    exact = {query: query.count(counts) / 2**16 for query in queries}
    largest = run_error(plan.settle(total))
    return online(lambda: SparseMW(plan, KeyCounts(counts), NoiseSource()), exact, largest)


def projection(width: int, family: str, calibration: str) -> Violated:
    """Five queries of 20 keys, and a hash key of its own for each run; some keys are heavy."""
    mechanism = SparseProject(width, family, 4, calibration)  # type: ignore[arg-type]
    counts = np.r_[np.full(3, 60), np.full(57, 2)]
    keys = np.arange(100, dtype=np.uint64)
    plan = mechanism.plan(promise(delta=DELTA), max_sparsity=20)
    theorem = projection_theorem(plan, int(counts.max()), 5, BETA)
    assert theorem is not None and plan.sketch is not None
    bound = theorem.bound(int(counts.sum())).max_error
    exact = np.r_[counts, np.zeros(40)].reshape(5, 20).sum(axis=1)

    def violated(factor: float) -> bool:
        drawn = dataclasses.replace(plan, hash_key=HashKey.draw(plan.hash_key.independence))
        assert drawn.sketch is not None
        sums = drawn.sketch.signs(drawn.hash_key).project(keys[:60], counts)
        release = release_sparse(drawn, SparseSummary(Projection(sums)), NoiseSource())
        answers = release.estimates(keys).reshape(5, 20).sum(axis=1)
        return bool(np.abs(answers - exact).max() > factor * bound)

    return violated


def svt(answers: bool, max_above: int, delta: float, calibration: str) -> Violated:
    return sparse_vector(
        sparse_vector_noise(
            promise(delta=delta),
            max_above,
            answers=answers,
            calibration=calibration,  # type: ignore[arg-type]
        )
    )


def linear_answers(distribution: str) -> Violated:
    """All intervals of an attribute, each with independent noise."""
    workload = parse_linear_workload("intervals:a0", domain_of(8, 2))
    guarantee = promise(delta=DELTA)
    plan = plan_workload_answers(workload, guarantee, 1000, distribution, BETA)  # type: ignore[arg-type]
    bound = answers_theorem(plan).bound(10**6).max_error
    counts = np.random.default_rng().multinomial(1000, np.ones(16) / 16).astype(np.int64)
    exact = workload.counts(counts) / 2**16

    def violated(factor: float) -> bool:
        noisy = draw_workload_answers(plan, counts, NoiseSource()).values
        return bool(np.abs(noisy - exact).max() > factor * bound)

    return violated


QUICK: dict[str, Callable[[], Violated]] = {
    "laplace": lambda: laplace,
    "gaussian": lambda: gaussian,
    "exponential mechanism": lambda: selection("exponential_mechanism"),
    "tree, laplace": lambda: tree(0.0),
    "tree, gaussian": lambda: tree(DELTA),
}
# Noise and distortion are bounded separately, so the control uses far less than half.
PROJECTIONS: dict[str, Callable[[], Violated]] = {
    "projection, dense": lambda: projection(64, "dense", "tight"),
    "projection, blocks": lambda: projection(64, "blocks", "tight"),
    "projection, textbook": lambda: projection(64, "dense", "textbook"),
}
QUICK |= PROJECTIONS
SLOW: dict[str, Callable[[], Violated]] = {
    "laplace answers": lambda: linear_answers("discrete_laplace"),
    "gaussian answers": lambda: linear_answers("discrete_gaussian"),
    "permute and flip": lambda: selection("permute_and_flip"),
    "geometric noisy maximum": lambda: selection("geometric_noisy_max", 1),
    "tables, laplace textbook": lambda: tables(Laplace("textbook"), 0.0),
    "tables, laplace": lambda: tables(Laplace(), 0.0),
    "tables, gaussian textbook": lambda: tables(Gaussian("textbook"), DELTA),
    "tables, gaussian": lambda: tables(Gaussian(), DELTA),
    "above threshold": lambda: svt(False, 1, 0.0, "tight"),
    "above threshold, textbook": lambda: svt(False, 1, 0.0, "textbook"),
    "sparse": lambda: svt(False, 10, DELTA, "tight"),
    "sparse, textbook": lambda: svt(False, 10, 0.0, "textbook"),
    "numeric sparse": lambda: svt(True, 10, DELTA, "tight"),
    "numeric sparse, textbook": lambda: svt(True, 10, DELTA, "textbook"),
    "small_db": small_db_tight,
    "small_db, published": lambda: small_db_published(False),
    "small_db, as proved": lambda: small_db_published(True),
    "mwem that stops": lambda: early_stop(DELTA),
    "mwem that stops, pure": lambda: early_stop(0.0),
    "private_mw": lambda: private_mw(DELTA, "tight"),
    "private_mw, pure": lambda: private_mw(0.0, "tight"),
    "private_mw, textbook": lambda: private_mw(0.0, "textbook"),
    "sparse_mw": lambda: sparse_mw(DELTA, "tight"),
    "sparse_mw, pure": lambda: sparse_mw(0.0, "tight"),
    "sparse_mw, textbook": lambda: sparse_mw(0.0, "textbook"),
}
# Half of these bounds is exceeded in more runs than the theorem allows.
TIGHT = ("laplace", "gaussian", "exponential mechanism")


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_bound_is_exceeded_no_more_often_than_stated(name):
    assert failures(QUICK[name]()) <= most_failures()


@pytest.mark.audit
@pytest.mark.parametrize("name", SLOW)
def test_bound_is_exceeded_no_more_often_than_stated_in_a_slow_simulation(name):
    assert failures(SLOW[name]()) <= most_failures()


@pytest.mark.slow
@pytest.mark.parametrize("name", TIGHT)
def test_halving_a_tight_bound_is_detected(name):
    assert failures(QUICK[name](), 0.5) > most_failures()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["projection, dense", "projection, textbook"])
def test_projection_errors_exceed_a_fifth_of_their_bound_too_often(name):
    assert failures(PROJECTIONS[name](), 0.2) > most_failures()

"""No theorem of this package is violated more often than its failure probability allows.

Each case runs a mechanism 1,000 times and counts the runs in which some answer is wrong by more
than its bound; a correct theorem fails with probability 1e-9, and a wrong part of its bound passes
with less. Theorems of the literature are simulated in the same way by ``test_claims``: the bounds
of trees of intervals, of published sparse vectors, of online and of published multiplicative
weights, and of published small databases.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import pytest
from claim_rows.published import (
    gaussian_error,
    selection_shortfall,
    sharper_small_db_theorem,
    sparse_vector_theorem,
)
from noise_sources import Seeded
from planning_estimates import table_errors
from scipy.stats import binom
from tiny import domain_of, plan_of, promise, workload_of
from top_choice_laws import PICKS

from beam_dp.hashing.keys import HashKey
from beam_dp.mechanisms.linear_answers.answers import draw_workload_answers, plan_workload_answers
from beam_dp.mechanisms.marginals.measure_all import Gaussian, Laplace
from beam_dp.mechanisms.sketches.mechanisms import SparseProject
from beam_dp.mechanisms.sketches.plan import SparseSummary, release_sparse
from beam_dp.mechanisms.small_db.choice import MultisetChoice
from beam_dp.mechanisms.small_db.size import small_db_size
from beam_dp.mechanisms.sparse_vector.mechanisms import HaltedError, NumericSparse, Sparse
from beam_dp.mechanisms.sparse_vector.noise import sparse_vector_noise
from beam_dp.noise.source import NoiseSource
from beam_dp.planning.job import PlanningJob
from beam_dp.planning.linear_answers import answers_theorem
from beam_dp.planning.synthetic_databases import tables_theorem
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.queries.linear_workload import parse_linear_workload
from beam_dp.summaries.projection import Projection
from beam_dp.theorems.noise import laplace_theorem, projection_theorem
from beam_dp.theorems.synthesis import best_small_db_size, small_db_theorem

RUNS = 1000
BETA = 0.05
ALARM = 1e-9
DELTA = 1e-9

Violated = Callable[[float], bool]
Simulation = Callable[[NoiseSource, np.random.Generator], Violated]


def failures(name: str, seed: int, factor: float = 1.0) -> int:
    """Counts the runs in which a bound, times a factor, is exceeded."""
    violated = SIMULATIONS[name](Seeded(seed), np.random.default_rng(seed))
    return sum(violated(factor) for _ in range(RUNS))


def most_failures() -> int:
    """The number of failures that a true theorem exceeds with probability at most 1e-9."""
    return int(binom.isf(ALARM, RUNS, BETA))


def laplace(noise: NoiseSource, rng: np.random.Generator) -> Violated:
    bound = laplace_theorem(100, 100.0, 1.0, BETA).bound(1).max_error
    return lambda f: bool(np.abs(noise.laplace(np.zeros(100, np.int64), 100.0)).max() > f * bound)


def gaussian(noise: NoiseSource, rng: np.random.Generator) -> Violated:
    sigma = 10 / math.sqrt(2 * zcdp_rho(1.0, DELTA))
    bound = gaussian_error(100, 10.0, 1.0, DELTA, BETA, "textbook")
    return lambda f: bool(np.abs(noise.gaussian(np.zeros(100, np.int64), sigma)).max() > f * bound)


def selection(method: str, slack: int = 0) -> Simulation:
    """All candidates except one are slightly worse than the bound allows."""

    def simulation(noise: NoiseSource, rng: np.random.Generator) -> Violated:
        def violated(factor: float) -> bool:
            bound = factor * (selection_shortfall(200, 1, 0.5, BETA) + slack)
            scores = np.full(200, -math.floor(bound) - 1, np.int64)
            scores[17] = 0
            return PICKS[method](scores, 1, 0.5, noise) != 17

        return violated

    return simulation


def tables(mechanism: Laplace | Gaussian, delta: float) -> Simulation:
    def simulation(noise: NoiseSource, rng: np.random.Generator) -> Violated:
        workload = workload_of(domain_of(4, 3, 2), 2)
        guarantee = promise(delta=delta)
        plan = plan_of(mechanism, workload, guarantee, 10_000)
        job = PlanningJob(workload, guarantee, 10_000, True, BETA)
        bound = tables_theorem(job, plan).bound(10_000).max_error
        counts = rng.multinomial(10_000, np.ones(24) / 24).astype(np.int64)
        return lambda f: bool(np.abs(table_errors(plan, counts, noise)).max() > f * bound)

    return simulation


def sparse_vector(answers: bool, max_above: int, delta: float) -> Simulation:
    """Half of the questions are slightly below the threshold, and c slightly above it."""
    calibration = sparse_vector_noise(promise(delta=delta), max_above, answers=answers)
    kind = NumericSparse if answers else Sparse

    def simulation(noise: NoiseSource, rng: np.random.Generator) -> Violated:
        bound = sparse_vector_theorem(calibration, 200, BETA).bound(10**6).max_error
        is_high = np.zeros(200, bool)
        is_high[rng.choice(200, max_above, replace=False)] = True

        def violated(factor: float) -> bool:
            run = kind(0, calibration, noise)
            distance = math.floor(factor * bound) + 1
            for high in is_high:
                question = distance if high else -distance
                try:
                    said = run.ask(question)
                except HaltedError:
                    return bool(high)
                if (said is not None and said is not False) != high:
                    return True
                if answers and high and abs(said - question) > factor * bound:
                    return True
            return False

        return violated

    return simulation


def small_db(noise: NoiseSource, rng: np.random.Generator) -> Violated:
    queries = np.array([[1, 0, 0], [0, 1, 0], [1, 1, 0], [0, 1, 1]], np.int64)
    size = best_small_db_size(3, len(queries), 1.0, BETA, 3000, max_size=60)
    theorem = small_db_theorem(3, len(queries), 1.0, BETA, max_size=60)
    counts = rng.multinomial(3000, rng.dirichlet(np.ones(3))).astype(np.int64)
    return of_multisets(queries, counts, size, theorem.bound(3000).max_error, noise)


def small_db_as_proved(noise: NoiseSource, rng: np.random.Generator) -> Violated:
    """Dwork and Roth's Theorem 4.5 by its proof, with as many records as this requires."""
    queries = np.array([[1, 0], [0, 1], [1, 1]], np.int64)
    published, total = (
        theorem.records_needed(0.5)
        for theorem in (
            small_db_theorem(2, 3, 1.0, BETA, "textbook"),
            sharper_small_db_theorem(2, 3, 1.0, BETA),
        )
    )
    assert published is not None and total is not None and total < published
    counts = rng.multinomial(total, rng.dirichlet(np.ones(2))).astype(np.int64)
    return of_multisets(queries, counts, small_db_size(3, 0.25, "textbook"), 0.5 * total, noise)


def of_multisets(
    queries: np.ndarray, counts: np.ndarray, size: int, bound: float, noise: NoiseSource
) -> Violated:
    total = int(counts.sum())
    mechanism = MultisetChoice(queries, 1.0, total, size)

    def violated(factor: float) -> bool:
        drawn = np.bincount(mechanism.draw(counts, noise), minlength=len(counts))
        errors = queries @ (counts - drawn * total / size)
        return bool(np.abs(errors).max() > factor * bound)

    return violated


def projection(family: str, calibration: str) -> Simulation:
    """Five queries of 20 keys, and a hash key of its own for each run; some keys are heavy."""
    mechanism = SparseProject(64, family, 4, calibration)  # type: ignore[arg-type]
    counts = np.r_[np.full(3, 60), np.full(57, 2)]
    keys = np.arange(100, dtype=np.uint64)
    exact = np.r_[counts, np.zeros(40)].reshape(5, 20).sum(axis=1)

    def simulation(noise: NoiseSource, rng: np.random.Generator) -> Violated:
        plan = mechanism.plan(promise(delta=DELTA), max_sparsity=20)
        theorem = projection_theorem(plan, int(counts.max()), 5, BETA)
        assert theorem is not None and plan.sketch is not None
        bound = theorem.bound(int(counts.sum())).max_error
        independence = plan.hash_key.independence

        def violated(factor: float) -> bool:
            words = rng.integers(0, 2**64, plan.hash_key.words.shape, np.uint64)
            key = HashKey(independence, words, rng.bytes(16))
            drawn = dataclasses.replace(plan, hash_key=key)
            assert drawn.sketch is not None
            sums = drawn.sketch.signs(key).project(keys[:60], counts)
            release = release_sparse(drawn, SparseSummary(Projection(sums)), noise)
            answers = release.estimates(keys).reshape(5, 20).sum(axis=1)
            return bool(np.abs(answers - exact).max() > factor * bound)

        return violated

    return simulation


def linear_answers(distribution: str) -> Simulation:
    """All intervals of an attribute, each with independent noise."""

    def simulation(noise: NoiseSource, rng: np.random.Generator) -> Violated:
        workload = parse_linear_workload("intervals:a0", domain_of(8, 2))
        plan = plan_workload_answers(workload, promise(delta=DELTA), 1000, distribution, BETA)  # type: ignore[arg-type]
        bound = answers_theorem(plan).bound(10**6).max_error
        counts = rng.multinomial(1000, np.ones(16) / 16).astype(np.int64)
        exact = workload.counts(counts) / 2**16

        def violated(factor: float) -> bool:
            noisy = draw_workload_answers(plan, counts, noise).values
            return bool(np.abs(noisy - exact).max() > factor * bound)

        return violated

    return simulation


SIMULATIONS: dict[str, Simulation] = {
    "laplace": laplace,
    "gaussian": gaussian,
    "exponential mechanism": selection("exponential_mechanism"),
    "geometric noisy maximum": selection("geometric_noisy_max", 1),
    "projection, dense": projection("dense", "tight"),
    "projection, textbook": projection("dense", "textbook"),
    "laplace answers": linear_answers("discrete_laplace"),
    "gaussian answers": linear_answers("discrete_gaussian"),
    "tables, laplace textbook": tables(Laplace("textbook"), 0.0),
    "tables, laplace": tables(Laplace(), 0.0),
    "tables, gaussian textbook": tables(Gaussian("textbook"), DELTA),
    "tables, gaussian": tables(Gaussian(), DELTA),
    "above threshold": sparse_vector(False, 1, 0.0),
    "sparse": sparse_vector(False, 10, DELTA),
    "numeric sparse": sparse_vector(True, 10, DELTA),
    "small_db": small_db,
    "small_db, as proved": small_db_as_proved,
}
# A part of these bounds is exceeded in more runs than the theorem allows. (Noise and distortion of
# projections are bounded separately.)
TOO_SMALL = {"laplace": 0.5, "gaussian": 0.5, "exponential mechanism": 0.5}
TOO_SMALL |= {"projection, dense": 0.2, "projection, textbook": 0.2}
CHEAP = ("laplace", "gaussian", "exponential mechanism", "above threshold", "laplace answers")
CASES = [
    pytest.param(name, marks=() if name in CHEAP else pytest.mark.part) for name in SIMULATIONS
]


@pytest.mark.parametrize("name", CASES)
def test_bound_is_exceeded_no_more_often_than_stated(name, fresh_seed):
    assert failures(name, fresh_seed) <= most_failures()


@pytest.mark.parametrize("name", [case for case in CASES if case.values[0] in TOO_SMALL])
def test_smaller_bound_is_exceeded_too_often(name, fresh_seed):
    assert failures(name, fresh_seed, TOO_SMALL[name]) > most_failures()

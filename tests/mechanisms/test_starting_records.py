"""Public records as a start: what may change by them, what may not, and what is refused."""

from __future__ import annotations

import dataclasses
import pickle
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from noise_sources import NoNoise, Seeded
from tiny import domain_of, promise, summary, workload_of

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism, StartingRecords
from beam_dp.mechanisms.marginals.released_records import start_log_weights
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.releases.kinds import verify_release
from beam_dp.summaries.histogram import Histogram

# Fits are dear: they run with the jobs.
pytestmark = pytest.mark.job

SHAPE = (6, 5, 4, 3)
DOMAIN = domain_of(*SHAPE)
WORKLOAD = workload_of(DOMAIN, 2)


def distribution(seed: int) -> np.ndarray:
    """Strongly dependent columns: every cell has a weight of its own."""
    return np.random.default_rng(seed).dirichlet(np.full(DOMAIN.num_cells, 0.2))


def drawn(weights: np.ndarray, num_records: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multinomial(num_records, weights)


def frame(counts: np.ndarray, domain: Domain = DOMAIN) -> pd.DataFrame:
    codes = domain.codes(np.repeat(np.arange(len(counts)), counts))
    return pd.DataFrame(dict(zip(domain.names, codes, strict=True)))


def planned(start: object, mechanism: Mechanism | None = None, **changed: Any) -> MarginalsPlan:
    """The plan of 5,000 records; anything of the job may be changed."""
    job = {"domain": DOMAIN, "workload": WORKLOAD, "guarantee": promise(delta=1e-9), **changed}
    options = ReleaseOptions(num_records=5000, start_from=start)
    return plan_release(mechanism or MWEM(), *job.values(), options)


def released(counts: np.ndarray, start: object, epsilon: float, seed: int = 0):
    plan = planned(start, guarantee=promise(epsilon=epsilon, delta=1e-9))
    return MWEM().release(plan, summary(plan, counts), Seeded(seed))


def error(release, counts: np.ndarray) -> float:
    """Mean total variation distance of the hypothesis's pairs to the true ones."""
    exact = Histogram(DOMAIN, counts).marginals(WORKLOAD.marginals)
    distances = [
        np.abs(answer.values - exact.marginal(answer.attributes)).sum() / 2 / counts.sum()
        for answer in release.answer(WORKLOAD)
    ]
    return float(np.mean(distances))


@pytest.mark.part
@pytest.mark.parametrize(("other", "most"), [(1, 2 / 3), (3, 1.15)], ids=["similar", "misleading"])
def test_public_records_lower_the_error_if_they_are_similar_and_hardly_raise_it_if_not(other, most):
    """Eight data sets, each released with the same seed of noise with the records and without."""
    public = frame(drawn(distribution(other), 5000, 2))
    with_start, without, used = [], [], []
    for seed in range(8):
        counts = drawn(distribution(1), 5000, 10 + seed)
        without.append(error(released(counts, None, 0.1, seed), counts))
        release = released(counts, public, 0.1, seed)
        with_start.append(error(release, counts))
        used.append(release.fit["start_was_used"])
    assert np.mean(with_start) < most * np.mean(without)
    assert other == 1 or sum(used) <= 2


@pytest.mark.part
def test_starting_records_change_neither_measurements_nor_noise():
    counts, start = drawn(distribution(1), 5000, 1), frame(drawn(distribution(3), 700, 4))
    for mechanism in (MWEM(), MWEM(num_rounds=3), Gaussian(), Laplace()):
        plain, plan = planned(None, mechanism), planned(start, mechanism)
        assert dataclasses.replace(plan, start_from=None) == plain
        assert plan.steps == plain.steps
        assert plan.public == {**plain.public, "start_from": "700 public records"}
        releases = [
            mechanism.release(each, summary(each, counts), NoNoise()) for each in (plan, plain)
        ]
        assert releases[0].noise == releases[1].noise
        with_start, without = (each.measurements.tables for each in releases)
        assert all(map(np.array_equal, with_start, without))


def test_release_that_started_from_another_release_passes_verification():
    counts = drawn(distribution(1), 5000, 1)
    first = released(counts, None, 1.0)
    second = released(counts, first, 1.0)
    assert second.plan["start_from"] == first.draw_id
    assert verify_release(second).holds


def test_plan_with_starting_records_survives_pickling():
    start = StartingRecords.of(frame(drawn(distribution(1), 50, 1)), DOMAIN)
    plan = planned(start)
    copied = pickle.loads(pickle.dumps(plan)).start_from
    assert copied.source == start.source and np.array_equal(copied.counts, start.counts)


def test_hypothesis_from_many_public_records_equals_their_distribution():
    counts = drawn(distribution(1), 10**7, 1)
    codes = DOMAIN.codes(np.arange(DOMAIN.num_cells))
    start = StartingRecords(DOMAIN, "all", codes, counts)
    basis = ResidualBasis(SHAPE, [each for k in range(3) for each in combinations(range(4), k)])
    ones = np.ones(basis.num_coefficients)
    signs = np.where(np.arange(len(ones)) % 2, ones, -ones)
    weights = start_log_weights(start, basis, ones, signs, 1e-6)
    for pair in ((0, 1), (2, 3)):
        (table,) = basis.marginals(weights, [pair])
        true = counts.reshape(SHAPE).sum(axis=tuple({0, 1, 2, 3} - {*pair})) / 10**7
        assert np.abs(table - true).max() < 1e-3

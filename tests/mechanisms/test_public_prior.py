"""Public records as the prior of a selection: when they are used, what that costs, and attacks."""

import dataclasses
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from noise_sources import NoNoise, Seeded
from tiny import (
    ADD,
    APPROXIMATE,
    check_release,
    correlated,
    domain_of,
    exact_table,
    on_trees,
    plan_of,
    promise,
    summary,
    workload_of,
)

import beam_dp as dp
from beam_dp.mechanisms.marginals.plan import MarginalsPlan, Mechanism, StartingRecords
from beam_dp.mechanisms.marginals.public_prior import affordable
from beam_dp.mechanisms.marginals.released_records import start_log_weights
from beam_dp.mechanisms.registry import ReleaseOptions, plan_release
from beam_dp.models.maximum_entropy import NoisyCoefficients, independent_variances
from beam_dp.models.prior_fit import learned
from beam_dp.models.residual_basis import ResidualBasis

# Fits are dear: they run with the jobs.
pytestmark = pytest.mark.job

DOMAIN = domain_of(4, 3, 4, 3)
WORKLOAD = workload_of(DOMAIN, 2)
COUNTS = correlated(DOMAIN, 4000)


def records(counts: np.ndarray) -> StartingRecords:
    held = np.flatnonzero(counts)
    return StartingRecords(DOMAIN, "public", DOMAIN.codes(held), counts[held])


def released(
    start: np.ndarray | dp.SyntheticDatabase | None, epsilon: float = 0.1, seed: int = 1
) -> dp.SyntheticDatabase:
    with on_trees(40):
        plan = plan_of(dp.MWEM(), WORKLOAD, promise(ADD, APPROXIMATE, epsilon), "noisy")
        if start is not None:
            known = records(start) if isinstance(start, np.ndarray) else start
            plan = plan.starting_from(StartingRecords.of(known, DOMAIN))
        release = plan.release(summary(plan, COUNTS), Seeded(seed))
        check_release(release, plan)
    return release


def error(release: dp.SyntheticDatabase) -> float:
    tables = [(each.values, each.attributes) for each in release.answer(WORKLOAD)]
    away = [np.abs(found - exact_table(DOMAIN, COUNTS, names)).sum() for found, names in tables]
    return float(np.mean(away)) / 2 / COUNTS.sum()


def similar(seed: int = 5) -> np.ndarray:
    weights = correlated(DOMAIN, 4000) + 0.0
    return np.random.default_rng(seed).multinomial(4000, weights / weights.sum())


def test_similar_public_records_are_used_for_all_pairs():
    release = released(similar())
    assert release.fit["start_was_used"] and release.fit["hypothesis"] == "candidates"
    assert error(release) < 0.5 * np.mean([error(released(None, seed=s)) for s in range(3)])
    assert dp.verify_release(release).holds


def test_misleading_public_records_are_not_used():
    mirrored = COUNTS.reshape(DOMAIN.shape)[::-1].ravel()
    release = released(mirrored, 1.0)
    assert not release.fit["start_was_used"] and dp.verify_release(release).holds


def test_records_that_are_right_for_most_attributes_correct_the_others():
    """One attribute has other names for its codes: measured tables must outweigh the records."""
    wrong = similar().reshape(DOMAIN.shape)[:, ::-1].ravel()
    release = released(wrong, 3.0)
    alone = [
        np.abs(exact_table(DOMAIN, wrong, names) - exact_table(DOMAIN, COUNTS, names)).sum()
        for names in WORKLOAD
    ]
    assert error(release) < 0.2 * np.mean(alone) / 2 / COUNTS.sum()


def test_few_public_records_are_not_used_with_little_noise():
    few = np.zeros_like(COUNTS)
    few[np.flatnonzero(COUNTS)[:2]] = 1
    assert not released(few, 3.0).fit["start_was_used"]


@pytest.mark.parametrize("change", ["distance", "used", "scale"])
def test_forged_statements_about_public_records_fail_verification(change):
    release = released(similar())
    if change == "scale":
        forged = {"plan": {**release.plan, "prior_scale": release.plan["prior_scale"] / 2}}
    elif change == "used":
        forged = {"fit": {**release.fit, "hypothesis": "junction_tree"}}
    else:
        fit = {name: each for name, each in release.fit.items() if name != "start_distance"}
        forged = {"fit": fit}
    try:
        assert not dp.verify_release(dataclasses.replace(release, **forged)).holds
    except ValueError as refused:
        assert "fit" in str(refused)


def test_smallest_pairs_are_measured_if_not_all_are_affordable(monkeypatch):
    monkeypatch.setattr("beam_dp.mechanisms.marginals.public_prior._MAX_COEFFICIENTS", 10)
    assert affordable(domain_of(3, 3, 4, 2), [(0, 1), (0, 2), (1, 3), (2, 3)]) == [
        *((0, 1), (1, 3), (2, 3)),
    ]


@pytest.mark.parametrize("factor", [1.0, 30.0])
def test_factor_and_number_of_records_are_learned(factor):
    """Tables that differ from the prior by a known variance, with a noisy number of records."""
    rng = np.random.default_rng(3)
    basis = ResidualBasis((20, 15), [(), (0,), (1,), (0, 1)])
    prior = 8 * rng.standard_normal(basis.num_coefficients)
    total, expected = 20_000, basis.log_moments(prior, 0.0)[1]
    variances = total * factor * independent_variances(basis, prior)
    noise = np.full(basis.num_coefficients, 1.0)
    noise[basis.slices[()]] = 3000.0
    values = total * expected + np.sqrt(variances + noise) * rng.standard_normal(len(noise))
    values[basis.slices[()]] = 1.05 * total * expected[basis.slices[()]]
    known = learned(basis, NoisyCoefficients(values, noise), 1.05 * total, prior, 1e9)
    of_pair = known.factors[basis.slices[(0, 1)]][0]
    assert factor / 1.6 < of_pair < 1.6 * factor
    assert abs(known.total - total) < 0.03 * total


SHAPE = (6, 5, 4, 3)
STARTED = domain_of(*SHAPE)
ALL_PAIRS = workload_of(STARTED, 2)


def distribution(seed: int) -> np.ndarray:
    """Strongly dependent columns: every cell has a weight of its own."""
    return np.random.default_rng(seed).dirichlet(np.full(STARTED.num_cells, 0.2))


def drawn(weights: np.ndarray, num_records: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multinomial(num_records, weights)


def frame(counts: np.ndarray, domain: dp.Domain = STARTED) -> pd.DataFrame:
    codes = domain.codes(np.repeat(np.arange(len(counts)), counts))
    return pd.DataFrame(dict(zip(domain.names, codes, strict=True)))


def planned(start: object, mechanism: Mechanism | None = None, **changed: Any) -> MarginalsPlan:
    """The plan of 5,000 records; anything of the job may be changed."""
    job = {"domain": STARTED, "workload": ALL_PAIRS, "guarantee": promise(delta=1e-9), **changed}
    options = ReleaseOptions(num_records=5000, start_from=start)
    return plan_release(mechanism or dp.MWEM(), *job.values(), options)


def started(counts: np.ndarray, start: object, epsilon: float, seed: int = 0):
    plan = planned(start, guarantee=promise(epsilon=epsilon, delta=1e-9))
    return dp.MWEM().release(plan, summary(plan, counts), Seeded(seed))


@pytest.mark.part
def test_starting_records_change_neither_measurements_nor_noise():
    counts, start = drawn(distribution(1), 5000, 1), frame(drawn(distribution(3), 700, 4))
    for mechanism in (dp.MWEM(), dp.MWEM(num_rounds=3), dp.Gaussian(), dp.Laplace()):
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
    first = started(counts, None, 1.0)
    second = started(counts, first, 1.0)
    assert second.plan["start_from"] == first.draw_id
    assert dp.verify_release(second).holds


def test_hypothesis_from_many_public_records_equals_their_distribution():
    counts = drawn(distribution(1), 10**7, 1)
    codes = STARTED.codes(np.arange(STARTED.num_cells))
    start = StartingRecords(STARTED, "all", codes, counts)
    basis = ResidualBasis(SHAPE, [each for k in range(3) for each in combinations(range(4), k)])
    ones = np.ones(basis.num_coefficients)
    signs = np.where(np.arange(len(ones)) % 2, ones, -ones)
    weights = start_log_weights(start, basis, ones, signs, 1e-6)
    for pair in ((0, 1), (2, 3)):
        (table,) = basis.marginals(weights, [pair])
        true = counts.reshape(SHAPE).sum(axis=tuple({0, 1, 2, 3} - {*pair})) / 10**7
        assert np.abs(table - true).max() < 1e-3

"""Expected errors of pairs decide whether and which pairs a selection measures."""

import math

import numpy as np
import pytest
from noise_sources import Seeded
from tiny import (
    ADD,
    APPROXIMATE,
    correlated,
    domain_of,
    on_trees,
    plan_of,
    promise,
    summary,
    workload_of,
)

from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.pair_errors import (
    ExpectedErrors,
    NoisyAttribute,
    posterior_means,
)
from beam_dp.releases.synthetic_database.measured_tables import sampling_errors
from beam_dp.releases.synthetic_database.verify import verify


def test_posterior_means_keep_exact_values_and_drop_noise():
    largest = np.array([10.0, 20.0, 30.0])
    values = np.array([1.0, 8.0, 3.0])
    assert posterior_means(values, largest, 1e-12) == pytest.approx(values)
    assert not posterior_means(np.array([-5.0, 9.0, -4.0]), largest, 100.0).any()
    # A common share that all values prove is kept; what differs from it is explained by noise.
    # The standard error of the share is sqrt(2 / (10^2 + 20^2 + 30^2)).
    common = posterior_means(0.5 * largest + [2.0, -1.0, 0.0], largest, 2.0)
    assert common == pytest.approx((0.5 - math.sqrt(2 / 1400)) * largest, rel=0.01)
    # Noise far beyond the largest possible values moves little.
    assert (np.abs(posterior_means(30 * largest, largest, 1e6)) < largest).all()


@pytest.mark.parametrize("expected", [0.05, 0.4, 20.0, 500.0])
def test_sampling_errors_are_those_of_poisson_counts(expected):
    counts = np.random.default_rng(1).poisson(expected, 400_000)
    simulated = np.abs(counts - expected).mean()
    assert float(sampling_errors(np.array([expected]))[0]) == pytest.approx(simulated, rel=0.02)


def independent(counts: np.ndarray, deviation: float, score: float) -> ExpectedErrors:
    attributes = [NoisyAttribute(counts, deviation, deviation)] * 3
    table = np.outer(counts, counts) / counts.sum()
    answers = dict.fromkeys(((0, 1), (0, 2), (1, 2)), table)
    return ExpectedErrors.of(answers, dict.fromkeys(answers, score), 1.0, attributes)


def test_noise_of_attributes_and_sampling_are_no_dependence():
    counts = np.full(4, 250.0)
    sampled = 16 * math.sqrt(2 / math.pi * 1000 / 16) * 3 / 4
    noisy = math.hypot(2 * 4 * math.sqrt(2 / math.pi) * 20 / math.sqrt(2), sampled)
    distances = independent(counts, 20.0, noisy).distances
    assert [*distances.values()] == pytest.approx([sampled] * 3, rel=1e-6)
    # A precise score below both proves that there is less.
    assert not any(independent(counts, 20.0, 0.0).distances.values())
    far = independent(counts, 20.0, 800.0).distances
    assert all(780 < distance < 800 for distance in far.values())
    assert all(distance == 1500 for distance in independent(counts, 0.0, 9e9).distances.values())


def test_measurement_never_helps_below_the_noise():
    errors = independent(np.full(4, 250.0), 20.0, 800.0)
    left = [errors.left((0, 1), deviation) for deviation in (1e-9, 1.0, 30.0, 1e6)]
    assert left == sorted(left)
    assert left[0] == pytest.approx(0, abs=1e-6)
    assert left[-1] >= errors.distances[0, 1] * (1 - 1e-6)


@pytest.mark.job
@pytest.mark.parametrize(("num_records", "measured"), [(300, 0), (200_000, 6)])
def test_few_records_measure_no_pairs_and_many_measure_all(num_records, measured):
    domain = domain_of(6, 6, 6, 6)
    with on_trees(6**4):
        plan = plan_of(MWEM(), workload_of(domain, 2), promise(ADD, APPROXIMATE, 0.1), num_records)
        held = summary(plan, correlated(domain, num_records))
        for seed in range(3):
            release = plan.release(held, Seeded(seed))
            fit = release.fit
            number = fit["num_joined_pairs"] + fit["num_other_pairs"] - fit["num_added_pairs"]
            assert number == measured
            assert verify(release).holds

"""Counts of single attributes, believed from their noisy counts together."""

import math

import numpy as np
import pytest

import beam_dp as dp
from beam_dp.models import denoised_attributes
from beam_dp.models.denoised_attributes import denoised, denoised_counts
from beam_dp.models.maximum_entropy import NoisyCoefficients, fit_maximum_entropy
from beam_dp.models.residual_basis import ResidualBasis

TOTAL = 40_000
RUNS = 24
DEARER = [(30.0, True), (30.0, False), (300.0, True)]
PLACES = np.linspace(0, 1, 32)
SHAPES = {
    "bump": np.exp(-(((PLACES - 0.4) / 0.2) ** 2) / 2),
    "decay": np.exp(-8 * PLACES),
    "spikes": np.where(np.arange(32) % 5 == 0, 10.0, 1.0) * np.exp(-3 * PLACES),
}


def counts_of(shape: str) -> np.ndarray:
    weights = SHAPES[shape]
    return np.round(TOTAL * weights / weights.sum())


def on_simplex(counts: np.ndarray, total: float) -> np.ndarray:
    """Returns the nearest counts that are not negative: what a close fit makes of noisy ones."""
    largest = np.sort(counts)[::-1]
    excess = (np.cumsum(largest) - total) / np.arange(1, len(counts) + 1)
    return np.maximum(counts - excess[np.flatnonzero(largest > excess)[-1]], 0)


def squared_errors(
    exact: np.ndarray, deviation: float, is_ordered: bool, seed: int
) -> tuple[float, float, float]:
    """Returns the mean squared error of estimates, that of the simplex, and the stated one."""
    random = np.random.default_rng(seed)
    total = exact.sum()
    follows = (np.arange(len(exact)) > 0) & is_ordered
    rows = []
    for _ in range(RUNS):
        noise = random.normal(0, deviation, len(exact))
        noisy = exact + noise - noise.mean()
        found = denoised_counts(noisy, deviation, total, follows)
        believed, plain = on_simplex(found.means, total), on_simplex(noisy, total)
        rows.append(
            (
                ((believed - exact) ** 2).sum(),
                ((plain - exact) ** 2).sum(),
                found.variances.sum(),
            )
        )
    believed, plain, stated = np.mean(rows, axis=0)
    return believed, plain, stated


def test_denoising_keeps_counts_without_noise():
    exact = counts_of("spikes")
    found = denoised_counts(exact, 1e-3, exact.sum(), np.arange(32) > 0)
    np.testing.assert_allclose(found.means, exact, atol=5e-3)


@pytest.mark.parametrize("shape, most", [("bump", 0.6), ("decay", 0.6), ("spikes", 1.0)], ids=str)
def test_denoising_ordered_codes_lowers_the_error(shape, most):
    believed, plain, stated = squared_errors(counts_of(shape), 300.0, True, seed=1)
    assert believed < most * plain
    assert 0.4 < believed / stated < 1.6


@pytest.mark.parametrize(
    ("deviation", "is_ordered"),
    [
        (300.0, False),
        *(pytest.param(*case, marks=pytest.mark.part) for case in DEARER),
    ],
)
def test_denoising_random_counts_raises_the_error_by_less_than_4_percent(deviation, is_ordered):
    ratios = []
    for seed in range(3):
        random = np.random.default_rng(seed)
        weights = random.dirichlet(np.full(24, 0.5))
        exact = np.round(TOTAL * weights)
        believed, plain, _ = squared_errors(exact, deviation, is_ordered, seed)
        ratios.append(believed / plain)
    assert np.mean(ratios) < 1.04


def test_permuting_unordered_codes_permutes_the_estimates():
    random = np.random.default_rng(3)
    noisy = counts_of("bump") + random.normal(0, 300, 32)
    mixed = random.permutation(32)
    nothing = np.zeros(32, bool)
    found = denoised_counts(noisy, 300.0, TOTAL, nothing).means
    again = denoised_counts(noisy[mixed], 300.0, TOTAL, nothing).means
    np.testing.assert_allclose(found[mixed], again, rtol=1e-9, atol=1e-6)


def test_chain_posterior_equals_the_sum_over_all_paths():
    random = np.random.default_rng(5)
    num_codes, num_bins = 4, 3
    likelihoods = random.random((num_codes, num_bins))
    shared = random.dirichlet(np.ones(num_bins), size=num_codes)
    alike = random.dirichlet(np.ones(num_bins), size=num_bins)
    chances = np.array([0.0, 0.7, 0.0, 0.4])
    posterior, afresh = np.zeros((num_codes, num_bins)), np.zeros((num_codes, num_bins))
    total = 0.0
    for path in np.ndindex(*[num_bins] * num_codes):
        ways = [shared[0][path[0]] * likelihoods[0][path[0]]]
        news = [1.0]
        for code in range(1, num_codes):
            new = (1 - chances[code]) * shared[code][path[code]]
            old = chances[code] * alike[path[code - 1]][path[code]]
            ways.append((new + old) * likelihoods[code][path[code]])
            news.append(new / (new + old))
        chance = math.prod(ways)
        total += chance
        for code in range(num_codes):
            posterior[code][path[code]] += chance
            afresh[code][path[code]] += chance * news[code]
    evidence, found, found_afresh = denoised_attributes._passes(chances, shared, alike, likelihoods)
    assert evidence == pytest.approx(math.log(total))
    np.testing.assert_allclose(found, posterior / total)
    np.testing.assert_allclose(found_afresh, afresh / total)


@pytest.mark.parametrize("noisy", [-1e9, -50.0, 0.0, 3.0, 1e9])
def test_estimates_with_an_outlier_are_finite_and_sum_to_the_total(noisy):
    counts = np.full(12, 5.0)
    counts[4] = noisy
    found = denoised_counts(counts, 1.0, 60.0, np.arange(12) > 0)
    assert np.isfinite(found.means).all() and (found.variances > 0).all()
    assert found.means.sum() == pytest.approx(60.0)


def domain_of() -> dp.Domain:
    return dp.read_domain('{"age": 12, "sex": 2, "size": 3}')


def observed_on(basis: ResidualBasis, seed: int) -> NoisyCoefficients:
    random = np.random.default_rng(seed)
    counts = random.multinomial(2000, random.dirichlet(np.full(basis.num_cells, 0.5)))
    noisy = basis.analyse(counts.astype(float)) + random.normal(0, 8.0, basis.num_coefficients)
    return NoisyCoefficients(noisy, np.full(basis.num_coefficients, 64.0))


def test_denoising_is_repeatable_and_changes_only_long_attributes():
    domain = domain_of()
    basis = ResidualBasis(domain.shape, [(), (0,), (1,), (2,), (0, 1), (1, 2)])
    observed = observed_on(basis, 7)
    kept = observed.values.copy()
    found, again = (denoised(domain, basis, observed, 2000.0) for _ in range(2))
    np.testing.assert_array_equal(observed.values, kept)
    np.testing.assert_array_equal(found.values, again.values)
    age = basis.slices[(0,)]
    assert (found.values[age] != observed.values[age]).all()
    assert (found.variances[age] <= observed.variances[age]).all()
    others = np.delete(np.arange(basis.num_coefficients), np.arange(age.start, age.stop))
    np.testing.assert_array_equal(found.values[others], observed.values[others])
    np.testing.assert_array_equal(found.variances[others], observed.variances[others])


def test_fit_to_denoised_coefficients_has_a_smaller_error():
    domain = dp.read_domain('{"age": 32, "sex": 2}')
    basis = ResidualBasis(domain.shape, [(), (0,), (1,), (0, 1)])
    exact = np.outer(counts_of("bump"), [0.4, 0.6]).ravel()
    total = exact.sum()
    ones, errors = np.ones(basis.num_coefficients), []
    for seed in range(6):
        random = np.random.default_rng(seed)
        noise = random.normal(0, 300.0, basis.num_coefficients)
        observed = NoisyCoefficients(basis.analyse(exact) + noise, 300.0**2 * ones)
        signs = random.choice([-1.0, 1.0], basis.num_coefficients)
        plain, better = (
            fit_maximum_entropy(basis, observed, total, ones, signs, **chosen)
            for chosen in ({}, {"denoise": lambda each: denoised(domain, basis, each, total)})
        )
        errors.append(
            [
                ((total * basis.weights(each.log_weights) - exact) ** 2).sum()
                for each in (plain, better)
            ]
        )
    plain_error, better_error = np.mean(errors, axis=0)
    assert better_error < 0.8 * plain_error


def test_unobserved_coefficients_stay_unobserved():
    domain = domain_of()
    basis = ResidualBasis(domain.shape, [(), (0,), (1,)])
    variances = np.full(basis.num_coefficients, np.inf)
    observed = NoisyCoefficients(np.zeros(basis.num_coefficients), variances)
    found = denoised(domain, basis, observed, 2000.0)
    np.testing.assert_array_equal(found.variances, variances)

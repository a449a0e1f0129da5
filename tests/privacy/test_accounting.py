"""The calibration formulas against printed values, high precision and exact discrete laws."""

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from beam_dp.errors import InputError
from beam_dp.privacy.accounting import (
    discrete_gaussian_mu,
    discrete_parameter,
    gaussian_delta,
    gaussian_mu,
    range_mu,
    zcdp_epsilon,
    zcdp_rho,
)
from beam_dp.testing import audit

EPSILONS = (1e-6, 1e-3, 0.1, 1.0, 10.0, 1e3, 1e6)
DELTAS = (1e-5, 1e-9, 1e-15, 1e-50)


@pytest.mark.parametrize(
    "epsilon, delta, sigma",
    [
        (1, 1e-9, 5.49527),
        (1, 1e-6, 4.22468),
        (0.1, 1e-9, 50.2098),
        (4, 1e-9, 1.48780),
        (0.5, 1e-6, 8.05762),
        (2, 1e-6, 2.23048),
        (1, 1e-5, 3.73063),
    ],
)
def test_analytic_sigma_matches_known_answers(epsilon, delta, sigma):
    assert 1 / gaussian_mu(epsilon, delta) == pytest.approx(sigma, rel=5e-6)
    assert 1 / discrete_gaussian_mu(epsilon, delta) == pytest.approx(sigma, rel=5e-6)


@pytest.mark.parametrize(
    "epsilon, delta, sigma",
    [(1, 1e-9, 5.77869), (1, 1e-6, 4.53088), (0.1, 1e-9, 53.1286), (4, 1e-9, 1.55676)],
)
def test_zcdp_sigma_matches_known_answers(epsilon, delta, sigma):
    assert 1 / math.sqrt(2 * zcdp_rho(epsilon, delta)) == pytest.approx(sigma, rel=5e-6)


def test_rho_matches_known_answers():
    assert zcdp_rho(1, 1e-9) == pytest.approx(0.0149731, rel=1e-5)
    assert zcdp_rho(1, 1e-6) == pytest.approx(0.0243560, rel=1e-5)
    # The loose conversion is an upper bound on the tight one.
    for rho, delta in itertools.product((1e-6, 0.01, 1.0, 50.0), DELTAS):
        assert zcdp_epsilon(rho, delta) <= rho + 2 * math.sqrt(rho * math.log(1 / delta))


def exact_delta(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(80):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        upper = mpmath.ncdf(mu / 2 - epsilon / mu)
        return upper - mpmath.e**epsilon * mpmath.ncdf(-mu / 2 - epsilon / mu)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_exact_delta_of_calibrated_mu_is_at_most_delta(epsilon, delta):
    for calibrate in (gaussian_mu, discrete_gaussian_mu):
        mu = calibrate(epsilon, delta)
        excess = exact_delta(mu, epsilon) / mpmath.mpf(delta) - 1
        assert -1e-3 < excess <= 0


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("delta", DELTAS)
def test_calibrated_mu_and_rho_are_the_largest_allowed(epsilon, delta):
    mu = gaussian_mu(epsilon, delta)
    assert gaussian_delta(mu, epsilon) <= delta
    assert gaussian_delta(mu * (1 + 1e-6), epsilon) > delta
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_epsilon(rho, delta) <= epsilon
    assert zcdp_epsilon(rho * (1 + 1e-9), delta) > epsilon


@pytest.mark.parametrize("epsilon", [1e-100, 1e-30, 1e25, 1e160, 1.7e308])
@pytest.mark.parametrize("delta", [1e-5, 1e-300])
def test_calibrates_extreme_epsilons(epsilon, delta):
    for calibrate in (gaussian_mu, discrete_gaussian_mu, zcdp_rho):
        found = calibrate(epsilon, delta)
        assert 0 < found < math.inf
    assert zcdp_rho(epsilon, delta) <= max(epsilon, 1)


def test_conversions_are_finite_for_tiny_losses_and_tiny_noise():
    assert zcdp_epsilon(0.0, 1e-9) == 0.0
    assert gaussian_delta(1e-9, 1.0) == math.ulp(0.0)  # rounded up
    assert gaussian_delta(1e9, 1.0) == pytest.approx(1.0)


def continuous_deviation(parameter: float) -> float:
    """What a discrete Gaussian is as private as."""
    return math.sqrt(parameter**2 - 4)


def test_discrete_scale_is_as_private_as_the_continuous_deviation():
    for squared in (Fraction(1, 3), 9, 1e-300, 1e300, Fraction(10) ** 700):
        found = discrete_parameter(squared)
        assert found == math.inf or Fraction(found) ** 2 - 4 >= squared
    assert continuous_deviation(discrete_parameter(9)) == pytest.approx(3.0)


# The exact privacy of a vector of discrete Gaussians, by convolving privacy losses.


def privacy_loss(shift: int, sigma: float) -> tuple[np.ndarray, np.ndarray]:
    """Outcomes of one coordinate: the loss ln p(z) / p(z - shift), and the probability p(z)."""
    reach = math.ceil(12 * sigma) + abs(shift)
    z = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-(z**2) / (2 * sigma**2))
    return ((z - shift) ** 2 - z**2) / (2 * sigma**2), weights / weights.sum()


def true_delta(shifts: list[int], sigmas: list[float], epsilon: float) -> float:
    """The hockey-stick divergence of the product of the coordinates' laws."""
    losses, masses = np.zeros(1), np.ones(1)
    for shift, sigma in zip(shifts, sigmas, strict=True):
        loss, mass = privacy_loss(shift, sigma)
        losses = (losses[:, None] + loss).ravel()
        masses = (masses[:, None] * mass).ravel()
        kept = masses > 1e-22
        losses, masses = losses[kept], masses[kept]
    gain = losses > epsilon
    return float((masses[gain] * -np.expm1(epsilon - losses[gain])).sum())


def scaled_sigmas(shifts: list[int], ratio: list[float], mu: float) -> list[float]:
    """Sigmas in the given ratio whose smoothed mu for these shifts is exactly the given one."""
    low, high = 2.0 / min(ratio), 1e6
    for _ in range(200):
        middle = (low + high) / 2
        spent = sum(
            (shift / continuous_deviation(max(middle * r, 2 + 1e-12))) ** 2
            for shift, r in zip(shifts, ratio, strict=True)
        )
        low, high = (low, middle) if spent <= mu**2 else (middle, high)
    return [high * r for r in ratio]


@pytest.mark.parametrize(
    "epsilon, delta", [(0.1, 1e-6), (0.5, 1e-9), (1.0, 1e-9), (2.0, 1e-6), (4.0, 1e-9), (8.0, 1e-6)]
)
@pytest.mark.parametrize(
    "shifts, ratio",
    [
        ([1], [1.0]),
        ([5], [1.0]),
        ([40], [1.0]),
        ([1, 1], [1.0, 1.0]),
        ([3, -2], [1.0, 1.5]),
        ([7, 0, 20], [1.0, 1.0, 3.0]),
        ([1, 1, 1], [1.0, 1.0, 1.0]),
    ],
)
def test_exact_delta_of_discrete_gaussian_vector_is_at_most_delta(epsilon, delta, shifts, ratio):
    sigmas = scaled_sigmas(shifts, ratio, discrete_gaussian_mu(epsilon, delta))
    if math.prod(24 * sigma for sigma in sigmas) > 3e6:
        sigmas, shifts = sigmas[:1], shifts[:1]  # the claim holds for every part, too
    assert min(sigmas) > 2
    found = true_delta(shifts, sigmas, epsilon)
    assert found <= delta * (1 + 1e-6)


@pytest.mark.parametrize("epsilon, delta", [(1.0, 1e-9), (4.0, 1e-9)])
def test_exact_delta_on_a_fine_grid_is_close_to_the_planned_delta(epsilon, delta):
    mu = discrete_gaussian_mu(epsilon, delta)
    shift = math.ceil(2000 * mu)
    (sigma,) = scaled_sigmas([shift], [1.0], mu)
    assert true_delta([shift], [sigma], epsilon) >= 0.999 * delta
    # Five percent less noise breaks the promise: the oracle can see it.
    assert true_delta([shift], [0.95 * sigma], epsilon) > 1.5 * delta


def test_analytic_sigma_exceeds_delta_on_a_coarse_grid():
    """On a coarse grid, the sigma of continuous noise overspends delta by far at epsilon 8."""
    sigma = 1 / gaussian_mu(8.0, 1e-6)
    assert true_delta([1], [sigma], 8.0) > 2e-6


def test_exact_delta_matches_known_answers():
    # Discrete Gaussian with sigma 5: epsilon(1e-9) = 1.10036 by a privacy-loss distribution.
    assert true_delta([1], [5.0], 1.10036) == pytest.approx(1e-9, rel=2e-4)
    # Continuous noise, and the bound through zero-concentrated privacy.
    assert gaussian_delta(1 / 5, 1.1040) == pytest.approx(1e-9, rel=2e-3)
    assert zcdp_epsilon(1 / 50, 1e-9) == pytest.approx(1.16329, rel=1e-5)


def delta_of_equal_coordinates(number: int, sigma: float, epsilon: float) -> float:
    """``true_delta`` where each of so many coordinates moves by 1: only their sum matters."""
    reach = math.ceil(14 * sigma) + 2
    z = np.arange(-reach, reach + 1)
    law = np.exp(-(z**2) / (2 * sigma**2))
    total = np.ones(1)
    for _ in range(number):
        total = np.convolve(total, law / law.sum())
    sums = np.arange(-reach * number, reach * number + 1)
    losses = (number - 2 * sums) / (2 * sigma**2)
    gain = losses > epsilon
    return float((total[gain] * -np.expm1(epsilon - losses[gain])).sum())


@pytest.mark.parametrize(
    "epsilon, delta, number", [(4.0, 1e-9, 2), (4.0, 1e-9, 10), (10.0, 1e-6, 10)]
)
def test_exact_delta_of_many_coordinates_is_at_most_delta(epsilon, delta, number):
    assert delta_of_equal_coordinates(2, 1.5, epsilon) == pytest.approx(
        true_delta([1, 1], [1.5, 1.5], epsilon), rel=1e-6
    )
    mu = discrete_gaussian_mu(epsilon, delta)
    (sigma,) = set(scaled_sigmas([1] * number, [1.0] * number, mu))
    assert delta_of_equal_coordinates(number, sigma, epsilon) <= delta


def test_rejects_epsilon_too_small_for_any_rho():
    for epsilon in (1e-300, 1e-200):
        with pytest.raises(InputError, match=r"epsilon: 1e-.00 is too small for a del"):
            zcdp_rho(epsilon, 1e-300)
    assert 0 < zcdp_rho(1e-100, 1e-300) < 1e-200


def test_mu_of_a_range_is_the_root_of_pi_eighths_rounded_up():
    pi = Fraction(314159265358979323846, 10**20)  # less than 1e-20 below
    assert pi + Fraction(1, 10**20) < 8 * range_mu(1) ** 2 < pi * (1 + Fraction(1, 10**10))
    assert range_mu(Fraction(1, 3)) * 3 == range_mu(1)


@pytest.mark.parametrize("epsilon", [1e-6, 1e-3, 0.1, 1.0, 5.0, 30.0, 300.0])
def test_mechanism_with_bounded_range_is_within_its_mu(epsilon):
    """What the best test against a range epsilon gains, in 60 digits: it is most at even odds."""
    with mpmath.workdps(60):

        def normal(log_odds: mpmath.mpf) -> mpmath.mpf:
            # Of the smaller tail, so that no digits cancel.
            tail = 1 / (1 + mpmath.exp(abs(log_odds)))
            start = -mpmath.sqrt(-2 * mpmath.log(2 * tail)) if tail < 0.3 else -0.1
            found = mpmath.findroot(
                lambda z: mpmath.log(mpmath.erfc(-z / mpmath.sqrt(2)) / 2) - mpmath.log(tail), start
            )
            return found if log_odds < 0 else -found

        gains = {}
        for middle in (0, 0.01, 0.3, 1, 3, 10, 40):
            high, low = mpmath.mpf(middle) + epsilon / 2, mpmath.mpf(middle) - epsilon / 2
            gains[middle] = normal(high) - normal(low)
        allowed = range_mu(Fraction(epsilon))
        assert max(gains.values()) == gains[0]
        assert gains[0] <= mpmath.mpf(allowed.numerator) / allowed.denominator
        assert epsilon > 0.01 or gains[0] > 0.9999 * float(allowed)


@pytest.mark.parametrize("scale", [0.5, 2.0, 20.0])
@pytest.mark.parametrize("times", [1, 2])
def test_exponential_mechanisms_satisfy_the_mu_of_their_range(scale, times):
    """Exact laws of selections among three, once and twice, against the curve of their mu."""
    closest = 0.0
    mu = math.sqrt(times) * float(range_mu(2 / Fraction(scale)))
    for scores in itertools.product(range(-3, 4), repeat=2):
        for shift in itertools.product((-1, 0, 1), repeat=3):
            exact = [0, *scores]
            moved = [score + step for score, step in zip(exact, shift, strict=True)]
            laws = [
                audit.product_law([audit.exponential_mechanism(each, scale)] * times)
                for each in (exact, moved)
            ]
            for epsilon in np.array([0.0, 0.3, 0.6, 0.9]) * 2 * times / scale:
                found = audit.hockey_stick(*laws, float(epsilon))
                allowed = gaussian_delta(mu, float(epsilon))
                assert found <= allowed + 1e-12
                closest = max(closest, found / allowed)
    assert closest > (0.9 if times == 1 else 0.8)

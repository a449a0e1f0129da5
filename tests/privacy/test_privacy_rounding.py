"""What is spent is rounded up and budgets down: against intervals that hold the true values.

The oracles are rational numbers and ball arithmetic (``flint.arb``), whose comparisons hold only
where they are sure. Random parameters have a fixed seed: these tests do not depend on luck.
"""

import math
import random
import sys
from collections.abc import Iterator
from fractions import Fraction

import flint
import pytest
from flint import arb

from beam_dp.privacy.accounting import gaussian_delta, zcdp_epsilon, zcdp_rho
from beam_dp.privacy.ledger.filters import Account
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.rounding import down, lowered, raised, root_down, root_up, up

_BITS = (200, 800, 6400)


@pytest.fixture(autouse=True)
def _restored_precision() -> Iterator[None]:
    before = flint.ctx.prec
    yield
    flint.ctx.prec = before


def numbers(seed: int, count: int, *ranges: tuple[float, float]) -> list[tuple[float, ...]]:
    """Random numbers, uniform on a logarithmic scale between powers of ten."""
    rng = random.Random(seed)
    return [tuple(10 ** rng.uniform(*each) for each in ranges) for _ in range(count)]


def normal(value: arb) -> arb:
    return (-value / arb(2).sqrt()).erfc() / 2


def exact_delta(mu: float, epsilon: float) -> arb:
    for bits in _BITS:
        flint.ctx.prec = bits
        m, e = arb(mu), arb(epsilon)
        found = normal(m / 2 - e / m) - e.exp() * normal(-m / 2 - e / m)
        if found.rel_accuracy_bits() > 80:
            break
    return found


def exact_epsilon(rho: float, excess: float, delta: float) -> arb:
    rho, excess, delta = arb(rho), arb(excess), arb(delta)
    share = (delta.log() + (1 + excess).log()) / excess
    return rho * (1 + excess) - share - (1 + 1 / excess).log()


def least_epsilon(rho: float, delta: float) -> arb:
    """The epsilon of the best order, or hardly more."""
    flint.ctx.prec = 200
    centre = 0.5 * (math.log(-math.log(delta)) - math.log(rho))
    low, high = centre - 10, centre + 10
    for _ in range(100):
        one, other = low + 0.382 * (high - low), low + 0.618 * (high - low)
        better = exact_epsilon(rho, math.exp(one), delta) < exact_epsilon(
            rho, math.exp(other), delta
        )
        low, high = (low, other) if better else (one, high)
    return exact_epsilon(rho, math.exp(low), delta)


def test_rounds_integers_and_fractions_outwards_to_the_nearest_double():
    rng = random.Random(1)
    for _ in range(500):
        value = Fraction(rng.getrandbits(rng.randint(1, 200)), 1 + rng.getrandbits(100))
        assert down(value) <= value <= up(value) <= math.nextafter(down(value), math.inf)
        assert Fraction(root_down(value)) ** 2 <= value <= Fraction(root_up(value)) ** 2
        assert root_up(value) <= math.nextafter(root_down(value), math.inf)
    assert up(2**53 + 1) == 2.0**53 + 2 and down(2**53 + 1) == 2.0**53
    assert root_up(Fraction(9, 4)) == root_down(Fraction(9, 4)) == 1.5 and root_up(0) == 0.0


def test_numbers_beyond_the_range_of_doubles_are_rounded_outwards():
    assert up(10**400) == math.inf and down(10**400) == sys.float_info.max
    assert up(Fraction(1, 10**400)) == math.ulp(0.0) and down(Fraction(1, 10**400)) == 0.0
    assert root_up(10**700) == math.inf and 0 < root_up(Fraction(1, 10**600)) < 1.1e-300


def test_margin_covers_rounding_errors_of_the_stated_number_of_operations():
    for operations, (value,) in enumerate(numbers(2, 200, (-300, 300))):
        worst = Fraction(value) * (1 + Fraction(1, 2**53)) ** operations
        assert raised(value, operations) >= worst
        assert lowered(value, operations) <= Fraction(value) ** 2 / worst
    assert lowered(0.0) == 0.0


def test_computed_gaussian_delta_is_never_below_the_exact_one():
    for mu, epsilon in numbers(3, 1500, (-6, 3), (-8, 5)):
        if epsilon / mu < 1e4:
            found = gaussian_delta(mu, epsilon)
            assert not exact_delta(mu, epsilon) > found
    assert gaussian_delta(1e-3, 1e3) > 0


def test_epsilon_from_zcdp_is_never_below_the_exact_one():
    for rho, delta in numbers(4, 250, (-22, 5), (-30, -0.01)):
        assert not least_epsilon(rho, delta) > zcdp_epsilon(rho, delta)


@pytest.mark.parametrize(
    "epsilon, delta", [(1e-9, 0.1), (1e-12, 1e-3), *numbers(5, 30, (-15, 6), (-30, -0.1))]
)
def test_calibrated_rho_is_private_and_nearly_the_largest(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    assert not least_epsilon(rho, delta) > epsilon
    # Nor is more lost than what the cancellation of large terms leaves unknown.
    if epsilon > 1e-6 * delta:
        assert least_epsilon(rho * (1 + 1e-6), delta) > epsilon * (1 - 1e-4)


def test_pure_loss_is_never_below_the_exact_one():
    flint.ctx.prec = 200
    for (epsilon,) in [(1e6,), *numbers(6, 1000, (-30, 6))]:
        loss, e = Loss.pure(epsilon), arb(epsilon)
        assert Fraction(loss.rho) >= min(Fraction(epsilon) ** 2 / 2, Fraction(epsilon))
        assert not normal(-arb(loss.mu) / 2) > 1 / (1 + e.exp())


def test_gaussian_loss_is_never_below_the_exact_one():
    for (mu,) in numbers(7, 300, (-200, 100)):
        assert Fraction(Loss.gaussian(mu).rho) >= Fraction(mu) ** 2 / 2


def test_spent_epsilon_is_never_below_the_exact_one():
    for epsilon, mu in numbers(8, 40, (-3, 1), (-9, 0)):
        account = Account(20.0, 1e-5, "gaussian", (Loss.gaussian(mu),) * 3)
        spent = account.spent_epsilon()
        total = math.sqrt(3) * mu * (1 - 1e-15)
        assert not exact_delta(total, spent) > 1e-5
        assert Account(20.0, 1e-5, "auto", (Loss.pure(epsilon),) * 3).spent_epsilon() <= 20.0

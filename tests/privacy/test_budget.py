from fractions import Fraction

import pytest
from hypothesis import given, strategies as st

from beam_dp import Guarantee
from beam_dp.privacy.budget import Budget
from beam_dp.privacy.loss import loss_of

KINDS = ("pure", "gaussian", "zcdp")
EPSILONS = st.floats(1e-3, 20)


def promised(epsilon: float, delta: float = 1e-9) -> Guarantee:
    return Guarantee(epsilon, delta, "add_or_remove_one", "person_id", 3, delta > 1e-5)


@given(EPSILONS, st.sampled_from(KINDS), st.lists(st.integers(1, 99), min_size=1, max_size=9))
def test_parts_add_up_to_the_whole(epsilon, kind, weights):
    budget = Budget.of(promised(epsilon), kind)
    parts = [budget.part(Fraction(weight, sum(weights))) for weight in weights]
    assert sum(part.amount for part in parts) == budget.amount
    assert budget.loss == loss_of(kind, epsilon, 1e-9)
    assert all(part.level <= budget.level for part in parts)


@pytest.mark.parametrize("delta", [0.0, 1e-9, 1e-3])
@given(EPSILONS, st.floats(0, 0.5))
def test_later_guarantee_and_its_rest_are_the_whole(delta, epsilon, share):
    budget = Budget.of(promised(epsilon, delta))
    main, rest = budget.split(share)
    assert main == promised(main.epsilon, delta)
    assert Budget.of(main).amount + rest.amount == budget.amount
    assert float(rest.amount / budget.amount) == pytest.approx(share, abs=1e-6)


def test_scales_spend_a_budget_and_no_more():
    pure, squares, rho = (Budget.of(promised(0.7), kind) for kind in KINDS)
    assert 3 / Fraction(pure.scale(3)) <= pure.amount < 3 / Fraction(pure.scale(3) * (1 - 1e-15))
    scale = Fraction(squares.scale(3, grid=64))
    assert (1 - 1e-12) * squares.amount < 3 * 64**2 / (scale**2 - 4) <= squares.amount
    assert (1 - 1e-12) * rho.amount < 3 / (2 * Fraction(rho.scale(3)) ** 2) <= rho.amount

"""The threshold of texts: its slack, its place among other rules, and what a release keeps."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats
from sketch_laws import Shifted

from beam_dp.encoding.open_values import GRID
from beam_dp.mechanisms.discovery.values import ValuesPlan, plan_values
from beam_dp.noise.bound import log_normal
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.testing.audit import discrete_gaussian
from beam_dp.verification.steps import normal_tail
from beam_dp.verification.thresholds import (
    _groups,
    alone_probability,
    least_threshold,
    text_weight,
)

ADD, REPLACE = "add_or_remove_one", "replace_one"


def plan(
    relation: str = ADD, k: int = 1, mu: float = 0.1, slack: float = 1e-10, most: int = 500
) -> ValuesPlan:
    unit = "person" if k > 1 else "record"
    guarantee = Guarantee(1.0, 1e-9, relation, unit, k)  # type: ignore[arg-type]
    return plan_values("city", guarantee, mu, slack, most)


@pytest.mark.parametrize("relation", [ADD, REPLACE])
@pytest.mark.parametrize("k", [1, 2, 17, 10**4, 2**40])
@pytest.mark.parametrize("mu", [1e-3, 0.1, 5.0])
def test_step_proves_the_planned_mu_and_slack_and_hardly_less(relation, k, mu):
    found = plan(relation, k, mu, 1e-10)
    loss = found.step().loss
    assert loss.mu_squared is not None and loss.epsilon is None
    assert (1 - 1e-6) * Fraction(mu) ** 2 <= loss.mu_squared <= Fraction(mu) ** 2
    assert Fraction(9, 10**11) < loss.slack <= Fraction(found.slack)


def test_threshold_is_the_least_for_one_text_but_for_a_few_steps():
    for slack in (0.01, 1e-10, 1e-200):
        found = plan(mu=0.3, slack=slack)
        below = (found.threshold - 3 - GRID) / found.scale
        assert log_normal(-below) > math.log(slack)


def test_numbers_of_texts_are_all_covered_and_the_last_one_exactly():
    for most in (1, 2, 16, 17, 18, 19, 100, 12_345):
        groups = list(_groups(most))
        assert [n for least, last in groups for n in range(least, last + 1)] == [
            *range(1, most + 1)
        ]
        assert groups[-1] == (most, most)
    assert len(list(_groups(2**40))) < 400


@pytest.mark.parametrize("grid", [4, 8, 64])
@pytest.mark.parametrize("most", [1, 2, 5, 40])
def test_alone_probability_bounds_the_exact_law_of_any_number_of_texts(grid, most):
    scale = 1.3 * grid
    threshold = least_threshold(scale, 0.01, most, grid)
    bound = float(alone_probability(scale, threshold, most, grid))
    assert 0.005 < bound <= 0.01
    far = math.ceil(12 * scale)
    worst = 0.0
    for number in range(1, most + 1):
        law = discrete_gaussian(scale, text_weight(number, grid), -far, threshold + far)
        tail = sum(p for value, p in law.items() if value >= threshold)
        worst = max(worst, -math.expm1(number * math.log1p(-tail)))
    assert 0.3 * bound < worst <= bound


def test_threshold_that_one_text_reaches_without_noise_has_slack_one():
    assert alone_probability(3.0, 8, 2, 8) == 1


def test_normal_tail_is_an_upper_bound():
    for value in (-3.0, 0.0, 0.5, 5.0, 12.5, 30.0):
        exact = math.exp(stats.norm.logsf(value))
        assert float(normal_tail(Fraction(value))) == pytest.approx(exact, rel=1e-12)
    assert 0 < normal_tail(Fraction(10**9)) <= normal_tail(Fraction(100))


def test_weights_of_a_unit_have_at_most_the_norm_of_the_grid():
    for grid in (8, GRID):
        for number in (1, 2, 3, 10, 10**6, 2**40):
            weight = text_weight(number, grid)
            assert number * weight**2 <= grid**2 < number * (weight + 1) ** 2


def laplace_threshold(mu: float, slack: float, k: int) -> float:
    """In units: weights 1 / m for L1 sensitivity 1, and the epsilon that costs this mu."""
    epsilon = log_normal(mu / 2) - log_normal(-mu / 2)
    return max(1 / m + math.log(m / (2 * slack)) / epsilon for m in range(1, k + 1))


def unweighted_threshold(mu: float, slack: float, k: int) -> float:
    return 1 + math.sqrt(k) * float(stats.norm.isf(slack / k)) / mu


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("slack", [1e-7, 1e-10, 1e-14])
@pytest.mark.parametrize("mu", [0.01, 0.1, 1.0, 10.0, 20.0])
def test_rule_needs_the_fewest_units_with_one_text(mu, slack, k):
    """The rule that is used has the lowest threshold, for the same mu and slack."""
    found = plan(k=k, mu=mu, slack=slack).threshold_units
    assert found < laplace_threshold(mu, slack, k)
    assert found <= unweighted_threshold(mu, slack, k) * (1 + 1e-5)


def test_laplace_would_need_fewer_units_only_at_a_useless_mu():
    assert plan(mu=40.0, slack=1e-10).threshold_units > laplace_threshold(40.0, 1e-10, 1)


def released(found: ValuesPlan, sums: dict[str, int], shift: int = 0) -> list[tuple[str, float]]:
    texts = pa.array([text.encode() for text in sums], pa.large_binary())
    return found.release(texts, np.array(list(sums.values()), np.int64), Shifted(shift))


def test_releases_texts_from_the_threshold_on_largest_first():
    found = plan()
    least = found.threshold
    sums = {"b": least, "a": least - 1, "c": least + GRID, "é": least}
    units = least / GRID
    assert released(found, sums) == [("c", units + 1), ("b", units), ("é", units)]
    assert [text for text, _ in released(found, sums, shift=1)] == ["c", "b", "é", "a"]
    assert released(found, sums, shift=-2 * GRID) == []


def test_keeps_the_largest_noisy_sums_and_breaks_ties_by_text():
    found = plan(most=3)
    sums = dict.fromkeys("fcaebd", found.threshold) | {"z": found.threshold + 1}
    expected = ["z", "a", "b"]
    assert [text for text, _ in released(found, sums)] == expected
    assert [text for text, _ in released(found, dict(reversed(sums.items())))] == expected


def test_releases_nothing_of_nothing():
    assert released(plan(), {}) == []


def test_card_states_what_the_step_is_computed_from():
    found = plan(REPLACE, 3)
    stated = found.to_json()
    assert stated == {
        "measured": "city",
        "distribution": "discrete_gaussian",
        "max_values": 500,
        "grid": GRID,
        "scale": found.scale,
        "threshold": found.threshold,
        "slack": 1e-10,
    }

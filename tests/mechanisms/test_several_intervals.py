"""Intervals of several attributes from one budget: shares, losses, releases, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from intervals import all_intervals
from noise_sources import NoNoise
from scipy.optimize import minimize
from tiny import ADD, REPLACE, promise

from beam_dp.errors import InputError
from beam_dp.mechanisms.intervals import (
    plan_intervals,
    plan_several_intervals,
    release_several_intervals,
)
from beam_dp.mechanisms.intervals.several import shares_of
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import discrete_gaussian_mu

SIZES = {"age": 70, "hours": 100, "flag": 2}
ERRORS = (400.0, 9.0, 31.0, 1e-3)


@pytest.mark.parametrize("distribution", ["discrete_laplace", "discrete_gaussian"])
def test_shares_for_the_mean_are_the_optimum_found_numerically(distribution):
    power = 2 if distribution == "discrete_laplace" else 1
    scaled = np.array(ERRORS)

    def error(logits: np.ndarray) -> float:
        shares = np.exp(logits - np.logaddexp.reduce(logits))
        return math.log((scaled / shares**power).sum())

    found = minimize(error, np.zeros(4), method="BFGS", options={"gtol": 1e-9}).x
    expected = np.exp(found - np.logaddexp.reduce(found))
    shares = shares_of(ERRORS, distribution, "mean")
    np.testing.assert_allclose(shares, expected, rtol=1e-3)
    assert math.fsum(shares) <= 1 and math.fsum(shares) == pytest.approx(1)


@pytest.mark.parametrize("distribution", ["discrete_laplace", "discrete_gaussian"])
def test_shares_for_the_largest_error_make_all_equal(distribution):
    power = 2 if distribution == "discrete_laplace" else 1
    shares = shares_of(ERRORS, distribution, "max")
    errors = [error / share**power for error, share in zip(ERRORS, shares, strict=True)]
    np.testing.assert_allclose(errors, errors[0])
    assert math.fsum(shares) <= 1 and math.fsum(shares) == pytest.approx(1)


@pytest.mark.parametrize("distribution", ["discrete_laplace", "discrete_gaussian"])
@pytest.mark.parametrize("minimise", ["mean", "max"])
@pytest.mark.parametrize(("neighboring", "most"), [(ADD, 1), (REPLACE, 3)])
def test_losses_add_up_to_the_guarantee(distribution, minimise, neighboring: str, most: int):
    delta = 1e-6
    guarantee = promise(neighboring, delta, 0.9, most)
    plan = plan_several_intervals(SIZES, guarantee, minimise, distribution)
    assert plan.loss.kind == ("pure" if distribution == "discrete_laplace" else "gaussian")
    losses = [each.loss for each in plan.plans.values()]
    if plan.loss.kind == "pure":
        spent = math.fsum(loss.epsilon for loss in losses)
        assert plan.loss.epsilon == guarantee.epsilon
        assert guarantee.epsilon * (1 - 1e-9) < spent <= guarantee.epsilon
    else:
        spent = math.fsum(loss.mu**2 for loss in losses)
        allowed = discrete_gaussian_mu(guarantee.epsilon, delta)
        assert plan.loss.mu == allowed and allowed**2 * (1 - 1e-9) < spent <= allowed**2
    # Every attribute's errors are within discreteness of what its share buys.
    assert all(each.guarantee == guarantee for each in plan.plans.values())
    if minimise == "max":
        errors = np.array([*plan.mean_squared_errors.values()])
        np.testing.assert_allclose(errors, errors.max(), rtol=0.02)


def test_the_closed_form_beats_equal_shares_and_is_within_a_thousandth_of_others():
    guarantee = promise(ADD, 0.0, 0.3)
    best = plan_several_intervals(SIZES, guarantee)
    mean = np.mean([*best.mean_squared_errors.values()])
    equal = [
        plan_intervals(size, promise(ADD, 0.0, 0.3 / 3)).mean_squared_error
        for size in SIZES.values()
    ]
    assert mean < 0.95 * np.mean(equal)
    largest = plan_several_intervals(SIZES, guarantee, "max")
    assert max(largest.mean_squared_errors.values()) < max(best.mean_squared_errors.values())
    # Shares a little different are no better.
    for step in (0.97, 1.03):
        epsilons = {name: each.loss.epsilon for name, each in best.plans.items()}
        epsilons["age"] *= step
        total = sum(epsilons.values()) / 0.3
        moved = [
            plan_intervals(SIZES[name], promise(ADD, 0.0, each / total)).mean_squared_error
            for name, each in epsilons.items()
        ]
        assert mean <= np.mean(moved) * (1 + 1e-6)


def test_many_attributes_take_gaussian_noise_where_there_is_a_delta():
    sizes = {f"column {number}": 30 for number in range(40)}
    plan = plan_several_intervals(sizes, promise(ADD, 1e-9))
    assert plan.loss.kind == "gaussian"
    pure = plan_several_intervals(sizes, promise(ADD))
    assert sum(plan.mean_squared_errors.values()) < sum(pure.mean_squared_errors.values())
    assert plan_several_intervals({"a": 30}, promise(ADD, 1e-9)).loss.kind == "pure"


def test_one_attribute_gets_what_it_gets_alone():
    guarantee = promise(ADD, 1e-9, 0.4, 2)
    plan = plan_several_intervals({"age": 50}, guarantee).plans["age"]
    alone = plan_intervals(50, guarantee)
    assert plan.choice == alone.choice
    assert plan.mean_squared_error == pytest.approx(alone.mean_squared_error, rel=1e-9)


def test_each_attribute_is_released_by_its_name():
    plan = plan_several_intervals(SIZES, promise(ADD))
    generator = np.random.default_rng(1)
    counts = {name: generator.integers(0, 30, size) for name, size in SIZES.items()}
    releases = release_several_intervals(plan, counts, NoNoise())
    for name, release in releases.items():
        low, high = all_intervals(SIZES[name])
        exact = np.append(0, np.cumsum(counts[name]))
        np.testing.assert_allclose(release.answer(low, high).values, exact[high + 1] - exact[low])
    noisy = release_several_intervals(plan, counts, NoiseSource())
    assert len({release.draw_id for release in noisy.values()}) == 3
    for bad in ({"age": counts["age"]}, {**counts, "more": counts["age"]}):
        with pytest.raises(InputError, match="must have the names"):
            release_several_intervals(plan, bad, NoNoise())
    with pytest.raises(InputError, match="must be int64 of shape"):
        release_several_intervals(plan, {**counts, "age": counts["hours"]}, NoNoise())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({}, promise()), "num_leaves: {} is refused; must name at least one attribute"),
        ((7, promise()), "num_leaves"),
        (({"a": 5, "b": 0}, promise()), "num_leaves: 0 is refused"),
        (({"a": 5}, promise(), "median"), "minimise: 'median' is refused; must be 'mean' or 'max'"),
        (
            ({"a": 5}, promise(), "mean", "discrete_gaussian"),
            "distribution: 'discrete_gaussian' is refused; must be 'discrete_laplace' for a delta",
        ),
        (
            ({"a": 5}, promise(ADD, 1e-9), "mean", "laplace"),
            "must be 'discrete_laplace' or 'discrete_gaussian'",
        ),
        (({"a": 5, "b": 5}, promise(ADD, 0.0, 1e-15)), "epsilon"),
    ],
)
def test_bad_requests_are_refused(arguments, message: str):
    with pytest.raises(InputError) as refused:
        plan_several_intervals(*arguments)
    assert message in str(refused.value)

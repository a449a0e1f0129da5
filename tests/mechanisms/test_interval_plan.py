"""The errors that plans predict, and the choice between them.

Statistical tests, of fixed seeds: a mean over runs lies within 5 standard errors of its expectation
but for a probability of about 1e-6. The benchmarks run until the 3 % that are allowed are 3.5
standard errors: a right prediction would fail one of them with a probability of 5e-4.
"""

import math

import numpy as np
import pytest
from intervals import squared_errors
from tiny import ADD, REPLACE, promise

from beam_dp.mechanisms.intervals.plan import GAUSSIAN, PURE, choices, plan_intervals, planned
from beam_dp.noise.source import MAX_SCALE

APPROXIMATE = promise(ADD, 1e-9)
ALL = PURE + GAUSSIAN
SIZES = (2, 3, 1000, 1024, 65536)


@pytest.mark.part
@pytest.mark.parametrize(("num_leaves", "runs"), [(2, 1500), (3, 1500), (200, 400)])
@pytest.mark.parametrize("choice", ALL)
def test_predicted_errors_match_noisy_releases(num_leaves, runs, choice):
    plan = planned(num_leaves, APPROXIMATE, choice)
    errors = squared_errors(plan, runs, seed=1)
    deviation = errors.std() / math.sqrt(runs)
    assert abs(errors.mean() - plan.mean_squared_error) < 5 * deviation


@pytest.mark.benchmark
@pytest.mark.parametrize("num_leaves", SIZES)
@pytest.mark.parametrize("choice", ALL)
def test_predicted_errors_are_within_three_percent_of_measured_errors(num_leaves, choice):
    plan = planned(num_leaves, APPROXIMATE, choice)
    errors = squared_errors(plan, 200, seed=0)
    while 3.5 * errors.std() / math.sqrt(len(errors)) > 0.03 * errors.mean():
        errors = np.append(errors, squared_errors(plan, 200, seed=len(errors)))
    assert errors.mean() == pytest.approx(plan.mean_squared_error, rel=0.03)


@pytest.mark.part
@pytest.mark.parametrize(
    ("num_leaves", "pure", "gaussian"), [(1024, 130, 400), (4096, 262, 619), (65536, 560, 1011)]
)
def test_best_strategies_have_errors_below_known_values(num_leaves, pure, gaussian):
    assert plan_intervals(num_leaves, promise(ADD)).mean_squared_error < pure
    approximate = plan_intervals(num_leaves, APPROXIMATE, distribution="discrete_gaussian")
    assert approximate.choice[0] == "sine"
    assert approximate.mean_squared_error < gaussian


def test_errors_of_single_strategies_match_known_values():
    """Of continuous noise; the discrete noise of small trees has a little less variance."""
    for choice, known, slack in [
        (("histogram", "discrete_gaussian"), 10_328, 1e-3),
        (("textbook_tree", "discrete_gaussian"), 2_662, 1e-3),
        (("textbook_tree", "discrete_laplace"), 1_939, 1e-3),
        (("sine", "discrete_gaussian"), 373.2, 2e-3),
    ]:
        error = planned(1024, APPROXIMATE, choice).mean_squared_error
        assert error == pytest.approx(known, rel=slack), choice
    for num_leaves, choice, root in [
        (128, ("histogram", "discrete_gaussian"), 36.1743),
        (128, ("textbook_tree", "discrete_gaussian"), 35.0506),
        (1024, ("histogram", "discrete_laplace"), 25.0946),
        (8192, ("histogram", "discrete_laplace"), 70.9178),
        (8192, ("textbook_tree", "discrete_laplace"), 65.6581),
    ]:
        error = planned(num_leaves, APPROXIMATE, choice).mean_squared_error
        assert math.sqrt(error) == pytest.approx(root, rel=1e-5), choice
    assert planned(1024, APPROXIMATE, ("tree", "discrete_laplace")).mean_squared_error < 158


@pytest.mark.parametrize("num_leaves", [1, 2, 3, 20, 130])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("most", [1, 3])
def test_default_strategy_has_the_least_predicted_error(num_leaves, delta, neighboring, most):
    guarantee = promise(neighboring, delta, 0.7, most)
    errors = {
        choice: planned(num_leaves, guarantee, choice).mean_squared_error
        for choice in choices(guarantee)
    }
    plan = plan_intervals(num_leaves, guarantee)
    assert plan.mean_squared_error == min(errors.values()) == errors[plan.choice]
    assert plan.loss.kind == ("pure" if plan.choice in PURE else "gaussian")


def test_strategies_with_too_much_noise_are_skipped():
    guarantee = promise(REPLACE, 1e-9, 1e-6, 4)
    for num_leaves in (1, 2, 50):
        assert planned(num_leaves, guarantee, ("sine", "discrete_gaussian")).scale > MAX_SCALE
        assert plan_intervals(num_leaves, guarantee).scale <= MAX_SCALE

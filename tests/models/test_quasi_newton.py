from __future__ import annotations

import numpy as np
import pytest

from beam_dp.models.maximum_entropy import Penalised, QuasiNewton

SIZE = 60


class LogSum:
    """The log of a sum of exponentials, and how often it was asked for."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        # Neighbouring features hang together: no diagonal describes the curvature.
        self.features = np.cumsum(rng.normal(size=(SIZE, 400)), axis=0) / SIZE**0.5
        self.evaluations = 0

    def __call__(self, place: np.ndarray) -> tuple[float, np.ndarray]:
        self.evaluations += 1
        logs = place @ self.features
        weights = np.exp(logs - logs.max())
        value = logs.max() + np.log(weights.sum())
        return 1000 * value, 1000 * self.features @ (weights / weights.sum())


def problem(penalty: float, reference: np.ndarray) -> Penalised:
    # Without penalties the minimum is at a known place.
    linear = LogSum()(np.random.default_rng(2).normal(size=SIZE) / SIZE)[1]
    return Penalised(linear, np.full(SIZE, penalty), reference)


def solver(function: LogSum) -> QuasiNewton:
    return QuasiNewton(function, 1000 * (function.features**2).mean(axis=1))


@pytest.mark.parametrize("penalty", [1e3, 1.0, 1e-2])
def test_gradient_vanishes_at_the_minimum(penalty):
    function = LogSum()
    quasi_newton, asked = solver(function), problem(penalty, np.full(SIZE, 0.1))
    start = quasi_newton.at(np.zeros(SIZE))
    found = quasi_newton.minimise(asked, start, 1e-9)
    assert asked.value(found) < asked.value(start)
    first = np.linalg.norm(asked.gradient(start))
    assert np.linalg.norm(asked.gradient(found)) < 1e-4 * first
    # The same place from far off on the other side: the problem is convex.
    other = quasi_newton.minimise(asked, quasi_newton.at(np.full(SIZE, -0.5)), 1e-9)
    np.testing.assert_allclose(asked.value(other), asked.value(found), rtol=1e-10)


def test_reused_solver_needs_fewer_evaluations_for_the_next_problem():
    def evaluations(of_the_last: bool) -> int:
        function = LogSum()
        quasi_newton = solver(function)
        point = quasi_newton.at(np.zeros(SIZE))
        for penalty in (100.0, 80.0, 60.0):
            asked = problem(penalty, point.place)
            if not of_the_last:
                quasi_newton = solver(function)
            before = function.evaluations
            point = quasi_newton.minimise(asked, point, 1e-6)
        return function.evaluations - before

    assert evaluations(of_the_last=True) < 0.7 * evaluations(of_the_last=False)


def test_start_within_tolerance_is_returned_without_an_evaluation():
    function = LogSum()
    quasi_newton, asked = solver(function), problem(1.0, np.zeros(SIZE))
    found = quasi_newton.minimise(asked, quasi_newton.at(np.zeros(SIZE)), 1e-9)
    before = function.evaluations
    assert quasi_newton.minimise(asked, found, 1.0) is found
    assert function.evaluations == before


def test_points_without_curvature_are_not_remembered():
    quasi_newton = solver(LogSum())
    point = quasi_newton.at(np.zeros(SIZE))
    quasi_newton.learn(point, point)
    asked = problem(1.0, np.zeros(SIZE))
    assert np.isfinite(quasi_newton.minimise(asked, point, 1e-6).place).all()

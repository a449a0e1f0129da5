import itertools
import math

import numpy as np
import pytest

from beam_dp.mechanisms.marginals.measurements import closure_of
from beam_dp.models import quasi_newton
from beam_dp.models.basis import squared_scale
from beam_dp.models.maximum_entropy import (
    NoisyCoefficients,
    _Problem,
    fit_maximum_entropy,
    independent_variances,
)
from beam_dp.models.quasi_newton import Penalised, Point, QuasiNewton, TableCurvature
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.tree_basis import TreeBasis

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


def minimum(function: LogSum, asked: Penalised, start: Point, tolerance: float) -> Point:
    diagonal = 1000 * (function.features**2).mean(axis=1) + asked.penalties

    def evaluate(place: np.ndarray) -> Point:
        return Point(place, *function(place))

    solver = QuasiNewton(evaluate, SIZE)
    return solver.minimise(asked, start, tolerance, lambda vector: vector / diagonal)


@pytest.mark.parametrize("penalty", [1e3, 1.0, 1e-2])
def test_gradient_vanishes_at_the_minimum(penalty):
    function = LogSum()
    asked = problem(penalty, np.full(SIZE, 0.1))
    start, far = (Point(place, *function(place)) for place in (np.zeros(SIZE), np.full(SIZE, -0.5)))
    found = minimum(function, asked, start, 1e-9)
    assert asked.value(found) < asked.value(start)
    first = np.linalg.norm(asked.gradient(start))
    assert np.linalg.norm(asked.gradient(found)) < 1e-4 * first
    # The same place from far off on the other side: the problem is convex.
    other = minimum(function, asked, far, 1e-9)
    np.testing.assert_allclose(asked.value(other), asked.value(found), rtol=1e-10)


BASES = {
    "array": lambda shape, sets: ResidualBasis(shape, closure_of(sets)),
    "tree": lambda shape, sets: TreeBasis(shape, closure_of(sets)),
}


def curvature(basis, chosen, total):
    variances = independent_variances(basis, np.zeros(basis.num_coefficients))
    return TableCurvature(basis, chosen, total, variances[chosen])


@pytest.fixture
def way(request, monkeypatch):
    """The inverse of all tables, or the diagonal that serves while divisors differ little."""
    monkeypatch.setattr(quasi_newton, "_EVEN", {"tables": 0.0, "diagonal": math.inf}[request.param])


@pytest.mark.parametrize("way", ["tables", "diagonal"], indirect=True)
@pytest.mark.parametrize("basis", BASES)
def test_inverse_of_one_uniform_table_is_exact(basis, way):
    made = BASES[basis]((3, 4, 5), [(0, 1)])
    chosen = np.array([place for place in range(made.num_coefficients) if place != position(made)])
    total = 600.0
    gradient = made.log_moments(np.zeros(made.num_coefficients), 0.0)[1][chosen] * total
    diagonal = hessian(made, chosen, total).diagonal()
    vector = np.random.default_rng(3).normal(size=len(chosen))
    # The same noise in each cell of the table gives coefficients this variance.
    scales = [squared_scale(made, each, (0, 1)) for each in made.slices for _ in places(made, each)]
    penalties = 7.0 / np.array(scales)[chosen]
    product = curvature(made, chosen, total).inverse(gradient, penalties)(vector)
    np.testing.assert_allclose(product, vector / (diagonal + penalties), rtol=1e-9)


def position(basis):
    return basis.slices[()].start


def places(basis, support):
    return range(basis.slices[support].start, basis.slices[support].stop)


def hessian(basis, chosen, total):
    """The second derivatives, by differences of gradients."""
    step, columns = 1e-5, []
    for place in chosen:
        moved = np.zeros((2, basis.num_coefficients))
        moved[:, place] = step, -step
        above, below = (basis.log_moments(each, 0.0)[1][chosen] for each in moved)
        columns.append((above - below) * total / (2 * step))
    return np.array(columns)


@pytest.mark.parametrize(
    "seed", [5, *(pytest.param(seed, marks=pytest.mark.part) for seed in (6, 7))]
)
def test_fit_of_tables_with_empty_cells_takes_few_evaluations(monkeypatch, seed):
    """Many cells of each pair are empty; with the diagonal alone, 2,000 to 3,400 are needed."""
    shape = (12, 12, 12)
    rng = np.random.default_rng(seed)
    common = rng.random(10**6)
    codes = [(size * (common + rng.random(10**6)) / 2).astype(int) for size in shape]
    basis = ResidualBasis(shape, closure_of(itertools.combinations(range(3), 2)))
    table = 100.0 * np.bincount(np.ravel_multi_index(codes, shape), minlength=12**3)
    exact, total = basis.analyse(table), table.sum()
    variances = np.full(basis.num_coefficients, 50.0)
    observed = NoisyCoefficients(exact + rng.normal(scale=variances**0.5), variances)
    evaluations, moments = [], _Problem._moments
    monkeypatch.setattr(
        _Problem, "_moments", lambda self, path: evaluations.append(path) or moments(self, path)
    )
    ones = np.ones(basis.num_coefficients)
    found = fit_maximum_entropy(
        basis, observed, int(total), ones, rng.choice([-1.0, 1.0], len(ones))
    )
    fitted = basis.log_moments(found.log_weights, 0.0)[1] * total
    assert ((fitted - exact) ** 2).sum() < 1.2 * variances.sum()
    assert len(evaluations) < 1000

"""The fit against its own optimality conditions, from dense basis vectors; and its solver."""

import itertools
import math
from itertools import combinations

import numpy as np
import pytest

from beam_dp.mechanisms.marginals.measurements import closure_of
from beam_dp.models import quasi_newton
from beam_dp.models.basis import MarginalCoefficients, contrast_levels, squared_scale
from beam_dp.models.maximum_entropy import (
    NoisyCoefficients,
    PenaltyGroups,
    _Problem,
    fit_maximum_entropy,
    independent_variances,
    refit,
)
from beam_dp.models.quasi_newton import TableCurvature
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.tree_basis import TreeBasis

SHAPE = (3, 2, 4)


def basis_of(shape: tuple[int, ...] = SHAPE, ways: int = 2) -> ResidualBasis:
    axes = range(len(shape))
    return ResidualBasis(shape, [s for size in range(ways + 1) for s in combinations(axes, size)])


def vectors(basis: ResidualBasis) -> np.ndarray:
    return np.stack([basis.synthesise(row) for row in np.eye(basis.num_coefficients)])


def counts_of(num_cells: int, num_records: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.multinomial(num_records, rng.dirichlet(np.full(num_cells, 0.5))).astype(float)


def observe(
    basis: ResidualBasis, counts: np.ndarray, variance: float, seed: int | None = None
) -> NoisyCoefficients:
    values = basis.analyse(counts)
    if seed is not None:
        rng = np.random.default_rng(seed)
        values = values + rng.normal(0, math.sqrt(variance), len(values))
    return NoisyCoefficients(values, np.full(len(values), variance))


def fit(basis: ResidualBasis, observed: NoisyCoefficients, total: float):
    ones = np.ones(basis.num_coefficients)
    signs = np.where(np.arange(len(ones)) % 3 == 0, -ones, ones)
    return fit_maximum_entropy(basis, observed, total, ones, signs)


@pytest.mark.parametrize("num_records", [50, 5000, 10**9])
def test_fit_reproduces_coefficients_without_noise(num_records):
    basis = basis_of()
    counts = counts_of(basis.num_cells, num_records) + 1
    found = fit(basis, observe(basis, counts, 1e-8), counts.sum())
    fitted = basis.analyse(basis.weights(found.log_weights)) * counts.sum()
    error = np.abs(fitted - basis.analyse(counts)).max()
    assert error < 1e-3 * math.sqrt(counts.sum())


def test_fit_lowers_the_error_of_noisy_coefficients_and_estimates_it():
    basis = basis_of((2,) * 8, ways=3)
    rng = np.random.default_rng(3)
    counts = rng.multinomial(2000, np.ones(256) / 256).astype(float)
    observed = observe(basis, counts, 900.0, seed=4)
    found = fit(basis, observed, 2000)
    fitted = basis.analyse(basis.weights(found.log_weights)) * 2000
    truth = basis.analyse(counts)
    raw, error = (np.linalg.norm(each - truth) for each in (observed.values, fitted))
    assert error < 0.7 * raw
    assert 0.3 * error < found.estimated_error < 3 * error or found.estimated_error < 0.5 * raw


def test_fit_of_very_many_records_is_as_near_as_the_noise():
    """The error estimate needs steps that are solved exactly: noise is a tiny share of counts."""
    basis = basis_of((9, 16, 7, 6))
    latent = np.random.default_rng(1).random(10**5)
    spread = np.random.default_rng(2).random((4, len(latent)))
    codes = [((latent + spread[i] / 2) % 1) ** 2 * size for i, size in enumerate(basis.shape)]
    cells = np.ravel_multi_index([each.astype(int) for each in codes], basis.shape)
    counts = np.bincount(cells, minlength=basis.num_cells) * 1e5
    truth = basis.analyse(counts)
    for seed in range(3):
        observed = observe(basis, counts, 1.0, seed=seed)
        found = fit(basis, observed, counts.sum())
        fitted = basis.analyse(basis.weights(found.log_weights)) * counts.sum()
        noise, error = (np.linalg.norm((each - truth)[1:]) for each in (observed.values, fitted))
        assert error < 1.01 * noise


@pytest.mark.parametrize(
    ("shape", "seed"),
    [
        ((2, 2, 2), 0),
        *(pytest.param((4, 2, 3), seed, marks=pytest.mark.part) for seed in range(4)),
    ],
)
def test_fit_of_two_full_cells_without_noise_restores_them(shape, seed):
    """Log-weights of empty cells have no bound here, whatever the penalties."""
    counts = np.zeros(shape)
    counts[1, 0, 1] = counts[-1, 1, -1] = 100
    basis = basis_of(counts.shape, ways=3)
    observed, ones = observe(basis, counts.ravel(), 1e-17), np.ones(basis.num_coefficients)
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], len(ones))
    found = fit_maximum_entropy(basis, observed, 200, ones, signs)
    released = basis.weights(found.log_weights) * 200
    np.testing.assert_allclose(released, counts.ravel(), atol=1)


def test_fit_reaches_a_cell_whose_attribute_seems_to_be_empty():
    """Noise of the other cells of a row hides its record; the pair still tells of it."""
    basis, deviation = basis_of((4, 10)), 0.01
    noisy = np.full((4, 10), 500.0)
    noisy[3] = deviation * np.array([6.0] + [-0.9] * 9)
    values = basis.analyse(noisy.ravel())
    observed = NoisyCoefficients(values, np.full(len(values), deviation**2))
    released = basis.weights(fit(basis, observed, 15_000).log_weights) * 15_000
    assert released.reshape(4, 10)[3, 0] > 4 * deviation


@pytest.mark.parametrize(
    ("noise", "seed"),
    [
        ((1,), 0),
        *(
            pytest.param(noise, seed, marks=pytest.mark.part)
            for noise, seed in itertools.product([(1,), (-1,), (1, -1), (1, 1)], range(3))
            if (noise, seed) != ((1,), 0)
        ),
    ],
)
def test_error_of_a_nearly_empty_table_is_at_most_that_of_rare_noise(noise, seed):
    """At epsilon 10 whole-number noise is rare, and then a hundred standard deviations."""
    random, basis = np.random.default_rng(seed), basis_of((30, 10))
    counts, noisy = np.zeros(300), np.zeros(300)
    full = random.choice(300, 12, replace=False)
    counts[full] = random.multinomial(20_000, random.dirichlet(np.full(12, 0.5)))
    noisy[random.choice(300, len(noise), replace=False)] = noise
    values = basis.analyse(counts + noisy)
    variance = 2 * math.exp(-10) / (1 - math.exp(-10)) ** 2
    observed = NoisyCoefficients(values, np.full(len(values), variance))
    released = basis.weights(fit(basis, observed, 20_000).log_weights) * 20_000
    assert np.linalg.norm(released - counts) <= np.linalg.norm(noisy)


def check_step(
    basis: ResidualBasis,
    observed: NoisyCoefficients,
    total: float,
    start: np.ndarray,
    penalty: float,
    tolerance: float,
):
    """The gradient of the dual, from dense vectors, vanishes at the returned step."""
    found = refit(basis, observed, total, start, penalty)
    active = np.isfinite(observed.variances)
    active[basis.slices[()]] = False
    weights = np.exp(found @ vectors(basis))
    fitted = total * (vectors(basis) @ weights) / weights.sum()
    gradient = fitted - observed.values + penalty * observed.variances * (found - start)
    scale = np.sqrt(total / basis.num_cells + penalty * observed.variances[active])
    assert np.abs(gradient[active] / scale).max() < tolerance
    assert (found[~active] == start[~active]).all()


@pytest.mark.parametrize("penalty", [0.01, 1.0, 64.0])
@pytest.mark.parametrize("total", [1.0, 500.0, 1e7])
def test_step_satisfies_its_optimality_conditions(penalty, total):
    basis = basis_of()
    counts = counts_of(basis.num_cells, int(total))
    observed = observe(basis, counts, 25.0, seed=1)
    start = np.random.default_rng(2).normal(0, 0.1, basis.num_coefficients)
    check_step(basis, observed, total, start, penalty, 1e-3 * math.sqrt(total) + 0.1)


def test_fit_without_observations_is_uniform():
    basis = basis_of()
    nothing = NoisyCoefficients(
        np.zeros(basis.num_coefficients), np.full(basis.num_coefficients, np.inf)
    )
    found = fit(basis, nothing, 100.0)
    np.testing.assert_allclose(basis.weights(found.log_weights), 1 / basis.num_cells)
    assert found.steps == 0 and found.mismatch == 0.0


SHAPES = [(1,), (2,), (1, 1), (2, 1, 3), (9, 1)]
AMOUNTS = [*itertools.product([1, 10**9], [1e-18, 1.0, 1e14])]


def test_fit_is_finite_for_some_amounts_of_noise():
    for number, shape in enumerate(SHAPES):
        check_finite(shape, *AMOUNTS[number])


@pytest.mark.part
@pytest.mark.parametrize("shape", SHAPES)
def test_fit_is_finite_for_any_amount_of_noise(shape):
    for total, variance in AMOUNTS:
        check_finite(shape, total, variance)


def check_finite(shape: tuple[int, ...], total: int, variance: float) -> None:
    basis = basis_of(shape, ways=min(2, len(shape)))
    counts = counts_of(basis.num_cells, total)
    observed = observe(basis, counts, variance, seed=9)
    found = fit(basis, observed, total)
    weights = basis.weights(found.log_weights)
    assert np.isfinite(found.log_weights).all() and math.isfinite(found.estimated_error)
    assert math.isfinite(found.mismatch)
    assert weights.sum() == pytest.approx(1) and (weights >= 0).all()


def test_fit_of_empty_data_is_finite():
    basis = basis_of()
    found = fit(basis, observe(basis, np.zeros(basis.num_cells), 1.0), 1.0)
    assert np.isfinite(found.log_weights).all()


def test_fit_does_not_modify_its_inputs_and_reports_steps_in_order():
    basis = basis_of()
    observed = observe(basis, counts_of(basis.num_cells, 100), 4.0, seed=1)
    values, variances = observed.values.copy(), observed.variances.copy()
    seen: list[tuple[str, int, int]] = []
    ones = np.ones(basis.num_coefficients)
    fit_maximum_entropy(basis, observed, 100, ones, ones, lambda *step: seen.append(step))
    assert (observed.values == values).all() and (observed.variances == variances).all()
    assert [step[1] for step in seen] == list(range(1, len(seen) + 1))
    assert all(step[1] <= step[2] for step in seen)


SUPPORTS = [(), (0,), (1,), (2,), (0, 1), (1, 2)]


def groups(shape=(8, 4, 3), supports=SUPPORTS):
    basis = MarginalCoefficients(shape, supports)
    return basis, PenaltyGroups(basis, np.arange(1, basis.num_coefficients))


def test_large_blocks_that_moved_are_held_back_less():
    basis, found = groups()
    moved = np.full(basis.num_coefficients, 0.1)
    of_pair = moved[basis.slices[(0, 1)]].reshape(7, 3)
    of_pair[contrast_levels(8) == 0] = 1.0
    factors = found.factors(moved[1:])[basis.slices[(0, 1)].start - 1 :]
    factors = factors[: of_pair.size].reshape(7, 3)
    assert (factors[0] < 0.6).all()
    assert (factors[1:] > 1.2).all()
    # The codes of one level, and of pairs of levels, share a penalty.
    assert len(np.unique(factors.round(12))) <= 6


def test_fit_to_a_smooth_table_has_less_error_than_with_equal_penalties(monkeypatch):
    """Two ordered attributes whose shares move with each other over large blocks of codes."""
    ages, hours = np.arange(32), np.arange(16)
    table = np.exp(-(((ages[:, None] / 32 - hours / 16) / 0.4) ** 2))
    counts = 20_000 * table / table.sum()
    basis = ResidualBasis(counts.shape, [(), (0,), (1,), (0, 1)])
    exact = basis.analyse(counts.ravel())
    generator = np.random.default_rng(2)
    errors = {"equal": [], "learned": []}
    for _ in range(5):
        noisy = exact + generator.normal(scale=30, size=len(exact))
        observed = NoisyCoefficients(noisy, np.full(len(exact), 900.0))
        signs = generator.choice([-1.0, 1.0], len(exact))
        for kind, found in errors.items():
            with monkeypatch.context() as patch:
                if kind == "equal":
                    patch.setattr(PenaltyGroups, "exist", False)
                fit = fit_maximum_entropy(basis, observed, 20_000, np.ones(len(exact)), signs)
            fitted = basis.weights(fit.log_weights) * 20_000
            found.append(np.abs(fitted - counts.ravel()).sum())
    assert np.mean(errors["learned"]) < 0.8 * np.mean(errors["equal"])


# The solver: its minimum, its inverse of tables, and few evaluations.


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

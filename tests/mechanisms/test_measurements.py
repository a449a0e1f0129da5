"""Measurements against exact linear algebra on tiny domains."""

import dataclasses
import functools
import itertools
import math
from functools import reduce
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
from noise_sources import NoNoise
from tiny import (
    ADD,
    APPROXIMATE,
    PURE,
    REPLACE,
    domain_of,
    neighbours,
    promise,
    units,
    with_unit,
    workload_of,
)

import beam_dp as dp
from beam_dp.mechanisms.marginals import measurements
from beam_dp.mechanisms.marginals.measurements import (
    Measurement,
    best_table_strategy,
    predicted_variance,
    residual_norm,
    residual_query,
    residual_sensitivity,
    residual_strategy,
    table_strategy,
)
from beam_dp.models.basis import importance_of
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.queries.linear import Disjunction, Parity, Product
from beam_dp.releases.synthetic_database.measured_tables import (
    Combination,
    cell_variance,
    query_variance,
    support_variances,
)
from beam_dp.secret.summaries.histogram import Histogram

Support = tuple[int, ...]


def subsets(axes: int | Support) -> list[Support]:
    axes = tuple(range(axes)) if isinstance(axes, int) else axes
    return [s for size in range(len(axes) + 1) for s in combinations(axes, size)]


def residual_matrix(shape: tuple[int, ...]) -> np.ndarray:
    return reduce(np.kron, (np.eye(size) - 1 / size for size in shape), np.ones((1, 1)))


def marginal_matrix(shape: tuple[int, ...], axes: Support) -> np.ndarray:
    parts = [np.eye(s) if axis in axes else np.ones((1, s)) for axis, s in enumerate(shape)]
    return reduce(np.kron, parts, np.ones((1, 1)))


@pytest.mark.parametrize("shape", [(), (1,), (2,), (5,), (3, 2), (2, 3, 4), (1, 3), (70, 2)])
def test_residual_query_is_exact(shape):
    cells = math.prod(shape)
    table = np.random.default_rng(0).integers(0, 1000, shape)
    for grid in (cells, 12 * cells):
        found = residual_query(table, grid)
        assert found.dtype == np.int64 and found.shape == shape
        expected = grid * (residual_matrix(shape) @ table.ravel())
        np.testing.assert_allclose(found.ravel(), expected, atol=1e-6 * grid)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (5,), (3, 2), (2, 3, 4), (1, 3)])
def test_residual_of_every_record_has_the_stated_norm(shape):
    grid = 6 * math.prod(shape)
    for cell in range(math.prod(shape)):
        table = np.zeros(shape, np.int64)
        table[np.unravel_index(cell, shape)] = 1
        squared = sum(int(value) ** 2 for value in residual_query(table, grid).flat)
        assert squared == pytest.approx(grid**2 * residual_norm(shape), abs=1e-9)


def test_residuals_of_huge_counts_wrap_and_keep_their_differences():
    table = np.array([[2**62, 5], [2**61, -(2**62)]])
    more = table.copy()
    more[0, 0] += 1
    with np.errstate(over="ignore"):
        change = residual_query(more, 2**40) - residual_query(table, 2**40)
    one = np.array([[1, 0], [0, 0]])
    assert (change == residual_query(one, 2**40)).all()


@pytest.mark.parametrize("scale", [0.2, 1.0, 2.0, 33.3])
def test_laplace_variance_matches_the_distribution(scale):
    z = np.arange(-4000, 4001)
    law = np.exp(-np.abs(z) / scale)
    expected = (law * z**2).sum() / law.sum()
    found = Measurement(("a",), "table", "discrete_laplace", scale).variance
    assert found == pytest.approx(expected, rel=1e-9)
    on_grid = Measurement(("a",), "table", "discrete_laplace", scale, 10).variance
    assert on_grid == pytest.approx(expected / 100, rel=1e-9)


def test_laplace_variance_stays_positive():
    """Overstated where the truth would vanish: its inverse must stay finite."""
    for scale in (1e-2, 1e-3, 1e-9, 1e-300):
        variance = Measurement(("a",), "table", "discrete_laplace", scale).variance
        assert 0 < variance < 1e-12 and 1 / variance < math.inf


MEASURED: dict[str, tuple[tuple[int, ...], list[Measurement], bool]] = {}


def _case(name: str, shape: tuple[int, ...], public: bool, *specs: tuple[str, str, float]) -> None:
    measurements = [
        Measurement(
            tuple(f"a{axis}" for axis in axes),
            "residual" if kind == "residual" else "table",
            "discrete_gaussian",
            scale * (math.prod(shape[int(a)] for a in axes) if kind == "residual" else 1),
            math.prod(shape[int(a)] for a in axes) if kind == "residual" else 1,
        )
        for axes, kind, scale in specs
    ]
    MEASURED[name] = shape, measurements, public


_case("one table", (3, 2, 2), False, ("01", "table", 2.0))
_case("one table, public total", (3, 2, 2), True, ("01", "table", 2.0))
_case("overlapping tables", (3, 2, 2), False, ("01", "table", 2.0), ("12", "table", 5.0))
_case("nested tables", (3, 2, 2), True, ("012", "table", 2.0), ("1", "table", 1.0))
_case("the same twice", (3, 2), False, ("01", "table", 2.0), ("01", "table", 3.0))
_case("total alone", (3, 2), False, ("", "table", 4.0))
_case("total and table", (3, 2), False, ("", "table", 4.0), ("0", "table", 2.0))
_case("residuals", (3, 2), True, ("0", "residual", 2.0), ("1", "residual", 3.0))
_case(
    "all residuals",
    (3, 2, 2),
    False,
    *((axes, "residual", 1.0 + len(axes)) for axes in ("", "0", "1", "2", "01", "02", "12")),
)
_case("mixed", (3, 2, 2), False, ("01", "table", 2.0), ("1", "residual", 1.0), ("2", "table", 3.0))
_case("size one", (3, 1, 2), False, ("01", "table", 2.0), ("12", "table", 3.0))


def observations(shape: tuple[int, ...], measurement: Measurement) -> np.ndarray:
    axes = tuple(int(name[1:]) for name in measurement.names)
    matrix = marginal_matrix(shape, axes)
    if measurement.kind == "residual":
        matrix = residual_matrix(tuple(shape[axis] for axis in axes)) @ matrix
    return matrix


def information(
    shape: tuple[int, ...], measurements: list[Measurement], public: bool
) -> np.ndarray:
    """Of all measurements together: the inverse covariance of the best unbiased estimate."""
    result = np.full((math.prod(shape),) * 2, 1e9 if public else 0.0)
    for measurement in measurements:
        matrix = observations(shape, measurement)
        result += matrix.T @ matrix / measurement.variance
    return result


@pytest.mark.parametrize("case", MEASURED)
def test_cell_variance_equals_that_of_the_best_unbiased_estimate(case):
    shape, measurements, public = MEASURED[case]
    domain = domain_of(*shape)
    known = information(shape, measurements, public)
    covariance = np.linalg.pinv(known, rcond=1e-14)
    found = support_variances(domain, subsets(len(shape)), measurements, public)
    for axes in subsets(len(shape)):
        marginal = marginal_matrix(shape, axes)
        predicted = cell_variance(domain, found, axes)
        estimable = np.linalg.norm(marginal @ (np.eye(len(known)) - covariance @ known)) < 1e-4
        assert math.isfinite(predicted) == estimable
        if estimable:
            cells = np.diag(marginal @ covariance @ marginal.T)
            np.testing.assert_allclose(cells, predicted, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("case", [name for name in MEASURED if "total alone" not in name])
@pytest.mark.parametrize("kind", [Product, Disjunction, Parity])
def test_query_variance_equals_that_of_the_best_unbiased_estimate(case, kind):
    shape, measurements, public = MEASURED[case]
    domain = domain_of(*shape)
    known = information(shape, measurements, public)
    covariance = np.linalg.pinv(known, rcond=1e-14)
    found = support_variances(domain, subsets(len(shape)), measurements, public)
    measured = [domain.axes(each.names) for each in measurements]
    for axes in measured:
        sizes = [shape[axis] for axis in axes]
        for held in itertools.product(*(range(1, size + 1) for size in sizes)):
            vectors = [
                (np.arange(size) < count).astype(int)
                for size, count in zip(sizes, held, strict=True)
            ]
            num_held = np.ravel(functools.reduce(np.add.outer, vectors, np.zeros((), np.int64)))
            is_one = {
                Product: num_held == len(axes),
                Disjunction: num_held > 0,
                Parity: num_held % 2 == 1,
            }
            query = is_one[kind].astype(float)
            row = query @ marginal_matrix(shape, axes)
            predicted = query_variance(domain, found, axes, held, kind)
            if np.linalg.norm(row - row @ covariance @ known) < 1e-4:
                np.testing.assert_allclose(row @ covariance @ row, predicted, rtol=1e-5, atol=1e-6)
            else:
                assert predicted == math.inf


def tables_of(
    domain: dp.Domain, measurements: list[Measurement], x: np.ndarray
) -> list[np.ndarray]:
    return [
        (observations(domain.shape, each) @ x).reshape(
            [domain.shape[axis] for axis in domain.axes(each.names)]
        )
        for each in measurements
    ]


@pytest.mark.parametrize("case", MEASURED)
def test_combined_estimates_are_unbiased_with_the_stated_variances(case):
    shape, measurements, _ = MEASURED[case]
    domain = domain_of(*shape)
    basis = ResidualBasis(shape, subsets(len(shape)))
    x = np.random.default_rng(1).integers(0, 50, basis.num_cells).astype(float)
    tables = tables_of(domain, measurements, x)
    found = Combination(domain, basis, measurements, tables).estimate()
    observed = np.isfinite(found.variances)
    np.testing.assert_allclose(found.values[observed], basis.analyse(x)[observed], atol=1e-8)
    assert (found.values[~observed] == 0).all()
    # It is linear: its covariance follows from the noise of every single cell.
    covariance = np.zeros((basis.num_coefficients,) * 2)
    zero = [np.zeros_like(table) for table in tables]
    for position, measurement in enumerate(measurements):
        for cell in np.ndindex(tables[position].shape):
            noise = [np.array(each) for each in zero]
            noise[position][cell] = 1.0
            response = Combination(domain, basis, measurements, noise).estimate().values
            covariance += measurement.variance * np.outer(response, response)
    stated = np.where(observed, found.variances, 0.0)
    np.testing.assert_allclose(covariance, np.diag(stated), atol=1e-9)


def test_importance_weights_give_the_mean_squared_error_of_cells():
    domain = domain_of(3, 2, 2)
    basis = ResidualBasis(domain.shape, subsets(3))
    chosen, weights = [("a0", "a1"), ("a2",)], [3.0, 1.0]
    error = np.random.default_rng(2).normal(size=basis.num_cells)
    importance = importance_of(domain, basis, chosen, weights)
    expected = 0.0
    for names, weight in zip(chosen, weights, strict=True):
        table = marginal_matrix(domain.shape, domain.axes(names)) @ error
        expected += weight / 4 * float((table**2).mean())
    assert importance @ basis.analyse(error) ** 2 == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["table", "residual"])
@pytest.mark.parametrize("names", [(), ("a1",), ("a0", "a2"), ("a0", "a1", "a2")])
def test_draw_adds_noise_to_exact_integers_and_returns_records(kind, names):
    domain = domain_of(3, 2, 2)
    counts = np.arange(12)
    grid = 24 if kind == "residual" else 3
    for distribution in ("discrete_laplace", "discrete_gaussian"):
        measurement = Measurement(names, kind, distribution, 5.0, grid)  # type: ignore[arg-type]
        noise = NoNoise()
        held = Histogram(domain, counts).marginals([("a0", "a1", "a2")])
        found = measurement.draw(held, noise)
        expected = observations(domain.shape, measurement) @ counts
        np.testing.assert_allclose(found.ravel(), expected, atol=1e-9)
        (draw,) = noise.draws
        assert f"discrete_{draw.kind}" == distribution and draw.scale == 5.0
        assert draw.exact.dtype == np.int64
        np.testing.assert_allclose(draw.exact.ravel(), grid * expected, atol=1e-9)
        assert measurement.to_json()["scale"] == 5.0


SHAPES = [(2,), (1,), (3, 2), (2, 2, 2), (4, 1, 2), (5, 3)]


def residuals(domain: dp.Domain, axes: tuple[int, ...], counts: np.ndarray) -> np.ndarray:
    table = counts.reshape(domain.shape)
    table = table.sum(tuple(axis for axis in range(table.ndim) if axis not in axes))
    return residual_query(np.asarray(table), table.size) / table.size


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("seed", range(3))
def test_residual_sensitivity_equals_the_largest_change_between_neighbours(
    shape, neighboring, seed
):
    domain = domain_of(*shape)
    rng = np.random.default_rng(seed)
    supports = [each for each in subsets(len(shape)) if seed == 0 or rng.random() < 0.7]
    precisions = rng.gamma(0.5, size=len(supports))
    worst = 0.0
    zeros = np.zeros(domain.num_cells, np.int64)
    for one, other in neighbours(units(domain.num_cells, 1), neighboring):
        change = with_unit(zeros, one) - with_unit(zeros, other)
        parts = [residuals(domain, axes, change) for axes in supports]
        squared = sum(p * (part**2).sum() for p, part in zip(precisions, parts, strict=True))
        worst = max(worst, float(squared))
    found = residual_sensitivity(domain, supports, precisions, dp.Neighboring(neighboring))
    assert found == pytest.approx(math.sqrt(worst), rel=1e-12, abs=1e-12)


def test_residual_sensitivity_of_many_attributes_is_bounded(monkeypatch):
    domain = domain_of(2, 3, 2, 2)
    supports, precisions = subsets(4), np.random.default_rng(1).gamma(1.0, size=16)
    exact = residual_sensitivity(domain, supports, precisions, dp.Neighboring.REPLACE_ONE)
    monkeypatch.setattr(measurements, "_MAX_PATTERN_ATTRIBUTES", 3)
    bound = residual_sensitivity(domain, supports, precisions, dp.Neighboring.REPLACE_ONE)
    assert exact <= bound <= 2 * exact


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("sizes, ways", [((3, 2, 4), 2), ((2, 2, 2, 2), 2), ((5, 9), 1)])
def test_random_shares_of_laplace_tables_predict_no_smaller_error(sizes, ways, public):
    """Of what is near, and of what is not; residuals are shared by tables where ways are 2."""
    guarantee = promise(ADD, PURE, 0.01)

    def predicted(workload: dp.Workload, tables: tuple[tuple[str, ...], ...], shares: Any) -> float:
        found = table_strategy(tables, guarantee, shares)
        return predicted_variance(workload, found, public)

    rng = np.random.default_rng(0)
    for _ in range(5):
        workload = workload_of(domain_of(*sizes), ways)
        workload = dataclasses.replace(workload, weights=tuple(rng.gamma(0.3, size=len(workload))))
        tables = workload.maximal()
        shares = measurements._best_shares(workload, tables, public)
        best = predicted(workload, tables, shares)
        assert best <= predicted(workload, tables, None)
        for deviation in (1e-3, 0.1, 1.0):
            factors = np.exp(rng.normal(0, deviation, len(tables)))
            other = [share * factor for share, factor in zip(shares or [], factors, strict=True)]
            assert predicted(workload, tables, other) >= best * (1 - 1e-6)


def test_random_splits_of_residuals_predict_no_smaller_error():
    """No other split of the same budget predicts less error (add or remove, weighted)."""
    domain = domain_of(3, 2, 4)
    workload = workload_of(domain, 2, weights=(1.0, 5.0, 0.3))
    found = residual_strategy(workload, promise(ADD, APPROXIMATE), True)
    best = predicted_variance(workload, found, True)

    def spent(measurements: list[Measurement]) -> float:
        return sum(
            math.prod(1 - 1 / domain[name].size for name in each.names) / each.variance
            for each in measurements
        )

    rng = np.random.default_rng(0)
    for _ in range(50):
        factors = np.exp(rng.normal(0, 0.3, len(found)))
        other = [
            Measurement(m.names, m.kind, m.distribution, m.scale * f, m.grid)
            for m, f in zip(found, factors, strict=True)
        ]
        rescale = math.sqrt(spent(other) / spent(list(found)))
        other = [
            Measurement(m.names, m.kind, m.distribution, m.scale * rescale, m.grid) for m in other
        ]
        assert predicted_variance(workload, other, True) >= best * (1 - 1e-9)


@pytest.mark.parametrize("shape, ways", [((2,) * 6, 3), ((9, 8, 7, 2), 2), ((5,), 1), ((1, 3), 2)])
def test_table_strategies_cover_the_whole_workload(shape, ways):
    workload = workload_of(domain_of(*shape), ways)
    for limit in (math.prod(shape), 2**26):
        found = best_table_strategy(workload, promise(ADD), True, limit)
        for names in workload:
            assert any(set(names) <= set(each.names) for each in found)
        for each in found:
            cells = math.prod(workload.domain[name].size for name in each.names)
            assert cells <= limit
        alone = table_strategy(workload.maximal(), promise(ADD))
        best, first = (predicted_variance(workload, each, True) for each in (found, alone))
        assert best <= first


@pytest.mark.parametrize("epsilon", [1e-3, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_noise_scales_stay_in_range_for_extreme_inputs(epsilon, neighboring):
    """Big and small attributes, extreme weights: positive and within the sampler's range."""
    domain = domain_of(300, 2, 1, 1000)
    workload = dp.marginals(domain, attributes=[["a0", "a1"], ["a1", "a2"], ["a3"]])
    workload = dp.Workload(domain, workload.marginals, (1e-6, 1.0, 1e6))
    guarantee = promise(neighboring, APPROXIMATE, epsilon)
    for found, public in product(
        (
            residual_strategy(workload, guarantee, True),
            best_table_strategy(workload, guarantee, True, 2**20),
        ),
        (True, False),
    ):
        assert found
        for each in found:
            assert 0 < each.scale <= 2**50 and each.variance > 0
            assert each.grid < 2**50
        if public:
            assert 0 < predicted_variance(workload, found, True) < math.inf

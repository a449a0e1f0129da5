"""What is measured, and how precisely: sensitivities against all neighbours of tiny domains."""

from __future__ import annotations

import dataclasses
import math
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest
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

from beam_dp.domain.universe import Domain
from beam_dp.mechanisms.marginals import measurements
from beam_dp.mechanisms.marginals.measure_all import Gaussian
from beam_dp.mechanisms.marginals.measurements import (
    Measurement,
    best_table_strategy,
    predicted_variance,
    residual_query,
    residual_sensitivity,
    residual_strategy,
    table_strategy,
)
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.queries.workload import Workload, marginals

SHAPES = [(2,), (1,), (3, 2), (2, 2, 2), (4, 1, 2), (5, 3)]


def subsets(num_axes: int) -> list[tuple[int, ...]]:
    return [s for size in range(num_axes + 1) for s in combinations(range(num_axes), size)]


def residuals(domain: Domain, axes: tuple[int, ...], counts: np.ndarray) -> np.ndarray:
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
    found = residual_sensitivity(domain, supports, precisions, Neighboring(neighboring))
    assert found == pytest.approx(math.sqrt(worst), rel=1e-12, abs=1e-12)


def test_residual_sensitivity_of_many_attributes_is_bounded(monkeypatch):
    domain = domain_of(2, 3, 2, 2)
    supports, precisions = subsets(4), np.random.default_rng(1).gamma(1.0, size=16)
    exact = residual_sensitivity(domain, supports, precisions, Neighboring.REPLACE_ONE)
    monkeypatch.setattr(measurements, "_MAX_PATTERN_ATTRIBUTES", 3)
    bound = residual_sensitivity(domain, supports, precisions, Neighboring.REPLACE_ONE)
    assert exact <= bound <= 2 * exact


def test_disjoint_tables_share_epsilon_by_the_cube_roots_of_their_weights():
    workload = Workload(domain_of(500, 500, 500), (("a0",), ("a1",), ("a2",)), (1.0, 8.0, 64.0))
    found = best_table_strategy(workload, promise(ADD), True, 2**26)
    assert [each.scale for each in found] == pytest.approx([7, 7 / 2, 7 / 4], rel=1e-9)


@pytest.mark.parametrize("public", [True, False])
@pytest.mark.parametrize("sizes, ways", [((3, 2, 4), 2), ((2, 2, 2, 2), 2), ((5, 9), 1)])
def test_random_shares_of_laplace_tables_predict_no_smaller_error(sizes, ways, public):
    """Of what is near, and of what is not; residuals are shared by tables where ways are 2."""
    guarantee = promise(ADD, PURE, 0.01)

    def predicted(workload: Workload, tables: tuple[tuple[str, ...], ...], shares: Any) -> float:
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


def test_noise_scales_match_known_values():
    histogram = workload_of(domain_of(4), 1)
    assert table_strategy(histogram, promise(ADD))[0].scale == pytest.approx(1)
    assert table_strategy(histogram, promise(REPLACE))[0].scale == pytest.approx(2)
    hundred = Workload(domain_of(*[2] * 100), tuple((f"a{i}",) for i in range(100)))
    assert table_strategy(hundred, promise(ADD))[0].scale == pytest.approx(100)
    for neighboring, sigma in ((ADD, 5.77869), (REPLACE, math.sqrt(2) * 5.77869)):
        guarantee = promise(neighboring, APPROXIMATE)
        plan = Gaussian("textbook").plan(histogram.domain, histogram, guarantee, 10)
        assert plan.measurements[0].scale == pytest.approx(sigma, rel=1e-5)


def test_residual_of_one_attribute_has_the_analytic_sigma():
    """A record's residual of s codes has squared norm 1 - 1/s; two records differ by 2."""
    for neighboring, squared in ((ADD, 3 / 4), (REPLACE, 2.0)):
        found = residual_strategy(workload_of(domain_of(4), 1), promise(neighboring, 1e-9), True)
        (measurement,) = found
        deviation = math.sqrt(measurement.variance)
        assert deviation == pytest.approx(math.sqrt(squared) * 5.49527, rel=2e-6)


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
    workload = marginals(domain, attributes=[["a0", "a1"], ["a1", "a2"], ["a3"]])
    workload = Workload(domain, workload.marginals, (1e-6, 1.0, 1e6))
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


def test_only_the_total_is_measured_if_every_attribute_has_one_level():
    workload = workload_of(domain_of(1, 1), 2)
    for neighboring in (ADD, REPLACE):
        assert residual_strategy(workload, promise(neighboring, APPROXIMATE), True) == ()
    (total,) = residual_strategy(workload, promise(ADD, APPROXIMATE), False)
    assert total.names == ()

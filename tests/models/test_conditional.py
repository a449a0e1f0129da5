"""Exact draws given codes: compared with all cells of small domains, over graphs of any form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import chi2

from beam_dp.models.conditional import conditional_codes

SHAPE = (3, 2, 4, 2, 3)
NUM_ROWS = 20_000
GRAPHS = {
    "tree": [(0, 1), (1, 2), (2, 3), (2, 4)],
    "cycle": [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)],
    "triples": [(0, 1, 2), (2, 3, 4), (1, 3)],
    "disconnected": [(0, 3), (1, 4)],
    "single attributes": [(0,), (2,), (0,), ()],
    "no tables": [],
    "all together": [(0, 1, 2, 3, 4)],
}
GIVEN = ((), (1,), (1, 3), (0, 2, 4), (0, 1, 2, 3))


def uniforms(axis, start, number):
    return np.random.default_rng([axis, start, 3]).random(number)


def tables_of(sets, rng):
    """Log-tables with values in a wide range, and cells that are impossible."""
    found = [(axes, 2 * rng.normal(size=[SHAPE[axis] for axis in axes])) for axes in sets]
    barred = np.where(rng.random((SHAPE[1], SHAPE[4])) < 0.4, -np.inf, 0.0)
    return [*found, ((1, 4), barred)]


def all_weights(tables):
    total = np.zeros(SHAPE)
    for axes, table in tables:
        total = total + table.reshape([n if i in axes else 1 for i, n in enumerate(SHAPE)])
    return np.exp(total)


@pytest.mark.parametrize("graph", GRAPHS)
def test_draws_have_the_law_of_all_cells_given_the_known_codes(graph, monkeypatch):
    monkeypatch.setattr("beam_dp.models.conditional._PART_CELLS", 2**18)  # several parts
    for given_axes in GIVEN:
        check_law(graph, given_axes)


def check_law(graph, given_axes):
    rng = np.random.default_rng(1)
    tables = tables_of(GRAPHS[graph], rng)
    given = {axis: rng.integers(0, SHAPE[axis], NUM_ROWS) for axis in given_axes}
    columns, possible = conditional_codes(SHAPE, tables, given, NUM_ROWS, uniforms)
    weights = all_weights(tables)
    free = tuple(axis for axis in range(len(SHAPE)) if axis not in given_axes)
    totals = weights.sum(axis=free, keepdims=True)
    by_row = np.broadcast_to(totals, SHAPE)[tuple(columns)]
    assert np.array_equal(possible, by_row > 0)
    for axis, codes in given.items():
        assert np.array_equal(columns[axis], codes)
    seen = np.zeros(SHAPE)
    np.add.at(seen, tuple(each[possible] for each in columns), 1)
    asked = seen.sum(axis=free, keepdims=True)
    expected = asked * np.divide(weights, totals, out=np.zeros(SHAPE), where=totals > 0)
    assert seen[expected == 0].sum() == 0
    # The uniforms are always the same. Rare cells have no normal law.
    held = expected > 5
    distance = ((seen - expected)[held] ** 2 / expected[held]).sum()
    assert distance < chi2.isf(1e-6, held.sum())


def test_rows_without_a_possible_record_are_reported_and_the_others_drawn():
    barred = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    given = {0: np.array([0, 1, 0])}
    columns, possible = conditional_codes((2, 2), [((0, 1), barred)], given, 3, uniforms)
    assert possible.tolist() == [True, False, True]
    assert columns[1][possible].tolist() == [0, 0]


def test_weights_beyond_the_range_of_floats_are_no_problem():
    tables = [((0, 1), np.array([[-2e4, -2e4 + np.log(3)], [-9e4, 2e4]])), ((0,), np.zeros(2))]
    given = {0: np.zeros(NUM_ROWS, np.int64)}
    columns, possible = conditional_codes((2, 2), tables, given, NUM_ROWS, uniforms)
    assert possible.all() and abs(columns[1].mean() - 0.75) < 0.02

"""Interval counts: cells by values, and their strategies. Their files: `contracts/test_kinds`."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from kind_examples import intervals_of
from noise_sources import Seeded

from beam_dp.domain.ordered import NumericAttribute
from beam_dp.errors import InputError
from beam_dp.interval_strategies.tables import strategy_from_tables
from beam_dp.mechanisms.intervals.plan import GAUSSIAN, PURE, Choice, planned, release_intervals
from beam_dp.privacy.guarantee import Guarantee, Neighboring

ADD = Neighboring.ADD_OR_REMOVE_ONE
# More cells than blocks of windows, so that there are trees below.
MANY = 1100


@pytest.mark.parametrize("num_leaves", [37, pytest.param(MANY, marks=pytest.mark.part)])
@pytest.mark.parametrize("choice", PURE + GAUSSIAN, ids="/".join)
def test_pickled_plan_is_unchanged(choice, num_leaves):
    guarantee = Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    plan = planned(num_leaves, guarantee, choice)
    plan.strategy.errors.mean()
    data = pickle.dumps(plan)
    assert len(data) < 10**6
    found = pickle.loads(data)
    counts = np.arange(plan.num_leaves)
    np.testing.assert_array_equal(found.strategy.measure(counts), plan.strategy.measure(counts))
    assert (found.scale, found.grid, found.loss) == (plan.scale, plan.grid, plan.loss)
    assert found.mean_squared_error == plan.mean_squared_error


def test_cells_are_found_by_attribute_values():
    release = intervals_of(("histogram", "discrete_laplace"))
    assert release.cells(-3, 19) == (0, 22) and release.cells(0, 0) == (3, 3)
    for low, high in ((5, 4), (-4, 3), (0, 20), (0.5, 2), ("other", 3), (None, 3), (True, 3)):
        with pytest.raises(InputError, match=r"is not valid|is not one of"):
            release.cells(low, high)


WINDOWS: Choice = ("windows", "discrete_laplace")
SINE: Choice = ("sine", "discrete_gaussian")


def test_rejects_matrix_that_leaves_a_cell_unmeasured():
    tables = {
        "sizes": np.array([3]),
        "weights": np.zeros((0, 3), np.int64),
        "top": np.array([[1, 1, 0]]),
    }
    with pytest.raises(InputError, match="must measure every root"):
        strategy_from_tables("windows", 3, ADD, tables)


def test_bins_are_found_by_their_edges():
    guarantee = Guarantee(1.0, 0, "add_or_remove_one", "record", 1)
    plan = planned(3, guarantee, ("histogram", "discrete_laplace"))
    pay = NumericAttribute("pay", (0, 10, 20.5, 30), nullable=True)
    release = release_intervals(plan, np.zeros(3, np.int64), Seeded(1), pay)
    assert release.cells(10, 30) == (1, 2) and release.cells(0, 30) == (0, 2)
    for low, high in ((10, 10), (0, 11), (20.5, 10)):
        with pytest.raises(InputError, match=r"is not valid|is not one of"):
            release.cells(low, high)

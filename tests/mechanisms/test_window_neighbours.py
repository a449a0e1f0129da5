"""All neighbours of tiny horizons: what windows and blocks hand to the noise keeps the promise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from noise_sources import Draw
from tiny import domain_of, share_spent, workload_of
from window_plans import RECORD, handed_out, kept_sets, person, placements, plan_of, whole

from beam_dp.queries.workload import Workload
from beam_dp.windows.unit import WindowUnit

CELLS = whole(domain_of(2))
LAPLACE = {"distribution": "discrete_laplace"}
GAUSSIAN = {"distribution": "discrete_gaussian"}
LEVELS = {"strategy": "levels", "block": 2, "share": 0.3}


def largest_share(
    num_windows: int, unit: WindowUnit, workload: Workload, options: dict[str, Any]
) -> float:
    """The most that any unit spends of the promise in the windows that it is of."""
    plan = plan_of(num_windows, unit, workload, epsilon=0.8, **options)
    num_cells = workload.domain.num_cells
    worst = 0.0
    for first in range(num_windows - unit.protected_windows + 1):
        run = range(first, first + unit.protected_windows)

        def seen(unit_counts: Any, run: range = run) -> list[Draw]:
            return handed_out(plan, np.asarray(unit_counts) + 1, run)

        nobody = seen(np.zeros((num_windows, num_cells), np.int64))
        for placement in placements(num_windows, unit, num_cells):
            worst = max(worst, share_spent(plan.guarantee, seen(placement), nobody))
    return worst


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("num_windows", "unit"),
    [(3, person(2, 3, 2)), (4, person(1, 2, 2)), (4, person(2, 3)), (3, person(3, 3))],
    ids=["P = W", "P = 2", "sliding", "c = P"],
)
def test_windows_spend_exactly_the_promise(
    num_windows: int, unit: WindowUnit, noise: dict[str, Any]
) -> None:
    assert 1 - 1e-6 < largest_share(num_windows, unit, CELLS, noise) <= 1 + 1e-12


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("windows", [1, 2, 3])
def test_windows_and_blocks_together_spend_exactly_the_promise(
    windows: int, noise: dict[str, Any]
) -> None:
    unit = person(windows, 3, 2 if windows < 3 else 1)
    assert 1 - 1e-6 < largest_share(3, unit, CELLS, {**noise, **LEVELS}) <= 1 + 1e-12


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("options", [{}, LEVELS], ids=["windows", "and blocks"])
def test_a_record_spends_the_promise_in_its_window_and_block(
    options: dict[str, Any], noise: dict[str, Any]
) -> None:
    """In all windows of the horizon together, for it is in one of them."""
    plan = plan_of(4, RECORD, CELLS, epsilon=0.8, **options, **noise)
    nobody = handed_out(plan, np.ones((4, 2)), range(4))
    shares = []
    for place in range(8):
        counts = 1 + (np.arange(8) == place).reshape(4, 2)
        shares.append(share_spent(plan.guarantee, handed_out(plan, counts, range(4)), nobody))
    assert min(shares) > 1 - 1e-6 and max(shares) <= 1 + 1e-12


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
def test_several_marginals_spend_exactly_the_promise(noise: dict[str, Any]) -> None:
    """Of residuals the records of a unit that agree move most: 4 cells, and 2 windows."""
    workload = workload_of(domain_of(2, 2), 1)
    for options in ({}, LEVELS):
        share = largest_share(2, person(2, 2), workload, {**noise, **options})
        assert 1 - 1e-6 < share <= 1 + 1e-12


def test_promise_covers_exactly_the_windows_of_a_unit() -> None:
    for num_windows, unit in ((5, person(2, 4)), (5, person(1, 3)), (5, person(2, 5))):
        for kept in kept_sets(num_windows, unit):
            for first in range(num_windows - unit.protected_windows + 1):
                run = range(first, first + unit.protected_windows)
                assert sum(number in run for number in kept) <= unit.max_windows_per_unit

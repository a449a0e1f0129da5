"""Sums of windows: against dense least squares of what is released, and what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from noise_sources import Seeded
from release_examples import release_of
from tiny import domain_of, workload_of
from window_plans import HORIZON_ID, RECORD, horizon_of, marginals_of, plan_of, whole

from beam_dp.errors import InputError
from beam_dp.mechanisms.windows.plan import WindowTablesPlan
from beam_dp.queries.linear import Product
from beam_dp.releases.windows.release import HorizonRelease, WindowTables

ALL = range(1000)
GAUSSIAN = {"distribution": "discrete_gaussian"}
LEVELS = {"strategy": "levels", "block": 3, "share": 0.4}


def released(
    plan: WindowTablesPlan, windows: Any = ALL, blocks: Any = ALL, seed: int = 0
) -> HorizonRelease:
    """A horizon of which some windows and blocks are released, with seeded noise."""
    parts = plan.blocks
    number_of = plan.horizon.num_windows, 0 if parts is None else len(parts)
    source = Seeded(seed)
    held = [marginals_of(plan, np.arange(plan.workload.domain.num_cells))] * 2
    drawn = [plan.draw(number, held[0], source, HORIZON_ID) for number in range(number_of[0])]
    totals = [
        plan.draw_block(number, held[1], source, HORIZON_ID) for number in range(number_of[1])
    ]
    return HorizonRelease(
        horizon=plan.horizon,
        horizon_id=HORIZON_ID,
        guarantee=plan.guarantee,
        workload=plan.workload,
        windows={each.number: each for each in drawn if each.number in windows},
        block=plan.block,
        blocks={each.number: each for each in totals if each.number in blocks},
        card=plan.public,
    )


def dense(
    release: HorizonRelease, plan: WindowTablesPlan, windows: range
) -> tuple[np.ndarray, float]:
    """The sum of some windows by generalised least squares of all that is released.

    Windows that are not released are unknowns as well; what nothing tells of them has no effect.

    Returns:
        the estimate, shape of the one table, and the variance of a cell.
    """
    names = plan.workload.marginals[0]
    number_of = plan.horizon.num_windows
    rows, values, precisions = [], [], []
    for number, each in release.windows.items():
        assert isinstance(each, WindowTables)
        rows.append(np.arange(number_of) == number)
        values.append(each.tables[names].ravel())
        precisions.append(1 / each.variance(names))
    for number, each in release.blocks.items():
        assert plan.blocks is not None
        rows.append(np.isin(np.arange(number_of), list(plan.blocks.windows(number))))
        values.append(each.tables[names].ravel())
        precisions.append(1 / each.variance(names))
    design, weights = np.array(rows, float), np.array(precisions)
    covariance = np.linalg.pinv((design.T * weights) @ design)
    asked = np.isin(np.arange(number_of), list(windows)).astype(float)
    estimate = asked @ covariance @ (design.T * weights) @ np.array(values)
    return estimate.reshape(release.domain.shape), float(asked @ covariance @ asked)


@pytest.mark.parametrize("options", [{}, LEVELS, {**LEVELS, **GAUSSIAN}, {**LEVELS, "block": 8}])
def test_every_sum_of_windows_is_the_least_squares_estimate(options: dict[str, Any]) -> None:
    """Of eight windows; blocks of three leave a last one of two."""
    plan = plan_of(8, RECORD, whole(domain_of(2, 2)), **options)
    everything = released(plan)
    partly = [
        everything,
        released(plan, range(5)),
        released(plan, ALL, (0, 2)),
        released(plan, (0, 1, 2, 4, 5, 6, 7)),
        released(plan, range(8), ()),
    ]
    for release in partly:
        for first, stop in itertools.combinations(range(9), 2):
            if any(number not in release.windows for number in range(first, stop)):
                continue
            (answer,) = release.answer(plan.workload, slice(first, stop))
            values, variance = dense(release, plan, range(first, stop))
            np.testing.assert_allclose(answer.values, values, rtol=1e-7, atol=1e-7)
            assert answer.standard_error == pytest.approx(math.sqrt(variance), rel=1e-6)


@pytest.mark.parametrize("options", [{}, LEVELS, {**LEVELS, **GAUSSIAN}])
def test_the_error_of_the_whole_horizon_is_the_closed_form(options: dict[str, Any]) -> None:
    plan = plan_of(9, RECORD, whole(domain_of(4)), **options)
    release = released(plan)
    squares = [
        float(release.answer(plan.workload, slice(number, number + 1))[0].standard_error or 0) ** 2
        for number in range(9)
    ]
    assert math.sqrt(np.mean(squares)) == pytest.approx(plan.error("one", "end"), rel=1e-6)


@pytest.mark.parametrize("options", [LEVELS, {**LEVELS, **GAUSSIAN}])
def test_answers_of_queries_are_sums_of_those_of_cells(options: dict[str, Any]) -> None:
    workload = workload_of(domain_of(3, 2, 2), 2)
    plan = plan_of(8, RECORD, workload, **options)
    release = released(plan)
    for windows in (slice(1, 6), slice(None), slice(2, None), slice(None, 4)):
        tables = {a.attributes: a for a in release.answer(workload, windows)}
        queries = [
            Product((3, 2, 2), (0, 1), (((0, 2),), ((1, 2),))),
            Product((3, 2, 2), (0, 2), (((1, 2),), ((0, 1),))),
        ]
        prefix, cell = release.answer_queries(queries, windows)
        assert prefix.value == pytest.approx(tables["a0", "a1"].values[:2, 1].sum())
        assert cell.value == pytest.approx(tables["a0", "a2"].values[1, 0])
        assert cell.standard_error == pytest.approx(tables["a0", "a2"].standard_error)
        assert cell.bound is not None and cell.bound > 2 * float(cell.standard_error or 0)


def test_tables_that_overlap_agree_also_where_blocks_were_used() -> None:
    workload = workload_of(domain_of(3, 2, 2), 2)
    release = released(plan_of(8, RECORD, workload, **LEVELS))
    one, other, _ = release.answer(workload, slice(1, 7))
    np.testing.assert_allclose(one.values.sum(axis=1), other.values.sum(axis=1), atol=1e-8)


def test_sums_of_empty_windows_are_not_biased() -> None:
    """168 windows, 400 cells: of mean 0 within 6 standard errors, and never clipped."""
    plan = plan_of(168, RECORD, whole(domain_of(400)))
    source = Seeded(9)
    held = marginals_of(plan, 0)
    release = dataclasses.replace(
        released(plan, ()),
        windows={n: plan.draw(n, held, source, HORIZON_ID) for n in range(168)},
    )
    (answer,) = release.answer(plan.workload)
    error = float(answer.standard_error or 0)
    assert abs(answer.values.mean()) < 6 * error / 20
    # Clipped at 0 they would have a mean of 168 times what half the noise has.
    assert 6 * error / 20 < 168 * 0.4


class Reading(Mapping[int, WindowTables]):
    """Windows that are read when they are asked for, each time anew."""

    def __init__(self, held: Mapping[int, Any]) -> None:
        self.held = held
        self.read: list[int] = []

    def __getitem__(self, number: int) -> WindowTables:
        self.read.append(number)
        found: WindowTables = self.held[number]
        return found

    def __contains__(self, number: object) -> bool:
        return number in self.held

    def __iter__(self) -> Iterator[int]:
        return iter(self.held)

    def __len__(self) -> int:
        return len(self.held)


def test_only_windows_and_blocks_that_are_needed_are_read() -> None:
    plan = plan_of(8, RECORD, whole(domain_of(4)), **LEVELS)
    release = released(plan)
    windows, blocks = Reading(release.windows), Reading(release.blocks)
    lazy = dataclasses.replace(release, windows=windows, blocks=blocks)
    assert lazy.released == tuple(range(8)) and not windows.read
    lazy.answer(plan.workload, slice(6, 7))
    assert set(windows.read) == {6, 7} and blocks.read == [2]


def test_a_window_that_is_not_released_is_named() -> None:
    plan = plan_of(8, RECORD)
    release = released(plan, (0, 1, 2, 5))
    assert release.released == (0, 1, 2, 5)
    assert len(release.answer(plan.workload, slice(0, 3))) == 1
    for windows, missing in ((slice(1, 5), 3), (slice(None), 3), (slice(6, 8), 6)):
        with pytest.raises(InputError, match=f"windows: {missing} is refused; must be released"):
            release.answer(plan.workload, windows)


@pytest.mark.parametrize(
    "windows", [slice(3, 3), slice(4, 2), slice(-2, None), slice(0, 9), slice(0, 4, 2), slice(0.0)]
)
def test_rejects_slices_outside_the_horizon(windows: slice) -> None:
    plan = plan_of(8, RECORD)
    with pytest.raises(InputError, match="must be from a first window to before a later one, of 0"):
        released(plan).answer(plan.workload, windows)


def test_a_window_of_another_horizon_or_place_is_refused() -> None:
    plan = plan_of(8, RECORD, **LEVELS)
    release = released(plan)
    windows = {**release.windows}
    assert isinstance(windows[3], WindowTables)
    for wrong in (
        dataclasses.replace(windows[3], horizon_id="f" * 32),
        windows[2],
        release.blocks[1],
    ):
        changed = dataclasses.replace(release, windows={**windows, 3: wrong})
        with pytest.raises(InputError, match="window: 3 is refused; must hold tables of this hor"):
            changed.answer(plan.workload, slice(2, 4))
    other = released(plan_of(8, RECORD, whole(domain_of(2)), **LEVELS))
    for windows in (other.windows, {**release.windows, 1: release_of()}):
        with pytest.raises(InputError, match="must hold tables"):
            dataclasses.replace(release, windows=windows).answer(plan.workload, slice(0, 2))
    swapped = dataclasses.replace(release, blocks={0: release.blocks[1]})
    with pytest.raises(InputError, match="block: 0 is refused; must hold tables of this horizon"):
        swapped.answer(plan.workload, slice(0, 1))


def test_synthetic_databases_of_windows_are_answered_one_at_a_time() -> None:
    database = release_of()
    release = HorizonRelease(
        horizon=horizon_of(4),
        horizon_id=HORIZON_ID,
        guarantee=database.guarantee,
        workload=database.workload,
        windows={0: database, 1: database},
    )
    asked = database.workload
    (found, *_), (own, *_) = release.answer(asked, slice(1, 2)), database.answer(asked)
    np.testing.assert_array_equal(found.values, own.values)
    with pytest.raises(InputError, match=r"windows: '0:2' is refused; must be one window: those"):
        release.answer(asked, slice(0, 2))


def test_rejects_inconsistent_horizon() -> None:
    release = released(plan_of(8, RECORD))
    with pytest.raises(InputError, match="horizon_id"):
        dataclasses.replace(release, horizon_id="1")
    with pytest.raises(InputError, match="block: 9 is refused; must be an integer from 2 to 8"):
        dataclasses.replace(release, block=9)
    assert repr(release) == f"HorizonRelease(released=8 of 8 windows, horizon_id='{HORIZON_ID}')"

"""MWEM as published: printed numbers, the law of one update, and what all rounds spend."""

from __future__ import annotations

import math

import numpy as np
import pytest
from noise_sources import NoNoise, Scripted
from tiny import (
    ADD,
    APPROXIMATE,
    PURE,
    REPLACE,
    domain_of,
    plan_of,
    promise,
    summary,
    workload_of,
)

from beam_dp.errors import InputError
from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.privacy.guarantee import Guarantee
from beam_dp.queries.workload import Workload, marginals


def textbook(num_rounds: int | None = None) -> MWEM:
    return MWEM(num_rounds=num_rounds, calibration="textbook")


@pytest.mark.parametrize(
    "delta, num_rounds, epsilon_selection, scale",
    [
        (PURE, 10, 0.05, 20.0),
        (PURE, 100, 0.005, 200.0),
        (APPROXIMATE, 10, 0.0773901, 25.8431),
        (APPROXIMATE, 30, 0.0446812, 44.7616),
        (APPROXIMATE, 100, 0.0244729, 81.7231),
    ],
)
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("most", [1, 4])
def test_noise_scales_match_known_values(
    delta, num_rounds, epsilon_selection, scale, neighboring, most
):
    workload = workload_of(domain_of(2, 3), 1)
    guarantee = promise(neighboring, delta, 1.0, most)
    public = plan_of(textbook(num_rounds), workload, guarantee, 100).public
    assert public["num_rounds"] == num_rounds
    assert public["selection_scale"] == pytest.approx(2 * most / epsilon_selection, rel=1e-5)
    assert public["measurement_scale"] == pytest.approx(most * scale, rel=1e-5)
    assert public["measurement_scale"] >= most * scale * (1 - 1e-5)


TEN = domain_of(*[2] * 10)
SETS = [[f"a{axis}" for axis in range(ways)] for ways in (9, 8, 7, 6, 5, 3)]
THOUSAND = marginals(TEN, attributes=SETS)
FIVE, WIDE = workload_of(domain_of(2, 3), 1), workload_of(domain_of(*[2] * 8), 3)


def bound_of(
    num_rounds: int | None, workload: Workload, guarantee: Guarantee, num_records: int
) -> tuple[float | None, bool]:
    public = plan_of(textbook(num_rounds), workload, guarantee, num_records).public
    return public["bound_of_average"], public["bound_of_average_is_vacuous"]


def test_bound_matches_known_values():
    assert THOUSAND.num_cells() == 1000 and TEN.num_cells == 1024
    known = bound_of(10, THOUSAND, promise(REPLACE), 10**6)
    assert known == (pytest.approx(1665799.998, rel=1e-9), True)
    # More data make the same bound worth something.
    bound, is_vacuous = bound_of(100, THOUSAND, promise(REPLACE), 10**9)
    assert bound < 10**9 and not is_vacuous
    # It holds with probability 1 - 2T/|Q|, which is 0 here.
    bound, is_vacuous = bound_of(20, FIVE, promise(REPLACE, epsilon=100.0), 10**9)
    assert bound < 10**9 and is_vacuous


def test_bound_is_stated_only_for_pure_privacy():
    assert bound_of(9, WIDE, promise(ADD, APPROXIMATE), 10**9)[0] is None
    one, four = (bound_of(9, WIDE, promise(ADD, PURE, 1.0, most), 10**9)[0] for most in (1, 4))
    assert four - one == pytest.approx(3 * 10 * 9 * math.log(WIDE.num_cells()), rel=1e-6)


def test_default_rounds_minimise_the_bound():
    plan = plan_of(textbook(), WIDE, promise(REPLACE), 10**6)
    best = plan.public["num_rounds"]
    for other in (best // 2, best - 5, best + 5, best * 2):
        bound, _ = bound_of(other, WIDE, promise(REPLACE), 10**6)
        assert bound >= plan.public["bound_of_average"] * (1 - 1e-6)


@pytest.mark.parametrize(
    "measured, low, high", [(0, 0.218912, 0.281088), (-350, 0.0596015, 0.440399)]
)
def test_weights_after_one_update_match_known_values(measured, low, high):
    """N = 100 and a uniform start: cell 0 of a0 moves by (measured - 50) / 200."""
    workload = workload_of(domain_of(2, 2), 1)
    plan = plan_of(textbook(1), workload, promise(), 100)
    for selection, expected in ((0, [low, low, high, high]), (1, [high, high, low, low])):
        noise = Scripted([selection], lambda _, shape: np.full(shape, measured))
        release = plan.release(summary(plan, np.zeros(4)), noise)
        (answer,) = release.answer(marginals(workload.domain, ways=2))
        assert (answer.values / 100).ravel().tolist() == pytest.approx(expected, rel=1e-5)


def test_updates_of_every_cell_follow_the_formula():
    domain = domain_of(3, 2, 2)
    workload = workload_of(domain, 2)
    plan = plan_of(textbook(12), workload, promise(), 50)
    chosen = [0, 5, 3, 9, 13, 15, 2, 2, 7, 10, 1, 4]
    noise = Scripted(chosen, lambda number, _: np.asarray(number * 3 - 10))
    release = plan.release(summary(plan, np.zeros(12)), noise)
    cells = []  # the cells of all marginals, as functions on the domain
    for names in workload:
        shape = [domain.shape[axis] for axis in domain.axes(names)]
        for cell in np.ndindex(*shape):
            query = np.zeros(domain.shape)
            index = dict(zip(domain.axes(names), cell, strict=True))
            query[tuple(index.get(axis, slice(None)) for axis in range(3))] = 1
            cells.append(query)
    weights = np.full(domain.shape, 1 / 12)
    for number, selected in enumerate(chosen):
        query = cells[selected]
        measured = (2 * number + 2) * 3 - 10  # every second draw is a measurement
        weights = weights * np.exp(query * (measured - 50 * (weights * query).sum()) / 100)
        weights /= weights.sum()
    (answer,) = release.answer(marginals(domain, ways=3))
    np.testing.assert_allclose(answer.values / 50, weights, rtol=1e-9)


@pytest.mark.parametrize("shape", [(1,), (2,), (2, 2)])
@pytest.mark.parametrize("size", [10**3, 10**9, 10**15])
def test_extreme_noise_leaves_a_finite_hypothesis(shape, size):
    """Records and answers come from the same hypothesis, whatever was measured."""
    workload = workload_of(domain_of(*shape), 1)
    plan = plan_of(textbook(30), workload, promise(), 1)
    rng = np.random.default_rng(0)
    cells = workload.num_cells()
    noise = Scripted(
        rng.integers(0, cells, 40), lambda i, shape: np.asarray(size * (-1) ** (i // 2 % 2))
    )
    with np.errstate(all="raise", under="ignore"):
        release = plan.release(summary(plan, np.zeros(workload.domain.num_cells)), noise)
    assert release.counts.sum() == 1
    for answer in release.answer(workload):
        assert np.isfinite(answer.values).all()
        assert answer.values.sum() == pytest.approx(1)
        rounded = release.record_marginal(answer.attributes)
        assert np.abs(answer.values - rounded).max() < 1


def test_scores_are_exact_errors_of_single_cells():
    workload = workload_of(domain_of(2, 3), 1)
    plan = plan_of(textbook(1), workload, promise(), 12)
    counts = np.array([5, 0, 1, 1, 2, 3])
    noise = NoNoise()
    plan.release(summary(plan, counts), noise)
    select, measure = noise.draws
    expected = np.abs(np.array([6, 6, 6, 2, 4]) - [6, 6, 4, 4, 4])
    scores = select.exact * (plan.public["selection_scale"] / select.scale)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert measure.exact.item() == 6


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 1.0, 1e6])
@pytest.mark.parametrize("num_records", [1, 2**40])
@pytest.mark.parametrize("stop_below", [None, 0.2])
def test_plans_run_on_any_counts_or_are_refused(epsilon, num_records, stop_below):
    workload = workload_of(domain_of(3, 1), 1)
    mechanism = MWEM(2, "textbook", stop_below=stop_below)
    for delta in (PURE, APPROXIMATE):
        try:
            plan = plan_of(mechanism, workload, promise(ADD, delta, epsilon, 100), num_records)
        except InputError as refused:
            assert refused.name == "epsilon" and epsilon < 1e-6
            continue
        for counts in (np.zeros(3), np.array([0, 2**46, 5])):
            plan.release(summary(plan, counts), NoNoise())


def test_default_rounds_are_limited():
    workload = workload_of(domain_of(3, 2), 1)
    plan = plan_of(textbook(), workload, promise(epsilon=1e3), 2**40)
    assert plan.public["num_rounds"] <= 100_000

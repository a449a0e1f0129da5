"""Published MWEM that stops early: its noise, when it stops, what it says, what is proved."""

from __future__ import annotations

import math
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
    plan_of,
    promise,
    summary,
    workload_of,
)

from beam_dp.mechanisms.marginals.measure_all import MWEM
from beam_dp.mechanisms.marginals.textbook_mwem import round_noise
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.releases.synthetic_database.release import SyntheticDatabase

COUNTS = np.array([70, 10, 10, 10])
WORKLOAD = workload_of(domain_of(2, 2), 1)


def stopping(num_rounds: int | None = 20, stop_below: float = 0.2) -> MWEM:
    return MWEM(num_rounds=num_rounds, calibration="textbook", stop_below=stop_below)


def released(
    mechanism: MWEM, noise: NoiseSource | None = None, delta: float = PURE
) -> SyntheticDatabase:
    plan = plan_of(mechanism, WORKLOAD, promise(REPLACE, delta), int(COUNTS.sum()))
    return mechanism.release(plan, summary(plan, COUNTS), noise or NoNoise())


@pytest.mark.parametrize("most", [1, 4])
@pytest.mark.parametrize("num_rounds", [1, 10, 500])
def test_stopping_comparisons_spend_a_tenth_of_the_budget(num_rounds, most):
    pure = round_noise(promise(ADD, PURE, 1.0, most), num_rounds, stops=True)
    assert pure.stop is not None
    assert pure.stop.threshold_scale == pytest.approx(20 * most)
    assert pure.stop.question_scale == pytest.approx(40 * most)
    assert pure.measurement_scale == pytest.approx(2 * num_rounds * most / 0.9)
    assert pure.selection_scale == pytest.approx(4 * num_rounds * most / 0.9)
    promised = promise(ADD, APPROXIMATE, 1.0, most)
    noise, rho = round_noise(promised, num_rounds, stops=True), zcdp_rho(1.0, APPROXIMATE)
    assert noise.stop is not None
    compared = most / noise.stop.threshold_scale + 2 * most / noise.stop.question_scale
    assert compared**2 / 2 == pytest.approx(rho / 10)
    of_round = (most / noise.measurement_scale) ** 2 / 2
    of_round += (2 * most / noise.selection_scale) ** 2 / 8
    assert num_rounds * of_round == pytest.approx(0.9 * rho)


def test_mwem_without_early_stopping_reserves_no_budget_for_it():
    for delta in (PURE, APPROXIMATE):
        noise = round_noise(promise(ADD, delta), 10)
        assert noise.stop is None
        plan = plan_of(MWEM(num_rounds=10, calibration="textbook"), WORKLOAD, promise(), 100)
        assert not {"stop_below", "num_updates", "score_grid"} & set(plan.public)


def errors_by_update(num_updates: int) -> list[float]:
    """The error of the worst cell before each update, where nothing has noise."""
    found, attributes = [], [COUNTS.reshape(2, 2).sum(axis=axis) / 100 for axis in (1, 0)]
    weights = np.full((2, 2), 0.25)
    for _ in range(num_updates + 1):
        held = [weights.sum(axis=axis) for axis in (1, 0)]
        differences = np.concatenate([a - h for a, h in zip(attributes, held, strict=True)])
        worst = int(np.argmax(np.abs(differences)))
        found.append(float(abs(differences[worst])))
        cell: Any = (worst, slice(None)) if worst < 2 else (slice(None), worst - 2)
        weights[cell] *= math.exp(differences[worst] / 2)
        weights /= weights.sum()
    return found


@pytest.mark.parametrize("stop_below", [0.1, 0.2, 0.29])
def test_stops_at_first_hypothesis_with_small_worst_error(stop_below):
    errors = errors_by_update(20)
    expected = next(number for number, error in enumerate(errors) if error <= stop_below)
    noise = NoNoise()
    release = released(stopping(20, stop_below), noise)
    assert release.plan["num_updates"] == expected < 20
    measured = [draw for draw in noise.draws if draw.exact.ndim == 0]
    assert len(measured) == expected
    error = max(
        float(np.abs(answer.values - exact).max())
        for answer, exact in zip(
            release.answer(WORKLOAD),
            (COUNTS.reshape(2, 2).sum(axis=axis) for axis in (1, 0)),
            strict=True,
        )
    )
    assert error == pytest.approx(100 * errors[expected])


def test_stopping_in_the_first_round_releases_the_uniform_hypothesis():
    release = released(stopping(20, 1.0))
    assert release.plan["num_updates"] == 0
    (first, _) = release.answer(WORKLOAD)
    assert first.values.tolist() == pytest.approx([50, 50])


def test_all_rounds_run_if_errors_stay_large():
    # Not even a record: the cells of a row cannot both be right.
    assert released(stopping(3, 0.001)).plan["num_updates"] == 3


def test_comparison_draws_fresh_noise_in_every_round():
    noise = NoNoise()
    plan = plan_of(stopping(20, 0.1), WORKLOAD, promise(REPLACE), 100)
    updates = plan.release(summary(plan, COUNTS), noise).plan["num_updates"]
    assert plan.public["num_rounds"] == 20 > updates > 2
    grid = plan.public["score_grid"]
    compared = [draw for draw in noise.draws if draw.kind == "laplace" and draw.exact.ndim]
    threshold, *questions = compared
    assert threshold.scale >= plan.public["stop_threshold_scale"] * grid
    assert {draw.scale >= plan.public["stop_question_scale"] * grid for draw in questions} == {True}
    # Drawn ahead, zeros plus noise, one for each question.
    assert sum(draw.exact.size for draw in questions) > updates
    assert not any(draw.exact.any() for draw in compared)


def test_stopped_run_states_the_derived_bound_of_the_released_hypothesis():
    plan = plan_of(stopping(20, 0.1), WORKLOAD, promise(REPLACE), 10**6)
    noise = round_noise(promise(REPLACE), 20, stops=True)
    grid, stated = noise.grid, plan.public["bound_when_stopped"]
    expected = 10**5 + 20 * math.log(4 / 0.05) + 40 * math.log(4 * 20 / 0.05)
    expected += noise.selection_scale * math.log(4 * 4 * 20 / 0.05)
    assert expected < stated < expected + 4 / grid
    assert plan.public["bound_of_average"] is None


def fall(data: np.ndarray, weights: np.ndarray, query: np.ndarray, noise: float) -> float:
    """By how much an update lowers the relative entropy, with noise in what it learns from."""
    error = float(query @ (data - weights)) + noise
    moved = weights * np.exp(query * error / 2)
    return float(data @ np.log(moved / moved.sum() / weights))


def test_update_lowers_relative_entropy_by_at_least_what_the_threshold_assumes():
    """Cells and other queries, errors either way, and noise that makes the most of its bound."""
    rng, closest = np.random.default_rng(0), math.inf
    for _ in range(3000):
        size = int(rng.integers(2, 9))
        weights, data = rng.dirichlet(np.ones(size)), rng.dirichlet(np.full(size, 0.3))
        query = (rng.random(size) < 0.5).astype(np.float64)
        error = abs(float(query @ (data - weights)))
        bound = error * rng.random()
        counted_on = (error - bound) * (15 * error + bound) / 32
        if error < 1e-3:
            continue
        for noise in (-bound, bound, bound * rng.uniform(-1, 1)):
            least = fall(data, weights, query, noise)
            assert least >= counted_on * (1 - 1e-9)
            closest = min(closest, least / counted_on)
    # With half of the weight on the query Hoeffding's lemma loses next to nothing.
    even, tilted = np.array([0.5, 0.5]), np.array([0.51, 0.49])
    least = fall(tilted, even, np.array([1.0, 0.0]), 0.0)
    assert least == pytest.approx(15 / 32 * 0.01**2, rel=1e-4) and closest < 1.2


@pytest.mark.parametrize("delta", [PURE, APPROXIMATE])
def test_threshold_solves_the_equation_for_its_number_of_rounds(delta):
    noise = round_noise(promise(REPLACE, delta), 50, stops=True)
    total, beta = 10**5, 0.05
    threshold = noise.stopping_threshold(64, total, beta)
    log_term = math.log(4 * 50 / beta)
    assert noise.stop is not None
    misjudged = noise.stop.threshold_scale * math.log(4 / beta)
    misjudged += noise.stop.question_scale * log_term
    gap = (threshold - misjudged) / total
    error = noise.measurement_scale * log_term
    if delta:
        error = noise.measurement_scale * math.sqrt(2 * (log_term + math.log(2)))
    error /= total
    assert 50 * (gap - error) * (15 * gap + error) / 32 == pytest.approx(math.log(64), rel=1e-3)

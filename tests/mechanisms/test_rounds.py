"""MWEM in rounds, as published, and stopped early: what it draws, spends, learns and proves."""

import math
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
from noise_sources import NoNoise, Scripted
from tiny import ADD, APPROXIMATE, PURE, REPLACE, domain_of, plan_of, promise, summary, workload_of

import beam_dp as dp
from beam_dp.mechanisms.marginals import rounds as rounds_module
from beam_dp.mechanisms.marginals.rounds import round_budget, scales_of_round
from beam_dp.mechanisms.marginals.textbook_mwem import round_noise
from beam_dp.privacy.noise.source import NoiseSource


@pytest.fixture(autouse=True)
def without_the_final_fit(monkeypatch):
    """It is post-processing of what was drawn: these tests look at what is drawn."""
    monkeypatch.setattr(rounds_module, "synthesise", lambda *arguments, **named: None)


@pytest.mark.parametrize("delta, growth", [(PURE, 2), (APPROXIMATE, 4)])
def test_annealed_schedule_spends_more_after_uninformative_rounds(delta, growth):
    """Empty data answered exactly never moves the hypothesis by as much as the noise would."""
    domain = domain_of(2, 2)
    workload = workload_of(domain, 2)
    plan = plan_of(dp.MWEM(num_rounds="annealed"), workload, promise(delta=delta), 1)
    noise = NoNoise()
    plan.release(summary(plan, np.zeros(4, dtype=np.int64)), noise)
    scales = [draw.scale for draw in noise.draws if not draw.is_selection]
    units = [(scales[0] / scale) ** (1 if delta == 0 else 2) for scale in scales]
    assert (
        not delta or min(scales) > 4000
    )  # so that the 4 of a discrete Gaussian is next to nothing
    assert units[:2] == pytest.approx([1, growth])
    assert sum(units) == pytest.approx(plan.public["num_units"])


@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
def test_round_of_several_units_costs_no_more_than_these_units(neighboring):
    """In rational numbers: epsilon is inverse to a scale s, and mu^2 to s^2, or s^2 - 4."""
    for units, most in product((2, 3, 16, 1000), (1, 3, 4321)):
        pure = round_budget(promise(neighboring, PURE, 0.7, most), 1000, 1000, True)
        several = scales_of_round(pure, units)
        assert units * Fraction(several.selection_scale) >= Fraction(pure.selection_scale)
        assert units * Fraction(several.measurement_scale) >= Fraction(pure.measurement_scale)
        one = round_budget(promise(neighboring, APPROXIMATE, 0.7, most), 1000, 1000, True)
        several = scales_of_round(one, units)
        for name, grid in (("selection_scale", 0), ("measurement_scale", 4)):
            before, after = (Fraction(getattr(each, name)) ** 2 - grid for each in (one, several))
            assert units * after >= before


# MWEM as published: printed numbers, the law of one update, and what all rounds spend.


def textbook(num_rounds: int | None = None) -> dp.MWEM:
    return dp.MWEM(num_rounds=num_rounds, calibration="textbook")


TEN = domain_of(*[2] * 10)
SETS = [[f"a{axis}" for axis in range(ways)] for ways in (9, 8, 7, 6, 5, 3)]
THOUSAND = dp.marginals(TEN, attributes=SETS)
FIVE, WIDE = workload_of(domain_of(2, 3), 1), workload_of(domain_of(*[2] * 8), 3)


def bound_of(
    num_rounds: int | None, workload: dp.Workload, guarantee: dp.Guarantee, num_records: int
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
        (answer,) = release.answer(dp.marginals(workload.domain, ways=2))
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
    (answer,) = release.answer(dp.marginals(domain, ways=3))
    np.testing.assert_allclose(answer.values / 50, weights, rtol=1e-9)


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


# Published MWEM that stops early: its noise, when it stops, what it says, what is proved.


COUNTS = np.array([70, 10, 10, 10])
WORKLOAD = workload_of(domain_of(2, 2), 1)


def stopping(num_rounds: int | None = 20, stop_below: float = 0.2) -> dp.MWEM:
    return dp.MWEM(num_rounds=num_rounds, calibration="textbook", stop_below=stop_below)


def released(
    mechanism: dp.MWEM, noise: NoiseSource | None = None, delta: float = PURE
) -> dp.SyntheticDatabase:
    plan = plan_of(mechanism, WORKLOAD, promise(REPLACE, delta), int(COUNTS.sum()))
    return mechanism.release(plan, summary(plan, COUNTS), noise or NoNoise())


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


def test_stopped_run_states_the_derived_bound_of_the_released_hypothesis():
    plan = plan_of(stopping(20, 0.1), WORKLOAD, promise(REPLACE), 10**6)
    noise = round_noise(promise(REPLACE), 20, stops=True)
    grid, stated = noise.grid, plan.public["bound_when_stopped"]
    expected = 10**5 + 20 * math.log(4 / 0.05) + 40 * math.log(4 * 20 / 0.05)
    expected += noise.selection_scale * math.log(4 * 4 * 20 / 0.05)
    assert expected < stated < expected + 4 / grid
    assert plan.public["bound_of_average"] is None


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

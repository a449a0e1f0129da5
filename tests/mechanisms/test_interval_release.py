"""What a release of intervals answers."""

from __future__ import annotations

import numpy as np
import pytest
from executed_lines import lines_below
from intervals import all_intervals
from noise_sources import NoNoise, Seeded
from tiny import ADD, promise

from beam_dp.mechanisms.intervals.plan import (
    GAUSSIAN,
    PURE,
    IntervalPlan,
    plan_intervals,
    planned,
    release_intervals,
)
from beam_dp.noise.bound import noise_variance
from beam_dp.noise.source import NoiseSource

GUARANTEE = promise(ADD, 1e-9)
COUNTS = np.random.default_rng(4).integers(0, 40, 23)
ASKED = np.array([[0, 3, 5, 0, 11], [22, 3, 20, 9, 22]])


def plans() -> dict[str, IntervalPlan]:
    return {"/".join(choice): planned(23, GUARANTEE, choice) for choice in PURE + GAUSSIAN}


@pytest.mark.parametrize("name", plans())
def test_without_noise_answers_are_exact(name):
    release = release_intervals(plans()[name], COUNTS, NoNoise())
    low, high = all_intervals(23)
    exact = np.append(0, np.cumsum(COUNTS))
    np.testing.assert_allclose(release.answer(low, high).values, exact[high + 1] - exact[low])
    np.testing.assert_allclose(release.prefixes(), exact, atol=1e-9)
    np.testing.assert_allclose(release.increasing_prefixes(), exact, atol=1e-9)
    np.testing.assert_allclose(release.histogram(), COUNTS, atol=1e-9)


class OneValue(NoNoise):
    """Adds 2^30 to one of the values that are drawn."""

    def __init__(self, place: int) -> None:
        super().__init__()
        self._place = place

    def noisy(self, values: np.ndarray) -> np.ndarray:
        moved = values.ravel() + 2**30 * (np.arange(values.size) == self._place)
        self._place -= values.size
        return moved.reshape(values.shape)


@pytest.mark.parametrize("name", plans())
def test_standard_errors_match_effect_of_each_noise_value(name):
    """Answers are linear in the noise: each value has an effect of its own."""
    plan, noise = plans()[name], NoNoise()
    exact = release_intervals(plan, COUNTS, noise).answer(*ASKED)
    variances = [
        noise_variance(f"discrete_{draw.kind}", draw.scale)  # type: ignore[arg-type]
        for draw in noise.draws
        for _ in range(draw.exact.size)
    ]
    moved = [
        release_intervals(plan, COUNTS, OneValue(place)).answer(*ASKED).values
        for place in range(len(variances))
    ]
    effects = (np.array(moved) - exact.values) / 2**30
    errors = np.sqrt(variances @ effects**2)
    np.testing.assert_allclose(exact.standard_errors, errors, rtol=1e-6)


@pytest.mark.part
@pytest.mark.parametrize("name", plans())
def test_errors_of_1000_runs_exceed_bounds_no_more_often_than_stated(name):
    plan, noise = plans()[name], Seeded(8)
    answers = [release_intervals(plan, COUNTS, noise).answer(*ASKED) for _ in range(1000)]
    exact = np.append(0, np.cumsum(COUNTS))
    errors = np.array([each.values for each in answers]) - (exact[ASKED[1] + 1] - exact[ASKED[0]])
    assert (np.abs(errors) > answers[0].bounds).mean() < 0.05


def test_simultaneous_bounds_are_wider_and_cover_all_intervals():
    plan = planned(23, GUARANTEE, ("windows", "discrete_laplace"))
    low, high = all_intervals(23)
    exact = np.append(0, np.cumsum(COUNTS))
    noise = Seeded(2)
    failures = 0
    for _ in range(200):
        release = release_intervals(plan, COUNTS, noise)
        together = release.answer(low, high, all_at_once=True)
        alone = release.answer(low, high)
        assert (together.bounds > alone.bounds).all()
        errors = np.abs(together.values - (exact[high + 1] - exact[low]))
        failures += bool((errors > together.bounds).any())
    assert failures <= 200 * 0.05


@pytest.mark.parametrize("name", plans())
def test_adjacent_intervals_add_up_except_in_the_textbook_tree(name):
    release = release_intervals(plans()[name], COUNTS, Seeded(1))
    low, middle, high = np.array([0, 2, 7]), np.array([4, 2, 20]), np.array([22, 9, 21])
    whole = release.answer(low, high).values
    parts = release.answer(low, middle).values + release.answer(middle + 1, high).values
    if name.startswith("textbook"):
        assert not np.allclose(whole, parts)
    else:
        np.testing.assert_allclose(whole, parts, atol=1e-8)


def test_increasing_prefixes_are_closer_than_running_maxima_and_give_quantiles():
    plan = plan_intervals(23, GUARANTEE)
    release = release_intervals(plan, np.ones(23, np.int64), Seeded(3))
    fitted, free = release.increasing_prefixes(), release.prefixes()
    assert fitted[0] == 0 and (np.diff(fitted) >= 0).all()
    assert not (np.diff(free) >= 0).all()
    other = np.maximum.accumulate(np.maximum(free, 0))
    assert ((fitted - free) ** 2).sum() < ((other - free) ** 2).sum()
    counts = np.zeros(23, np.int64)
    counts[[4, 9]] = 3_000, 1_000
    release = release_intervals(plan, counts, Seeded(3))
    assert release.quantiles([0.5, 0.9]).tolist() == [4, 9]


@pytest.mark.parametrize("name", plans())
def test_empty_list_of_intervals_gives_empty_answers(name):
    release = release_intervals(plans()[name], COUNTS, NoNoise())
    for empty in ([], np.zeros((0, 3), np.int64)):
        found = release.answer(empty, empty)
        shapes = {np.shape(array) for array in vars(found).values() if np.ndim(array)}
        assert shapes == {np.shape(empty)}


@pytest.mark.part
@pytest.mark.parametrize("name", ["windows", "sine", "tree"])
def test_million_answers_execute_few_python_lines(name):
    plan = plan_intervals(65536, GUARANTEE, name)
    counts = np.random.default_rng(1).integers(0, 100, 65536)
    with lines_below(10_000_000):
        release = release_intervals(plan, counts, NoiseSource())
    ends = np.sort(np.random.default_rng(2).integers(0, 65536, (2, 10**6)), axis=0)
    release.answer(0, 65535)  # what is prepared once
    with lines_below(10_000):
        release.answer(ends[0], ends[1])

"""Interval counts: strategies against dense matrices, predicted errors, and released answers."""

import dataclasses
import math

import numpy as np
import pytest
from executed_lines import lines_below
from intervals import all_intervals, dense, interval_matrix, squared_errors
from noise_sources import NoNoise, Seeded
from tiny import ADD, REPLACE, promise

from beam_dp.mechanisms.intervals import (
    GAUSSIAN,
    PURE,
    IntervalPlan,
    best_tree,
    choices,
    plan_intervals,
    planned,
    release_intervals,
    windows,
)
from beam_dp.models.intervals import sine as sine_module
from beam_dp.models.intervals.hierarchy import Hierarchy, tree
from beam_dp.models.intervals.sine import SineStrategy, convolve_integers, ordered_convolution
from beam_dp.models.intervals.strategy import TextbookTree
from beam_dp.privacy.guarantee import Neighboring
from beam_dp.privacy.noise.bound import noise_variance
from beam_dp.privacy.noise.source import MAX_SCALE, NoiseSource


def forest() -> Hierarchy:
    generator = np.random.default_rng(3)
    weights = tuple(generator.integers(1, 6, size) for size in (11, 29))
    return Hierarchy((5, 11, 29), weights, generator.integers(0, 4, (3, 5)))


def weighted(sizes: tuple[int, ...], weights: tuple[int, ...]) -> Hierarchy:
    """A tree as earlier versions planned them, whose releases are still read."""
    levels = tuple(np.full(size, each) for size, each in zip(sizes, weights, strict=True))
    return dataclasses.replace(tree(sizes), weights=levels)


CONSISTENT = {
    "one cell": tree((1,)),
    "cells": tree((9,)),
    "binary": tree((2, 4, 8, 16)),
    "uneven": tree((3, 7, 20)),
    "weighted": weighted((2, 5, 11, 23), (1, 3, 2, 5)),
    "best tree": best_tree(40, 1),
    "forest": forest(),
    "windows, 2": windows(2),
    "windows, 50": windows(50),
    "sine, 1": SineStrategy.build(1),
    "sine, 2": SineStrategy.build(2),
    "sine, 33": SineStrategy.build(33),
}


@pytest.mark.parametrize("name", CONSISTENT)
def test_sensitivities_are_the_largest_column_norms(name):
    matrix = dense(CONSISTENT[name])
    assert CONSISTENT[name].l1_sensitivity == np.abs(matrix).sum(axis=0).max()
    assert CONSISTENT[name].l2_sensitivity_squared == (matrix**2).sum(axis=0).max()
    assert ((matrix.T @ matrix) >= 0).all() and (matrix >= 0).all()


@pytest.mark.parametrize("name", CONSISTENT)
def test_estimates_equal_the_least_squares_solution(name):
    strategy = CONSISTENT[name]
    matrix = dense(strategy).astype(np.float64)
    noisy = np.random.default_rng(1).normal(size=len(matrix)) * 100
    expected = interval_matrix(strategy.num_leaves) @ (np.linalg.pinv(matrix) @ noisy)
    answers = strategy.estimate(noisy).answer(*all_intervals(strategy.num_leaves))
    np.testing.assert_allclose(answers, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CONSISTENT)
def test_variances_and_their_mean_match_the_dense_matrix(name):
    strategy = CONSISTENT[name]
    rows = interval_matrix(strategy.num_leaves) @ np.linalg.pinv(dense(strategy).astype(float))
    exact = (rows**2).sum(axis=1)
    assert strategy.errors.mean() == pytest.approx(exact.mean(), rel=1e-9)
    low, high = all_intervals(strategy.num_leaves)
    stated = strategy.errors.variances(low, high)
    np.testing.assert_allclose(stated, exact, rtol=1e-7)


@pytest.mark.parametrize("num_leaves", [1, 2, 3, 8, 13])
@pytest.mark.parametrize("neighboring", Neighboring)
def test_textbook_tree_variances_sum_over_the_nodes_of_an_interval(num_leaves, neighboring):
    strategy = TextbookTree.build(num_leaves, neighboring)
    matrix = dense(strategy)
    assert (np.abs(matrix).sum(axis=0) == strategy.l1_sensitivity).all()
    low, high = all_intervals(num_leaves)
    counts = np.random.default_rng(2).integers(0, 99, num_leaves)
    answers = strategy.estimate(strategy.measure(counts).astype(float)).answer(low, high)
    np.testing.assert_array_equal(answers, interval_matrix(num_leaves) @ counts)
    # The rows that answer an interval, one noisy node at a time.
    weights = np.array([strategy.estimate(node).answer(low, high) for node in np.eye(len(matrix))])
    variances = strategy.errors.variances(low, high)
    np.testing.assert_array_equal(variances, (weights**2).sum(axis=0))
    assert strategy.errors.mean() == pytest.approx(variances.mean(), rel=1e-12)


@pytest.mark.parametrize("length", [1, 2, 5, 1000])
def test_integer_convolutions_are_exact_modulo_2_to_the_64(length):
    generator = np.random.default_rng(length)
    kernel = generator.integers(-(2**16), 2**16, 7)
    whole = np.iinfo(np.int64)
    values = generator.integers(whole.min, whole.max, length)
    np.testing.assert_array_equal(convolve_integers(kernel, values), np.convolve(kernel, values))


@pytest.mark.part
def test_integer_convolution_is_exact_at_its_largest_size():
    generator = np.random.default_rng(9)
    kernel = SineStrategy.build(2**17).kernel
    values = generator.integers(-(2**62), 2**62, 2**18)
    found = convolve_integers(kernel, values)
    for place in (0, 77, 2**17, 2**18 + 5):
        begin, end = max(0, place - len(values) + 1), min(place, len(kernel) - 1)
        used = np.arange(begin, end + 1)
        assert found[place] == (kernel[used] * values[place - used]).sum()


def test_ordered_convolution_counts_each_pair_once():
    for size in (1, 2, 5, 12):
        first, second = np.random.default_rng(size).normal(size=(2, size))
        expected = np.zeros(2 * size - 1)
        for i in range(size):
            for j in range(i + 1, size):
                expected[i + j] += first[i] * second[j]
        np.testing.assert_allclose(ordered_convolution(first, second), expected, atol=1e-12)


def test_interpolated_sine_variances_are_within_one_percent_of_exact(monkeypatch):
    strategy = SineStrategy.build(600)
    low, high = all_intervals(600)
    exact = strategy.errors.variances(low, high)
    monkeypatch.setattr(sine_module, "_MAX_DENSE", 1)
    ratio = SineStrategy.build(600).errors.variances(low, high) / exact
    assert 0.0 < np.abs(ratio - 1).max() < 0.01


def test_sine_strategy_is_nearly_optimal():
    """Against the lower bound of all Gaussian strategies by singular values."""
    for num_leaves in (16, 256, 1024):
        strategy = SineStrategy.build(num_leaves)
        angles = np.pi * np.arange(1, num_leaves + 1) / (2 * (num_leaves + 1))
        singular = np.sum(1 / (2 * np.sin(angles)))
        bound = 2 / num_leaves**2 * singular**2
        mean = strategy.l2_sensitivity_squared * strategy.errors.mean()
        assert bound * 0.999 < mean < 1.05 * bound if num_leaves > 16 else mean < 1.2 * bound


# The errors that plans predict, and the choice between them.


APPROXIMATE = promise(ADD, 1e-9)
ALL = PURE + GAUSSIAN
SIZES = (2, 3, 1000, 1024, 65536)


@pytest.mark.benchmark
@pytest.mark.parametrize("num_leaves", SIZES)
@pytest.mark.parametrize("choice", ALL)
def test_predicted_errors_are_within_three_percent_of_measured_errors(num_leaves, choice):
    plan = planned(num_leaves, APPROXIMATE, choice)
    errors = squared_errors(plan, 200, seed=0)
    while 3.5 * errors.std() / math.sqrt(len(errors)) > 0.03 * errors.mean():
        errors = np.append(errors, squared_errors(plan, 200, seed=len(errors)))
    assert errors.mean() == pytest.approx(plan.mean_squared_error, rel=0.03)


@pytest.mark.parametrize("num_leaves", [1, 2, 3, 20, 130])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize("neighboring", [ADD, REPLACE])
@pytest.mark.parametrize("most", [1, 3])
def test_default_strategy_has_the_least_predicted_error(num_leaves, delta, neighboring, most):
    guarantee = promise(neighboring, delta, 0.7, most)
    errors = {
        choice: planned(num_leaves, guarantee, choice).mean_squared_error
        for choice in choices(guarantee)
    }
    plan = plan_intervals(num_leaves, guarantee)
    assert plan.mean_squared_error == min(errors.values()) == errors[plan.choice]
    assert plan.loss.kind == ("pure" if plan.choice in PURE else "gaussian")


def test_strategies_with_too_much_noise_are_skipped():
    guarantee = promise(REPLACE, 1e-9, 1e-6, 4)
    for num_leaves in (1, 2, 50):
        assert planned(num_leaves, guarantee, ("sine", "discrete_gaussian")).scale > MAX_SCALE
        assert plan_intervals(num_leaves, guarantee).scale <= MAX_SCALE


# What a release of intervals answers.


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

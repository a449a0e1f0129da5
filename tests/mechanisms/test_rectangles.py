"""Rectangles: the product against its dense matrix, answers, predicted errors, refusals.

Statistical tests, of fixed seeds: a mean over runs lies within 5 standard errors of its expectation
but for a probability of about 1e-6. The benchmarks run until the 3 % that are allowed are 3.5
standard errors: a right prediction would fail one of them with a probability of 5e-4.
"""

from __future__ import annotations

import itertools
import math
import time

import numpy as np
import pytest
from intervals import all_intervals, interval_matrix
from noise_sources import NoNoise, Seeded
from rectangles import dense_product, prefix_table, rectangle_errors
from tiny import ADD, REPLACE, promise

from beam_dp.errors import InputError
from beam_dp.mechanisms.intervals import RectanglePlan, plan_rectangles, release_rectangles
from beam_dp.mechanisms.intervals.dense import DenseStrategy
from beam_dp.mechanisms.intervals.plan import planned
from beam_dp.mechanisms.intervals.rectangles import (
    RectangleChoice,
    predicted_rectangle_errors,
    rectangle_choices,
)
from beam_dp.noise.source import NoiseSource

APPROXIMATE = promise(ADD, 1e-9)
CHOICES = tuple(rectangle_choices(APPROXIMATE))
# One pair of each kind of strategy with each noise, and not of the same on both sides.
PAIRS: tuple[RectangleChoice, ...] = (
    ("histogram", "windows", "discrete_laplace"),
    ("tree", "weighted_tree", "discrete_laplace"),
    ("windows", "windows", "discrete_laplace"),
    ("histogram", "sine", "discrete_gaussian"),
    ("weighted_tree", "tree", "discrete_gaussian"),
    ("sine", "sine", "discrete_gaussian"),
)


def plan_of(shape: tuple[int, int], choice: RectangleChoice, guarantee=APPROXIMATE):
    return plan_rectangles(shape, guarantee, choice[:2], choice[2])


def all_rectangles(shape: tuple[int, int]) -> tuple[np.ndarray, ...]:
    """Ends of the rectangles, those of one interval of the first attribute after the other."""
    first, second = (all_intervals(size) for size in shape)
    repeated = [np.repeat(each, len(second[0])) for each in first]
    tiled = [np.tile(each, len(first[0])) for each in second]
    return (*repeated, *tiled)


@pytest.mark.parametrize("shape", [(1, 1), (1, 4), (5, 3), (2, 9)])
@pytest.mark.parametrize("choice", CHOICES)
def test_a_product_is_its_dense_matrix(shape: tuple[int, int], choice: RectangleChoice):
    plan = plan_of(shape, choice)
    strategy = plan.strategy
    matrix = dense_product(strategy)
    np.testing.assert_array_equal(matrix, np.kron(strategy.first.matrix, strategy.second.matrix))
    assert strategy.l1_sensitivity == np.abs(matrix).sum(axis=0).max()
    assert strategy.l2_sensitivity_squared == (matrix**2).sum(axis=0).max()
    # A replacement moves a record between any two cells.
    moved = (matrix[:, :, None] - matrix[:, None, :]).reshape(len(matrix), -1)
    assert np.abs(moved).sum(axis=0).max() <= 2 * strategy.l1_sensitivity
    assert (moved**2).sum(axis=0).max() <= 2 * strategy.l2_sensitivity_squared
    assert plan.num_measurements == len(matrix)

    rows = np.kron(*(interval_matrix(size) for size in shape)) @ np.linalg.pinv(matrix)
    noisy = np.random.default_rng(1).normal(
        size=(strategy.first.num_rows, strategy.second.num_rows)
    )
    table = strategy.estimate(1e6 * noisy)
    low, high, other_low, other_high = all_rectangles(shape)
    sums = (
        table[high + 1, other_high + 1]
        - table[low, other_high + 1]
        - table[high + 1, other_low]
        + table[low, other_low]
    )
    np.testing.assert_allclose(sums, rows @ (1e6 * noisy.ravel()), rtol=1e-8, atol=1e-6)
    variances = (rows**2).sum(axis=1)
    assert strategy.mean() == pytest.approx(variances.mean(), rel=1e-9)
    release = release_rectangles(plan, np.zeros(shape, np.int64), NoNoise())
    stated = release.answer(low, high, other_low, other_high).standard_errors
    np.testing.assert_allclose(stated**2, plan.noise.variance * variances, rtol=1e-7)


@pytest.mark.parametrize("choice", PAIRS)
def test_measurements_are_exact_modulo_2_to_the_64(choice: RectangleChoice):
    strategy = plan_of((70, 40), choice).strategy
    whole = np.iinfo(np.int64)
    table = np.random.default_rng(3).integers(whole.min, whole.max, (70, 40))
    expected = strategy.first.matrix @ table @ strategy.second.matrix.T
    np.testing.assert_array_equal(strategy.measure(table), expected)


def test_strategies_of_large_integers_are_rounded_and_stay_as_good():
    for choice in (("sine", "discrete_gaussian"), ("windows", "discrete_laplace")):
        plan = planned(120, APPROXIMATE, choice)
        side = DenseStrategy.of(plan.strategy)
        assert side.matrix.min() >= 0 and side.matrix.max() <= 2**13
        ratio = side.errors.mean() / plan.strategy.errors.mean()
        if choice[1] == "discrete_laplace":
            ratio *= (side.l1_sensitivity / plan.strategy.l1_sensitivity) ** 2
        else:
            ratio *= side.l2_sensitivity_squared / plan.strategy.l2_sensitivity_squared
        assert ratio == pytest.approx(1.0, abs=2e-4)


@pytest.mark.parametrize("choice", PAIRS)
def test_without_noise_answers_are_exact_and_add_up(choice: RectangleChoice):
    counts = np.random.default_rng(4).integers(0, 40, (13, 8))
    release = release_rectangles(plan_of((13, 8), choice), counts, NoNoise())
    ends = all_rectangles((13, 8))
    exact = [
        counts[low : high + 1, other_low : other_high + 1].sum()
        for low, high, other_low, other_high in zip(*ends, strict=True)
    ]
    np.testing.assert_allclose(release.answer(*ends).values, exact, atol=1e-8)
    np.testing.assert_allclose(release.histogram(), counts, atol=1e-8)
    noisy = release_rectangles(plan_of((13, 8), choice), counts, Seeded(1))
    parts = [noisy.answer(*each).values for each in ((0, 4, 2, 7), (5, 12, 2, 7))]
    assert sum(parts) == pytest.approx(noisy.answer(0, 12, 2, 7).values)


def test_standard_errors_and_bounds_are_those_of_many_runs():
    """5 standard errors of a variance of 3,000 runs: false alarm below 1e-4 for a seed, fixed."""
    ends = np.array([[0, 12, 0, 7], [3, 3, 5, 5], [2, 9, 0, 3], [12, 12, 1, 7]]).T
    counts = np.random.default_rng(4).integers(0, 40, (13, 8))
    table = prefix_table(counts)
    low, high, other_low, other_high = ends
    exact = table[high + 1, other_high + 1] - table[low, other_high + 1]
    exact = exact - table[high + 1, other_low] + table[low, other_low]
    for choice in PAIRS:
        noise, plan = Seeded(8), plan_of((13, 8), choice)
        answers = [release_rectangles(plan, counts, noise).answer(*ends) for _ in range(3000)]
        errors = np.array([each.values for each in answers]) - exact
        measured, stated = errors.std(axis=0), answers[0].standard_errors
        slack = 5 * np.sqrt(((errors / measured) ** 4).mean(axis=0) - 1) / (2 * np.sqrt(3000))
        assert (np.abs(measured / stated - 1) < slack).all(), choice
        assert (np.abs(errors) > answers[0].bounds).mean() < 0.05
        # All at once is a bound on the largest of them.
        together = release_rectangles(plan, counts, noise).answer(*ends, all_at_once=True)
        assert (together.bounds > answers[0].bounds).all()


@pytest.mark.parametrize(("shape", "runs"), [((2, 2), 1500), ((3, 17), 800), ((60, 40), 250)])
@pytest.mark.parametrize("choice", PAIRS)
def test_predicted_errors_are_those_of_noisy_releases(shape, runs: int, choice):
    plan = plan_of(shape, choice)
    errors = rectangle_errors(plan, runs, seed=1)
    deviation = errors.std() / math.sqrt(runs)
    assert abs(errors.mean() - plan.mean_squared_error) < 5 * deviation


@pytest.mark.benchmark
@pytest.mark.parametrize("shape", [(2, 3), (16, 16), (30, 1000), (256, 256)])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
def test_predicted_errors_are_within_three_percent(shape: tuple[int, int], delta: float):
    distribution = "discrete_gaussian" if delta else "discrete_laplace"
    # Errors of large flat tables scatter so much that thousands of releases would be needed.
    flat = (("histogram", "histogram"),) if math.prod(shape) < 1000 else ()
    for strategies in ("best", *flat):
        plan = plan_rectangles(shape, promise(ADD, delta), strategies, distribution)
        errors = rectangle_errors(plan, 100, seed=0)
        while 3.5 * errors.std() / math.sqrt(len(errors)) > 0.03 * errors.mean():
            errors = np.append(errors, rectangle_errors(plan, 100, seed=len(errors)))
        assert errors.mean() == pytest.approx(plan.mean_squared_error, rel=0.03)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (20, 5), (40, 90)])
@pytest.mark.parametrize("delta", [0.0, 1e-9])
@pytest.mark.parametrize(("neighboring", "most"), [(ADD, 1), (REPLACE, 3)])
def test_the_default_has_the_least_predicted_error(shape, delta, neighboring, most):
    guarantee = promise(neighboring, delta, 0.7, most)
    errors = predicted_rectangle_errors(shape, guarantee)
    plan = plan_rectangles(shape, guarantee)
    assert plan.mean_squared_error == min(errors.values()) == errors[plan.choice]
    assert set(errors) == set(rectangle_choices(guarantee))
    assert len(errors) == (32 if delta else 16)
    assert plan.loss.kind == ("pure" if plan.choice[2] == "discrete_laplace" else "gaussian")


def test_the_error_of_a_flat_histogram_is_the_mean_area():
    plan = plan_of((7, 30), ("histogram", "histogram", "discrete_laplace"))
    area = (7 + 2) / 3 * (30 + 2) / 3
    assert plan.mean_squared_error == pytest.approx(plan.noise.variance * area)


def test_more_records_and_replacement_cost_what_they_must():
    for choice in PAIRS:
        one = plan_of((9, 6), choice).noise
        factors = (3.0, 2.0) if choice[2] == "discrete_laplace" else (3.0, math.sqrt(2))
        for guarantee, factor in [
            (promise(ADD, 1e-9, 1.0, 3), factors[0]),
            (promise(REPLACE, 1e-9), factors[1]),
        ]:
            noise = plan_of((9, 6), choice, guarantee).noise
            expected = factor * one.scale / one.grid
            assert noise.scale / noise.grid == pytest.approx(expected, rel=1e-5), choice


def test_strategies_whose_noise_would_not_fit_are_left_out():
    guarantee = promise(REPLACE, 1e-9, 1e-8, 4)
    errors = predicted_rectangle_errors((40, 40), guarantee)
    assert ("sine", "sine", "discrete_gaussian") not in errors
    assert plan_rectangles((40, 40), guarantee).choice in errors
    with pytest.raises(InputError, match="epsilon"):
        plan_rectangles((40, 40), guarantee, ("sine", "sine"))


def test_a_release_has_the_same_shape_for_all_data():
    plan = plan_rectangles((6, 4), APPROXIMATE)
    for counts in (np.zeros((6, 4), np.int64), np.full((6, 4), 10**6)):
        release = release_rectangles(plan, counts, NoiseSource())
        assert release.answer(0, 1, 2, 3).values.shape == ()
        assert release.answer(*np.zeros((4, 2, 3), np.int64)).bounds.shape == (2, 3)
        assert isinstance(release.answer(0, 1, 2, 3).values, np.ndarray)
        assert release.shape == (6, 4) and release.histogram().shape == (6, 4)
        assert len(release.draw_id) == 32


@pytest.mark.benchmark
@pytest.mark.parametrize(("delta", "seconds"), [(0.0, 10), (1e-9, 15)])
def test_a_million_cells_are_released_and_answered_quickly(delta: float, seconds: float):
    plan: RectanglePlan = plan_rectangles((1024, 1024), promise(ADD, delta))
    counts = np.random.default_rng(1).integers(0, 100, (1024, 1024))
    start = time.process_time()
    release = release_rectangles(plan, counts, NoiseSource())
    assert time.process_time() - start < seconds
    generator = np.random.default_rng(2)
    ends = [np.sort(generator.integers(0, 1024, (2, 10**6)), axis=0) for _ in range(2)]
    start = time.process_time()
    release.answer(*itertools.chain(*ends))
    assert time.process_time() - start < 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (((0, 4), promise()), "shape: (0, 4) is refused; must be two integers from 1 to 1,024"),
        (((4,), promise()), "shape"),
        (((4, 4.0), promise()), "shape"),
        (((True, 4), promise()), "shape"),
        (((4, 1025), promise()), "shape"),
        ((12, promise()), "shape"),
        (((4, 4), promise(), ("sine", "tree")), "strategies: (('sine', 'tree'), 'any noise')"),
        (((4, 4), promise(), ("tree",)), "two of histogram, tree, weighted_tree, windows"),
        (((4, 4), promise(), "best", "discrete_gaussian"), "for a delta of 0"),
        (((4, 4), promise(ADD, 0.0, 1e-16)), "epsilon"),
    ],
)
def test_bad_requests_are_refused(arguments, message: str):
    with pytest.raises(InputError) as refused:
        plan_rectangles(*arguments)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("ends", "message"),
    [
        ((0.0, 1, 0, 1), "first_low: 0.0 is refused; must be integers"),
        ((0, 1, 0, 1.5), "second_high: 1.5 is refused; must be integers"),
        ((-1, 1, 0, 1), "first_low: -1 is refused; must be >= 0"),
        ((0, 6, 0, 1), "first_high: 6 is refused; must be >= first_low and < 6"),
        ((0, 1, 0, 4), "second_high: 4 is refused; must be >= second_low and < 4"),
        ((0, 1, 3, 2), "second_high"),
        (([0, 1], 4, 0, 1), "must have the shape of first_low, (2,)"),
        (([0, 1], [1, 1], 0, 1), "second_low: () is refused; must have the shape of first_low"),
    ],
)
def test_bad_rectangles_are_refused(ends, message: str):
    plan = plan_rectangles((6, 4), APPROXIMATE)
    release = release_rectangles(plan, np.zeros((6, 4), np.int64), NoNoise())
    with pytest.raises(InputError) as refused:
        release.answer(*ends)
    assert message in str(refused.value)


def test_bad_counts_and_probabilities_are_refused():
    plan = plan_rectangles((6, 4), APPROXIMATE)
    for counts in (np.zeros((6, 4)), np.zeros((4, 6), np.int64)):
        with pytest.raises(InputError, match="must be int64 of shape"):
            release_rectangles(plan, counts, NoNoise())
    release = release_rectangles(plan, np.zeros((6, 4), np.int64), NoNoise())
    for probability in (0.0, 1.0, float("nan")):
        with pytest.raises(InputError, match="failure_probability"):
            release.answer(0, 1, 0, 1, failure_probability=probability)

"""Every strategy against its dense matrix: sensitivities, least squares, variances."""

from __future__ import annotations

import dataclasses

import numpy as np
import opendp.prelude as opendp
import pytest
from intervals import all_intervals, dense, interval_matrix

from beam_dp.interval_strategies import sine as sine_module
from beam_dp.interval_strategies.hierarchy import Hierarchy, tree
from beam_dp.interval_strategies.sine import SineStrategy, convolve_integers, ordered_convolution
from beam_dp.interval_strategies.strategy import TextbookTree
from beam_dp.mechanisms.intervals.plan import best_tree, windows
from beam_dp.privacy.guarantee import Neighboring


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


def test_textbook_tree_matches_known_values():
    add, replace = Neighboring
    for num_leaves, levels, nodes, most in [(2, 2, 3, 1), (8, 4, 15, 4), (1024, 11, 2047, 18)]:
        strategy = TextbookTree.build(num_leaves, add)
        assert strategy.num_levels == levels
        assert len(strategy.measure(np.zeros(num_leaves, np.int64))) == nodes
        assert TextbookTree.build(num_leaves, replace).num_levels == levels - 1
        assert strategy.errors.variances(*all_intervals(num_leaves)).max() == most
    # Of 1,000 cells the padding's nodes are measured, but no interval needs as many as 18.
    assert len(TextbookTree.build(1000, add).measure(np.zeros(1000, np.int64))) == 2047
    mean = TextbookTree.build(1024, add).errors.mean()
    assert mean == pytest.approx(8.01, abs=0.01)


def test_estimate_equals_that_of_opendp():
    """Its tree holds the root; with a root of weight 1 above, ours is the same estimate."""
    opendp.enable_features("contrib")
    branching, num_leaves = 3, 27
    generator = np.random.default_rng(5)
    noisy = generator.integers(-50, 50, 1 + 3 + 9 + 27)
    ours = Hierarchy((1, 3, 9, 27), tree((3, 9, 27)).weights, np.ones((1, 1), np.int64)).estimate(
        noisy
    )
    theirs = opendp.t.make_consistent_b_ary_tree(branching)(noisy.tolist())
    cells = np.arange(num_leaves)
    np.testing.assert_allclose(ours.answer(cells, cells), theirs, atol=1e-9)


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

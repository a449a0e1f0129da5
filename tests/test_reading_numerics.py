"""What reading a release computes without scipy, against scipy."""

import numpy as np
import pytest
import scipy.fft
from scipy.optimize import isotonic_regression
from scipy.stats import binom

from beam_dp.models.intervals.sine import fast_length, sine_transform
from beam_dp.models.rounding import nearest_increasing
from beam_dp.releases.sketches.estimates import _more_than_half


@pytest.mark.parametrize("length", [1, 2, 3, 10, 1000, 4097])
def test_sine_transform_is_of_type_1_and_its_own_inverse(length):
    values = np.random.default_rng(length).normal(size=(3, length))
    expected = scipy.fft.dst(values, type=1, norm="ortho")
    np.testing.assert_allclose(sine_transform(values), expected, atol=1e-12)
    np.testing.assert_allclose(sine_transform(sine_transform(values)), values, atol=1e-12)


def test_fast_lengths_are_minimal():
    for least in (*range(1, 200), 1025, 65_537, 1_000_007, 2**21 + 1):
        found = fast_length(least)
        assert least <= found == scipy.fft.next_fast_len(least, real=True)


def test_finds_nearest_increasing_numbers():
    for size in (1, 2, 10, 5000):
        for drift in (-5.0, 0.0, 0.1, 10.0):
            values = np.cumsum(np.random.default_rng(size).normal(drift, 5, size)).round()
            found = nearest_increasing(values)
            np.testing.assert_allclose(found, isotonic_regression(values).x, atol=1e-6)
            assert np.all(np.diff(found) >= 0)


def test_majority_probability_matches_the_binomial_distribution():
    probability = np.array([0.0, 1e-9, 0.1, 0.25, 0.5])
    for number in (1, 3, 5, 63, 2001):
        expected = binom.sf(number // 2, number, probability)
        np.testing.assert_allclose(_more_than_half(number, probability), expected, rtol=1e-9)

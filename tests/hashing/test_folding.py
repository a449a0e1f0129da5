import numpy as np
import pytest
from hypothesis import given, strategies as st

from beam_dp.hashing.projections import cell_of, collisions, fold, num_buckets


@given(st.integers(1, 300), st.integers(1, 4), st.integers(0, 2**32))
def test_fold_adds_each_bucket_to_its_cell(row_width, num_rows, seed):
    buckets = num_buckets(row_width)
    sums = np.random.default_rng(seed).integers(-(2**62), 2**62, num_rows * buckets)
    expected = np.zeros((num_rows, row_width), np.int64)
    where = cell_of(np.arange(buckets), row_width)
    for row in range(num_rows):
        np.add.at(expected[row], where, sums.reshape(num_rows, -1)[row])
    assert (fold(sums, num_rows, row_width) == expected.ravel()).all()


@given(st.integers(1, 5000))
def test_collision_probability_matches_the_bucket_counts(row_width):
    buckets = num_buckets(row_width)
    loads = np.bincount(cell_of(np.arange(buckets), row_width), minlength=row_width)
    assert loads.min() >= 1
    assert collisions(row_width) == pytest.approx(row_width * ((loads / buckets) ** 2).sum())
    assert 1 <= collisions(row_width) <= 1.05

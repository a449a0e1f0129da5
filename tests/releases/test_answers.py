import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.errors import InputError
from beam_dp.releases import answers
from beam_dp.releases.answers import connected, marginal_weights


def brute_force(shape, potentials, wanted):
    """The same by one weight a cell."""
    weights = np.zeros(shape)
    for cell in itertools.product(*map(range, shape)):
        weights[cell] = sum(table[tuple(cell[a] for a in axes)] for axes, table in potentials)
    weights = np.exp(weights - weights.max())
    weights /= weights.sum()
    every = range(len(shape))
    return [weights.sum(axis=tuple(a for a in every if a not in axes)) for axes in wanted]


axes_sets = st.lists(st.integers(0, 4), unique=True, max_size=4).map(lambda a: tuple(sorted(a)))


@given(
    st.lists(st.integers(1, 4), min_size=5, max_size=5),
    st.lists(axes_sets, max_size=6),
    st.lists(axes_sets, min_size=1, max_size=4),
    st.integers(0, 1000),
    st.sampled_from([1, 3, 8, 2**20]),
)
@settings(max_examples=200, deadline=None)
def test_marginals_are_those_of_the_dense_distribution(shape, sets, wanted, seed, slab_cells):
    rng = np.random.default_rng(seed)
    potentials = [(axes, 5 * rng.normal(size=[shape[a] for a in axes])) for axes in sets]
    before = [table.copy() for _, table in potentials]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_SLAB_CELLS", slab_cells)
        actual = marginal_weights(shape, potentials, wanted)
    for table, expected in zip(actual, brute_force(shape, potentials, wanted), strict=True):
        assert table.shape == expected.shape
        np.testing.assert_allclose(table, expected, rtol=1e-9, atol=1e-300)
    assert all(np.array_equal(a, b) for a, (_, b) in zip(before, potentials, strict=True))


@pytest.mark.parametrize("slab_cells", [1, 2**20])
def test_huge_and_tiny_logarithms_do_not_overflow(monkeypatch, slab_cells):
    monkeypatch.setattr(answers, "_SLAB_CELLS", slab_cells)
    table = np.array([[-1e300, -1e5], [1e5, 1e5 - 1]])
    (result,) = marginal_weights((2, 2), [((0, 1), table)], [(0, 1)])
    share = 1 / (1 + math.exp(-1))
    np.testing.assert_allclose(result, [[0, 0], [share, 1 - share]])


def test_connected_sets_are_joined_in_any_order():
    assert connected([(0, 1), (3,), (4, 5), (), (1, 4)]) == [(0, 1, 4, 5), (3,)]


def test_attributes_that_nothing_joins_may_have_any_number_of_cells():
    shape = (2**40, 2, 2**40, 2)
    log = np.log([1.0, 3.0])
    potentials = [((1,), log), ((3,), log)]
    (table,) = marginal_weights(shape, potentials, [(1, 3)])
    np.testing.assert_allclose(table, np.outer([0.25, 0.75], [0.25, 0.75]))


def test_too_many_joined_cells_are_refused_only_when_needed():
    shape = (2**15, 2**14, 2)
    potentials = [((0, 1), np.broadcast_to(np.float64(0), shape[:2])), ((2,), np.zeros(2))]
    (table,) = marginal_weights(shape, potentials, [(2,)])
    assert table.tolist() == [0.5, 0.5]
    with pytest.raises(InputError, match=r"536870912 is refused; must be <= 2\^28"):
        marginal_weights(shape, potentials, [(0,)])

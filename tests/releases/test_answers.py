import itertools
import math
import tracemalloc

import numpy as np
import pytest
from executed_lines import lines_below
from hypothesis import given, settings, strategies as st

from beam_dp.domain.impossible import Impossible
from beam_dp.errors import InputError
from beam_dp.models import potentials as answers
from beam_dp.models.potentials import connected, marginal_weights


def brute_force(shape, potentials, wanted):
    """Computes the marginals from one weight per cell."""
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
    st.booleans(),
)
@settings(max_examples=40)
def test_marginals_match_the_dense_distribution(shape, sets, wanted, seed, slab_cells, tree):
    rng = np.random.default_rng(seed)
    potentials = [(axes, 5 * rng.normal(size=[shape[a] for a in axes])) for axes in sets]
    before = [table.copy() for _, table in potentials]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(answers, "_SLAB_CELLS", slab_cells)
        if tree:
            patch.setattr(answers, "_DENSE_CELLS", 0)
            patch.setattr(answers, "_TREE_GAIN", 0)
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


def test_joins_overlapping_sets_in_any_order():
    assert connected([(0, 1), (3,), (4, 5), (), (1, 4)]) == [(0, 1, 4, 5), (3,)]


def test_unjoined_attributes_may_have_any_number_of_cells():
    shape = (2**40, 2, 2**40, 2)
    log = np.log([1.0, 3.0])
    potentials = [((1,), log), ((3,), log)]
    (table,) = marginal_weights(shape, potentials, [(1, 3)])
    np.testing.assert_allclose(table, np.outer([0.25, 0.75], [0.25, 0.75]))


def test_too_many_joined_cells_are_rejected_only_if_queried():
    shape = (2**15, 2**14, 2)
    potentials = [((0, 1), np.broadcast_to(np.float64(0), shape[:2])), ((2,), np.zeros(2))]
    (table,) = marginal_weights(shape, potentials, [(2,)])
    assert table.tolist() == [0.5, 0.5]
    with pytest.raises(InputError, match=r"536,870,912' is not valid: must be at most 2\^28"):
        marginal_weights(shape, potentials, [(0,)])


@pytest.mark.parametrize("tree", [False, True])
@pytest.mark.parametrize("slab_cells", [1, 2**20])
def test_impossible_cells_have_no_weight(monkeypatch, tree, slab_cells):
    monkeypatch.setattr(answers, "_SLAB_CELLS", slab_cells)
    if tree:
        monkeypatch.setattr(answers, "_DENSE_CELLS", 0)
        monkeypatch.setattr(answers, "_TREE_GAIN", 0)
    rng = np.random.default_rng(0)
    shape = (3, 2, 4)
    potentials = [((0,), rng.normal(size=3)), ((1, 2), rng.normal(size=(2, 4)))]
    # The first one joins attributes that no potential joins; the second empties whole slabs.
    impossible = [
        Impossible((0, 1), (((0, 1), (2, 3)), ((1, 2),))),
        Impossible((1, 2), (((0, 1),), ((0, 3),))),
    ]
    weights = np.exp(potentials[0][1][:, None, None] + potentials[1][1])
    weights[[0, 2], 1] = 0
    weights[:, 0, :3] = 0
    weights /= weights.sum()
    first, both = marginal_weights(shape, potentials, [(0,), (0, 1, 2)], impossible)
    np.testing.assert_allclose(first, weights.sum(axis=(1, 2)))
    np.testing.assert_allclose(both, weights)
    nothing = [Impossible((0, 1), (((0, 3),), ((0, 2),)))]
    with pytest.raises(InputError, match="must leave a cell"):
        marginal_weights(shape, potentials, [(0,)], nothing)


ADULT = (9, 8, 9, 16, 16, 7, 15, 6, 5, 2, 7, 6, 8, 42, 2)  # 10^13 cells


@pytest.mark.part
def test_all_three_way_marginals_of_fifteen_columns_take_little_work_and_memory():
    """A release over a tree: its own tables and all 455 marginals, also across the tree."""
    rng = np.random.default_rng(1)
    sets = [(i, i + 1, i + 2) for i in range(13)] + [(0, 2), (3, 5)]
    potentials = [(axes, rng.normal(size=[ADULT[axis] for axis in axes])) for axes in sets]
    wanted = list(itertools.combinations(range(15), 3))
    tracemalloc.start()
    with lines_below(8_000_000):
        found = dict(zip(wanted, marginal_weights(ADULT, potentials, wanted), strict=True))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**27
    for (a, b, c), table in found.items():
        assert table.shape == (ADULT[a], ADULT[b], ADULT[c])
        assert table.sum() == pytest.approx(1)
        np.testing.assert_allclose(table.sum(axis=2), found[0, a, b].sum(axis=0) if a else
                                   found[a, b, 14].sum(axis=2), rtol=1e-8)  # fmt: skip
    # The middle of the chain follows from the tables around it.
    left, middle, right = found[2, 3, 4], found[3, 4, 5], found[4, 5, 6]
    joint = left[..., None] * (middle / middle.sum(axis=2, keepdims=True))[None]
    (four,) = marginal_weights(ADULT, potentials, [(2, 3, 4, 5)])
    np.testing.assert_allclose(four, joint, rtol=1e-8)
    np.testing.assert_allclose(right.sum(axis=2), middle.sum(axis=0), rtol=1e-8)


def test_potentials_with_too_large_a_tree_give_a_one_line_error():
    sets = list(itertools.combinations(range(15), 2))
    potentials = [(axes, np.zeros([ADULT[axis] for axis in axes])) for axes in sets]
    with pytest.raises(InputError, match=r"'?29,\d.*|'10\^13.*") as caught:
        marginal_weights(ADULT, potentials, [(0, 1)])
    assert "must be at most 2^28, the cells of the junction tree" in str(caught.value)

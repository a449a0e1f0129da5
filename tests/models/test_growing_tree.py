"""Trees that grow pair by pair, against graphs that are looked at as a whole."""

from __future__ import annotations

import math
from itertools import combinations

from hypothesis import given, settings, strategies as st

from beam_dp.models.elimination import GrowingTree, axes_of, mask_of, num_clique_cells

NO_LIMIT = 10**100
Axes = tuple[int, ...]


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[int], list[Axes], list[tuple[int, int]]]:
    """A shape, sets that are in from the start, and pairs in the order in which they are added."""
    shape = draw(st.lists(st.integers(1, 5), min_size=2, max_size=7))
    axes = st.sets(st.integers(0, len(shape) - 1), max_size=3).map(lambda each: tuple(sorted(each)))
    sets = draw(st.lists(axes, max_size=3))
    pairs = draw(st.lists(st.sampled_from([*combinations(range(len(shape)), 2)]), max_size=20))
    return shape, sets, pairs


def maximal_cliques(num_attributes: int, edges: set[tuple[int, int]]) -> set[Axes]:
    """Every set of attributes all joined with each other, inside no other one, by trying all."""
    joined = [
        set(axes)
        for size in range(1, num_attributes + 1)
        for axes in combinations(range(num_attributes), size)
        if all(pair in edges for pair in combinations(axes, 2))
    ]
    return {tuple(sorted(each)) for each in joined if not any(each < other for other in joined)}


def check(tree: GrowingTree) -> None:
    """The tree is a junction tree of maximal cliques, and knows its size."""
    masks = tree.cliques
    edges = {pair for mask in masks for pair in combinations(axes_of(mask), 2)}
    assert {axes_of(mask) for mask in masks} == maximal_cliques(len(tree.shape), edges)
    assert len(set(masks)) == len(masks)
    sizes = [math.prod(tree.shape[axis] for axis in axes_of(mask)) for mask in masks]
    assert tree.num_cells == sum(sizes)
    # A tree where each attribute's cliques hang together: one more of them than of their edges.
    assert len(tree.edges) == len(masks) - 1
    for axis in range(len(tree.shape)):
        holding = sum(mask >> axis & 1 for mask in masks)
        assert sum((one & other) >> axis & 1 for one, other in tree.edges) == holding - 1


def holds(tree: GrowingTree, axes: Axes) -> bool:
    return any(mask_of(axes) & ~mask == 0 for mask in tree.cliques)


@settings(max_examples=60)
@given(cases())
def test_tree_without_a_limit_joins_every_pair(case):
    shape, sets, pairs = case
    tree = GrowingTree(shape, sets, NO_LIMIT)
    check(tree)
    for pair in pairs:
        before = tree.cliques
        was_held = holds(tree, pair)
        assert tree.join(pair)
        assert was_held == (before == tree.cliques)
        check(tree)
    assert all(holds(tree, axes) for axes in [*sets, *pairs])


@settings(max_examples=60)
@given(cases(), st.integers(0, 500))
def test_tree_refuses_pairs_that_exceed_its_limit(case, room):
    shape, sets, pairs = case
    limit = num_clique_cells(shape, sets) + room
    tree = GrowingTree(shape, sets, limit)
    joined = []
    for pair in pairs:
        if tree.join(pair):
            joined.append(pair)
        else:
            assert not holds(tree, pair)
        check(tree)
        assert tree.num_cells <= limit
    assert all(holds(tree, axes) for axes in [*sets, *joined])


@settings(max_examples=60)
@given(st.lists(st.integers(3, 6), min_size=3, max_size=7))
def test_pair_that_closes_a_cycle_is_joined_at_the_cheapest_place(shape):
    """The ends of a chain are joined with all between them, each up to where they meet."""
    last = len(shape) - 1
    chain = [(axis, axis + 1) for axis in range(last)]
    tree = GrowingTree(shape, chain, NO_LIMIT)
    assert tree.join((0, last))
    assert tree.num_cells == min(
        num_cells(
            shape,
            {
                *chain,
                (0, last),
                *((0, axis) for axis in range(1, meeting + 1)),
                *((axis, last) for axis in range(meeting, last)),
            },
        )
        for meeting in range(1, last)
    )


def num_cells(shape: list[int], edges: set[tuple[int, int]]) -> int:
    return sum(
        math.prod(shape[axis] for axis in axes) for axes in maximal_cliques(len(shape), edges)
    )


def test_refused_pair_does_not_change_the_tree():
    tree = GrowingTree((2, 3, 4), [(0, 1)], 6 + 12)
    assert tree.join((1, 2)) and tree.num_cells == 18
    before = tree.cliques
    assert not tree.join((0, 2))
    assert tree.cliques == before


def test_tree_triangulates_again_before_refusing_a_pair():
    """A cycle got the chord of its small attributes; the other one was added later."""
    shape = (5, 9, 3, 3, 2)
    pairs = [(0, 2), (0, 3), (1, 2), (1, 3), (0, 1)]
    tree = GrowingTree(shape, [], 5 * 9 * 3 * 3 + 2)
    assert all(tree.join(pair) for pair in pairs)
    assert tree.num_cells == tree.max_cells
    assert tree.join((0, 4))
    assert tree.num_cells == num_clique_cells(shape, [*pairs, (0, 4)]) == 2 * (5 * 9 * 3) + 5 * 2

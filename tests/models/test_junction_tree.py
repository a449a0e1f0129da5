"""The junction tree against the whole domain written out, and trees that grow pair by pair."""

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import chi2

from beam_dp.models.elimination import GrowingTree, axes_of, cliques_fit, mask_of, num_clique_cells
from beam_dp.models.junction_tree import JunctionTree, tree_marginals
from beam_dp.releases.synthetic_database.sampling import conditional_codes

Axes = tuple[int, ...]

CASES: dict[str, tuple[tuple[int, ...], list[Axes]]] = {
    "one cell": ((1,), [(0,)]),
    "one attribute": ((5,), [(), (0,)]),
    "nothing": ((2, 3), []),
    "only the constant": ((2, 3, 2), [()]),
    "chain": ((3, 2, 4, 3, 2), [(0, 1), (1, 2), (2, 3), (3, 4)]),
    "star": ((4, 3, 2, 5, 2), [(0, 1), (0, 2), (0, 3), (0, 4)]),
    "cycle": ((2, 3, 4, 2, 3), [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)]),
    "nested": ((3, 4, 2, 3), [(0, 1, 2), (0, 1), (1,), (), (2, 3)]),
    "duplicate": ((3, 4, 2), [(0, 1), (0, 1), (1, 2), (1, 2)]),
    "disconnected": ((3, 2, 4, 2, 5, 3), [(0, 1), (2, 3)]),
    "sizes of one": ((1, 3, 1, 2, 1), [(0, 1), (1, 2), (2, 3), (0, 4)]),
    "large": ((70, 2, 66), [(0, 1), (1, 2), (0,)]),
    "everything": ((2, 3, 2), [(0, 1, 2)]),
    "all pairs": ((2, 3, 2, 4), list(combinations(range(4), 2))),
    "grid": (
        (2,) * 9,
        [(a, b) for a in range(9) for b in (a + 1, a + 3) if b < 9 and (b == a + 3 or a % 3 != 2)],
    ),
    "triples": ((3, 2, 4, 2, 3, 2), [(0, 1, 2), (2, 3, 4), (1, 4, 5)]),
}


def random_case(seed: int) -> tuple[tuple[int, ...], list[Axes]]:
    rng = np.random.default_rng(seed)
    shape = tuple(int(size) for size in rng.integers(1, 5, rng.integers(1, 8)))
    sets = []
    for _ in range(rng.integers(0, 10)):
        width = min(len(shape), int(rng.integers(0, 4)))
        sets.append(tuple(sorted(rng.choice(len(shape), width, replace=False).tolist())))
    return shape, sets


RANDOM = [random_case(seed) for seed in range(60)]


def dense(shape: tuple[int, ...], sets: list[Axes], potentials: list[np.ndarray]):
    """The log of the sum of weights, and the normalised weights."""
    logs = np.zeros(shape)
    for axes, table in zip(sets, potentials, strict=True):
        logs = logs + table.reshape([shape[a] if a in axes else 1 for a in range(len(shape))])
    highest = logs.max()
    weights = np.exp(logs - highest)
    return highest + math.log(weights.sum()), weights / weights.sum()


def marginal(weights: np.ndarray, axes: Axes) -> np.ndarray:
    return weights.sum(tuple(a for a in range(weights.ndim) if a not in axes))


def potentials_of(
    shape: tuple[int, ...], sets: list[Axes], size: float = 1.0, seed: int = 0
) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [np.asarray(size * rng.normal(size=[shape[a] for a in axes])) for axes in sets]


def check(
    shape: tuple[int, ...], sets: list[Axes], potentials: list[np.ndarray], rtol: float = 1e-7
) -> None:
    """Compares what a tree is calibrated to, and its marginals up to four ways."""
    tree = JunctionTree(shape, sets)
    log_sum, found = tree.calibrate(potentials)
    expected, weights = dense(shape, sets, potentials)
    assert log_sum == pytest.approx(expected, rel=1e-9, abs=1e-9)
    for axes, table in zip(sets, found, strict=True):
        np.testing.assert_allclose(table, marginal(weights, axes), rtol=1e-9, atol=1e-12)
    wanted = [s for k in range(5) for s in combinations(range(len(shape)), k)]
    for axes, table in zip(wanted, tree_marginals(tree, wanted), strict=True):
        np.testing.assert_allclose(table, marginal(weights, axes), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_calibrated_marginals_equal_those_of_the_whole_domain(name):
    shape, sets = CASES[name]
    for size in (0.0, 1.0, 30.0, 800.0):
        check(shape, sets, potentials_of(shape, sets, size), rtol=1e-9)


def test_calibrated_marginals_of_random_sets_equal_those_of_the_whole_domain():
    for seed, (shape, sets) in enumerate(RANDOM):
        check(shape, sets, potentials_of(shape, sets, 10.0 ** (seed % 4), seed))


def test_impossible_cells_get_no_mass():
    for seed, (shape, sets) in enumerate(RANDOM[:40]):
        potentials = potentials_of(shape, sets, 300.0 if seed % 2 else 1.0, seed)
        rng = np.random.default_rng(seed)
        for table in potentials:
            # The first cell stays possible, so that the domain's first one does.
            forbidden = np.asarray(rng.random(table.shape) < 0.3)
            forbidden[(0,) * table.ndim] = False
            table[forbidden] = -np.inf
        with np.errstate(invalid="ignore"):
            check(shape, sets, potentials)


@pytest.mark.parametrize("sets", [[(0, 1), (1, 2)], [(0,), (1, 2)]])
def test_domain_without_possible_cells_is_refused(sets):
    potentials = potentials_of((2, 2, 2), sets)
    potentials[0][...] = -np.inf
    with pytest.raises(ValueError, match="impossible"):
        JunctionTree((2, 2, 2), sets).calibrate(potentials)


def test_large_weights_that_cancel_between_cliques_keep_their_mass():
    """What underflows within one clique may be all that another one allows."""
    shape, sets = (2, 3, 2), [(0, 1), (1, 2)]
    potentials = [np.zeros((2, 3)), np.zeros((3, 2))]
    potentials[0][:, 0] -= 2000
    potentials[1][0, :] += 2000
    check(shape, sets, potentials)


def test_tree_is_a_junction_tree_of_the_predicted_size():
    for shape, sets in [*CASES.values(), *RANDOM]:
        check_form(shape, sets)


def check_form(shape: tuple[int, ...], sets: list[Axes]) -> None:
    tree = JunctionTree(shape, sets)
    for axis in range(len(shape)):
        holding = [i for i, clique in enumerate(tree.cliques) if axis in clique.axes]
        # All but the topmost share the attribute with their parents.
        assert sum(axis not in tree.cliques[i].separator for i in holding) == 1
    for i, clique in enumerate(tree.cliques):
        assert clique.parent < i
        assert all(
            not set(clique.axes) <= set(other.axes) for other in tree.cliques if other is not clique
        )
    cells = sum(clique.belief.size for clique in tree.cliques)
    assert num_clique_cells(shape, sets) == tree.num_cells == cells
    assert cliques_fit(shape, sets, cells)
    assert not cliques_fit(shape, sets, cells - 1)


def test_calibrates_domain_with_more_cells_than_the_largest_float():
    shape = (1000,) * 120
    sets = [(axis, axis + 1) for axis in range(0, 20, 2)]
    log_sum, found = JunctionTree(shape, sets).calibrate([np.zeros((1000, 1000)) for _ in sets])
    assert log_sum == pytest.approx(360 * math.log(10))
    assert found[0][0, 0] == pytest.approx(1e-6)


def test_returned_marginals_survive_a_second_calibration():
    shape, sets = CASES["cycle"]
    tree = JunctionTree(shape, sets)
    tree.calibrate(potentials_of(shape, sets))
    wanted = [*sets, (0, 2), (0,), tree.cliques[0].axes]
    first = tree_marginals(tree, [tuple(sorted(axes)) for axes in wanted])
    copies = [table.copy() for table in first]
    potentials = potentials_of(shape, sets, 3.0, seed=3)
    _, found = tree.calibrate(potentials)
    for table, copy in zip(first, copies, strict=True):
        assert (table == copy).all()
    _, weights = dense(shape, sets, potentials)
    np.testing.assert_allclose(found[0], marginal(weights, sets[0]), rtol=1e-9)


NO_LIMIT = 10**100


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


def check_growing(tree: GrowingTree) -> None:
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
    check_growing(tree)
    for pair in pairs:
        before = tree.cliques
        was_held = holds(tree, pair)
        assert tree.join(pair)
        assert was_held == (before == tree.cliques)
        check_growing(tree)
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
        check_growing(tree)
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


SHAPE = (3, 2, 4, 2, 3)
NUM_ROWS = 20_000
GRAPHS = {
    "tree": [(0, 1), (1, 2), (2, 3), (2, 4)],
    "cycle": [(0, 1), (1, 2), (2, 3), (3, 4), (0, 4)],
    "triples": [(0, 1, 2), (2, 3, 4), (1, 3)],
    "disconnected": [(0, 3), (1, 4)],
    "single attributes": [(0,), (2,), (0,), ()],
    "no tables": [],
    "all together": [(0, 1, 2, 3, 4)],
}
GIVEN = ((), (1,), (1, 3), (0, 2, 4), (0, 1, 2, 3))


def uniforms(axis, start, number):
    return np.random.default_rng([axis, start, 3]).random(number)


def tables_of(sets, rng):
    """Log-tables with values in a wide range, and cells that are impossible."""
    found = [(axes, 2 * rng.normal(size=[SHAPE[axis] for axis in axes])) for axes in sets]
    barred = np.where(rng.random((SHAPE[1], SHAPE[4])) < 0.4, -np.inf, 0.0)
    return [*found, ((1, 4), barred)]


def all_weights(tables):
    total = np.zeros(SHAPE)
    for axes, table in tables:
        total = total + table.reshape([n if i in axes else 1 for i, n in enumerate(SHAPE)])
    return np.exp(total)


@pytest.mark.parametrize("graph", GRAPHS)
def test_draws_have_the_law_of_all_cells_given_the_known_codes(graph, monkeypatch):
    monkeypatch.setattr(
        "beam_dp.releases.synthetic_database.sampling._PART_CELLS", 2**18
    )  # several parts
    for given_axes in GIVEN:
        check_law(graph, given_axes)


def check_law(graph, given_axes):
    rng = np.random.default_rng(1)
    tables = tables_of(GRAPHS[graph], rng)
    given = {axis: rng.integers(0, SHAPE[axis], NUM_ROWS) for axis in given_axes}
    columns, possible = conditional_codes(SHAPE, tables, given, NUM_ROWS, uniforms)
    weights = all_weights(tables)
    free = tuple(axis for axis in range(len(SHAPE)) if axis not in given_axes)
    totals = weights.sum(axis=free, keepdims=True)
    by_row = np.broadcast_to(totals, SHAPE)[tuple(columns)]
    assert np.array_equal(possible, by_row > 0)
    for axis, codes in given.items():
        assert np.array_equal(columns[axis], codes)
    seen = np.zeros(SHAPE)
    np.add.at(seen, tuple(each[possible] for each in columns), 1)
    asked = seen.sum(axis=free, keepdims=True)
    expected = asked * np.divide(weights, totals, out=np.zeros(SHAPE), where=totals > 0)
    assert seen[expected == 0].sum() == 0
    # The uniforms are always the same. Rare cells have no normal law.
    held = expected > 5
    distance = ((seen - expected)[held] ** 2 / expected[held]).sum()
    assert distance < chi2.isf(1e-6, held.sum())


def test_rows_without_a_possible_record_are_reported_and_the_others_drawn():
    barred = np.array([[0.0, -np.inf], [-np.inf, -np.inf]])
    given = {0: np.array([0, 1, 0])}
    columns, possible = conditional_codes((2, 2), [((0, 1), barred)], given, 3, uniforms)
    assert possible.tolist() == [True, False, True]
    assert columns[1][possible].tolist() == [0, 0]


def test_weights_beyond_the_range_of_floats_are_no_problem():
    tables = [((0, 1), np.array([[-2e4, -2e4 + np.log(3)], [-9e4, 2e4]])), ((0,), np.zeros(2))]
    given = {0: np.zeros(NUM_ROWS, np.int64)}
    columns, possible = conditional_codes((2, 2), tables, given, NUM_ROWS, uniforms)
    assert possible.all() and abs(columns[1].mean() - 0.75) < 0.02

"""The junction tree against the whole domain written out."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest

from beam_dp.models.elimination import cliques_fit, num_clique_cells
from beam_dp.models.junction_tree import JunctionTree, tree_marginals

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


def test_second_calibration_replaces_the_first():
    shape, sets = CASES["cycle"]
    tree = JunctionTree(shape, sets)
    tree.calibrate(potentials_of(shape, sets, 5.0, seed=1))
    potentials = potentials_of(shape, sets, 1.0, seed=2)
    _, found = tree.calibrate(potentials)
    _, weights = dense(shape, sets, potentials)
    np.testing.assert_allclose(found[0], marginal(weights, sets[0]), rtol=1e-9)


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


def test_greedy_orders_find_the_smallest_trees_of_chains_and_cycles():
    chain = [(axis, axis + 1) for axis in range(299)]
    assert num_clique_cells((3,) * 300, chain) == 299 * 9
    cycle = [*chain[:9], (0, 9)]
    assert num_clique_cells((3,) * 10, cycle) == 8 * 27


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
    tree.calibrate(potentials_of(shape, sets, 3.0, seed=3))
    for table, copy in zip(first, copies, strict=True):
        assert (table == copy).all()

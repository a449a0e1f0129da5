"""The representations of a log-linear hypothesis against each other, and Kronecker products."""

import math
from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from beam_dp.models.basis import (
    Basis,
    Support,
    carry_over,
    coefficients_table,
    contrast_matrix,
    log_potentials,
    log_table,
    squared_scale,
    table_coefficients,
)
from beam_dp.models.maximum_entropy import NoisyCoefficients, fit_maximum_entropy
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.tree_basis import TreeBasis


def closure(sets: list[Support]) -> list[Support]:
    found = {part for s in sets for k in range(len(s) + 1) for part in combinations(s, k)}
    return sorted({(), *found}, key=lambda each: (len(each), each))


CASES: dict[str, tuple[tuple[int, ...], list[Support]]] = {
    "one attribute": ((5,), closure([(0,)])),
    "constant alone": ((2, 3), [()]),
    "chain": ((3, 2, 4, 3), closure([(0, 1), (1, 2), (2, 3)])),
    "cycle": ((2, 3, 4, 2), closure([(0, 1), (1, 2), (2, 3), (0, 3)])),
    "not down-closed": ((3, 2, 4, 2), [(0, 1, 2, 3), (1,), (0, 3), ()]),
    "disordered": ((3, 2, 4), [(1, 2), (), (0,), (1, 2), (0, 1)]),
    "disconnected": ((3, 2, 4, 2, 3), closure([(0, 1), (2, 3)])),
    "sizes of one": ((1, 3, 1, 2, 1), closure([(0, 1), (1, 3), (2, 3, 4)])),
    "large": ((70, 2, 66), closure([(0, 1), (1, 2)])),
    "large in a triple": ((2, 65, 3, 2), closure([(0, 1, 2), (2, 3)])),
    "triples": ((3, 2, 4, 2, 3), closure([(0, 1, 2), (2, 3, 4), (1, 4)])),
}


def scales(basis: Basis) -> np.ndarray:
    """What coefficients of marginals are divided by in a basis."""
    result = np.empty(basis.num_coefficients)
    for support, where in basis.slices.items():
        result[where] = math.sqrt(squared_scale(basis, support, support))
    return result


def both(name: str, size: float = 1.0):
    """The two bases of a case, and the same log-weights in each."""
    shape, supports = CASES[name]
    dense, tree = ResidualBasis(shape, supports), TreeBasis(shape, supports)
    # Of the frames of large attributes only centred coefficients are the same in both.
    raw = np.random.default_rng(0).normal(size=dense.num_coefficients) * size
    return dense, tree, raw, raw * scales(dense)


@pytest.mark.parametrize("size", [0.5, 100.0])
@pytest.mark.parametrize("name", CASES)
def test_tree_and_dense_array_give_the_same_moments(name, size):
    dense, tree, raw, scaled = both(name, size)
    assert dense.slices == tree.slices and dense.supports == tree.supports
    assert dense.num_coefficients == tree.num_coefficients
    assert dense.num_cells == tree.num_cells
    expected_log, expected = dense.log_moments(scaled, 0.0)
    log_sum, found = tree.log_moments(raw, 0.0)
    assert log_sum == pytest.approx(expected_log, rel=1e-9)
    np.testing.assert_allclose(found, expected * scales(dense), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_tree_and_dense_array_give_the_same_marginals(name):
    dense, tree, raw, scaled = both(name)
    wanted = [s for k in range(4) for s in combinations(range(len(dense.shape)), k)]
    wanted.append(wanted[-1])
    weights = dense.weights(scaled).reshape(dense.shape)
    for axes, one, other in zip(
        wanted, dense.marginals(scaled, wanted), tree.marginals(raw, wanted), strict=True
    ):
        expected = weights.sum(tuple(a for a in range(weights.ndim) if a not in axes))
        np.testing.assert_allclose(one, expected, rtol=1e-9, atol=1e-15)
        np.testing.assert_allclose(other, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("name", CASES)
def test_log_potentials_add_up_to_the_log_weights(name):
    dense, tree, raw, scaled = both(name)
    sets = list(tree.sets) * 2
    weights = np.log(dense.weights(scaled)).reshape(dense.shape)
    for basis, own in ((dense, scaled), (tree, raw)):
        total = np.zeros(dense.shape)
        for axes, table in zip(sets, log_potentials(basis, own, sets), strict=True):
            total += table.reshape([n if a in axes else 1 for a, n in enumerate(dense.shape)])
        difference = weights - total
        np.testing.assert_allclose(difference, difference.mean(), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        log_table(dense, scaled, sets[0]), log_table(tree, raw, sets[0]), rtol=1e-9, atol=1e-9
    )


def test_weights_are_unchanged_after_adding_supports():
    shape, supports = CASES["chain"]
    old = TreeBasis(shape, supports)
    new = TreeBasis(shape, closure([(0, 1), (1, 2), (2, 3), (0, 3)]))
    log_weights = np.random.default_rng(1).normal(size=old.num_coefficients)
    carried = carry_over(old.slices, log_weights, new)
    wanted = list(combinations(range(4), 2))
    for one, other in zip(
        old.marginals(log_weights, wanted), new.marginals(carried, wanted), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("num_attributes", [33, pytest.param(300, marks=pytest.mark.part)])
def test_fits_a_domain_too_large_for_an_array(num_attributes):
    """The fit of a chain does not depend on how many attributes nobody measured."""
    supports = closure([(0, 1), (1, 2)])
    rng = np.random.default_rng(2)
    observed = None
    answers = []
    for shape in ((3, 4, 2), (3, 4, 2) + (10,) * (num_attributes - 3)):
        basis = TreeBasis(shape, supports)
        if observed is None:
            coefficients = basis.log_moments(rng.normal(size=basis.num_coefficients), 0.0)[1]
            values = 1000 * coefficients + rng.normal(size=len(coefficients))
            observed = NoisyCoefficients(values, np.ones(len(coefficients)))
        ones = np.ones(basis.num_coefficients)
        fit = fit_maximum_entropy(basis, observed, 1000, ones, ones)
        answers.append(basis.marginals(fit.log_weights, [(0, 2), (0,), (1, 2)]))
    for one, other in zip(*answers, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    (far,) = basis.marginals(fit.log_weights, [(0, num_attributes - 1)])
    np.testing.assert_allclose(far, np.repeat(answers[0][1][:, None] / 10, 10, axis=1), rtol=1e-6)


# The residual basis against Kronecker products written out.


def contrasts(size: int) -> np.ndarray:
    """The contrasts as a dense matrix."""
    matrix = contrast_matrix(size)
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def vectors(shape: tuple[int, ...], support: Support) -> np.ndarray:
    """The basis vectors of one support over the whole domain, as rows."""
    parts = [
        contrasts(size) if axis in support else np.full((1, size), size**-0.5)
        for axis, size in enumerate(shape)
    ]
    return reduce(np.kron, parts, np.ones((1, 1)))


def matrix(shape: tuple[int, ...], supports: list[Support]) -> np.ndarray:
    distinct = dict.fromkeys(supports)
    return np.concatenate([vectors(shape, support) for support in distinct])


KRONECKER: dict[str, tuple[tuple[int, ...], list[Support]]] = {
    "disordered and repeated": ((3, 2, 4), [(1, 2), (), (0,), (1, 2), (0, 1)]),
    "sizes of one alone on a level": ((1, 40, 1, 33), [(), (0,), (1,), (2,), (3,)]),
    "large among small": (
        (3, 65, 2),
        [s for size in range(4) for s in combinations(range(3), size)],
    ),
    "two large": ((65, 67), [(), (0,), (1,), (0, 1)]),
    "at the limit": ((64, 2), [(), (0,), (1,), (0, 1)]),
    "medium that do not merge": ((20, 30, 7), [(0, 1), (2,), ()]),
}


def check(shape: tuple[int, ...], supports: list[Support], atol: float) -> None:
    """Compares both transforms and where coefficients are; neither changes what it is given."""
    basis, wanted = ResidualBasis(shape, supports), matrix(shape, supports)
    rng = np.random.default_rng(1)
    table, coefficients = rng.normal(size=math.prod(shape)), rng.normal(size=len(wanted))
    given_table, given_coefficients = table.copy(), coefficients.copy()
    assert (basis.num_cells, basis.num_coefficients) == (len(table), len(wanted))
    found = basis.analyse(table)
    np.testing.assert_allclose(found, wanted @ table, atol=atol)
    np.testing.assert_allclose(basis.synthesise(coefficients), coefficients @ wanted, atol=atol)
    assert (table == given_table).all() and (coefficients == given_coefficients).all()
    assert list(basis.slices) == list(basis.supports) == list(dict.fromkeys(supports))
    for support, where in basis.slices.items():
        np.testing.assert_allclose(found[where], vectors(shape, support) @ table, atol=atol)


@pytest.mark.parametrize("case", KRONECKER)
def test_transforms_equal_kronecker_products(case):
    check(*KRONECKER[case], atol=1e-10)


@settings(max_examples=50)
@given(st.data())
def test_transforms_of_any_supports_equal_kronecker_products(data):
    shape = tuple(
        data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 33, 66]), min_size=1, max_size=4))
    )
    assume(math.prod(shape) <= 2**13)  # the reference is a square matrix of cells
    axes = st.sets(st.integers(0, len(shape) - 1)).map(lambda found: tuple(sorted(found)))
    check(shape, [*data.draw(st.lists(axes, max_size=8)), ()], atol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 65, 100])
def test_contrasts_are_an_orthonormal_basis_of_all_that_sums_to_zero(size):
    rows = contrasts(size)
    assert rows.shape == (size - 1, size)
    np.testing.assert_allclose(rows.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(rows @ rows.T, np.eye(size - 1), atol=1e-12)


@pytest.mark.parametrize("shape", [(), (1,), (4,), (3, 2), (2, 65, 3), (1, 3)])
def test_table_survives_conversion_to_coefficients_and_back(shape):
    table = np.random.default_rng(5).normal(size=shape)
    everything = tuple(range(len(shape)))
    wanted = vectors(shape, everything)
    found = table_coefficients(table)
    np.testing.assert_allclose(found, wanted @ table.ravel(), atol=1e-10)
    back = coefficients_table(found, shape)
    np.testing.assert_allclose(back.ravel(), wanted.T @ found, atol=1e-10)
    np.testing.assert_allclose(table_coefficients(back), found, atol=1e-10)


@pytest.mark.parametrize("shape", [(2,) * 17, (5, 2, 700, 3, 9)])
def test_pieces_together_are_the_whole_table(shape):
    basis = ResidualBasis(shape, [(), (0,), (0, 1), (1, 3)])
    coefficients = np.random.default_rng(4).normal(size=basis.num_coefficients)
    axes = sorted(range(len(shape)), key=lambda axis: shape[axis])
    table = basis.synthesise(coefficients).reshape(shape).transpose(axes).ravel()
    pieces = [values for _, values in basis.pieces(coefficients)]
    np.testing.assert_allclose(table, np.concatenate(pieces, axis=1).ravel())

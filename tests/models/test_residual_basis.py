"""The residual basis against Kronecker products written out."""

import math
from functools import reduce
from itertools import combinations

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from beam_dp.models.basis import (
    coefficients_table,
    contrast_levels,
    contrast_matrix,
    table_coefficients,
)
from beam_dp.models.residual_basis import ResidualBasis

Support = tuple[int, ...]


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


def subsets(num_axes: int, largest: int) -> list[Support]:
    return [s for size in range(largest + 1) for s in combinations(range(num_axes), size)]


CASES: dict[str, tuple[tuple[int, ...], list[Support]]] = {
    "one cell": ((1,), [(), (0,)]),
    "one attribute": ((5,), [(), (0,)]),
    "constant alone": ((2, 3), [()]),
    "not the constant": ((2, 3, 2), [(0,), (1, 2)]),
    "not down-closed": ((3, 2, 4, 2), [(0, 1, 2, 3), (1,), (0, 3)]),
    "disordered and repeated": ((3, 2, 4), [(1, 2), (), (0,), (1, 2), (0, 1)]),
    "sizes of one": ((1, 3, 1, 2, 1), subsets(5, 3)),
    "only sizes of one": ((1, 1, 1), subsets(3, 3)),
    "binary, all three-way": ((2,) * 8, subsets(8, 3)),
    "everything": ((3, 4, 2), subsets(3, 3)),
    "sizes of one alone on a level": ((1, 40, 1, 33), subsets(4, 1)),
    "one large": ((70,), [(), (0,)]),
    "large among small": ((3, 65, 2), subsets(3, 3)),
    "large first": ((66, 2, 2), subsets(3, 2)),
    "two large": ((65, 67), subsets(2, 2)),
    "at the limit": ((64, 2), subsets(2, 2)),
    "large, not down-closed": ((2, 65, 3), [(0, 2), (1,), (0, 1, 2)]),
    "medium that do not merge": ((20, 30, 7), [(0, 1), (2,), ()]),
    "chain": ((4,) * 5, [(0, 1), (1, 2), (2, 3), (3, 4), ()]),
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


@pytest.mark.parametrize(
    "case",
    [pytest.param(each, marks=pytest.mark.part) if each == "two large" else each for each in CASES],
)
def test_transforms_equal_kronecker_products(case):
    check(*CASES[case], atol=1e-10)


@settings(max_examples=30)
@given(st.data())
def test_transforms_of_any_supports_equal_kronecker_products(data):
    shape = tuple(data.draw(st.lists(st.sampled_from([1, 2, 3, 5, 33]), min_size=1, max_size=4)))
    assume(math.prod(shape) <= 2**13)  # the reference is a square matrix of cells
    axes = st.sets(st.integers(0, len(shape) - 1)).map(lambda found: tuple(sorted(found)))
    check(shape, [*data.draw(st.lists(axes, max_size=8)), ()], atol=1e-9)


@pytest.mark.parametrize("size", [1, 2, 3, 17, 64, 65, 100])
def test_contrasts_are_an_orthonormal_basis_of_all_that_sums_to_zero(size):
    rows = contrasts(size)
    assert rows.shape == (size - 1, size)
    np.testing.assert_allclose(rows.sum(axis=1), 0, atol=1e-12)
    np.testing.assert_allclose(rows @ rows.T, np.eye(size - 1), atol=1e-12)


def test_contrasts_compare_halves_of_blocks_of_adjacent_codes():
    signs = np.sign(contrasts(6)).astype(int).tolist()
    assert signs == [
        [1, 1, 1, -1, -1, -1],
        [1, 1, -1, 0, 0, 0],
        [0, 0, 0, 1, 1, -1],
        [1, -1, 0, 0, 0, 0],
        [0, 0, 0, 1, -1, 0],
    ]
    assert contrast_levels(6).tolist() == [0, 1, 1, 2, 2]
    assert contrast_levels(1).tolist() == []
    # The blocks of a level halve those of the level before, so that 100 codes have 7 levels.
    lengths = (contrasts(100) != 0).sum(axis=1)
    assert [int(lengths[contrast_levels(100) == level].max()) for level in range(7)] == [
        100, 50, 25, 13, 7, 4, 2,
    ]  # fmt: skip


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

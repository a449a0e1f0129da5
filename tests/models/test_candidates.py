"""Candidates that are all cells of a domain describe the same distributions as arrays of it."""

import dataclasses
import math
from collections import Counter
from itertools import combinations, product

import numpy as np
import pytest
from tiny import domain_of

from beam_dp.domain.impossible import Impossible
from beam_dp.models.basis import MarginalCoefficients
from beam_dp.models.candidates import CandidateBasis, _distinct, candidate_basis, record_table
from beam_dp.models.maximum_entropy import NoisyCoefficients
from beam_dp.models.rounding import round_to_records
from beam_dp.models.tree_basis import TreeBasis

SHAPES = [(2, 3, 4, 2), (70, 2, 3), (1, 3, 2), (5,)]


def supports_of(shape, ways=2):
    axes = range(len(shape))
    return [s for k in range(min(ways, len(shape)) + 1) for s in combinations(axes, k)]


def all_cells(shape, ways=2):
    codes = np.array(list(product(*map(range, shape))), dtype=np.int32).T
    return CandidateBasis(shape, supports_of(shape, ways), codes, np.zeros(codes.shape[1]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ways", [1, 2, 3])
def test_moments_and_marginals_over_all_cells_equal_those_of_a_tree(shape, ways):
    basis, tree = all_cells(shape, ways), TreeBasis(shape, supports_of(shape, ways))
    log_weights = np.random.default_rng(1).normal(size=basis.num_coefficients)
    log_sum, moments = basis.log_moments(log_weights)
    expected_sum, expected = tree.log_moments(log_weights)
    assert log_sum == pytest.approx(expected_sum)
    np.testing.assert_allclose(moments, expected, atol=1e-12)
    wanted = supports_of(shape, 3)
    for found, table in zip(
        basis.marginals(log_weights, wanted), tree.marginals(log_weights, wanted), strict=True
    ):
        np.testing.assert_allclose(found, table, atol=1e-12)


def test_candidate_with_base_weight_2_counts_like_two_candidates():
    """A candidate of base 2 weighs as much as two candidates of base 1."""
    shape, codes = (2, 3), np.array([[0, 1, 1], [2, 0, 1]], dtype=np.int32)
    basis = CandidateBasis(shape, supports_of(shape), codes, np.log([2.0, 1.0, 1.0]))
    np.testing.assert_allclose(basis.weights(np.zeros(basis.num_coefficients)), [0.5, 0.25, 0.25])
    assert basis.log_moments(np.zeros(basis.num_coefficients))[0] == pytest.approx(math.log(4))


def observed_of(domain, counts, deviation):
    """Returns exact coefficients of all pairs of a table, with a noise that they do not have."""
    layout = MarginalCoefficients(domain.shape, supports_of(domain.shape))
    codes = np.array(np.unravel_index(np.arange(counts.size), domain.shape), dtype=np.int32)
    cells = CandidateBasis(domain.shape, layout.supports, codes, np.zeros(counts.size))
    variances = np.full(layout.num_coefficients, deviation**2)
    return layout, NoisyCoefficients(cells.analyse(counts.ravel()), variances)


def drawn(domain, counts, number=2**14):
    layout, observed = observed_of(domain, counts, 1.0)
    ones = np.ones(layout.num_coefficients)
    total = float(counts.sum())
    return candidate_basis(domain, layout.supports, observed, total, ones, ones, number)


def dependent(domain, seed=0):
    """Returns a table in which the first attributes go together."""
    rng = np.random.default_rng(seed)
    counts = rng.uniform(size=domain.shape)
    counts[0, 0] *= 30
    counts[1, 1] *= 30
    return np.round(counts * 1e6 / counts.sum())


def test_base_weights_of_candidates_give_uniform_tables():
    """Importance sampling: with base weights alone every cell of a pair has its own share."""
    domain = domain_of(3, 4, 5, 6)
    basis = drawn(domain, dependent(domain))
    uniform = basis.weights(np.zeros(basis.num_coefficients))
    for axes in combinations(range(4), 2):
        table = record_table(domain.shape, basis.codes, uniform, axes)
        np.testing.assert_allclose(table, 1 / table.size, rtol=0.2)


def test_candidates_are_distinct_and_the_same_for_the_same_noise():
    domain = domain_of(3, 4, 5, 6)
    first, again = (drawn(domain, dependent(domain)) for _ in range(2))
    assert (first.codes == again.codes).all()
    assert len({*map(tuple, first.codes.T.tolist())}) == first.codes.shape[1]


def test_impossible_combinations_have_no_candidate():
    impossible = (Impossible((0, 1), (((0, 1),), ((2, 4),))), Impossible((2, 3), (((1, 3),),) * 2))
    domain = dataclasses.replace(domain_of(3, 4, 5, 6), impossible=impossible)
    counts = dependent(domain)
    cells = list(np.indices(domain.shape))
    # Records of impossible combinations are left out before they are counted.
    counts[impossible[0].matches(cells) | impossible[1].matches(cells)] = 0
    basis = drawn(domain, counts)
    assert basis.codes.shape[1] > 100
    assert not any(each.matches(list(basis.codes)).any() for each in impossible)


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.part) for seed in range(1, 5))]
)
def test_rounding_of_candidates_keeps_tables_better_than_systematic_rounding(seed):
    domain = domain_of(3, 4, 5, 6)
    basis = drawn(domain, dependent(domain))
    weights = basis.weights(np.random.default_rng(seed).normal(size=basis.num_coefficients))
    importance = np.ones(basis.num_coefficients)

    def largest_error(counts, num_records):
        return np.abs(basis.analyse(counts - num_records * weights)).max()

    for num_records in (0, 1, 500, 10**9):
        counts = round_to_records(basis, weights, num_records, importance, 0.0)
        assert counts.sum() == num_records and counts.min() >= 0
        if num_records >= 500:
            systematic = np.diff(np.round(np.cumsum(num_records * weights)), prepend=0)
            # The largest ratio of 120 other weights and numbers was 0.69.
            assert largest_error(counts, num_records) < 0.8 * largest_error(systematic, num_records)


@pytest.mark.parametrize("shape", [(3, 4), (2**31, 2**31, 3, 2**30, 2)])
def test_distinct_records_of_any_domain_are_in_ascending_order(shape):
    rng = np.random.default_rng(5)
    few = np.stack([rng.integers(0, size, 3) for size in shape]).astype(np.int32)
    codes = few[:, rng.integers(0, 3, 50)]
    found, copies = _distinct(shape, codes)
    expected = Counter(map(tuple, codes.T.tolist()))
    assert [*map(tuple, found.T.tolist())] == sorted(expected)
    assert copies.tolist() == [expected[each] for each in sorted(expected)]

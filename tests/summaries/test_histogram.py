"""Tables of counts: every one equals a brute-force sum, and nothing unsuitable is accepted."""

import itertools
import math

import numpy as np
import pytest

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.summaries.histogram import (
    Histogram,
    Marginals,
    MarginalsAccumulator,
    merge_tables,
)


def domain_of(*sizes: int) -> Domain:
    return Domain(tuple(IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(sizes)))


def histogram_of(*sizes: int) -> Histogram:
    domain = domain_of(*sizes)
    return Histogram(domain, np.random.default_rng(0).integers(0, 9, domain.num_cells))


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (1,), (1, 20, 1), (17, 2, 33), (2,) * 8])
def test_every_marginal_equals_a_sum_over_axes(sizes):
    histogram = histogram_of(*sizes)
    names, counts = histogram.domain.names, histogram.counts.reshape(sizes)
    wanted = [s for k in range(len(sizes) + 1) for s in itertools.combinations(names, k)]
    marginals = histogram.marginals(wanted)
    assert set(marginals.tables) == set(wanted)
    for attributes in wanted:
        dropped = tuple(axis for axis, name in enumerate(names) if name not in attributes)
        np.testing.assert_array_equal(marginals.tables[attributes], counts.sum(axis=dropped))


def test_marginal_has_axes_in_any_given_order():
    """All orders of up to four axes of unequal sizes: a swap of two would be its own inverse."""
    histogram = histogram_of(2, 3, 4, 5)
    counts = histogram.counts.reshape(2, 3, 4, 5)
    held = histogram.marginals([("a0", "a1", "a2", "a3"), ("a0", "a2", "a3")])
    orders = [o for k in range(5) for o in itertools.permutations(range(4), k)]
    for order in orders:
        names = [f"a{axis}" for axis in order]
        expected = np.einsum(counts, range(4), list(order))
        np.testing.assert_array_equal(histogram.marginal(names), expected)
        np.testing.assert_array_equal(held.marginal(names), expected)
    assert len(orders) == 65


def test_repr_shows_no_counts():
    assert repr(histogram_of(2, 3)) == "Histogram(num_cells=6)"
    assert "9" not in repr(Marginals(domain_of(2), {("a0",): np.full(2, 9)}))


def test_rejects_counts_of_another_shape_or_type():
    with pytest.raises(ValueError, match="int64"):
        Histogram(domain_of(4), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="int64"):
        Histogram(domain_of(4), np.zeros(4))


@pytest.mark.parametrize("max_cells", [1, 64, 2**16])
def test_merged_tables_of_bounded_size_contain_every_table(max_cells):
    domain = domain_of(2, 5, 3, 70000, 4, 2, 6)
    tables = list(itertools.combinations(domain.names, 2))
    merged = merge_tables(domain, tables, max_cells)
    assert len(merged) <= len(tables)
    for table in tables:
        assert any(set(table) <= set(union) for union in merged)
    for union in merged:
        cells = math.prod(domain.restrict(union).shape)
        assert cells <= max_cells or union in tables


def test_all_3_way_marginals_of_16_binary_attributes_are_one_merged_table():
    domain = domain_of(*[2] * 16)
    tables = itertools.combinations(domain.names, 3)
    assert len(MarginalsAccumulator(domain, tables).create()) == 1


def test_marginal_comes_from_the_smallest_stored_table():
    domain = domain_of(2, 3, 4)
    large, small = np.ones((2, 3, 4), np.int64), np.full((2, 3), 7, np.int64)
    marginals = Marginals(domain, {("a0", "a1", "a2"): large, ("a0", "a1"): small})
    assert marginals.marginal(["a1", "a0"]).shape == (3, 2)
    assert marginals.marginal(["a0"]).tolist() == [21, 21]
    assert marginals.marginal(["a2"]).tolist() == [6] * 4


def test_rejects_tables_with_wrong_attribute_order_or_shape():
    with pytest.raises(ValueError, match="order"):
        Marginals(domain_of(2, 3), {("a1", "a0"): np.zeros((3, 2), np.int64)})
    with pytest.raises(ValueError, match="axis"):
        Marginals(domain_of(2, 3), {("a0", "a1"): np.zeros((3, 2), np.int64)})

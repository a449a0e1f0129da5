from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.summaries.marginals import Marginals, MarginalsAccumulator, merge_tables


def domain_of(*sizes: int) -> Domain:
    return Domain(tuple(IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(sizes)))


@pytest.mark.parametrize("max_cells", [1, 64, 2**16])
def test_every_table_is_held_by_a_merged_one_of_bounded_size(max_cells: int) -> None:
    domain = domain_of(2, 5, 3, 70000, 4, 2, 6)
    tables = list(itertools.combinations(domain.names, 2))
    merged = merge_tables(domain, tables, max_cells)
    assert len(merged) <= len(tables)
    for table in tables:
        assert any(set(table) <= set(union) for union in merged)
    for union in merged:
        cells = math.prod(domain.restrict(union).shape)
        assert cells <= max_cells or union in tables


def test_all_3_way_marginals_of_16_binary_attributes_are_one_merged_table() -> None:
    domain = domain_of(*[2] * 16)
    tables = itertools.combinations(domain.names, 3)
    assert MarginalsAccumulator(domain, tables).num_merged_tables == 1


def test_a_marginal_comes_from_the_smallest_stored_superset() -> None:
    domain = domain_of(2, 3, 4)
    large, small = np.ones((2, 3, 4), np.int64), np.full((2, 3), 7, np.int64)
    marginals = Marginals(domain, {("a0", "a1", "a2"): large, ("a0", "a1"): small})
    assert marginals.marginal(["a1", "a0"]).shape == (3, 2)
    assert marginals.marginal(["a0"]).tolist() == [21, 21]
    assert marginals.marginal(["a2"]).tolist() == [6] * 4


def test_attributes_of_no_stored_table_are_refused() -> None:
    marginals = Marginals(domain_of(2, 3), {("a0",): np.zeros(2, np.int64)})
    for names in (["a1"], ["a9"], ["a0", "a0"]):
        with pytest.raises(InputError):
            marginals.marginal(names)


def test_tables_out_of_order_or_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="order"):
        Marginals(domain_of(2, 3), {("a1", "a0"): np.zeros((3, 2), np.int64)})
    with pytest.raises(ValueError, match="axis"):
        Marginals(domain_of(2, 3), {("a0", "a1"): np.zeros((3, 2), np.int64)})


def test_tables_of_too_many_cells_are_refused() -> None:
    with pytest.raises(InputError, match=r"2\^28"):
        MarginalsAccumulator(domain_of(2**20, 2**20), [("a0", "a1")])
    with pytest.raises(InputError, match="a7"):
        MarginalsAccumulator(domain_of(2), [("a7",)])


def test_counts_never_show() -> None:
    assert "9" not in repr(Marginals(domain_of(2), {("a0",): np.full(2, 9)}))

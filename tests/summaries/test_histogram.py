from __future__ import annotations

import itertools

import numpy as np
import pytest

from beam_dp.domain.ordered import IntegerAttribute
from beam_dp.domain.universe import Domain
from beam_dp.errors import InputError
from beam_dp.summaries.histogram import Histogram, HistogramAccumulator


def domain_of(*sizes: int) -> Domain:
    return Domain(tuple(IntegerAttribute(f"a{i}", 0, size - 1) for i, size in enumerate(sizes)))


def histogram_of(*sizes: int) -> Histogram:
    domain = domain_of(*sizes)
    return Histogram(domain, np.random.default_rng(0).integers(0, 9, domain.num_cells))


@pytest.mark.parametrize("sizes", [(2, 3, 4, 5), (1,), (1, 20, 1), (17, 2, 33), (2,) * 8])
def test_every_marginal_equals_a_sum_over_axes(sizes: tuple[int, ...]) -> None:
    histogram = histogram_of(*sizes)
    names, counts = histogram.domain.names, histogram.counts.reshape(sizes)
    wanted = [s for k in range(len(sizes) + 1) for s in itertools.combinations(names, k)]
    marginals = histogram.marginals(wanted)
    assert set(marginals.tables) == set(wanted)
    for attributes in wanted:
        dropped = tuple(axis for axis, name in enumerate(names) if name not in attributes)
        np.testing.assert_array_equal(marginals.tables[attributes], counts.sum(axis=dropped))


def test_a_marginal_has_its_axes_in_the_order_asked_for() -> None:
    histogram = histogram_of(2, 3, 4)
    expected = histogram.counts.reshape(2, 3, 4).sum(axis=1).T
    np.testing.assert_array_equal(histogram.marginal(["a2", "a0"]), expected)


def test_unknown_and_repeated_attributes_are_refused() -> None:
    with pytest.raises(InputError, match="a9"):
        histogram_of(2, 3).marginal(["a9"])
    with pytest.raises(InputError, match="distinct"):
        histogram_of(2, 3).marginal(["a0", "a0"])


def test_more_than_2_to_28_cells_are_refused() -> None:
    with pytest.raises(InputError, match="268435456"):
        HistogramAccumulator(domain_of(2**28, 2))


def test_counts_never_show() -> None:
    assert repr(histogram_of(2, 3)) == "Histogram(num_cells=6)"


def test_counts_of_another_shape_or_type_are_refused() -> None:
    with pytest.raises(ValueError, match="int64"):
        Histogram(domain_of(4), np.zeros(3, np.int64))
    with pytest.raises(ValueError, match="int64"):
        Histogram(domain_of(4), np.zeros(4))

"""VC dimensions: the search compared with all sets of cells, and closed forms with the search."""

import math
from collections.abc import Iterable
from itertools import combinations, product

import numpy as np
import pytest
from executed_lines import lines_below
from tiny import domain_of

import beam_dp as dp
from beam_dp.queries.linear import LinearQuery, Product
from beam_dp.queries.vc_dimension import (
    family_vc_dimension,
    log_sauer_bound,
    matrix_vc_dimension,
    products_bound,
    sauer_bound,
)

TINY = [(1,), (2,), (3,), (4,), (5,), (1, 1), (1, 3), (2, 2), (2, 3), (3, 3), (4, 2), (2, 2, 2)]


def all_shattered(matrix: np.ndarray) -> int:
    """The dimension, from every set of cells."""
    rows = matrix.tolist()
    cells = range(matrix.shape[1])
    sizes = [
        size
        for size in range(len(rows).bit_length())
        for chosen in combinations(cells, size)
        if len({tuple(row[cell] for cell in chosen) for row in rows}) == 2**size
    ]
    return max(sizes)


def rows_of(queries: Iterable[LinearQuery]) -> np.ndarray:
    return np.array([query.values() for query in dict.fromkeys(queries)])


def products_of(sizes: tuple[int, ...], sets: dict[int, list]) -> list[Product]:
    """All products of one set of codes for each attribute."""
    return [
        Product.of(sizes, dict(enumerate(chosen)))
        for chosen in product(*(sets[axis] for axis in range(len(sizes))))
    ]


def intervals_of(size: int) -> list:
    return [((start, stop),) for start, stop in combinations(range(size + 1), 2)]


def is_shattered(matrix: np.ndarray, cells: tuple[int, ...]) -> bool:
    return len(np.unique(matrix[:, list(cells)], axis=0)) == 2 ** len(cells)


def prefixes_of(size: int) -> list:
    return [((0, stop),) for stop in range(1, size + 1)]


def sets_of(size: int) -> list:
    """All non-empty sets of codes, as ranges that do not touch."""
    found = []
    for held in product((0, 1), repeat=size):
        ends = np.flatnonzero(np.diff([0, *held, 0])).tolist()
        if ends:
            found.append(tuple(zip(ends[::2], ends[1::2], strict=True)))
    return found


@pytest.mark.parametrize("shape", [(3, 4), (8, 5), (20, 7), (64, 8), (12, 9)])
def test_search_agrees_with_enumeration_of_all_sets_of_cells(shape):
    generator = np.random.default_rng(shape[0])
    for density in (0.1, 0.5, 0.7) * 8:
        matrix = (generator.random(shape) < density).astype(np.int64)
        found = matrix_vc_dimension(matrix)
        assert found.is_exact and found.most == all_shattered(matrix)
        assert is_shattered(matrix, found.shattered)
        assert matrix_vc_dimension(1 - matrix).most == found.most
        for steps in (0, 3, 10, 40):
            limited = matrix_vc_dimension(matrix, max_steps=steps)
            assert len(limited.shattered) <= limited.least <= found.most <= limited.most
            assert is_shattered(matrix, limited.shattered)
            assert limited.most <= math.log2(len(np.unique(matrix, axis=0)))


@pytest.mark.parametrize("sizes", TINY, ids=str)
@pytest.mark.parametrize("family", ["prefixes", "rectangles", "products"])
def test_products_have_the_dimension_of_their_family(family, sizes):
    sets_of_size = {"prefixes": prefixes_of, "rectangles": intervals_of, "products": sets_of}
    sets = {axis: sets_of_size[family](size) for axis, size in enumerate(sizes)}
    queries = products_of(sizes, sets)
    found = matrix_vc_dimension(rows_of(queries))
    expected = family_vc_dimension(family, sizes)  # type: ignore[arg-type]
    assert found.is_exact and found.most == expected == products_bound(queries)


def test_vc_dimension_of_products_is_bounded_through_their_attributes():
    generator = np.random.default_rng(7)
    sizes = (4, 3, 2)
    for kinds in product((prefixes_of, intervals_of, sets_of), repeat=3):
        sets = {
            axis: kind(size) for axis, (kind, size) in enumerate(zip(kinds, sizes, strict=True))
        }
        everything = products_of(sizes, sets)
        for number in (3, 30):
            chosen = generator.choice(len(everything), min(number, len(everything)), replace=False)
            queries = [everything[each] for each in chosen]
            bound = products_bound(queries)
            found = matrix_vc_dimension(rows_of(queries))
            assert bound is not None and found.is_exact and found.most <= bound
    assert products_bound([dp.LinearQueries(domain_of(2)).parity({"a0": 1})]) is None


@pytest.mark.parametrize("way", ["", "monotone_"])
@pytest.mark.parametrize("width", [1, 2, 3])
def test_disjunctions_are_bounded_like_their_negated_conjunctions(way, width):
    domain = domain_of(2, 2, 2, 2)
    workload = dp.parse_linear_workload(f"{way}disjunctions:{width}", domain)
    bound = products_bound(workload.queries)
    found = matrix_vc_dimension(rows_of(workload))
    assert bound is not None and found.is_exact and found.most <= bound <= 4
    both = [*workload.queries, *dp.parse_linear_workload("conjunctions:3", domain).queries]
    assert (products_bound(both) is None) == (width > 1)


@pytest.mark.parametrize("spec", ["conjunctions:1", "conjunctions:2", "marginals:2"])
def test_shattered_cells_are_possible_cells(spec):
    free = domain_of(3, 3)
    domain = free.with_impossible(
        [{"a0": [0], "a1": [1, 2]}, {"a0": [1], "a1": [0, 2]}, {"a0": [2], "a1": [0]}]
    )
    rows = rows_of(dp.parse_linear_workload(spec, free))
    found = dp.workload_vc_dimension(dp.parse_linear_workload(spec, domain))
    assert found.is_exact and is_shattered(rows, found.shattered)
    assert set(found.shattered) <= {0, 4, 7, 8}
    assert found.most == all_shattered(rows[:, [0, 4, 7, 8]])
    everywhere = dp.workload_vc_dimension(dp.parse_linear_workload(spec, free))
    assert everywhere.is_exact and everywhere.most == all_shattered(rows) >= found.most


@pytest.mark.parametrize("points", range(7))
@pytest.mark.parametrize("dimension", range(5))
def test_sauer_bound_is_attained_and_matches_its_logarithm(points, dimension):
    sets = [each for each in product((0, 1), repeat=points) if sum(each) <= dimension]
    assert len(sets) == sauer_bound(points, dimension)
    assert log_sauer_bound(points, dimension) == pytest.approx(math.log(len(sets)), rel=1e-12)
    if points:
        assert matrix_vc_dimension(np.array(sets)).most == min(points, dimension)


def test_search_stops_near_its_work_limit():
    matrix = dp.parse_linear_workload("conjunctions:4", domain_of(*[2] * 10))
    steps = 2**12
    with lines_below(60_000 + 10 * 2 * steps):
        dp.workload_vc_dimension(matrix, steps)
    found = dp.workload_vc_dimension(matrix)
    assert 4 <= found.least <= found.most <= 10

"""Sizes of small databases and their errors: known answers."""

import math

import pytest

from beam_dp.mechanisms.small_db.size import (
    num_multisets,
    size_of_workload,
    small_db_error,
    small_db_size,
    small_db_size_by_vc,
    small_db_size_for_intervals,
)
from beam_dp.queries.linear_workload import MAX_MATRIX_VALUES
from beam_dp.queries.vc_dimension import sauer_bound


@pytest.mark.parametrize(
    "num_queries, fraction, textbook, at_half, tight",
    [
        (3, 0.5, 5, 18, 4),
        (8, 0.5, 9, 34, 6),
        (16, 0.25, 45, 178, 28),
        (100, 0.1, 461, 1843, 265),
        (1024, 0.1, 694, 2773, 382),
        (10**6, 0.05, 5527, 22105, 2902),
    ],
)
def test_size_from_number_of_queries_matches_known_values(
    num_queries, fraction, textbook, at_half, tight
):
    assert small_db_size(num_queries, fraction, "textbook") == textbook
    assert small_db_size(num_queries, fraction / 2, "textbook") == at_half
    assert small_db_size(num_queries, fraction) == tight
    # The tight size is the least that makes the union bound less than 1.
    assert 2 * num_queries * math.exp(-2 * tight * fraction**2) < 1
    assert 2 * num_queries * math.exp(-2 * (tight - 1) * fraction**2) >= 1


def test_few_queries_get_tight_sizes():
    assert small_db_size(2, 0.25) == 12
    assert small_db_size(1, 0.25) == 6


@pytest.mark.parametrize(
    "bound, num_cells, sizes",
    [
        ("finite", 1024, {1: 382, 2: 694, 3: 985}),
        ("finite", 10**6, {1: 726, 2: 1382}),
        ("devroye", None, {1: 754, 2: 1523, 3: 2328}),
        ("vc71", None, {1: 8943, 2: 17275}),
    ],
)
def test_size_from_vc_dimension_matches_known_values(bound, num_cells, sizes):
    for dimension, size in sizes.items():
        assert small_db_size_by_vc(dimension, 0.1, bound, num_cells) == size


def test_smallest_size_by_vc_dimension_is_taken():
    assert small_db_size_by_vc(2, 0.1, num_cells=1024) == 694
    assert small_db_size_by_vc(2, 0.1, num_cells=10**8) == 1523
    assert small_db_size_by_vc(2, 0.1) == 1523


@pytest.mark.parametrize("dimension", [0, 1, 2, 3, 5, 8])
def test_query_count_gives_the_smallest_size_for_enumerable_workloads(dimension):
    """No dimension that Sauer's bound admits makes a size smaller, in 2^24 values of a matrix."""
    for num_cells in (2**each for each in range(4, 25, 2)):
        num_queries = min(sauer_bound(num_cells, dimension), MAX_MATRIX_VALUES // num_cells)
        for fraction in (1, 0.7, 0.4, 0.1, 0.02):
            size = small_db_size_by_vc(dimension, fraction, None, num_cells)
            assert size >= small_db_size(num_queries, fraction)
            assert size_of_workload(
                num_queries, fraction, vc_dimension=dimension, num_cells=num_cells
            ) == (small_db_size(num_queries, fraction), "queries")
    # More queries than that need fewer records by their dimension.
    assert size_of_workload(2**40, 0.1, vc_dimension=1) == (754, "vc_dimension")


def test_size_for_intervals_is_smaller_than_size_by_number_of_queries():
    assert small_db_size_for_intervals(0.1) == 10
    num_intervals = 1024 * 1025 // 2
    assert num_intervals == 524800 and small_db_size(num_intervals, 0.1) == 694


def test_quantiles_answer_all_intervals_within_one_over_their_number():
    """The claim behind the size for intervals, on data that make it hard."""
    for num_records, size in ((100, 10), (97, 7), (1000, 3)):
        for stretch in (1, 3):
            data = [i * i // stretch for i in range(num_records)]
            chosen = [data[math.floor((i + 0.5) / size * num_records)] for i in range(size)]
            points = sorted({-1, *data})
            errors = [
                sum(x <= p for x in chosen) / size - sum(x <= p for x in data) / num_records
                for p in points
            ]
            assert max(errors) - min(errors) <= 1 / size + 1e-12


def test_number_of_multisets_matches_known_values():
    known = {(2, 3): 4, (4, 9): 220, (8, 9): 11440, (16, 20): 3247943160}
    assert {pair: num_multisets(*pair) for pair in known} == known


@pytest.mark.parametrize(
    "num_cells, num_queries, fraction, num_records, size",
    [(1024, 1024, 0.1, 68609.2, 1525), (16, 16, 0.1, 2936.21, 694), (8, 8, 0.5, 140.177, 23)],
)
def test_error_splits_evenly_between_size_and_choice(
    num_cells, num_queries, fraction, num_records, size
):
    assert small_db_size(num_queries, fraction / 2) == size
    bound = small_db_error(num_cells, size, 1.0, num_records, fraction / 2, 0.05)
    assert bound == pytest.approx(fraction * num_records, rel=1e-5)


def test_bound_by_multisets_is_below_bound_by_sequences():
    size = small_db_size(1024, 0.1, "textbook")
    by_sequences = 0.1 + 2 / 1e6 * (size * math.log(1024) + math.log(20))
    assert by_sequences == pytest.approx(0.109627, rel=1e-5)
    bound = small_db_error(1024, size, 1.0, 10**6, 0.1, 0.05)
    assert 0.1e6 < bound < by_sequences * 1e6

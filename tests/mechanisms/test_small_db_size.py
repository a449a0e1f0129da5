"""Sizes of small databases: known answers; product weights: bounds for every multiset."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from itertools import combinations_with_replacement

import numpy as np
import pytest

from beam_dp.mechanisms.small_db import law as law_module
from beam_dp.mechanisms.small_db.law import TILT_BITS, MultisetLaw, find_tilts
from beam_dp.mechanisms.small_db.size import (
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


# Product weights: upper bounds for every multiset, and near the least that there are.


QUERIES = {
    "crossed": np.array([[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 1], [1, 0, 1, 0]]),
    "one query": np.array([[1, 0]]),
    "values": np.array([[0, 1, 2, 3], [3, 3, 0, 1]]),
}


def law_of(name: str, targets: list[int], scale: float) -> MultisetLaw:
    answers = 7 * QUERIES[name]
    members = tuple(np.array([kind]) for kind in range(answers.shape[1]))
    return MultisetLaw(tuple(targets), answers, members, 3, Fraction(scale))


def losses(law: MultisetLaw) -> dict[tuple[int, ...], int]:
    return {
        kinds: max(
            abs(target - int(row[list(kinds)].sum()))
            for target, row in zip(law.targets, law.answers, strict=True)
        )
        for kinds in combinations_with_replacement(range(law.num_types), law.size)
    }


def log_bound(law: MultisetLaw, tilt, kinds: tuple[int, ...], known: int, least: int) -> float:
    product = math.prod(tilt.weights[kind] for kind in kinds)
    logarithm = math.log(product) - TILT_BITS * law.size * math.log(2)
    return logarithm - tilt.rest * float((known - least) / law.scale)


CASES = [
    ("crossed", [9, 3, 0, 12]),
    ("crossed", [0, 0, 0, 0]),
    ("crossed", [21, 21, 21, 21]),
    ("crossed", [2**61, 3, 2**40, 5]),
    ("one query", [4]),
    ("values", [40, 2]),
]


def slack(law: MultisetLaw, least: int) -> float:
    """How far the lowest of all bounds, also those of sets that hold more, is above a weight."""
    found = losses(law)
    return min(
        log_bound(law, tilt, kinds, known, least) + float((loss - least) / law.scale)
        for tilt in find_tilts(law, least)
        for kinds, loss in found.items()
        for known in {least, (least + loss) // 2, loss}
    )


@pytest.mark.parametrize("name, targets", CASES)
@pytest.mark.parametrize("scale", [0.5, 3.0, 1e6])
@pytest.mark.parametrize("share", [0.0, 1.0])
def test_weights_never_exceed_their_bounds(name, targets, scale, share):
    law = law_of(name, targets, scale)
    # Nothing less than the least loss of all is known at first; at best, that itself.
    most = int(law.answers.max()) * law.size
    known = max(0, max(targets) - most)
    least = known + int(share * (min(losses(law).values()) - known))
    assert slack(law, least) >= 0


def test_detects_shares_with_too_large_a_sum(monkeypatch):
    original = law_module._best_shares
    monkeypatch.setattr(law_module, "_best_shares", lambda *given: 1.2 * original(*given))
    assert slack(law_of("one query", [4], 3.0), 0) < 0


def test_tilt_lowers_the_bound_if_few_multisets_are_good():
    """All records in one of 64 cells: nearly all multisets are far off."""
    answers = 1000 * np.eye(64, dtype=np.int64)
    members = tuple(np.array([kind]) for kind in range(64))
    targets = (8000, *(0,) * 63)
    law = MultisetLaw(targets, answers, members, 8, Fraction(160))
    logs = []
    for tilt in find_tilts(law, 0):
        weights = np.array([float(Fraction(each, 2**TILT_BITS)) for each in tilt.weights])
        logs.append(law_module._log_sum(np.log(weights), np.ones(64), 8)[0])
    assert logs[0] == pytest.approx(math.log(law.num_multisets))
    assert min(logs) < logs[0] - 8


def test_log_sum_matches_enumeration_of_all_multisets():
    exponents, ways = np.array([0.3, -1.0, 2.0]), np.array([1.0, 2.0, 1.0])
    cells = [0, 1, 1, 2]
    total, numbers = 0.0, np.zeros(3)
    for chosen in combinations_with_replacement(range(4), 3):
        kinds = [cells[each] for each in chosen]
        weight = math.exp(exponents[kinds].sum())
        total += weight
        numbers += weight * np.bincount(kinds, minlength=3)
    log, means = law_module._log_sum(exponents, ways, 3)
    assert log == pytest.approx(math.log(total))
    assert means == pytest.approx(numbers / total)


def test_queries_with_only_zero_answers_need_only_the_plain_tilt():
    law = dataclasses.replace(law_of("one query", [4], 3.0), answers=np.zeros((1, 2), np.int64))
    (plain,) = find_tilts(law, 4)
    assert plain.rest == 1 and set(plain.weights) == {1 << TILT_BITS}

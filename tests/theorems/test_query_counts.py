"""How many queries a number of records allows: compared with a scan and closed forms."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import pytest
from tiny import ADD, REPLACE, domain_of, promise

from beam_dp.mechanisms.online.plan import OnlinePlan
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.online.sparse_mw import plan_sparse_mw
from beam_dp.mechanisms.sparse_vector.noise import sparse_vector_noise
from beam_dp.planning.query_counts import QueryCountJob, count_queries
from beam_dp.theorems.synthesis import (
    MAX_QUERIES,
    mwem_queries_allowed,
    mwem_theorem,
    online_theorem,
    queries_allowed,
    small_db_theorem,
)
from beam_dp.theorems.theorem import Calibration, Theorem, constant


def small_db(calibration: Calibration, num_cells: int = 1024) -> Callable[[int], Theorem]:
    return lambda count: small_db_theorem(num_cells, count, 1.0, 0.05, calibration)


def run(plan: OnlinePlan) -> Callable[[int], Theorem]:
    return lambda count: online_theorem(dataclasses.replace(plan, num_questions=count))


PRIVATE_MW = plan_private_mw(domain_of(64), promise(REPLACE), 1, num_questions=1)
PUBLISHED_MW = plan_private_mw(
    domain_of(4), promise(REPLACE, 1e-9), 1, num_questions=1, calibration="textbook"
)
SPARSE_MW = plan_sparse_mw(promise(ADD), "noisy", max_sparsity=3, num_questions=1)


@pytest.mark.part
@pytest.mark.parametrize(
    "theorem_of, num_records, least",
    [
        (small_db("textbook", 16), 50_000, 3),
        (small_db("tight"), 10_000, 1),
        (run(PRIVATE_MW), 500_000, 1),
        (run(PUBLISHED_MW), 500_000, 1),
        (run(SPARSE_MW), 500_000, 1),
    ],
)
@pytest.mark.parametrize("most", [7, 40])
def test_query_count_agrees_with_scan(theorem_of, num_records, least, most):
    target = theorem_of(most).error(num_records) * (1 + 1e-9)
    found = queries_allowed(theorem_of, num_records, target, 0.05, least=least)
    kept = [n for n in range(least, 60) if theorem_of(n).error(num_records) <= target]
    assert kept == list(range(least, found + 1)) and found == most


@pytest.mark.parametrize("num_records, expected", [(10**6, 7396), (10**8, 10**391)])
def test_published_small_db_count_matches_solving_its_theorem(num_records, expected):
    share, log_cells = 0.1, math.log(1024)
    solved = (num_records * share**3 - 4 * math.log(20)) / (16 * log_cells)
    target = share * num_records
    found = queries_allowed(small_db("textbook"), num_records, target, 0.05, least=3)
    assert found == expected
    assert math.log(found) <= solved < math.log(found * 10 if found > 10**15 else found + 1)


@pytest.mark.parametrize("num_records", [10**8, 10**7, 3 * 10**6, 2 * 10**6, 10**6])
@pytest.mark.parametrize("num_cells, units", [(8, 1), (1024, 2)])
def test_no_other_number_of_rounds_allows_more_mwem_queries(num_records, num_cells, units):
    target, epsilon = num_records / 3, 1.0
    found, rounds = mwem_queries_allowed(num_cells, epsilon, num_records, target, 0.05, units)
    log_numbers = [
        epsilon * (target - 2 * num_records * math.sqrt(math.log(num_cells) / each)) / (10 * each)
        for each in range(1, 3000)
    ]
    log_most = max(log_numbers) / units
    closed = epsilon * target**3 / (270 * units * num_records**2 * math.log(num_cells))
    assert log_most <= closed * (1 + 1e-9) and log_most == pytest.approx(closed, rel=1e-3)
    if found:
        bound = mwem_theorem(num_cells, found, epsilon, units, rounds).bound(num_records)
        assert bound.max_error <= target * (1 + 1e-9) and bound.failure_probability <= 0.05
        assert math.log(found) <= log_most * (1 + 1e-9)
        more = 10 if found >= 10**15 else 1 + 2 / found
        assert found == MAX_QUERIES or math.log(found) + math.log(more) > log_most
    else:
        # The published failure probability for few queries is too large.
        assert 2 * rounds / math.exp(log_most) > 0.05


def test_query_count_may_be_zero_or_unlimited():
    assert queries_allowed(small_db("tight"), 100, 50.0, 0.05) == 0
    # The published theorem covers at least three queries; two of three are covered by it.
    assert queries_allowed(small_db("textbook"), 10**5, 10**4, 0.05, least=3) == 0
    always = Theorem("", constant(0.05), constant(1.0))
    assert queries_allowed(lambda count: always, 10, 1.0, 0.05) == MAX_QUERIES
    # A theorem that fails more often than allowed guarantees nothing.
    assert queries_allowed(lambda count: always, 10, 1.0, 0.04) == 0


def test_large_query_count_is_the_largest_allowed_power_of_ten():
    for theorem_of, num_records in ((run(PRIVATE_MW), 10**7), (small_db("tight"), 10**6)):
        target = 0.1 * num_records
        found = queries_allowed(theorem_of, num_records, target, 0.05)
        power = round(math.log10(found))
        assert found == 10**power and power > 15
        assert theorem_of(found).error(num_records) <= target
        assert theorem_of(10 * found).error(num_records) > target


def test_margin_is_exact_for_more_questions_than_a_double_can_represent():
    noise = sparse_vector_noise(promise(), 10, answers=True)
    for count in (2**31 + 1, 10**30, 10**300):
        added = noise.margin(count, 0.05, 2**16) - noise.margin(2**31, 0.05, 2**16)
        expected = noise.question_scale * (math.log(count) - math.log(2**31))
        assert added == pytest.approx(expected, abs=2 / 2**16)
    assert math.isfinite(noise.margin(10**10_000, 1e-100))


JOB = QueryCountJob(promise(REPLACE), 10**6, True, 10**5, num_cells=64, max_sparsity=3)


def numbers(**changed: object) -> dict[tuple[str, str], int]:
    found = count_queries(dataclasses.replace(JOB, **changed))  # type: ignore[arg-type]
    return {(each.mechanism, each.calibration): each.num_queries for each in found}


@pytest.mark.part
@pytest.mark.parametrize(
    "change",
    [
        {"target_error": 3 * 10**5},
        {"num_records": 10**7, "target_error": 10**6},
        {"guarantee": promise(REPLACE, epsilon=4.0)},
        {"failure_probability": 0.5},
        {"num_cells": 8, "max_sparsity": 1},
    ],
)
def test_easier_target_allows_more_queries(change):
    fewer, more = numbers(), numbers(**change)
    assert set(fewer) == set(more) and len(more) == 7
    assert all(more[key] >= fewer[key] for key in fewer)
    assert any(more[key] > fewer[key] for key in fewer)


@pytest.mark.part
def test_refuses_mechanisms_that_lack_a_required_number():
    def refused(**changed: object) -> dict[str, str | None]:
        found = count_queries(dataclasses.replace(JOB, **changed))  # type: ignore[arg-type]
        return {each.mechanism: each.refusal for each in found if each.refusal}

    assert refused() == {}
    assert refused(max_sparsity=None) == {"sparse_mw": "max_sparsity must be given"}
    without = refused(num_cells=None)
    assert set(without) == {"small_db", "mwem", "private_mw"}
    assert set(without.values()) == {"num_cells must be given"}
    assert set(refused(guarantee=promise(REPLACE, 1e-9))) == {"mwem"}
    assert set(refused(num_cells=2**27)) == {"private_mw"}

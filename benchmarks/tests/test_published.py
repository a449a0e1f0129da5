"""What is published of errors, as `claim_rows.published` computes it: known answers, refusals."""

from __future__ import annotations

import math

import pytest
from claim_rows.published import (
    gaussian_deviation,
    gaussian_error,
    published_largest_entry,
    published_projection,
    published_projection_noise,
    published_small_db_error,
    published_weighted_noise,
    selection_shortfall,
    sharper_small_db_theorem,
    sparse_vector_theorem,
)
from tiny import promise

from beam_dp.errors import InputError
from beam_dp.mechanisms.sparse_vector import published_accuracy, sparse_vector_noise
from beam_dp.planning.theorems.synthesis import small_db_theorem

DELTA = 1e-9


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-5)


def test_gaussian_and_selection_match_known_answers():
    assert gaussian_error(100, 10.0, 1.0, DELTA, 0.05) == close(223.814)
    assert gaussian_deviation(1.0, DELTA) == close(5.49527)
    assert gaussian_deviation(1.0, DELTA, "textbook") == close(5.77869)
    assert gaussian_deviation(4.0, DELTA) == close(1.48780)
    assert selection_shortfall(1000, 1, 1.0, 0.05) == close(19.8070)


@pytest.mark.parametrize(
    "max_above, delta, answers, expected",
    [
        (1, 0.0, False, 84.7731),
        (10, 0.0, False, 1031.94),
        (100, 0.0, False, 12161.4),
        (10, DELTA, False, 4201.72),
        (100, DELTA, False, 15658.8),
        (10, 0.0, True, 1223.31),
        (100, 0.0, True, 14305.5),
        (10, DELTA, True, 4699.86),
        (100, DELTA, True, 17380.0),
    ],
)
def test_sparse_vector_matches_known_answers(max_above, delta, answers, expected):
    guarantee = promise(delta=delta)
    published = published_accuracy(guarantee, max_above, 1000, 0.05, answers=answers)
    assert published == close(expected)
    textbook = sparse_vector_noise(guarantee, max_above, answers=answers, calibration="textbook")
    tight = sparse_vector_noise(guarantee, max_above, answers=answers)
    theorem = sparse_vector_theorem(textbook, 1000, 0.05)
    # Answers with delta need more than the published value.
    factor = math.sqrt(8) if answers and delta else 1.0
    assert theorem.bound(10**6).max_error <= factor * expected * (1 + 1e-5) + 2
    assert sparse_vector_theorem(tight, 1000, 0.05).error(1) <= theorem.error(1)


def test_small_db_bound_by_the_published_proof_matches_known_answers():
    for size, share, records in ((1024, 0.1, 768845), (16, 0.1, 123116), (8, 0.5, 577.448)):
        theorem = sharper_small_db_theorem(size, size, 1.0, 0.05)
        log_terms = 16 * math.log(size) ** 2 + 4 * share**2 * math.log(20)
        assert log_terms / share**3 == close(records)
        needed = theorem.records_needed(share)
        assert needed == math.ceil(log_terms / share**3)
        assert theorem.bound(needed - 1).max_error_fraction > share
        assert needed < small_db_theorem(size, size, 1.0, 0.05, "textbook").records_needed(share)
        # k records per unit cost as much as dividing epsilon by k.
        units = sharper_small_db_theorem(size, size, 2.0, 0.05, 2)
        assert units.bound(needed).max_error == close(theorem.bound(needed).max_error)
    error = published_small_db_error(1024, 1024, 1.0, 10**6, 0.1, 0.05)
    assert error == close(0.109615 * 10**6)
    for theorem in (sharper_small_db_theorem, small_db_theorem):
        assert theorem(1024, 1024, 1.0, 0.05).bound(1).vacuous


def test_sparse_project_matches_known_answers():
    small = published_projection(10, 4, 16, 0.05)
    assert small.tau == close(7.8125e-4) and small.independence == 72
    assert small.printed_width == close(3.16966e8) and small.width == close(7.92415e7)
    large = published_projection(1000, 100, 1000, 0.05)
    assert large.printed_width == close(9.25044e15) and large.width == close(4.62522e14)
    assert large.independence == 134
    assert published_projection(10**6, 100, 1000, 0.05).printed_width == close(9.24859e27)


def test_sparse_project_formulas_match_known_answers():
    assert published_largest_entry(4096, 100, 1000, 0.05) == close(3.24939)
    # 16 sqrt(3) / epsilon sqrt(m ln(1 / delta) ln(8k / beta) lg(8kT / beta)) before r is rounded.
    logs = math.log(8 * 1000 / 0.05) * math.log2(8 * 1000 * 2**16 / 0.05)
    printed = 16 * math.sqrt(3) * math.sqrt(100 * math.log(1e9) * logs)
    found = published_projection_noise(2**16, 100, 1000, 1.0, 1e-9, 0.05)
    assert 0.99 * printed < found < 1.01 * printed
    assert published_weighted_noise(4, 2.0, 3.0, 0.05) == close(2 * 18 * math.log(40))


def test_published_accuracy_of_numeric_answers_fails_if_delta_is_positive():
    """The noise of ten answers alone exceeds it in more than one run of twenty."""
    guarantee = promise(delta=DELTA)
    noise = sparse_vector_noise(guarantee, 10, answers=True, calibration="textbook")
    assert noise.answer_scale is not None
    published = published_accuracy(guarantee, 10, 200, 0.05, answers=True)
    assert 1 - (1 - math.exp(-published / noise.answer_scale)) ** 10 > 0.13
    corrected = sparse_vector_theorem(noise, 200, 0.05).bound(10**6).max_error
    assert 1 - (1 - math.exp(-corrected / noise.answer_scale)) ** 10 < 0.025


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: gaussian_error(1, 1.0, 1.0, 0.0, 0.05), "delta"),
        (lambda: gaussian_deviation(math.inf, DELTA), "epsilon"),
        (lambda: selection_shortfall(0, 1, 1.0, 0.05), "num_candidates"),
        (lambda: published_projection(0, 1, 1, 0.05), "num_records"),
        (lambda: published_largest_entry(0, 1, 1, 0.05), "projection_width"),
        (lambda: published_weighted_noise(1, 0.0, 1.0, 0.05), "largest_weight"),
        (lambda: published_projection_noise(64, 1, 1, 1.0, 0.0, 0.05), "delta"),
        (lambda: published_projection_noise(64, 1, 1, 0.0, 1e-9, 0.05), "epsilon"),
        (lambda: sharper_small_db_theorem(8, 2, 1.0, 0.05), "num_queries"),
        (lambda: published_small_db_error(8, 8, 1.0, 10, math.nan, 0.05), "max_error_fraction"),
    ],
)
def test_rejects_arguments_out_of_range(call, name):
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.name == name

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from beam_dp.models import rounding
from beam_dp.models.residual_basis import ResidualBasis
from beam_dp.models.rounding import round_systematically, round_to_records

SHAPE = (3, 4, 2, 5)
SUPPORTS = [s for size in range(3) for s in combinations(range(4), size)]


def weights_of(kind: str, num_cells: int) -> np.ndarray:
    rng = np.random.default_rng(7)
    made = {
        "uniform": np.ones(num_cells),
        "random": rng.gamma(1.0, size=num_cells),
        "skewed": rng.gamma(0.02, size=num_cells) + 1e-300,
        "one cell": np.eye(num_cells)[num_cells // 2],
        "last cell": np.eye(num_cells)[-1],
        "tiny": rng.gamma(1.0, size=num_cells) * 1e-200,
    }[kind]
    return made / made.sum()


def error_of(basis: ResidualBasis, weights: np.ndarray, rounded: np.ndarray) -> float:
    return float((basis.analyse(rounded - weights * rounded.sum()) ** 2).sum())


KINDS = ("uniform", "random", "skewed", "one cell", "last cell", "tiny")


@pytest.mark.parametrize("kind", KINDS)
def test_systematic_rounding_stays_within_one_on_every_prefix(kind):
    for num_records in (0, 1, 2, 7, 1000, 10**9, 2**40):
        for num_cells in (1, 2, 120):
            weights = weights_of(kind, num_cells)
            counts = round_systematically(weights, num_records)
            assert counts.dtype == np.int64 and counts.sum() == num_records and (counts >= 0).all()
            error = np.cumsum(counts) - np.cumsum(weights) / weights.sum() * num_records
            assert np.abs(error).max() <= 0.5 + 1e-3
            assert not counts[weights < 1e-9 / max(num_records, 1)].any()


@pytest.mark.parametrize("kind", KINDS)
def test_rounding_keeps_the_sum_and_is_no_worse_than_systematic_sampling(kind):
    basis = ResidualBasis(SHAPE, SUPPORTS)
    weights, importance = weights_of(kind, basis.num_cells), np.ones(basis.num_coefficients)
    for num_records in (0, 1, 2, 50, 5000, 10**9, 2**40):
        counts = round_to_records(basis, weights, num_records, importance, 0.0)
        assert counts.dtype == np.int64 and counts.sum() == num_records and (counts >= 0).all()
        systematic = round_systematically(weights, num_records)
        error, other = (error_of(basis, weights, each) for each in (counts, systematic))
        assert error <= other * (1 + 1e-9) + 1e-9
        again = round_to_records(basis, weights, num_records, importance, 0.0)
        assert (again == counts).all()


def test_rounding_error_is_far_below_systematic_rounding_and_random_draws():
    basis = ResidualBasis(SHAPE, SUPPORTS)
    weights, importance = weights_of("random", basis.num_cells), np.ones(basis.num_coefficients)
    counts = round_to_records(basis, weights, 2000, importance, 0.0)
    drawn = np.random.default_rng(8).multinomial(2000, weights)

    error = error_of(basis, weights, counts)
    assert error < 0.5 * error_of(basis, weights, round_systematically(weights, 2000))
    assert error < 0.01 * error_of(basis, weights, drawn)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (2,) * 17, (70, 2, 3, 90)])
def test_moving_single_records_lowers_the_error_after_corrections(shape, monkeypatch):
    basis = ResidualBasis(shape, SUPPORTS)
    weights = np.random.default_rng(7).gamma(1.0, size=basis.num_cells)
    importance = np.ones(basis.num_coefficients)
    weights /= weights.sum()

    def error() -> float:
        return error_of(basis, weights, round_to_records(basis, weights, 2000, importance, 0.0))

    moved = error()
    monkeypatch.setattr(rounding, "_MAX_ROUNDS", 0)
    assert moved < 0.8 * error()


@pytest.mark.parametrize(("importance", "max_error"), [(1.0, 1e9), (0.0, 0.0)])
def test_systematic_rounding_is_kept_if_its_error_is_accepted(importance, max_error):
    basis = ResidualBasis(SHAPE, SUPPORTS)
    weights = weights_of("random", basis.num_cells)
    all_equal = np.full(basis.num_coefficients, importance)
    counts = round_to_records(basis, weights, 2000, all_equal, max_error)
    assert (counts == round_systematically(weights, 2000)).all()


@pytest.mark.parametrize("shape", [(1,), (1, 1), (2,)])
def test_rounding_in_tiny_domains_keeps_the_number_of_records(shape):
    basis = ResidualBasis(shape, [()])
    weights = np.full(basis.num_cells, 1 / basis.num_cells)
    for num_records in (0, 1, 5):
        counts = round_to_records(basis, weights, num_records, np.ones(1), 0.0)
        assert counts.sum() == num_records

"""Penalties learned for groups of coefficients."""

from __future__ import annotations

import numpy as np

from beam_dp.models.basis import MarginalCoefficients, contrast_levels
from beam_dp.models.learned_penalties import PenaltyGroups
from beam_dp.models.maximum_entropy import NoisyCoefficients, fit_maximum_entropy
from beam_dp.models.residual_basis import ResidualBasis

SUPPORTS = [(), (0,), (1,), (2,), (0, 1), (1, 2)]


def groups(shape=(8, 4, 3), supports=SUPPORTS):
    basis = MarginalCoefficients(shape, supports)
    return basis, PenaltyGroups(basis, np.arange(1, basis.num_coefficients))


def test_attributes_have_no_groups_and_keep_their_penalties():
    basis, found = groups(supports=SUPPORTS[:4])
    assert not found.exist
    assert (found.factors(np.ones(basis.num_coefficients - 1)) == 1).all()


def test_large_blocks_that_moved_are_held_back_less():
    basis, found = groups()
    moved = np.full(basis.num_coefficients, 0.1)
    of_pair = moved[basis.slices[(0, 1)]].reshape(7, 3)
    of_pair[contrast_levels(8) == 0] = 1.0
    factors = found.factors(moved[1:])[basis.slices[(0, 1)].start - 1 :]
    factors = factors[: of_pair.size].reshape(7, 3)
    assert (factors[0] < 0.6).all()
    assert (factors[1:] > 1.2).all()
    # The codes of one level, and of pairs of levels, share a penalty.
    assert len(np.unique(factors.round(12))) <= 6


def test_fit_to_a_smooth_table_has_less_error_than_with_equal_penalties(monkeypatch):
    """Two ordered attributes whose shares move with each other over large blocks of codes."""
    ages, hours = np.arange(32), np.arange(16)
    table = np.exp(-(((ages[:, None] / 32 - hours / 16) / 0.4) ** 2))
    counts = 20_000 * table / table.sum()
    basis = ResidualBasis(counts.shape, [(), (0,), (1,), (0, 1)])
    exact = basis.analyse(counts.ravel())
    generator = np.random.default_rng(2)
    errors = {"equal": [], "learned": []}
    for _ in range(5):
        noisy = exact + generator.normal(scale=30, size=len(exact))
        observed = NoisyCoefficients(noisy, np.full(len(exact), 900.0))
        signs = generator.choice([-1.0, 1.0], len(exact))
        for kind, found in errors.items():
            with monkeypatch.context() as patch:
                if kind == "equal":
                    patch.setattr(PenaltyGroups, "exist", False)
                fit = fit_maximum_entropy(basis, observed, 20_000, np.ones(len(exact)), signs)
            fitted = basis.weights(fit.log_weights) * 20_000
            found.append(np.abs(fitted - counts.ravel()).sum())
    assert np.mean(errors["learned"]) < 0.8 * np.mean(errors["equal"])

"""The bound of how far apart records can be, against all pairs of them."""

import itertools
import math

import numpy as np
import pytest
from tiny import REPLACE, domain_of, promise, workload_of

import beam_dp as dp
from beam_dp.mechanisms.marginals import measurements
from beam_dp.mechanisms.marginals.measurements import residual_sensitivity
from beam_dp.privacy.unit_costs import least_overlap
from beam_dp.releases.synthetic_database.measured_tables import largest_change

Supports = list[tuple[int, ...]]


def overlap(
    shape: tuple[int, ...], supports: Supports, precisions: np.ndarray, agree: tuple[int, ...]
) -> float:
    return float(
        sum(
            precision * math.prod(agree[axis] - 1 / shape[axis] for axis in support)
            for support, precision in zip(supports, precisions, strict=True)
        )
    )


def drawn(seed: int) -> tuple[tuple[int, ...], Supports, np.ndarray]:
    """A shape, all supports up to an order, some of them left out, and precisions."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.choice([1, 2, 2, 3, 5, 40], size=int(rng.integers(1, 9))).tolist())
    supports = [
        support
        for order in range(int(rng.integers(0, 4)) + 1)
        for support in itertools.combinations(range(len(shape)), order)
        if rng.random() < 0.8 and all(shape[axis] > 1 for axis in support)
    ]
    return shape, supports, rng.gamma(0.5, 1.0, len(supports))


@pytest.mark.parametrize("seed", range(60))
def test_least_overlap_is_a_lower_bound_for_all_record_pairs(seed):
    shape, supports, precisions = drawn(seed)
    patterns = itertools.product(*[(0, 1) if size > 1 else (1,) for size in shape])
    least = min(overlap(shape, supports, precisions, agree) for agree in patterns)
    one = overlap(shape, supports, precisions, (1,) * len(shape))
    bound = least_overlap(shape, supports, precisions)
    assert bound <= least
    assert bound >= -one - 1e-9 * max(one, 1.0)


@pytest.mark.parametrize("seed", range(8))
def test_least_overlap_of_pairs_is_close_to_the_exact_minimum(seed):
    rng = np.random.default_rng(seed)
    shape = tuple(rng.choice([2, 2, 3, 5, 16], size=10).tolist())
    supports = [s for order in (1, 2) for s in itertools.combinations(range(10), order)]
    precisions = rng.gamma(5.0, 0.2, len(supports))
    patterns = itertools.product((0, 1), repeat=10)
    least = min(overlap(shape, supports, precisions, agree) for agree in patterns)
    one = overlap(shape, supports, precisions, (1,) * 10)
    bound = least_overlap(shape, supports, precisions)
    # As deviations of noise: the bound's over the least's.
    assert math.sqrt((2 * one - 2 * bound) / (2 * one - 2 * least)) < 1.12


def test_replace_one_needs_less_than_twice_the_noise_for_many_attributes():
    domain = domain_of(*(2, 3, 4, 8, 32) * 7)
    supports = [s for order in (1, 2) for s in itertools.combinations(range(35), order)]
    precisions = np.random.default_rng(1).gamma(5.0, 0.2, len(supports))
    one = residual_sensitivity(domain, supports, precisions, dp.Neighboring.ADD_OR_REMOVE_ONE)
    two = residual_sensitivity(domain, supports, precisions, dp.Neighboring.REPLACE_ONE)
    assert 1.22 < 2 * one / two < math.sqrt(2)


def test_release_planned_with_the_overlap_bound_passes_verification(monkeypatch):
    """Also of a card, whose precisions differ from the plan's by their rounding."""
    from beam_dp.privacy.noise.source import NoiseSource
    from beam_dp.releases.synthetic_database import measured_tables as tables

    monkeypatch.setattr(measurements, "_MAX_PATTERN_ATTRIBUTES", 2)
    monkeypatch.setattr(tables, "_MAX_PATTERNS", 2)
    domain = domain_of(2, 3, 4, 2)
    guarantee = promise(REPLACE, 1e-9)
    plan = dp.Gaussian().plan(domain, workload_of(domain, 3), guarantee, 50)
    from beam_dp.secret.summaries.histogram import Histogram

    exact = Histogram(domain, np.full(48, 1, np.int64)).marginals(plan.summary_tables)
    found = dp.verify_release(plan.release(exact, NoiseSource()))
    assert not found.faults
    assert 0.9999 < found.epsilon <= 1.0


def test_verification_and_plan_have_the_same_bound_for_many_attributes():
    from fractions import Fraction

    domain = domain_of(*(2, 3, 4) * 8)
    supports = [s for order in (1, 2) for s in itertools.combinations(range(24), order)]
    precisions = np.random.default_rng(2).gamma(5.0, 0.2, len(supports))
    planned = residual_sensitivity(domain, supports, precisions, dp.Neighboring.REPLACE_ONE) ** 2
    weighted = [(s, Fraction(p)) for s, p in zip(supports, precisions.tolist(), strict=True)]
    verified = largest_change(domain, weighted, dp.Neighboring.REPLACE_ONE)
    assert verified <= planned <= verified * Fraction(1 + 1e-6)

"""Conversions and sensitivities that verification computes itself: never too small."""

import dataclasses
import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest
from intervals import dense

import beam_dp as dp
from beam_dp.mechanisms.intervals import choices, planned
from beam_dp.mechanisms.marginals.measurements import closure_of, residual_query
from beam_dp.mechanisms.sketches.mechanisms import release_probability as planned_probability
from beam_dp.privacy import accounting
from beam_dp.privacy.loss import Loss, composed
from beam_dp.privacy.rounding import rounded_up
from beam_dp.privacy.steps import above, gaussian_delta, gaussian_epsilon, number, zcdp_epsilon
from beam_dp.releases.intervals.verify import column_norms
from beam_dp.releases.sketches.verify import release_probability
from beam_dp.releases.synthetic_database.measured_tables import MeasuredTable, largest_change
from beam_dp.releases.synthetic_database.strategies import Drawn, Rounds
from beam_dp.releases.verdict import Figures


@pytest.mark.parametrize("replaced", [False, True])
def test_round_of_four_units_costs_as_much_as_four_rounds(replaced):
    """Four rounds of one unit and one round of four; one more round costs too much."""
    guarantee = dp.Guarantee(1.0, 1e-9, RELATIONS[replaced], "record", 1)
    moved, unit = 1 + replaced, accounting.zcdp_rho(1.0, 1e-9) / 8 * (1 - 1e-12)
    parameters = Rounds(
        num_units=8,
        num_rounds="annealed",
        distribution="discrete_gaussian",
        selection_scale=2 * moved / math.sqrt(8 * 0.1 * unit),
        measurement_scale=math.sqrt(moved / (2 * 0.9 * unit)),
        total_scale=0.0,
        selection="exponential_mechanism",
        grid=1,
    )
    less = parameters.measurement_scale**2 - 4
    scales = [math.sqrt(less / units + 4) * (1 + 1e-12) for units in (1, 1, 1, 1, 4)]
    tables = [MeasuredTable(("a",), "table", "discrete_gaussian", scale) for scale in scales]
    figures, domain, noise = Figures(), dp.read_domain('{"a": 2}'), [t.to_json() for t in tables]
    drawn = Drawn(domain, guarantee, noise, fit={})
    found = composed(step.loss for step in parameters.steps(drawn, figures))
    assert not figures.faults and found.rho is not None
    assert float(found.rho) == pytest.approx(8 * unit, rel=1e-9)
    parameters.steps(dataclasses.replace(drawn, noise=[*noise, noise[0]]), figures)
    assert len(figures.faults) == 1


RELATIONS = "add_or_remove_one", "replace_one"


def promises(number: int) -> list[tuple[float, float]]:
    draws = random.Random(7)
    powers = [(draws.uniform(-6, 4), draws.uniform(-290, -2)) for _ in range(number)]
    return [(10.0**epsilon, 10.0**delta) for epsilon, delta in powers]


def test_verified_epsilon_of_calibrated_losses_is_just_below_the_promise():
    for epsilon, delta in promises(12):
        mu = Fraction(accounting.discrete_gaussian_mu(epsilon, delta))
        rho = Fraction(accounting.zcdp_rho(epsilon, delta))
        for found, larger in ((gaussian_epsilon, mu**2), (zcdp_epsilon, rho)):
            assert epsilon * (1 - 1e-5) < found(larger, Fraction(delta)) <= epsilon
            # A value larger by 1e-5 is not within it.
            more = larger * Fraction(100_002, 100_000)
            assert found(more, Fraction(delta)) > epsilon


def test_delta_of_gaussian_noise_matches_an_integral():
    """With (P - e^epsilon Q)+ summed on a fine grid, from -40 to 40 standard deviations."""
    points = np.linspace(-40, 40, 2_000_001)
    for mu, epsilon in ((0.2, 1.0), (1.0, 0.1), (3.0, 4.0), (0.5, 3.0)):
        first = np.exp(-((points - mu) ** 2) / 2)
        second = np.exp(epsilon - points**2 / 2)
        expected = np.maximum(first - second, 0).sum() * 4e-5 / math.sqrt(2 * math.pi)
        assert float(gaussian_delta(mu, epsilon)) == pytest.approx(expected, rel=1e-6)


def test_epsilon_from_zcdp_equals_the_minimum_over_alpha():
    for rho, delta in ((0.01, 1e-9), (1.0, 1e-6), (30.0, 1e-12)):
        alphas = 1 + np.geomspace(1e-4, 1e6, 200_001)
        tail = (-np.log(delta * alphas)) / (alphas - 1) + np.log1p(-1 / alphas)
        best = float((alphas * rho + tail).min())
        found = zcdp_epsilon(Fraction(rho), Fraction(delta))
        assert best * (1 - 1e-8) <= found <= best * (1 + 1e-7)


def test_shown_losses_are_rounded_up():
    for value in (Fraction(1, 3), Fraction(2**200 + 1), Fraction(1, 3**300)):
        assert value <= rounded_up(value) <= value * (1 + Fraction(1, 2**150))
    assert (above(1.0000001), number(1.0000001), above(0.5), above(0)) == (
        "1.00001",
        "1",
        "0.5",
        "0",
    )


@pytest.mark.parametrize("relation", list(dp.Neighboring))
@pytest.mark.parametrize("sizes", ['{"a": 2, "b": 3}', '{"a": 3, "b": 1, "c": 2}', '{"a": 4}'])
def test_largest_change_of_residuals_is_attained(relation, sizes):
    domain = dp.read_domain(sizes)
    axes = tuple(range(domain.num_attributes))
    weighted = [(each, Fraction(3 + 2 * i, 7)) for i, each in enumerate(closure_of([axes]))]
    cells = np.eye(domain.num_cells, dtype=np.int64).reshape(-1, *domain.shape)

    def change(one: np.ndarray, other: np.ndarray) -> float:
        total = 0.0
        for support, weight in weighted:
            rest = tuple(axis for axis in axes if axis not in support)
            size = math.prod(domain.shape[axis] for axis in support)
            moved = [residual_query(each.sum(axis=rest), size) / size for each in (one, other)]
            total += float(weight) * float(((moved[0] - moved[1]) ** 2).sum())
        return total

    nothing = np.zeros(domain.shape, np.int64)
    pairs = [(cell, nothing) for cell in cells]
    if relation is dp.Neighboring.REPLACE_ONE:
        pairs += list(itertools.combinations(cells, 2))
    expected = max(change(*pair) for pair in pairs)
    found = float(largest_change(domain, weighted, relation))
    assert expected * (1 - 1e-12) <= found <= expected * (1 + 1e-11)


@pytest.mark.parametrize(("records", "weight"), [(1, 1), (5, 1), (40, 3)])
def test_release_probability_of_a_key_matches_the_plan(records, weight):
    scale, threshold = 2.0 * records * weight, 30 * records * weight
    planned = planned_probability(scale, threshold, records, weight)
    found = float(release_probability(scale, threshold, records, weight))
    assert found <= planned == pytest.approx(found, rel=2e-9)
    assert release_probability(scale, records * weight, records, weight) == 1


def test_loss_covers_only_losses_that_are_no_larger():
    half = Loss.pure(Fraction(1, 2))
    assert Loss.pure(0.5).covers(half) and not Loss.pure(0.499).covers(half)
    assert Loss.zcdp(0.125).covers(half) and not Loss.zcdp(0.124).covers(half)
    gaussian = Loss(rho=Fraction(1, 8), mu_squared=Fraction(1, 4))
    assert half.rho == gaussian.rho and gaussian.repeated(4).mu == 1.0
    assert Loss.gaussian(0.5).covers(gaussian) and not Loss.gaussian(0.49).covers(gaussian)
    assert not Loss.pure(0.5).covers(gaussian)  # no pure epsilon is proved
    with_slack = composed([half, Loss.nothing()])
    assert Loss.pure(0.5).covers(with_slack)
    slack = Loss(rho=Fraction(1, 8), epsilon=Fraction(1, 2), slack=Fraction(1, 10**9))
    assert Loss.approximate(0.5, 1e-8).covers(slack) and not Loss.pure(0.5).covers(slack)


@pytest.mark.parametrize("cells", [2, 7, 33])
def test_norms_of_an_interval_matrix_follow_from_its_columns(cells):
    promise = dp.Guarantee(1.0, 1e-9, "add_or_remove_one", "record", 1)
    for choice in choices(promise):
        strategy = planned(cells, promise, choice).strategy
        matrix = dense(strategy)
        norms = int(np.abs(matrix).sum(axis=0).max()), int((matrix**2).sum(axis=0).max())
        assert column_norms(strategy) == norms and matrix.min() >= 0


def test_repeated_loss_is_that_of_as_many_compositions():
    """Also its slack; with powers of two, which compositions do not round."""
    one = Loss.approximate(0.5, 2.0**-30)
    assert one.repeated(4) == composed([one] * 4)

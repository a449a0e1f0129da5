"""Every scale of noise is at least what its guarantee needs: recomputed in rational numbers.

Random parameters have a fixed seed: these tests do not depend on luck.
"""

import itertools
import random
from fractions import Fraction

import pytest
from tiny import ADD, REPLACE, domain_of, workload_of

import beam_dp as dp
from beam_dp.interval_strategies.hierarchy import tree
from beam_dp.mechanisms.choosing import selection_scale
from beam_dp.mechanisms.intervals.plan import calibrated
from beam_dp.mechanisms.marginals.measurements import (
    residual_norm,
    residual_strategy,
    table_strategy,
)
from beam_dp.mechanisms.marginals.rounds import round_budget
from beam_dp.mechanisms.marginals.selection import selection_budget
from beam_dp.privacy.accounting import discrete_gaussian_mu, zcdp_rho

PROMISES = [
    dp.Guarantee(
        10 ** rng.uniform(-5, 2),
        10 ** rng.uniform(-12, -5),
        (ADD, REPLACE)[number % 2],
        "person",
        int(10 ** rng.uniform(0, 4)),
    )
    for rng in [random.Random(1)]
    for number in range(40)
]


# Less than pi / 8, by less than 1e-16.
PI_EIGHTH = Fraction(39269908169872415, 10**17)


def moved(guarantee: dp.Guarantee) -> int:
    """By how many records a replacement, or an addition, changes the data of a unit of one."""
    return 1 if guarantee.neighboring == ADD else 2


def squared_mu(guarantee: dp.Guarantee) -> Fraction:
    return Fraction(discrete_gaussian_mu(guarantee.epsilon, guarantee.delta)) ** 2


def spent_of(squared_change: Fraction | int, scale: float) -> Fraction:
    """What of mu^2 a discrete Gaussian spends on a change, both in units of its grid."""
    return squared_change / (Fraction(scale) ** 2 - 4)


def test_inexact_sensitivity_is_rounded_up():
    # 9001 tables of so many records a unit: more than 2^53, and odd.
    for most in (2**40 - 1, 2**40 - 87, 2**40 - 165, 2**40 - 177):
        guarantee = dp.Guarantee(0.7, 0.0, ADD, "person", most)
        (first, *_) = table_strategy([("a",)] * 9001, guarantee)
        assert 9001 * most / Fraction(first.scale) <= Fraction(0.7)


def test_loss_of_tables_with_any_shares_is_at_most_the_promise():
    rng = random.Random(2)
    for guarantee in PROMISES:
        shares = [10 ** rng.uniform(-9, 9) for _ in range(rng.randint(1, 40))]
        found = table_strategy([("a",)] * len(shares), guarantee, shares)
        most = moved(guarantee) * guarantee.max_records_per_unit
        spent = sum(most / Fraction(each.scale) for each in found)
        assert Fraction(guarantee.epsilon) * (1 - Fraction(1, 10**14)) < spent
        assert spent <= Fraction(guarantee.epsilon)


def test_loss_of_intervals_is_at_most_the_promise():
    for guarantee, leaves in itertools.product(PROMISES, (1, 7, 100)):
        matrix = tree((3, leaves)) if leaves > 3 else tree((leaves,))
        most = moved(guarantee) * guarantee.max_records_per_unit
        found = calibrated(matrix, guarantee, ("tree", "discrete_laplace"))
        spent = most * matrix.l1_sensitivity / Fraction(found.scale)
        assert spent <= Fraction(found.loss.epsilon) <= Fraction(guarantee.epsilon)
        found = calibrated(matrix, guarantee, ("tree", "discrete_gaussian"))
        squared = guarantee.max_records_per_unit**2 * moved(guarantee)
        spent = spent_of(squared * matrix.l2_sensitivity_squared * found.grid**2, found.scale)
        assert spent <= Fraction(found.loss.mu) ** 2 <= squared_mu(guarantee)


def test_loss_of_workload_answers_is_at_most_the_promise():
    workload = dp.parse_linear_workload("intervals:a0", domain_of(9))
    for guarantee in PROMISES:
        for kind in ("discrete_laplace", "discrete_gaussian"):
            plan = dp.plan_workload_answers(workload, guarantee, 10, kind)  # type: ignore[arg-type]
            if kind == "discrete_laplace":
                l1 = Fraction(plan.sensitivity.l1 * plan.grid, 2**16)
                assert l1 / Fraction(plan.scale) <= Fraction(guarantee.epsilon)
            else:
                spent = spent_of(plan.sensitivity.l2_squared, plan.scale)
                assert spent <= Fraction(plan.loss.mu) ** 2 <= squared_mu(guarantee)


def test_loss_of_sketches_is_at_most_the_promise():
    for guarantee, weight in itertools.product(PROMISES, (1, 12345)):
        unit = moved(guarantee) * guarantee.max_records_per_unit * weight
        asked = {"max_sparsity": 1, "max_weight": weight}
        try:
            found = dp.CountSketch(63, 7).plan(guarantee, **asked).sketch
            assert 7 * unit / Fraction(found.scale) <= Fraction(guarantee.epsilon)
            hybrid = dp.HybridSketch(63, 7).plan(guarantee, **asked)
        except dp.InputError:  # too much noise
            continue
        scales = 7 * unit / Fraction(hybrid.sketch.scale), unit / Fraction(hybrid.histogram.scale)
        assert sum(scales) <= Fraction(guarantee.epsilon)
        mechanisms = (
            (dp.SparseProject(64), 8 * unit**2),
            (dp.CountSketch(63, 7, noise="gaussian"), 7 * unit**2),
        )
        for mechanism, squared in mechanisms:
            found = mechanism.plan(guarantee, **asked).sketch
            spent = spent_of(squared * found.grid**2, found.scale * found.grid)
            assert spent <= squared_mu(guarantee)


@pytest.mark.parametrize("units", [1, 3, 16, 1000])
@pytest.mark.parametrize("is_public", [True, False])
def test_loss_of_rounds_is_at_most_the_promise(units, is_public):
    rng = random.Random(2)
    for guarantee in PROMISES:
        k, whole = guarantee.max_records_per_unit, moved(guarantee)
        pure = dp.Guarantee(guarantee.epsilon, 0.0, guarantee.neighboring, "person", k)
        for each in (pure, guarantee):
            budget = round_budget(each, units, is_public)
            total = Fraction(0)
            if not is_public:
                total = k * whole / Fraction(budget.total_scale)
                if each is not pure:
                    total = spent_of((k * whole * budget.grid) ** 2, budget.total_scale)
            left = units
            while left:
                part = rng.randint(1, left)
                left -= part
                round_ = budget.of_round(part)
                selected = 2 * k * whole / Fraction(round_.selection_scale)
                if each is pure:
                    total += selected + k * whole / Fraction(round_.measurement_scale)
                else:
                    total += selected**2 * PI_EIGHTH
                    squared = k**2 * whole * budget.grid**2
                    total += spent_of(squared, round_.measurement_scale)
            limit = Fraction(each.epsilon) if each is pure else squared_mu(each)
            assert Fraction(1 - 1e-5) * limit <= total <= limit


@pytest.mark.parametrize("rounds", [1, 7, 1000])
def test_loss_of_textbook_rounds_is_at_most_the_promise(rounds):
    domain = domain_of(3, 3)
    for guarantee in PROMISES:
        k = guarantee.max_records_per_unit
        pure = dp.Guarantee(guarantee.epsilon, 0.0, guarantee.neighboring, "person", k)
        for each in (pure, guarantee):
            mechanism = dp.MWEM(num_rounds=rounds, calibration="textbook")
            plan = mechanism.plan(domain, workload_of(domain, 1), each, 1000)
            selected = 2 * k / Fraction(plan.selection_scale)
            measured = k / Fraction(plan.measurement_scale)
            if each is pure:
                assert rounds * (selected + measured) <= Fraction(each.epsilon)
            else:
                rho = Fraction(zcdp_rho(each.epsilon, each.delta))
                assert rounds * (selected**2 / 8 + measured**2 / 2) <= rho


def test_loss_of_tables_and_residuals_is_at_most_the_promise():
    domain = domain_of(2, 3, 5, 4)
    workload = workload_of(domain, 2)
    for guarantee in PROMISES:
        k = guarantee.max_records_per_unit
        plan = dp.Gaussian(calibration="textbook").plan(domain, workload, guarantee, 1000)
        total = sum(k**2 * moved(guarantee) / Fraction(m.scale) ** 2 / 2 for m in plan.measurements)
        assert total <= Fraction(zcdp_rho(guarantee.epsilon, guarantee.delta))
        if moved(guarantee) == 1:
            spent = Fraction(0)
            for each in residual_strategy(workload, guarantee, False):
                shape = [domain[name].size for name in each.names]
                norm = Fraction(1)
                for size in shape:
                    norm *= 1 - Fraction(1, size)
                assert float(norm) == pytest.approx(residual_norm(shape))
                spent += spent_of(k**2 * norm * each.grid**2, each.scale)
            assert spent <= squared_mu(guarantee)


def test_loss_of_a_selection_is_at_most_the_promise():
    for guarantee, pairs in itertools.product(PROMISES, (1, 6, 500)):
        budget = selection_budget(guarantee, pairs)
        change = (moved(guarantee) * guarantee.max_records_per_unit * budget.score_grid) ** 2
        spent = spent_of(change * pairs, budget.score_scale)
        spent += Fraction(budget.attributes) ** 2 + Fraction(budget.pairs) ** 2
        assert spent <= squared_mu(guarantee)


def test_loss_of_an_online_run_is_at_most_the_promise():
    domain = domain_of(32)
    for guarantee in PROMISES[::2]:
        k = guarantee.max_records_per_unit
        for each in (guarantee, dp.Guarantee(guarantee.epsilon, 0.0, ADD, "person", k)):
            try:
                plan = dp.plan_private_mw(domain, each, "noisy", num_questions=10, max_updates=5)
            except dp.InputError:  # too much noise
                continue
            noise, of_count = plan.settle(1000).noise, k / Fraction(plan.count_scale)
            runs = 5 if noise.redraws_threshold else 1
            compared = runs * k / Fraction(noise.threshold_scale)
            compared += 2 * 5 * k / Fraction(noise.question_scale)
            answered = 5 * k / Fraction(noise.answer_scale)
            if each.delta == 0:
                assert compared + answered + of_count <= Fraction(each.epsilon)
            else:
                rho = 5 * (compared / 5) ** 2 / 2 + 5 * (answered / 5) ** 2 / 2 + of_count**2 / 2
                assert noise.method == "zcdp"
                assert rho <= Fraction(plan.loss.rho)
                assert Fraction(plan.loss.rho) <= Fraction(zcdp_rho(each.epsilon, each.delta))


def test_choice_scale_is_at_least_the_required_scale():
    for guarantee in PROMISES:
        for sensitivity in (1, 2**40 - 1, 2**60 + 1):
            try:
                scale = selection_scale(sensitivity, guarantee.epsilon)
            except dp.InputError:  # too much noise
                continue
            spent = 2 * sensitivity / Fraction(scale)
            assert Fraction(1 - 1e-15) * Fraction(guarantee.epsilon) < spent
            assert spent <= Fraction(guarantee.epsilon)

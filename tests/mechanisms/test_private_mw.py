"""Online multiplicative weights: how wrong its answers are, and how a run behaves.

Seeded noise never fails by chance on unchanged code.
"""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import pytest
from noise_sources import Seeded
from private_mw_laws import cells, hard_queries, run_of, small_run
from tiny import ADD, REPLACE, domain_of, promise

from beam_dp.mechanisms.online.plan import GRID, published_error
from beam_dp.mechanisms.online.private_mw import PrivateMW
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.sparse_vector.noise import published_accuracy
from beam_dp.models.weights import DenseWeights
from beam_dp.noise.source import NoiseSource
from beam_dp.privacy.accounting import zcdp_rho
from beam_dp.queries.linear import Product
from beam_dp.summaries.histogram import Histogram

# Accuracy.


def test_starting_from_a_release_saves_updates():
    domain = domain_of(64)
    counts = np.zeros(64, np.int64)
    counts[:3] = 500_000
    used = []
    for start in (None, counts + 1):
        plan = plan_private_mw(
            domain,
            promise(REPLACE, 0.0, 50.0),
            1_500_000,
            num_questions=200,
            starts_from_release=start is not None,
        )
        run = run_of(plan, counts, Seeded(1), start=start)
        for query in hard_queries(run, counts, 100):
            run.answer(query)
        used.append(run.settings.noise.max_above - run.updates_left)
    assert used[1] < 0.75 * used[0], used


# Behaviour.


def test_fixed_updates_give_a_bound_independent_of_the_number_of_records():
    # With the updates decided, only noise decides the bound, and noise does not depend on n.
    guarantee = promise(REPLACE, 1e-9, 1.0)
    plans = [
        plan_private_mw(domain_of(2**16), guarantee, total, num_questions=10**5, max_updates=1000)
        for total in (10**6, 10**9)
    ]
    small, large = (plan.settle(plan.num_records) for plan in plans)
    assert small.hypothesis_bound == large.hypothesis_bound < 10**5
    assert small.max_error == pytest.approx(small.gap / 10**6)


def test_start_mixes_in_a_thousandth_of_the_uniform_distribution():
    domain = domain_of(1000)
    plan = plan_private_mw(
        domain, promise(REPLACE), 10**6, num_questions=4, starts_from_release=True
    )
    counts = np.zeros(1000, np.int64)
    counts[0] = 10**6
    run = PrivateMW(plan, Histogram(domain, counts), NoiseSource(), counts)
    guess = 10**6 * run.weights[0]
    assert 10**6 * 0.999 <= guess < 10**6


class Counted(Product):
    """A query that counts how often it reads a table."""

    READS: ClassVar[list[str]] = []

    def count(self, counts):
        self.READS.append("counts")
        return super().count(counts)

    def mean(self, weights):
        self.READS.append("weights")
        return super().mean(weights)

    def add_to(self, table, step):
        self.READS.append("update")
        super().add_to(table, step)


def test_query_answered_by_the_hypothesis_reads_each_table_once():
    run = small_run()
    Counted.READS.clear()
    answer = run.answer(Counted(run.plan.domain.shape, (), ()))
    assert answer.route == "hypothesis"
    assert sorted(Counted.READS) == ["counts", "weights"]


def test_no_bound_is_stated_after_the_last_question():
    run = small_run(max_updates=4)
    domain = run.plan.domain
    bounds = [run.answer(cells(domain, code)).bound for code in range(6)]
    assert None not in bounds[:4] and bounds[4:] == [None, None]
    assert run.questions_left == 0


def test_single_cell_and_empty_data_are_answered():
    plan = plan_private_mw(domain_of(1), promise(ADD), "noisy", num_questions=3)
    run = run_of(plan, [0], Seeded(0))
    answer = run.answer(Product((1,), (), ()))
    assert math.isfinite(answer.value) and run.settings.noise.max_above == 1
    empty = plan_private_mw(domain_of(4), promise(ADD, 1e-9), "noisy", num_questions=3)
    run = run_of(empty, [0, 0, 0, 0], Seeded(0))
    assert run.settings.total >= 1
    assert abs(run.answer(cells(empty.domain, 0)).value) <= run.settings.hypothesis_bound


@pytest.mark.parametrize("calibration", ["tight", "textbook"])
def test_steps_assume_the_largest_possible_number_of_records(calibration):
    """An update is of an error that is a share of the true number, which N may be below."""
    plan = plan_private_mw(
        domain_of(64),
        promise(ADD),
        "noisy",
        num_questions=100,
        max_error=0.3,
        calibration=calibration,
    )
    settings = plan.settle(10_000)
    most = 10_000 + settings.total_bound
    assert settings.total_bound > 50 and settings.gap >= 0.3 * most
    least = 4 * min(1.0, settings.gap / most) if calibration == "tight" else 0.15
    assert settings.learning_rate == pytest.approx(least, rel=1e-12)
    assert settings.exhausted_bound is not None


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 8.0, 50.0, 1000.0])
def test_loss_with_a_noisy_number_of_records_fits_the_guarantee(epsilon):
    """Else a ledger would refuse a run for the whole of a declared budget."""
    guarantee = promise(ADD, 1e-9, epsilon)
    plan = plan_private_mw(domain_of(64), guarantee, "noisy", num_questions=100)
    assert plan.loss.rho <= zcdp_rho(epsilon, 1e-9)
    assert plan.count_scale >= 1 / (0.05 * epsilon)


def settled(num_cells, questions, total, delta=0.0, calibration="tight", **named):
    plan = plan_private_mw(
        domain_of(num_cells),
        promise(REPLACE, delta),
        total,
        num_questions=questions,
        calibration=calibration,
        **named,
    )
    return plan.settle(total)


@pytest.mark.parametrize(
    "num_cells, questions, alpha, total, delta, updates, threshold",
    [
        (1024, 1000, 0.1, 10**6, 0.0, 2773, 0.993818),
        (1024, 1000, 0.1, 10**6, 1e-9, 2773, 0.229287),
        (1024, 1000, 0.1, 10**8, 0.0, 2773, 0.2),
        (16, 100, 0.2, 10**5, 0.0, 278, 0.766011),
    ],
)
def test_textbook_settings_match_known_values(
    num_cells, questions, alpha, total, delta, updates, threshold
):
    settings = settled(num_cells, questions, total, delta, "textbook", max_error=alpha)
    assert settings.noise.max_above == updates
    assert settings.threshold / GRID / total == pytest.approx(threshold, rel=1e-5)
    assert settings.learning_rate == alpha / 2
    assert settings.exhausted_bound is not None


@pytest.mark.parametrize(
    "num_cells, questions, alpha, updates", [(1024, 1000, 0.1, 346), (16, 100, 0.2, 34)]
)
def test_tight_settings_match_known_values(num_cells, questions, alpha, updates):
    settings = settled(num_cells, questions, 10**7, max_error=alpha)
    assert settings.noise.max_above == updates
    assert settings.gap >= alpha * 10**7
    assert settings.learning_rate == pytest.approx(4 * settings.gap / 10**7)
    assert settings.hypothesis_bound == pytest.approx(
        settings.gap + 2 * settings.noise.margin(questions, 0.05, GRID), abs=1e-3
    )


@pytest.mark.parametrize(
    "num_cells, questions, total, delta, alpha",
    [
        (1024, 1000, 10**6, 0.0, 0.167632),
        (1024, 1000, 10**6, 1e-9, 0.106717),
        (1024, 1000, 10**8, 0.0, 0.0379192),
        (1024, 1000, 10**8, 1e-9, 0.0118001),
        (16, 100, 10**6, 0.0, 0.117769),
    ],
)
def test_published_error_solves_its_equation(num_cells, questions, total, delta, alpha):
    log_cells = math.log(num_cells)
    found = published_error(promise(REPLACE, delta), lambda _: log_cells, total, questions, 0.05)
    assert found == pytest.approx(alpha, rel=1e-5)
    # At it, the threshold is twice alpha, but for rounding up the updates.
    threshold = settled(num_cells, questions, total, delta, "textbook").threshold / GRID / total
    assert 2 * alpha * (1 - 1e-5) <= threshold <= 2 * alpha * 1.002


@pytest.mark.parametrize(
    "num_cells, questions, alpha, total, delta, threshold",
    [
        (1024, 1000, 0.1, 10**6, 0.0, 0.993664),
        (1024, 1000, 0.1, 10**6, 1e-9, 0.229268),
        (1024, 1000, 0.1, 10**8, 0.0, 0.00993664),
        (16, 100, 0.2, 10**5, 0.0, 0.763835),
        (16, 100, 0.2, 10**5, 1e-6, 0.458716),
        (1024, 1000, 0.0379192, 10**8, 0.0, 0.0758384),
        (1024, 1000, 0.0118001, 10**8, 1e-9, 0.0236002),
        (16, 100, 0.117769, 10**6, 0.0, 0.235538),
    ],
)
def test_published_threshold_matches_the_printed_formula(
    num_cells, questions, alpha, total, delta, threshold
):
    """The printed formula, in which the number of updates is no integer."""
    updates = 4 * math.log(num_cells) / alpha**2
    published = published_accuracy(
        promise(REPLACE, delta), updates, 2 * questions, 0.05, answers=True
    )
    assert 2 * published / total == pytest.approx(threshold, rel=1e-4)


def test_published_factor_is_not_used_because_it_is_misprinted():
    log_cells = math.log(1024)

    def side(factor: float, alpha: float) -> float:
        log_terms = math.log(1000) + math.log(32 * log_cells / (alpha**2 * 0.05))
        return factor * log_cells * log_terms / (alpha**2 * 10**6)

    assert side(32, 0.161393) == pytest.approx(0.161393, rel=1e-4)
    found = published_error(promise(REPLACE), lambda _: math.log(1024), 10**6, 1000, 0.05)
    assert side(36, found) == pytest.approx(found) and found > 1.03 * 0.161393


@pytest.mark.parametrize("rate, low, high", [(0.25, 0.218912, 0.281088), (2, 0.0596015, 0.440399)])
def test_weights_after_an_update_match_known_values(rate, low, high):
    half = Product((4,), (0,), (((0, 2),),))
    lowered, raised = DenseWeights(np.zeros(4)), DenseWeights(np.zeros(4))
    lowered.update(half, -rate)
    raised.update(half, rate)
    assert lowered.weights == pytest.approx([low, low, high, high], rel=1e-5)
    assert raised.weights == pytest.approx([high, high, low, low], rel=1e-5)


def test_tight_bound_is_below_a_third_of_the_textbook_bound():
    tight, textbook = (
        settled(1024, 1000, 10**6, 1e-9, calibration).hypothesis_bound
        for calibration in ("tight", "textbook")
    )
    assert tight < textbook / 3

"""The plan of online multiplicative weights: the printed numbers of the literature."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tiny import REPLACE, domain_of, promise

from beam_dp.mechanisms.online.plan import GRID, published_error
from beam_dp.mechanisms.online.private_mw_plan import plan_private_mw
from beam_dp.mechanisms.sparse_vector.noise import published_accuracy
from beam_dp.models.weights import DenseWeights
from beam_dp.queries.linear import Product


@pytest.mark.parametrize(
    "num_cells, questions, alpha, total, delta, updates, threshold",
    [
        (1024, 1000, 0.1, 10**6, 0.0, 2773, 0.993818),
        (1024, 1000, 0.1, 10**6, 1e-9, 2773, 0.229287),
        (1024, 1000, 0.1, 10**8, 0.0, 2773, 0.2),
        (16, 100, 0.2, 10**5, 0.0, 278, 0.766011),
    ],
)
def test_textbook_known_answers(num_cells, questions, alpha, total, delta, updates, threshold):
    plan = plan_private_mw(
        domain_of(num_cells),
        promise(REPLACE, delta),
        total,
        num_questions=questions,
        max_error=alpha,
        calibration="textbook",
    )
    settings = plan.settle(total)
    assert settings.noise.max_above == updates
    assert settings.threshold / GRID / total == pytest.approx(threshold, rel=1e-5)
    assert settings.learning_rate == alpha / 2
    assert settings.exhausted_bound is not None


@pytest.mark.parametrize(
    "num_cells, questions, alpha, updates", [(1024, 1000, 0.1, 346), (16, 100, 0.2, 34)]
)
def test_tight_known_answers(num_cells, questions, alpha, updates):
    plan = plan_private_mw(
        domain_of(num_cells),
        promise(REPLACE),
        10**7,
        num_questions=questions,
        max_error=alpha,
    )
    settings = plan.settle(10**7)
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
def test_fixed_points(num_cells, questions, total, delta, alpha):
    log_cells = math.log(num_cells)
    found = published_error(promise(REPLACE, delta), lambda _: log_cells, total, questions, 0.05)
    assert found == pytest.approx(alpha, rel=1e-5)
    # At it, the threshold is twice alpha, but for rounding up the updates.
    plan = plan_private_mw(
        domain_of(num_cells),
        promise(REPLACE, delta),
        total,
        num_questions=questions,
        calibration="textbook",
    )
    threshold = plan.settle(total).threshold / GRID / total
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
def test_thresholds_before_updates_are_rounded(
    num_cells, questions, alpha, total, delta, threshold
):
    """The printed formula, in which the number of updates is no integer."""
    updates = 4 * math.log(num_cells) / alpha**2
    published = published_accuracy(
        promise(REPLACE, delta), updates, 2 * questions, 0.05, answers=True
    )
    assert 2 * published / total == pytest.approx(threshold, rel=1e-4)


def test_the_misprinted_factor_of_the_theorem_is_not_used():
    log_cells = math.log(1024)

    def side(factor: float, alpha: float) -> float:
        log_terms = math.log(1000) + math.log(32 * log_cells / (alpha**2 * 0.05))
        return factor * log_cells * log_terms / (alpha**2 * 10**6)

    assert side(32, 0.161393) == pytest.approx(0.161393, rel=1e-4)
    found = published_error(promise(REPLACE), lambda _: math.log(1024), 10**6, 1000, 0.05)
    assert side(36, found) == pytest.approx(found) and found > 1.03 * 0.161393


def test_updates_by_the_papers_step_and_by_ours():
    for num_cells, alpha, textbook, tight in ((1024, 0.1, 2772, 346), (16, 0.2, 277, 34)):
        assert math.floor(4 * math.log(num_cells) / alpha**2) == textbook
        real = {1024: 2772.589, 16: 277.259}[num_cells]
        assert 4 * math.log(num_cells) / alpha**2 == pytest.approx(real, rel=1e-5)
        plan = plan_private_mw(
            domain_of(num_cells), promise(REPLACE), 10**9, num_questions=9, max_error=alpha
        )
        assert plan.settle(10**9).noise.max_above == tight
    assert 4 * math.log(16) / 0.117769**2 == pytest.approx(799.623, rel=1e-5)


@pytest.mark.parametrize("rate, low, high", [(0.25, 0.218912, 0.281088), (2, 0.0596015, 0.440399)])
def test_known_update(rate, low, high):
    half = Product((4,), (0,), (((0, 2),),))
    lowered, raised = DenseWeights(np.zeros(4)), DenseWeights(np.zeros(4))
    lowered.update(half, -rate)
    raised.update(half, rate)
    assert lowered.weights == pytest.approx([low, low, high, high], rel=1e-5)
    assert raised.weights == pytest.approx([high, high, low, low], rel=1e-5)


def test_tight_beats_the_textbook():
    domain, guarantee = domain_of(1024), promise(REPLACE, 1e-9)
    bounds = {
        calibration: plan_private_mw(
            domain, guarantee, 10**6, num_questions=1000, calibration=calibration
        )
        .settle(10**6)
        .hypothesis_bound
        for calibration in ("tight", "textbook")
    }
    assert bounds["tight"] < bounds["textbook"] / 3

"""The plan of sparse online multiplicative weights: the printed numbers of the literature."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
from tiny import REPLACE, promise

from beam_dp.mechanisms.online.plan import GRID
from beam_dp.mechanisms.online.sparse_mw import num_slots, plan_sparse_mw

CALIBRATIONS = ["tight", "textbook"]


@pytest.mark.parametrize(
    "sparsity, alpha, textbook, tight",
    [
        (1, 0.5, (88, 87), (4, 2)),
        (4, 0.25, (2230, 557), (165, 40)),
        (10, 0.1, (47035, 4703), (4171, 416)),
        (100, 0.1, (570146, 5701), (54601, 545)),
        (1000, 0.05, (29097882, 29097), (2982001, 2981)),
    ],
)
def test_known_slots_and_updates(sparsity, alpha, textbook, tight):
    for calibration, expected in (("textbook", textbook), ("tight", tight)):
        plan = plan_sparse_mw(
            promise(REPLACE),
            10**9,
            max_sparsity=sparsity,
            num_questions=1000,
            max_error=alpha,
            calibration=calibration,
        )
        assert (plan.num_slots(alpha), plan.updates_at(alpha)) == expected
        settings = plan.settle(10**9)
        assert (plan.num_slots(alpha), settings.noise.max_above) == expected
        assert settings.exhausted_bound is not None


@pytest.mark.parametrize("calibration", CALIBRATIONS)
@pytest.mark.parametrize("sparsity, alpha", [(1, 0.9), (1, 0.5), (2, 0.37), (7, 0.2)])
def test_num_slots_is_the_least_that_suffices(calibration, sparsity, alpha):
    def is_enough(slots):
        if calibration == "textbook":
            return slots / (math.log(slots) + 1) >= 4 * sparsity / alpha**2
        return slots >= sparsity * (math.floor(math.log(slots) / (2 * alpha**2)) + 1) + 1

    found = num_slots(sparsity, alpha, calibration)
    assert found == next(slots for slots in itertools.count(2) if is_enough(slots))
    for least in (found - 1, found + 1, 5 * found):
        slots = num_slots(sparsity, alpha, calibration, max(2, least))
        assert slots >= least and is_enough(slots)


def test_the_step_and_the_thresholds_are_those_of_dense_weights():
    plan = plan_sparse_mw(
        promise(REPLACE), 10**6, max_sparsity=10, num_questions=1000, max_error=0.1
    )
    settings = plan.settle(10**6)
    assert settings.learning_rate == pytest.approx(4 * settings.gap / 10**6)
    textbook = dataclasses.replace(plan, calibration="textbook").settle(10**8)
    assert textbook.learning_rate == 0.05 and textbook.threshold == 0.2 * 10**8 * GRID
    # The textbook's theorem has 4 (ln s + 1) / alpha^2 updates for 4 ln|X| / alpha^2.
    best = dataclasses.replace(plan, calibration="textbook", max_error=None)
    total = 10**8
    alpha = best.settle(total).max_error
    divergence = math.log(plan_slots := best.num_slots(alpha)) + 1
    log_term = math.log(1000) + math.log(32 * divergence / (alpha**2 * 0.05))
    assert plan_slots > 1000
    assert alpha == pytest.approx(36 * divergence * log_term / (alpha**2 * total), rel=1e-6)

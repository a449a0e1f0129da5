"""A synthetic database of each window: which guarantee of one window keeps the whole promise."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from noise_sources import Seeded
from tiny import domain_of, workload_of
from window_plans import HORIZON_ID, RECORD, horizon_of, person

from beam_dp.mechanisms.marginals.measure_all import MWEM, Gaussian, Laplace
from beam_dp.mechanisms.small_db.small_db import SmallDB
from beam_dp.mechanisms.windows import plan as plan_module
from beam_dp.mechanisms.windows.plan import WindowDatabasesPlan, plan_window_databases
from beam_dp.privacy.accounting import discrete_gaussian_mu, zcdp_rho
from beam_dp.privacy.loss import Loss
from beam_dp.releases.kinds import read_release, write_release
from beam_dp.summaries.histogram import Histogram

WORKLOAD = workload_of(domain_of(3, 2, 2), 2)
EPSILON, DELTA = 1.0, 1e-9


def planned(mechanism: Any, windows: int, delta: float = DELTA) -> WindowDatabasesPlan:
    unit = person(windows, 168, 2)
    return plan_window_databases(mechanism, WORKLOAD, horizon_of(168), unit, EPSILON, delta)


def keeps(loss: Loss) -> bool:
    """Whether a loss implies the promise, by one of its claims, as ledgers reckon."""
    return (
        (loss.epsilon is not None and loss.epsilon <= EPSILON)
        or (loss.mu is not None and loss.mu <= discrete_gaussian_mu(EPSILON, DELTA))
        or loss.rho <= zcdp_rho(EPSILON, DELTA)
    )


@pytest.mark.parametrize("windows", [1, 2, 7, 24, 168])
@pytest.mark.parametrize(
    "mechanism", [MWEM(), Laplace(), Gaussian(), Gaussian("textbook"), MWEM(num_rounds=2)]
)
def test_total_loss_of_a_unit_is_close_to_the_promise_and_not_above(mechanism, windows):
    plan = planned(mechanism, windows)
    own = plan.window.loss
    assert plan.loss == own.repeated(windows) and keeps(plan.loss)
    # Exactly, and not after a rounding.
    mu = Fraction(discrete_gaussian_mu(EPSILON, DELTA))
    assert (
        (own.epsilon is not None and windows * Fraction(own.epsilon) <= EPSILON)
        or (own.mu is not None and windows * Fraction(own.mu) ** 2 <= mu**2)
        or windows * Fraction(own.rho) <= zcdp_rho(EPSILON, DELTA)
    )
    # Not much is left.
    assert not keeps(own.repeated(math.ceil(1.01 * windows)))


def test_guarantees_of_one_window_match_known_values():
    found = {
        (name, windows): planned(mechanism, windows).window.guarantee
        for name, mechanism in (("gaussian", Gaussian()), ("laplace", Laplace()))
        for windows in (7, 168)
    }
    assert found["gaussian", 7].epsilon == pytest.approx(0.36248, rel=1e-4)
    assert found["gaussian", 168].epsilon == pytest.approx(0.06954, rel=1e-3)
    assert found["gaussian", 7].delta == DELTA
    assert found["laplace", 7].epsilon == pytest.approx(1 / 7)
    # Of so many windows pure privacy composes better through its rho.
    rho = zcdp_rho(EPSILON, DELTA)
    assert found["laplace", 168].epsilon == pytest.approx(math.sqrt(2 * rho / 168))
    assert found["laplace", 168].epsilon > 2 / 168 and found["laplace", 168].delta == 0


def test_single_window_per_unit_gets_the_whole_budget():
    for mechanism in (MWEM(), Gaussian(), Laplace()):
        guarantee = planned(mechanism, 1).window.guarantee
        assert (guarantee.epsilon, guarantee.delta) == (EPSILON, DELTA)
    assert planned(Laplace(), 5, 0.0).window.guarantee.epsilon == pytest.approx(0.2)


def test_guarantees_state_one_window_and_all_windows():
    plan = planned(Laplace(), 7)
    assert plan.window.guarantee.privacy_unit == "person_id in any window of 1h"
    assert plan.window.guarantee.max_records_per_unit == 2
    assert plan.guarantee.privacy_unit == "person_id in any 168 consecutive windows of 1h"
    assert plan.guarantee.max_records_per_unit == 14
    assert (plan.mechanism, plan.block, plan.time_depends_on_data) == ("windows", None, False)


def test_database_of_a_window_states_its_horizon_and_number(tmp_path):
    horizon = horizon_of(24)
    plan = plan_window_databases(Laplace(), WORKLOAD, horizon, RECORD, EPSILON, DELTA)
    held = Histogram(WORKLOAD.domain, np.full(12, 50)).marginals(plan.summary_tables)
    release = plan.draw(5, held, Seeded(1), HORIZON_ID)
    assert 400 < release.num_records < 800
    write_release(release, tmp_path / "window")
    stated: Any = read_release(tmp_path / "window")
    windows = stated.plan["windows"]
    assert (windows["number"], windows["horizon_id"]) == (5, HORIZON_ID)
    assert windows["worst_case"]["epsilon"] == 1.0 and windows["horizon"]["num_windows"] == 24
    assert stated.guarantee == plan.window.guarantee


def test_slack_reduces_the_delta_of_composed_losses():
    """Slacks add up, and what they leave of delta is what mu or rho may use."""
    keeps_promise = plan_module._keeps
    promise = planned(Laplace(), 1).guarantee
    pure = Loss.approximate(EPSILON / 7, DELTA / 8).repeated(7)
    assert keeps_promise(pure, promise)
    assert not keeps_promise(Loss.approximate(EPSILON / 7, DELTA / 6).repeated(7), promise)
    rho = zcdp_rho(EPSILON, DELTA)
    assert keeps_promise(Loss(rho=rho), promise)
    assert not keeps_promise(Loss(rho=rho, slack=DELTA / 2), promise)
    assert not keeps_promise(Loss(rho=rho / 2, slack=DELTA), promise)


@pytest.mark.part
def test_every_marginals_mechanism_releases_window_databases():
    plan = planned(SmallDB(size=4), 3)
    assert plan.window.guarantee.epsilon == pytest.approx(1 / 3)

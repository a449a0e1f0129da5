"""Plans of tables and of databases of windows: how much noise, and what is promised."""

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from noise_sources import Draw, NoNoise, Seeded
from tiny import domain_of, share_spent, workload_of
from window_plans import (
    HORIZON_ID,
    RECORD,
    handed_out,
    horizon_of,
    marginals_of,
    person,
    placements,
    plan_of,
    whole,
)

import beam_dp as dp
from beam_dp.mechanisms.windows import plan as plan_module
from beam_dp.mechanisms.windows.choices import most_squares
from beam_dp.mechanisms.windows.plan import WindowDatabasesPlan, plan_window_databases
from beam_dp.privacy.accounting import discrete_gaussian_mu, zcdp_rho
from beam_dp.privacy.loss import Loss
from beam_dp.releases.windows.verify import Limits, level_steps
from beam_dp.summaries.histogram import Histogram
from beam_dp.verification.steps import Step

TABLE = domain_of(4, 3)


@pytest.mark.parametrize(("windows", "deviation"), [(1, 5.495), (7, 14.54), (168, 71.23)])
def test_gaussian_noise_of_a_window_grows_with_the_root_of_the_windows_of_a_unit(
    windows, deviation
):
    plan = plan_of(168, person(windows, 168), whole(TABLE), distribution="discrete_gaussian")
    (table,) = plan.measurements
    assert math.sqrt(table.variance) == pytest.approx(deviation, rel=1e-4)
    mu = discrete_gaussian_mu(1.0, 1e-9)
    assert math.sqrt(table.variance) == pytest.approx(math.sqrt(windows) / mu, rel=1e-6)
    # On its grid the noise is at least as wide as what the promise needs.
    assert Fraction(table.scale) ** 2 - 4 >= Fraction(table.grid) ** 2 * windows / Fraction(mu) ** 2


@pytest.mark.parametrize(("windows", "records"), [(1, 1), (7, 1), (7, 3), (168, 2)])
def test_laplace_noise_of_a_window_grows_with_all_records_of_a_unit(windows, records):
    unit = person(windows, 168, records)
    plan = plan_of(168, unit, whole(TABLE), 0.7, distribution="discrete_laplace")
    (table,) = plan.measurements
    assert Fraction(table.scale) >= Fraction(windows * records) / Fraction(0.7)
    assert table.scale == pytest.approx(windows * records / 0.7, rel=1e-12)


def test_record_as_unit_gets_the_same_noise_for_any_horizon():
    for num_windows in (1, 168, 10**5):
        (table,) = plan_of(num_windows, RECORD, delta=0.0).measurements
        assert table.scale == 1.0 and table.distribution == "discrete_laplace"


def test_auto_uses_laplace_noise_for_few_windows_and_gaussian_noise_for_many():
    taken = {
        windows: plan_of(168, person(windows, 168)).measurements[0].distribution
        for windows in (1, 15, 16, 168)
    }
    assert taken == {
        1: "discrete_laplace",
        15: "discrete_laplace",
        16: "discrete_gaussian",
        168: "discrete_gaussian",
    }


def levels(plan: Any) -> list[Any]:
    return [plan.measurements, plan.block_measurements]


def test_most_squares_is_the_maximum_over_all_placements():
    for size in range(1, 5):
        for number in range(1, 9):
            blocks = range(-(-number // size))
            held: set[tuple[int, ...]] = {()}
            for _ in blocks:
                held = {(*h, more) for h in held for more in range(size + 1)}
            largest = max(sum(n * n for n in h) for h in held if sum(h) <= number)
            assert most_squares(number, size) == largest


def test_single_marginal_is_measured_as_a_table_and_several_as_residuals():
    workload = workload_of(domain_of(2, 3, 2), 3)
    gaussian = plan_of(24, RECORD, workload, distribution="discrete_gaussian")
    assert [each.kind for each in gaussian.measurements] == ["table"]
    pairs = plan_of(24, RECORD, workload_of(TABLE, 1), distribution="discrete_gaussian")
    assert {each.kind for each in pairs.measurements} == {"residual"}
    assert {each.names for each in pairs.measurements} == {(), ("a0",), ("a1",)}
    # Two tables of their own would have twice the variance of one; residuals share the total.
    assert pairs.choice.window_variance < 2 / discrete_gaussian_mu(1.0, 1e-9) ** 2


@pytest.mark.parametrize(
    ("unit", "text", "records"),
    [
        (person(7, 168, 3), "person_id in any 168 consecutive windows of 1h", 21),
        (person(1, 1, 3), "person_id in any window of 1h", 3),
        (RECORD, "record", 1),
    ],
)
def test_guarantee_states_the_unit_its_windows_and_its_records(unit, text, records):
    plan = plan_of(168, unit)
    promised = plan.promised
    assert (promised.privacy_unit, promised.max_records_per_unit) == (text, records)
    assert promised.neighboring.value == "add_or_remove_one"
    assert (promised.epsilon, promised.delta, plan.mechanism) == (1.0, 1e-9, "windows")


def test_plan_loss_covers_all_windows_together():
    pure, gaussian = plan_of(168, person(7, 168)), plan_of(168, person(100, 168))
    assert pure.loss == Loss.pure(1.0)
    assert gaussian.loss == Loss.gaussian(discrete_gaussian_mu(1.0, 1e-9))


def test_window_loss_is_its_share_of_the_total_loss():
    for windows in (7, 100):
        for options in ({}, {"strategy": "levels", "share": 0.25}):
            plan = plan_of(168, person(windows, 168), **options)
            whole_loss, part = plan.loss, 0.75 if options else 1.0
            own = plan.window_loss
            assert own.kind == whole_loss.kind
            assert own.rho == pytest.approx(
                whole_loss.rho * part / windows * (part / windows if windows == 7 else 1)
            )


def test_card_states_the_promise_and_the_worst_case_over_the_horizon():
    stated = plan_of(100, person(2, 30, 3), epsilon=0.5).public
    assert stated["worst_case"] == {"periods": 4, "epsilon": 2.0, "delta": 4e-9}
    assert stated["promise"] == (
        "records of one person_id are used in at most 2 of any 30 consecutive windows of 1h, at"
        " most 3 in each; so many windows together reveal of them at most epsilon 0.5, delta"
        " 1e-09, and all 100 windows together at most epsilon 2, delta 4e-09"
    )
    assert plan_of(100, RECORD).public["worst_case"]["periods"] == 1
    assert plan_of(100, person(1, 100)).public["worst_case"]["periods"] == 1
    assert json.loads(json.dumps(stated)) == stated


def test_drawn_tables_state_their_window():
    plan = plan_of(50, RECORD, workload_of(TABLE, 1), strategy="levels", block=24)
    counts = np.arange(12)
    found = plan.draw(49, marginals_of(plan, counts), NoNoise(), HORIZON_ID)
    assert (found.level, found.number, found.horizon_id) == ("window", 49, HORIZON_ID)
    start = horizon_of(50).start
    assert (found.start, found.end) == (start + 49 * 3600, start + 50 * 3600)
    np.testing.assert_allclose(found.tables["a0",], counts.reshape(4, 3).sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(found.tables["a1",], counts.reshape(4, 3).sum(axis=0), atol=1e-9)
    block = plan.draw_block(2, marginals_of(plan, counts), NoNoise(), HORIZON_ID)
    assert (block.level, block.number) == ("block", 2)
    assert (block.start, block.end) == (start + 48 * 3600, start + 50 * 3600)
    assert found.guarantee == plan.guarantee and found.plan["strategy"] == "levels"


@pytest.mark.parametrize("noise", ["discrete_laplace", "discrete_gaussian"])
def test_marginals_are_sums_over_the_measured_table(noise):
    workload = dp.Workload(TABLE, (("a0",), ("a0", "a1"), ("a1",)))
    plan = plan_of(5, RECORD, workload, distribution=noise)
    counts = np.arange(12) % 5
    found = plan.draw(0, marginals_of(plan, counts), NoNoise(), HORIZON_ID).tables
    table = counts.reshape(4, 3)
    np.testing.assert_allclose(found["a0", "a1"], table, atol=1e-9)
    np.testing.assert_allclose(found["a0",], table.sum(axis=1), atol=1e-9)
    np.testing.assert_allclose(found["a1",], table.sum(axis=0), atol=1e-9)


def test_gaussian_noise_is_planned_for_the_most_cells_that_a_unit_may_change():
    wide = whole(domain_of(2**11, 2**10))
    plan_of(168, person(128, 168), wide, distribution="discrete_gaussian")


def test_single_window_has_no_blocks():
    assert plan_of(1, RECORD, strategy="best").strategy == "independent"


def test_memory_grows_with_the_number_of_cells():
    small, large = (plan_of(9, RECORD, whole(domain_of(n, 100))) for n in (1, 10_000))
    assert 50 * 10**6 < large.memory_bytes - small.memory_bytes < 500 * 10**6


CELLS = whole(domain_of(2))
LAPLACE = {"distribution": "discrete_laplace"}
GAUSSIAN = {"distribution": "discrete_gaussian"}
LEVELS = {"strategy": "levels", "block": 2, "share": 0.3}


def largest_share(
    num_windows: int, unit: dp.WindowUnit, workload: dp.Workload, options: dict[str, Any]
) -> float:
    """The most that any unit spends of the promise in the windows that it is of."""
    plan = plan_of(num_windows, unit, workload, epsilon=0.8, **options)
    num_cells = workload.domain.num_cells
    worst = 0.0
    for first in range(num_windows - unit.protected_windows + 1):
        run = range(first, first + unit.protected_windows)

        def seen(unit_counts: Any, run: range = run) -> list[Draw]:
            return handed_out(plan, np.asarray(unit_counts) + 1, run)

        nobody = seen(np.zeros((num_windows, num_cells), np.int64))
        for placement in placements(num_windows, unit, num_cells):
            worst = max(worst, share_spent(plan.guarantee, seen(placement), nobody))
    return worst


# Of residuals the records of a unit that agree move most: 4 cells, and 2 windows.
SEVERAL = workload_of(domain_of(2, 2), 1)


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("num_windows", "unit", "workload", "options"),
    [
        pytest.param(3, person(2, 3, 2), CELLS, {}, id="P = W"),
        pytest.param(4, person(1, 2, 2), CELLS, {}, id="P = 2"),
        pytest.param(4, person(2, 3), CELLS, {}, id="sliding"),
        pytest.param(3, person(3, 3), CELLS, {}, id="c = P"),
        pytest.param(3, person(1, 3, 2), CELLS, LEVELS, id="blocks, c = 1"),
        pytest.param(3, person(2, 3, 2), CELLS, LEVELS, id="blocks, c = 2"),
        pytest.param(3, person(3, 3), CELLS, LEVELS, id="blocks, c = 3"),
        pytest.param(2, person(2, 2), SEVERAL, {}, id="several marginals"),
        pytest.param(2, person(2, 2), SEVERAL, LEVELS, id="several marginals, blocks"),
    ],
)
def test_total_loss_is_exactly_the_promise(num_windows, unit, workload, options, noise):
    share = largest_share(num_windows, unit, workload, {**noise, **options})
    assert 1 - 1e-6 < share <= 1 + 1e-12


@pytest.mark.parametrize("noise", [LAPLACE, GAUSSIAN], ids=["laplace", "gaussian"])
@pytest.mark.parametrize("options", [{}, LEVELS], ids=["windows", "and blocks"])
def test_loss_of_each_record_is_exactly_the_promise(options, noise):
    """In all windows of the horizon together, for it is in one of them."""
    plan = plan_of(4, RECORD, CELLS, epsilon=0.8, **options, **noise)
    nobody = handed_out(plan, np.ones((4, 2)), range(4))
    shares = []
    for place in range(8):
        counts = 1 + (np.arange(8) == place).reshape(4, 2)
        shares.append(share_spent(plan.guarantee, handed_out(plan, counts, range(4)), nobody))
    assert min(shares) > 1 - 1e-6 and max(shares) <= 1 + 1e-12


# A synthetic database of each window: which guarantee of one window keeps the whole promise.


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
    "mechanism",
    [dp.MWEM(), dp.Laplace(), dp.Gaussian(), dp.Gaussian("textbook"), dp.MWEM(num_rounds=2)],
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
        for name, mechanism in (("gaussian", dp.Gaussian()), ("laplace", dp.Laplace()))
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
    for mechanism in (dp.MWEM(), dp.Gaussian(), dp.Laplace()):
        guarantee = planned(mechanism, 1).window.guarantee
        assert (guarantee.epsilon, guarantee.delta) == (EPSILON, DELTA)
    assert planned(dp.Laplace(), 5, 0.0).window.guarantee.epsilon == pytest.approx(0.2)


def test_guarantees_state_one_window_and_all_windows():
    plan = planned(dp.Laplace(), 7)
    assert plan.window.guarantee.privacy_unit == "person_id in any window of 1h"
    assert plan.window.guarantee.max_records_per_unit == 2
    assert plan.guarantee.privacy_unit == "person_id in any 168 consecutive windows of 1h"
    assert plan.guarantee.max_records_per_unit == 14
    assert (plan.mechanism, plan.block, plan.time_depends_on_data) == ("windows", None, False)


def test_database_of_a_window_states_its_horizon_and_number(tmp_path):
    horizon = horizon_of(24)
    plan = plan_window_databases(dp.Laplace(), WORKLOAD, horizon, RECORD, EPSILON, DELTA)
    held = Histogram(WORKLOAD.domain, np.full(12, 50)).marginals(plan.summary_tables)
    release = plan.draw(5, held, Seeded(1), HORIZON_ID)
    assert 400 < release.num_records < 800
    dp.write_release(release, tmp_path / "window")
    stated: Any = dp.read_release(tmp_path / "window")
    windows = stated.plan["windows"]
    assert (windows["number"], windows["horizon_id"]) == (5, HORIZON_ID)
    assert windows["worst_case"]["epsilon"] == 1.0 and windows["horizon"]["num_windows"] == 24
    assert stated.guarantee == plan.window.guarantee


def test_slack_reduces_the_delta_of_composed_losses():
    """Slacks add up, and what they leave of delta is what mu or rho may use."""
    keeps_promise = plan_module._keeps
    promise = planned(dp.Laplace(), 1).guarantee
    pure = Loss.approximate(EPSILON / 7, DELTA / 8).repeated(7)
    assert keeps_promise(pure, promise)
    assert not keeps_promise(Loss.approximate(EPSILON / 7, DELTA / 6).repeated(7), promise)
    rho = zcdp_rho(EPSILON, DELTA)
    assert keeps_promise(Loss(rho=rho), promise)
    assert not keeps_promise(Loss(rho=rho, slack=DELTA / 2), promise)
    assert not keeps_promise(Loss(rho=rho / 2, slack=DELTA), promise)


@pytest.mark.part
def test_every_marginals_mechanism_releases_window_databases():
    plan = planned(dp.SmallDB(size=4), 3)
    assert plan.window.guarantee.epsilon == pytest.approx(1 / 3)


def test_verified_loss_of_blocks_is_that_of_the_worst_placement():
    one = Step("", "", "", "", Loss.gaussian(1))
    for size in range(2, 8):
        for most in range(1, 20):
            (step,) = level_steps([one], "block", Limits(1, most, most, most), size)
            assert step.loss.mu_squared == most_squares(most, size)

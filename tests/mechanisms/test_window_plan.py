"""Plans of windows: how much noise, what is promised, and errors against simulated horizons."""

import json
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from noise_sources import NoNoise, Seeded
from tiny import domain_of, workload_of
from window_plans import HORIZON_ID, RECORD, horizon_of, marginals_of, person, plan_of, whole

import beam_dp as dp
from beam_dp.domain.horizon import Blocks
from beam_dp.mechanisms.windows.choices import Question, mean_squared_error, most_squares
from beam_dp.mechanisms.windows.plan import (
    WindowDatabasesPlan,
    WindowTablesPlan,
    plan_window_databases,
)
from beam_dp.planning.windows import rank_window_strategies
from beam_dp.privacy.accounting import discrete_gaussian_mu
from beam_dp.privacy.loss import Loss
from beam_dp.privacy.noise.source import NoiseSource
from beam_dp.privacy.steps import Step
from beam_dp.releases.windows.release import HorizonRelease
from beam_dp.releases.windows.verify import level_steps
from beam_dp.secret.summaries.histogram import Histogram

TABLE = domain_of(4, 3)


@pytest.mark.parametrize(("windows", "records"), [(1, 1), (7, 1), (7, 3), (168, 2)])
def test_laplace_noise_of_a_window_grows_with_all_records_of_a_unit(windows, records):
    unit = person(windows, 168, records)
    plan = plan_of(168, unit, whole(TABLE), 0.7, distribution="discrete_laplace")
    (table,) = plan.measurements
    assert Fraction(table.scale) >= Fraction(windows * records) / Fraction(0.7)
    assert table.scale == pytest.approx(windows * records / 0.7, rel=1e-12)


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


def test_gaussian_noise_is_planned_for_the_most_cells_that_a_unit_may_change():
    wide = whole(domain_of(2**11, 2**10))
    plan_of(168, person(128, 168), wide, distribution="discrete_gaussian")


def test_single_window_has_no_blocks():
    assert plan_of(1, RECORD, strategy="best").strategy == "independent"


def test_memory_grows_with_the_number_of_cells():
    small, large = (plan_of(9, RECORD, whole(domain_of(n, 100))) for n in (1, 10_000))
    assert 50 * 10**6 < large.memory_bytes - small.memory_bytes < 500 * 10**6


# A synthetic database of each window: which guarantee of one window keeps the whole promise.


WORKLOAD = workload_of(domain_of(3, 2, 2), 2)
EPSILON, DELTA = 1.0, 1e-9


def planned(mechanism: Any, windows: int, delta: float = DELTA) -> WindowDatabasesPlan:
    unit = person(windows, 168, 2)
    return plan_window_databases(mechanism, WORKLOAD, horizon_of(168), unit, EPSILON, delta)


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


@pytest.mark.part
def test_every_marginals_mechanism_releases_window_databases():
    plan = planned(dp.SmallDB(size=4), 3)
    assert plan.window.guarantee.epsilon == pytest.approx(1 / 3)


def test_verified_loss_of_blocks_is_that_of_the_worst_placement():
    one = Step("", "", "", "", Loss.gaussian(1))
    for size in range(2, 8):
        for most in range(1, 20):
            (step,) = level_steps([one], "block", most, size)
            assert step.loss.mu_squared == most_squares(most, size)


# Errors of sums of windows: closed forms against simulated horizons.
#
# The simulations estimate by dense least squares of what is released at each time, so that nothing
# of the estimator is used twice. A root mean square of n independent errors is within 5 % of its
# closed form, but for a chance below 1e-6, if n is at least 5,000 for Gaussian noise and 12,500 for
# Laplace noise; all sums of one horizon and cell count as one error, and there are 25,600 of these.


QUESTIONS = ("one", "trailing:24", "running")
LEVELS = {"strategy": "levels", "block": 24, "share": 0.3}


def design_of(num_windows: int, blocks: Blocks | None) -> np.ndarray:
    """Which windows each window and each block sums up, one row each."""
    design = np.zeros((num_windows + (0 if blocks is None else len(blocks)), num_windows))
    design[:num_windows] = np.eye(num_windows)
    for number in range(len(design) - num_windows):
        design[num_windows + number, list(blocks.windows(number))] = 1  # type: ignore[union-attr]
    return design


@pytest.mark.parametrize("moment", ["now", "end"])
def test_closed_form_equals_the_variance_of_dense_least_squares(moment):
    rng = np.random.default_rng(3)
    for _ in range(60):
        num_windows = int(rng.integers(2, 12))
        size = int(rng.integers(2, num_windows + 1))
        window, block = rng.uniform(0.5, 9, 2)
        question = Question(None if rng.random() < 0.3 else int(rng.integers(1, num_windows + 1)))
        blocks = Blocks(num_windows, size)
        design = design_of(num_windows, blocks)
        precision = 1 / np.array([window] * num_windows + [block] * len(blocks))
        variances = []
        for first, stop in zip(*question.ends(num_windows), strict=True):
            known = stop if moment == "now" else num_windows
            seen = np.flatnonzero(design[:, known:].sum(axis=1) == 0)
            of_seen = design[seen, :known]
            covariance = np.linalg.inv((of_seen.T * precision[seen]) @ of_seen)
            variances.append(covariance[first:stop, first:stop].sum())
        found = mean_squared_error(question, num_windows, window, size, block, moment)
        assert found == pytest.approx(np.mean(variances), rel=1e-9)


BARS = [
    (1, {}, "now", (1.41, 6.93, 13.0)),
    (1, LEVELS, "now", (2.02, 8.3, 10.1)),
    (1, LEVELS, "end", (1.99, 6.7, 8.8)),
    (7, {}, "now", (9.9, 48.5, 91)),
    (168, {}, "now", (71.23, 349, 655)),
]


@pytest.mark.parametrize(("windows", "options", "moment", "bars"), BARS)
def test_errors_of_a_week_are_at_most_those_of_continuous_noise(windows, options, moment, bars):
    plan = plan_of(168, person(windows, 168), **options)
    for text, bar in zip(QUESTIONS, bars, strict=True):
        assert 0.95 * bar < plan.error(text, moment) < 1.001 * bar


@pytest.mark.part
@pytest.mark.parametrize("options", [{}, LEVELS], ids=["independent", "levels"])
def test_errors_of_released_horizons_match_the_stated_errors(options):
    """4,096 running totals."""
    domain = domain_of(1024)
    plan = plan_of(24, RECORD, whole(domain), **{**options, **({"block": 6} if options else {})})
    source = Seeded(4)
    squares: dict[str, list[float]] = {text: [] for text in QUESTIONS}
    stated: dict[str, list[float]] = {text: [] for text in QUESTIONS}
    for _ in range(4):
        release = released(plan, source, counts=3)
        for text in QUESTIONS:
            for first, stop in zip(*Question.parse(text, 24).ends(24), strict=True):
                (answer,) = release.answer(plan.workload, slice(int(first), int(stop)))
                squares[text].append(((answer.values - 3 * (stop - first)) ** 2).mean())
                stated[text].append(float(answer.standard_error or 0) ** 2)
    for text in QUESTIONS:
        found = math.sqrt(np.mean(squares[text]))
        assert found == pytest.approx(math.sqrt(np.mean(stated[text])), rel=0.08)
        assert found == pytest.approx(plan.error(text, "end"), rel=0.08)


def released(plan: WindowTablesPlan, source: NoiseSource, counts: int) -> HorizonRelease:
    """A horizon all of whose windows hold so many records in each cell."""
    blocks = plan.blocks
    sizes = [] if blocks is None else [len(blocks.windows(n)) for n in range(len(blocks))]
    return HorizonRelease(
        horizon=plan.horizon,
        horizon_id=HORIZON_ID,
        guarantee=plan.guarantee,
        workload=plan.workload,
        windows={
            number: plan.draw(number, marginals_of(plan, counts), source, HORIZON_ID)
            for number in range(plan.horizon.num_windows)
        },
        block=plan.block,
        blocks={
            number: plan.draw_block(number, marginals_of(plan, counts * size), source, HORIZON_ID)
            for number, size in enumerate(sizes)
        },
    )


@pytest.mark.part
@pytest.mark.parametrize(
    ("num_windows", "unit"),
    [(24, RECORD), (168, RECORD), (168, person(7, 168)), (60, person(60, 60)), (48, person(3, 12))],
)
@pytest.mark.parametrize("questions", [QUESTIONS, ("running",), ("trailing:12", "running")])
def test_ranked_first_choice_is_within_two_percent_of_the_best(num_windows, unit, questions):
    """Nor any share in steps of 3 %, with the noise that is drawn."""

    def mean_error(plan: WindowTablesPlan) -> float:
        return math.exp(np.mean([math.log(plan.error(text)) for text in questions]))

    best = plan_of(num_windows, unit, strategy="best", questions=questions)
    least = mean_error(best)
    options = rank_window_strategies(
        best.workload, horizon_of(num_windows), unit, 1.0, 1e-9, questions=questions
    )
    assert options[0].mean_error == pytest.approx(least, rel=1e-6)
    for option in options:
        kwargs: dict[str, Any] = {"distribution": option.distribution, "strategy": option.strategy}
        if option.block is None:
            assert least <= 1.02 * mean_error(plan_of(num_windows, unit, **kwargs))
            continue
        for share in (option.share, *np.arange(0.02, 1, 0.12).tolist()):
            other = plan_of(num_windows, unit, block=option.block, share=share, **kwargs)
            assert least <= 1.02 * mean_error(other)
            if share == option.share:
                for text in questions:
                    assert other.error(text) == pytest.approx(option.errors[text], rel=1e-4)
                    final = other.error(text, "end")
                    assert final == pytest.approx(option.final_errors[text], rel=1e-4)


def test_blocks_lower_the_error_of_running_totals_but_not_of_single_windows():
    for questions, strategy in ((("running",), "levels"), (("one",), "independent")):
        plan = plan_of(168, RECORD, strategy="best", questions=questions)
        assert plan.strategy == strategy


def test_blocks_are_ranked_only_if_the_whole_horizon_is_protected():
    for unit, strategies in (
        (person(3, 12), {"independent"}),
        (person(3, 48), {"independent", "levels"}),
        (RECORD, {"independent", "levels"}),
    ):
        found = rank_window_strategies(whole(domain_of(3)), horizon_of(48), unit, 1.0, 1e-9)
        assert {each.strategy for each in found} == strategies
        assert [each.mean_error for each in found] == sorted(each.mean_error for each in found)
